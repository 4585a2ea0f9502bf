package handoff

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"pgregory.net/rapid"
)

const family = "👨‍👩‍👧‍👦"

func TestTextWithNulOrBrokenUtf8NamesItsField(t *testing.T) {
	t.Parallel()
	if err := CheckText("summary", "héllo "+family, 100); err != nil {
		t.Error(err)
	}
	if err := CheckText("summary", strings.Repeat("a", 1000), 0); err != nil {
		t.Errorf("a limit of 0 refused: %v", err)
	}
	wantCode(t, CheckText("summary", "a\x00b", 10), CodeInvalidParams, "summary")
	wantCode(t, CheckText("summary", "a\xffb", 10), CodeInvalidParams, "summary")
	wantCode(t, CheckText("summary", "éé", 3), CodeContentTooLarge, "summary")
}

func TestPreviewKeepsShortTextAndCutsAt240Characters(t *testing.T) {
	t.Parallel()
	a239, long := strings.Repeat("a", 239), "e"+strings.Repeat("\u0301", 300)
	tests := []struct{ in, want string }{
		{"", ""},
		{"short", "short"},
		{strings.Repeat("é", 240), strings.Repeat("é", 240)},
		{strings.Repeat("é", 241), strings.Repeat("é", 240)},
		{a239 + "bc", a239 + "b"},
		{a239 + family + " more", a239},
		{strings.Repeat("a", 233) + family + "more", strings.Repeat("a", 233) + family},
		{a239 + "\r\nmore", a239},
		{long + "tail", "…"},
		{"a" + long, "a"},
	}
	for _, test := range tests {
		if got := Preview(test.in); got != test.want {
			t.Errorf("Preview(%.40q…) = %d characters, want %d", test.in, utf8.RuneCountInString(got), utf8.RuneCountInString(test.want))
		}
	}
}

func TestPreviewNeverSplitsACluster(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{"a", " ", "é", "e\u0301", family, "🇩🇪", "🇩", "\r\n", "\r", "\u200d", "한", "ᄒ", "ᅡ", "क्ष", strings.Repeat("\u0301", 100), "\xff"})
	rapid.Check(t, func(t *rapid.T) {
		// Most of the length is dull, so that the pieces fall on the cut.
		s := strings.Repeat("a", rapid.IntRange(0, 245).Draw(t, "dull")) + strings.Join(rapid.SliceOf(piece).Draw(t, "pieces"), "")
		got := Preview(s)
		if !strings.HasPrefix(s, got) || (s != "" && got == "") {
			t.Fatalf("%q is no beginning", got)
		}
		boundary, first := len(s) == 0, 0
		for g := uniseg.NewGraphemes(s); g.Next(); {
			from, to := g.Positions()
			if from == 0 {
				first = to
			}
			boundary = boundary || to == len(got)
		}
		if !boundary {
			t.Fatalf("the preview ends inside a cluster: %q", got)
		}
		if utf8.RuneCountInString(got) > 240 && len(got) > first {
			t.Fatalf("%d characters", utf8.RuneCountInString(got))
		}
	})
}

func TestRawJsonIsCheckedWithoutBeingRead(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		`{}`, `null`, `"x"`, ` [1.10, 12345678901234567890] `, `{"a":"\ud83d\ude00"}`, `{"a":"\\ud800"}`,
		`{"a":"😀"}`, `{"a":"\"\\"}`, `"\u00e9\n"`, `[[[[]]]]`,
	} {
		if err := CheckRawJSON("payload", json.RawMessage(raw), 100, 4); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	bad := []struct {
		raw  string
		code Code
	}{
		{``, CodeInvalidParams},
		{`{`, CodeInvalidParams},
		{`{} {}`, CodeInvalidParams},
		{`nul`, CodeInvalidParams},
		{`"\u0000"`, CodeInvalidParams},
		{`{"a\u0000":1}`, CodeInvalidParams},
		{`"\ud800"`, CodeInvalidParams},
		{`"\uDC00 x"`, CodeInvalidParams},
		{`"\ud83d\n"`, CodeInvalidParams},
		{`"\ud83d\ud83d"`, CodeInvalidParams},
		{`["x",{"\ud800":1}]`, CodeInvalidParams},
		{"\"\xff\"", CodeInvalidParams},
		{"\"a\x00\"", CodeInvalidParams},
		{`[[[[[]]]]]`, CodeContentTooLarge},
		{strings.Repeat("[", 50), CodeContentTooLarge},
		{`"` + strings.Repeat("a", 99) + `"`, CodeContentTooLarge},
	}
	for _, test := range bad {
		wantCode(t, CheckRawJSON("payload", json.RawMessage(test.raw), 100, 4), test.code, "payload")
	}
	endless := json.RawMessage(strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000))
	wantCode(t, CheckRawJSON("payload", endless, 0, 0), CodeContentTooLarge, "payload")
}

