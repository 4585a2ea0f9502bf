package webui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestTheThreadShowsAllThatHappened(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, key := f.AgentWithKey("anna@acme")
		frank := f.Agent("frank@acme")
		id := travelled(t, f, anna, frank)
		page := newBrowser(t, f).signIn(key).page("/inbox/" + id)
		wantIn(t, page,
			`<html lang="en">`, `<span class="badge s-completed">completed</span>`, "Proposed action from anna@acme",
			"<dt>Last held by</dt>", "<dt>Claim epoch</dt><dd>1</dd>", `<time datetime="2026-11-30T12:00:00.000Z">2026-11-30 12:00:00 UTC</time>`,
			"The orders table", "The key is a UUID; the migration ran on staging.",
			`href="https://git.example/pr/77" rel="noopener noreferrer nofollow ugc"`, "Why the key changes", "lines 40–88", "9f2c1e7", "ReadOrder",
			"go test ./internal/orders/...", "services/orders", "https://api.example/orders.json", "ORD-118",
			"Two regions write now", `<span class="badge d-approved">approved</span>`, `<span class="badge d-superseded">superseded</span>`, "Looks right",
			`<span class="add">+  id uuid PRIMARY KEY,`, `<span class="del">--- the old key`, `<span class="hunk">@@ -1,3`,
			"Does the reporting job", "expects a reply", "&#34;checked&#34;: true")
		// The three messages come in order, and the viewer's own are marked.
		order := regexp.MustCompile(`(?s)<li class="card message" id="m2">.*frank@acme.*<li class="card message own" id="m3">.*anna@acme</bdi> <span class="you">you</span>`)
		if !order.MatchString(page) {
			t.Error("messages 2 and 3 are not in order, or not marked")
		}
		if strings.Contains(page, "<script") || strings.Contains(page, "style=") {
			t.Error("the page holds a script or an inline style")
		}
	})
}

func TestEveryStateHasItsBadgeAndHolder(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	ctx := context.Background()
	anna, key := f.AgentWithKey("anna@acme")
	frank := f.Agent("frank@acme")
	b := newBrowser(t, f).signIn(key)
	see := func(id string, parts ...string) {
		t.Helper()
		wantIn(t, b.page("/inbox/"+id), parts...)
	}

	open := f.Send(anna, "frank@acme")
	see(open, "s-pending", `<dt>Held by</dt><dd><span class="muted">nobody</span>`, `<dt>Fetched by recipient</dt><dd><span class="muted">not yet`, "Information from anna@acme")

	held := f.Send(anna, "frank@acme")
	if _, err := f.Hub.Accept(ctx, frank, hub.AcceptInput{ThreadID: held, Lease: 600}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Hub.Send(ctx, frank, hub.SendInput{ThreadID: held, Body: "which?", ExpectsReply: true}); err != nil {
		t.Fatal(err)
	}
	see(held, "s-accepted", "waiting for a reply", `<dt>Held by</dt><dd><span class="who"><bdi class="handle">frank@acme`, "<dt>Lease until</dt>")

	declined := f.Send(anna, "frank@acme")
	if _, err := f.Hub.Decline(ctx, frank, hub.DeclineInput{ThreadID: declined, Reason: "no <time>"}); err != nil {
		t.Fatal(err)
	}
	see(declined, "s-declined", "Why it ended", "no &lt;time&gt;")

	cancelled := f.Send(anna, "frank@acme")
	if _, err := f.Hub.Cancel(ctx, anna, hub.CancelInput{ThreadID: cancelled, Reason: "not needed"}); err != nil {
		t.Fatal(err)
	}
	see(cancelled, "s-cancelled", "not needed")

	expired := send(t, f, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.AskQuestion, Summary: "s", Question: "Is it?", ExpiresIn: 60})
	see(expired, "Question from anna@acme", "Is it?", "<dt>Deadline to accept</dt>")
	wantNotIn(t, b.page("/inbox/"+expired), "Metadata")
	f.Clock.Advance(61e9)
	see(expired, "s-expired", "its deadline passed")
}

