package hub_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func reassign(f *hubtest.Fixture, id, to string) hub.Reassigned {
	f.T.Helper()
	out, err := f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: to, Reason: "frank is on leave"})
	noError(f.T, err)
	return out
}

func completeAs(f *hubtest.Fixture, call hub.Call, id string, epoch *int) error {
	_, err := f.Hub.Complete(bg, call, hub.CompleteInput{ThreadID: id, ResultSummary: "done", ClaimEpoch: epoch})
	return err
}

func TestAReassignedHandoffIsTheNewHoldersToFinish(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme")
		id := f.Send(anna, "frank@acme")
		acceptFor(f, frank, id, 3600)
		say(f, frank, id, "I have begun")
		view(f, anna, id)
		out := reassign(f, id, "Grace@ACME")
		if out.Holder != "grace@acme" || out.Epoch != 2 || out.ThreadID != id || out.Replay {
			t.Fatalf("%+v", out)
		}
		row := look(f, id).Handoff
		if row.State != handoff.Claimed || row.Holder != grace.Actor.ID || row.Recipient != frank.Actor.ID || !row.LeaseExpiresAt.IsZero() {
			t.Fatalf("%+v", row)
		}
		for _, in := range []hub.InboxInput{{}, {Role: "recipient"}, {Statuses: []string{"accepted"}}} {
			got := inbox(f, grace, in)
			wantIDs(t, "the new holder's", got, id)
			if got.UnreadTotal != 3 || got.Items[0].Unread != 3 || !slices.Contains(got.Items[0].News, handoff.EventReassigned) || got.Parties[grace.Actor.ID].Handle != "grace@acme" {
				t.Fatalf("%d unread: %+v", got.UnreadTotal, got.Items)
			}
		}
		wantIDs(t, "as sender", inbox(f, grace, hub.InboxInput{Role: "sender"}))
		thread := view(f, grace, id)
		if reason := thread.Messages[2]; reason.Author != handoff.Operator().ID || reason.Body != "Reassigned to grace@acme: frank is on leave" {
			t.Fatalf("%+v", reason)
		}
		got := inbox(f, grace, hub.InboxInput{})
		wantIDs(t, "all read", got, id)
		if got.UnreadTotal != 0 || len(got.Items[0].News) != 0 {
			t.Fatalf("%+v", got)
		}
		for _, told := range []hub.Call{anna, frank} {
			if got := inbox(f, told, hub.InboxInput{}); len(got.Items) != 1 || got.UnreadTotal == 0 || !slices.Contains(got.Items[0].News, handoff.EventReassigned) {
				t.Errorf("%s is told: %+v", told.Actor.Handle, got.Items)
			}
		}

		hubtest.WantCode(t, completeAs(f, frank, id, new(1)), handoff.CodeLeaseLost)
		_, err := f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeAlreadyClaimed)
		say(f, frank, id, "good luck") // its recipient still takes part
		say(f, anna, id, "thank you")
		say(f, grace, id, "I go on")
		if got := accept(f, grace, id); got.Handoff.Epoch != 2 {
			t.Fatalf("taken again: %+v", got.Handoff)
		}
		hubtest.WantCode(t, completeAs(f, grace, id, nil), handoff.CodeStaleClaimEpoch)
		hubtest.WantCode(t, completeAs(f, grace, id, new(1)), handoff.CodeStaleClaimEpoch)
		noError(t, completeAs(f, grace, id, new(2)))
		wantIDs(t, "what grace finished", inbox(f, grace, hub.InboxInput{Statuses: []string{"completed"}}), id)
		want := []handoff.EventType{
			handoff.EventCreated, handoff.EventClaimed, handoff.EventMessageCreated, handoff.EventReassigned,
			handoff.EventMessageCreated, handoff.EventMessageCreated, handoff.EventMessageCreated, handoff.EventCompleted,
		}
		if got := eventsOf(f, id); !slices.Equal(got, want) {
			t.Errorf("events %v", got)
		}
	})
}

