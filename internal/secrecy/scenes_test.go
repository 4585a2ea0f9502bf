package secrecy

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// play fills a world: open handoffs by cora in every state that there is, reached in every way.
func (w *world) play() {
	cora := w.agent("cora@acme", shop)
	clem, pat, lois := w.agent("clem@acme", shop, "code"), w.agent("pat@acme", shop, "code"), w.agent("lois@acme", shop, "code")
	vera, vick := w.agent("vera@acme", shop), w.agent("vick@acme", shop, "review")
	w.agent("stan@acme", shop)
	w.agent("olli@acme", other, "code", "review")
	w.agent("nora@acme", strict, "code")
	gone := w.agent("gone@acme", shop, "code")
	w.dummy()

	direct := func(handle string) string { return `{"strategy":"direct","agent_id":"` + handle + `"}` }
	// Visibilities take turns, so that each state is met under each.
	w.offer("open", "public", "")
	w.offer("open private", "private", "")
	w.offer("named", "eligible", direct("clem@acme"))
	w.offer("to one who may come", "public", `{"strategy":"direct_with_fallback","agent_id":"later@acme","fallback_after_seconds":2592000}`)
	for _, visibility := range []string{"public", "eligible", "private"} {
		clem.claim(w.offer("claimed "+visibility, visibility, ""))
	}
	lois.call("handoff_claim", lois.at(w.named("claimed private"))) // too late

	for i, kind := range []handoff.VerifyByKind{handoff.VerifyByCreator, handoff.VerifyByAgent, handoff.VerifyByCapability} {
		visibility := []string{"public", "private", "eligible"}[i]
		judge := []*actor{cora, vera, vick}[i]
		for _, name := range []string{"verifying", "sent back", "passed"} {
			o := w.contract(name+" by "+string(kind), visibility, kind)
			clem.claim(o)
			clem.deliver(o)
			switch name {
			case "sent back":
				judge.fail(o)
			case "passed":
				judge.fail(o)
				clem.must("handoff_complete", clem.at(o, "result", w.secret(o, "result"), "claim_epoch", 2))
				judge.must("handoff_verify", judge.at(o, "verdict", "pass", "claim_epoch", 2))
			}
		}
	}

	done := w.offer("completed", "private", "")
	clem.claim(done)
	clem.deliver(done)
	rejected := w.offer("rejected", "public", "")
	clem.claim(rejected)
	clem.must("handoff_reject", clem.at(rejected, "reason", w.vault.Word(rejected.secret("reason"))))
	refused := w.offer("refused", "public", direct("clem@acme"))
	clem.must("handoff_reject", clem.at(refused, "reason", w.vault.Word(refused.secret("reason"))))
	declined := w.offer("declined", "eligible", `{"strategy":"direct_with_fallback","agent_id":"pat@acme","fallback_after_seconds":86400,"fallback":{"strategy":"capability","capability":"code"}}`)
	pat.must("handoff_reject", pat.at(declined, "reason", w.vault.Word(declined.secret("reason"))))
	cancelled := w.offer("cancelled", "public", "")
	cora.must("handoff_cancel", cora.at(cancelled, "reason", w.vault.Word(cancelled.secret("reason"))))
	released := w.offer("released", "public", "")
	pat.claim(released)
	pat.must("handoff_release", pat.at(released, "reason", w.vault.Word(released.secret("reason"))))

	called := w.offer("called off", "eligible", "")
	clem.claim(called)
	w.operate(func(ctx context.Context, op hub.Call) error {
		_, err := w.Hub.CancelAny(ctx, op, hub.CancelInput{ThreadID: called.id, Reason: w.vault.Word(called.secret("reason"))})
		return err
	})
	moved := w.offer("reassigned", "private", "")
	pat.claim(moved)
	handed := w.contract("reassigned after delivery", "public", handoff.VerifyByCapability)
	pat.claim(handed)
	pat.deliver(handed)
	for _, o := range []*offer{moved, handed} {
		w.operate(func(ctx context.Context, op hub.Call) error {
			_, err := w.Hub.Reassign(ctx, op, hub.ReassignInput{ThreadID: o.id, To: "clem@acme", Reason: w.vault.Word(o.secret("reason"))})
			return err
		})
	}
	erased := w.contract("erased", "public", handoff.VerifyByAgent)
	clem.claim(erased)
	clem.deliver(erased)
	vera.must("handoff_verify", vera.at(erased, "verdict", "pass"))
	w.operate(func(ctx context.Context, op hub.Call) error { _, err := w.Hub.Erase(ctx, op, erased.id); return err })
	left := w.offer("left by a disabled agent", "public", "")
	gone.claim(left)
	w.operate(func(ctx context.Context, op hub.Call) error { return w.Hub.SetDisabled(ctx, op, "gone@acme", true) })
	delete(w.cast, "gone@acme")

	w.offer("blocked", "public", "", map[string]any{"depends_on": []any{w.named("claimed public").id}})
	walled := w.make(&offer{name: "walled", root: strict}, "public", `{"strategy":"broadcast"}`)
	w.wall()
	in := clem.at(walled, "idempotency_key", walled.key)
	in["project_root"] = strict
	clem.must("handoff_claim", in)

	// What the clock does to some, whether or not a sweep has written it down.
	lapsed := w.offer("lapsed", "public", "")
	pat.must("handoff_claim", pat.at(lapsed, "lease_seconds", 10, "idempotency_key", lapsed.key))
	inherited := w.contract("inherited", "public", handoff.VerifyByCreator)
	pat.must("handoff_claim", pat.at(inherited, "lease_seconds", 10, "idempotency_key", inherited.key))
	pat.deliver(inherited)
	cora.fail(inherited)
	w.offer("expired", "public", "", map[string]any{"expires_in_seconds": 60})
	w.Clock.Advance(61 * time.Second)
	clem.claim(inherited)
}

