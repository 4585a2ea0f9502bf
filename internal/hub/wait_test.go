package hub_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// answer is what a parked call came back with.
type answer struct {
	in  hub.Inbox
	err error
}

// park calls the inbox with the longest wait and returns once the call waits.
func park(f *hubtest.Fixture, h *hub.Hub, call hub.Call, in hub.InboxInput, n int) <-chan answer {
	f.T.Helper()
	ch := make(chan answer, 1)
	in.Wait = hub.MaxWait
	go func() {
		got, err := h.Inbox(bg, call, in)
		ch <- answer{got, err}
	}()
	parked(f, n)
	return ch
}

func returned(t *testing.T, ch <-chan answer) answer {
	t.Helper()
	select {
	case a := <-ch:
		return a
	case <-time.After(15 * time.Second):
		t.Fatal("the parked call did not come back")
		return answer{}
	}
}

func TestAParkedInboxIsWokenByACommit(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		ch := park(f, f.Hub, frank, hub.InboxInput{}, 1)
		id := f.Send(anna, "frank@acme")
		began := time.Now()
		got := returned(t, ch)
		if got.err != nil || len(got.in.Items) != 1 || got.in.Items[0].Handoff.ID != id || got.in.Items[0].Unread != 1 {
			t.Fatalf("%+v", got)
		}
		if late := time.Since(began); late > 2*time.Second { // its own poll comes after 2.5 s at the soonest
			t.Fatalf("woken after %v", late)
		}
		parked(f, 0)

		view(f, frank, id)
		ch = park(f, f.Hub, anna, hub.InboxInput{}, 1)
		accept(f, frank, id)
		if got := returned(t, ch); got.err != nil || len(got.in.Items) != 1 || got.in.Items[0].News[0] != handoff.EventClaimed {
			t.Fatalf("the sender: %+v", got)
		}
	})
}

func TestACallParksOnlyWhileNothingUnreadMatches(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		if got := inbox(f, frank, hub.InboxInput{Wait: hub.MaxWait}); len(got.Items) != 1 {
			t.Fatalf("%+v", got)
		}
		view(f, frank, id)
		began := time.Now()
		if got := inbox(f, frank, hub.InboxInput{Wait: 20 * time.Millisecond}); len(got.Items) != 1 || time.Since(began) < 20*time.Millisecond {
			t.Fatalf("what was read is no reason to return: %+v after %v", got, time.Since(began))
		}
		since := look(f, id).Handoff.UpdatedAt
		ch := park(f, f.Hub, frank, hub.InboxInput{Since: since}, 1)
		say(f, anna, id, "and this")
		if got := returned(t, ch); got.err != nil || len(got.in.Items) != 1 || !got.in.Items[0].Handoff.UpdatedAt.After(since) {
			t.Fatalf("%+v", got)
		}
		if got := inbox(f, frank, hub.InboxInput{Since: since, Wait: hub.MaxWait}); len(got.Items) != 1 {
			t.Fatalf("with since any change is a reason: %+v", got)
		}
	})
}

func TestAParkedInboxIsWokenByACommitOfAnotherNode(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres")
	_, other := f.Node(f.HubCfg)
	anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
	for range 3 { // the first may come before the other node listens, and then a poll finds it
		ch := park(f, other, frank, hub.InboxInput{}, 1)
		began := time.Now()
		id := f.Send(anna, "frank@acme")
		got := returned(t, ch)
		late := time.Since(began)
		if got.err != nil || len(got.in.Items) == 0 || got.in.Items[0].Handoff.ID != id {
			t.Fatalf("%+v", got)
		}
		view(f, frank, id)
		t.Logf("woken after %v", late)
		if late < 2*time.Second {
			return
		}
	}
	t.Fatal("a commit of another node never woke anybody")
}

func TestAParkedCallEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		revoked := park(f, f.Hub, anna, hub.InboxInput{}, 1)
		disabled := park(f, f.Hub, frank, hub.InboxInput{}, 2)
		noError(t, f.Hub.RevokeKey(bg, hubtest.Operator(), anna.Actor.KeyID))
		hubtest.WantCode(t, returned(t, revoked).err, handoff.CodeUnauthenticated)
		parked(f, 1) // the other one goes on
		disable(f, "frank@acme")
		hubtest.WantCode(t, returned(t, disabled).err, handoff.CodeUnauthenticated)
		parked(f, 0)
	})
}

