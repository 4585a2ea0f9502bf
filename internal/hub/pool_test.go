package hub_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// Open handoffs have no verb of their own yet. Their rules at the verbs that exist are tested on
// rows as the pool's create will write them.

func pooled(f *hubtest.Fixture, creator hub.Call, id, target, recipient string) string {
	f.T.Helper()
	noError(f.T, f.Store.Write(bg, func(tx *store.Tx) error {
		parsed, err := handoff.ParseTarget(json.RawMessage(target), f.Hub.Limits())
		if err != nil {
			return err
		}
		h := handoff.Handoff{
			ID: id, Door: handoff.DoorPool, State: handoff.Open, Creator: creator.Actor.ID, Recipient: recipient, Target: parsed, Intent: handoff.Inform,
			Visibility: handoff.Private, Payload: json.RawMessage(`{"secret":1}`), Messages: 1, EventSeq: 1, CreatedAt: tx.Now(), UpdatedAt: tx.Now(),
		}
		if err := tx.InsertHandoff(&h); err != nil {
			return err
		}
		if err := tx.InsertEvent(&handoff.Event{Type: handoff.EventCreated, HandoffID: id, Seq: 1, ActorID: h.Creator, State: h.State, At: tx.Now()}); err != nil {
			return err
		}
		return tx.InsertMessage(&handoff.Message{ID: id + "-1", HandoffID: id, SequenceNo: 1, Author: h.Creator, Body: "who can?", CreatedAt: tx.Now()})
	}))
	return id
}

func able(f *hubtest.Fixture, handle string) hub.Call {
	f.T.Helper()
	k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: handle, Capabilities: []string{"code"}})
	noError(f.T, err)
	actor, err := f.Hub.Authenticate(bg, k.Secret)
	noError(f.T, err)
	return hub.Call{Actor: actor}
}

const codeTarget = `{"strategy":"capability","capability":"code"}`

func TestOfManyClaimantsExactlyOneWins(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		id := pooled(f, anna, "h", codeTarget, "")
		var mu sync.Mutex
		won, lost := 0, 0
		var wg sync.WaitGroup
		for _, handle := range []string{"a@acme", "b@acme", "c@acme", "d@acme", "e@acme", "f@acme"} {
			call := able(f, handle)
			wg.Go(func() {
				got, err := f.Hub.Accept(bg, call, hub.AcceptInput{ThreadID: id})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && got.Handoff.Holder == call.Actor.ID && got.Handoff.Epoch == 1:
					won++
				// With private visibility the others do not see it once it is claimed.
				case handoff.CodeOf(err) == handoff.CodeAlreadyClaimed, handoff.CodeOf(err) == handoff.CodeNotFound:
					lost++
				default:
					t.Errorf("%+v %v", got.Handoff, err)
				}
			})
		}
		wg.Wait()
		if won != 1 || lost != 5 {
			t.Fatalf("%d won, %d lost", won, lost)
		}
		if got := eventsOf(f, id); len(got) != 2 {
			t.Fatalf("events %v", got)
		}
		_, err := f.Hub.View(bg, f.Agent("eve@acme"), hub.ViewInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeNotFound)
	})
}

func TestDisablingAnAgentReleasesItsPoolClaims(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		id := pooled(f, anna, "h", codeTarget, "")
		if got := accept(f, cid, id).Handoff; got.LeaseLength != 300*time.Second {
			t.Fatalf("the lease of a pool claim: %v", got.LeaseLength)
		}
		view(f, anna, id)
		disable(f, "cid@acme")
		got := look(f, id).Handoff
		if got.State != handoff.Open || got.Holder != "" || got.Epoch != 1 || !got.HeldBefore(cid.Actor.ID) {
			t.Fatalf("released: %+v", got)
		}
		if items := inbox(f, anna, hub.InboxInput{}).Items; len(items) != 1 || !slices.Equal(items[0].News, []handoff.EventType{handoff.EventReleased}) {
			t.Fatalf("its creator is told: %+v", items)
		}
		if got := accept(f, dora, id).Handoff; got.Epoch != 2 || got.Holder != dora.Actor.ID {
			t.Fatalf("taken by another: %+v", got)
		}
		eventsOf(f, id)
	})
}

func TestAPoolHolderThatWaitsIsWokenWhenItsLeaseLapses(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		id := pooled(f, anna, "h", codeTarget, "")
		accept(f, cid, id)
		ch := park(f, f.Hub, cid, hub.InboxInput{}, 1)
		f.Clock.Advance(5 * time.Minute)
		if n, err := f.Hub.Sweep(bg); n != 1 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		began := time.Now()
		got := returned(t, ch)
		if got.err != nil || len(got.in.Items) != 1 || got.in.Items[0].News[0] != handoff.EventLeaseLapsed || time.Since(began) > 2*time.Second {
			t.Fatalf("after %v: %+v", time.Since(began), got)
		}
		_, err := f.Hub.Complete(bg, cid, hub.CompleteInput{ThreadID: id, ResultSummary: "done"})
		hubtest.WantCode(t, err, handoff.CodeLeaseLost)
	})
}

func TestADeclinedFirstChoiceLeavesTheHandoffToItsFallback(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob, cid := f.Agent("anna@acme"), f.Agent("bob@acme"), able(f, "cid@acme")
		id := pooled(f, anna, "h", `{"strategy":"direct_with_fallback","agent_id":"bob@acme","fallback_after_seconds":600,"fallback":`+codeTarget+`}`, bob.Actor.ID)
		_, err := f.Hub.Accept(bg, cid, hub.AcceptInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		in := hub.DeclineInput{ThreadID: id, Reason: "no", IdempotencyKey: "k"}
		for _, replay := range []bool{false, true} {
			out, err := f.Hub.Decline(bg, bob, in)
			if err != nil || out.Status != "pending" || out.Replay != replay {
				t.Fatalf("%+v %v", out, err)
			}
		}
		_, err = f.Hub.Accept(bg, bob, hub.AcceptInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeNotEligibleToClaim)
		if got := accept(f, cid, id).Handoff; got.Epoch != 1 || string(got.Payload) != `{"secret":1}` {
			t.Fatalf("%+v", got)
		}
		want := []handoff.EventType{handoff.EventCreated, handoff.EventMessageCreated, handoff.EventFallbackOpened, handoff.EventClaimed}
		if got := eventsOf(f, id); !slices.Equal(got, want) {
			t.Fatalf("events %v", got)
		}
	})
}
