package hub_test

import (
	"context"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

var bg = context.Background()

// The verbs, for where they must succeed.

func send(f *hubtest.Fixture, from hub.Call, in hub.CreateInput) hub.Created {
	f.T.Helper()
	if in.Intent == "" {
		in.Intent = handoff.Inform
	}
	if in.Summary == "" {
		in.Summary = "a summary"
	}
	out, err := f.Hub.Create(bg, from, in)
	noError(f.T, err)
	return out
}

func accept(f *hubtest.Fixture, call hub.Call, id string) hub.Thread {
	f.T.Helper()
	t, err := f.Hub.Accept(bg, call, hub.AcceptInput{ThreadID: id})
	noError(f.T, err)
	return t
}

func acceptFor(f *hubtest.Fixture, call hub.Call, id string, lease int64) hub.Thread {
	f.T.Helper()
	t, err := f.Hub.Accept(bg, call, hub.AcceptInput{ThreadID: id, Lease: lease})
	noError(f.T, err)
	return t
}

func view(f *hubtest.Fixture, call hub.Call, id string) hub.Thread {
	f.T.Helper()
	t, err := f.Hub.View(bg, call, hub.ViewInput{ThreadID: id, Limit: 200})
	noError(f.T, err)
	return t
}

// look is view without marking anything.
func look(f *hubtest.Fixture, id string) hub.Thread {
	f.T.Helper()
	t, err := f.Hub.View(bg, hubtest.Operator(), hub.ViewInput{ThreadID: id, Limit: 200})
	noError(f.T, err)
	return t
}

func say(f *hubtest.Fixture, call hub.Call, id, body string) hub.Sent {
	f.T.Helper()
	out, err := f.Hub.Send(bg, call, hub.SendInput{ThreadID: id, Body: body})
	noError(f.T, err)
	return out
}

func complete(f *hubtest.Fixture, call hub.Call, id string) hub.Ended {
	f.T.Helper()
	out, err := f.Hub.Complete(bg, call, hub.CompleteInput{ThreadID: id, ResultSummary: "done"})
	noError(f.T, err)
	return out
}

func inbox(f *hubtest.Fixture, call hub.Call, in hub.InboxInput) hub.Inbox {
	f.T.Helper()
	out, err := f.Hub.Inbox(bg, call, in)
	noError(f.T, err)
	return out
}

func block(f *hubtest.Fixture, call hub.Call, handle string, blocked bool) {
	f.T.Helper()
	_, err := f.Hub.SetBlock(bg, call, hub.BlockInput{Handle: handle}, blocked)
	noError(f.T, err)
}

func disable(f *hubtest.Fixture, handle string) {
	f.T.Helper()
	noError(f.T, f.Hub.SetDisabled(bg, hubtest.Operator(), handle, true))
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ids(in hub.Inbox) []string {
	list := make([]string, len(in.Items))
	for i := range in.Items {
		list[i] = in.Items[i].Handoff.ID
	}
	return list
}

// stored is how many handoffs the database holds.
func stored(f *hubtest.Fixture) int {
	f.T.Helper()
	total := 0
	noError(f.T, f.Store.Read(bg, func(tx *store.Tx) error {
		st, err := tx.Stats()
		for _, s := range st.States {
			total += int(s.Count)
		}
		return err
	}))
	return total
}

// eventsOf waits until the log shows all events of a handoff, which must be numbered from 1
// without a gap, and returns their types by number. The log as a whole is in commit order, in
// which changes at the same time may swap.
func eventsOf(f *hubtest.Fixture, id string) []handoff.EventType {
	f.T.Helper()
	want := look(f, id).Handoff.EventSeq
	var list []handoff.EventType
	eventually(f.T, "all events of the handoff can be read", func() bool {
		bySeq := map[int]handoff.EventType{}
		for cursor, more := "0", true; more; {
			page, next, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: cursor})
			noError(f.T, err)
			for _, e := range page {
				if e.HandoffID == id {
					if bySeq[e.Seq] != "" {
						f.T.Fatalf("event %d of %s stands there twice", e.Seq, id)
					}
					bySeq[e.Seq] = e.Type
				}
			}
			cursor, more = next, len(page) > 0
		}
		list = nil
		for bySeq[len(list)+1] != "" {
			list = append(list, bySeq[len(list)+1])
		}
		return len(list) >= want && len(list) == len(bySeq)
	})
	if len(list) != want {
		f.T.Fatalf("%d events, the handoff counts %d: %v", len(list), want, list)
	}
	return list
}

// eventually waits for a fact.
func eventually(t testing.TB, what string, fact func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	late := time.After(20 * time.Second)
	for !fact() {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// parked waits until so many calls wait.
func parked(f *hubtest.Fixture, n int) {
	f.T.Helper()
	eventually(f.T, "the calls are parked", func() bool {
		families, err := f.Metrics.Registry.Gather()
		noError(f.T, err)
		for _, family := range families {
			if family.GetName() == "handclasp_parked_calls" {
				return int(family.GetMetric()[0].GetGauge().GetValue()) == n
			}
		}
		return false
	})
}
