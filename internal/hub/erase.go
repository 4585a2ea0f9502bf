package hub

import (
	"context"
	"time"

	"handclasp/internal/handoff"
)

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
	out, err := h.erase(ctx, call, id)
	if err == nil {
		h.checkpointErased(ctx, out.Replay)
	}
	return out, err
}

// checkpointErased takes what was erased out of the write-ahead log too. That it failed is said once.
func (h *Hub) checkpointErased(ctx context.Context, again bool) {
	if err := h.st.Checkpoint(ctx); err != nil && !again {
		h.log.WarnContext(ctx, "erased text may stay in the write-ahead log until a backup or the hub ends", "error", err)
	}
}

// erase is Erase by an actor who may, of a handoff by its whole id.
func (h *Hub) erase(ctx context.Context, call Call, id string) (Erased, error) {
	out := Erased{ThreadID: id}
	whoever := func(*handoff.Handoff, *handoff.Agent) bool { return true }
	nobody := func(*handoff.Handoff) (*handoff.Agent, error) { return nil, nil }
	for from, done := 1, false; !done; from += eraseChunk {
		err := h.change(ctx, "erase", call, func(c *change) error {
			_, row, err := c.takeIf(id, whoever, nobody)
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
