package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// Party is how an agent is shown to others.
type Party struct {
	ID     string
	Handle string
	Name   string
	Role   string
}

// Thread is a handoff as one of its participants sees it, one page of its messages included.
// Texts are as they were sent; doors mark what others wrote.
type Thread struct {
	Handoff   handoff.Handoff
	Viewer    handoff.Actor
	Parties   map[string]Party // by actor id
	Summary   handoff.Message
	Drafts    []handoff.Draft
	Messages  []handoff.Message
	FirstPage bool
	HasMore   bool
	// NextSequenceNo is what to pass as after_sequence_no for the next page; 0 when there is
	// none.
	NextSequenceNo int
	Replay         bool

	// What follows is filled in for a page that people read, of a pool handoff, see [ViewInput].

	Root         string // of its workspace
	DependsOn    []Dependency
	Dependencies *DependencyCount // nil when there are none
	// HasResult: there is one, which the reader may not see.
	HasResult bool

	// And of what the operator inspects: what went out of it and to whom, and of the desk its business and
	// mode, see [Hub.Inspect].

	Deliveries []handoff.Delivery
	Recipients map[string]Party
	Desk       handoff.Desk
}

// Dependency is a handoff that another waits or waited for, and that the reader may see.
type Dependency struct {
	ID    string
	State handoff.State
}

// Party is how the actor with this id is shown.
func (t *Thread) Party(id string) Party {
	if p, ok := t.Parties[id]; ok {
		return p
	}
	return Party{ID: id, Handle: id, Name: id}
}

// Sizer tells how much room things take in a door's result, so that a page ends in time.
// Fixed is what stands on the first page besides messages. A nil Sizer means no budget.
type Sizer interface {
	Budget() int
	Fixed(*Thread) int
	Message(*Thread, *handoff.Message) int
}

// ViewInput selects a page of a thread.
type ViewInput struct {
	ThreadID string `json:"thread_id"`
	// After is the sequence number to go on behind; 0 begins with message 1.
	After int `json:"after_sequence_no"`
	// Limit is the most messages of a page, 1 to 200; 0 means 50.
	Limit int   `json:"limit"`
	Size  Sizer `json:"-"`
	// Peek leaves everything unread, for a person who looks on.
	Peek bool `json:"-"`
	// ForPerson adds what only people are shown with a thread; agents have tools of their own for it.
	ForPerson bool `json:"-"`
}

// PageLimit is the most items of any page, DefaultPage how many come unless asked otherwise.
const (
	PageLimit   = 200
	DefaultPage = 50
)

func pageSize(limit int) (int, error) {
	if limit == 0 {
		return DefaultPage, nil
	}
	if limit < 1 || limit > PageLimit {
		return 0, handoff.Invalid("limit", fmt.Sprintf("%d came; 1 to %d are accepted", limit, PageLimit))
	}
	return limit, nil
}

// View reads a thread: not_found for whoever may not see it. It marks read exactly the
// messages that it returns, takes note of what changed as seen, and changes nothing else.
func (h *Hub) View(ctx context.Context, call Call, in ViewInput) (Thread, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return Thread{}, err
	}
	if in.After < 0 {
		return Thread{}, handoff.Invalid("after_sequence_no", fmt.Sprintf("%d came; 0 or a sequence number is accepted", in.After))
	}
	var t Thread
	var seen []store.Notice
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		row, err := tx.Handoff(in.ThreadID)
		if err != nil {
			return err
		}
		row = row.At(tx.Now())
		a, err := agentFor(tx, call.Actor, &row)
		if err != nil {
			return err
		}
		if !row.ReadableBy(call.Actor, a, tx.Now()) {
			return handoff.NotFound("handoff", in.ThreadID)
		}
		if row.Door == handoff.DoorPool {
			if !row.Participant(call.Actor, a) {
				return handoff.Refuse(handoff.CodeNotAParticipant, "you do not take part in the thread of this handoff", "handoff_get shows what you may see of it; handoff_claim takes it while it is OPEN.")
			}
			hide(&row, call.Actor, a)
		}
		t, err = readThread(tx, call.Actor, row, in.After, limit, in.Size)
		if err == nil && in.ForPerson && row.Door == handoff.DoorPool {
			err = t.surroundings(tx, a)
		}
		if err != nil || in.Peek || call.Actor.Kind != handoff.KindAgent {
			return err
		}
		seen, err = seenBy(tx, &t)
		return err
	})
	if err != nil {
		return Thread{}, err
	}
	fetched := !in.Peek && call.Actor.ID == t.Handoff.Recipient && t.Handoff.FetchedAt.IsZero()
	if len(seen) == 0 && !fetched {
		return t, nil
	}
	err = h.change(ctx, "view", call, func(c *change) error {
		if fetched {
			t.Handoff.FetchedAt = c.Now()
			if err := c.MarkFetched(call.Actor.ID, []string{in.ThreadID}, c.Now()); err != nil {
				return err
			}
		}
		return c.clear(call.Actor, &t.Handoff, seen)
	})
	return t, err
}

