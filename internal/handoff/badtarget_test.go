package handoff

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// listOf is a JSON list of n items.
func listOf(n int, item string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(item+",", n), ",") + "]"
}

// keysOf are the n members of a JSON object, without its braces.
func keysOf(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"k%05d":%s`, i, value)
	}
	return b.String()[1:]
}

func TestAHugeTargetIsRefusedQuicklyNamingThePlace(t *testing.T) {
	t.Parallel()
	const many = 10_000
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	fallbacks := strings.Repeat(`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1,"fallback":`, many-1) + `{"strategy":"broadcast"}` + strings.Repeat("}", many-1)
	tests := map[string]struct {
		raw  string
		code Code
		says string
	}{
		"mixed in mixed, deeper than any reader":  {nested(many), CodeContentTooLarge, "target: 20001 levels of nesting"},
		"mixed in mixed, as deep as can be read":  {nested(many/2 - 1), CodeInvalidParams, "target.rules[0].rules[0].rules[0]: mixed stands inside mixed more than 3 deep"},
		"a fallback in a fallback":                {fallbacks, CodeInvalidParams, "target.fallback.strategy: direct_with_fallback is accepted only at the top"},
		"lists":                                   {deep(many), CodeInvalidParams, "target: a list came"},
		"lists, unclosed":                         {strings.Repeat("[", many), CodeInvalidParams, "target: is not valid JSON"},
		"lists, deeper than any reader":           {deep(many + 1), CodeContentTooLarge, "target: 10001 levels"},
		"lists as a name":                         {`{"strategy":"role","role":` + deep(many-1) + `}`, CodeInvalidParams, "target.role: a list came"},
		"lists as a value":                        {`{"strategy":"tag","selector":{"team":[` + deep(many-3) + `]}}`, CodeInvalidParams, "target.selector.team[0]: a list came"},
		"lists as a field that is none":           {`{"strategy":"broadcast","x":` + deep(many-1) + `}`, CodeInvalidParams, "target.x: is not a field here"},
		"rules":                                   {ruleList(many), CodeInvalidParams, "target.rules: more than 32 rules"},
		"rules of rules":                          {`{"strategy":"mixed","rules":` + listOf(100, ruleList(100)) + `}`, CodeInvalidParams, "target.rules: more than 32 rules"},
		"rules of a fallback":                     {`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1,"fallback":` + ruleList(many) + `}`, CodeInvalidParams, "target.fallback.rules: more than 32 rules"},
		"capabilities":                            {`{"strategy":"capability","capability":` + listOf(many, `"go"`) + `}`, CodeInvalidParams, "target.capability: 10000 values"},
		"keys of a flat selector":                 {flatKeys(many), CodeInvalidParams, "target.selector: 10000 keys"},
		"lines of a rich selector":                {`{"strategy":"tag","selector":` + listOf(many, `{"key":"k","operator":"Exists"}`) + `}`, CodeInvalidParams, "target.selector: 10000 keys"},
		"values of a selector":                    {valueList(many), CodeInvalidParams, "target.selector.k: 10000 values"},
		"fields that are none":                    {`{"strategy":"broadcast",` + keysOf(many, "1") + `}`, CodeInvalidParams, "target.k00000: is not a field here"},
		"fields that are none and no strategy":    {`{` + keysOf(many, "1") + `}`, CodeInvalidParams, "target.strategy: nothing came"},
		"one field again and again":               {`{` + strings.Repeat(`"strategy":"broadcast",`, many) + `"x":1}`, CodeInvalidParams, "target.strategy: is given twice"},
		"a strategy of a megabyte":                {`{"strategy":"` + strings.Repeat("direct", 170_000) + `"}`, CodeInvalidParams, "target.strategy: "},
		"a field of a megabyte":                   {`{"strategy":"direct","` + strings.Repeat("agent_id", 130_000) + `":"a"}`, CodeInvalidParams, "target["},
		"a handle of a megabyte":                  {`{"strategy":"direct","agent_id":"` + strings.Repeat("a", 1_000_000) + `"}`, CodeContentTooLarge, "target.agent_id: 1000000 bytes"},
		"a role of a megabyte":                    {`{"strategy":"role","role":"` + strings.Repeat("é", 500_000) + `"}`, CodeInvalidParams, "target.role: 500000 characters"},
		"a key of a megabyte":                     {`{"strategy":"tag","selector":{"` + strings.Repeat("k", 1_000_000) + `":["v"]}}`, CodeInvalidParams, "target.selector["},
		"a number of a megabyte":                  {`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":` + strings.Repeat("9", 1_000_000) + `}`, CodeInvalidParams, "target.fallback_after_seconds: "},
		"a fallback after more than can be added": {`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1e308}`, CodeInvalidParams, "target.fallback_after_seconds: "},
	}
	start := time.Now()
	for name, test := range tests {
		_, err := ParseTarget(json.RawMessage(test.raw), DefaultLimits())
		if CodeOf(err) != test.code || !strings.HasPrefix(messageOf(err), test.says) {
			t.Errorf("%s: %.300v", name, err)
			continue
		}
		wantRefusal(t, err, "target", test.code)
	}
	if took := time.Since(start); took > 20*time.Second { // they are some 20 ms on an idle machine
		t.Errorf("%d refusals took %v", len(tests), took)
	}
}

