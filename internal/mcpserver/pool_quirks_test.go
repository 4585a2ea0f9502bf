package mcpserver_test

import (
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// poolForm is one way in which clients write what a pool tool takes. args are members of its
// arguments besides those that say who calls where; $id is a handoff that frank holds.
type poolForm struct {
	tool, args string
	as         func(t *testing.T, h handoff.Handoff, fields map[string]any)
}

func criteria(want ...string) func(*testing.T, handoff.Handoff, map[string]any) {
	return func(t *testing.T, h handoff.Handoff, _ map[string]any) {
		t.Helper()
		if !slices.Equal(h.Criteria, want) {
			t.Errorf("criteria %q", h.Criteria)
		}
	}
}

func strategy(want handoff.Strategy) func(*testing.T, handoff.Handoff, map[string]any) {
	return func(t *testing.T, h handoff.Handoff, _ map[string]any) {
		t.Helper()
		if h.Target.Strategy != want {
			t.Errorf("target %+v", h.Target)
		}
	}
}

func verifier(want handoff.VerifyByKind) func(*testing.T, handoff.Handoff, map[string]any) {
	return func(t *testing.T, h handoff.Handoff, _ map[string]any) {
		t.Helper()
		if h.VerifyBy == nil || h.VerifyBy.Kind != want {
			t.Errorf("verify_by %+v", h.VerifyBy)
		}
	}
}

func field(name string, want any) func(*testing.T, handoff.Handoff, map[string]any) {
	return func(t *testing.T, _ handoff.Handoff, fields map[string]any) {
		t.Helper()
		if fields[name] != want {
			t.Errorf("%s is %v, want %v", name, fields[name], want)
		}
	}
}

var poolForms = map[string]poolForm{
	"a target as a string":                 {"handoff_create", `"target":"{\"strategy\":\"capability\",\"capability\":\"code\"}"`, strategy(handoff.StrategyCapability)},
	"a target as a string with spaces":     {"handoff_create", `"target":" {\"strategy\": \"broadcast\"} \n"`, strategy(handoff.StrategyBroadcast)},
	"a rich target as a string":            {"handoff_create", `"target":"{\"strategy\":\"mixed\",\"rules\":[{\"strategy\":\"role\",\"role\":\"r\"}]}"`, strategy(handoff.StrategyMixed)},
	"a strategy in capitals":               {"handoff_create", `"target":{"strategy":"Broadcast"}`, strategy(handoff.StrategyBroadcast)},
	"one criterion without a list":         {"handoff_create", `"acceptance_criteria":"it is green"`, criteria("it is green")},
	"criteria as a string":                 {"handoff_create", `"acceptance_criteria":"[\"it is green\",\"it is fast\"]"`, criteria("it is green", "it is fast")},
	"a criterion that only begins so":      {"handoff_create", `"acceptance_criteria":"[ ] tests pass"`, criteria("[ ] tests pass")},
	"criteria that are null":               {"handoff_create", `"acceptance_criteria":"null","verify_by":"null"`, criteria()},
	"criteria that are an empty list":      {"handoff_create", `"acceptance_criteria":[],"verify_by":null,"depends_on":[]`, criteria()},
	"verify_by as a string":                {"handoff_create", `"acceptance_criteria":["c"],"verify_by":"{\"kind\":\"capability\",\"capability\":\"code\"}"`, verifier(handoff.VerifyByCapability)},
	"a kind in capitals":                   {"handoff_create", `"acceptance_criteria":["c"],"verify_by":{"kind":"CREATOR"}`, verifier(handoff.VerifyByCreator)},
	"verify_by that says null":             {"handoff_create", `"acceptance_criteria":["c"],"verify_by":"null"`, verifier(handoff.VerifyByCreator)},
	"visibility in capitals":               {"handoff_create", `"visibility":"PRIVATE"`, func(t *testing.T, h handoff.Handoff, _ map[string]any) { same(t, h.Visibility, handoff.Private) }},
	"a priority in capitals":               {"handoff_create", `"priority":"High"`, func(t *testing.T, h handoff.Handoff, _ map[string]any) { same(t, h.Priority, 1) }},
	"texts that say null":                  {"handoff_create", `"trace_id":"null","session_id":"null","priority":"null","expires_in_seconds":"null","idempotency_key":"null"`, func(t *testing.T, h handoff.Handoff, _ map[string]any) { same(t, len(h.TraceID), 32) }},
	"a payload that says null":             {"handoff_create", `"payload":"null"`, func(t *testing.T, h handoff.Handoff, _ map[string]any) { same(t, string(h.Payload), `"null"`) }},
	"one dependency without a list":        {"handoff_create", `"depends_on":"$id"`, func(t *testing.T, h handoff.Handoff, _ map[string]any) { same(t, h.DepsPending, 1) }},
	"seconds as a string":                  {"handoff_create", `"expires_in_seconds":"3600"`, func(t *testing.T, h handoff.Handoff, _ map[string]any) { same(t, h.ExpiresAt.IsZero(), false) }},
	"seconds as a float":                   {"handoff_create", `"expires_in_seconds":3600.0`, func(t *testing.T, h handoff.Handoff, _ map[string]any) { same(t, h.ExpiresAt.IsZero(), false) }},
	"a scope in capitals":                  {"handoff_list_available", `"scope":"MINE_CREATED","limit":"1"`, field("timed_out", false)},
	"wait_seconds of a list":               {"handoff_list_available", `"wait_seconds":"1","scope":"to_verify"`, field("timed_out", true)},
	"an empty cursor":                      {"handoff_list_available", `"cursor":""`, field("timed_out", false)},
	"a next one that says null":            {"handoff_claim", `"handoff_id":"null","wait_seconds":0`, field("handoff_id", nil)},
	"wait_seconds of a claim":              {"handoff_claim", `"handoff_id":"","wait_seconds":1`, field("timed_out", true)},
	"wait_seconds and a status in letters": {"handoff_get", `"handoff_id":"$id","wait_seconds":5,"known_status":"open"`, field("status", "CLAIMED")},
	"no status at all":                     {"handoff_get", `"handoff_id":"$id","known_status":"","timeout_seconds":null`, field("status", "CLAIMED")},
}

func same[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestThePoolForgivesWhatIsSurelyMeant(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			forgiven(t, newWire(t, kind))
		})
	}
}