// operate does something as the operator.
func (w *world) operate(do func(ctx context.Context, op hub.Call) error) {
	w.t.Helper()
	if err := do(context.Background(), hubtest.Operator()); err != nil {
		w.t.Fatal(err)
	}
}

// wall admits only cora and clem to the strict workspace.
func (w *world) wall() {
	w.t.Helper()
	yes := true
	w.operate(func(ctx context.Context, op hub.Call) error {
		_, err := w.Hub.Members(ctx, op, hub.MembersInput{Root: strict, Add: []string{"cora@acme", "clem@acme"}, Strict: &yes})
		return err
	})
}

// dummy is an agent for the operator's routes to change.
func (w *world) dummy() {
	w.t.Helper()
	w.agent("dummy@acme", shop, "code")
	delete(w.cast, "dummy@acme")
}

// secret is a value that marks one of the texts of a handoff.
func (w *world) secret(o *offer, what string) json.RawMessage {
	return json.RawMessage(w.vault.JSON(o.secret(what)))
}

func (w *world) named(name string) *offer {
	for _, o := range w.offers {
		if o.name == name {
			return o
		}
	}
	w.t.Fatalf("no handoff %q", name)
	return nil
}

// offer makes one for whoever can code, unless a target says otherwise.
func (w *world) offer(name, visibility, target string, more ...map[string]any) *offer {
	w.t.Helper()
	if target == "" {
		target = `{"strategy":"capability","capability":"code"}`
	}
	return w.make(&offer{name: name, root: shop}, visibility, target, more...)
}

// contract is an offer whose work is verified.
func (w *world) contract(name, visibility string, by handoff.VerifyByKind) *offer {
	w.t.Helper()
	verifyBy := map[handoff.VerifyByKind]string{
		handoff.VerifyByCreator: `{"kind":"creator"}`, handoff.VerifyByAgent: `{"kind":"agent","agent_id":"vera@acme"}`, handoff.VerifyByCapability: `{"kind":"capability","capability":"review"}`,
	}[by]
	return w.make(&offer{name: name, root: shop, verifier: by}, visibility, `{"strategy":"capability","capability":"code"}`,
		map[string]any{"acceptance_criteria": []any{"it is green"}, "verify_by": json.RawMessage(verifyBy)})
}

func (w *world) make(o *offer, visibility, target string, more ...map[string]any) *offer {
	w.t.Helper()
	w.offers = append(w.offers, o)
	o.payload, o.key = w.vault.JSON(o.secret("payload")), "key "+o.name
	args := w.creation(o, visibility, target)
	for _, m := range more {
		for k, v := range m {
			args[k] = v
		}
	}
	o.id, _ = w.cast["cora@acme"].must("handoff_create", args).fields["handoff_id"].(string)
	return o
}

// creation are the arguments that make an offer.
func (w *world) creation(o *offer, visibility, target string) map[string]any {
	return map[string]any{
		"project_root": o.root, "from_agent_id": "cora@acme", "visibility": visibility, "target": json.RawMessage(target),
		"payload": json.RawMessage(o.payload), "idempotency_key": o.key,
	}
}

// claim takes a handoff; what comes back is the payload, to the last digit.
func (a *actor) claim(o *offer) {
	a.w.t.Helper()
	r := a.must("handoff_claim", a.at(o, "idempotency_key", o.key))
	if !strings.Contains(r.Content[0].Text, `"payload":`+o.payload) {
		a.w.t.Fatalf("%s claimed %s and got %s", a.name, o.name, r.Content[0].Text)
	}
}

func (a *actor) deliver(o *offer) {
	a.w.t.Helper()
	a.must("handoff_complete", a.at(o, "result", a.w.secret(o, "result")))
}

func (a *actor) fail(o *offer) {
	a.w.t.Helper()
	a.must("handoff_verify", a.at(o, "verdict", "fail", "feedback", "do "+a.w.vault.Word(o.secret("feedback"))))
}
