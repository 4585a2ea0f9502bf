package hub_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestOnlyTheRecipientAccepts(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, eve := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("eve@acme")
		id := f.Send(anna, "frank@acme")
		try := func(call hub.Call, id string) error {
			_, err := f.Hub.Accept(bg, call, hub.AcceptInput{ThreadID: id})
			return err
		}
		foreign := hubtest.WantCode(t, try(eve, id), handoff.CodeNotFound)
		const none = "019236d0-1111-7abc-8def-0123456789ab"
		if unknown := hubtest.WantCode(t, try(eve, none), handoff.CodeNotFound); len(unknown.Message) != len(foreign.Message) || unknown.Hint != foreign.Hint {
			t.Errorf("what may not be seen is told from what does not exist: %q, %q", foreign.Message, unknown.Message)
		}
		hubtest.WantCode(t, try(anna, id), handoff.CodeNotEligibleToClaim)
		thread := accept(f, frank, id)
		if thread.Handoff.Holder != frank.Actor.ID || thread.Handoff.Epoch != 1 || !thread.Handoff.LeaseExpiresAt.IsZero() || thread.Handoff.FetchedAt.IsZero() {
			t.Fatalf("accepted: %+v", thread.Handoff)
		}
		hubtest.WantCode(t, try(anna, id), handoff.CodeNotEligibleToClaim)
		hubtest.WantCode(t, try(eve, id), handoff.CodeNotFound)
		if got := inbox(f, anna, hub.InboxInput{}).Items; len(got) != 1 || !slices.Equal(got[0].News, []handoff.EventType{handoff.EventClaimed}) || got[0].Unread != 0 {
			t.Fatalf("the sender is told so: %+v", got)
		}
	})
}

func TestAcceptingAgainIsTheSameClaimWithTheLeaseRenewed(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		first := acceptFor(f, frank, id, 600).Handoff
		f.Clock.Advance(9 * time.Minute)
		second := accept(f, frank, id).Handoff // keeps its length
		if second.Epoch != 1 || second.LeaseExpiresAt.Sub(first.LeaseExpiresAt) < 9*time.Minute {
			t.Fatalf("from %v to %v, epoch %d", first.LeaseExpiresAt, second.LeaseExpiresAt, second.Epoch)
		}
		f.Clock.Advance(9 * time.Minute)
		if got := complete(f, frank, id); got.Status != "completed" {
			t.Fatalf("completed under the renewed lease: %+v", got)
		}
		if got, want := eventsOf(f, id), []handoff.EventType{handoff.EventCreated, handoff.EventClaimed, handoff.EventCompleted}; !slices.Equal(got, want) {
			t.Fatalf("events %v, want %v", got, want)
		}
	})
}

func TestManyAcceptsAtOnceAreOneClaim(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				got, err := f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id})
				if err != nil || got.Handoff.Epoch != 1 {
					t.Errorf("epoch %d, %v", got.Handoff.Epoch, err)
				}
			})
		}
		wg.Wait()
		if got := eventsOf(f, id); len(got) != 2 {
			t.Fatalf("events %v", got)
		}
	})
}

func TestALeaseIsBoundedAndNobodyMustAskForOne(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	for _, lease := range []int64{-1, 1, 9, 86_401} {
		_, err := f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id, Lease: lease})
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); e.Details["field"] != "lease_seconds" {
			t.Errorf("%d: %v", lease, e.Details)
		}
	}
	if got := look(f, id).Handoff; got.State != handoff.Open || got.EventSeq != 1 {
		t.Fatalf("refused, and yet %+v", got)
	}
	acceptFor(f, frank, id, 10)
	f.Clock.Advance(10 * time.Second)
	accept(f, frank, id)
	f.Clock.Advance(365 * 24 * time.Hour)
	complete2(f, frank, id, 2)
}

func complete2(f *hubtest.Fixture, call hub.Call, id string, epoch int) {
	f.T.Helper()
	_, err := f.Hub.Complete(bg, call, hub.CompleteInput{ThreadID: id, ResultSummary: "done", ClaimEpoch: &epoch})
	noError(f.T, err)
}

func TestALapsedLeaseIsJudgedWhenReadAndItsHolderIsTold(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		acceptFor(f, frank, id, 10)
		f.Clock.Advance(11 * time.Second)

		if got := view(f, anna, id).Handoff; got.State != handoff.Open || got.Holder != "" || got.Epoch != 1 {
			t.Fatalf("viewed as %s of %q, epoch %d", got.State, got.Holder, got.Epoch)
		}
		if got := inbox(f, frank, hub.InboxInput{Statuses: []string{"accepted"}}); len(got.Items) != 0 {
			t.Fatal("listed as accepted")
		}
		if got := inbox(f, frank, hub.InboxInput{Statuses: []string{"pending"}}); len(got.Items) != 1 || got.Items[0].Handoff.State != handoff.Open {
			t.Fatal("not listed as pending")
		}
		_, err := f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done"})
		hubtest.WantCode(t, err, handoff.CodeLeaseLost)

		again := accept(f, frank, id).Handoff
		if again.Epoch != 2 || !again.LeaseExpiresAt.IsZero() {
			t.Fatalf("taken anew: %+v", again)
		}
		_, err = f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done"})
		hubtest.WantCode(t, err, handoff.CodeStaleClaimEpoch)
		_, err = f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done", ClaimEpoch: new(1)})
		hubtest.WantCode(t, err, handoff.CodeStaleClaimEpoch)
		complete2(f, frank, id, 2)
		want := []handoff.EventType{handoff.EventCreated, handoff.EventClaimed, handoff.EventLeaseLapsed, handoff.EventClaimed, handoff.EventCompleted}
		if got := eventsOf(f, id); !slices.Equal(got, want) {
			t.Fatalf("events %v, want %v", got, want)
		}
	})
}

