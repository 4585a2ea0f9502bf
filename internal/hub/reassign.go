package hub

import (
	"context"
	"errors"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

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
		// The agent first, as its disabling does, or the two could wait for each other.
		heir, missing := c.KeepAgent(in.To)
		was, row, err := c.take(id)
		if err != nil {
			return err
		}
		to, err := c.heir(&row, in.To, heir, missing)
		if err != nil {
			return err
		}
		others, err := verifiersOf(c.Tx, &row, to.ID)
		if err != nil {
			return err
		}
		rule := handoff.ReassignInput{To: &to.Agent, Reason: in.Reason, OtherVerifiers: others.OtherVerifiers, VerifierDisabled: others.VerifierDisabled}
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

// heir is the agent that is to hold the handoff, which must not keep its sender away.
func (c *change) heir(row *handoff.Handoff, handle string, to store.AgentRow, err error) (store.AgentRow, error) {
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
		func() error { return c.judged(was) },
		func() error { return c.InsertMessage(&m) },
		func() error { return c.record(row, event, c.call.Actor, m.ID, m.SequenceNo, others(row)...) },
		func() error { return c.parted(row, was.Holder) },
		func() error {
			if !joins {
				return nil
			}
			return c.NoticeThread(row.Holder, row, c.Now())
		},
		func() error { return c.update(was, row) })
}
