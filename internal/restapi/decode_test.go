package restapi

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"handclasp/internal/handoff"
)

func TestABodyIsReadStrictlyAndItsFaultsAreNamed(t *testing.T) {
	t.Parallel()
	type inner struct {
		Count int `json:"count"`
	}
	type body struct {
		Text    string         `json:"text"`
		On      bool           `json:"on"`
		List    []inner        `json:"list"`
		Payload jsontext.Value `json:"payload"`
	}
	deep := func(n int) string { return `{"payload":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	for _, c := range []struct{ raw, field, says string }{
		{`{"text":1}`, "text", "a number came; a string is accepted"},
		{`{"on":"yes"}`, "on", "a string came; true or false is accepted"},
		{`{"list":[{"count":1},{"count":1.5}]}`, "list[1].count", "whole number"},
		{`{"list":{"count":1}}`, "list", "an object came; a list is accepted"},
		{`{"list":[{"cnt":1}]}`, "list[0].cnt", "no such field"},
		{`{"TEXT":"x"}`, "TEXT", "no such field"},
		{`{"text":"a","text":"b"}`, "text", "twice"},
		{`{"text":"\ud800"}`, "text", "surrogate"},
		{"{\"text\":\"\xff\"}", "text", "UTF-8"},
		{`{"text":"\u0000"}`, "text", "NUL"},
		{`{"payload":{"a":"\ud800b"}}`, "payload", "surrogate"},
		{`{"text":"x"} {}`, "body", "not valid JSON"},
		{`{"text":`, "body", "not valid JSON"},
		{`[]`, "body", "a list came; an object is accepted"},
		{`null1`, "body", "not valid JSON"},
		{`{"a` + "\u202e" + `b":1}`, `"a\u202eb"`, "no such field"},
	} {
		var in body
		var e *handoff.Error
		if err := decodeOne(strings.NewReader(c.raw), &in); !errors.As(err, &e) || e.Code != handoff.CodeInvalidParams || e.Details["field"] != c.field || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %v; want %q of the field %s", c.raw, err, c.says, c.field)
		} else if strings.Contains(e.Message, "Go ") || strings.Contains(e.Message, "json:") {
			t.Errorf("%s: %s speaks of the program", c.raw, e.Message)
		}
	}
	var in body
	for _, fits := range []string{`{}`, deep(127), ` {"text":"x","list":[{"count":2}],"payload":{"a":[1,null]}} `} {
		if err := decodeOne(strings.NewReader(fits), &in); err != nil {
			t.Errorf("%.80s: %v", fits, err)
		}
	}
	for _, n := range []int{128, 9998, 100_000} {
		if err := decodeOne(strings.NewReader(deep(n)), &in); handoff.CodeOf(err) != handoff.CodeContentTooLarge && handoff.CodeOf(err) != handoff.CodeInvalidParams {
			t.Errorf("%d levels: %v", n, err)
		}
	}
	for _, nothing := range []string{"", " \n"} {
		if err := decodeOne(strings.NewReader(nothing), &in); !errors.Is(err, io.EOF) {
			t.Errorf("%q: %v", nothing, err)
		}
	}
}
