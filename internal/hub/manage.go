package hub

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The operator's hand on handoffs: finding, cancelling, reassigning and erasing those of anyone.
// Each verb is refused with permission_denied to anyone else, and takes an id or its beginning.

// ListInput selects a page of all handoffs. What is empty does not filter.
type ListInput struct {
	// Statuses are words of the team door.
	Statuses []string
	// Agent takes part in any role; From sent it, To is its recipient. All are handles.
	Agent, From, To string
	// Since keeps what was created at that time or later.
	Since time.Time
	// Unfetched keeps pending ones that their recipient was never handed.
	Unfetched bool
	// HeldLonger keeps those that their holder has had for at least as long.
	HeldLonger time.Duration
	// Limit is the most items of a page, 1 to 200; 0 means 50.
	Limit  int
	Cursor string
}

// ListedHandoff is a handoff with the time since when its holder has it.
type ListedHandoff = store.ListedHandoff

// Listing is a page of all handoffs, newest first.
type Listing struct {
	Items      []ListedHandoff
	Parties    map[string]Party
	NextCursor string // empty on the last page
}

// Handoffs lists the handoffs of everyone for the operator. It marks nothing read or fetched.
func (h *Hub) Handoffs(ctx context.Context, call Call, in ListInput) (Listing, error) {
	if err := operatorOnly(call); err != nil {
		return Listing{}, err
	}
	q, err := handoffQuery(in)
	if err != nil {
		return Listing{}, err
	}
	var out Listing
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		for _, by := range []struct {
			handle string
			id     *string
		}{{in.Agent, &q.AgentID}, {in.From, &q.CreatorID}, {in.To, &q.RecipientID}} {
			if by.handle == "" {
				continue
			}
			a, err := agentNamed(tx, by.handle)
			if err != nil {
				return err
			}
			*by.id = a.ID
		}
		if in.HeldLonger > 0 {
			q.HeldSince = tx.Now().Add(-in.HeldLonger)
		}
		if out.Items, err = tx.Handoffs(q); err != nil {
			return err
		}
		ids := map[string]bool{}
		for i := range out.Items {
			row := out.Items[i].Handoff.At(tx.Now())
			row.Payload = nil // its claimant alone reads it
			ids[row.Creator], ids[row.Recipient], ids[row.Holder] = true, true, true
			out.Items[i].Handoff = row
		}
		delete(ids, "")
		out.Parties, err = names(tx, sortedKeys(ids))
		return err
	})
	if err == nil && len(out.Items) == q.Limit {
		out.Items = out.Items[:q.Limit-1]
		last := &out.Items[q.Limit-2].Handoff
		out.NextCursor = inboxCursor(last.CreatedAt, last.ID)
	}
	return out, err
}

func handoffQuery(in ListInput) (store.HandoffQuery, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return store.HandoffQuery{}, err
	}
	q := store.HandoffQuery{Since: in.Since, Unfetched: in.Unfetched, Limit: limit + 1}
	if in.HeldLonger < 0 {
		return q, handoff.Invalid("held_longer_than_seconds", fmt.Sprintf("%g came; a positive number is accepted", in.HeldLonger.Seconds()))
	}
	if q.States, err = statesOf(in.Statuses); err != nil {
		return q, err
	}
	if in.Cursor != "" {
		_, q.BeforeID, err = parseInboxCursor(in.Cursor)
	}
	return q, err
}

// statesOf reads words of the team door.
func statesOf(words []string) ([]handoff.State, error) {
	var states []handoff.State
	for _, s := range words {
		these := handoff.StatesOf(s)
		if these == nil {
			return nil, handoff.Invalid("status", handoff.Quote(s)+" came; "+joinOr(handoff.TeamStatuses())+" are accepted")
		}
		states = append(states, these...)
	}
	return states, nil
}

// shortestPrefix is how much of an id says which handoff is meant: its first eight characters are
// a time to the minute.
const shortestPrefix = 8