func TestAHolderThatIsNoRecipientLosesSightWithTheHandoff(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace, henry := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme"), f.Agent("henry@acme")
		id := f.Send(anna, "frank@acme")
		reassign(f, id, "grace@acme")
		say(f, anna, id, "unread by grace")
		reassign(f, id, "henry@acme")
		if got := inbox(f, grace, hub.InboxInput{}); len(got.Items) != 0 || got.UnreadTotal != 0 {
			t.Fatalf("it still stands in grace's inbox: %+v", got)
		}
		wantIDs(t, "asked for", inbox(f, grace, hub.InboxInput{Statuses: []string{"accepted", "pending"}}))
		_, err := f.Hub.View(bg, grace, hub.ViewInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		_, err = f.Hub.Send(bg, grace, hub.SendInput{ThreadID: id, Body: "but I"})
		hubtest.WantCode(t, err, handoff.CodeNotAParticipant)
		_, err = f.Hub.Accept(bg, grace, hub.AcceptInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeNotEligibleToClaim)
		hubtest.WantCode(t, completeAs(f, grace, id, new(1)), handoff.CodeLeaseLost)
		_, err = f.Hub.Decline(bg, grace, hub.DeclineInput{ThreadID: id, Reason: "no"})
		hubtest.WantCode(t, err, handoff.CodeLeaseLost)

		say(f, anna, id, "grace is not told of this")
		if got := inbox(f, grace, hub.InboxInput{}); got.UnreadTotal != 0 {
			t.Fatalf("%+v", got)
		}
		wantIDs(t, "henry's", inbox(f, henry, hub.InboxInput{}), id)

		if got := reassign(f, id, "grace@acme"); got.Epoch != 3 {
			t.Fatalf("%+v", got)
		}
		if got := inbox(f, grace, hub.InboxInput{}); len(got.Items) != 1 || got.UnreadTotal != 6 {
			t.Fatalf("back again, with all unread: %+v", got)
		}
		view(f, grace, id)
		if got := reassign(f, id, "frank@acme"); got.Epoch != 4 {
			t.Fatalf("%+v", got)
		}
		noError(t, completeAs(f, frank, id, new(4)))
		eventsOf(f, id)
	})
}

func TestALapsedLeaseReturnsAReassignedHandoffToItsRecipient(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme")
		id := f.Send(anna, "frank@acme")
		reassign(f, id, "grace@acme")
		acceptFor(f, grace, id, 60)
		f.Clock.Advance(time.Hour)
		wantIDs(t, "before a sweep", inbox(f, grace, hub.InboxInput{Statuses: []string{"pending", "accepted"}}))
		if n, err := f.Hub.Sweep(bg); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if got := inbox(f, grace, hub.InboxInput{}); len(got.Items) != 0 || got.UnreadTotal != 0 {
			t.Fatalf("after it: %+v", got)
		}
		_, err := f.Hub.Accept(bg, grace, hub.AcceptInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeNotEligibleToClaim)
		if got := accept(f, frank, id).Handoff; got.Epoch != 2 {
			t.Fatalf("%+v", got)
		}
		eventsOf(f, id)
	})
}

