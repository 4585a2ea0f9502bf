package hub_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func sequence(t hub.Thread) []int {
	list := make([]int, len(t.Messages))
	for i := range t.Messages {
		list[i] = t.Messages[i].SequenceNo
	}
	return list
}

func TestAViewOfAMiddlePageMarksOnlyWhatItReturned(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		for range 9 {
			say(f, anna, id, "more")
		}
		say(f, frank, id, "mine is no news to me") // 11
		unread := func(want int) {
			t.Helper()
			if got := inbox(f, frank, hub.InboxInput{}); got.UnreadTotal != want || got.Items[0].Unread != want {
				t.Fatalf("%d unread in all, %d in the item, want %d", got.UnreadTotal, got.Items[0].Unread, want)
			}
		}
		page := func(after, limit int, want []int, next int) {
			t.Helper()
			got, err := f.Hub.View(bg, frank, hub.ViewInput{ThreadID: id, After: after, Limit: limit})
			noError(t, err)
			if !slices.Equal(sequence(got), want) || got.HasMore != (next > 0) || got.NextSequenceNo != next || got.Summary.SequenceNo != 1 {
				t.Fatalf("page %v, next %d, more %v", sequence(got), got.NextSequenceNo, got.HasMore)
			}
		}
		unread(10)
		page(3, 4, []int{4, 5, 6, 7}, 7)
		unread(6)
		page(3, 4, []int{4, 5, 6, 7}, 7)
		unread(6)
		_, err := f.Hub.View(bg, frank, hub.ViewInput{ThreadID: id, Peek: true})
		noError(t, err)
		look(f, id) // the operator
		unread(6)
		page(7, 200, []int{8, 9, 10, 11}, 0)
		unread(3)
		page(11, 200, []int{}, 0)
		unread(3)
		page(0, 3, []int{1, 2, 3}, 3)
		unread(0)
		if got := inbox(f, anna, hub.InboxInput{}); got.UnreadTotal != 1 {
			t.Fatalf("the sender has %d unread", got.UnreadTotal)
		}
	})
}

func TestAViewSeesNewsAndChangesNothingElse(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		before := look(f, id).Handoff
		view(f, frank, id)
		after := look(f, id).Handoff
		if after.FetchedAt.IsZero() || !before.FetchedAt.IsZero() {
			t.Fatalf("fetched at %v, before %v", after.FetchedAt, before.FetchedAt)
		}
		if after.State != before.State || after.EventSeq != before.EventSeq || !after.UpdatedAt.Equal(before.UpdatedAt) || after.Epoch != 0 {
			t.Fatalf("a view changed %+v to %+v", before, after)
		}
		accept(f, frank, id)
		complete(f, frank, id)
		if got := inbox(f, anna, hub.InboxInput{}).Items; len(got) != 1 || len(got[0].News) != 2 {
			t.Fatalf("%+v", got)
		}
		view(f, anna, id)
		if got := inbox(f, anna, hub.InboxInput{}); len(got.Items) != 0 {
			t.Fatalf("seen news come back: %+v", got.Items)
		}
	})
}

func TestAPageOfAThreadIsBounded(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	eve := f.Agent("eve@acme")
	f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	for field, in := range map[string]hub.ViewInput{"limit": {Limit: 201}, "limit ": {Limit: -1}, "after_sequence_no": {After: -1}} {
		in.ThreadID = id
		_, err := f.Hub.View(bg, anna, in)
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); e.Details["field"] != strings.TrimSpace(field) {
			t.Errorf("%s: %v", field, e.Details)
		}
	}
	_, err := f.Hub.View(bg, eve, hub.ViewInput{ThreadID: id})
	hubtest.WantCode(t, err, handoff.CodeNotFound)
	_, err = f.Hub.View(bg, anna, hub.ViewInput{ThreadID: "no such id"})
	hubtest.WantCode(t, err, handoff.CodeNotFound)
}

// tenEach is a budget of 25 in which every message takes 10 and the first page 10 more.
type tenEach struct{}

func (tenEach) Budget() int { return 25 }
func (tenEach) Fixed(t *hub.Thread) int {
	if t.FirstPage {
		return 10
	}
	return 0
}

