package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// Calls of one process that try for one handoff are answered together. Each answer must be the one
// that the call gets when it comes alone.
func TestWhoComesWhileAnotherClaimsIsAnsweredAsIfItCameAlone(t *testing.T) {
	t.Parallel()
	for _, visibility := range []string{"public", "eligible", "private"} {
		t.Run(visibility, func(t *testing.T) {
			t.Parallel()
			for _, kind := range hubtest.Kinds() {
				var gate atomic.Pointer[hubtest.Gate]
				f := hubtest.New(t, kind, hubtest.WithStore(func(cfg *store.Config) {
					cfg.Pause = func(at store.Point) {
						if g := gate.Load(); g != nil && at == store.Commits {
							g.Pass()
						}
					}
				}))
				anna, bob, cid := f.Agent("anna@acme"), able(f, "bob@acme"), able(f, "cid@acme")
				out, err := f.Hub.Open(bg, anna, hub.OpenInput{ProjectRoot: "/srv/p", From: "anna@acme", Visibility: visibility, Target: json.RawMessage(codeTarget)})
				noError(t, err)
				// Dan held it before, under a key.
				dan := able(f, "dan@acme")
				claim := func(call hub.Call, root, key string) hub.ClaimInput {
					return hub.ClaimInput{ProjectRoot: root, AgentID: call.Actor.Handle, ThreadID: out.HandoffID, IdempotencyKey: key}
				}
				_, err = f.Hub.Claim(bg, dan, claim(dan, "/srv/p", "k"))
				noError(t, err)
				_, err = f.Hub.Release(bg, dan, hub.ReleaseInput{HoldInput: hub.HoldInput{ProjectRoot: "/srv/p", AgentID: "dan@acme", ThreadID: out.HandoffID}})
				noError(t, err)

				late := []struct {
					call hub.Call
					in   hub.ClaimInput
				}{
					{cid, claim(cid, "/srv/p", "")},
					{cid, claim(cid, "/srv/p", "new")},
					{cid, claim(cid, "/srv/elsewhere", "")},
					{dan, claim(dan, "/srv/p", "k")},
					{dan, claim(dan, "/srv/p", "")},
					{bob, claim(bob, "/srv/p", "")},
					{anna, claim(anna, "/srv/p", "")},
				}
				stranger := f.Agent("eve@acme")
				late = append(late, struct {
					call hub.Call
					in   hub.ClaimInput
				}{stranger, claim(stranger, "/srv/p", "")})
				type answer struct {
					code         handoff.Code
					message, who string
					epoch        int
				}
				of := func(w *hub.Work, err error) answer {
					var e *handoff.Error
					if errors.As(err, &e) {
						who, _ := e.Details["claimed_by"].(string)
						return answer{e.Code, e.Message + " " + e.Hint, who, 0}
					}
					noError(t, err)
					return answer{epoch: w.Handoff.Epoch}
				}
				got := make([]answer, len(late))
				calls := make([]func(), len(late))
				for i, l := range late {
					calls[i] = func() {
						r, err := f.Hub.Claim(bg, l.call, l.in)
						got[i] = of(r.Work, err)
					}
				}
				ctx, cancel := context.WithCancel(bg)
				cancel()
				gone := func() {
					if _, err := f.Hub.Claim(ctx, cid, claim(cid, "/srv/p", "")); handoff.CodeOf(err) != handoff.CodeUnavailable {
						t.Errorf("who left was told %v", err)
					}
				}
				first := func() {
					r, err := f.Hub.Claim(bg, bob, claim(bob, "/srv/p", ""))
					if err != nil || r.Work.Handoff.Holder != bob.Actor.ID {
						t.Errorf("the first: %+v, %v", r, err)
					}
				}
				g := hubtest.NewGate()
				gate.Store(g)
				var all sync.WaitGroup
				all.Go(first)
				<-g.Reached
				for _, call := range calls {
					all.Go(call)
				}
				hubtest.Eventually(t, func() bool { return f.Hub.Latecomers(out.HandoffID) == len(late) })
				gone()
				close(g.Opened)
				all.Wait()
				cfg := f.HubCfg
				cfg.Store = f.Store
				alone := hub.New(cfg)
				for i, l := range late {
					r, err := alone.Claim(bg, l.call, l.in)
					if want := of(r.Work, err); got[i] != want {
						t.Errorf("%s by %s (key %q): %+v, alone %+v", l.in.ProjectRoot, l.call.Actor.Handle, l.in.IdempotencyKey, got[i], want)
					}
				}
			}
		})
	}
}