func TestASweepTellsBothSidesOfALapse(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		acceptFor(f, frank, id, 10)
		view(f, anna, id)
		f.Clock.Advance(time.Minute)
		if n, err := f.Hub.Sweep(bg); n != 1 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		for _, call := range []hub.Call{anna, frank} {
			if got := inbox(f, call, hub.InboxInput{}).Items; len(got) != 1 || !slices.Equal(got[0].News, []handoff.EventType{handoff.EventLeaseLapsed}) {
				t.Errorf("%s: %+v", call.Actor.Handle, got)
			}
		}
		if got := accept(f, frank, id).Handoff; got.Epoch != 2 {
			t.Fatalf("epoch %d", got.Epoch)
		}
	})
}

func TestADeadlinePassesAtOnceWhereALeaseLapsesBehindIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := send(f, anna, hub.CreateInput{To: "frank@acme", ExpiresIn: 60}).ThreadID
		acceptFor(f, frank, id, 120)
		f.Clock.Advance(90 * time.Second)
		if got := view(f, frank, id).Handoff.State; got != handoff.Claimed {
			t.Fatalf("a deadline is for what nobody holds, yet it is %s", got)
		}
		f.Clock.Advance(60 * time.Second)
		for _, status := range []string{"expired", "pending", "accepted"} {
			if got := inbox(f, frank, hub.InboxInput{Statuses: []string{status}}); (len(got.Items) == 1) != (status == "expired") {
				t.Errorf("%s: %v", status, ids(got))
			}
		}
		_, err := f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done"})
		hubtest.WantCode(t, err, handoff.CodeLeaseLost)
		if n, err := f.Hub.Sweep(bg); n != 1 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		want := []handoff.EventType{handoff.EventCreated, handoff.EventClaimed, handoff.EventLeaseLapsed, handoff.EventExpired}
		if got := eventsOf(f, id); !slices.Equal(got, want) {
			t.Fatalf("events %v, want %v", got, want)
		}
	})
}

func TestAReplayedAcceptWhoseClaimNoLongerStandsIsLeaseLost(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		take := func(id, key string) (hub.Thread, error) {
			return f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id, Lease: 60, IdempotencyKey: key})
		}
		took := func(id, key string, replay bool) {
			t.Helper()
			if got, err := take(id, key); err != nil || got.Replay != replay || got.Handoff.ID != id {
				t.Fatalf("%v, replay %v: %+v", err, got.Replay, got.Handoff)
			}
		}
		lost := func(id, key string) {
			t.Helper()
			got, err := take(id, key)
			hubtest.WantCode(t, err, handoff.CodeLeaseLost)
			if got.Handoff.ID != "" {
				t.Fatalf("a payload came with it: %+v", got)
			}
		}
		id := f.Send(anna, "frank@acme")
		took(id, "a", false)
		took(id, "a", true)
		f.Clock.Advance(time.Minute)
		lost(id, "a")
		took(id, "b", false)
		lost(id, "a")
		took(id, "b", true)
		complete2(f, frank, id, 2)
		took(id, "b", true) // it holds what it completed
		lost(id, "a")

		id = f.Send(anna, "frank@acme")
		took(id, "c", false)
		_, err := f.Hub.Cancel(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "stuck"})
		noError(t, err)
		lost(id, "c")

		id = f.Send(anna, "frank@acme")
		took(id, "d", false)
		_, err = f.Hub.Decline(bg, frank, hub.DeclineInput{ThreadID: id, Reason: "no"})
		noError(t, err)
		lost(id, "d")
	})
}

func TestAcceptingMarksReadWhatItShows(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		for range hub.DefaultPage + 2 {
			say(f, anna, id, "more")
		}
		thread := accept(f, frank, id)
		if len(thread.Messages) != hub.DefaultPage || !thread.HasMore || thread.NextSequenceNo != hub.DefaultPage {
			t.Fatalf("%d messages, next %d", len(thread.Messages), thread.NextSequenceNo)
		}
		if got := inbox(f, frank, hub.InboxInput{}); got.UnreadTotal != 3 || got.Items[0].Unread != 3 {
			t.Fatalf("%d unread, want the 3 that were not shown", got.UnreadTotal)
		}
	})
}