// surroundings fills in the workspace of a pool handoff and what it waits for.
func (t *Thread) surroundings(tx *store.Tx, a *handoff.Agent) error {
	h := &t.Handoff
	roots, err := tx.Roots([]string{h.WorkspaceID})
	if err != nil {
		return err
	}
	t.Root = roots[h.WorkspaceID]
	if h.DepsTotal == 0 {
		return nil
	}
	list, err := tx.Dependencies([]string{h.ID})
	t.Dependencies = countDependencies(list[h.ID], tx.Now())
	for _, d := range list[h.ID] {
		if d = d.At(tx.Now()); d.ReadableBy(t.Viewer, a, tx.Now()) {
			t.DependsOn = append(t.DependsOn, Dependency{d.ID, d.State})
		}
	}
	return err
}

func (c *change) clear(actor handoff.Actor, h *handoff.Handoff, seen []store.Notice) error {
	for _, n := range seen {
		if err := c.ClearNotice(actor.ID, h, n.EventSeq); err != nil {
			return err
		}
	}
	return nil
}

// seenBy picks the notices that reading this page of the thread answers: those of messages on
// it, and those that carry no message.
func seenBy(tx *store.Tx, t *Thread) ([]store.Notice, error) {
	notices, err := tx.Notices(t.Viewer.ID, &t.Handoff)
	if err != nil {
		return nil, err
	}
	shown := map[int]bool{0: true}
	for i := range t.Messages {
		shown[t.Messages[i].SequenceNo] = true
	}
	var seen []store.Notice
	for _, n := range notices {
		if shown[n.SequenceNo] {
			seen = append(seen, n)
		}
	}
	return seen, nil
}

// readThread reads one page. It holds at least one message where there is one, and ends before
// the budget of size does.
func readThread(tx *store.Tx, viewer handoff.Actor, row handoff.Handoff, after, limit int, size Sizer) (Thread, error) {
	if !row.PayloadFor(viewer.ID) {
		row.Payload = nil
	}
	t := Thread{Handoff: row, Viewer: viewer, FirstPage: after == 0}
	list, err := tx.Messages(row.ID, after, limit+1)
	if err != nil {
		return t, err
	}
	if t.FirstPage && len(list) > 0 {
		t.Summary = list[0]
		if row.Intent == handoff.ProposeAction {
			if t.Drafts, err = tx.Drafts(row.ID); err != nil {
				return t, err
			}
		}
	} else if row.Messages > 0 { // an open handoff begins without
		if t.Summary, err = tx.MessageAt(row.ID, 1); err != nil {
			return t, err
		}
	}
	if t.Parties, err = parties(tx, &t, list); err != nil {
		return t, err
	}
	t.Messages, t.HasMore = fit(&t, list, limit, size)
	if t.HasMore {
		t.NextSequenceNo = after
		if n := len(t.Messages); n > 0 {
			t.NextSequenceNo = t.Messages[n-1].SequenceNo
		}
	}
	return t, nil
}

// fit cuts list to the limit and to the budget.
func fit(t *Thread, list []handoff.Message, limit int, size Sizer) (page []handoff.Message, more bool) {
	if size == nil {
		if len(list) > limit {
			return list[:limit], true
		}
		return list, false
	}
	used := size.Fixed(t)
	for i := range list {
		used += size.Message(t, &list[i])
		if i == limit || (i > 0 && used > size.Budget()) {
			return list[:i], true
		}
	}
	return list, false
}

// parties names everyone who appears in the page.
func parties(tx *store.Tx, t *Thread, list []handoff.Message) (map[string]Party, error) {
	h := &t.Handoff
	ids := map[string]bool{h.Creator: true, h.Recipient: true, h.Holder: true, h.EndedBy: true}
	if h.VerifyBy != nil {
		ids[h.VerifyBy.AgentID] = true
	}
	if h.Verdict != nil {
		ids[h.Verdict.VerifiedBy] = true
	}
	for i := range list {
		ids[list[i].Author] = true
	}
	for i := range t.Drafts {
		ids[t.Drafts[i].Author] = true
		ids[t.Drafts[i].DecidedBy] = true
	}
	for _, id := range []string{"", handoff.Operator().ID, handoff.System().ID} {
		delete(ids, id)
	}
	return names(tx, sortedKeys(ids))
}