var idPrefix = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// named gives the id of the one handoff that the operator means by an id or its beginning.
func (h *Hub) named(ctx context.Context, call Call, prefix string) (string, error) {
	if err := operatorOnly(call); err != nil {
		return "", err
	}
	if len(prefix) < shortestPrefix || !idPrefix.MatchString(prefix) {
		return "", handoff.Invalid("id", handoff.Quote(prefix)+fmt.Sprintf(" came; the id of a handoff is accepted, or at least its first %d characters", shortestPrefix))
	}
	const most = 100
	var ids []string
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		ids, err = tx.HandoffsNamed(strings.ToLower(prefix), most)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", handoff.Refuse(handoff.CodeNotFound, "no handoff has the id "+handoff.Quote(prefix)+", or one that begins so", "List them with: handclasp handoff list")
	case len(ids) == 1 || ids[0] == strings.ToLower(prefix):
		return ids[0], nil
	}
	number := fmt.Sprint(len(ids))
	if len(ids) == most {
		number += " or more"
	}
	return "", handoff.Invalid("id", "the ids of "+number+" handoffs begin with "+handoff.Quote(prefix)+"; give more of it").With("matches", len(ids))
}

// Inspect shows a handoff to the operator, one page of its messages included. in.ThreadID may be
// the beginning of an id.
func (h *Hub) Inspect(ctx context.Context, call Call, in ViewInput) (Thread, error) {
	var err error
	if in.ThreadID, err = h.named(ctx, call, in.ThreadID); err != nil {
		return Thread{}, err
	}
	return h.View(ctx, call, in)
}

// History is a page of what happened to one handoff.
type History struct {
	Events  []handoff.Event
	Parties map[string]Party // by the ids of the actors
	// NextSeq is what to pass as after for the next page; 0 when there is none.
	NextSeq int
}

// History reads the events of one handoff for the operator, in their order, after the given
// event_seq.
func (h *Hub) History(ctx context.Context, call Call, id string, after int) (History, error) {
	id, err := h.named(ctx, call, id)
	if err != nil {
		return History{}, err
	}
	const page = 1000
	var out History
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		if out.Events, err = tx.HandoffEvents(id, after, page+1); err != nil {
			return err
		}
		ids := map[string]bool{}
		for i := range out.Events {
			ids[out.Events[i].ActorID] = true
		}
		out.Parties, err = names(tx, sortedKeys(ids))
		return err
	})
	if err == nil && len(out.Events) > page {
		out.Events = out.Events[:page]
		out.NextSeq = out.Events[page-1].Seq
	}
	return out, err
}

// CancelAny ends a handoff of anyone by the operator's hand; all who take part are told.
func (h *Hub) CancelAny(ctx context.Context, call Call, in CancelInput) (Ended, error) {
	var err error
	if in.ThreadID, err = h.named(ctx, call, in.ThreadID); err != nil {
		return Ended{}, err
	}
	return h.Cancel(ctx, call, in)
}

// ReassignInput gives a handoff to another agent.
type ReassignInput struct {
	ThreadID string `json:"thread_id"`
	To       string `json:"to"`
	Reason   string `json:"reason"`
}

// Reassigned is the answer to it.
type Reassigned struct {
	ThreadID string
	Holder   string // as registered
	Epoch    int
	// Replay: the agent held it already, and nothing was done.
	Replay bool
}

