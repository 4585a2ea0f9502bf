package handoff

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func mustTarget(t *testing.T, raw string) *Target {
	t.Helper()
	target, err := ParseTarget(json.RawMessage(raw), DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return target
}

func TestTargetIsRenderedInOneSpelling(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`{"agent_id":"Frank@Acme","strategy":"direct"}`:                                 `{"strategy":"direct","agent_id":"Frank@Acme"}`,
		`{"strategy":"capability","capability":"review"}`:                               `{"strategy":"capability","capability":"review"}`,
		`{"strategy":"capability","capability":["review"]}`:                             `{"strategy":"capability","capability":["review"]}`,
		`{"strategy":"capability","capability":["b","a<"]}`:                             `{"strategy":"capability","capability":["b","a<"]}`,
		`{"strategy":"role","role":"reviewer"}`:                                         `{"strategy":"role","role":"reviewer"}`,
		`{"strategy":"broadcast"}`:                                                      `{"strategy":"broadcast"}`,
		`{"strategy":"tag","selector":{"team":["platform"],"area":["ENG","OPS"]}}`:      `{"strategy":"tag","selector":{"area":["ENG","OPS"],"team":["platform"]}}`,
		`{"strategy":"tag","selector":{"team":"platform"}}`:                             `{"strategy":"tag","selector":{"team":["platform"]}}`,
		`{"strategy":"tag","selector":[{"operator":"NotIn","key":"k","values":["v"]}]}`: `{"strategy":"tag","selector":[{"key":"k","operator":"NotIn","values":["v"]}]}`,
		`{"strategy":"tag","selector":[{"key":"k","operator":"Exists","values":null}]}`: `{"strategy":"tag","selector":[{"key":"k","operator":"Exists"}]}`,
		`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"a"}]}]}`: `{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"a"}]}]}`,
		`{"strategy":"direct_with_fallback","agent_id":"new-one","fallback_after_seconds":60.0}`:                                            `{"strategy":"direct_with_fallback","agent_id":"new-one","fallback_after_seconds":60,"fallback":{"strategy":"broadcast"}}`,
		`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1,"fallback":{"strategy":"role","role":"r"}}`:           `{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1,"fallback":{"strategy":"role","role":"r"}}`,
	}
	for raw, want := range tests {
		got, err := mustTarget(t, raw).MarshalJSON()
		if err != nil || string(got) != want {
			t.Errorf("%s\nbecame %s (%v)\nwant   %s", raw, got, err, want)
		}
	}
}

func nested(depth int) string {
	return strings.Repeat(`{"strategy":"mixed","rules":[`, depth) + `{"strategy":"role","role":"r"}` + strings.Repeat(`]}`, depth)
}

func ruleList(n int) string {
	return `{"strategy":"mixed","rules":[` + strings.TrimSuffix(strings.Repeat(`{"strategy":"role","role":"r"},`, n), ",") + `]}`
}

func flatKeys(n int) string {
	var keys []string
	for i := range n {
		keys = append(keys, fmt.Sprintf(`"k%d":["v"]`, i))
	}
	return `{"strategy":"tag","selector":{` + strings.Join(keys, ",") + `}}`
}

func valueList(n int) string {
	return `{"strategy":"tag","selector":{"k":[` + strings.TrimSuffix(strings.Repeat(`"v",`, n), ",") + `]}}`
}

func TestTargetsAtTheirLimitsAreAccepted(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		nested(3), ruleList(32), flatKeys(16), valueList(20),
		`{"strategy":"role","role":"` + strings.Repeat("é", 256) + `"}`,
		`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":2592000,"fallback":` + nested(3) + `}`,
		`{"strategy":"direct_with_fallback","agent_id":"019236d0-1111-7abc-8def-0123456789ab","fallback_after_seconds":1,"fallback":null}`,
	} {
		mustTarget(t, raw)
	}
}

