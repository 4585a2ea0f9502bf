package hub_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestThirtyTwoCallsWithOneKeyAreOneHandoff(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		frank := f.Agent("frank@acme")
		const calls = 32
		answers := make([]hub.Created, calls)
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				var err error
				answers[i], err = f.Hub.Create(bg, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.Inform, Summary: "s", IdempotencyKey: "k"})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		replays := 0
		for _, a := range answers {
			if a.ThreadID == "" || a.ThreadID != answers[0].ThreadID || a.Status != "pending" || !a.CreatedAt.Equal(answers[0].CreatedAt) {
				t.Fatalf("%+v differs from %+v", a, answers[0])
			}
			if a.Replay {
				replays++
			}
		}
		if replays != calls-1 || stored(f) != 1 {
			t.Fatalf("%d replays, %d handoffs", replays, stored(f))
		}
		if got := inbox(f, frank, hub.InboxInput{}); len(got.Items) != 1 || got.UnreadTotal != 1 {
			t.Fatalf("the recipient's inbox: %+v", got)
		}
	})
}

func TestTheSameKeyOfTwoAgentsIsTwoHandoffs(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		in := hub.CreateInput{To: "frank@acme", IdempotencyKey: "k"}
		anna, bob := f.Agent("anna@acme"), f.Agent("bob@acme")
		f.Agent("frank@acme")
		a, b := send(f, anna, in), send(f, bob, in)
		if a.ThreadID == b.ThreadID || a.Replay || b.Replay || stored(f) != 2 {
			t.Fatalf("%+v, %+v", a, b)
		}
	})
}

func TestAKeyWithOtherContentIsRefusedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		f.Agent("bob@acme")
		first := send(f, anna, hub.CreateInput{To: "frank@acme", IdempotencyKey: "k"})
		for _, in := range []hub.CreateInput{
			{To: "bob@acme"},
			{To: "frank@acme", Summary: "other"},
			{To: "frank@acme", Intent: handoff.AskQuestion},
			{To: "frank@acme", ExpiresIn: 60},
			{To: "frank@acme", Metadata: json.RawMessage(`{"a":1}`)},
			{To: "frank@acme", Question: "?"},
		} {
			in.IdempotencyKey = "k"
			if in.Intent == "" {
				in.Intent = handoff.Inform
			}
			if in.Summary == "" {
				in.Summary = "a summary"
			}
			_, err := f.Hub.Create(bg, anna, in)
			hubtest.WantCode(t, err, handoff.CodeDuplicateKey)
		}
		if stored(f) != 1 {
			t.Fatalf("%d handoffs", stored(f))
		}
		// A key belongs to an operation: the same one under another verb is another effect.
		id := first.ThreadID
		message := hub.SendInput{ThreadID: id, Body: "b", IdempotencyKey: "k"}
		_, err := f.Hub.Send(bg, anna, message)
		noError(t, err)
		message.Body = "c"
		_, err = f.Hub.Send(bg, anna, message)
		hubtest.WantCode(t, err, handoff.CodeDuplicateKey)
		_, err = f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id, IdempotencyKey: "k"})
		noError(t, err)
		_, err = f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id, Lease: 60, IdempotencyKey: "k"})
		hubtest.WantCode(t, err, handoff.CodeDuplicateKey)
		_, err = f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done", IdempotencyKey: "k"})
		noError(t, err)
		_, err = f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done it", IdempotencyKey: "k"})
		hubtest.WantCode(t, err, handoff.CodeDuplicateKey)
		if got := look(f, id); len(got.Messages) != 2 || got.Handoff.ResultSummary != "done" {
			t.Fatalf("%+v", got.Handoff)
		}
	})
}

func TestAKeyComesFromThreePlacesWhichMustAgree(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		with := func(argument, metadata, header string) (hub.Created, error) {
			call, in := anna, hub.CreateInput{To: "frank@acme", Intent: handoff.Inform, Summary: "s", IdempotencyKey: argument}
			if call.HeaderKey = header; metadata != "" {
				in.Metadata = json.RawMessage(metadata)
			}
			return f.Hub.Create(bg, call, in)
		}
		first, err := with("k", "", "")
		noError(t, err)
		for _, from := range [][3]string{{"k", "", "k"}, {"", "", "k"}, {"", `{"client_idempotency_key":"k"}`, ""}, {"k", `{ "client_idempotency_key" : "k" }`, "k"}} {
			if out, err := with(from[0], from[1], from[2]); err != nil || out.ThreadID != first.ThreadID || !out.Replay {
				t.Errorf("%q: %+v %v", from, out, err)
			}
		}
		for _, from := range [][3]string{{"k", "", "l"}, {"k", `{"client_idempotency_key":"l"}`, ""}, {"", `{"client_idempotency_key":"l"}`, "k"}, {"", `{"client_idempotency_key":7}`, ""}} {
			_, err := with(from[0], from[1], from[2])
			hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		}
		for _, key := range []string{strings.Repeat("k", 256), "a\x00b", "a\xffb"} {
			if _, err := with(key, "", ""); err == nil {
				t.Errorf("%.10q was taken", key)
			}
		}
		if _, err := with(strings.Repeat("k", 255), "", ""); err != nil {
			t.Error(err)
		}
		if stored(f) != 2 {
			t.Fatalf("%d handoffs", stored(f))
		}
	})
}

