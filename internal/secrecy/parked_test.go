package secrecy

import (
	"context"
	"slices"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
)

// parking are the arguments with which a tool waits: for something that nobody offers yet, or for the
// news of a handoff. Which tools wait is asked of the hub.
var parking = map[string]func(a *actor, o *offer) []map[string]any{
	"check_inbox": func(*actor, *offer) []map[string]any { return []map[string]any{{"wait_seconds": 50}} },
	"handoff_list_available": func(a *actor, _ *offer) []map[string]any {
		var calls []map[string]any
		for _, scope := range []string{"available", "mine_created", "mine_claimed", "to_verify"} {
			calls = append(calls, a.at(nil, "scope", scope, "timeout_seconds", 50))
		}
		return calls
	},
	"handoff_claim": func(a *actor, o *offer) []map[string]any {
		if o != nil { // one claim is enough of each
			return nil
		}
		return []map[string]any{a.at(nil, "timeout_seconds", 50, "lease_seconds", 86400)}
	},
	"handoff_get": func(a *actor, o *offer) []map[string]any {
		if o == nil {
			return nil
		}
		h := a.w.row(o.id)
		return []map[string]any{a.at(o, "known_status", h.State.PoolStatus(), "timeout_seconds", 50)}
	},
	"get_handoff_status": func(_ *actor, o *offer) []map[string]any {
		if o == nil {
			return nil
		}
		return []map[string]any{{"handoff_id": o.id, "known_updated_at": "2036-11-30T12:00:00Z", "wait_seconds": 50}}
	},
	"event_wait": func(a *actor, o *offer) []map[string]any {
		calls := []map[string]any{a.at(nil, "timeout_seconds", 50, "stream", "workspace"), a.at(nil, "timeout_seconds", 50, "stream", "agent")}
		if o != nil {
			calls = append(calls, a.at(nil, "timeout_seconds", 50, "stream", "handoff", "filters", map[string]any{"handoff_id": o.id}))
		}
		return calls
	},
}

// lot is where calls are parked.
type lot struct {
	w      *world
	tools  []tool
	ctx    context.Context
	wg     sync.WaitGroup
	mu     sync.Mutex
	parked int
	back   []back
	// once is who could see what at some time: a call that comes back is not looked at in the
	// very moment.
	once map[string]bool
}

// back is what a call came back with.
type back struct {
	a          *actor
	tool, text string
}

// note keeps who may see what now.
func (l *lot) note() {
	l.w.t.Helper()
	for _, a := range l.w.everyone() {
		for _, o := range l.w.offers {
			for _, what := range []string{"payload", "result", "feedback", "reason"} {
				if l.w.may(a, o.secret(what)) {
					l.once[a.name+" "+o.secret(what)] = true
				}
			}
		}
	}
}

func waits(t tool) bool {
	_, timeout := t.params["timeout_seconds"]
	_, wait := t.params["wait_seconds"]
	return timeout || wait
}

// park has everyone wait with every tool that can, in a stream that tells of progress.
func (l *lot) park(o *offer) {
	l.w.t.Helper()
	for _, t := range l.tools {
		if !waits(t) {
			continue
		}
		if parking[t.name] == nil {
			l.w.t.Errorf("the tool %s waits and has no entry in parking", t.name)
			continue
		}
		for _, a := range l.w.everyone() {
			for _, args := range parking[t.name](a, o) {
				params := `{"name":"` + t.name + `","arguments":` + text(l.w.t, args) + `}`
				l.parked++
				l.wg.Go(func() {
					got, err := a.rpc(l.ctx, "tools/call", params, true)
					if err != nil { // it was called off
						return
					}
					l.mu.Lock()
					defer l.mu.Unlock()
					l.back = append(l.back, back{a, t.name, got.whole})
				})
			}
		}
	}
}

// waiting is how many calls wait at the hub.
func (w *world) waiting() int {
	var m dto.Metric
	if err := w.Metrics.ParkedCalls.Write(&m); err != nil {
		w.t.Error(err)
	}
	return int(m.GetGauge().GetValue())
}

func TestACallThatWaitedIsToldNoMoreThanOneThatAsks(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind)
			w.agent("cora@acme", shop)
			vick := w.agent("vick@acme", shop, "review")
			for _, handle := range []string{"clem@acme", "pat@acme", "lois@acme"} {
				w.agent(handle, shop, "code")
			}
			w.agent("vera@acme", shop)
			w.agent("stan@acme", shop)
			w.agent("olli@acme", other, "code", "review")
			w.agent("nora@acme", other, "code")
			ctx, leave := context.WithCancel(context.Background())
			l := &lot{w: w, tools: w.tools(), ctx: ctx, once: map[string]bool{}}
			defer l.wg.Wait()
			defer leave()

			l.park(nil)
			hubtest.Eventually(t, func() bool { return w.waiting() >= 9*5 })
			o := w.contract("awaited", "public", handoff.VerifyByCapability)
			hubtest.Eventually(t, func() bool { return w.row(o.id).State == handoff.Claimed })
			holder := w.holder(o)
			step := func(want handoff.State, act func()) {
				t.Helper()
				was := w.waiting()
				l.park(o)
				hubtest.Eventually(t, func() bool { return w.waiting() >= was+4 })
				l.note()
				act()
				if got := w.row(o.id).State; got != want {
					t.Fatalf("it is %s", got)
				}
				l.note()
			}
			step(handoff.Verifying, func() { holder.deliver(o) })
			step(handoff.Claimed, func() { vick.fail(o) })
			step(handoff.Rejected, func() {
				holder.must("handoff_reject", holder.at(o, "claim_epoch", 2, "reason", w.vault.Word(o.secret("reason"))))
			})
			for reader, secret := range map[*actor]string{holder: "payload", vick: "result", w.cast["cora@acme"]: "feedback"} {
				hubtest.Eventually(t, func() bool { return l.told(reader, o.secret(secret)) })
			}
			leave()
			l.wg.Wait()
			l.judge()
			w.aside()
		})
	}
}

// judge looks at all that came back.
func (l *lot) judge() {
	l.w.t.Helper()
	times := map[string]int{}
	for _, b := range l.back {
		l.w.judge(b.a, b.tool+", parked,", b.text, func(a *actor, secret string) bool { return l.once[a.name+" "+secret] })
		times[b.tool]++
	}
	for _, t := range l.tools {
		if waits(t) && times[t.name] == 0 {
			l.w.t.Errorf("no waiting %s came back: the test proves nothing about it (%v of %d)", t.name, times, l.parked)
		}
	}
}

// told reports whether a call of the actor came back with a secret.
func (l *lot) told(a *actor, secret string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.back, func(b back) bool {
		return b.a == a && slices.Contains(l.w.vault.Search([]byte(b.text)), Trace{secret, "plain"})
	})
}

// holder is who holds a handoff.
func (w *world) holder(o *offer) *actor {
	w.t.Helper()
	id := w.row(o.id).Holder
	for _, a := range w.everyone() {
		if a.key.AgentID == id {
			return a
		}
	}
	w.t.Fatalf("nobody of the cast holds %s", o.name)
	return nil
}
