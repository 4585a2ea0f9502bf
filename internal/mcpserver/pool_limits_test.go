package mcpserver_test

import (
	"encoding/json"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// poolLimit is one bound on an argument at the pool; make gives the caller and its arguments with
// the bounded thing at size n.
type poolLimit struct {
	name, tool string
	most       int
	over       handoff.Code
	make       func(p *poolWorld, n int) (*caller, map[string]any)
}

type poolWorld struct {
	*wire
	anna, frank *caller
}

// offers is a bound on handoff_create.
func offers(name string, most int, over handoff.Code, more func(p *poolWorld, n int) map[string]any) poolLimit {
	return poolLimit{name, "handoff_create", most, over, func(p *poolWorld, n int) (*caller, map[string]any) {
		return p.anna, p.anna.offering(more(p, n))
	}}
}

// aims is a bound on a target.
func aims(name string, most int, over handoff.Code, target func(n int) string) poolLimit {
	return offers(name, most, over, func(_ *poolWorld, n int) map[string]any {
		return map[string]any{"target": json.RawMessage(target(n))}
	})
}

// holds is a bound on a verb of a holder.
func holds(name, tool string, most int, over handoff.Code, more func(n int) []any) poolLimit {
	return poolLimit{name, tool, most, over, func(p *poolWorld, n int) (*caller, map[string]any) {
		id := p.anna.offer()
		p.frank.claim(id)
		return p.frank, p.frank.at(id, more(n)...)
	}}
}

var poolLimits = []poolLimit{
	offers("payload", 64*kib, large, func(_ *poolWorld, n int) map[string]any { return map[string]any{"payload": text(n - 2)} }),
	offers("payload depth", 128, wrong, func(_ *poolWorld, n int) map[string]any { return map[string]any{"payload": nested(n)} }),
	offers("criteria", 20, large, func(_ *poolWorld, n int) map[string]any {
		return map[string]any{"acceptance_criteria": json.RawMessage(many(n, `"c#"`))}
	}),
	offers("a criterion", 500, wrong, func(_ *poolWorld, n int) map[string]any {
		return map[string]any{"acceptance_criteria": []any{strings.Repeat("é", n)}}
	}),
	offers("dependencies", 20, large, func(p *poolWorld, n int) map[string]any {
		ids := make([]any, n)
		for i := range ids {
			ids[i] = p.anna.offer()
		}
		return map[string]any{"depends_on": ids}
	}),
	offers("trace_id", 128, large, func(_ *poolWorld, n int) map[string]any { return map[string]any{"trace_id": text(n)} }),
	offers("expires_in_seconds", 31_536_000, wrong, func(_ *poolWorld, n int) map[string]any { return map[string]any{"expires_in_seconds": n} }),
	offers("least expires_in_seconds", -60, wrong, func(_ *poolWorld, n int) map[string]any { return map[string]any{"expires_in_seconds": -n} }),
	offers("idempotency_key", 255, large, func(_ *poolWorld, n int) map[string]any { return map[string]any{"idempotency_key": text(n)} }),
	offers("project_root", 4096, large, func(_ *poolWorld, n int) map[string]any { return map[string]any{"project_root": "/" + text(n-1)} }),
	aims("rules", 32, wrong, func(n int) string {
		return `{"strategy":"mixed","rules":` + many(n, `{"strategy":"role","role":"r#"}`) + `}`
	}),
	aims("mixed in mixed", 3, wrong, func(n int) string { return nestedIn(n, `{"strategy":"role","role":"r"}`) }),
	aims("selector keys", 16, wrong, func(n int) string {
		return `{"strategy":"tag","selector":` + many(n, `{"key":"team","operator":"Exists"}`) + `}`
	}),
	aims("values of a key", 20, wrong, func(n int) string { return `{"strategy":"tag","selector":{"team":` + many(n, `"platform"`) + `}}` }),
	aims("a role", 256, wrong, func(n int) string { return `{"strategy":"role","role":"` + strings.Repeat("é", n) + `"}` }),
	aims("fallback_after_seconds", 2_592_000, wrong, func(n int) string {
		b, _ := json.Marshal(map[string]any{"strategy": "direct_with_fallback", "agent_id": "later@acme", "fallback_after_seconds": n})
		return string(b)
	}),
	holds("result", "handoff_complete", 64*kib, large, func(n int) []any { return []any{"result", text(n - 2)} }),
	holds("release reason", "handoff_release", 4*kib, large, func(n int) []any { return []any{"reason", text(n)} }),
	holds("reject reason", "handoff_reject", 4*kib, large, func(n int) []any { return []any{"reason", text(n)} }),
	holds("most lease_seconds", "handoff_extend", 86400, wrong, func(n int) []any { return []any{"claim_epoch", 1, "lease_seconds", n} }),
	holds("least lease_seconds", "handoff_extend", -10, wrong, func(n int) []any { return []any{"claim_epoch", 1, "lease_seconds", -n} }),
	{"cancel reason", "handoff_cancel", 4 * kib, large, func(p *poolWorld, n int) (*caller, map[string]any) {
		return p.anna, p.anna.at(p.anna.offer(), "reason", text(n))
	}},
	{"feedback", "handoff_verify", 2000, large, func(p *poolWorld, n int) (*caller, map[string]any) {
		id := p.anna.offer(map[string]any{"acceptance_criteria": "c"})
		p.frank.claim(id)
		p.frank.ok("handoff_complete", p.frank.at(id, "result", 1))
		return p.anna, p.anna.at(id, "verdict", "fail", "feedback", text(n))
	}},
	{"page of offers", "handoff_list_available", 500, wrong, func(p *poolWorld, n int) (*caller, map[string]any) {
		return p.frank, p.frank.at("", "limit", n)
	}},
	{"timeout_seconds", "handoff_claim", 50, wrong, func(p *poolWorld, n int) (*caller, map[string]any) {
		p.anna.offer() // there is something, so nothing is waited for
		return p.frank, p.frank.at("", "timeout_seconds", n)
	}},
}

func TestEveryLimitOfThePoolHoldsAtItsBoundAndRefusesOneMore(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	p := &poolWorld{w, w.poolAgent("anna@acme"), w.poolAgent("frank@acme", func(in *hub.AgentInput) {
		in.Capabilities, in.Tags = []string{"code"}, map[string][]string{"team": {"platform"}}
	})}
	for _, lim := range poolLimits {
		who, args := lim.make(p, lim.most+1)
		before := w.events()
		if r := who.refused(lim.tool, args, lim.over); len(r.raw) > 4*kib || w.events() != before {
			t.Errorf("%s: a refusal of %d bytes, %d events", lim.name, len(r.raw), w.events()-before)
		}
		who, args = lim.make(p, lim.most)
		who.ok(lim.tool, args)
	}
}

func TestTheSameProjectIsFoundUnderEverySpellingOfItsRoot(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, kind)
			anna, frank := w.poolAgent("anna@acme"), w.poolAgent("frank@acme", coder)
			for _, same := range [][]string{
				{"/srv/shop", "/srv/shop/", "/srv//shop", "/srv/./shop", "/srv/x/../shop", "/../srv/shop//."},
				{`C:\Work\Shop`, `c:\work\shop\`, "C:/Work/Shop", `c:\WORK\.\x\..\shop`, `\\?\C:\Work\Shop`},
				{`\\server\share\shop`, `\\server\share\\shop\`, `\\server\share\x\..\shop`, `\\?\UNC\server\share\shop`},
				{"/srv/caf\u00e9", "/srv/cafe\u0301", "/srv/cafe\u0301/"},
				{"git+https://host/org/repo", "git+https://host/org/repo/", "git+https://host/org//./repo"},
			} {
				ids := map[any]bool{}
				for i, root := range same {
					made := anna.ok("handoff_create", anna.offering(map[string]any{"project_root": root}))
					ids[made["workspace_id"]] = true
					args := frank.at(made["handoff_id"].(string))
					args["project_root"] = same[(i+1)%len(same)]
					frank.ok("handoff_claim", args)
				}
				if len(ids) != 1 {
					t.Errorf("%q are %d workspaces", same, len(ids))
				}
			}
			apart := map[any]bool{}
			for _, root := range []string{"/srv/shop", "/srv/Shop", "/srv/shop2", `C:\srv\shop`, `D:\srv\shop`, `\\server\share\shop`, `\\server\Share\shop`, "https://host/srv/shop", "http://host/srv/shop", "/"} {
				apart[anna.ok("handoff_create", anna.offering(map[string]any{"project_root": root}))["workspace_id"]] = true
			}
			if len(apart) != 10 {
				t.Errorf("10 projects are %d workspaces", len(apart))
			}
		})
	}
}
