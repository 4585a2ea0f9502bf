package mcpserver_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"handclasp/internal/handoff"
)

// creating is a refused handoff_create by anna with one argument gone wrong. The field defaults to
// its name.
func creating(argument, value, field string, says ...string) refusal {
	if field == "" {
		field = argument
	}
	return refusal{"anna", "handoff_create", `"` + argument + `":` + value, wrong, field, says}
}

func (r refusal) with(code handoff.Code) refusal { r.code = code; return r }

func target(value, field string, says ...string) refusal {
	if field != "" {
		field = "target." + field
	}
	return creating("target", value, field, says...)
}

// many repeats a piece of JSON in a list; # is its number.
func many(n int, piece string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.ReplaceAll(piece, "#", strconv.Itoa(i))
	}
	return "[" + strings.Join(list, ",") + "]"
}

// inside is a list without its brackets.
func inside(list string) string { return list[1 : len(list)-1] }

func nestedIn(n int, inside string) string {
	return strings.Repeat(`{"strategy":"mixed","rules":[`, n) + inside + strings.Repeat("]}", n)
}

func TestEveryMalformedTargetIsRefusedNamingItsPlace(t *testing.T) {
	t.Parallel()
	fallback := func(more string) string {
		return `{"strategy":"direct_with_fallback","agent_id":"frank@acme"` + more + `}`
	}
	tags := func(selector string) string { return `{"strategy":"tag","selector":` + selector + `}` }
	capability := func(value string) string { return `{"strategy":"capability","capability":` + value + `}` }
	refuseAll(t, []refusal{
		target(`7`, "", "a number came", `{"strategy":"broadcast"}`),
		target(`true`, "", "came"),
		target(`null`, "", "required"),
		target(`"left out"`, "", "required"),
		target(`[]`, "", "came"),
		target(`[{"strategy":"broadcast"}]`, "", "came"),
		target(`"broadcast"`, "", "a string that holds no JSON object"),
		target(`"{\"strategy\":"`, "", "a string that holds no JSON object"),
		target(`"{\"strategy\":\"nobody\"}"`, "strategy", "nobody", "broadcast"),
		target(`{}`, "strategy", "required"),
		target(`{"strategy":7}`, "strategy", "a number"),
		target(`{"strategy":null}`, "strategy", "required"),
		target(`{"strategy":""}`, "strategy"),
		target(`{"strategy":"everyone"}`, "strategy", "everyone", "direct", "capability", "role", "tag", "broadcast", "mixed", "direct_with_fallback"),
		target(`{"strategy":"capabilty","capability":"code"}`, "strategy", "did you mean capability?"),
		target(`{"strategy":"broadcast","strategy":"role","role":"r"}`, "strategy", "twice"),
		target(`{"strategy":"broadcast","agent_id":"frank@acme"}`, "agent_id", "strategy"),
		target(`{"strategy":"broadcast","Strategy":"broadcast"}`, "Strategy"),
		target(`{"strategy":"broadcast","\u0000":1}`, "", "NUL"),

		target(`{"strategy":"direct"}`, "agent_id"),
		target(`{"strategy":"direct","agent_id":7}`, "agent_id", "a number"),
		target(`{"strategy":"direct","agent_id":""}`, "agent_id"),
		target(`{"strategy":"direct","agent_id":null}`, "agent_id"),
		target(`{"strategy":"direct","agent_id":["frank@acme"]}`, "agent_id", "a list"),
		target(`{"strategy":"direct","agent_id":"frank@acme","role":"r"}`, "role", "agent_id"),
		target(`{"strategy":"direct","agentid":"frank@acme"}`, "agentid", "did you mean agent_id?"),
		target(`{"strategy":"direct","agent_id":"frnak@acme"}`, "agent_id", "frnak@acme", "did you mean frank@acme").with(handoff.CodeRecipientNotFound),
		target(`{"strategy":"direct","agent_id":"`+text(257)+`"}`, "agent_id", "257", "256").with(large),
		target(`{"strategy":"direct","agent_id":"a\u0000"}`, "agent_id", "NUL"),
		target(`{"strategy":"direct","agent_id":"\ud800"}`, "agent_id", "surrogate"),

		target(capability(`"cod"`), "", `"cod"`, "did you mean code?"),
		target(capability(`["code","cod","Review"]`), "", `"cod"`, `"Review"`),
		target(capability(`[]`), "capability", "empty list"),
		target(capability(`{}`), "capability", "an object"),
		target(capability(`""`), "capability"),
		target(capability(`" "`), "capability"),
		target(capability(`7`), "capability", "a number"),
		target(capability(`[7]`), "capability[0]", "a number"),
		target(capability(`["code",[]]`), "capability[1]", "a list"),
		target(capability(many(21, `"code#"`)), "capability", "21", "20"),
		target(capability(`"`+text(257)+`"`), "capability", "257", "256"),
		target(`{"strategy":"capability"}`, "capability"),
		target(`{"strategy":"role"}`, "role"),
		target(`{"strategy":"role","role":""}`, "role"),
		target(`{"strategy":"role","role":["a"]}`, "role", "a list"),
		target(`{"strategy":"role","role":"`+text(257)+`"}`, "role", "257"),

		target(`{"strategy":"tag"}`, "selector"),
		target(tags(`{}`), "selector", "empty selector"),
		target(tags(`[]`), "selector", "empty selector"),
		target(tags(`"team"`), "selector", "a string"),
		target(tags(`null`), "selector"),
		target(tags(`{"team":[]}`), "selector.team", "empty list"),
		target(tags(`{"team":7}`), "selector.team", "a number"),
		target(tags(`{"team":{"a":1}}`), "selector.team", "an object"),
		target(tags(`{"team":["platform",7]}`), "selector.team[1]", "a number"),
		target(tags(`{"":["platform"]}`), `selector[""]`, "empty name"),
		target(tags(`{"tem":["platform"]}`), "", `"tem"`, "did you mean team?"),
		target(tags(`{"team":["platfrm"]}`), "", `platfrm`, "platform"),
		target(tags(`{"team":["platform"],"team":["platform"]}`), "selector.team", "twice"),
		target(tags(`{"team":`+many(21, `"v#"`)+`}`), "selector.team", "21", "20"),
		target(tags("{"+inside(many(17, `"k#":["v"]`))+"}"), "selector", "17", "16"),
		target(tags(`[7]`), "selector[0]", "a number"),
		target(tags(`[{"operator":"Exists"}]`), "selector[0].key"),
		target(tags(`[{"key":"team"}]`), "selector[0].operator"),
		target(tags(`[{"key":"team","operator":"Near","values":["a"]}]`), "selector[0].operator", "Near", "In, NotIn, Exists, DoesNotExist"),
		target(tags(`[{"key":"team","operator":"notin","values":["a"]}]`), "selector[0].operator", "did you mean NotIn?"),
		target(tags(`[{"key":"team","operator":"Exists","values":["platform"]}]`), "selector[0].values", "leave"),
		target(tags(`[{"key":"team","operator":"DoesNotExist","values":[]}]`), "selector[0].values", "leave"),
		target(tags(`[{"key":"team","operator":"In"}]`), "selector[0].values"),
		target(tags(`[{"key":"team","operator":"NotIn","values":[]}]`), "selector[0].values", "empty list"),
		target(tags(`[{"key":"team","operator":"Exists","value":"a"}]`), "selector[0].value", "did you mean values?"),
		target(tags(many(17, `{"key":"team","operator":"Exists"}`)), "selector", "17", "16"),

		target(`{"strategy":"mixed"}`, "rules"),
		target(`{"strategy":"mixed","rules":[]}`, "rules", "empty list"),
		target(`{"strategy":"mixed","rules":{}}`, "rules", "an object"),
		target(`{"strategy":"mixed","rules":[7]}`, "rules[0]", "a number"),
		target(`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"broadcast"}]}`, "rules[1].strategy", "broadcast"),
		target(`{"strategy":"mixed","rules":[{"strategy":"role","role":"r","role":"s"}]}`, "rules[0].role", "twice"),
		target(`{"strategy":"mixed","rules":[{"strategy":"nobody"}]}`, "rules[0].strategy", "nobody"),
		target(`{"strategy":"mixed","rules":[`+fallback(`,"fallback_after_seconds":5`)+`]}`, "rules[0].strategy", "top"),
		target(`{"strategy":"mixed","rules":`+many(33, `{"strategy":"role","role":"r#"}`)+`}`, "rules", "32"),
		target(`{"strategy":"mixed","rules":`+many(10_000, `{"strategy":"role","role":"r#"}`)+`}`, "rules", "32"),
		target(`{"strategy":"mixed","rules":[{"strategy":"mixed","rules":`+many(31, `{"strategy":"role","role":"r#"}`)+`},`+inside(many(31, `{"strategy":"role","role":"s#"}`))+`]}`, "rules[0].rules", "32"),
		target(nestedIn(4, `{"strategy":"role","role":"r"}`), "rules[0].rules[0].rules[0]", "3 deep"),
		target(nestedIn(60, `{"strategy":"role","role":"r"}`), "rules[0].rules[0].rules[0]", "3 deep"),
		target(nestedIn(300, `7`), "rules", "nests deeper"),
		target(`{"strategy":"mixed","rules":`+strings.Repeat("[", 900)+strings.Repeat("]", 900)+`}`, "rules", "nests deeper"),

		target(fallback(``), "fallback_after_seconds"),
		target(fallback(`,"fallback_after_seconds":0`), "fallback_after_seconds", "0", "2592000"),
		target(fallback(`,"fallback_after_seconds":2592001`), "fallback_after_seconds", "2592001"),
		target(fallback(`,"fallback_after_seconds":1.5`), "fallback_after_seconds", "1.5"),
		target(fallback(`,"fallback_after_seconds":1e99`), "fallback_after_seconds"),
		target(fallback(`,"fallback_after_seconds":"soon"`), "fallback_after_seconds"),
		target(fallback(`,"fallback_after_seconds":5,"fallback":7`), "fallback", "a number"),
		target(fallback(`,"fallback_after_seconds":5,"fallback":{"strategy":"nobody"}`), "fallback.strategy", "nobody"),
		target(fallback(`,"fallback_after_seconds":5,"fallback":`+fallback(`,"fallback_after_seconds":5`)), "fallback.strategy", "top"),
		target(`{"strategy":"direct_with_fallback","agent_id":"no handle!","fallback_after_seconds":5}`, "agent_id", "handle"),
	})
}

