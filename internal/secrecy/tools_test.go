package secrecy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
)

// How each tool of the hub is called. Which there are is asked of the hub: one without an entry
// fails the test.

// toolCalls give the arguments for calls about a handoff: what an honest caller says, and what one
// who fishes does. Tools that only read come in reading, all others in acting.
type toolCalls map[string]func(a *actor, o *offer) []map[string]any

func plainly(a *actor, o *offer) []map[string]any { return []map[string]any{a.at(o)} }

func with(more ...any) func(a *actor, o *offer) []map[string]any {
	return func(a *actor, o *offer) []map[string]any { return []map[string]any{a.at(o, more...)} }
}

func thread(more ...any) func(a *actor, o *offer) []map[string]any {
	return func(_ *actor, o *offer) []map[string]any {
		m := map[string]any{"thread_id": o.id}
		for i := 0; i+1 < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return []map[string]any{m}
	}
}

var reading = toolCalls{
	"handoff_get":        plainly,
	"view_thread":        thread(),
	"get_handoff_status": func(_ *actor, o *offer) []map[string]any { return []map[string]any{{"handoff_id": o.id}} },
}

// acting in the order in which most is found out: what asks again for what was done comes first.
var acting = toolCalls{
	"handoff_create": func(a *actor, o *offer) []map[string]any {
		again := a.w.creation(o, "public", `{"strategy":"capability","capability":"code"}`)
		again["from_agent_id"], again["project_root"] = a.name, a.root
		foreign, broken := maps.Clone(again), maps.Clone(again)
		foreign["idempotency_key"], foreign["depends_on"], foreign["payload"] = nil, []any{o.id, "0192f3a4-0000-7000-8000-000000000000"}, nil
		broken["idempotency_key"] = nil
		broken["payload"] = json.RawMessage(strings.Replace(o.payload, "é", `\ud800`, 1))
		reused := maps.Clone(again)
		reused["payload"] = "another"
		calls := []map[string]any{broken, foreign}
		if a.name == "cora@acme" { // of others it would be a new handoff
			calls = append(calls, again, reused)
		}
		return calls
	},
	"handoff_claim": func(a *actor, o *offer) []map[string]any {
		return []map[string]any{
			a.at(o, "idempotency_key", o.key), a.at(o, "idempotency_key", o.key, "lease_seconds", 11), a.at(o, "lease_seconds", 86400), a.at(nil, "idempotency_key", o.key),
		}
	},
	"accept_handoff": thread(),
	"handoff_extend": with("claim_epoch", 1, "lease_seconds", 86400),
	"handoff_release": func(a *actor, o *offer) []map[string]any {
		return []map[string]any{a.at(o, "claim_epoch", 7, "reason", "r"), a.at(o, "reason", a.w.vault.Word(o.secret("reason")))}
	},
	"handoff_complete": func(a *actor, o *offer) []map[string]any {
		return []map[string]any{a.at(o, "result", a.w.secret(o, "result"), "claim_epoch", 1), a.at(o, "result", "another"), a.at(o, "result", a.w.secret(o, "result"), "claim_epoch", 2)}
	},
	"complete_handoff":      thread("result_summary", "done"),
	"draft_proposed_action": thread("suggested_diff", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"),
	"send_message":          thread("body", "b"),
	"handoff_verify": func(a *actor, o *offer) []map[string]any {
		return []map[string]any{
			a.at(o, "verdict", "fail", "claim_epoch", 1, "feedback", a.w.vault.Word(o.secret("feedback"))), a.at(o, "verdict", "pass", "feedback", "f"), a.at(o, "verdict", "pass"),
		}
	},
	"reply_to_person": func(_ *actor, o *offer) []map[string]any { return []map[string]any{{"handoff_id": o.id, "body": "b"}} },
	"handoff_reject":  with("reason", "r"),
	"decline_handoff": thread("reason", "r"),
	"handoff_cancel":  plainly,
	"cancel_handoff":  thread("reason", "r"),
}

// asking are the tools that are about no handoff, or about many.
var asking = map[string]func(a *actor) []map[string]any{
	"check_inbox": func(*actor) []map[string]any {
		return []map[string]any{{}, {"status": []any{"pending", "accepted", "completed", "declined", "cancelled", "expired"}}, {"role": "sender"}, {"role": "recipient", "limit": 1}}
	},
	"handoff_list_available": func(a *actor) []map[string]any {
		var calls []map[string]any
		for _, scope := range []string{"available", "mine_created", "mine_claimed", "to_verify"} {
			calls = append(calls, a.at(nil, "scope", scope, "limit", 500), a.at(nil, "scope", scope, "limit", 1))
		}
		return calls
	},
	"event_wait": func(a *actor) []map[string]any {
		calls := []map[string]any{a.at(nil, "stream", "workspace", "cursor", "0", "limit", 500), a.at(nil, "stream", "agent", "cursor", "0"), a.at(nil)}
		for _, o := range a.w.offers {
			calls = append(calls, a.at(nil, "stream", "handoff", "cursor", "0", "filters", map[string]any{"handoff_id": o.id}))
		}
		return calls
	},
	"agent_whoami":      func(*actor) []map[string]any { return []map[string]any{{}} },
	"capability_list":   func(*actor) []map[string]any { return []map[string]any{{}} },
	"session_open":      func(a *actor) []map[string]any { return []map[string]any{a.at(nil)} },
	"session_heartbeat": func(*actor) []map[string]any { return []map[string]any{{"session_id": "s", "session_secret": "s"}} },
	"session_close":     func(*actor) []map[string]any { return []map[string]any{{"session_id": "s", "session_secret": "s"}} },
	"list_teammates":    func(*actor) []map[string]any { return []map[string]any{{}, {"skill": "code"}} },
	"handoff_to_teammate": func(a *actor) []map[string]any {
		return []map[string]any{{"to": "nobody@acme", "intent": "inform", "summary": "s"}, {"to": "cora@acme", "intent": "propose_action", "summary": "s"}}
	},
	"find_business": func(*actor) []map[string]any { return []map[string]any{{}, {"query": "shop"}} },
	"initiate_handoff": func(*actor) []map[string]any {
		return []map[string]any{{"slug": "nobody", "mode": "human", "idempotency_key": "k", "reason": "r"}}
	},
	"redeem_continuation": func(*actor) []map[string]any { return []map[string]any{{"handshake_token": "a.b.c"}} },
	"block_teammate":      func(*actor) []map[string]any { return []map[string]any{{"handle": "nobody@acme"}} },
	"unblock_teammate":    func(*actor) []map[string]any { return []map[string]any{{"handle": "cora@acme"}} },
}

// tool is one that the hub lists, with the names of its parameters.
type tool struct {
	name   string
	params map[string]any
}

// tools asks the hub which tools there are.
func (w *world) tools() []tool {
	w.t.Helper()
	var list struct {
		Tools []struct {
			Name        string
			InputSchema struct{ Properties map[string]any }
		}
		NextCursor string
	}
	if err := json.Unmarshal(w.cast["cora@acme"].method("tools/list", "tools/list", `{}`), &list); err != nil || len(list.Tools) < 20 || list.NextCursor != "" {
		w.t.Fatalf("%v: %+v", err, list)
	}
	var out []tool
	for _, t := range list.Tools {
		out = append(out, tool{t.Name, t.InputSchema.Properties})
		if reading[t.Name] == nil && acting[t.Name] == nil && asking[t.Name] == nil {
			w.t.Errorf("the tool %s has no entry in reading, acting or asking: whether it keeps secrets is not known", t.Name)
		}
	}
	return out
}

// read has everyone call every tool that only reads.
func (w *world) read(tools []tool) {
	w.t.Helper()
	for _, t := range tools {
		for _, a := range w.everyone() {
			if ask := asking[t.name]; ask != nil {
				for _, args := range ask(a) {
					a.call(t.name, args)
				}
			}
			if calls := reading[t.name]; calls != nil {
				for _, o := range w.offers {
					for _, args := range calls(a, o) {
						a.call(t.name, args)
					}
				}
			}
		}
	}
}

// act has everyone call every tool that changes something, on every handoff. Handoffs go through
// many more states on the way; who may see what is judged after each call.
func (w *world) act(tools []tool) {
	w.t.Helper()
	// Creator, claimant, past holder and stranger try everything, who may verify or claim that too.
	some := []string{"cora@acme", "clem@acme", "pat@acme", "stan@acme"}
	actors := map[string][]string{
		"handoff_create": {"cora@acme", "stan@acme"}, "handoff_verify": append([]string{"vera@acme", "vick@acme"}, some...), "handoff_claim": append([]string{"lois@acme"}, some...),
	}
	for _, t := range tools {
		calls := acting[t.name]
		if calls == nil {
			continue
		}
		if actors[t.name] == nil {
			actors[t.name] = some
		}
		for _, o := range w.offers {
			for _, a := range w.everyone() {
				if a.root != o.root || !slices.Contains(actors[t.name], a.name) {
					continue
				}
				for _, args := range calls(a, o) {
					a.call(t.name, args)
				}
			}
		}
	}
}

// outputs asks for what is listed besides tools: resources, their templates, prompts.
func (w *world) outputs() {
	w.t.Helper()
	templates := map[string][]string{
		"handclasp://handoffs/{id}":                                       {"handclasp://handoffs/$id"},
		"handclasp://handoffs/{id}?after_sequence_no={after_sequence_no}": {"handclasp://handoffs/$id?after_sequence_no=0", "handclasp://handoffs/$id?after_sequence_no=1"},
	}
	prompts := map[string]string{"hand_off": `{"what":"w","to":"cora@acme"}`, "review_inbox": `{"focus":"f"}`}
	for _, a := range w.everyone() {
		var list struct {
			Resources         []struct{ URI string }
			ResourceTemplates []struct{ URITemplate string }
			Prompts           []struct{ Name string }
		}
		for _, kind := range []string{"resources", "resources/templates", "prompts"} {
			if err := json.Unmarshal(a.method(kind, kind+"/list", `{}`), &list); err != nil {
				w.t.Fatal(err)
			}
		}
		if len(list.Resources) == 0 || len(list.ResourceTemplates) == 0 || len(list.Prompts) == 0 {
			w.t.Fatalf("too little is listed: %+v", list)
		}
		var uris []string
		for _, r := range list.Resources {
			uris = append(uris, r.URI)
		}
		for _, r := range list.ResourceTemplates {
			forms := templates[r.URITemplate]
			if forms == nil {
				w.t.Errorf("the resource template %s is not covered", r.URITemplate)
			}
			for _, o := range w.offers {
				for _, form := range forms {
					uris = append(uris, strings.ReplaceAll(form, "$id", o.id))
				}
			}
		}
		slices.Sort(uris)
		for _, uri := range slices.Compact(uris) {
			a.method(uri, "resources/read", `{"uri":"`+uri+`"}`)
		}
		for _, p := range list.Prompts {
			args, ok := prompts[p.Name]
			if !ok {
				w.t.Errorf("the prompt %s is not covered", p.Name)
				continue
			}
			a.method(p.Name, "prompts/get", `{"name":"`+p.Name+`","arguments":`+args+`}`)
		}
	}
}
