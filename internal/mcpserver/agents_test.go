package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func strictTrust(c *hub.Config) { c.StrictTrust = true }

// via gives the caller at another address.
func (c caller) via(path string) *caller { c.path = path; return &c }

// args are the arguments that a pool tool takes, and more of them.
func (c *caller) args(more map[string]any) map[string]any {
	args := c.at("")
	maps.Copy(args, more)
	return args
}

// forEverybody is an open handoff that any agent may claim.
var forEverybody = map[string]any{"target": map[string]any{"strategy": "broadcast"}}

func TestTheSessionToolsAreOfThePoolWhereTheHubIsStrictAndOfTheWholeAlways(t *testing.T) {
	t.Parallel()
	for _, strict := range []bool{false, true} {
		w := newWire(t, "sqlite", hubtest.WithHub(func(c *hub.Config) { c.StrictTrust = strict }))
		anna := w.agent("anna@acme")
		for path, want := range map[string]bool{"/mcp": true, "/mcp/pool": strict, "/mcp/team": false} {
			a := anna.via(path).ask("2025-11-25", "tools/list", `{}`)
			var list struct{ Tools []struct{ Name string } }
			if err := json.Unmarshal(a.Result, &list); err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, tool := range list.Tools {
				names = append(names, tool.Name)
			}
			for _, name := range []string{"session_open", "session_heartbeat", "session_close"} {
				if slices.Contains(names, name) != want {
					t.Errorf("strict %v, %s: %s is in %v", strict, path, name, names)
				}
			}
			r := anna.via(path).call("session_open", anna.args(nil))
			if served := r.rpcError == "" && !r.isError; served != want {
				t.Errorf("strict %v, %s: session_open answers %s %s", strict, path, r.rpcError, r.text)
			}
		}
	}
}

func TestAStrictHubIsWorkedWithSessionsOverTheWire(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, kind, hubtest.WithHub(strictTrust))
			anna, frank := w.pair()
			anna, frank = anna.via("/mcp"), frank.via("/mcp")
			id := anna.offer(forEverybody, map[string]any{"acceptance_criteria": []string{"it is green"}, "payload": map[string]any{"n": 1}})
			sessions := map[*caller]map[string]any{}
			for _, c := range []*caller{anna, frank} {
				s := c.ok("session_open", c.args(nil))
				if !strings.HasPrefix(s["session_secret"].(string), auth.SessionPrefix) {
					t.Fatalf("%v", s)
				}
				sessions[c] = map[string]any{"session_id": s["session_id"], "session_secret": s["session_secret"]}
			}
			step := func(c *caller, tool string, more map[string]any) map[string]any {
				t.Helper()
				args := c.at(id)
				for k, v := range more {
					args[k] = v
				}
				r := c.refused(tool, args, handoff.CodeSessionRequired)
				if !strings.Contains(r.fault.Hint, "session_open") || !strings.Contains(r.fault.Hint, tool) {
					t.Errorf("%s: %s", tool, r.text)
				}
				for k, v := range sessions[c] {
					args[k] = v
				}
				return c.ok(tool, args)
			}
			for tool, args := range map[string]map[string]any{"accept_handoff": {}, "complete_handoff": {"result_summary": "r"}, "decline_handoff": {"reason": "r"}, "cancel_handoff": {}} {
				args["thread_id"] = id
				c := frank
				if tool == "cancel_handoff" {
					c = anna
				}
				c.refused(tool, args, handoff.CodeSessionRequired)
			}
			if got := step(frank, "handoff_claim", nil); fmt.Sprint(got["payload"]) != "map[n:1]" {
				t.Errorf("%v", got)
			}
			step(frank, "handoff_extend", map[string]any{"claim_epoch": 1})
			step(frank, "handoff_release", nil)
			step(frank, "handoff_claim", nil)
			step(frank, "handoff_complete", map[string]any{"claim_epoch": 2, "result": 1})
			step(anna, "handoff_verify", map[string]any{"claim_epoch": 2, "verdict": "fail"})
			step(frank, "handoff_reject", map[string]any{"claim_epoch": 3})
			id = anna.offer(forEverybody)
			step(anna, "handoff_cancel", nil)

			beat := frank.ok("session_heartbeat", sessions[frank])
			if beat["status"] != "open" || beat["expires_at"] == nil {
				t.Errorf("%v", beat)
			}
			for _, again := range []any{nil, true} {
				if got := frank.ok("session_close", sessions[frank]); got["status"] != "closed" || got["idempotent_replay"] != again || got["expires_at"] != nil {
					t.Errorf("closed: %v", got)
				}
			}
			frank.refused("session_heartbeat", sessions[frank], handoff.CodeSessionRequired)
		})
	}
}

func TestNoRefusalAndNoLogLineRepeatsTheSecretOfASession(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna := w.agent("anna@acme").via("/mcp")
	s := anna.ok("session_open", anna.args(nil))
	secret := s["session_secret"].(string)
	id := anna.offer(forEverybody)
	odd := []any{secret, []any{secret}, map[string]any{secret: secret}, []any{secret, secret}, "\u0000" + secret, secret + strings.Repeat("0", 5000)}
	for _, value := range odd {
		for _, args := range []map[string]any{{"session_secret": value}, {"session_id": "x", "session_secret": value}, {"session_id": s["session_id"], "session_secret": value}, {"session_id": secret, "session_secret": value}} {
			for _, tool := range []string{"session_heartbeat", "session_close", "handoff_claim", "handoff_extend", "handoff_release", "handoff_complete", "handoff_verify", "handoff_reject", "handoff_cancel"} {
				if strings.HasPrefix(tool, "handoff") {
					args = maps.Clone(args)
					maps.Copy(args, anna.at(id, "claim_epoch", 1, "verdict", "pass"))
					if tool != "handoff_verify" {
						delete(args, "verdict")
					}
					if tool == "handoff_claim" {
						delete(args, "claim_epoch")
					}
				}
				r := anna.call(tool, args)
				if strings.Contains(string(r.raw), secret) {
					t.Errorf("%s repeats it: %s", tool, r.text)
				}
			}
		}
	}
	if strings.Contains(w.Log.String(), secret) {
		t.Error("the log holds it")
	}
}

