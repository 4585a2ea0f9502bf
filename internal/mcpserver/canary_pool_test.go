package mcpserver_test

import (
	"context"
	"slices"
	"strings"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// The canaries of the pool: every field of an open handoff that takes free text.

const shop = "/srv/shop"

// at are the arguments that a pool tool takes on a handoff, and more by name and value.
func (c *caller) at(id string, more ...any) map[string]any {
	m := map[string]any{"project_root": shop, "agent_id": c.handle}
	if id != "" {
		m["handoff_id"] = id
	}
	for i := 0; i+1 < len(more); i += 2 {
		m[more[i].(string)] = more[i+1]
	}
	return m
}

// offering are the arguments of handoff_create for whoever can code, and more of them.
func (c *caller) offering(more ...map[string]any) map[string]any {
	m := map[string]any{
		"project_root": shop, "from_agent_id": c.handle, "visibility": "public",
		"target": map[string]any{"strategy": "capability", "capability": "code"},
	}
	for _, add := range more {
		for k, v := range add {
			m[k] = v
		}
	}
	return m
}

// offer makes an open handoff and returns its id.
func (c *caller) offer(more ...map[string]any) string {
	c.t.Helper()
	id, _ := c.ok("handoff_create", c.offering(more...))["handoff_id"].(string)
	return id
}

// claim takes a handoff.
func (c *caller) claim(id string) map[string]any {
	c.t.Helper()
	return c.ok("handoff_claim", c.at(id))
}

// poolAgent is agent at the pool's own endpoint.
func (w *wire) poolAgent(handle string, change ...func(*hub.AgentInput)) *caller {
	c := w.agent(handle, change...)
	c.path = "/mcp/pool"
	return c
}

// coder is an agent that whoever asks for code may find.
func coder(in *hub.AgentInput) { in.Capabilities = []string{"code"} }

// tagKey is an egg for the key of a tag, which holds no equals sign.
func (n *nest) tagKey(who string) string { return strings.ReplaceAll(n.egg(who+"_tag_key"), "=", ":") }

// everyField is an open handoff with a canary wherever its creator can put one.
func (n *nest) everyField(who string) map[string]any {
	return map[string]any{
		"target": map[string]any{"strategy": "mixed", "rules": []any{
			map[string]any{"strategy": "capability", "capability": "code"},
			map[string]any{"strategy": "role", "role": n.egg(who + "_target_role")},
			map[string]any{"strategy": "tag", "selector": map[string]any{n.tagKey(who): []any{n.egg(who + "_tag_value")}}},
			map[string]any{"strategy": "tag", "selector": []any{map[string]any{"key": n.tagKey(who), "operator": "NotIn", "values": []any{n.egg(who + "_tag_value")}}}},
		}},
		"payload":             map[string]any{n.egg(who + "_pool_key"): []any{n.egg(who + "_pool_payload")}},
		"acceptance_criteria": []any{n.egg(who + "_criterion"), "it is green"},
		"trace_id":            n.egg(who + "_trace"),
	}
}

// hatchPool fills the workspace: from anna to frank unless it says otherwise.
func (n *nest) hatchPool() {
	n.poolAgent("tagged@acme", coder, func(in *hub.AgentInput) {
		in.Capabilities = append(in.Capabilities, n.egg("O_capability"))
		in.Tags = map[string][]string{}
		for _, who := range []string{"A", "F", "O"} {
			in.Tags[n.tagKey(who)] = []string{n.egg(who + "_tag_value")}
		}
	})
	anna, frank := n.anna, n.frank
	n.pool = map[string]string{}
	for _, state := range []string{"open", "rejected", "released", "again", "done"} {
		n.pool[state] = anna.offer(n.everyField("A"))
	}
	n.pool["cancelled"] = anna.offer(n.everyField("A"))
	anna.ok("handoff_cancel", anna.at(n.pool["cancelled"], "reason", n.egg("A_cancel")))
	for _, state := range []string{"rejected", "released", "again", "done"} {
		frank.claim(n.pool[state])
	}
	frank.ok("handoff_reject", frank.at(n.pool["rejected"], "reason", n.egg("F_reject")))
	frank.ok("handoff_release", frank.at(n.pool["released"], "reason", n.egg("F_release")))
	for _, state := range []string{"again", "done"} {
		frank.ok("handoff_complete", frank.at(n.pool[state], "result", map[string]any{n.egg("F_result_key"): n.egg("F_pool_result")}))
	}
	anna.ok("handoff_verify", anna.at(n.pool["again"], "verdict", "fail", "feedback", n.egg("A_feedback")))
	anna.ok("handoff_verify", anna.at(n.pool["done"], "verdict", "pass"))

	// What anna delivered went to frank, who finds it as what another made.
	n.pool["inherited"] = n.poolAgent("cora@acme").offer(n.everyField("O"))
	anna.claim(n.pool["inherited"])
	anna.ok("handoff_complete", anna.at(n.pool["inherited"], "result", n.egg("A_pool_result")))
	if _, err := n.Hub.Reassign(context.Background(), hubtest.Operator(), hub.ReassignInput{ThreadID: n.pool["inherited"], To: "frank@acme", Reason: n.egg("O_reassign")}); err != nil {
		n.t.Fatal(err)
	}

	erased := anna.offer(n.everyField("A"))
	anna.ok("handoff_cancel", anna.at(erased, "reason", n.egg("A_cancel")))
	if _, err := n.Hub.Erase(context.Background(), hubtest.Operator(), erased); err != nil {
		n.t.Fatal(err)
	}
	n.pool["erased"] = erased
}

// onEach calls a tool on every handoff of the workspace, as both.
func (n *nest) onEach(tool string, more ...any) []reading {
	var out []reading
	for _, state := range []string{"open", "rejected", "released", "again", "done", "cancelled", "inherited", "erased"} {
		for _, who := range []*caller{n.anna, n.frank} {
			out = append(out, n.reads(who, tool, who.at(n.pool[state], more...))...)
		}
	}
	return out
}

// poolCanaryCalls are [canaryCalls] of the pool. They run in the order of the tool table, so that
// what reads comes before what changes.
var poolCanaryCalls = map[string]func(n *nest) []reading{
	"handoff_create": func(n *nest) []reading {
		wrong := n.everyField("A")
		wrong["target"] = map[string]any{"strategy": "role", "role": n.egg("A_target_role"), n.egg("A_unknown"): 1}
		return slices.Concat(
			n.reads(n.anna, "handoff_create", n.anna.offering(n.everyField("A")), n.anna.offering(wrong)),
			n.reads(n.frank, "handoff_create", n.frank.offering(n.everyField("F")),
				n.frank.offering(map[string]any{"depends_on": []any{n.pool["open"], n.pool["again"]}}), n.frank.offering(map[string]any{"depends_on": []any{n.pool["rejected"]}}),
				n.frank.offering(map[string]any{"target": map[string]any{"strategy": "direct", "agent_id": "ana@acme"}})))
	},
	"handoff_list_available": func(n *nest) []reading {
		var out []reading
		for _, who := range []*caller{n.anna, n.frank} {
			for _, scope := range hub.Scopes() {
				out = append(out, n.reads(who, "handoff_list_available", who.at("", "scope", scope), who.at("", "scope", scope, "limit", 1))...)
			}
		}
		return out
	},
	"handoff_claim": func(n *nest) []reading {
		// handoff_get shows all of them before anything changes.
		return slices.Concat(n.onEach("handoff_get"), n.onEach("handoff_claim"), n.reads(n.frank, "handoff_claim", n.frank.at("")))
	},
	"handoff_get":    func(n *nest) []reading { return n.onEach("handoff_get", "known_status", "OPEN") },
	"handoff_extend": func(n *nest) []reading { return n.onEach("handoff_extend", "claim_epoch", 2) },
	"handoff_release": func(n *nest) []reading {
		return slices.Concat(
			n.reads(n.frank, "view_thread", map[string]any{"thread_id": n.pool["inherited"]}), n.reads(n.anna, "view_thread", map[string]any{"thread_id": n.pool["released"]}),
			n.onEach("handoff_release", "reason", "r"))
	},
	"handoff_complete": func(n *nest) []reading {
		for _, state := range []string{"open", "again"} {
			n.frank.ok("handoff_claim", n.frank.at(n.pool[state]))
		}
		return slices.Concat(n.onEach("handoff_complete", "result", "r"), n.onEach("handoff_complete", "result", "r", "claim_epoch", 2))
	},
	"handoff_verify": func(n *nest) []reading {
		return slices.Concat(n.onEach("handoff_verify", "verdict", "pass"), n.onEach("handoff_verify", "verdict", "fail", "feedback", n.egg("A_feedback")))
	},
	"handoff_reject": func(n *nest) []reading { return n.onEach("handoff_reject", "reason", "r") },
	"handoff_cancel": func(n *nest) []reading { return n.onEach("handoff_cancel", "reason", "r") },
	"event_wait": func(n *nest) []reading {
		var out []reading
		for _, who := range []*caller{n.anna, n.frank} {
			out = append(out, n.reads(who, "event_wait", who.at("", "cursor", "0"), who.at("", "cursor", "0", "stream", "agent"),
				who.at("", "cursor", "0", "filters", map[string]any{"agent_id": "anna@acme"}),
				who.at("", "cursor", "0", "stream", "handoff", "filters", map[string]any{"handoff_id": n.pool["open"]}))...)
		}
		return out
	},
	"agent_whoami": func(n *nest) []reading {
		return slices.Concat(n.reads(n.anna, "agent_whoami", map[string]any{}), n.reads(n.frank, "agent_whoami", map[string]any{}))
	},
	"capability_list": func(n *nest) []reading {
		return slices.Concat(n.reads(n.anna, "capability_list", map[string]any{}), n.reads(n.frank, "capability_list", map[string]any{}))
	},
	"session_open": func(n *nest) []reading { return n.reads(n.anna, "session_open", n.anna.args(nil)) },
	"session_heartbeat": func(n *nest) []reading {
		return n.reads(n.anna, "session_heartbeat", map[string]any{"session_id": n.egg("A_session"), "session_secret": n.egg("A_secret")})
	},
	"session_close": func(n *nest) []reading {
		return n.reads(n.anna, "session_close", map[string]any{"session_id": n.egg("A_session"), "session_secret": n.egg("A_secret")})
	},
}
