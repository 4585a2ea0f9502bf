package mcpserver

import (
	"bytes"
	"encoding/json"
	"testing"
)

func TestSchemaIsCompactInOrderAndClosed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		params []param
		want   string
	}{
		{"no parameters", nil, `{"type":"object","properties":{},"additionalProperties":false}`},
		{
			"scalars",
			[]param{
				str("to", "Who <to>.").match(`^a@b$`, "a@b").limit(1, 9).need(),
				enum("intent", "What.", "inform", "ask").need(),
				integer("limit", "Page.", 1, 200).fallback(50),
				number("n", "").atLeast(0),
				boolean("b", "Yes?"),
				raw("payload", "Any."),
			},
			`{"type":"object","properties":{"to":{"type":"string","description":"Who <to>.","pattern":"^a@b$","minLength":1,"maxLength":9},` +
				`"intent":{"type":"string","description":"What.","enum":["inform","ask"]},` +
				`"limit":{"type":"integer","description":"Page.","minimum":1,"maximum":200,"default":50},` +
				`"n":{"type":"number","minimum":0},"b":{"type":"boolean","description":"Yes?"},"payload":{"description":"Any."}},` +
				`"required":["to","intent"],"additionalProperties":false}`,
		},
		{
			"nested",
			[]param{
				object("metadata", "Free.").open(),
				object("closed", "Fixed.", str("a", "").need()),
				list("artifacts", "Typed.", object("", "", enum("type", "", "link", "note", "ref").need(), str("url", ""), str("path", "")).open().
					when("type", "link", "url").when("type", "note").when("type", "ref", "path")).items(1, 50),
			},
			`{"type":"object","properties":{"metadata":{"type":"object","description":"Free."},` +
				`"closed":{"type":"object","description":"Fixed.","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false},` +
				`"artifacts":{"type":"array","description":"Typed.","items":{"type":"object","properties":{"type":{"type":"string","enum":["link","note","ref"]},"url":{"type":"string"},"path":{"type":"string"}},"required":["type"],` +
				`"allOf":[{"if":{"properties":{"type":{"const":"link"}}},"then":{"required":["url"]}},{"if":{"properties":{"type":{"const":"ref"}}},"then":{"required":["path"]}}]},"minItems":1,"maxItems":50}},` +
				`"additionalProperties":false}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := string(schema(c.params)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEverySampleSchemaIsValidCompactJSON(t *testing.T) {
	t.Parallel()
	for name, params := range testTools {
		s := schema(params)
		var compact bytes.Buffer
		if err := json.Compact(&compact, s); err != nil || compact.Len() != len(s) {
			t.Errorf("%s: %s, %v", name, s, err)
		}
	}
}

func TestTablesThatContradictThemselvesPanicAtStart(t *testing.T) {
	t.Parallel()
	for name, params := range map[string][]param{
		"twice":             {str("a", ""), str("A", "")},
		"unnamed":           {str("", "")},
		"default":           {str("a", "").need().fallback("x")},
		"no such field":     {object("o", "", enum("t", "", "x").need()).when("t", "x", "y")},
		"no such value":     {object("o", "", enum("t", "", "x").need()).when("t", "y")},
		"optional switch":   {object("o", "", enum("t", "", "x")).when("t", "x")},
		"too many":          make([]param, maxParams+1),
		"within list items": {list("l", "", object("", "", str("a", ""), str("a", "")))},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			schema(params)
		}()
	}
}

func TestRefiningAParameterLeavesTheOriginalAlone(t *testing.T) {
	t.Parallel()
	base := object("o", "", enum("t", "", "x", "y").need(), str("a", "")).when("t", "x", "a")
	_ = base.when("t", "y", "a").need()
	if len(base.cases) != 1 || base.required {
		t.Errorf("changed: %+v", base)
	}
}

func TestNearestFindsWhatWasProbablyMeant(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		word  string
		known []string
		want  string
	}{
		{"vissibility", []string{"payload", "visibility"}, "visibility"},
		{"question", []string{"inform", "ask_question", "propose_action"}, "ask_question"},
		{"ask", []string{"inform", "ask_question", "propose_action"}, "ask_question"},
		{"ask_question_please", []string{"inform", "ask_question"}, "ask_question"},
		{"threadId", []string{"body", "thread_id"}, "thread_id"},
		{"id", []string{"body", "thread_id"}, "thread_id"},
		{"ot", []string{"to"}, "to"},
		{"cc", []string{"thread_id", "body"}, ""},
		{"", []string{"body"}, ""},
		{"zzz", nil, ""},
	} {
		if got := nearest(c.word, c.known); got != c.want {
			t.Errorf("nearest(%q) is %q, want %q", c.word, got, c.want)
		}
	}
}
