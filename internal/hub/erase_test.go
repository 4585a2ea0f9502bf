package hub_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// secret stands in every text of what is erased in these tests.
const secret = "SECRET"

// written is a completed handoff with a secret in every text that it can have.
type written struct {
	anna, frank hub.Call
	id          string
	created     hub.CreateInput
	said        hub.SendInput
	drafted     hub.DraftInput
	completed   hub.CompleteInput
}

func write(f *hubtest.Fixture) written {
	f.T.Helper()
	w := written{anna: f.Agent("anna@acme"), frank: f.Agent("frank@acme")}
	artifacts := []json.RawMessage{json.RawMessage(`{"type":"link","url":"https://x.io/SECRET","title":"SECRET"}`)}
	w.created = hub.CreateInput{
		To: "frank@acme", Intent: handoff.ProposeAction, Summary: secret + strings.Repeat(" a long text", 1000), Artifacts: artifacts, Question: secret,
		ProposedAction: &handoff.ProposedAction{Description: secret, TargetFiles: []string{secret}, Rationale: secret, SuggestedDiff: diffOf(secret)},
		Metadata:       json.RawMessage(`{"SECRET":"SECRET"}`), IdempotencyKey: "k",
	}
	w.id = send(f, w.anna, w.created).ThreadID
	_, err := f.Hub.Accept(bg, w.frank, hub.AcceptInput{ThreadID: w.id, IdempotencyKey: "k"})
	noError(f.T, err)
	w.said = hub.SendInput{ThreadID: w.id, Body: secret, Payload: json.RawMessage(`"SECRET"`), Artifacts: artifacts, IdempotencyKey: "k"}
	_, err = f.Hub.Send(bg, w.frank, w.said)
	noError(f.T, err)
	w.drafted = hub.DraftInput{ThreadID: w.id, SuggestedDiff: diffOf(secret), Description: secret, Rationale: secret, IdempotencyKey: "k"}
	draft, err := f.Hub.Draft(bg, w.frank, w.drafted)
	noError(f.T, err)
	_, err = f.Hub.DecideDraft(bg, hubtest.Operator(), hub.DecideInput{DraftID: draft.DraftID, Reason: secret})
	noError(f.T, err)
	_, err = f.Hub.Draft(bg, w.frank, hub.DraftInput{ThreadID: w.id, SuggestedDiff: diffOf(secret)})
	noError(f.T, err)
	w.completed = hub.CompleteInput{ThreadID: w.id, ResultSummary: secret, Artifacts: artifacts, IdempotencyKey: "k"}
	_, err = f.Hub.Complete(bg, w.frank, w.completed)
	noError(f.T, err)
	return w
}

func erase(f *hubtest.Fixture, id string) hub.Erased {
	f.T.Helper()
	out, err := f.Hub.Erase(bg, hubtest.Operator(), id)
	noError(f.T, err)
	return out
}

func TestAnErasureLeavesNoTextAndKeepsTheRest(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		w := write(f)
		other := send(f, w.anna, hub.CreateInput{To: "frank@acme", Summary: "kept"}).ThreadID
		before := look(f, w.id).Handoff
		if n := found(f, w.id, secret); n == 0 {
			t.Fatal("the test wrote no secret")
		}
		out := erase(f, w.id)
		if out.ThreadID != w.id || out.Replay || out.ErasedAt.IsZero() {
			t.Fatalf("%+v", out)
		}
		if n := found(f, w.id, secret); n != 0 {
			t.Fatalf("the secret still stands there %d times", n)
		}
		thread := look(f, w.id)
		after := thread.Handoff
		if after.State != before.State || after.Epoch != before.Epoch || after.Messages != before.Messages || after.EventSeq != before.EventSeq+1 ||
			!after.CreatedAt.Equal(before.CreatedAt) || !after.UpdatedAt.Equal(before.UpdatedAt) || !after.CompletedAt.Equal(before.CompletedAt) || after.Holder != before.Holder {
			t.Errorf("%+v became %+v", before, after)
		}
		if !after.ErasedAt.Equal(out.ErasedAt) || after.Preview != handoff.ErasedText || after.ResultSummary != handoff.ErasedText || after.Question != handoff.ErasedText {
			t.Errorf("%+v", after)
		}
		if len(thread.Messages) != 2 || thread.Summary.Body != handoff.ErasedText || thread.Messages[1].Body != handoff.ErasedText || thread.Messages[1].Author != w.frank.Actor.ID {
			t.Errorf("%+v", thread.Messages)
		}
		if len(thread.Drafts) != 2 || thread.Drafts[0].Status != handoff.DraftDeclined || thread.Drafts[0].Reason != handoff.ErasedText {
			t.Errorf("%+v", thread.Drafts)
		}
		if got := eventsOf(f, w.id); got[len(got)-1] != handoff.EventErased {
			t.Errorf("events %v", got)
		}
		if got := look(f, other).Summary.Body; got != "kept" {
			t.Errorf("another handoff: %s", got)
		}
		again := erase(f, w.id)
		if !again.Replay || !again.ErasedAt.Equal(out.ErasedAt) || len(eventsOf(f, w.id)) != after.EventSeq {
			t.Errorf("again: %+v", again)
		}
	})
}

