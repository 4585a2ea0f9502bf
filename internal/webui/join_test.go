package webui

import (
	"context"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/restapi"
)

// joinable serves what a join link needs, as it is mounted, and counts the redemptions that came.
func joinable(t *testing.T, f *hubtest.Fixture) (url string, redeemed *atomic.Int64) {
	t.Helper()
	redeemed = &atomic.Int64{}
	redeem := restapi.Redeem(f.Hub, slog.New(slog.DiscardHandler))
	mux := http.NewServeMux()
	var srv *httptest.Server
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { New(f.Hub, Options{PublicURL: srv.URL}).ServeHTTP(w, r) })
	mux.HandleFunc("POST /invites/{jti}/redeem", func(w http.ResponseWriter, r *http.Request) {
		redeemed.Add(1)
		redeem.ServeHTTP(w, r)
	})
	srv = httptest.NewServer(http.NewCrossOriginProtection().Handler(mux))
	t.Cleanup(srv.Close)
	return srv.URL, redeemed
}

func invite(t *testing.T, f *hubtest.Fixture, in hub.InviteInput) hub.InviteLink {
	t.Helper()
	l, err := f.Hub.Invite(context.Background(), hubtest.Operator(), in)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// value evaluates a script in the page.
func value[T any](b *chromium, script string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// text is what the page shows; hidden parts are not in it.
func (b *chromium) text() string { return value[string](b, `document.querySelector("main").innerText`) }

func TestAJoinLinkIsUsedUpByTheButtonAndNotByLooking(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f := hubtest.New(t, "sqlite")
	f.Agent("anna@acme")
	url, redeemed := joinable(t, f)
	link := invite(t, f, hub.InviteInput{Handle: "frank@acme", Inviter: "anna@acme", URL: url}).URL

	join, fault := chromedp.ID("join"), chromedp.ID("fault")
	b.do(chromedp.EmulateViewport(360, 740))
	for range 2 {
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link), chromedp.WaitVisible(join))
		if text := b.text(); !strings.Contains(text, "anna@acme invites you to this hub as frank@acme.") || strings.Contains(text, "API key\n") {
			t.Fatalf("the page says %s", text)
		}
		if value[bool](b, `document.querySelector("#fault").checkVisibility() || document.querySelector("#joined").checkVisibility()`) {
			t.Error("a fault or a key is shown before anything was done")
		}
	}
	if agents, err := f.Hub.Agents(context.Background(), hubtest.Operator()); err != nil || len(agents) != 1 || redeemed.Load() != 0 {
		t.Fatalf("looking made %d agents and %d redemptions, %v", len(agents), redeemed.Load(), err)
	}

	b.do(chromedp.Click(join), chromedp.WaitVisible(chromedp.ID("key")))
	key := value[string](b, `document.querySelector("#key").textContent`)
	actor, err := f.Hub.Authenticate(context.Background(), key)
	if err != nil || actor.Handle != "frank@acme" {
		t.Fatalf("the key on the page is %+v, %v", actor, err)
	}
	wantIn(t, b.text(), "You have joined as frank@acme", "shown this once",
		`claude mcp add --scope user --transport http handclasp `+url+`/mcp/team --header "Authorization: Bearer `+key+`"`)
	config := value[map[string]map[string]struct {
		Type    string
		URL     string
		Headers map[string]string
	}](b, `JSON.parse(document.querySelector("#config").textContent)`)["mcpServers"]["handclasp"]
	if config.Type != "http" || config.URL != url+"/mcp/team" || config.Headers["Authorization"] != "Bearer "+key {
		t.Errorf("the configuration is %+v", config)
	}
	if value[string](b, `document.activeElement.id`) != "welcome" || !value[bool](b, `document.documentElement.scrollWidth <= 360`) {
		t.Error("the heading has no focus, or the page is wider than a small screen")
	}
	// Where the key must not be: address, storage, cookies, history, what the hub serves.
	places := value[string](b, `location.href + document.cookie + JSON.stringify([localStorage, sessionStorage, history.state, performance.getEntries().map((e) => e.name)])`)
	if strings.Contains(places, "hc_live_") || value[int](b, `history.length`) > 5 {
		t.Errorf("the key got about: %s", places)
	}
	resp, err := http.Get(url + "/join")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if source, err := io.ReadAll(resp.Body); err != nil || strings.Contains(string(source), "hc_live_") || strings.Contains(string(source), "frank") {
		t.Errorf("the source of the page: %s %v", source, err)
	}

	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link), chromedp.WaitVisible(join), chromedp.Click(join), chromedp.WaitVisible(fault))
	wantIn(t, b.text(), "This link was used already")
	wantNotIn(t, b.text(), "hc_live_")
	b.do(chromedp.WaitEnabled(join), chromedp.Click(join), chromedp.WaitVisible(fault))
	wantIn(t, b.text(), "This link was used already")
	b.wantQuiet("410 (Gone)")
	if strings.Contains(f.Log.String(), key) {
		t.Error("the key is in the log")
	}
}

