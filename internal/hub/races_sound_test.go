package hub_test

import (
	"fmt"
	"slices"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// wantSound compares all that is written about the handoffs of the round.
func (s *stage) wantSound() {
	s.t.Helper()
	noError(s.t, s.Store.Read(bg, func(tx *store.Tx) error {
		due, keys := map[string][]handoff.Handoff{}, map[string]bool{}
		workspace := ""
		for _, id := range s.made {
			row, err := tx.Handoff(id)
			if err != nil {
				return err
			}
			workspace = row.WorkspaceID
			for _, state := range []handoff.State{handoff.Open, handoff.Verifying} {
				would := row
				would.State, would.DepsPending, would.DepsFailed = state, 0, 0
				for _, o := range would.Offers() {
					keys[o.Key] = true
				}
			}
			for _, o := range row.Offers() {
				due[o.Key] = append(due[o.Key], row)
			}
			events, err := tx.HandoffEvents(id, 0, 1000)
			if err != nil {
				return err
			}
			s.wantStory(&row, events)
			if err := s.wantCounts(tx, &row, events); err != nil {
				return err
			}
		}
		for key := range keys {
			want := due[key]
			got, err := tx.Offered(workspace, []string{key}, store.Start, 1000)
			if err != nil {
				return err
			}
			if want = store.InOrder(want); !slices.EqualFunc(got, want, func(a, b handoff.Handoff) bool { return a.ID == b.ID }) {
				s.errorf("under %s %v are offered, %v should be", key, idsOf(got), idsOf(want))
			}
		}
		return nil
	}))
}

func idsOf(list []handoff.Handoff) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids
}

// wantStory compares the events of a handoff with each other and with its row.
func (s *stage) wantStory(row *handoff.Handoff, events []handoff.Event) {
	s.t.Helper()
	state, epoch := handoff.Open, 0
	fail := func(e handoff.Event) {
		s.errorf("%s: event %d cannot be: %+v after %s at epoch %d", row.ID, e.Seq, e, state, epoch)
	}
	from := map[handoff.EventType][]handoff.State{
		handoff.EventClaimed: {handoff.Open}, handoff.EventLeaseLapsed: {handoff.Claimed}, handoff.EventReleased: {handoff.Claimed},
		handoff.EventExtended: {handoff.Claimed}, handoff.EventVerificationRequested: {handoff.Claimed}, handoff.EventVerificationFailed: {handoff.Verifying},
		handoff.EventCompleted: {handoff.Claimed, handoff.Verifying}, handoff.EventRejected: {handoff.Open, handoff.Claimed},
		handoff.EventCancelled: {handoff.Open, handoff.Claimed, handoff.Verifying}, handoff.EventExpired: {handoff.Open},
		handoff.EventReassigned: {handoff.Open, handoff.Claimed, handoff.Verifying}, handoff.EventUnblocked: {handoff.Open}, handoff.EventDependencyFailed: {handoff.Open},
	}
	for i, e := range events {
		if may, known := from[e.Type]; e.Seq != i+1 || known && !slices.Contains(may, state) {
			fail(e)
		}
		switch e.Type {
		case handoff.EventClaimed, handoff.EventReassigned, handoff.EventVerificationFailed:
			epoch++
		}
		if e.Epoch != epoch {
			fail(e)
		}
		state = e.State
	}
	if len(events) != row.EventSeq || state != row.State || epoch != row.Epoch {
		s.errorf("%s is %s at epoch %d with %d events, its log ends %s at epoch %d with %d", row.ID, row.State, row.Epoch, row.EventSeq, state, epoch, len(events))
	}
	if held := row.Holder != ""; held != (row.State == handoff.Claimed || row.State == handoff.Verifying || row.State == handoff.Completed) && row.State != handoff.Rejected && row.State != handoff.Cancelled {
		s.errorf("%s is %s and its holder is %q", row.ID, row.State, row.Holder)
	}
}

// wantCounts compares what a handoff waits for with the states of those.
func (s *stage) wantCounts(tx *store.Tx, row *handoff.Handoff, events []handoff.Event) error {
	s.t.Helper()
	deps, err := tx.Dependencies([]string{row.ID})
	if err != nil || len(deps[row.ID]) == 0 {
		return err
	}
	pending, failed, unblocked := 0, 0, 0
	for _, d := range deps[row.ID] {
		switch {
		case !d.State.Terminal():
			pending++
		case d.State != handoff.Completed:
			failed++
		}
	}
	for _, e := range events {
		if e.Type == handoff.EventUnblocked {
			unblocked++
		}
	}
	if !row.State.Terminal() && (row.DepsPending != pending || row.DepsFailed != failed) {
		s.errorf("%s counts %d pending and %d failed, there are %d and %d", row.ID, row.DepsPending, row.DepsFailed, pending, failed)
	}
	if unblocked > 1 {
		s.errorf("%s was unblocked %d times", row.ID, unblocked)
	}
	return nil
}

// wantNoOfferBesides closes the store and looks at the whole table of offers.
func (s *stage) wantNoOfferBesides(all []string) {
	s.t.Helper()
	want := map[string]bool{}
	for _, id := range all {
		row := s.row(id)
		for _, o := range row.Offers() {
			want[fmt.Sprintf("%s %d %d %s", o.Key, o.Rank, o.Position.UnixMicro(), id)] = true
		}
	}
	noError(s.t, s.Store.Close()) // SQLite's file is opened by one at a time
	got, err := hubtest.Texts(hubtest.Beside(s.t, s.Config))(`SELECT target_key || ' ' || rank || ' ' || position || ' ' || handoff_id FROM offers`)
	noError(s.t, err)
	for _, line := range got {
		if !want[line] {
			s.t.Errorf("nothing is offered as %s", line)
		}
		delete(want, line)
	}
	if len(want) > 0 {
		s.t.Errorf("missing among what is offered: %v", want)
	}
}