// found counts how often the text stands in what the hub gives out of a handoff, to anyone. What
// stands in the tables is looked at in package store.
func found(f *hubtest.Fixture, id, text string) int {
	f.T.Helper()
	n := 0
	for _, call := range []hub.Call{hubtest.Operator(), {Actor: handoff.Actor{Kind: handoff.KindAgent, ID: look(f, id).Handoff.Creator}}} {
		t, err := f.Hub.View(bg, call, hub.ViewInput{ThreadID: id, Limit: 200, Peek: true})
		noError(f.T, err)
		in := inbox(f, call, hub.InboxInput{Statuses: handoff.TeamStatuses()})
		b, err := json.Marshal([]any{t, in, list(f, hub.ListInput{})})
		noError(f.T, err)
		n += strings.Count(string(b), text)
	}
	return n
}

func TestOnlyWhatHasEndedIsErased(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		pending, accepted := f.Send(anna, "frank@acme"), f.Send(anna, "frank@acme")
		accept(f, frank, accepted)
		for _, id := range []string{pending, accepted} {
			_, err := f.Hub.Erase(bg, hubtest.Operator(), id)
			if e := hubtest.WantCode(t, err, handoff.CodeInvalidTransition); !strings.Contains(e.Hint, "handclasp handoff cancel "+id) {
				t.Errorf("%s", e.Hint)
			}
			if got := look(f, id); got.Summary.Body != "a summary" || !got.Handoff.ErasedAt.IsZero() {
				t.Fatalf("%+v", got)
			}
		}
		expiring := send(f, anna, hub.CreateInput{To: "frank@acme", ExpiresIn: 60}).ThreadID
		f.Clock.Advance(1 << 40)
		erase(f, expiring) // its deadline is not written down before
		if got := look(f, expiring).Handoff; got.State != handoff.Expired || got.EndedReason == handoff.ErasedText {
			t.Errorf("%+v", got)
		}
		if got := eventsOf(f, expiring); len(got) != 3 || got[1] != handoff.EventExpired || got[2] != handoff.EventErased {
			t.Errorf("events %v", got)
		}
		_, err := f.Hub.Decline(bg, frank, hub.DeclineInput{ThreadID: pending, Reason: secret})
		noError(t, err)
		_, err = f.Hub.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: accepted, Reason: secret})
		noError(t, err)
		erase(f, pending)
		erase(f, accepted)
		for _, id := range []string{pending, accepted} {
			if n := found(f, id, secret); n != 0 {
				t.Errorf("a reason stands there %d times", n)
			}
		}
	})
}

func TestInboxThreadAndUnreadCountsWorkAfterAnErasure(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		w := write(f)
		before := inbox(f, w.anna, hub.InboxInput{})
		erase(f, w.id)
		got := inbox(f, w.anna, hub.InboxInput{})
		wantIDs(t, "with news as before", got, w.id)
		if got.UnreadTotal != before.UnreadTotal || len(got.Items[0].News) != len(before.Items[0].News) || got.Items[0].Handoff.Preview != handoff.ErasedText {
			t.Fatalf("%+v", got)
		}
		if thread := view(f, w.anna, w.id); len(thread.Messages) != 2 {
			t.Fatalf("%+v", thread)
		}
		if got := inbox(f, w.anna, hub.InboxInput{}); got.UnreadTotal != 0 || len(got.Items) != 0 {
			t.Fatalf("after reading: %+v", got)
		}
		wantIDs(t, "asked for", inbox(f, w.frank, hub.InboxInput{Statuses: []string{"completed"}}), w.id)
	})
}

