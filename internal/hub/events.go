package hub

import (
	"context"
	"fmt"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// EventsInput selects a page of the log.
type EventsInput struct {
	// Cursor is where to go on; "0" is the beginning, and none means from now on.
	Cursor string
	// Limit is the most events read for a page, 1 to 1000; 0 means 1000.
	Limit int
	// As keeps only what the agent of that handle may see; none keeps all.
	As string
	// Wait parks the call for at most this long while there is nothing.
	Wait time.Duration
}

// anyEvent is what a call waits for that follows the whole log.
const anyEvent = "*"

// Events reads the hub's log for the operator, in an order that skips nothing. next is the cursor
// to go on with, also where nothing came.
func (h *Hub) Events(ctx context.Context, call Call, in EventsInput) (list []handoff.Event, next string, err error) {
	if err := operatorOnly(call); err != nil {
		return nil, "", err
	}
	if in.Wait < 0 || in.Wait > MaxWait {
		return nil, "", handoff.Invalid("wait", fmt.Sprintf("%g came; 0 to %g seconds are accepted", in.Wait.Seconds(), MaxWait.Seconds()))
	}
	if in.Limit < 1 || in.Limit > 1000 {
		in.Limit = 1000
	}
	next = in.Cursor
	err = h.parkFor(ctx, call, anyEvent, in.Wait, func() (bool, error) {
		err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			if next == "" {
				next, err = tx.CursorNow()
				return err
			}
			if list, next, err = tx.Events(next, in.Limit); err == nil && in.As != "" {
				list, err = shownTo(tx, in.As, list)
			}
			return err
		})
		return len(list) > 0, err
	})
	return list, next, err
}

// shownTo keeps the events that an agent may see: those of handoffs that are visible to it, and
// what happened to itself.
func shownTo(tx *store.Tx, handle string, list []handoff.Event) ([]handoff.Event, error) {
	a, err := agentNamed(tx, handle)
	if err != nil {
		return nil, err
	}
	actor := handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle}
	visible := map[string]bool{"": false}
	var kept []handoff.Event
	for _, e := range list {
		sees, known := visible[e.HandoffID]
		if !known {
			h, err := tx.Handoff(e.HandoffID)
			if err != nil {
				return nil, err
			}
			labels, err := agentFor(tx, actor, &h)
			if err != nil {
				return nil, err
			}
			sees = h.VisibleTo(actor, labels, tx.Now())
			visible[e.HandoffID] = sees
		}
		if sees || e.HandoffID == "" && (e.ActorID == a.ID || strings.Contains(e.SubjectID, a.ID)) { // one of two, see [handoff.Event]
			kept = append(kept, e)
		}
	}
	return kept, nil
}