func TestTargetOutsideTheGrammarIsRefusedNamingThePlace(t *testing.T) {
	t.Parallel()
	tag := func(selector string) string { return `{"strategy":"tag","selector":` + selector + `}` }
	tests := []struct{ raw, says string }{
		{``, "target: is not valid JSON"},
		{`7`, `target: a number came, an object such as {"strategy":"broadcast"}`},
		{`"{\"strategy\":\"broadcast\"}"`, "target: a string came"},
		{`[]`, "target: a list came"},
		{`{}`, "target.strategy: nothing came"},
		{`{"strategy":"brodcast"}`, "did you mean broadcast?"},
		{`{"strategy":"Direct","agent_id":"a"}`, `"Direct" came; accepted are direct,`},
		{`{"Strategy":"broadcast"}`, "target.strategy"},
		{`{"strategy":"broadcast","strategy":"direct"}`, "target.strategy: is given twice"},
		{`{"strategy":"direct","agent_ids":"a"}`, "target.agent_ids: is not a field here; accepted are strategy, agent_id; did you mean agent_id?"},
		{`{"strategy":"broadcast","agent_id":"a"}`, "target.agent_id: is not a field here"},
		{`{"strategy":"direct"}`, "target.agent_id"},
		{`{"strategy":"direct","agent_id":["a"]}`, "target.agent_id: a list came"},
		{`{"strategy":"direct","agent_id":"\ud800"}`, "target: holds a lone surrogate"},
		{`{"strategy":"capability","capability":[]}`, "target.capability: an empty list"},
		{`{"strategy":"capability","capability":["a",""]}`, "target.capability[1]"},
		{`{"strategy":"capability","capability":{"a":1}}`, "target.capability: an object came, a list"},
		{`{"strategy":"role","role":" "}`, "target.role"},
		{`{"strategy":"role","role":"` + strings.Repeat("é", 257) + `"}`, "target.role: 257 characters"},
		{tag(`{}`), "target.selector: an empty selector"},
		{tag(`[]`), "target.selector: an empty selector"},
		{tag(`"x"`), "target.selector: a string came"},
		{tag(`{"team":[]}`), "target.selector.team: an empty list"},
		{tag(`{"team":[1]}`), "target.selector.team[0]: a number came"},
		{tag(`{"":["a"]}`), `target.selector[""]`},
		{tag(`{"a":["b"],"a":["c"]}`), "target.selector.a: is given twice"},
		{tag(`[{"key":"k","operator":"in","values":["v"]}]`), "target.selector[0].operator: \"in\" came; accepted are In, NotIn, Exists, DoesNotExist; did you mean In?"},
		{tag(`[{"key":"k","operator":"In"}]`), "target.selector[0].values"},
		{tag(`[{"key":"k","operator":"NotIn","values":[]}]`), "target.selector[0].values"},
		{tag(`[{"key":"k","operator":"Exists","values":[]}]`), "target.selector[0].values: Exists takes no values"},
		{tag(`[{"key":"k","operator":"DoesNotExist","values":["v"]}]`), "target.selector[0].values"},
		{tag(`[{"key":"k","operator":"Exists","value":1}]`), "did you mean values?"},
		{tag(`[{"operator":"Exists"}]`), "target.selector[0].key"},
		{flatKeys(17), "target.selector: 17 keys"},
		{valueList(21), "target.selector.k: 21 values"},
		{`{"strategy":"mixed"}`, "target.rules: nothing came"},
		{`{"strategy":"mixed","rules":[]}`, "target.rules: an empty list"},
		{`{"strategy":"mixed","rules":[{"strategy":"broadcast"}]}`, "target.rules[0].strategy: broadcast is not accepted inside mixed"},
		{`{"strategy":"mixed","rules":[{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1}]}`, "target.rules[0].strategy: direct_with_fallback is accepted only at the top"},
		{`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"tag","selector":{"team":7}}]}`, "target.rules[1].selector.team: a number came"},
		{nested(4), "more than 3 deep"},
		{ruleList(33), "target.rules: more than 32 rules"},
		{`{"strategy":"mixed","rules":[` + ruleList(20) + `,` + ruleList(20) + `]}`, "target.rules[1].rules: more than 32 rules"},
		{`{"strategy":"direct_with_fallback","agent_id":"a"}`, "target.fallback_after_seconds"},
		{`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":0}`, `"0" came, an integer from 1`},
		{`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":2592001}`, "target.fallback_after_seconds"},
		{`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":"60"}`, "target.fallback_after_seconds"},
		{`{"strategy":"direct_with_fallback","agent_id":"a b","fallback_after_seconds":60}`, "target.agent_id"},
		{`{"strategy":"direct_with_fallback","agent_id":"Operator","fallback_after_seconds":60}`, "target.agent_id"},
		{`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1,"fallback":{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1}}`, "target.fallback.strategy"},
		{`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1,"fallback":` + nested(4) + `}`, "target.fallback.rules[0]"},
	}
	for _, test := range tests {
		_, err := ParseTarget(json.RawMessage(test.raw), DefaultLimits())
		if err == nil {
			t.Errorf("%s was accepted", test.raw)
			continue
		}
		wantCode(t, err, CodeInvalidParams, test.says)
	}
}