func TestLookingMarksNothingReadAndNothingFetched(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		ctx := context.Background()
		anna := f.Agent("anna@acme")
		frank, key := f.AgentWithKey("frank@acme")
		id := f.Send(anna, "frank@acme")
		b := newBrowser(t, f).signIn(key)
		b.page("/inbox")
		wantIn(t, b.page("/inbox/"+id), "a summary", "not yet")
		b.page("/inbox/" + id + "?after=1")

		seen, err := f.Hub.View(ctx, anna, hub.ViewInput{ThreadID: id, Peek: true})
		if err != nil || !seen.Handoff.FetchedAt.IsZero() {
			t.Fatalf("fetched at %v, %v", seen.Handoff.FetchedAt, err)
		}
		inbox, err := f.Hub.Inbox(ctx, frank, hub.InboxInput{})
		if err != nil || inbox.UnreadTotal != 1 || inbox.Items[0].Unread != 1 {
			t.Fatalf("unread: %+v, %v", inbox, err)
		}
	})
}

func TestAStrangerGetsTheSamePageAsForWhatDoesNotExist(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		_, key := f.AgentWithKey("eve@acme")
		id := f.Send(anna, "frank@acme")
		b := newBrowser(t, f).signIn(key)
		foreign := b.get("/inbox/" + id)
		if foreign.Code != http.StatusNotFound {
			t.Fatalf("a stranger gets %d", foreign.Code)
		}
		for _, other := range []string{"01990000-0000-7000-8000-000000000000", "nope", "%00", "%ff", "a%2Fb", "a'b", "%E2%80%AE", strings.Repeat("x", 4000)} {
			w := b.get("/inbox/" + other)
			if w.Code != http.StatusNotFound || w.Body.String() != foreign.Body.String() || fmt.Sprint(w.Header()) != fmt.Sprint(foreign.Header()) {
				t.Errorf("%s: %d %v\n%s", other, w.Code, w.Header(), w.Body)
			}
		}
	})
}

func TestALongThreadIsPaged(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	ctx := context.Background()
	anna, key := f.AgentWithKey("anna@acme")
	f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	for i := 2; i <= 60; i++ {
		if _, err := f.Hub.Send(ctx, anna, hub.SendInput{ThreadID: id, Body: fmt.Sprintf("body %d.", i)}); err != nil {
			t.Fatal(err)
		}
	}
	b := newBrowser(t, f).signIn(key)
	next := regexp.MustCompile(`rel="next" class="button" href="([^"]+)">Next page`)
	path, want := "/inbox/"+id, 2
	for pages := 0; path != ""; pages++ {
		page := b.page(path)
		for strings.Contains(page, fmt.Sprintf(`id="m%d"`, want)) && strings.Contains(page, fmt.Sprintf("body %d.", want)) {
			want++
		}
		if (pages == 0) != strings.Contains(page, `id="summary"`) {
			t.Errorf("page %d: the summary stands on the first page only", pages)
		}
		path = ""
		if m := next.FindStringSubmatch(page); m != nil {
			path = m[1]
		}
		if pages > 3 {
			t.Fatal("paging does not end")
		}
	}
	if want != 61 {
		t.Errorf("message %d did not come in its turn", want)
	}

	for query, status := range map[string]int{
		"?after=60": 200, "?after=2147483647": 200, "?after=2147483648": 400, "?after=-1": 400, "?after=x": 400, "?after=99999999999999999999": 400, "?after=": 200,
	} {
		if w := b.get("/inbox/" + id + query); w.Code != status {
			t.Errorf("%s: got %d, want %d", query, w.Code, status)
		}
	}
}