func TestAReassignmentIsRefused(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme")
		f.Agent("gone@acme")
		disable(f, "gone@acme")
		shy := f.Agent("shy@acme")
		block(f, shy, "anna@acme", true)
		id := f.Send(anna, "frank@acme")
		ended := f.Send(anna, "frank@acme")
		accept(f, frank, ended)
		complete(f, frank, ended)
		before := len(eventsOf(f, id))
		tests := map[string]struct {
			call hub.Call
			in   hub.ReassignInput
			want handoff.Code
			says string
		}{
			"by the sender":     {anna, hub.ReassignInput{ThreadID: id, To: "grace@acme", Reason: "r"}, handoff.CodePermissionDenied, "operator"},
			"by the new holder": {grace, hub.ReassignInput{ThreadID: id, To: "grace@acme", Reason: "r"}, handoff.CodePermissionDenied, "operator"},
			"without a reason":  {hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "grace@acme"}, handoff.CodeInvalidParams, "reason"},
			"for ever and ever": {hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "grace@acme", Reason: strings.Repeat("r", 4<<10+1)}, handoff.CodeContentTooLarge, "reason"},
			"to a near miss":    {hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "grcae@acme", Reason: "r"}, handoff.CodeRecipientNotFound, "did you mean grace@acme"},
			"to nobody":         {hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "zzzzzz@other", Reason: "r"}, handoff.CodeRecipientNotFound, "zzzzzz@other"},
			"to a disabled one": {hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "gone@acme", Reason: "r"}, handoff.CodeInvalidParams, "disabled"},
			"to its sender":     {hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "anna@acme", Reason: "r"}, handoff.CodeInvalidParams, "sent the handoff"},
			"to who blocks her": {hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "shy@acme", Reason: "r"}, handoff.CodeTeammateBlocked, "shy@acme"},
			"of what has ended": {hubtest.Operator(), hub.ReassignInput{ThreadID: ended, To: "grace@acme", Reason: "r"}, handoff.CodeThreadTerminal, "completed"},
			"of nothing":        {hubtest.Operator(), hub.ReassignInput{ThreadID: "ffffffff-0000", To: "grace@acme", Reason: "r"}, handoff.CodeNotFound, "ffffffff-0000"},
		}
		for name, test := range tests {
			_, err := f.Hub.Reassign(bg, test.call, test.in)
			if e := hubtest.WantCode(t, err, test.want); !strings.Contains(e.Message, test.says) {
				t.Errorf("%s: %s", name, e.Message)
			}
		}
		if got := len(eventsOf(f, id)); got != before || look(f, id).Handoff.Messages != 1 {
			t.Errorf("something was written: %d events", got)
		}
	})
}

func TestReassigningToTheHolderChangesNothing(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		acceptFor(f, frank, id, 3600)
		before := look(f, id).Handoff
		if out := reassign(f, id, "frank@acme"); !out.Replay || out.Epoch != 1 {
			t.Fatalf("%+v", out)
		}
		if after := look(f, id).Handoff; after.Epoch != 1 || after.EventSeq != before.EventSeq || after.Messages != 1 || !after.LeaseExpiresAt.Equal(before.LeaseExpiresAt) {
			t.Fatalf("%+v", after)
		}
		noError(t, completeAs(f, frank, id, nil))
	})
}

func TestTheOldHoldersKeyDoesNotReachTheWorkAnyMore(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme")
		id := f.Send(anna, "frank@acme")
		in := hub.AcceptInput{ThreadID: id, IdempotencyKey: "k"}
		_, err := f.Hub.Accept(bg, frank, in)
		noError(t, err)
		reassign(f, id, "grace@acme")
		_, err = f.Hub.Accept(bg, frank, in)
		hubtest.WantCode(t, err, handoff.CodeLeaseLost)
		again, err := f.Hub.Accept(bg, grace, hub.AcceptInput{ThreadID: id, IdempotencyKey: "k"})
		if err != nil || again.Handoff.Epoch != 2 {
			t.Fatalf("%+v %v", again.Handoff, err)
		}
		_, err = f.Hub.Cancel(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "off"})
		noError(t, err)
		hubtest.WantCode(t, completeAs(f, grace, id, new(2)), handoff.CodeThreadTerminal)
		hubtest.WantCode(t, completeAs(f, frank, id, new(1)), handoff.CodeLeaseLost)
		if got := inbox(f, grace, hub.InboxInput{}).Items; len(got) != 1 || !slices.Contains(got[0].News, handoff.EventCancelled) {
			t.Fatalf("the new holder is told: %+v", got)
		}
	})
}