func forgiven(t *testing.T, w *wire) {
	anna, frank := w.poolAgent("anna@acme", coder), w.poolAgent("frank@acme", coder)
	held := anna.offer()
	frank.claim(held)
	for name, form := range poolForms {
		args := strings.ReplaceAll(form.args, "$id", held)
		defaults := []string{`"project_root":"/srv/shop"`, `"agent_id":"anna@acme"`}
		if form.tool == "handoff_create" {
			defaults = []string{`"project_root":"/srv/shop"`, `"from_agent_id":"anna@acme"`, `"target":{"strategy":"broadcast"}`, `"visibility":"public"`}
		}
		for _, d := range defaults {
			if member, _, _ := strings.Cut(d, ":"); !strings.Contains(args, member+":") {
				args += "," + d
			}
		}
		r := anna.call(form.tool, "{"+args+"}")
		if r.isError || r.rpcError != "" {
			t.Errorf("%s: %s %s", name, r.rpcError, r.text)
			continue
		}
		fields := r.fields(t, form.tool)
		h := handoff.Handoff{}
		if form.tool == "handoff_create" {
			id, _ := fields["handoff_id"].(string)
			h, _ = w.stored(id)
		}
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) { form.as(t, h, fields) })
	}
}

func TestThePoolForgivesTheWordsOfAHolderAndOfAVerifier(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.poolAgent("anna@acme"), w.poolAgent("frank@acme", coder)
	id := anna.offer(map[string]any{"acceptance_criteria": "it is green"})
	frank.ok("handoff_claim", frank.at(id, "lease_seconds", "60"))
	frank.ok("handoff_extend", frank.at(id, "lease_seconds", 90.0, "claim_epoch", "1"))
	if h, _ := w.stored(id); h.LeaseLength.Seconds() != 90 {
		t.Errorf("the lease is %v", h.LeaseLength)
	}
	frank.ok("handoff_complete", frank.at(id, "result", "null", "claim_epoch", "null"))
	if h, _ := w.stored(id); string(h.Result) != `"null"` {
		t.Errorf("the result is %s", h.Result)
	}
	anna.ok("handoff_verify", anna.at(id, "verdict", "PASS", "feedback", "null", "claim_epoch", ""))
	if h, _ := w.stored(id); h.State != handoff.Completed {
		t.Errorf("it is %s", h.State)
	}
}

