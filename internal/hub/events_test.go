package hub_test

import (
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestFollowingTheLogFromNowOnWaitsForWhatComes(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		f.Send(anna, "frank@acme")
		// On PostgreSQL readers may be a little behind: begin once nothing is hidden any more.
		var now string
		hubtest.Eventually(t, func() bool {
			list, next, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{})
			if err != nil || len(list) > 0 {
				t.Fatalf("from now on: %d events, %v", len(list), err)
			}
			now = next
			all, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0"})
			return err == nil && slices.ContainsFunc(all, func(e handoff.Event) bool { return e.Type == handoff.EventCreated })
		})
		got := make(chan string, 8)
		go func() {
			defer close(got)
			for {
				list, next, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: now, Wait: 20 * time.Second})
				if err != nil || len(list) == 0 {
					return
				}
				now = next
				for _, e := range list {
					got <- e.HandoffID
				}
			}
		}()
		id := f.Send(anna, "frank@acme")
		// What was hidden when the reader began may come first.
		for seen := range got {
			if seen == id {
				return
			}
		}
		t.Fatal("the reader was not told")
	})
}

func TestTheLogAsAnAgentSeesItHoldsItsOwnHandoffsOnly(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		erin := f.Agent("erin@acme")
		f.Agent("frank@acme")
		mine := f.Send(anna, "frank@acme")
		f.Send(erin, "frank@acme")
		hubtest.Eventually(t, func() bool {
			list, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", As: "ANNA@acme"})
			if err != nil {
				t.Fatal(err)
			}
			seen := false
			for _, e := range list {
				if e.HandoffID != "" && e.HandoffID != mine {
					t.Fatalf("an event of another's handoff: %+v", e)
				}
				seen = seen || e.HandoffID == mine
			}
			return seen
		})
		_, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", As: "nobody@acme"})
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		_, _, err = f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Wait: time.Minute})
		hubtest.WantCode(t, err, handoff.CodeInvalidParams)
	})
}