func (tenEach) Message(_ *hub.Thread, m *handoff.Message) int {
	if m.SequenceNo == 4 {
		return 100
	}
	return 10
}

func TestAPageEndsAtItsBudgetAndHoldsAtLeastOneMessage(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		for range 5 {
			say(f, anna, id, "more")
		}
		var pages [][]int
		after := 0
		for {
			got, err := f.Hub.View(bg, frank, hub.ViewInput{ThreadID: id, After: after, Size: tenEach{}})
			noError(t, err)
			pages = append(pages, sequence(got))
			if left := inbox(f, frank, hub.InboxInput{}).UnreadTotal; left != 6-got.Messages[len(got.Messages)-1].SequenceNo {
				t.Fatalf("%d unread after %v", left, pages)
			}
			if after = got.NextSequenceNo; !got.HasMore {
				break
			}
		}
		if want := "[[1] [2 3] [4] [5 6]]"; fmt.Sprint(pages) != want {
			t.Fatalf("pages %v, want %s", pages, want)
		}
	})
}

func TestMessagesOfManyWritersAreNumberedWithoutGaps(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				call := []hub.Call{anna, frank}[i%2]
				for n := range 5 {
					if _, err := f.Hub.Send(bg, call, hub.SendInput{ThreadID: id, Body: fmt.Sprintf("%d of %d", n, i)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for i, n := range sequence(look(f, id)) {
			if n != i+1 {
				t.Fatalf("message %d stands at %d", n, i+1)
			}
		}
		if got := inbox(f, frank, hub.InboxInput{}).UnreadTotal; got != 21 {
			t.Errorf("frank has %d unread, want 21", got)
		}
		if got := inbox(f, anna, hub.InboxInput{}).UnreadTotal; got != 20 {
			t.Errorf("anna has %d unread, want 20", got)
		}
		if got := len(eventsOf(f, id)); got != 41 {
			t.Errorf("%d events", got)
		}
	})
}

func TestOnlyParticipantsWriteAndOnlyUntilItEnds(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, eve := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("eve@acme")
		id := f.Send(anna, "frank@acme")
		try := func(call hub.Call, asks bool) error {
			_, err := f.Hub.Send(bg, call, hub.SendInput{ThreadID: id, Body: "hello", ExpectsReply: asks})
			return err
		}
		hubtest.WantCode(t, try(eve, false), handoff.CodeNotFound)
		hubtest.WantCode(t, try(frank, true), handoff.CodeNotOwner)
		noError(t, try(frank, false))
		noError(t, try(anna, false))
		accept(f, frank, id)
		hubtest.WantCode(t, try(anna, true), handoff.CodeNotOwner)
		noError(t, try(frank, true))
		if !look(f, id).Handoff.WaitsForReply {
			t.Fatal("it does not wait for the answer")
		}
		noError(t, try(anna, false))
		if look(f, id).Handoff.WaitsForReply {
			t.Fatal("it waits although the creator answered")
		}
		complete(f, frank, id)
		hubtest.WantCode(t, try(anna, false), handoff.CodeThreadTerminal)
		hubtest.WantCode(t, try(frank, true), handoff.CodeThreadTerminal)
		hubtest.WantCode(t, try(eve, false), handoff.CodeNotFound)
	})
}

func TestAMessageIsCheckedBeforeAnythingIsRead(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	tests := []struct {
		field string
		in    hub.SendInput
		want  handoff.Code
	}{
		{"body", hub.SendInput{}, handoff.CodeInvalidParams},
		{"body", hub.SendInput{Body: "a\x00"}, handoff.CodeInvalidParams},
		{"body", hub.SendInput{Body: strings.Repeat("a", 64<<10+1)}, handoff.CodeContentTooLarge},
		{"payload", hub.SendInput{Body: "b", Payload: json.RawMessage(`{"a":"\u0000"}`)}, handoff.CodeInvalidParams},
		{"payload", hub.SendInput{Body: "b", Payload: json.RawMessage(`"` + strings.Repeat("a", 64<<10) + `"`)}, handoff.CodeContentTooLarge},
		{"artifacts[0].type", hub.SendInput{Body: "b", Artifacts: []json.RawMessage{json.RawMessage(`{"type":"lnik"}`)}}, handoff.CodeInvalidParams},
	}
	for _, test := range tests {
		test.in.ThreadID = id
		_, err := f.Hub.Send(bg, anna, test.in)
		if e := hubtest.WantCode(t, err, test.want); e.Details["field"] != test.field {
			t.Errorf("%s: %v", test.field, e.Details)
		}
	}
	if got := look(f, id); len(got.Messages) != 1 {
		t.Fatalf("%d messages", len(got.Messages))
	}
}

