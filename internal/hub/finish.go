package hub

import (
	"context"
	"encoding/json"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// CompleteInput delivers the work of a held handoff.
type CompleteInput struct {
	ThreadID       string            `json:"thread_id"`
	ResultSummary  string            `json:"result_summary"`
	Artifacts      []json.RawMessage `json:"artifacts,omitempty"`
	ClaimEpoch     *int              `json:"claim_epoch,omitempty"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
}

// Ended is the answer to a verb that ends a handoff.
type Ended struct {
	ThreadID string
	Status   string // a word of the team door
	// DoorStatus is the word of the handoff's own door.
	DoorStatus  string
	CompletedAt time.Time
	// Verifying: the work waits for its verdict.
	Verifying bool
	Replay    bool
}

// Complete delivers the result. The holder's alone, after accepting.
func (h *Hub) Complete(ctx context.Context, call Call, in CompleteInput) (Ended, error) {
	if in.ResultSummary == "" {
		return Ended{}, handoff.Invalid("result_summary", "it is empty; say in a sentence or more what was done")
	}
	if err := handoff.CheckText("result_summary", in.ResultSummary, h.lim.Summary); err != nil {
		return Ended{}, err
	}
	artifacts, err := handoff.ParseArtifacts("artifacts", in.Artifacts, h.lim)
	if err != nil {
		return Ended{}, err
	}
	return h.end(ctx, call, "complete", in.ThreadID, &in.IdempotencyKey, &in, ending{
		stands: func(row *handoff.Handoff) bool {
			return (row.State == handoff.Completed || row.State == handoff.Verifying) && row.Holder == call.Actor.ID &&
				row.ResultSummary == in.ResultSummary && sameArtifacts(row.CompletionArtifacts, artifacts) && epochStands(in.ClaimEpoch, row)
		},
		apply: func(c *change, row *handoff.Handoff) (handoff.EventType, error) {
			event, err := row.Complete(call.Actor, in.ClaimEpoch, c.Now())
			row.Result, row.ResultSummary, row.CompletionArtifacts = nil, in.ResultSummary, artifacts
			return event, err
		},
	})
}

// DeclineInput refuses a handoff, before or after accepting it.
type DeclineInput struct {
	ThreadID       string `json:"thread_id"`
	Reason         string `json:"reason"`
	ClaimEpoch     *int   `json:"claim_epoch,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Decline refuses the handoff; its sender is told why.
func (h *Hub) Decline(ctx context.Context, call Call, in DeclineInput) (Ended, error) {
	if in.Reason == "" {
		return Ended{}, handoff.Invalid("reason", "it is empty; tell the sender why")
	}
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return Ended{}, err
	}
	return h.end(ctx, call, "reject", in.ThreadID, &in.IdempotencyKey, &in, ending{
		stands: func(row *handoff.Handoff) bool {
			return row.State == handoff.Rejected && row.EndedBy == call.Actor.ID && row.EndedReason == in.Reason && epochStands(in.ClaimEpoch, row)
		},
		apply: func(c *change, row *handoff.Handoff) (handoff.EventType, error) {
			event, err := row.Reject(call.Actor, in.Reason, in.ClaimEpoch, c.Now())
			if err == nil {
				err = c.declined(row, event, in.Reason)
			}
			return event, err
		},
	})
}

// CancelInput takes a handoff back.
type CancelInput struct {
	ThreadID       string `json:"thread_id"`
	Reason         string `json:"reason,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Cancel takes the handoff back: its creator while it is pending or held by an agent that was
// disabled, the operator at any time before it ended.
func (h *Hub) Cancel(ctx context.Context, call Call, in CancelInput) (Ended, error) {
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return Ended{}, err
	}
	return h.end(ctx, call, "cancel", in.ThreadID, &in.IdempotencyKey, &in, ending{
		stands: func(row *handoff.Handoff) bool {
			return row.State == handoff.Cancelled && row.EndedBy == call.Actor.ID && row.EndedReason == in.Reason
		},
		apply: func(c *change, row *handoff.Handoff) (handoff.EventType, error) {
			return c.cancel(row, in.Reason)
		},
	})
}

// cancel applies the rule, which looks at whether a holder was disabled.
func (c *change) cancel(row *handoff.Handoff, reason string) (handoff.EventType, error) {
	disabled := false
	if row.State == handoff.Claimed && c.call.Actor.ID == row.Creator {
		holder, err := c.Agent(row.Holder)
		if err != nil && !isCode(err, handoff.CodeNotFound) {
			return "", err
		}
		disabled = holder.Disabled
	}
	return row.Cancel(c.call.Actor, reason, disabled, c.Now())
}

// ending is what differs between the verbs that end a handoff.
type ending struct {
	// stands: the row is already as an earlier identical call of this actor left it, so a
	// repetition without a key is a success.
	stands func(*handoff.Handoff) bool
	apply  func(*change, *handoff.Handoff) (handoff.EventType, error)
}

// end is the common path: visibility, exact replay, rule, row, event, key.
func (h *Hub) end(ctx context.Context, call Call, verb, id string, key *string, in any, e ending) (Ended, error) {
	once, err := h.keyed(call, verb, key, in)
	if err != nil {
		return Ended{}, err
	}
	var out Ended
	err = h.change(ctx, verb, call, func(c *change) error {
		was, row, _, found, err := c.beginHeld(id, Session{}, once)
		if err != nil {
			return err
		}
		if found || row.ErasedAt.IsZero() && e.stands(&row) {
			out = endedAs(&row)
			out.Replay = true
			if found {
				return nil
			}
			return c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch})
		}
		event, err := e.apply(c, &row)
		if err != nil {
			return err
		}
		out = endedAs(&row)
		return first(
			func() error { return c.ended(&was, &row, event) },
			func() error {
				return c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch})
			})
	})
	return out, err
}

func endedAs(row *handoff.Handoff) Ended {
	return Ended{ThreadID: row.ID, Status: row.State.TeamStatus(), DoorStatus: row.Status(), CompletedAt: row.CompletedAt, Verifying: row.State == handoff.Verifying}
}

func epochStands(epoch *int, row *handoff.Handoff) bool { return epoch == nil || *epoch == row.Epoch }

func sameArtifacts(a, b []handoff.Artifact) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if string(a[i].Raw) != string(b[i].Raw) {
			return false
		}
	}
	return true
}
