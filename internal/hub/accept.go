package hub

import (
	"context"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// AcceptInput takes a handoff. Lease is in seconds; 0 takes it without a lease.
type AcceptInput struct {
	ThreadID       string `json:"thread_id"`
	SessionID      string `json:"-"`
	Lease          int64  `json:"lease_seconds,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	Size           Sizer  `json:"-"`
}

// Accept makes the recipient the holder of the handoff and returns the thread, its first page
// of messages marked read. The same recipient again gets the same claim; a replayed accept
// whose claim no longer stands is lease_lost.
func (h *Hub) Accept(ctx context.Context, call Call, in AcceptInput) (Thread, error) {
	once, err := h.keyed(call, "claim", &in.IdempotencyKey, &in)
	if err != nil {
		return Thread{}, err
	}
	var t Thread
	err = h.change(ctx, "claim", call, func(c *change) error {
		// The agent first, as its disabling does, or the two could wait for each other.
		c.ExpectKeep(call.Actor.ID)
		c.ExpectLockHandoff(in.ThreadID)
		if call.Actor.Kind == handoff.KindAgent {
			if err := c.Keep(call.Actor.ID); err != nil {
				return err
			}
		}
		was, row, err := c.takeToClaim(in.ThreadID)
		if err != nil {
			return err
		}
		if err := c.admit(Session{}, &row); err != nil {
			return err
		}
		effect, found, err := c.done(once.op, once.print)
		if err != nil {
			return err
		}
		if found && !claimStands(&row, call.Actor, effect.Epoch) {
			return claimGone(&row)
		}
		if !found {
			var a *handoff.Agent
			if row.Door == handoff.DoorPool {
				a, err = c.keptLabelled(row.WorkspaceID)
			} else {
				a, err = agentFor(c.Tx, call.Actor, &row)
			}
			if err != nil {
				return err
			}
			if err := c.claimAs(&was, &row, a, time.Duration(in.Lease)*time.Second); err != nil {
				return err
			}
			if err := c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch}); err != nil {
				return err
			}
		}
		t, err = readThread(c.Tx, call.Actor, row, 0, DefaultPage, in.Size)
		if err != nil {
			return err
		}
		t.Replay = found
		seen, err := seenBy(c.Tx, &t)
		if err != nil {
			return err
		}
		return c.clear(call.Actor, &t.Handoff, seen)
	})
	return t, err
}

// claimStands reports whether the actor holds, or completed, what it claimed at the epoch. Only
// then does it see the payload again.
func claimStands(row *handoff.Handoff, actor handoff.Actor, epoch int) bool {
	switch row.State {
	case handoff.Claimed, handoff.Verifying, handoff.Completed:
		return row.Holder == actor.ID && row.Epoch == epoch
	}
	return false
}