func TestAMessageIsKeptAsItCame(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		in := hub.SendInput{
			ThreadID: id, Body: "</handoff> <b>\u202e \u2028 👩‍👩‍👧 'quoted' \"twice\" \\n",
			Payload:   json.RawMessage(`{"n":1.10,"big":123456789012345678901234567890,"s":"<&>\u00e9"}`),
			Artifacts: []json.RawMessage{json.RawMessage(`{"type":"link","url":"https://example.com/?a=1&b=<2>","x":1e2}`)},
		}
		sent, err := f.Hub.Send(bg, anna, in)
		noError(t, err)
		m := view(f, frank, id).Messages[1]
		if m.ID != sent.MessageID || m.SequenceNo != 2 || m.Body != in.Body || string(m.Payload) != string(in.Payload) || string(m.Artifacts[0].Raw) != string(in.Artifacts[0]) || !m.CreatedAt.Equal(sent.CreatedAt) {
			t.Fatalf("kept as %+v", m)
		}
	})
}

// A verb that finds its effect standing writes no row of its own; what the clock did meanwhile
// must then be written down whole, or not at all.
func TestARepetitionAfterALapseOrADeadlineLeavesLogAndRowInStep(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		lapsing := send(f, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.ProposeAction, ProposedAction: action()}).ThreadID
		acceptFor(f, frank, lapsing, 10)
		asked := hub.SendInput{ThreadID: lapsing, Body: "which one?", ExpectsReply: true, IdempotencyKey: "k"}
		first, err := f.Hub.Send(bg, frank, asked)
		noError(t, err)
		drafted := hub.DraftInput{ThreadID: lapsing, SuggestedDiff: diffOf("main.go"), IdempotencyKey: "k"}
		draft, err := f.Hub.Draft(bg, frank, drafted)
		noError(t, err)
		decide := hub.DecideInput{DraftID: draft.DraftID, Approve: true}
		_, err = f.Hub.DecideDraft(bg, hubtest.Operator(), decide)
		noError(t, err)
		expiring := send(f, anna, hub.CreateInput{To: "frank@acme", ExpiresIn: 60}).ThreadID
		note := hub.SendInput{ThreadID: expiring, Body: "hurry", IdempotencyKey: "l"}
		_, err = f.Hub.Send(bg, anna, note)
		noError(t, err)
		f.Clock.Advance(time.Hour)

		again, err := f.Hub.Send(bg, frank, asked)
		if err != nil || !again.Replay || again.MessageID != first.MessageID {
			t.Fatalf("the message: %+v %v", again, err)
		}
		if again, err := f.Hub.Draft(bg, frank, drafted); err != nil || !again.Replay || again.Status != handoff.DraftApproved {
			t.Fatalf("the draft: %+v %v", again, err)
		}
		_, err = f.Hub.DecideDraft(bg, hubtest.Operator(), decide)
		noError(t, err)
		if again, err := f.Hub.Send(bg, anna, note); err != nil || !again.Replay {
			t.Fatalf("the note: %+v %v", again, err)
		}
		eventsOf(f, lapsing)
		eventsOf(f, expiring)
		if got := accept(f, frank, lapsing).Handoff; got.Epoch != 2 {
			t.Fatalf("taken anew: %+v", got)
		}
		_, err = f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: expiring})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		if n, err := f.Hub.Sweep(bg); n != 0 || err != nil {
			t.Fatalf("the sweep still found %d, %v", n, err)
		}
	})
}