func TestAParkedCallOnAnotherNodeEndsWithItsCredential(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres")
	_, other := f.Node(f.HubCfg)
	anna := f.Agent("anna@acme")
	ch := park(f, other, anna, hub.InboxInput{}, 1)
	noError(t, f.Hub.RevokeKey(bg, hubtest.Operator(), anna.Actor.KeyID))
	hubtest.WantCode(t, returned(t, ch).err, handoff.CodeUnauthenticated)
}

func TestDrainReturnsParkedCallsAndParksNoMore(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		ch := park(f, f.Hub, anna, hub.InboxInput{}, 1)
		f.Hub.Drain()
		f.Hub.Drain()
		if got := returned(t, ch); got.err != nil || len(got.in.Items) != 0 {
			t.Fatalf("%+v", got)
		}
		if got := returned(t, park(f, f.Hub, anna, hub.InboxInput{}, 0)); got.err != nil {
			t.Fatalf("%+v", got)
		}
	})
}

func TestAnActorParksSixtyFourCallsAtMost(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		ctx, cancel := context.WithCancel(bg)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if _, err := f.Hub.Inbox(ctx, anna, hub.InboxInput{Wait: hub.MaxWait}); handoff.CodeOf(err) != handoff.CodeUnavailable {
					t.Errorf("a call whose client left: %v", err)
				}
			})
		}
		parked(f, 64)
		_, err := f.Hub.Inbox(bg, anna, hub.InboxInput{Wait: hub.MaxWait})
		if e := hubtest.WantCode(t, err, handoff.CodeRateLimited); e.Details["retry_after_seconds"] == nil {
			t.Errorf("%+v", e.Details)
		}
		// Without waiting it is answered, others may wait, and who leaves makes room.
		inbox(f, anna, hub.InboxInput{})
		inbox(f, frank, hub.InboxInput{Wait: time.Millisecond})
		cancel()
		wg.Wait()
		inbox(f, anna, hub.InboxInput{Wait: time.Millisecond})
		parked(f, 0)
	})
}

func TestACancelledWriteIsWholeOrNothing(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		gone, cancel := context.WithCancel(bg)
		cancel()
		in := hub.CreateInput{To: "frank@acme", Intent: handoff.Inform, Summary: "s"}
		_, err := f.Hub.Create(gone, anna, in)
		if e := hubtest.WantCode(t, err, handoff.CodeUnavailable); !errors.Is(e, context.Canceled) || !e.Retryable() {
			t.Fatalf("%v", e)
		}
		_, err = f.Hub.View(gone, anna, hub.ViewInput{ThreadID: "x"})
		hubtest.WantCode(t, err, handoff.CodeUnavailable)
		if stored(f) != 0 {
			t.Fatal("something was stored")
		}
		const writers, each = 8, 12
		var mu sync.Mutex
		known := map[string]bool{} // keys whose call succeeded
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for n := range each {
					in := in
					in.IdempotencyKey = fmt.Sprintf("%d.%d", w, n)
					ctx, cancel := context.WithTimeout(bg, rand.N(3*time.Millisecond))
					_, err := f.Hub.Create(ctx, anna, in)
					cancel()
					if err != nil && handoff.CodeOf(err) != handoff.CodeUnavailable {
						t.Error(err)
					}
					mu.Lock()
					known[in.IdempotencyKey] = err == nil
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		succeeded := 0
		for key, done := range known {
			if done {
				succeeded++
			}
			in.IdempotencyKey = key
			if out := send(f, anna, in); out.Replay != done {
				t.Fatalf("%s: the call told success: %v, and it was written: %v", key, done, out.Replay)
			} else if got := look(f, out.ThreadID); len(got.Messages) != 1 || got.Handoff.EventSeq != 1 {
				t.Fatalf("half of it was written: %+v", got)
			}
		}
		if got := inbox(f, frank, hub.InboxInput{}); got.UnreadTotal != writers*each || stored(f) != writers*each {
			t.Fatalf("%d unread, %d stored", got.UnreadTotal, stored(f))
		}
		t.Logf("%d of %d were done in time", succeeded, len(known))
	})
}
