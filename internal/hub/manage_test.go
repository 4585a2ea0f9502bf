package hub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func list(f *hubtest.Fixture, in hub.ListInput) hub.Listing {
	f.T.Helper()
	out, err := f.Hub.Handoffs(bg, hubtest.Operator(), in)
	noError(f.T, err)
	return out
}

func listed(l hub.Listing) []string {
	out := []string{}
	for i := range l.Items {
		out = append(out, l.Items[i].Handoff.ID)
	}
	return out
}

func wantListed(f *hubtest.Fixture, what string, in hub.ListInput, want ...string) {
	f.T.Helper()
	if got := listed(list(f, in)); !slices.Equal(got, want) && len(got)+len(want) > 0 {
		f.T.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestTheOperatorFindsHandoffsByWhatTheyAre(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme")
		pending := f.Send(anna, "frank@acme")
		taken := f.Send(anna, "frank@acme")
		done := f.Send(frank, "anna@acme")
		f.Clock.Advance(time.Hour)
		since := f.Clock.Now()
		moved := f.Send(anna, "frank@acme")
		lapsing := f.Send(frank, "grace@acme")
		expiring := send(f, grace, hub.CreateInput{To: "frank@acme", ExpiresIn: 60}).ThreadID
		accept(f, frank, taken)
		accept(f, anna, done)
		complete(f, anna, done)
		reassign(f, moved, "grace@acme")
		acceptFor(f, grace, lapsing, 60)
		f.Clock.Advance(time.Hour) // what lapsed or expired is not written down yet

		wantListed(f, "all, newest first", hub.ListInput{}, expiring, lapsing, moved, done, taken, pending)
		wantListed(f, "pending", hub.ListInput{Statuses: []string{"pending"}}, lapsing, pending)
		wantListed(f, "two words", hub.ListInput{Statuses: []string{"expired", "completed"}}, expiring, done)
		wantListed(f, "accepted", hub.ListInput{Statuses: []string{"accepted"}}, moved, taken)
		wantListed(f, "declined", hub.ListInput{Statuses: []string{"declined"}})
		wantListed(f, "from frank", hub.ListInput{From: "FRANK@acme"}, lapsing, done)
		wantListed(f, "to frank", hub.ListInput{To: "frank@acme"}, expiring, moved, taken, pending)
		wantListed(f, "grace in any role", hub.ListInput{Agent: "grace@acme"}, expiring, lapsing, moved)
		wantListed(f, "anna to frank, pending", hub.ListInput{From: "anna@acme", To: "frank@acme", Statuses: []string{"pending"}}, pending)
		wantListed(f, "since", hub.ListInput{Since: since}, expiring, lapsing, moved)
		wantListed(f, "unfetched", hub.ListInput{Unfetched: true}, pending)
		wantListed(f, "held for long", hub.ListInput{HeldLonger: 30 * time.Minute}, moved, taken)
		wantListed(f, "held for longer", hub.ListInput{HeldLonger: 2 * time.Hour})
		reassign(f, taken, "grace@acme") // a new holder, a new time
		wantListed(f, "held for long by the same", hub.ListInput{HeldLonger: 30 * time.Minute}, moved)

		got := list(f, hub.ListInput{})
		if got.NextCursor != "" || got.Items[0].Handoff.State != handoff.Expired || got.Items[1].Handoff.Holder != "" || !got.Items[1].HeldSince.IsZero() || got.Items[2].HeldSince.IsZero() {
			t.Errorf("%+v", got.Items)
		}
		if got.Parties[grace.Actor.ID].Handle != "grace@acme" {
			t.Errorf("%+v", got.Parties)
		}
		inbox(f, frank, hub.InboxInput{})
		wantListed(f, "fetched", hub.ListInput{Unfetched: true})
	})
}

