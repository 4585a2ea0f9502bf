package webui

import (
	"fmt"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestHostileTextIsNeutralised(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	_, key := f.AgentWithKey("frank@acme")
	hostile := "<script>alert(1)</script></div></pre></code></bdi>\" onload=x '\u202egpj.exe\u2066x\u2069\u200b\u061c\ufeff\x01\x1b[31m\x7f\u0085\u2028\u2029\u00ad\u3164\U000e0041 {{.Title}} <!-- \r\n\rend"
	id := send(t, f, anna, hub.CreateInput{
		To: "frank@acme", Intent: handoff.ProposeAction, Summary: "s " + hostile, Question: "q " + hostile,
		Metadata: []byte(`{"</pre><script>":"` + "\u202e" + `"}`),
		ProposedAction: &handoff.ProposedAction{
			Description: "d " + hostile, Rationale: "r " + hostile, TargetFiles: []string{"</code><script>\u202e"}, SuggestedDiff: "+</pre>" + hostile,
		},
		Artifacts: raw(t,
			object{"type": "link", "url": "https://example.com/\"><script>", "title": "t " + hostile},
			object{"type": "file_diff", "path": "p " + hostile, "diff": "-</pre>" + hostile},
			object{"type": "test_command", "command": "c " + hostile, "cwd": hostile},
			object{"type": "file_ref", "path": hostile, "git_sha": hostile},
			object{"type": "api_contract", "inline": hostile, "</pre>": hostile}),
	})
	page := newBrowser(t, f).signIn(key).page("/inbox/" + id)
	wantNotIn(t, page, "<script", "onload=x '", "<!-- ", "/\"><", "</pre></code>")
	for _, r := range "\u202e\u2066\u2069\u200b\u061c\ufeff\x01\x1b\x7f\u0085\u2028\u2029\u00ad\u3164\U000e0041\r" {
		if strings.ContainsRune(page, r) {
			t.Errorf("U+%04X stands in the page", r)
		}
		if !strings.Contains(page, fmt.Sprintf("U+%04X", r)) {
			t.Errorf("U+%04X is not written out", r)
		}
	}
	wantIn(t, page, `<div class="prose" dir="auto">s &lt;script&gt;alert(1)&lt;/script&gt;`, "{{.Title}}", `<bdi>t &lt;script&gt;`,
		`<span class="del">-&lt;/pre&gt;`, `<span class="add">+&lt;/pre&gt;`)
	if open, closed := strings.Count(page, "<pre"), strings.Count(page, "</pre>"); open != closed || open == 0 {
		t.Errorf("%d <pre, %d </pre>", open, closed)
	}
}

func TestOnlyPlainWebAddressesBecomeLinks(t *testing.T) {
	t.Parallel()
	for url, live := range map[string]bool{
		"https://example.com/a?b=c#d": true, "http://example.com": true, "HTTPS://example.com": true, "https://example.com/ä": true,
		"javascript:alert(1)": false, "JaVaScRiPt://x/%0aalert(1)": false, "data:text/html,x": false, "ftp://example.com": false, "//example.com": false,
		"/inbox": false, "": false, "https://": false, "https:example.com": false, "mailto:a@b": false,
		"https://bank.example@evil.example": false, "https://bank.example:x@evil.example": false, `https://bank.example\@evil.example`: false,
		"https://b\u0430nk.example": false, "https://example.com/\u202egpj": false, "https://example.com/\u200d": false, "https://example.com/a\tb": false, " https://example.com": false,
	} {
		if got := link(url); got.Live != live || got.URL != url {
			t.Errorf("%q: live %v, want %v", url, got.Live, live)
		}
	}
}

func TestJoinersStayInProseAndShowInCode(t *testing.T) {
	t.Parallel()
	family := "\U0001F469\u200d\U0001F469\u200d\U0001F467 \u0645\u06cc\u200c\u062e"
	if got := flat(prose(family)); got != family {
		t.Errorf("prose: %q", got)
	}
	if got := flat(code("rm\u200d -rf")); got != "rm⟦U+200D⟧ -rf" {
		t.Errorf("code: %q", got)
	}
	if got := flat(prose("a\r\nb\rc\t\x00\x00\x01")); got != "a\nb⟦U+000D⟧c\t⟦U+0000 ×2 U+0001⟧" {
		t.Errorf("controls: %q", got)
	}
	if got := flat(code("x\xffy")); got != "x\xffy" {
		t.Errorf("invalid UTF-8: %q", got)
	}
}

func TestDiffLinesAreJudgedByWhereTheyStand(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, diff, want string }{
		{"git", "diff --git a/x b/x\nindex 1..2\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ f\n a\n-b\n+c\n", "meta hunk . del add"},
		{"a removed comment that looks like a header", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n--- drop\n+++ plus\n--- a/y\n+++ b/y\n", "meta hunk del add meta"},
		{"no newline at the end", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b", "hunk del meta add"},
		{"an empty context line", "@@ -1,2 +1,2 @@\n\n-a\n+b\n", "hunk . del add"},
		{"a hunk that ends early", "@@ -1,9 +1,9 @@\n-a\nprose\n--- a\n", "hunk del . meta"},
		{"prose", "just words\nand more", "."},
		{"lone signs", "+a\n-b", "add del"},
		{"huge counts", "@@ -1,99999999999999999999 +1,1 @@\n+a\n", "hunk add"},
		{"empty", "", ""},
	} {
		var got []string
		var text strings.Builder
		for _, s := range diff(tt.diff) {
			text.WriteString(flat(s.Text))
			if s.Class == "" {
				s.Class = "."
			}
			got = append(got, s.Class)
		}
		if strings.Join(got, " ") != tt.want || text.String() != tt.diff {
			t.Errorf("%s: %v, want %s; text %q", tt.name, got, tt.want, text.String())
		}
	}
}

func TestALongDiffKeepsItsTextAndBoundsItsElements(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("+a\n-b\n", 50_000)
	var text strings.Builder
	stretches := diff(long)
	for _, s := range stretches {
		text.WriteString(flat(s.Text))
	}
	if len(stretches) > maxStretches+1 || text.String() != long {
		t.Errorf("%d stretches; the text is whole: %v", len(stretches), text.String() == long)
	}
}

func TestDeepJSONIsNotLaidOut(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	if got := flat(jsonText([]byte(deep))); got != deep {
		t.Errorf("it became %d bytes", len(got))
	}
	if got := flat(jsonText([]byte(`{"a":["[{\"",1.50]}`))); got != "{\n  \"a\": [\n    \"[{\\\"\",\n    1.50\n  ]\n}" {
		t.Errorf("got %s", got)
	}
}

// flat marks what acts with ⟦ ⟧.
func flat(list []piece) string {
	var b strings.Builder
	for _, p := range list {
		if p.Acts {
			b.WriteString("⟦" + p.Text + "⟧")
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}