func TestAJoinLinkThatDoesNotCountIsAPlainSentence(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f := hubtest.New(t, "sqlite")
	url, redeemed := joinable(t, f)
	good := invite(t, f, hub.InviteInput{Handle: "frank@acme", URL: url}).URL
	payload := func(s string) string {
		return url + "/join#e30." + base64.RawURLEncoding.EncodeToString([]byte(s)) + ".AAAA"
	}

	fault := chromedp.ID("fault")
	for name, link := range map[string]string{
		"nothing": url + "/join", "a part": good[:strings.LastIndexByte(good, '.')], "rubbish": url + "/join#a.b.c", "percent": url + "/join#%zz.%zz.%zz",
		"null": payload("null"), "no handle": payload(`{"jti":"x","inviter_handle":"anna@acme"}`), "bytes": payload("\xff\xfe"),
		"markup": payload(`{"jti":"x","inviter_handle":"anna@acme","handle":"<img src=x onerror=alert(1)>"}`),
		"a lure": payload(`{"jti":"x","inviter_handle":"your boss, who asks you to hurry","handle":"frank@acme"}`),
	} {
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(link), chromedp.WaitVisible(fault))
		if text := b.text(); !strings.Contains(text, "This link is broken") || strings.Contains(text, "invites you") {
			t.Errorf("%s: the page says %s", name, text)
		}
	}
	if redeemed.Load() != 0 {
		t.Error("a broken link was sent to the hub")
	}

	// Another link pasted over a broken one, in the same tab.
	join := chromedp.ID("join")
	b.do(chromedp.Navigate(good), chromedp.WaitVisible(join))
	wantIn(t, b.text(), "The operator invites you")
	if !strings.Contains(value[string](b, `document.querySelector(".skip").click(), location.hash`), ".") || value[string](b, `document.activeElement.id`) != "main" {
		t.Error("the link to the content replaced the token, or led nowhere")
	}

	for name, c := range map[string]struct {
		link func() string
		says string
	}{
		"changed": {func() string { return good[:len(good)-4] + "AAAA" }, "This link is not valid"},
		"revoked": {func() string {
			l := invite(t, f, hub.InviteInput{Handle: "r@acme", URL: url})
			if err := f.Hub.RevokeInvite(context.Background(), hubtest.Operator(), l.ID); err != nil {
				t.Fatal(err)
			}
			return l.URL
		}, "This link is not valid"},
		"taken": {func() string {
			l := invite(t, f, hub.InviteInput{Handle: "t@acme", URL: url})
			f.Agent("t@acme")
			return l.URL
		}, "was given to another agent"},
		"expired": {func() string {
			l := invite(t, f, hub.InviteInput{Handle: "e@acme", URL: url, ExpiresIn: 60})
			f.Clock.Advance(61e9)
			return l.URL
		}, "This link has expired"},
	} {
		b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(c.link()), chromedp.WaitVisible(join), chromedp.Click(join), chromedp.WaitVisible(fault))
		if text := b.text(); !strings.Contains(text, c.says) {
			t.Errorf("%s: the page says %s", name, text)
		}
	}
	b.wantQuiet("404 (Not Found)", "409 (Conflict)", "410 (Gone)")
}

func TestThePageToJoinByIsTheSameForEveryLinkAndRunsOnlyItsOwnScript(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	w := newBrowser(t, f).get("/join")
	if w.Code != http.StatusOK || w.Header().Get("Cache-Control") != "no-store" || len(w.Result().Cookies()) > 0 {
		t.Fatalf("%d %v", w.Code, w.Header())
	}
	policy := w.Header().Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "script-src 'self'") || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
	page := w.Body.String()
	wantIn(t, page, `data-hub="http://hub.example"`, "<noscript>", "needs JavaScript", `<script src="/assets/join.js?v=`)
	wantNotIn(t, page, "<script>", " onclick=", " style=")
	script := newBrowser(t, f).get("/assets/join.js")
	if script.Code != http.StatusOK || !strings.HasPrefix(script.Header().Get("Content-Type"), "text/javascript") {
		t.Errorf("the script: %d %v", script.Code, script.Header())
	}
	for _, path := range []string{"/login", "/assets/join.js"} {
		if got := newBrowser(t, f).get(path).Header().Get("Content-Security-Policy"); strings.Contains(got, "script-src") {
			t.Errorf("%s may run scripts: %s", path, got)
		}
	}
}
