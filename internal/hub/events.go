package hub

import (
	"context"
	"fmt"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// EventsInput selects a page of the log.
type EventsInput struct {
	// Cursor is where to go on; "0" is the beginning, and none means from now on.
	Cursor string
	// Limit is the most events of a page, 1 to 1000; 0 means 1000.
	Limit int
	// As keeps only what the agent of that handle may see; none keeps all.
	As string
	// Wait parks the call for at most this long while there is nothing.
	Wait time.Duration
}

// anyEvent is what a call waits for that follows the whole log.
const anyEvent = "*"

const (
	// eventBatch is how many rows of the log are read in one go, mostExamined how many in one
	// transaction.
	eventBatch   = 500
	mostExamined = 5000
)

// Events reads the hub's log for the operator, in an order that skips nothing. next is the cursor
// to go on with, also where nothing came: then the end is reached.
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
	err = h.park(ctx, call, []string{anyEvent}, in.Wait, func(w *waiter) (bool, error) {
		for more := true; more && len(list) == 0; {
			var got logPage
			err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
				got, err = operatorPage(tx, next, in, w != nil)
				return err
			})
			if err != nil {
				return false, err
			}
			list, next, more = got.events, got.next, got.more
			if w != nil {
				w.unsettled = got.unsettled
			}
		}
		return len(list) > 0, nil
	})
	return list, next, err
}

// logPage is what one look at the log found.
type logPage struct {
	events []handoff.Event
	// next is the cursor to go on with; more tells that there is something behind it.
	next string
	more bool
	// unsettled: nothing came, and something was committed that can be read a little later.
	unsettled bool
	// inVain is how many events were read that the reader does not get.
	inVain int
}

func operatorPage(tx *store.Tx, cursor string, in EventsInput, waits bool) (logPage, error) {
	keep := func(list []handoff.Event) ([]handoff.Event, error) { return list, nil }
	if in.As != "" {
		a, err := agentNamed(tx, in.As)
		if err != nil {
			return logPage{}, err
		}
		s, err := newSight(tx, handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle})
		if err != nil {
			return logPage{}, err
		}
		keep = func(list []handoff.Event) ([]handoff.Event, error) { return s.keep(list, everything) }
	}
	return readLog(tx, cursor, in.Limit, waits, keep)
}

func everything(*handoff.Event, *handoff.Handoff, *handoff.Agent) bool { return true }

// readLog reads the log behind a cursor until it has as many events as the limit, of those that keep
// leaves. Without a cursor it begins at the end.
func readLog(tx *store.Tx, cursor string, limit int, waits bool, keep func([]handoff.Event) ([]handoff.Event, error)) (p logPage, err error) {
	if cursor == "" {
		if cursor, err = tx.CursorNow(); err != nil {
			return p, err
		}
	}
	if p, err = follow(tx.Events, cursor, limit, keep); err == nil && waits && len(p.events) == 0 && !p.more {
		p.unsettled, err = tx.Unsettled(p.next)
	}
	return p, err
}

// follow reads on behind a cursor until it has as many events as the limit, of those that keep
// leaves, or has examined enough for one transaction.
func follow(read func(cursor string, n int) ([]handoff.Event, string, error), cursor string, limit int, keep func([]handoff.Event) ([]handoff.Event, error)) (p logPage, err error) {
	p.next = cursor
	batch := min(eventBatch, max(limit+1, 64))
	for examined := 0; examined < mostExamined; examined += batch {
		list, next, err := read(p.next, batch)
		if err != nil {
			return p, err
		}
		kept, err := keep(list)
		if err != nil {
			return p, err
		}
		p.inVain += len(list) - len(kept)
		p.events, p.next = append(p.events, kept...), next
		if len(p.events) > limit {
			p.events = p.events[:limit]
			p.next, p.more = p.events[limit-1].Cursor, true
			return p, nil
		}
		if len(list) < batch {
			return p, nil
		}
	}
	p.more = true
	return p, nil
}