func TestEveryMalformedPartOfAnOfferIsRefusedNamingItself(t *testing.T) {
	t.Parallel()
	criteria := func(value, field string, says ...string) refusal {
		return creating("acceptance_criteria", value, field, says...)
	}
	contract := func(value, field string, says ...string) refusal {
		if field == "" {
			field = "verify_by"
		}
		return refusal{"anna", "handoff_create", `"acceptance_criteria":["c"],"verify_by":` + value, wrong, field, says}
	}
	depends := func(value, field string, says ...string) refusal {
		return creating("depends_on", value, field, says...)
	}
	unknown := func(id string, at int) refusal {
		list := `["$open$","` + id + `"]`
		if at == 0 {
			list = `["` + id + `"]`
		}
		return depends(list, fmt.Sprintf("depends_on[%d]", at), "no handoff").with(handoff.CodeDependencyNotFound)
	}
	root := func(value string, says ...string) refusal {
		return creating("project_root", value, "", says...).with(handoff.CodeWorkspaceUnresolved)
	}
	emptyRoot := root(`""`, "came empty")
	from := func(value string, says ...string) refusal {
		return creating("from_agent_id", value, "", says...).with(handoff.CodePermissionDenied)
	}
	refuseAll(t, []refusal{
		emptyRoot,
		criteria(`[""]`, "acceptance_criteria[0]", "empty"),
		criteria(`["  \t"]`, "acceptance_criteria[0]", "empty"),
		criteria(`["a","b","a"]`, "acceptance_criteria[2]", "repeats acceptance_criteria[0]"),
		criteria(`["a"," a "]`, "acceptance_criteria[1]", "repeats"),
		criteria(many(21, `"c#"`), "", "21", "20").with(large),
		criteria(`["`+text(501)+`"]`, "acceptance_criteria[0]", "501", "500"),
		criteria(`["`+text(4000)+`"]`, "acceptance_criteria[0]", "4000").with(large),
		criteria(`[7]`, "acceptance_criteria[0]", "a number"),
		criteria(`7`, "", "a number"),
		criteria(`{"a":1}`, "", "an object"),
		criteria(`["a",null]`, "acceptance_criteria[1]", "null"),
		criteria(`["a\u0000"]`, "acceptance_criteria[0]", "NUL"),

		creating("verify_by", `{"kind":"creator"}`, "", "without acceptance_criteria"),
		creating("verify_by", `{"kind":"agent","agent_id":"vera@acme"}`, "", "without acceptance_criteria"),
		contract(`"creator"`, "", "a string that holds no JSON object"),
		contract(`7`, "", "a number"),
		contract(`[]`, "", "came"),
		contract(`{}`, "verify_by.kind"),
		contract(`{"kind":"anyone"}`, "verify_by.kind", "anyone", "creator, agent, capability"),
		contract(`{"kind":"agnt","agent_id":"vera@acme"}`, "verify_by.kind", "did you mean agent?"),
		contract(`{"kind":"creator","agent_id":"vera@acme"}`, "verify_by.agent_id"),
		contract(`{"kind":"creator","feedback":1}`, "verify_by.feedback"),
		contract(`{"kind":"agent"}`, "verify_by.agent_id"),
		contract(`{"kind":"agent","agent_id":7}`, "verify_by.agent_id", "a number"),
		contract(`{"kind":"agent","agent_id":""}`, "verify_by.agent_id"),
		contract(`{"kind":"agent","agent_id":"vera@acme","capability":"review"}`, "verify_by.capability"),
		contract(`{"kind":"agent","agent_id":"vear@acme"}`, "verify_by.agent_id", "vear@acme", "did you mean vera@acme?").with(handoff.CodeRecipientNotFound),
		contract(`{"kind":"capability"}`, "verify_by.capability"),
		contract(`{"kind":"capability","capability":["review"]}`, "verify_by.capability", "a list"),
		contract(`{"kind":"capability","capability":"revieww"}`, "verify_by.capability", "revieww", "did you mean review?"),
		{"anna", "handoff_create", `"acceptance_criteria":["c"],"verify_by":{"kind":"agent","agent_id":"frank@acme"},"target":{"strategy":"direct","agent_id":"FRANK@acme"}`, wrong, "verify_by", []string{"another"}},
		{"anna", "handoff_create", `"acceptance_criteria":["c"],"target":{"strategy":"direct","agent_id":"anna@acme"}`, wrong, "verify_by", []string{"another"}},

		unknown("$nowhere$", 0), unknown("$hidden$", 0), unknown("$elsewhere$", 1), unknown("$thread$", 1), unknown("x", 0), unknown("../../etc", 1), unknown(strings.Repeat("0", 64), 0),
		depends(`["$cancelled$"]`, "", "1 of 1").with(handoff.CodeDependencyNotMet),
		depends(`["$open$","$rejected$","$expired$","$done$"]`, "", "2 of 4").with(handoff.CodeDependencyNotMet),
		depends(`["$open$","$held$","$open$"]`, "depends_on[2]", "repeats depends_on[0]"),
		depends(many(21, `"id#"`), "", "21", "20").with(large),
		depends(`[""]`, "depends_on[0]"),
		depends(`[7]`, "depends_on[0]", "a number"),
		depends(`{"id":"x"}`, "", "an object"),
		depends(`["`+text(65)+`"]`, "depends_on[0]", "65").with(large),
		depends(`["a\u0000"]`, "depends_on[0]", "NUL"),

		creating("trace_id", `"`+text(129)+`"`, "", "129", "128").with(large),
		creating("trace_id", `"   "`, "", "spaces"),
		creating("trace_id", `7`, "", "a number"),
		creating("trace_id", `"a\u0000"`, "", "NUL"),
		creating("session_id", `7`, "", "a number"),
		creating("session_id", `"`+text(65)+`"`, "", "no session").with(handoff.CodeSessionRequired),
		creating("expires_in_seconds", `59`, "", "59", "60"),
		creating("expires_in_seconds", `31536001`, "", "31536001", "31536000"),
		creating("expires_in_seconds", `1.5`, "", "1.5"),
		creating("expires_in_seconds", `-60`, "", "-60"),
		creating("expires_in_seconds", `"soon"`, "", "soon"),
		creating("expires_in_seconds", `1e400`, ""),
		creating("priority", `"urgent"`, "", "urgent", "low, normal, high"),
		creating("priority", `1`, "", "a number"),
		creating("visibility", `"secret"`, "", "secret", "public, eligible, private"),
		creating("visibility", `"publik"`, "", "did you mean public?"),
		creating("visibility", `null`, "", "required"),
		creating("visibility", `["public"]`, "", "a list"),
		creating("idempotency_key", `"`+text(256)+`"`, "", "256", "255").with(large),
		creating("idempotency_key", `"a\u0000"`, "", "NUL"),
		creating("idempotency_key", `"used"`, "", `"used"`, "new key").with(handoff.CodeDuplicateKey),

		creating("project_root", `null`, "", "required"),
		creating("project_root", `7`, "", "a number"),
		creating("project_root", `["/srv/shop"]`, "", "a list"),
		creating("project_root", `"/srv/\u0000"`, "", "NUL"),
		creating("project_root", `"/srv/\udfff"`, "", "surrogate"),
		creating("project_root", `"/`+text(4096)+`"`, "", "4097", "4096").with(large),
		root(`" "`), root(`"srv/shop"`, "srv/shop"), root(`"./shop"`), root(`"../shop"`), root(`"~"`), root(`"~/shop"`), root(`"$HOME/shop"`), root(`"shop"`), root(`"C:"`, "C:"), root(`"C:shop"`),
		root(`"1:\\shop"`), root(`"\\shop"`), root(`"\\\\server"`), root(`"\\\\?\\shop"`), root(`"\\\\.\\C:\\shop"`), root(`"\\\\..\\share"`), root(`"https://"`), root(`"://host/x"`), root(`"file:/srv/shop"`),
		root(`"https://user:SECRET@host/shop"`, "password"), root(`" /srv/shop"`), root(`"%2Fsrv"`), root(`"\uff0fsrv"`),

		from(`"frank@acme"`, "frank@acme", "anna@acme"), from(`"ANNA@globex"`), from(`"nobody@acme"`), from(`"me"`), from(`"operator"`), from(`"anna"`), from(`"anna@acme "`), from(`"*"`), from(`"\u0430nna@acme"`),
		creating("from_agent_id", `""`, "", "empty"),
		creating("from_agent_id", `null`, "", "required"),
		creating("from_agent_id", `7`, "", "a number"),
		creating("from_agent_id", `"`+text(257)+`"`, "", "257").with(large),
		creating("agent_id", `"anna@acme"`, "", "did you mean from_agent_id?"),
	})
}