func TestTheListGoesOnBehindItsCursorToTheOldest(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		var want []string
		for range 7 {
			want = append([]string{f.Send(anna, "frank@acme")}, want...)
		}
		var got []string
		for in := (hub.ListInput{Limit: 3}); ; {
			page := list(f, in)
			got = append(got, listed(page)...)
			f.Send(anna, "frank@acme") // what arrives meanwhile stays in front
			if in.Cursor = page.NextCursor; in.Cursor == "" || len(got) > 7 {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

func TestTheOperatorsVerbsAreTheOperatorsAlone(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	_, listErr := f.Hub.Handoffs(bg, anna, hub.ListInput{})
	_, showErr := f.Hub.Inspect(bg, anna, hub.ViewInput{ThreadID: id})
	_, pastErr := f.Hub.History(bg, anna, id, 0)
	_, cancelErr := f.Hub.CancelAny(bg, anna, hub.CancelInput{ThreadID: id, Reason: "r"})
	_, eraseErr := f.Hub.Erase(bg, anna, id)
	for _, err := range []error{listErr, showErr, pastErr, cancelErr, eraseErr} {
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
	}
	for field, in := range map[string]hub.ListInput{
		"limit": {Limit: 201}, "status": {Statuses: []string{"opened"}}, "cursor": {Cursor: "junk"}, "held_longer_than_seconds": {HeldLonger: -time.Second},
	} {
		_, err := f.Hub.Handoffs(bg, hubtest.Operator(), in)
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); e.Details["field"] != field {
			t.Errorf("%s: %v", field, e.Details)
		}
	}
	_, err := f.Hub.Handoffs(bg, hubtest.Operator(), hub.ListInput{Agent: "nobody@acme"})
	hubtest.WantCode(t, err, handoff.CodeNotFound)
}

// put stores a handoff under an id of the test's choice.
func put(f *hubtest.Fixture, creator hub.Call, id string) {
	f.T.Helper()
	pooled(f, creator, id, `{"strategy":"broadcast"}`, "")
}

func TestTheBeginningOfAnIDIsEnoughIfItIsUnique(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		ids := []string{"aaaaaaaa-0001", "aaaaaaaa-0002", "aaaaaaaa-00025", "bbbbbbbb-0001"}
		for _, id := range ids {
			put(f, anna, id)
		}
		for prefix, want := range map[string]string{"bbbbbbbb": ids[3], "BBBBBBBB-0": ids[3], "aaaaaaaa-0001": ids[0], "aaaaaaaa-0002": ids[1], "aaaaaaaa-00025": ids[2]} {
			got, err := f.Hub.Inspect(bg, hubtest.Operator(), hub.ViewInput{ThreadID: prefix})
			if err != nil || got.Handoff.ID != want {
				t.Errorf("%s: %s %v", prefix, got.Handoff.ID, err)
			}
		}
		for prefix, want := range map[string]struct {
			code handoff.Code
			says string
		}{
			"aaaaaaaa":       {handoff.CodeInvalidParams, "the ids of 3 handoffs begin with"},
			"aaaaaaa":        {handoff.CodeInvalidParams, "at least its first 8 characters"},
			"":               {handoff.CodeInvalidParams, "at least"},
			"aaaaaaaa%":      {handoff.CodeInvalidParams, "accepted"},
			"cccccccc":       {handoff.CodeNotFound, "begins so"},
			"bbbbbbbb-0001x": {handoff.CodeNotFound, "begins so"},
		} {
			_, err := f.Hub.History(bg, hubtest.Operator(), prefix, 0)
			if e := hubtest.WantCode(t, err, want.code); !strings.Contains(e.Message, want.says) {
				t.Errorf("%q: %s", prefix, e.Message)
			}
		}
	})
}

func TestTheOperatorSeesAThreadAndItsEventsAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		say(f, anna, id, "more")
		accept(f, frank, id)
		before := look(f, id).Handoff
		got, err := f.Hub.Inspect(bg, hubtest.Operator(), hub.ViewInput{ThreadID: id})
		if err != nil || len(got.Messages) != 2 {
			t.Fatalf("%+v %v", got, err)
		}
		past, err := f.Hub.History(bg, hubtest.Operator(), id, 1)
		if err != nil || len(past.Events) != 2 || past.NextSeq != 0 || past.Events[0].Seq != 2 || past.Events[1].Type != handoff.EventClaimed || past.Events[1].Epoch != 1 {
			t.Fatalf("%+v %v", past, err)
		}
		if past.Parties[past.Events[1].ActorID].Handle != "frank@acme" {
			t.Fatalf("%+v", past.Parties)
		}
		if after := look(f, id).Handoff; !after.FetchedAt.Equal(before.FetchedAt) || after.EventSeq != before.EventSeq {
			t.Fatalf("%+v", after)
		}
	})
}

func TestTheOperatorCancelsInEveryStateButTheLastAndAllAreTold(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		pending, accepted := f.Send(anna, "frank@acme"), f.Send(anna, "frank@acme")
		accept(f, frank, accepted)
		in := func(id, reason string) hub.CancelInput { return hub.CancelInput{ThreadID: id, Reason: reason} }
		_, err := f.Hub.CancelAny(bg, hubtest.Operator(), in(pending, ""))
		hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		for _, id := range []string{pending, accepted} {
			view(f, anna, id)
			out, err := f.Hub.CancelAny(bg, hubtest.Operator(), in(id, "called off"))
			if err != nil || out.Status != "cancelled" || out.Replay {
				t.Fatalf("%+v %v", out, err)
			}
			again, err := f.Hub.CancelAny(bg, hubtest.Operator(), in(id, "called off"))
			if err != nil || !again.Replay {
				t.Fatalf("again: %+v %v", again, err)
			}
			_, err = f.Hub.CancelAny(bg, hubtest.Operator(), in(id, "another reason"))
			hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
			for _, told := range []hub.Call{anna, frank} {
				if !slices.Contains(newsOf(f, told, id), handoff.EventCancelled) {
					t.Errorf("%s is not told", told.Actor.Handle)
				}
			}
			if got := view(f, frank, id).Handoff; got.EndedReason != "called off" || got.EndedBy != handoff.Operator().ID {
				t.Errorf("%+v", got)
			}
		}
		hubtest.WantCode(t, completeAs(f, frank, accepted, nil), handoff.CodeThreadTerminal)
		done := f.Send(anna, "frank@acme")
		accept(f, frank, done)
		complete(f, frank, done)
		_, err = f.Hub.CancelAny(bg, hubtest.Operator(), in(done, "too late"))
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
	})
}

