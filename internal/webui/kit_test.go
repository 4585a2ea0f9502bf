package webui

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestMain(m *testing.M) { os.Exit(hubtest.Main(m)) }

// browser follows no redirects and keeps cookies by name.
type browser struct {
	t       *testing.T
	pages   http.Handler
	cookies map[string]string
}

func newBrowser(t *testing.T, f *hubtest.Fixture) *browser {
	t.Helper()
	return &browser{t, New(f.Hub, Options{PublicURL: "http://hub.example", Log: textLog(f.Log)}), map[string]string{}}
}

func textLog(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

var errSecret = errors.New("the inside of the machine")

func (b *browser) do(r *http.Request) *httptest.ResponseRecorder {
	b.t.Helper()
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	b.pages.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		b.cookies[c.Name] = c.Value
		if c.MaxAge < 0 {
			delete(b.cookies, c.Name)
		}
	}
	return w
}

func (b *browser) get(path string) *httptest.ResponseRecorder {
	b.t.Helper()
	return b.do(httptest.NewRequest(http.MethodGet, path, nil))
}

func (b *browser) post(path string, form url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

func (b *browser) signIn(key string) *browser {
	b.t.Helper()
	if w := b.post("/login", url.Values{"key": {key}}); w.Code != http.StatusSeeOther {
		b.t.Fatalf("sign in: %d %s", w.Code, w.Body)
	}
	return b
}

// page gets a page that must be there.
func (b *browser) page(path string) string {
	b.t.Helper()
	w := b.get(path)
	if w.Code != http.StatusOK {
		b.t.Fatalf("GET %s: %d %s", path, w.Code, w.Body)
	}
	// html/template writes + as &#43;, which reads badly in the tests.
	return strings.ReplaceAll(w.Body.String(), "&#43;", "+")
}

func wantRedirect(t *testing.T, w *httptest.ResponseRecorder, to string) {
	t.Helper()
	if got := w.Header().Get("Location"); w.Code != http.StatusSeeOther || got != to {
		t.Fatalf("got %d to %q, want 303 to %q", w.Code, got, to)
	}
}

func wantIn(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(page, p) {
			t.Errorf("the page lacks %q", p)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func wantNotIn(t *testing.T, page string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(page, p) {
			t.Errorf("the page holds %q", p)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// raw marshals artifacts without escaping, as most clients send them.
func raw(t *testing.T, artifacts ...any) []json.RawMessage {
	t.Helper()
	var out []json.RawMessage
	for _, a := range artifacts {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(a); err != nil {
			t.Fatal(err)
		}
		out = append(out, b.Bytes())
	}
	return out
}

type object = map[string]any

func send(t *testing.T, f *hubtest.Fixture, from hub.Call, in hub.CreateInput) string {
	t.Helper()
	out, err := f.Hub.Create(context.Background(), from, in)
	if err != nil {
		t.Fatal(err)
	}
	return out.ThreadID
}

const sampleDiff = `diff --git a/db/schema.sql b/db/schema.sql
--- a/db/schema.sql
+++ b/db/schema.sql
@@ -1,3 +1,3 @@
 CREATE TABLE orders (
--- the old key
+  id uuid PRIMARY KEY,
   total bigint
`

// travelled is a thread with one of everything: anna proposed, frank drafted, asked and
// completed, the operator approved.
func travelled(t *testing.T, f *hubtest.Fixture, anna, frank hub.Call) string {
	t.Helper()
	ctx := context.Background()
	id := send(t, f, anna, hub.CreateInput{
		To: "frank@acme", Intent: handoff.ProposeAction,
		Summary: "The orders table still has its old key.\n\nPlease move it to a UUID before the release on Thursday; the readers are ready.",
		Artifacts: raw(t,
			object{"type": "file_diff", "path": "db/schema.sql", "diff": sampleDiff},
			object{"type": "file_ref", "path": "internal/orders/read.go", "git_sha": "9f2c1e7", "lines": []int{40, 88}, "symbol": "ReadOrder"},
			object{"type": "test_command", "command": "go test ./internal/orders/...", "cwd": "services/orders"},
			object{"type": "api_contract", "schema_url": "https://api.example/orders.json", "inline": object{"type": "object"}},
			object{"type": "link", "url": "https://wiki.example/orders/keys", "title": "Why the key changes"}),
		Metadata: json.RawMessage(`{"ticket":"ORD-118"}`),
		ProposedAction: &handoff.ProposedAction{
			Description: "Replace the serial key by a UUID", TargetFiles: []string{"db/schema.sql"},
			Rationale: "Two regions write now, so a counter collides.",
		},
	})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Hub.Accept(ctx, frank, hub.AcceptInput{ThreadID: id})
	must(err)
	_, err = f.Hub.Send(ctx, frank, hub.SendInput{ThreadID: id, Body: "Does the reporting job read the old key?", ExpectsReply: true})
	must(err)
	_, err = f.Hub.Send(ctx, anna, hub.SendInput{ThreadID: id, Body: "No, it went over to the view in October.", Payload: json.RawMessage(`{"checked":true}`)})
	must(err)
	_, err = f.Hub.Draft(ctx, frank, hub.DraftInput{ThreadID: id, SuggestedDiff: strings.Replace(sampleDiff, "uuid", "text", 1)})
	must(err)
	d, err := f.Hub.Draft(ctx, frank, hub.DraftInput{ThreadID: id, SuggestedDiff: sampleDiff})
	must(err)
	_, err = f.Hub.DecideDraft(ctx, hubtest.Operator(), hub.DecideInput{DraftID: d.DraftID, Approve: true, Reason: "Looks right"})
	must(err)
	_, err = f.Hub.Complete(ctx, frank, hub.CompleteInput{
		ThreadID: id, ResultSummary: "The key is a UUID; the migration ran on staging.",
		Artifacts: raw(t, object{"type": "link", "url": "https://git.example/pr/77"}),
	})
	must(err)
	return id
}