func TestAParameterThatIsUnknownAtThePoolIsNamedWithTheNearest(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.poolAgent("anna@acme"), w.poolAgent("frank@acme", coder)
	id := anna.offer()
	frank.claim(id)
	before := w.events()
	for _, c := range []struct {
		tool, unknown string
		nearest       string // empty: nothing is near
	}{
		{"handoff_create", "paylod", "payload"},
		{"handoff_create", "acceptance_criterion", "acceptance_criteria"},
		{"handoff_create", "vissibility", "visibility"},
		{"handoff_create", "verifyBy", "verify_by"},
		{"handoff_create", "dependsOn", "depends_on"},
		{"handoff_create", "projectRoot", "project_root"},
		{"handoff_create", "expires_in", "expires_in_seconds"},
		{"handoff_create", "artifact_ids", ""},
		{"handoff_create", "escalate_after_seconds", ""},
		{"handoff_create", "Payload", "payload"},
		{"handoff_list_available", "scopes", "scope"},
		{"handoff_list_available", "timeout", "timeout_seconds"},
		{"handoff_list_available", "q", ""},
		{"handoff_claim", "handoffId", "handoff_id"},
		{"handoff_claim", "lease_second", "lease_seconds"},
		{"handoff_claim", "waitSeconds", "timeout_seconds"},
		{"handoff_extend", "claimEpoch", "claim_epoch"},
		{"handoff_release", "reasons", "reason"},
		{"handoff_complete", "results", "result"},
		{"handoff_complete", "result_summary", "result"},
		{"handoff_verify", "verdicts", "verdict"},
		{"handoff_verify", "feedbak", "feedback"},
		{"handoff_reject", "agentId", "agent_id"},
		{"handoff_cancel", "agent", "agent_id"},
		{"handoff_get", "knownStatus", "known_status"},
		{"handoff_get", "payload", ""},
	} {
		args := frank.at(id, c.unknown, "SECRET_VALUE")
		switch c.tool {
		case "handoff_create":
			args = frank.offering(map[string]any{c.unknown: "SECRET_VALUE"})
		case "handoff_list_available":
			args = frank.at("", c.unknown, "SECRET_VALUE")
		}
		r := frank.refused(c.tool, args, wrong)
		if !strings.HasPrefix(r.fault.Message, c.unknown+":") || strings.Contains(r.text, "SECRET_VALUE") {
			t.Errorf("%s with %s: %s", c.tool, c.unknown, r.text)
		}
		_, near, _ := strings.Cut(r.fault.Message, "did you mean ")
		if near, _, _ = strings.Cut(near, "?"); near != c.nearest {
			t.Errorf("%s with %s: %q is near, want %q: %s", c.tool, c.unknown, near, c.nearest, r.fault.Message)
		}
	}
	if w.events() != before {
		t.Error("something was written")
	}
}

func TestTwoNamesOfOneWaitAreOneTooMany(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna := w.poolAgent("anna@acme", func(in *hub.AgentInput) { in.Capabilities = []string{"code"} })
	id := anna.offer()
	for tool, args := range map[string]map[string]any{
		"handoff_list_available": anna.at(""), "handoff_claim": anna.at(""), "handoff_get": anna.at(id),
	} {
		args["timeout_seconds"], args["wait_seconds"] = 0, 0
		if r := anna.refused(tool, args, wrong); !strings.Contains(r.fault.Message, "timeout_seconds") {
			t.Errorf("%s: %s", tool, r.text)
		}
		delete(args, "timeout_seconds")
		args["wait_seconds"] = 51
		if r := anna.refused(tool, args, wrong); !strings.Contains(r.fault.Message, "51") || !strings.Contains(r.fault.Message, "0..50") {
			t.Errorf("%s: %s", tool, r.text)
		}
	}
}