func TestAReplayTellsTheStatusAsItIsNow(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		in := hub.CreateInput{To: "frank@acme", IdempotencyKey: "k"}
		id := send(f, anna, in).ThreadID
		accept(f, frank, id)
		if got := send(f, anna, in); got.Status != "accepted" || !got.Replay {
			t.Fatalf("%+v", got)
		}
		done := hub.CompleteInput{ThreadID: id, ResultSummary: "done", IdempotencyKey: "k"}
		_, err := f.Hub.Complete(bg, frank, done)
		noError(t, err)
		disable(f, "frank@acme")
		if got := send(f, anna, in); got.Status != "completed" || !got.Replay {
			t.Fatalf("%+v", got) // although the recipient could not be reached any more
		}
		if got, err := f.Hub.Complete(bg, frank, done); err != nil || !got.Replay || got.Status != "completed" {
			t.Fatalf("%+v %v", got, err)
		}
	})
}

func TestARefusalIsNoEffectAndUsesNoKeyUp(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		done := hub.CompleteInput{ThreadID: id, ResultSummary: "done", IdempotencyKey: "k"}
		_, err := f.Hub.Complete(bg, frank, done)
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		accept(f, frank, id)
		if out, err := f.Hub.Complete(bg, frank, done); err != nil || out.Replay {
			t.Fatalf("%+v %v", out, err)
		}
		if out, err := f.Hub.Complete(bg, frank, done); err != nil || !out.Replay {
			t.Fatalf("%+v %v", out, err)
		}
		// Visibility comes before the replay, the replay before the rules.
		_, err = f.Hub.Complete(bg, f.Agent("eve@acme"), done)
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		done.IdempotencyKey, done.ResultSummary = "l", "done otherwise"
		_, err = f.Hub.Complete(bg, frank, done)
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
	})
}

func TestManyRepetitionsAtOnceAreOneEffect(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		accept(f, frank, id)
		at16 := func(what string, call func() (string, bool, error)) {
			t.Helper()
			var wg sync.WaitGroup
			var mu sync.Mutex
			fresh, seen := 0, map[string]bool{}
			for range 16 {
				wg.Go(func() {
					id, replay, err := call()
					mu.Lock()
					defer mu.Unlock()
					seen[id] = true
					if err != nil {
						t.Errorf("%s: %v", what, err)
					} else if !replay {
						fresh++
					}
				})
			}
			wg.Wait()
			if fresh != 1 || len(seen) != 1 {
				t.Errorf("%s: %d took effect, answers %v", what, fresh, seen)
			}
		}
		at16("a message with a key", func() (string, bool, error) {
			out, err := f.Hub.Send(bg, frank, hub.SendInput{ThreadID: id, Body: "b", IdempotencyKey: "k"})
			return fmt.Sprint(out.MessageID, out.SequenceNo), out.Replay, err
		})
		at16("a completion without one", func() (string, bool, error) {
			out, err := f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done"})
			return out.Status, out.Replay, err
		})
		if got := eventsOf(f, id); len(got) != 4 {
			t.Errorf("events %v", got)
		}
	})
}

func TestKeysAreForgottenAfterThirtyDays(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		in := hub.CreateInput{To: "frank@acme", IdempotencyKey: "k"}
		first := send(f, anna, in)
		f.Clock.Advance(29 * 24 * time.Hour)
		noError(t, f.Hub.Forget(bg))
		if again := send(f, anna, in); !again.Replay {
			t.Fatal("forgotten too early")
		}
		f.Clock.Advance(2 * 24 * time.Hour)
		noError(t, f.Hub.Forget(bg))
		if again := send(f, anna, in); again.Replay || again.ThreadID == first.ThreadID {
			t.Fatal("never forgotten")
		}
	})
}

func TestAKeyKnowsItsInputWhateverWayItsJSONIsWritten(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	f.Agent("frank@acme")
	create := func(metadata, artifact string) (hub.Created, error) {
		return f.Hub.Create(bg, anna, hub.CreateInput{
			To: "frank@acme", Intent: handoff.Inform, Summary: "s", IdempotencyKey: "k",
			Metadata: json.RawMessage(metadata), Artifacts: []json.RawMessage{json.RawMessage(artifact)},
		})
	}
	first, err := create(`{"a":{"x":1,"y":2},"b":"t"}`, `{"type":"link","url":"https://a.io/t"}`)
	noError(t, err)
	again, err := create(`{"b":"\u0074","a":{"y":2,"x":1}}`, `{"url":"https:\/\/a.io/t","type":"link"}`)
	noError(t, err)
	if !again.Replay || again.ThreadID != first.ThreadID {
		t.Fatalf("%+v", again)
	}
	_, err = create(`{"b":"t","a":{"y":2,"x":3}}`, `{"type":"link","url":"https://a.io/t"}`)
	hubtest.WantCode(t, err, handoff.CodeDuplicateKey)
	_, err = hub.ResolveKey("k", json.RawMessage(`{"Client_Idempotency_Key":"other"}`), "")
	noError(t, err) // another name is no key
}
