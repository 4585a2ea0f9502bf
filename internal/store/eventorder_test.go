package store_test

import (
	"slices"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// A claim's transaction may have begun before that which created the handoff: it took another lock
// first. Its event stands behind all the same.
func TestEventsOfAHandoffAreReadInTheirOrderWhicheverTransactionBeganFirst(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "postgres"))
	h := aPool("h-1", "w", `{"strategy":"broadcast"}`)
	f.write(func(tx *store.Tx) error { return tx.InsertHandoff(aPool("h-0", "w", `{"strategy":"broadcast"}`)) })
	event := func(tx *store.Tx, seq int, what handoff.EventType) error {
		return tx.InsertEvent(&handoff.Event{Type: what, HandoffID: h.ID, Seq: seq, At: tx.Now()})
	}
	f.write(func(first *store.Tx) error {
		was, err := first.LockHandoff("h-0") // it gets its number now
		must(t, err)
		must(t, first.UpdateHandoff(&was, &was))
		_, err = first.Texts(`SELECT pg_current_xact_id()::text`) // and what was queued has run
		must(t, err)
		f.write(func(second *store.Tx) error {
			must(t, second.InsertHandoff(h))
			return event(second, 1, handoff.EventCreated)
		})
		if _, err := first.LockHandoff(h.ID); err != nil {
			return err
		}
		if err := event(first, 2, handoff.EventClaimed); err != nil {
			return err
		}
		return event(first, 3, handoff.EventExtended)
	})
	var seqs []int
	for cursor := store.Beginning; len(seqs) < 3; {
		f.read(func(tx *store.Tx) error {
			list, next, err := tx.Events(cursor, 1)
			for _, e := range list {
				seqs = append(seqs, e.Seq)
			}
			cursor = next
			return err
		})
	}
	if !slices.Equal(seqs, []int{1, 2, 3}) {
		t.Errorf("they are read as %v", seqs)
	}
}
