package handoff

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func raws(list ...string) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i, s := range list {
		out[i] = json.RawMessage(s)
	}
	return out
}

func TestEveryTypeOfArtifactIsRead(t *testing.T) {
	t.Parallel()
	got, err := ParseArtifacts("artifacts", raws(
		`{"type":"file_diff","path":"src/a.ts","diff":"@@ -1 +1 @@\n-a\n+b"}`,
		`{"type":"file_ref","path":"/abs/openapi.yaml","git_sha":"a1b2c3d","lines":[42, 67.0]}`,
		`{"type":"test_command","command":"pnpm test","cwd":""}`,
		`{"type":"api_contract","schema_url":"https://relay.acme.dev/openapi.json","inline":{"n":1.10}}`,
		`{"type":"api_contract"}`,
		`{"type":"link","url":"HTTP://example.com/x","title":null}`,
	), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	want := []Artifact{
		{Type: "file_diff", Path: "src/a.ts", Diff: "@@ -1 +1 @@\n-a\n+b"},
		{Type: "file_ref", Path: "/abs/openapi.yaml", GitSHA: "a1b2c3d", Lines: []int64{42, 67}},
		{Type: "test_command", Command: "pnpm test"},
		{Type: "api_contract", SchemaURL: "https://relay.acme.dev/openapi.json", Inline: json.RawMessage(`{"n":1.10}`)},
		{Type: "api_contract"},
		{Type: "link", URL: "HTTP://example.com/x"},
	}
	for i := range got {
		got[i].Raw = nil
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if none, err := ParseArtifacts("artifacts", nil, DefaultLimits()); err != nil || none == nil || len(none) != 0 {
		t.Errorf("no artifacts gave %v, %v; want an empty list", none, err)
	}
}

func TestArtifactKeepsExtraFieldsAndNumberLiterals(t *testing.T) {
	t.Parallel()
	raw := ` { "type" : "link", "url": "https://e.x/<a>", "n": 12345678901234567890, "f": 1.10, "x": {"b": 1, "a": "\u00e9"} } `
	want := `{"type":"link","url":"https://e.x/<a>","n":12345678901234567890,"f":1.10,"x":{"b":1,"a":"\u00e9"}}`
	got, err := ParseArtifacts("artifacts", raws(raw), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if string(got[0].Raw) != want {
		t.Errorf("raw is %s", got[0].Raw)
	}
	stored, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var again []Artifact
	if err := json.Unmarshal(stored, &again); err != nil || again[0].URL != "https://e.x/<a>" {
		t.Errorf("read back %+v, %v", again, err)
	}
	if !strings.Contains(string(stored), `12345678901234567890,"f":1.10`) {
		t.Errorf("stored as %s", stored)
	}
}

func TestBadArtifactIsRefusedNamingTheField(t *testing.T) {
	t.Parallel()
	lim := DefaultLimits()
	lim.Diff, lim.Metadata = 100, 50
	tests := []struct {
		raw, field string
		code       Code
	}{
		{`null`, "artifacts[1]: null came", CodeInvalidParams},
		{`"x"`, "artifacts[1]: a string came", CodeInvalidParams},
		{`{`, "artifacts[1]", CodeInvalidParams},
		{`{}`, "artifacts[1].type", CodeInvalidParams},
		{`{"type":"lnik","url":"https://e.x"}`, "did you mean link?", CodeInvalidParams},
		{`{"type":"link"}`, "artifacts[1].url: nothing came", CodeInvalidParams},
		{`{"type":"link","URL":"https://e.x"}`, "artifacts[1].url", CodeInvalidParams},
		{`{"type":"link","url":"https://e.x","url":"https://f.x"}`, "artifacts[1].url: is given twice", CodeInvalidParams},
		{`{"type":"link","url":"javascript:alert(1)"}`, "artifacts[1].url", CodeInvalidParams},
		{`{"type":"link","url":"ftp://e.x"}`, `"ftp://e.x" came, an absolute http or https URL`, CodeInvalidParams},
		{`{"type":"link","url":"/x"}`, "artifacts[1].url", CodeInvalidParams},
		{`{"type":"link","url":"https://:80/x"}`, "artifacts[1].url", CodeInvalidParams},
		{`{"type":"link","url":"https://e.x/\n"}`, "artifacts[1].url", CodeInvalidParams},
		{`{"type":"link","url":"https://e.x","title":7}`, "artifacts[1].title: a number came", CodeInvalidParams},
		{`{"type":"link","url":"https://e.x","title":"a\u0000"}`, "artifacts[1]", CodeInvalidParams},
		{`{"type":"link","url":"https://e.x","x":["\ud800"]}`, "artifacts[1]", CodeInvalidParams},
		{`{"type":"link","url":"https://e.x","x":"` + strings.Repeat("a", 50) + `"}`, "bytes of extra fields", CodeContentTooLarge},
		{`{"type":"file_diff","path":" ","diff":"x"}`, "artifacts[1].path", CodeInvalidParams},
		{`{"type":"file_diff","path":"a"}`, "artifacts[1].diff", CodeInvalidParams},
		{`{"type":"file_diff","path":"a","diff":"` + strings.Repeat("a", 101) + `"}`, "artifacts[1].diff", CodeContentTooLarge},
		{`{"type":"file_ref","path":"` + strings.Repeat("a", 1025) + `"}`, "artifacts[1].path", CodeContentTooLarge},
		{`{"type":"file_ref","path":"a","lines":[1]}`, "artifacts[1].lines", CodeInvalidParams},
		{`{"type":"file_ref","path":"a","lines":[1,-2]}`, "artifacts[1].lines", CodeInvalidParams},
		{`{"type":"file_ref","path":"a","lines":[1,"2"]}`, "artifacts[1].lines", CodeInvalidParams},
		{`{"type":"file_ref","path":"a","lines":"1-2"}`, "artifacts[1].lines", CodeInvalidParams},
		{`{"type":"test_command"}`, "artifacts[1].command", CodeInvalidParams},
		{`{"type":"api_contract","schema_url":"file:///etc/passwd"}`, "artifacts[1].schema_url", CodeInvalidParams},
		{`{"type":"api_contract","inline":"` + strings.Repeat("a", 100) + `"}`, "artifacts[1].inline", CodeContentTooLarge},
	}
	for _, test := range tests {
		_, err := ParseArtifacts("artifacts", raws(`{"type":"api_contract"}`, test.raw), lim)
		wantCode(t, err, test.code, test.field)
	}
	_, err := ParseArtifacts("artifacts", make([]json.RawMessage, 51), lim)
	wantCode(t, err, CodeContentTooLarge, "artifacts")
}

func TestProposedActionNeedsItsPartsAndSafePaths(t *testing.T) {
	t.Parallel()
	good := func() *ProposedAction {
		return &ProposedAction{Description: "d", Rationale: "r", TargetFiles: []string{"src/a.go", "./foo:y", "..a/b..", "a/.b"}, SuggestedDiff: "not a diff"}
	}
	if err := good().Check(DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	none := good()
	none.TargetFiles = []string{}
	if err := none.Check(DefaultLimits()); err != nil {
		t.Errorf("an empty list of files was refused: %v", err)
	}
	tests := []struct {
		spoil func(*ProposedAction)
		field string
		code  Code
	}{
		{func(p *ProposedAction) { p.Description = " " }, "proposed_action.description", CodeInvalidParams},
		{func(p *ProposedAction) { p.Rationale = "" }, "proposed_action.rationale", CodeInvalidParams},
		{func(p *ProposedAction) { p.TargetFiles = nil }, "proposed_action.target_files", CodeInvalidParams},
		{func(p *ProposedAction) { p.SuggestedDiff = "\x00" }, "proposed_action.suggested_diff", CodeInvalidParams},
		{func(p *ProposedAction) { p.SuggestedDiff = strings.Repeat("a", 512<<10+1) }, "suggested_diff", CodeContentTooLarge},
		{func(p *ProposedAction) { p.Description = strings.Repeat("a", 8<<10+1) }, "description", CodeContentTooLarge},
		{func(p *ProposedAction) { p.TargetFiles = make([]string, 101) }, "target_files", CodeContentTooLarge},
		{func(p *ProposedAction) { p.TargetFiles[1] = strings.Repeat("a", 1025) }, "target_files[1]", CodeContentTooLarge},
	}
	for _, test := range tests {
		p := good()
		test.spoil(p)
		wantCode(t, p.Check(DefaultLimits()), test.code, test.field)
	}
	for _, path := range []string{
		"", " ", ".", "./", "/etc/passwd", `\etc`, `C:\x`, "c:x", "./C:/x", `.\C:\x`, `\\server\share`, "//server/x", "..", "../x", "a/../b", `a\..\b`, `..\x`, "a/..",
		"file:///x", "https://e.x/a", "data:text/plain,x", "a\nb", "a\x00",
	} {
		p := good()
		p.TargetFiles[2] = path
		err := p.Check(DefaultLimits())
		if err == nil {
			t.Errorf("path %q was accepted", path)
			continue
		}
		wantCode(t, err, CodeInvalidParams, "proposed_action.target_files[2]")
	}
}

func TestAcceptedPathStaysInsideItsProject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pieces := rapid.SliceOf(rapid.SampledFrom([]string{"a", ".", "..", "/", `\`, "C:", ":", "~", " ", "é"}))
		file := strings.Join(pieces.Draw(t, "pieces"), "")
		if CheckTargetFiles("f", []string{file}, DefaultLimits()) != nil {
			return
		}
		clean := cleanFile(file)
		if strings.HasPrefix(clean, "/") || clean == ".." || strings.HasPrefix(clean, "../") || drivePattern.MatchString(clean) {
			t.Fatalf("accepted %q, which is %q", file, clean)
		}
	})
}

func TestDiffMayTouchNamedFilesOnly(t *testing.T) {
	t.Parallel()
	allowed := []string{"./src/a.go", `docs\b.md`, "b/real.go"}
	if got := CheckDiffFiles([]string{"a/src/a.go", "b/src/a.go", "src//a.go", "docs/b.md", "b/real.go", "b/b/real.go", "/dev/null", ""}, allowed); len(got) != 0 {
		t.Errorf("named files were reported: %q", got)
	}
	got := CheckDiffFiles([]string{"a/src/c.go", "b/src/c.go", "../src/a.go", "a/../../x", "/src/a.go", "SRC/a.go"}, allowed)
	want := []string{"src/c.go", "../src/a.go", "../x", "/src/a.go", "SRC/a.go"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