func TestAnAgentAsksWhoItIs(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, kind)
			anna := w.agent("anna@acme").via("/mcp")
			frank := w.agent("frank@acme", func(in *hub.AgentInput) {
				in.Role, in.Capabilities, in.Tags = "worker <b>", []string{"code"}, map[string][]string{"team": {"platform"}}
			}).via("/mcp")
			team, pool := anna.hand(frank), anna.offer(forEverybody)
			frank.claim(pool)
			frank.ok("accept_handoff", map[string]any{"thread_id": team})
			anna.ok("send_message", map[string]any{"thread_id": team, "body": "by the way"})
			me := frank.via("/mcp/pool").ok("agent_whoami", `{}`)
			if me["handle"] != "frank@acme" || me["name"] != "frank@acme" || me["role"] != "worker <b>" || fmt.Sprint(me["capabilities"]) != "[code]" ||
				fmt.Sprint(me["tags"]) != "map[team:[platform]]" || me["unread_total"] != 1.0 || me["more"] != nil {
				t.Errorf("%v", me)
			}
			claims, news := me["open_claims"].([]any), me["notices"].([]any)
			if len(claims) != 2 || len(news) != 1 {
				t.Fatalf("%v", me)
			}
			if c := claims[0].(map[string]any); c["handoff_id"] != pool || c["door"] != "pool" || c["status"] != "CLAIMED" || c["claim_epoch"] != 1.0 || c["lease_expires_at"] == nil || c["workspace_id"] == nil {
				t.Errorf("%v", c)
			}
			if c := claims[1].(map[string]any); c["handoff_id"] != team || c["door"] != "team" || c["status"] != "accepted" || c["lease_expires_at"] != nil || c["workspace_id"] != nil {
				t.Errorf("%v", c)
			}
			if n := news[0].(map[string]any); n["type"] != "message.created" || n["handoff_id"] != team || n["door"] != "team" || n["sequence_no"] != 2.0 || n["at"] == nil {
				t.Errorf("%v", n)
			}
			w.Clock.Advance(301 * time.Second)
			if me = frank.ok("agent_whoami", `{}`); len(me["open_claims"].([]any)) != 1 {
				t.Errorf("after the lease: %v", me["open_claims"])
			}
		})
	}
}

func TestWhoamiAndTheCatalogStayWithinTheBudget(t *testing.T) {
	t.Parallel()
	for name, texture := range textures {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			var words []string
			tags := map[string][]string{}
			for i := range 150 {
				words = append(words, fmt.Sprint(i, of(texture, 180)))
				tags[fmt.Sprint("k", i)] = []string{of(texture, 180)}
			}
			anna := w.agent("anna@acme").via("/mcp")
			var who []*caller
			for i := range 55 {
				in := func(in *hub.AgentInput) { in.Capabilities = words[:1] }
				if i == 0 {
					in = func(in *hub.AgentInput) {
						in.Name, in.Role, in.Capabilities, in.Tags = of(texture, 200), of(texture, 200), words, tags
					}
				}
				who = append(who, w.agent(fmt.Sprintf("a%02d%s@acme", i, strings.Repeat("x", 200)), in).via("/mcp"))
			}
			first, from := who[0], anna.asHub(t)
			for range 101 {
				c, err := w.Hub.Create(t.Context(), from, hub.CreateInput{To: first.handle, Intent: handoff.Inform, Summary: "s"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.Hub.Accept(t.Context(), first.asHub(t), hub.AcceptInput{ThreadID: c.ThreadID, Lease: 3600}); err != nil {
					t.Fatal(err)
				}
				if _, err := w.Hub.Send(t.Context(), from, hub.SendInput{ThreadID: c.ThreadID, Body: "b"}); err != nil {
					t.Fatal(err)
				}
			}
			r := first.call("agent_whoami", `{}`)
			within(t, "agent_whoami", r)
			me := r.fields(t, "agent_whoami")
			if n, m := len(me["open_claims"].([]any)), len(me["notices"].([]any)); n < 25 || m < 25 || me["more"] != true {
				t.Errorf("%d claims, %d notices, more %v", n, m, me["more"])
			}
			for cursor, seen := any(""), 0; ; {
				r := first.call("capability_list", map[string]any{"cursor": cursor})
				page := r.fields(t, "capability_list")
				within(t, "capability_list", r)
				list := page["capabilities"].([]any)
				for _, c := range list {
					if one := c.(map[string]any); one["capability"] == words[0] && (len(one["agents"].([]any)) != 50 || one["total"] != 55.0) {
						t.Errorf("%d agents of %v are named", len(one["agents"].([]any)), one["total"])
					}
				}
				seen += len(list)
				if cursor = page["next_cursor"]; cursor == nil {
					if seen != len(words) {
						t.Errorf("%d capabilities came, of %d", seen, len(words))
					}
					break
				}
			}
		})
	}
}