// Reassign gives a handoff that has not ended to another active agent, without a lease. The reason
// goes into the thread. The new holder finds it in its inbox with all messages unread, those who
// take part are told, and the old holder is fenced off by the epoch.
func (h *Hub) Reassign(ctx context.Context, call Call, in ReassignInput) (Reassigned, error) {
	id, err := h.named(ctx, call, in.ThreadID)
	if err != nil {
		return Reassigned{}, err
	}
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return Reassigned{}, err
	}
	var out Reassigned
	err = h.change(ctx, "reassign", call, func(c *change) error {
		was, row, err := c.take(id)
		if err != nil {
			return err
		}
		to, err := c.heir(&row, in.To)
		if err != nil {
			return err
		}
		// No door makes handoffs yet that a capability verifies, so none is counted.
		rule := handoff.ReassignInput{To: &to.Agent, Reason: in.Reason, OtherVerifiers: 1}
		event, err := row.Reassign(call.Actor, rule, c.Now())
		if err != nil {
			return err
		}
		out = Reassigned{ThreadID: row.ID, Holder: to.Handle, Epoch: row.Epoch, Replay: event == handoff.Repeated}
		if out.Replay {
			return nil
		}
		return c.handOver(&was, &row, event, handoff.Message{
			ID: newID(), HandoffID: row.ID, SequenceNo: row.Messages, Author: call.Actor.ID,
			Body: "Reassigned to " + to.Handle + ": " + in.Reason, CreatedAt: c.Now(),
		})
	})
	if isCode(err, handoff.CodeRecipientNotFound) {
		err = h.withNearMatches(ctx, call, in.To, err)
		var e *handoff.Error
		if errors.As(err, &e) {
			e.Hint = "Nothing was changed. List them with: handclasp agent list"
		}
	}
	return out, err
}

// heir reads the agent that is to hold the handoff, which must not keep its sender away.
func (c *change) heir(row *handoff.Handoff, handle string) (store.AgentRow, error) {
	to, err := c.AgentByHandle(handle)
	if isCode(err, handoff.CodeNotFound) {
		return to, noRecipient("to", handle)
	}
	if err != nil {
		return to, err
	}
	blocked, err := c.Blocked(to.ID, row.Creator)
	if err == nil && blocked && to.ID != row.Holder {
		err = handoff.Refuse(handoff.CodeTeammateBlocked, "to: "+handoff.Quote(handle)+" does not take handoffs from the sender of this one", "Nothing was changed. Name another agent.")
	}
	return to, err
}

// handOver writes down a reassignment, with the message that gives its reason.
func (c *change) handOver(was, row *handoff.Handoff, event handoff.EventType, m handoff.Message) error {
	joins := row.Holder != row.Creator && row.Holder != row.Recipient && row.Holder != was.Holder
	return first(
		func() error { return c.InsertMessage(&m) },
		func() error { return c.record(row, event, c.call.Actor, m.ID, m.SequenceNo, others(row)...) },
		func() error { return c.parted(row, was.Holder) },
		func() error {
			if !joins {
				return nil
			}
			return c.NoticeThread(row.Holder, row, c.Now())
		},
		func() error { return c.UpdateHandoff(was, row) })
}

// Erased is the answer to an erasure.
type Erased struct {
	ThreadID string
	ErasedAt time.Time
	// Replay: it was erased before, and nothing was done.
	Replay bool
}

// eraseChunk is how many messages one transaction erases: a long thread must not keep everyone
// else's writes waiting. Only the last one marks the handoff, so an erasure that was cut off is
// finished by repeating it.
const eraseChunk = 100

// Erase removes the texts and contact details of a handoff that has ended, for good. What stays:
// ids, states, times, numbers, events, and keys with their fingerprints, so that a repeated call
// is still recognised. Nobody is told.
func (h *Hub) Erase(ctx context.Context, call Call, id string) (Erased, error) {
	id, err := h.named(ctx, call, id)
	if err != nil {
		return Erased{}, err
	}
	out := Erased{ThreadID: id}
	for from, done := 1, false; !done; from += eraseChunk {
		err := h.change(ctx, "erase", call, func(c *change) error {
			_, row, err := c.take(id)
			if err != nil {
				return err
			}
			event, err := row.Erase(call.Actor, c.Now())
			if err != nil {
				return err
			}
			out.ErasedAt, out.Replay = row.ErasedAt, event == handoff.Repeated
			done = out.Replay || from+eraseChunk > row.Messages
			if out.Replay {
				return nil
			}
			if err := c.EraseMessages(id, handoff.ErasedText, from, from+eraseChunk-1); err != nil || !done {
				return err
			}
			return first(
				func() error { return c.record(&row, event, call.Actor, "", 0) },
				func() error { return c.EraseHandoff(&row, handoff.ErasedText) })
		})
		if err != nil {
			return Erased{}, err
		}
	}
	return out, nil
}