func TestLargeMessagesMakeSmallPages(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	ctx := context.Background()
	anna, key := f.AgentWithKey("anna@acme")
	f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	big := strings.Repeat("+\n-\n", 100<<10)
	for range 4 {
		in := hub.SendInput{ThreadID: id, Body: "b", Artifacts: raw(t, object{"type": "file_diff", "path": "a", "diff": big})}
		if _, err := f.Hub.Send(ctx, anna, in); err != nil {
			t.Fatal(err)
		}
	}
	page := newBrowser(t, f).signIn(key).page("/inbox/" + id)
	more := strings.Contains(page, "Next page")
	if len(page) > 4<<20 || !more {
		t.Errorf("the page has %d bytes; a next page: %v", len(page), more)
	}
}

func TestEveryAnswerCarriesTheSecurityHeaders(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna, key := f.AgentWithKey("anna@acme")
	f.Agent("frank@acme")
	id := f.Send(anna, "frank@acme")
	b := newBrowser(t, f).signIn(key)
	for _, r := range []*http.Request{
		httptest.NewRequest("GET", "/inbox/"+id, nil), httptest.NewRequest("HEAD", "/inbox/"+id, nil), httptest.NewRequest("GET", "/inbox", nil),
		httptest.NewRequest("GET", "/inbox/nope", nil), httptest.NewRequest("GET", "/inbox/"+id+"?after=x", nil), httptest.NewRequest("GET", "/login", nil),
		httptest.NewRequest("POST", "/login", nil), httptest.NewRequest("DELETE", "/inbox/"+id, nil), httptest.NewRequest("GET", "/elsewhere", nil),
		httptest.NewRequest("GET", assetURL("handclasp.css"), nil), httptest.NewRequest("GET", "/assets/nope", nil), httptest.NewRequest("POST", "/logout", nil),
	} {
		w := b.do(r)
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
			"X-Content-Type-Options":  "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin", "X-Robots-Tag": "noindex",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s %s: %s is %q", r.Method, r.URL, name, got)
			}
		}
		cached := strings.HasPrefix(r.URL.Path, "/assets/handclasp")
		if got := w.Header().Get("Cache-Control"); (got == "no-store") == cached {
			t.Errorf("%s %s: Cache-Control is %q", r.Method, r.URL, got)
		}
	}
}

func TestAssetsAreAskedForOnce(t *testing.T) {
	t.Parallel()
	h := New(nil, Options{})
	for name, kind := range map[string]string{"handclasp.css": "text/css", "handclasp.svg": "image/svg+xml"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", assetURL(name), nil))
		tag := w.Header().Get("ETag")
		if w.Code != 200 || tag == "" || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
		r := httptest.NewRequest("GET", assetURL(name), nil)
		r.Header.Set("If-None-Match", tag)
		again := httptest.NewRecorder()
		h.ServeHTTP(again, r)
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d", name, again.Code)
		}
	}
}

func TestADatabaseThatIsGoneIsUnavailable(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	_, key := f.AgentWithKey("anna@acme")
	b := newBrowser(t, f).signIn(key)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w := b.do(httptest.NewRequest("GET", "/inbox", nil).WithContext(ctx))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), "Not available just now") {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestAnUnexpectedFaultIsLoggedOnceAndNotShown(t *testing.T) {
	t.Parallel()
	var log hubtest.LogBuffer
	s := &site{log: textLog(&log)}
	w := httptest.NewRecorder()
	s.fail(w, httptest.NewRequest("GET", "/inbox/secret-id", nil), "", fmt.Errorf("read: %w", errSecret))
	if w.Code != http.StatusInternalServerError {
		t.Errorf("got %d", w.Code)
	}
	wantIn(t, w.Body.String(), "Internal error")
	wantNotIn(t, w.Body.String(), errSecret.Error())
	if got := log.String(); strings.Count(got, errSecret.Error()) != 1 || strings.Contains(got, "secret-id") {
		t.Errorf("the log: %s", got)
	}
}