func TestAReassignmentWakesTheParkedInboxOfTheNewHolder(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, grace := f.Agent("anna@acme"), f.Agent("grace@acme")
		f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		ch := park(f, f.Hub, grace, hub.InboxInput{}, 1)
		began := time.Now()
		reassign(f, id, "grace@acme")
		if got := returned(t, ch); got.err != nil || len(got.in.Items) != 1 || got.in.Items[0].Handoff.ID != id {
			t.Fatalf("%+v", got)
		}
		if late := time.Since(began); late > 2*time.Second { // its own poll comes after 2.5 s at the soonest
			t.Fatalf("woken after %v", late)
		}
	})
}

func TestWorkThatWasDeliveredGoesBackToItsHolder(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme")
		id := f.Send(anna, "frank@acme")
		noError(t, f.Store.Write(bg, func(tx *store.Tx) error {
			was, err := tx.LockHandoff(id)
			if err != nil {
				return err
			}
			row := was
			row.State, row.Holder, row.Epoch = handoff.Verifying, frank.Actor.ID, 1
			return tx.UpdateHandoff(&was, &row)
		}))
		if out := reassign(f, id, "frank@acme"); out.Replay || out.Epoch != 2 {
			t.Fatalf("%+v", out)
		}
		if got := look(f, id).Handoff; got.State != handoff.Claimed || got.Holder != frank.Actor.ID {
			t.Fatalf("%+v", got)
		}
		reassign(f, id, "grace@acme")
		noError(t, completeAs(f, grace, id, new(3)))
	})
}

// Whoever comes second in these races finds what the first one left, and the log counts both.
func TestRacesWithAReassignmentHaveOneWinnerEach(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace, henry := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme"), f.Agent("henry@acme")
		move := func(id, to string) error {
			_, err := f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: to, Reason: "r"})
			return err
		}
		for range 12 {
			id := f.Send(anna, "frank@acme")
			_, accepted := both(func() error {
				return move(id, "grace@acme")
			}, func() error {
				_, err := f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id})
				return err
			})
			row := look(f, id).Handoff
			want := 2 // accepted first
			if accepted != nil {
				hubtest.WantCode(t, accepted, handoff.CodeAlreadyClaimed)
				want = 1
			}
			if row.Holder != grace.Actor.ID || row.Epoch != want || len(eventsOf(f, id)) != want+1 {
				t.Fatalf("reassign against accept (%v): %+v", accepted, row)
			}

			one, two := both(func() error { return move(id, "frank@acme") }, func() error { return move(id, "henry@acme") })
			row = look(f, id).Handoff
			if one != nil || two != nil || row.Epoch != want+2 || row.Holder != frank.Actor.ID && row.Holder != henry.Actor.ID || len(eventsOf(f, id)) != want+3 {
				t.Fatalf("two reassignments (%v, %v): %+v", one, two, row)
			}

			holder, moved := henry, "grace@acme"
			if row.Holder == frank.Actor.ID {
				holder = frank
			}
			one, two = both(func() error { return move(id, moved) }, func() error { return completeAs(f, holder, id, new(row.Epoch)) })
			switch after := look(f, id).Handoff; {
			case two == nil:
				hubtest.WantCode(t, one, handoff.CodeThreadTerminal)
			case one != nil || after.Holder != grace.Actor.ID:
				t.Fatalf("reassign against complete (%v, %v): %+v", one, two, after)
			default:
				hubtest.WantCode(t, two, handoff.CodeLeaseLost)
			}
			eventsOf(f, id)
		}
	})
}

// both runs two calls at the same time.
func both(a, b func() error) (errA, errB error) {
	var wg sync.WaitGroup
	wg.Go(func() { errA = a() })
	wg.Go(func() { errB = b() })
	wg.Wait()
	return errA, errB
}