func names(tx *store.Tx, ids []string) (map[string]Party, error) {
	agents, err := tx.Names(ids)
	if err != nil {
		return nil, err
	}
	out := make(map[string]Party, len(ids))
	for _, id := range ids {
		slug, person := handoff.PersonSlug(id)
		if !person {
			if handoff.IsBearer(id) {
				out[id] = Party{ID: id, Handle: id, Name: id}
			}
			continue
		}
		b, err := tx.Business(slug)
		if err != nil {
			return nil, err
		}
		out[id] = Party{ID: id, Handle: id, Name: b.Name}
	}
	for id, a := range agents {
		out[id] = Party{ID: id, Handle: a.Handle, Name: a.Name, Role: a.Role}
	}
	return out, nil
}

// SendInput is one message to a thread.
type SendInput struct {
	ThreadID       string            `json:"thread_id"`
	Body           string            `json:"body"`
	Payload        json.RawMessage   `json:"payload,omitempty"`
	Artifacts      []json.RawMessage `json:"artifacts,omitempty"`
	ExpectsReply   bool              `json:"expects_reply,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
}

// Sent is the answer to a message.
type Sent struct {
	ThreadID   string
	MessageID  string
	SequenceNo int
	CreatedAt  time.Time
	Replay     bool
}

// Send appends a message to a thread that the actor takes part in and that has not ended.
func (h *Hub) Send(ctx context.Context, call Call, in SendInput) (Sent, error) {
	if in.Body == "" {
		return Sent{}, handoff.Invalid("body", "it is empty; a text is needed")
	}
	if err := handoff.CheckText("body", in.Body, h.lim.Summary); err != nil {
		return Sent{}, err
	}
	if len(in.Payload) > 0 {
		if err := handoff.CheckRawJSON("payload", in.Payload, h.lim.Payload, 0); err != nil {
			return Sent{}, err
		}
	}
	artifacts, err := handoff.ParseArtifacts("artifacts", in.Artifacts, h.lim)
	if err != nil {
		return Sent{}, err
	}
	once, err := h.keyed(call, "message", &in.IdempotencyKey, &in)
	if err != nil {
		return Sent{}, err
	}
	var out Sent
	err = h.change(ctx, "message", call, func(c *change) error {
		out = Sent{ThreadID: in.ThreadID}
		was, row, effect, found, err := c.begin(in.ThreadID, once)
		if err != nil {
			return err
		}
		if found {
			m, err := c.MessageAt(effect.HandoffID, effect.Epoch)
			out.MessageID, out.SequenceNo, out.CreatedAt, out.Replay = m.ID, m.SequenceNo, m.CreatedAt, true
			return err
		}
		a, err := agentFor(c.Tx, call.Actor, &row)
		if err != nil {
			return err
		}
		event, err := row.Append(call.Actor, a, in.ExpectsReply, c.Now(), h.lim)
		if err != nil {
			return err
		}
		if err := c.unblocked(&row); err != nil {
			return err
		}
		m := handoff.Message{
			ID: newID(), HandoffID: row.ID, SequenceNo: row.Messages, Author: call.Actor.ID, Body: in.Body,
			Payload: in.Payload, Artifacts: artifacts, ExpectsReply: in.ExpectsReply, CreatedAt: c.Now(),
		}
		out.MessageID, out.SequenceNo, out.CreatedAt = m.ID, m.SequenceNo, m.CreatedAt
		return first(
			func() error { return c.record(&row, event, call.Actor, m.ID, m.SequenceNo, others(&row)...) },
			func() error { return c.InsertMessage(&m) },
			func() error { return c.update(&was, &row) },
			func() error { return c.keep(once, store.Effect{HandoffID: row.ID, Epoch: m.SequenceNo}) })
	})
	return out, err
}

// unblocked refuses to append to a thread whose other side blocks the actor. The one that a pool
// handoff names is a side of it until it has declined or somebody has claimed.
func (c *change) unblocked(row *handoff.Handoff) error {
	sides := []string{row.Creator, row.Holder}
	if row.Door != handoff.DoorPool || row.Holder == "" && !row.RecipientDeclined {
		named := row.Recipient
		if named == "" && row.Target.HasFallback() { // it came later
			a, err := c.agentCalled("target.agent_id", row.Target.AgentID)
			if err != nil && !isCode(err, handoff.CodeRecipientNotFound) {
				return err
			}
			named = a.ID
		}
		sides = append(sides, named)
	}
	for _, other := range sides {
		if other == "" || other == c.call.Actor.ID || c.call.Actor.IsOperator() {
			continue
		}
		blocked, err := c.Blocked(other, c.call.Actor.ID)
		if err != nil {
			return err
		}
		if blocked {
			return handoff.Refuse(handoff.CodeTeammateBlocked, "the other side of this thread does not take messages from you", "What you accepted before can still be completed or declined.")
		}
	}
	return nil
}
