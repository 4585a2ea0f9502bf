package hub

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// InboxInput selects a page of the caller's inbox.
type InboxInput struct {
	// Statuses are words of the team door; none takes the default, see [Hub.Inbox].
	Statuses []string
	// Since keeps only what changed after it; zero keeps all.
	Since time.Time
	// Limit is the most items of a page, 1 to 200; 0 means 50.
	Limit  int
	Cursor string
	// Role is "recipient", "sender", or "" for both.
	Role string
	// Wait parks the call for at most this long while nothing unread matches.
	Wait time.Duration
	// Fit cuts a page to a door's byte budget: it returns how many of the items fit, at least
	// one. Nil keeps all.
	Fit func(*Inbox) int
	// Peek leaves no trace: the sender is not told that anything was fetched.
	Peek bool
}

// MaxWait is the longest a call may be parked.
const MaxWait = 50 * time.Second

// InboxItem is one handoff of a page, with what its reader has not seen.
type InboxItem = store.InboxItem

// Inbox is a page of what concerns the caller, newest first.
type Inbox struct {
	Viewer      handoff.Actor
	Items       []InboxItem
	Parties     map[string]Party
	UnreadTotal int
	NextCursor  string // empty on the last page
}

// Inbox lists handoffs by creation time, newest first. By default: the pending and accepted
// ones to the caller, what it holds though it was sent to another, and anything that the caller sent or received with unseen news. What is
// handed to its recipient for the first time counts as fetched from then on; nothing is marked
// read.
func (h *Hub) Inbox(ctx context.Context, call Call, in InboxInput) (Inbox, error) {
	q, err := h.inboxQuery(call, in)
	if err != nil {
		return Inbox{}, err
	}
	var out Inbox
	keys := []string{call.Actor.ID}
	if in.Since.IsZero() && q.States == nil && in.Role == "" {
		keys[0] = wakeNews(call.Actor.ID) // nothing but news can be an answer
	}
	err = h.park(ctx, call, keys, in.Wait, func(*waiter) (bool, error) {
		page, err := h.inboxPage(ctx, call, q, in.Fit)
		out = page
		return page.answers(!in.Since.IsZero()), err
	})
	if err != nil || in.Peek {
		return out, err
	}
	return out, h.noteFetched(ctx, call, out.Items)
}

// answers reports whether the page holds what a parked caller waits for: anything at all that
// changed since a given time, else anything unread.
func (p *Inbox) answers(since bool) bool {
	if since {
		return len(p.Items) > 0
	}
	for i := range p.Items {
		if p.Items[i].Unread > 0 || len(p.Items[i].News) > 0 {
			return true
		}
	}
	return false
}

func (h *Hub) inboxQuery(call Call, in InboxInput) (store.InboxQuery, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return store.InboxQuery{}, err
	}
	if in.Wait < 0 || in.Wait > MaxWait {
		return store.InboxQuery{}, handoff.Invalid("wait_seconds", fmt.Sprintf("%g came; 0 to %g are accepted", in.Wait.Seconds(), MaxWait.Seconds()))
	}
	if in.Role != "" && in.Role != "recipient" && in.Role != "sender" {
		return store.InboxQuery{}, handoff.Invalid("role", handoff.Quote(in.Role)+" came; recipient and sender are accepted")
	}
	q := store.InboxQuery{AgentID: call.Actor.ID, Role: in.Role, Since: in.Since, Limit: limit + 1}
	if q.States, err = statesOf(in.Statuses); err != nil {
		return q, err
	}
	if in.Cursor != "" {
		q.BeforeTime, q.BeforeID, err = parseInboxCursor(in.Cursor)
	}
	return q, err
}

func (h *Hub) inboxPage(ctx context.Context, call Call, q store.InboxQuery, fit func(*Inbox) int) (Inbox, error) {
	p := Inbox{Viewer: call.Actor}
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		var err error
		if p.Items, err = tx.Inbox(q); err != nil {
			return err
		}
		ids := map[string]bool{}
		for i := range p.Items {
			row := p.Items[i].Handoff.At(tx.Now())
			row.Payload = nil // its claimant reads it in the thread
			ids[row.Creator], ids[row.Recipient], ids[row.Holder] = true, true, true
			p.Items[i].Handoff = row
		}
		delete(ids, "")
		if p.Parties, err = names(tx, sortedKeys(ids)); err != nil {
			return err
		}
		p.UnreadTotal, err = tx.UnreadTotal(call.Actor.ID)
		return err
	})
	if err != nil {
		return Inbox{}, err
	}
	more := len(p.Items) == q.Limit
	if more {
		p.Items = p.Items[:q.Limit-1]
	}
	if fit != nil && len(p.Items) > 0 {
		if n := fit(&p); n < len(p.Items) {
			p.Items, more = p.Items[:n], true
		}
	}
	if more {
		last := &p.Items[len(p.Items)-1].Handoff
		p.NextCursor = inboxCursor(last.CreatedAt, last.ID)
	}
	return p, nil
}

// noteFetched writes down that items reached their recipient, so that their sender can see
// whether anybody has looked.
func (h *Hub) noteFetched(ctx context.Context, call Call, items []store.InboxItem) error {
	var fresh []string
	for i := range items {
		if row := &items[i].Handoff; row.Recipient == call.Actor.ID && row.FetchedAt.IsZero() {
			fresh = append(fresh, row.ID)
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	return h.change(ctx, "fetch", call, func(c *change) error {
		return c.MarkFetched(call.Actor.ID, fresh, c.Now())
	})
}

func inboxCursor(t time.Time, id string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(t.UnixMicro(), 36) + "." + id))
}

func parseInboxCursor(cursor string) (time.Time, string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		if at, id, ok := strings.Cut(string(b), "."); ok && handoff.CheckText("cursor", id, 64) == nil {
			if us, err := strconv.ParseInt(at, 36, 64); err == nil && us > 0 {
				return time.UnixMicro(us).UTC(), id, nil
			}
		}
	}
	return time.Time{}, "", handoff.Invalid("cursor", handoff.Quote(cursor)+" came; pass next_cursor of an earlier answer back as it was, or leave it out for the first page")
}
