package outbox_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/outbox"
	"handclasp/internal/store"
)

// runs lets an outbox drive a hub until the test ends.
func runs(t *testing.T, h *hub.Hub) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = outbox.Run(ctx, h, slog.New(slog.DiscardHandler)) })
	t.Cleanup(func() { end(); wg.Wait() })
}

func able(t *testing.T, f *hubtest.Fixture, handle string) hub.Call {
	t.Helper()
	k, err := f.Hub.AddAgent(t.Context(), hubtest.Operator(), hub.AgentInput{Handle: handle, Capabilities: []string{"code"}})
	if err != nil {
		t.Fatal(err)
	}
	actor, err := f.Hub.Authenticate(t.Context(), k.Secret)
	if err != nil {
		t.Fatal(err)
	}
	return hub.Call{Actor: actor}
}

const fallsBack = `{"strategy":"direct_with_fallback","agent_id":"boss@acme","fallback_after_seconds":1,"fallback":{"strategy":"capability","capability":"code"}}`

func open(t *testing.T, f *hubtest.Fixture, from hub.Call) hub.Opened {
	t.Helper()
	out, err := f.Hub.Open(t.Context(), from, hub.OpenInput{ProjectRoot: "/srv/shop", From: from.Actor.Handle, Visibility: "private", Target: json.RawMessage(fallsBack)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func onEachWithRealClock(t *testing.T, test func(t *testing.T, f *hubtest.Fixture)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, hubtest.New(t, kind, hubtest.RealClock()))
		})
	}
}

func TestWhoeverWaitsIsToldAtTheMomentThatSomethingFallsDue(t *testing.T) {
	t.Parallel()
	onEachWithRealClock(t, func(t *testing.T, f *hubtest.Fixture) {
		runs(t, f.Hub)
		anna, cid := f.Agent("anna@acme"), able(t, f, "cid@acme")
		var late time.Duration
		for range 3 { // a busy machine may be late once
			made := open(t, f, anna)
			out, err := f.Hub.Claim(t.Context(), cid, hub.ClaimInput{ProjectRoot: "/srv/shop", AgentID: "cid@acme", Wait: hub.MaxWait})
			if err != nil || out.Work == nil || out.Work.Handoff.ID != made.HandoffID {
				t.Fatalf("%+v %v", out, err)
			}
			late = out.Work.Handoff.AcceptedAt.Sub(made.CreatedAt) - time.Second
			if late < 0 {
				t.Fatalf("claimed %v before its fallback opened", -late)
			}
			if late < 200*time.Millisecond {
				return
			}
		}
		t.Errorf("told after %v", late)
	})
}

func TestTwoThatSweepWriteDownEachEffectOnce(t *testing.T) {
	t.Parallel()
	onEachWithRealClock(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		able(t, f, "cid@acme")
		const many = 40
		var made []string
		for range many {
			made = append(made, open(t, f, anna).HandoffID)
		}
		runs(t, f.Hub)
		if f.Store.Kind() == "postgres" {
			_, other := f.Node(f.HubCfg)
			runs(t, other)
		} else {
			runs(t, f.Hub)
		}
		opened := map[string]int{}
		hubtest.Eventually(t, func() bool {
			clear(opened)
			err := f.Store.Read(t.Context(), func(tx *store.Tx) error {
				for _, id := range made {
					list, err := tx.HandoffEvents(id, 0, 10)
					if err != nil {
						return err
					}
					for _, e := range list {
						if e.Type == handoff.EventFallbackOpened {
							opened[id]++
						}
					}
				}
				return nil
			})
			return err == nil && len(opened) == many
		})
		for id, n := range opened {
			if n != 1 {
				t.Errorf("the fallback of %s opened %d times", id, n)
			}
		}
	})
}