func newsOf(f *hubtest.Fixture, call hub.Call, id string) []handoff.EventType {
	f.T.Helper()
	for _, item := range inbox(f, call, hub.InboxInput{}).Items {
		if item.Handoff.ID == id {
			return item.News
		}
	}
	return nil
}

func TestACancellationAgainstACompletionHasOneWinner(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		for range 12 {
			id := f.Send(anna, "frank@acme")
			accept(f, frank, id)
			cancelled, completed := both(func() error {
				_, err := f.Hub.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "r"})
				return err
			}, func() error { return completeAs(f, frank, id, nil) })
			if (cancelled == nil) == (completed == nil) {
				t.Fatalf("cancel: %v, complete: %v", cancelled, completed)
			}
			hubtest.WantCode(t, errors.Join(cancelled, completed), handoff.CodeThreadTerminal)
			want := handoff.EventCancelled
			if completed == nil {
				want = handoff.EventCompleted
			}
			if got := eventsOf(f, id); len(got) != 3 || got[2] != want {
				t.Fatalf("events %v", got)
			}
		}
	})
}

func TestAPayloadIsShownToItsClaimantAndToNobodyElse(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, grace := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("grace@acme")
		const id = "aaaaaaaa-0001"
		noError(t, f.Store.Write(bg, func(tx *store.Tx) error {
			h := handoff.Handoff{
				ID: id, Door: handoff.DoorTeam, State: handoff.Open, Creator: anna.Actor.ID, Recipient: frank.Actor.ID, Intent: handoff.Inform,
				Payload: json.RawMessage(`{"secret":1}`), Messages: 1, CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
			}
			if err := tx.InsertHandoff(&h); err != nil {
				return err
			}
			return tx.InsertMessage(&handoff.Message{ID: id + "-1", HandoffID: id, SequenceNo: 1, Author: h.Creator, Body: "b", CreatedAt: tx.Now()})
		}))
		want := func(when string, who ...hub.Call) {
			t.Helper()
			for _, call := range []hub.Call{anna, frank, grace, hubtest.Operator()} {
				got, err := f.Hub.View(bg, call, hub.ViewInput{ThreadID: id})
				if err != nil && handoff.CodeOf(err) != handoff.CodeNotFound {
					t.Fatal(err)
				}
				sees := slices.ContainsFunc(who, func(c hub.Call) bool { return c.Actor.ID == call.Actor.ID })
				if (len(got.Handoff.Payload) > 0) != sees {
					t.Errorf("%s, %s: %s", when, call.Actor.Handle, got.Handoff.Payload)
				}
				for _, item := range inbox(f, call, hub.InboxInput{Statuses: handoff.TeamStatuses()}).Items {
					if len(item.Handoff.Payload) > 0 {
						t.Errorf("%s, the inbox of %s", when, call.Actor.Handle)
					}
				}
			}
			if got := list(f, hub.ListInput{}); len(got.Items[0].Handoff.Payload) > 0 {
				t.Errorf("%s, the operator's list", when)
			}
		}
		want("pending")
		if got := accept(f, frank, id); string(got.Handoff.Payload) != `{"secret":1}` {
			t.Errorf("to the one who accepts: %s", got.Handoff.Payload)
		}
		want("accepted", frank)
		reassign(f, id, "grace@acme")
		want("reassigned", grace)
		noError(t, completeAs(f, grace, id, new(2)))
		want("completed", grace)
		_, err := f.Hub.Erase(bg, hubtest.Operator(), id)
		noError(t, err)
		want("erased")
	})
}

func TestOneEventPageOfAThousandIsFollowedByTheNext(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	for i := range 1003 {
		say(f, anna, id, fmt.Sprint("message ", i))
	}
	seqs := 0
	for after := 0; ; {
		page, err := f.Hub.History(bg, hubtest.Operator(), id, after)
		noError(t, err)
		for _, e := range page.Events {
			if seqs++; e.Seq != seqs {
				t.Fatalf("event %d stands at %d", e.Seq, seqs)
			}
		}
		if after = page.NextSeq; after == 0 {
			break
		}
	}
	if seqs != 1004 {
		t.Fatalf("%d events", seqs)
	}
}