func TestAFaultDeepInsideATargetIsNamedWhereItStands(t *testing.T) {
	t.Parallel()
	rule := func(inner string) string {
		return `{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1,"fallback":{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"mixed","rules":[` + inner + `]}]}}`
	}
	const at = "target.fallback.rules[1].rules[0]"
	for inner, says := range map[string]string{
		`7`:                                     at + `: a number came, an object such as {"strategy":"broadcast"} is accepted`,
		`null`:                                  at + ": null came",
		`{}`:                                    at + ".strategy: nothing came",
		`{"strategy":null}`:                     at + ".strategy: null came",
		`{"strategy":["direct"]}`:               at + ".strategy: a list came",
		`{"strategy":"broadcast"}`:              at + ".strategy: broadcast is not accepted inside mixed",
		`{"strategy":"anyone"}`:                 at + `.strategy: "anyone" came; accepted are direct, capability`,
		`{"strategy":"direct","a":1}`:           at + ".a: is not a field here",
		`{"strategy":"direct","agent_id":true}`: at + ".agent_id: a boolean came",
		`{"strategy":"direct","agent_id":"frank","fallback":{"strategy":"broadcast"}}`:               at + ".fallback: is not a field here",
		`{"strategy":"capability","capability":"go","values":["x"]}`:                                 at + ".values: is not a field here",
		`{"strategy":"capability","capability":[["go"]]}`:                                            at + ".capability[0]: a list came",
		`{"strategy":"role","role":["r"]}`:                                                           at + ".role: a list came",
		`{"strategy":"role","role":""}`:                                                              at + ".role: an empty string came",
		`{"strategy":"tag","selector":null}`:                                                         at + ".selector: null came",
		`{"strategy":"tag","selector":{}}`:                                                           at + ".selector: an empty selector came",
		`{"strategy":"tag","selector":{"a b":["x",""]}}`:                                             at + `.selector["a b"][1]: an empty string came`,
		`{"strategy":"tag","selector":{"team":{"In":["x"]}}}`:                                        at + ".selector.team: an object came",
		`{"strategy":"tag","selector":{"team":null}}`:                                                at + ".selector.team: null came",
		`{"strategy":"tag","selector":[{"key":"k","operator":"Exists"},"team"]}`:                     at + ".selector[1]: a string came",
		`{"strategy":"tag","selector":[{"key":"k"}]}`:                                                at + ".selector[0].operator: nothing came",
		`{"strategy":"tag","selector":[{"key":["k"],"operator":"Exists"}]}`:                          at + ".selector[0].key: a list came",
		`{"strategy":"tag","selector":[{"key":"k","operator":"exists"}]}`:                            at + `.selector[0].operator: "exists" came; accepted are In, NotIn, Exists, DoesNotExist; did you mean Exists?`,
		`{"strategy":"tag","selector":[{"key":"k","operator":"Exists","values":["v"]}]}`:             at + ".selector[0].values: Exists takes no values",
		`{"strategy":"tag","selector":[{"key":"k","operator":"DoesNotExist","values":[]}]}`:          at + ".selector[0].values: DoesNotExist takes no values",
		`{"strategy":"tag","selector":[{"key":"k","operator":"NotIn","values":null}]}`:               at + ".selector[0].values: null came",
		`{"strategy":"tag","selector":[{"key":"k","operator":"In","values":{"v":1}}]}`:               at + ".selector[0].values: an object came",
		`{"strategy":"tag","selector":[{"key":"k","operator":"In","values":["v"],"effect":"only"}]}`: at + ".selector[0].effect: is not a field here",
		`{"strategy":"mixed","rules":{"strategy":"broadcast"}}`:                                      at + ".rules: an object came",
		`{"strategy":"mixed","rules":null}`:                                                          at + ".rules: null came",
	} {
		_, err := ParseTarget(json.RawMessage(rule(inner)), DefaultLimits())
		if err == nil {
			t.Errorf("%s was accepted", inner)
			continue
		}
		wantCode(t, err, CodeInvalidParams, says)
	}
}