func TestARepeatedCallIsStillRecognisedAfterAnErasure(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		w := write(f)
		erase(f, w.id)
		created, err := f.Hub.Create(bg, w.anna, w.created)
		if err != nil || !created.Replay || created.ThreadID != w.id || created.Status != "completed" {
			t.Errorf("create: %+v %v", created, err)
		}
		sent, err := f.Hub.Send(bg, w.frank, w.said)
		if err != nil || !sent.Replay || sent.SequenceNo != 2 {
			t.Errorf("send: %+v %v", sent, err)
		}
		draft, err := f.Hub.Draft(bg, w.frank, w.drafted)
		if err != nil || !draft.Replay || draft.Status != handoff.DraftDeclined {
			t.Errorf("draft: %+v %v", draft, err)
		}
		ended, err := f.Hub.Complete(bg, w.frank, w.completed)
		if err != nil || !ended.Replay || ended.Status != "completed" {
			t.Errorf("complete: %+v %v", ended, err)
		}
		thread, err := f.Hub.Accept(bg, w.frank, hub.AcceptInput{ThreadID: w.id, IdempotencyKey: "k"})
		if err != nil || !thread.Replay || thread.Summary.Body != handoff.ErasedText {
			t.Errorf("accept: %+v %v", thread, err)
		}
		other := w.created
		other.Summary = handoff.ErasedText
		_, err = f.Hub.Create(bg, w.anna, other)
		hubtest.WantCode(t, err, handoff.CodeDuplicateKey)
		// Without a key the content is compared, and what stands there now is not what was sent.
		for _, text := range []string{w.completed.ResultSummary, handoff.ErasedText} {
			_, err = f.Hub.Complete(bg, w.frank, hub.CompleteInput{ThreadID: w.id, ResultSummary: text})
			hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		}
		_, err = f.Hub.DecideDraft(bg, hubtest.Operator(), hub.DecideInput{DraftID: draft.DraftID, Reason: secret})
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		if n := found(f, w.id, secret); n != 0 {
			t.Errorf("a repetition brought the secret back %d times", n)
		}
		eventsOf(f, w.id)
	})
}

func TestALongThreadIsErasedWholeAndOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		for _, messages := range []int{99, 100, 101, 250} {
			id := f.Send(anna, "frank@acme")
			for range messages - 1 {
				say(f, anna, id, secret)
			}
			_, err := f.Hub.Cancel(bg, anna, hub.CancelInput{ThreadID: id})
			noError(t, err)
			one, two := both(func() error {
				_, err := f.Hub.Erase(bg, hubtest.Operator(), id)
				return err
			}, func() error {
				_, err := f.Hub.Erase(bg, hubtest.Operator(), id)
				return err
			})
			if one != nil || two != nil {
				t.Fatal(one, two)
			}
			if n := found(f, id, secret); n != 0 {
				t.Fatalf("of %d messages %d keep their text", messages, n)
			}
			if got := eventsOf(f, id); len(got) != messages+2 {
				t.Fatalf("%d events", len(got))
			}
		}
	})
}

func TestErasedTextLeavesTheFileOfTheDatabase(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	w := write(f)
	long := send(f, w.anna, hub.CreateInput{To: "frank@acme", Summary: strings.Repeat("SECRET of many pages ", 3000)}).ThreadID
	_, err := f.Hub.Cancel(bg, w.anna, hub.CancelInput{ThreadID: long})
	noError(t, err)
	erase(f, w.id)
	erase(f, long)
	erased := func(when string) {
		t.Helper()
		entries, err := os.ReadDir(filepath.Dir(f.Config.Path))
		noError(t, err)
		for _, entry := range entries {
			content, err := os.ReadFile(filepath.Join(filepath.Dir(f.Config.Path), entry.Name()))
			noError(t, err)
			if n := strings.Count(string(content), secret); n != 0 {
				t.Errorf("%s: %s still holds it %d times", when, entry.Name(), n)
			}
		}
	}
	erased("while the hub goes on")
	noError(t, f.Store.Close())
	erased("afterwards")
}