func TestStoredTargetStaysReadableWhenLimitsShrink(t *testing.T) {
	t.Parallel()
	var target Target
	if err := json.Unmarshal([]byte(ruleList(50)), &target); err != nil || len(target.Rules) != 50 {
		t.Errorf("read %d rules, %v", len(target.Rules), err)
	}
}

func TestMatchingIsExact(t *testing.T) {
	t.Parallel()
	agent := &Agent{
		ID: "019236d0-1111-7abc-8def-0123456789ab", Handle: "Frank@Acme", Role: "reviewer",
		Capabilities: []string{"review", "deploy"},
		Tags:         map[string][]string{"team": {"platform", "web"}, "org": {"ENG/BACKEND/Go"}, "bare": {}},
	}
	tag := func(key, operator string, values ...string) string {
		b, _ := json.Marshal(Target{Strategy: StrategyTag, rich: true, Selector: []Requirement{{key, TagOperator(operator), values}}})
		return string(b)
	}
	const fallback = `{"strategy":"direct_with_fallback","agent_id":"ann","fallback_after_seconds":1}`
	tests := []struct {
		raw        string
		open, want bool
	}{
		{`{"strategy":"direct","agent_id":"frank@ACME"}`, false, true},
		{`{"strategy":"direct","agent_id":"019236D0-1111-7ABC-8DEF-0123456789AB"}`, false, true},
		{`{"strategy":"direct","agent_id":"frank"}`, false, false},
		{`{"strategy":"capability","capability":"review"}`, false, true},
		{`{"strategy":"capability","capability":["x","deploy"]}`, false, true},
		{`{"strategy":"capability","capability":"Review"}`, false, false},
		{`{"strategy":"role","role":"reviewer"}`, false, true},
		{`{"strategy":"role","role":"Reviewer"}`, false, false},
		{`{"strategy":"broadcast"}`, false, true},
		{`{"strategy":"tag","selector":{"team":["x","web"]}}`, false, true},
		{`{"strategy":"tag","selector":{"team":["web"],"org":["ENG"]}}`, false, true},
		{`{"strategy":"tag","selector":{"team":["web"],"org":["OPS"]}}`, false, false},
		{`{"strategy":"tag","selector":{"Team":["web"]}}`, false, false},
		{tag("org", "In", "ENG"), false, true},
		{tag("org", "In", "ENG/BACKEND"), false, true},
		{tag("org", "In", "ENG/BACK"), false, false},
		{tag("org", "In", "EN"), false, false},
		{tag("org", "In", "eng"), false, false},
		{tag("org", "In", "ENG/BACKEND/Go/x"), false, false},
		{tag("org", "NotIn", "ENG"), false, false},
		{tag("org", "NotIn", "EN"), false, true},
		{tag("nokey", "NotIn", "x"), false, true},
		{tag("team", "NotIn", "x", "web"), false, false},
		{tag("nokey", "DoesNotExist"), false, true},
		{tag("team", "DoesNotExist"), false, false},
		{tag("team", "Exists"), false, true},
		{tag("bare", "Exists"), false, true},
		{tag("bare", "In", "x"), false, false},
		{tag("nokey", "Exists"), false, false},
		{`{"strategy":"mixed","rules":[{"strategy":"role","role":"x"},{"strategy":"capability","capability":"review"}]}`, false, true},
		{`{"strategy":"mixed","rules":[{"strategy":"role","role":"x"}]}`, false, false},
		{fallback, false, false},
		{fallback, true, true},
		{strings.Replace(fallback, "ann", "FRANK@acme", 1), false, true},
	}
	for _, test := range tests {
		if got := mustTarget(t, test.raw).Matches(agent, test.open); got != test.want {
			t.Errorf("%s, fallback open %v: matches %v", test.raw, test.open, got)
		}
	}
	var none *Target
	if none.Matches(agent, true) || none.NamesDirectly(agent) || none.HasFallback() || none.Keys() != nil {
		t.Error("no target matches somebody")
	}
	if mustTarget(t, `{"strategy":"direct","agent_id":"x"}`).Matches(&Agent{}, true) {
		t.Error("a direct target matches an agent without a name")
	}
}

