package webui

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/hubtest"
)

func TestSigningInLeadsToTheThreadAndSigningOutEndsIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, key := f.AgentWithKey("anna@acme")
		f.Agent("frank@acme")
		path := "/inbox/" + f.Send(anna, "frank@acme")
		b := newBrowser(t, f)

		wantRedirect(t, b.get(path), "/login?next="+path)
		wantRedirect(t, b.get(path+"?after=1"), "/login?next="+path+"%3Fafter=1")
		wantRedirect(t, b.get("/inbox"), "/login?next=/inbox")

		wantIn(t, b.page("/login?next="+path+"%3Fafter=1"), `type="password"`, `autocomplete="off"`, `name="next" value="`+path+`?after=1"`)
		wantRedirect(t, b.post("/login", url.Values{"key": {" " + key + "\n"}, "next": {path}}), path)
		page := b.page(path)
		wantIn(t, page, "a summary", "Signed in as", "anna@acme", "frank@acme")
		wantNotIn(t, page, key)
		wantIn(t, b.page("/inbox"), "inbox_url")

		wantRedirect(t, b.post("/logout", nil), "/login")
		wantRedirect(t, b.get(path), "/login?next="+path)
	})
}

func TestAWrongKeyIsRefusedAndNeverRepeated(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	_, key := f.AgentWithKey("anna@acme")
	b := newBrowser(t, f)
	for name, wrong := range map[string]string{
		"unknown": key[:len(key)-4] + "AAAA", "malformed": `"><b>hunter2</b>`, "empty": "", "blank": "  ",
	} {
		t.Run(name, func(t *testing.T) {
			w := b.post("/login", url.Values{"key": {wrong}, "next": {"/inbox/x"}})
			if w.Code != http.StatusUnauthorized {
				t.Fatalf("got %d", w.Code)
			}
			wantIn(t, w.Body.String(), `role="alert"`, `value="/inbox/x"`)
			wantNotIn(t, w.Body.String(), "hunter2", key[:len(key)-4])
			if len(b.cookies) > 0 {
				t.Errorf("cookies were set: %v", b.cookies)
			}
		})
	}
	t.Run("in the address", func(t *testing.T) {
		if w := b.post("/login?key="+key, nil); w.Code != http.StatusUnauthorized {
			t.Errorf("a key in the address was taken: %d", w.Code)
		}
	})
	wantNotIn(t, f.Log.String(), "hunter2", key)
}

func TestSigningInLeadsToOurPagesOnly(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	_, key := f.AgentWithKey("anna@acme")
	for _, next := range []string{
		"", "/", "//evil.example", "///evil.example", `/\evil.example`, `\\evil.example`, "https://evil.example/inbox", "javascript:alert(1)",
		"//evil.example/inbox", "/inbox@evil.example", "/inboxes", "/inbox/", "/inbox//evil.example", "/inbox/../login", "/inbox/..", `/inbox/\evil`,
		"/inbox/a/b", "/inbox\r\nSet-Cookie: a=b", "/inbox/a\n", " /inbox", "/inbox/%2e%2e", "/inbox?next=//evil", "/inbox/a?after=1&x=2", "/inbox/a#x",
		"/inbox/" + strings.Repeat("a", 65), "/INBOX", "/inbox/\u202ea", "/\t/evil.example",
	} {
		wantRedirect(t, newBrowser(t, f).post("/login", url.Values{"key": {key}, "next": {next}}), "/inbox")
		page := newBrowser(t, f).page("/login?" + url.Values{"next": {next}}.Encode())
		wantIn(t, page, `name="next" value="/inbox"`)
	}
	wantRedirect(t, newBrowser(t, f).get("/inbox/..%2f..%2fevil"), "/login?next=/inbox")
}

func TestTheCookieIsKeptFromScriptsAndOtherSites(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	_, key := f.AgentWithKey("anna@acme")
	for _, tt := range []struct {
		publicURL, name string
		secure          bool
	}{
		{"", "handclasp_session", false},
		{"http://hub.example", "handclasp_session", false},
		{"https://hub.example", "__Host-handclasp_session", true},
		{"HTTPS://hub.example", "__Host-handclasp_session", true},
	} {
		b := &browser{t, New(f.Hub, Options{PublicURL: tt.publicURL}), map[string]string{}}
		w := b.post("/login", url.Values{"key": {key}})
		cookies := w.Result().Cookies()
		if len(cookies) != 1 {
			t.Fatalf("%q: cookies %v", tt.publicURL, cookies)
		}
		c := cookies[0]
		if c.Name != tt.name || c.Secure != tt.secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Path != "/" || c.Domain != "" {
			t.Errorf("%q: %s", tt.publicURL, w.Header().Get("Set-Cookie"))
		}
		if time.Duration(c.MaxAge)*time.Second != auth.SessionLifetime {
			t.Errorf("the cookie lasts %d s, the session %v", c.MaxAge, auth.SessionLifetime)
		}
		gone := b.post("/logout", nil).Result().Cookies()[0]
		if gone.Name != tt.name || gone.MaxAge >= 0 || gone.Value != "" || gone.Secure != tt.secure || gone.Path != "/" {
			t.Errorf("%q: sign-out sets %v", tt.publicURL, gone)
		}
	}
}

func TestRevokingTheKeyEndsTheSession(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, key := f.AgentWithKey("anna@acme")
		f.Agent("frank@acme")
		path := "/inbox/" + f.Send(anna, "frank@acme")
		b := newBrowser(t, f).signIn(key)
		b.page(path)
		if err := f.Hub.RevokeKey(context.Background(), hubtest.Operator(), anna.Actor.KeyID); err != nil {
			t.Fatal(err)
		}
		wantRedirect(t, b.get(path), "/login?next="+path)
		if w := b.post("/login", url.Values{"key": {key}}); w.Code != http.StatusUnauthorized {
			t.Fatalf("the revoked key signs in: %d", w.Code)
		}
	})
}

func TestDisablingTheAgentEndsTheSession(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	_, key := f.AgentWithKey("anna@acme")
	b := newBrowser(t, f).signIn(key)
	if err := f.Hub.SetDisabled(context.Background(), hubtest.Operator(), "anna@acme", true); err != nil {
		t.Fatal(err)
	}
	wantRedirect(t, b.get("/inbox"), "/login?next=/inbox")
}

func TestAForgedSessionAsksToSignIn(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna, key := f.AgentWithKey("anna@acme")
	b := newBrowser(t, f).signIn(key)
	good := b.cookies["handclasp_session"]
	for _, forged := range []string{
		"x", good[:len(good)-2], good + "A", "." + good, anna.Actor.KeyID,
		auth.SignSession(auth.NewSecret(), anna.Actor.KeyID, time.Now()),
	} {
		b.cookies["handclasp_session"] = forged
		wantRedirect(t, b.get("/inbox"), "/login?next=/inbox")
	}
}

func TestAFormTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	b := newBrowser(t, f)
	if w := b.post("/login", url.Values{"key": {strings.Repeat("k", maxForm)}}); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "/login", bytes.NewBufferString("key=%zz"))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if w := b.do(r); w.Code != http.StatusBadRequest {
		t.Errorf("a form that does not parse: %d", w.Code)
	}
}