func TestFaultInAPayloadIsNeverEchoed(t *testing.T) {
	t.Parallel()
	err := CheckRawJSON("payload", json.RawMessage(`{"secret-key":"secret-value\ud800"}`), 0, 0)
	wantCode(t, err, CodeInvalidParams, "payload")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error repeats the payload: %v", err)
	}
}

func TestFaultInTheArgumentsNamesTheArgument(t *testing.T) {
	t.Parallel()
	for raw, field := range map[string]string{
		`{"to":"x","summary":"a\u0000b"}`:                   "summary: ",
		`{"to":{"a":[1,"b"]},"metadata":{"k":["x\ud800"]}}`: "metadata: ",
		`{"bad\ud800":1}`:                                   "arguments: ",
		`["x\ud800"]`:                                       "arguments: ",
		`{"od d":"\ud800"}`:                                 `["od d"]: `,
	} {
		err := CheckRawJSON("", json.RawMessage(raw), 0, 0)
		wantCode(t, err, CodeInvalidParams, field)
	}
}

func TestNoJsonInputPanics(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{`{`, `}`, `[`, `]`, `"`, `\`, `\u`, `\ud800`, `\udc00`, `00`, `:`, `,`, `a`, `1`, "\xff", "\x00", `"k":`, `null`}))
		raw := json.RawMessage(strings.Join(pieces.Draw(t, "pieces"), ""))
		lim := DefaultLimits()
		for _, field := range []string{"", "payload"} {
			err := CheckRawJSON(field, raw, 0, 0)
			if err == nil && !json.Valid(raw) {
				t.Fatalf("accepted %q", raw)
			}
		}
		_, _ = ParseTarget(raw, lim)
		_, _ = ParseVerifyBy(raw, lim)
		_, _ = ParseArtifacts("artifacts", []json.RawMessage{raw}, lim)
	})
}

// TestCleanJsonSurvivesDecoding: what passes is decoded without a single repair, whichever
// way its strings were spelt.
func TestCleanJsonSurvivesDecoding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SampledFrom([]string{"a", `\\`, `\"`, `\n`, `\ud83d`, `\ude00`, `\u0041`, `\u0000`, "é", "\xff", "\xc3"})
		raw := `"` + strings.Join(rapid.SliceOfN(piece, 0, 8).Draw(t, "pieces"), "") + `"`
		var s string
		if json.Unmarshal([]byte(raw), &s) != nil {
			return
		}
		// None of the pieces means U+FFFD, so where it shows up something was repaired.
		dirty := strings.ContainsAny(s, "\x00\uFFFD")
		if err := CheckRawJSON("f", json.RawMessage(raw), 0, 0); (err != nil) != dirty {
			t.Fatalf("%s: dirty %v, got %v", raw, dirty, err)
		}
	})
}

func TestIntegersMayBeWrittenAsFloats(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]int64{`5`: 5, `5.0`: 5, ` 6e1 `: 60, `-3`: -3, `0`: 0} {
		if got, ok := parseInteger(json.RawMessage(raw)); !ok || got != want {
			t.Errorf("%s = %d, %v", raw, got, ok)
		}
	}
	for _, raw := range []string{`5.5`, `"5"`, `null`, ``, `1e400`, `9007199254740993`, `[5]`, `true`} {
		if got, ok := parseInteger(json.RawMessage(raw)); ok {
			t.Errorf("%s was read as %d", raw, got)
		}
	}
}