func TestTargetNamesAgentsDirectlyWhereverTheyStand(t *testing.T) {
	t.Parallel()
	frank := &Agent{ID: "1", Handle: "Frank@Acme", Role: "r", Capabilities: []string{"c"}}
	for raw, want := range map[string]bool{
		`{"strategy":"direct","agent_id":"frank@acme"}`:                 true,
		`{"strategy":"role","role":"r"}`:                                false,
		`{"strategy":"broadcast"}`:                                      false,
		`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"}]}`: false,

		`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"direct","agent_id":"1"}]}`: true,
		`{"strategy":"direct_with_fallback","agent_id":"frank@acme","fallback_after_seconds":1}`:             true,
		`{"strategy":"direct_with_fallback","agent_id":"ann","fallback_after_seconds":1}`:                    false,
	} {
		if got := mustTarget(t, raw).NamesDirectly(frank); got != want {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

func TestNamesOfATargetAreCollectedForTheCatalog(t *testing.T) {
	t.Parallel()
	got := mustTarget(t, `{"strategy":"direct_with_fallback","agent_id":"later","fallback_after_seconds":1,"fallback":{"strategy":"mixed","rules":[
		{"strategy":"capability","capability":["b","a"]},{"strategy":"capability","capability":"a"},{"strategy":"direct","agent_id":"ann"},
		{"strategy":"tag","selector":[{"key":"k","operator":"NotIn","values":["v"]},{"key":"e","operator":"Exists"},{"key":"k","operator":"In","values":["w","v"]}]}]}}`).Names()
	want := TargetNames{
		Agents: []string{"ann"}, Capabilities: []string{"b", "a"}, TagKeys: []string{"k", "e"},
		TagValues: map[string][]string{"k": {"v", "w"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTargetIsIndexedUnderItsMostTellingKeys(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string][]string{
		`{"strategy":"direct","agent_id":"Frank@Acme"}`:           {"agent:frank@acme"},
		`{"strategy":"capability","capability":["b","a","b"]}`:    {"cap:a", "cap:b"},
		`{"strategy":"role","role":"r"}`:                          {"role:r"},
		`{"strategy":"broadcast"}`:                                {"any"},
		`{"strategy":"tag","selector":{"a":["x","y"],"b":["z"]}}`: {"tag:b=z"},
		`{"strategy":"tag","selector":[{"key":"a","operator":"Exists"},{"key":"b","operator":"In","values":["x","y"]}]}`:                      {"tag:b=x", "tag:b=y"},
		`{"strategy":"tag","selector":[{"key":"a","operator":"Exists"},{"key":"b","operator":"DoesNotExist"}]}`:                               {"tag:a"},
		`{"strategy":"tag","selector":[{"key":"a","operator":"NotIn","values":["x"]}]}`:                                                       {"scan"},
		`{"strategy":"direct_with_fallback","agent_id":"A","fallback_after_seconds":1}`:                                                       {"agent:a", "any"},
		`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"tag","selector":[{"key":"a","operator":"DoesNotExist"}]}]}`: {"role:r", "scan"},
	} {
		if got := mustTarget(t, raw).Keys(); !cmp.Equal(got, want) {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}

// Small alphabets, so that agents and targets meet often.
var (
	genName  = rapid.SampledFrom([]string{"a", "A", "b", "a/b", "a/b/c", "a/", "/", "a=b"})
	genID    = rapid.SampledFrom([]string{"ann", "ANN", "bob@x", "019236d0-1111-7abc-8def-0123456789ab"})
	genAgent = rapid.Custom(func(t *rapid.T) *Agent {
		return &Agent{
			ID:           rapid.SampledFrom([]string{"019236D0-1111-7ABC-8DEF-0123456789AB", "other"}).Draw(t, "id"),
			Handle:       rapid.SampledFrom([]string{"Ann", "Bob@X", "carl"}).Draw(t, "handle"),
			Role:         genName.Draw(t, "role"),
			Capabilities: rapid.SliceOfN(genName, 0, 2).Draw(t, "capabilities"),
			Tags:         rapid.MapOfN(genName, rapid.SliceOfN(genName, 0, 2), 0, 3).Draw(t, "tags"),
		}
	})
)

func genTarget(depth int, top bool) *rapid.Generator[map[string]any] {
	return rapid.Custom(func(t *rapid.T) map[string]any {
		strategies := []string{"direct", "capability", "role", "tag", "tag"}
		if depth < 3 {
			strategies = append(strategies, "mixed")
		}
		if top {
			strategies = append(strategies, "broadcast", "direct_with_fallback")
		}
		strategy := rapid.SampledFrom(strategies).Draw(t, "strategy")
		target := map[string]any{"strategy": strategy}
		names := rapid.SliceOfN(genName, 1, 3)
		switch strategy {
		case "direct":
			target["agent_id"] = genID.Draw(t, "agent")
		case "capability":
			target["capability"] = names.Draw(t, "capability")
			if rapid.Bool().Draw(t, "one") {
				target["capability"] = genName.Draw(t, "capability")
			}
		case "role":
			target["role"] = genName.Draw(t, "role")
		case "tag":
			if rapid.Bool().Draw(t, "flat") {
				target["selector"] = rapid.MapOfN(genName, names, 1, 3).Draw(t, "selector")
				break
			}
			target["selector"] = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) map[string]any {
				r := map[string]any{"key": genName.Draw(t, "key"), "operator": rapid.SampledFrom(operators).Draw(t, "operator")}
				if strings.HasSuffix(r["operator"].(string), "In") {
					r["values"] = names.Draw(t, "values")
				}
				return r
			}), 1, 3).Draw(t, "selector")
		case "mixed":
			target["rules"] = rapid.SliceOfN(genTarget(depth+1, false), 1, 2).Draw(t, "rules")
		case "direct_with_fallback":
			target["agent_id"] = genID.Draw(t, "agent")
			target["fallback_after_seconds"] = rapid.IntRange(1, maxFallbackSeconds).Draw(t, "seconds")
			if rapid.Bool().Draw(t, "given") {
				target["fallback"] = genTarget(depth, false).Draw(t, "fallback")
			}
		}
		return target
	})
}

func drawTarget(t *rapid.T) *Target {
	raw, err := json.Marshal(genTarget(0, true).Draw(t, "target"))
	if err != nil {
		t.Fatal(err)
	}
	target, err := ParseTarget(raw, DefaultLimits())
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return target
}

func TestIndexFindsEveryTargetThatMatches(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		target := drawTarget(t)
		indexed := map[string]bool{}
		for _, key := range target.Keys() {
			indexed[key] = true
		}
		for _, agent := range rapid.SliceOfN(genAgent, 1, 5).Draw(t, "agents") {
			if !target.Matches(agent, true) && !target.Matches(agent, false) {
				continue
			}
			found := false
			for _, key := range AgentKeys(agent) {
				found = found || indexed[key]
			}
			if !found {
				t.Fatalf("agent keys %q miss target keys %q", AgentKeys(agent), target.Keys())
			}
		}
	})
}

func TestCanonicalTargetReadsAsTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		target := drawTarget(t)
		canonical, err := json.Marshal(target)
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseTarget(canonical, DefaultLimits())
		if err != nil {
			t.Fatalf("%s: %v", canonical, err)
		}
		if diff := cmp.Diff(target, again, cmp.AllowUnexported(Target{})); diff != "" {
			t.Fatal(diff)
		}
		if twice, err := json.Marshal(again); err != nil || string(twice) != string(canonical) {
			t.Fatalf("%s became %s", canonical, twice)
		}
	})
}
