package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestMain(m *testing.M) { os.Exit(hubtest.Main(m)) }

// door is the redemption as it is mounted.
type door struct {
	t   *testing.T
	f   *hubtest.Fixture
	mux *http.ServeMux
}

func newDoor(t *testing.T, f *hubtest.Fixture) *door {
	t.Helper()
	d := &door{t, f, http.NewServeMux()}
	d.mux.Handle("POST /invites/{jti}/redeem", Redeem(f.Hub, slog.New(slog.NewTextHandler(f.Log, nil))))
	return d
}

func (d *door) invite(in hub.InviteInput) (id, token string) {
	d.t.Helper()
	l, err := d.f.Hub.Invite(context.Background(), hubtest.Operator(), in)
	if err != nil {
		d.t.Fatal(err)
	}
	_, token, _ = strings.Cut(l.URL, "#")
	return l.ID, token
}

func (d *door) post(id, body, from string) *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/invites/"+id+"/redeem", strings.NewReader(body))
	r.RemoteAddr = from
	w := httptest.NewRecorder()
	d.mux.ServeHTTP(w, r)
	return w
}

const someone = "192.0.2.1:4711"

func tokenBody(token string) string { return fmt.Sprintf(`{"token":%q}`, token) }

// wantRefused checks the whole of a refusal.
func wantRefused(t *testing.T, what string, w *httptest.ResponseRecorder, status int, word string) {
	t.Helper()
	if got := strings.TrimSpace(w.Body.String()); w.Code != status || got != `{"error":"`+word+`"}` || w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%s: %d %s, want %d %s", what, w.Code, got, status, word)
	}
}

func TestRedeemingAnswersTheKeyOnceAndThenThatItWasUsed(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		d := newDoor(t, f)
		id, token := d.invite(hub.InviteInput{Handle: "frank@acme"})
		w := d.post(id, tokenBody(token), someone)
		var got map[string]string
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != http.StatusCreated || len(got) != 3 || got["handle"] != "frank@acme" || w.Header().Get("Cache-Control") != "no-store" {
			t.Fatalf("%d %s %v", w.Code, w.Body, w.Header())
		}
		if actor, err := f.Hub.Authenticate(context.Background(), got["api_key"]); err != nil || actor.ID != got["agent_id"] {
			t.Fatalf("%+v %v", actor, err)
		}
		wantRefused(t, "again", d.post(id, tokenBody(token), someone), http.StatusGone, "already_used")
		id, token = d.invite(hub.InviteInput{Handle: "bob@acme", ExpiresIn: 60})
		f.Clock.Advance(time.Minute)
		wantRefused(t, "late", d.post(id, tokenBody(token), someone), http.StatusGone, "expired")
		id, token = d.invite(hub.InviteInput{Handle: "eve@acme"})
		f.Agent("eve@acme")
		wantRefused(t, "taken", d.post(id, tokenBody(token), someone), http.StatusConflict, "handle_taken")
		if strings.Contains(f.Log.String(), token) || strings.Contains(f.Log.String(), "hc_live_") {
			t.Errorf("the log holds a secret: %s", f.Log)
		}
	})
}

func TestARedemptionThatDoesNotCountLeaksNothing(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	d := newDoor(t, f)
	id, token := d.invite(hub.InviteInput{Handle: "frank@acme"})
	other, otherToken := d.invite(hub.InviteInput{Handle: "bob@acme"})
	for name, c := range map[string][2]string{
		"bad signature": {id, token[:len(token)-4] + "AAAA"}, "unknown": {"nobody", token}, "mismatch": {other, token}, "the other way": {id, otherToken},
		"empty": {id, ""}, "an id in disguise": {"%00", token}, "dots": {"%2E%2E", token},
	} {
		wantRefused(t, name, d.post(c[0], tokenBody(c[1]), someone), http.StatusNotFound, "not_found")
	}
	for name, body := range map[string]string{
		"nothing": "", "no JSON": "token=x", "a list": "[]", "an unknown field": `{"token":"x","handle":"root@acme"}`, "another type": `{"token":1}`,
		"two values": tokenBody(token) + tokenBody(token), "half": `{"token":"`, "a tail": tokenBody(token) + "x",
	} {
		wantRefused(t, name, d.post(id, body, someone), http.StatusBadRequest, "invalid_request")
	}
	wantRefused(t, "large", d.post(id, tokenBody(strings.Repeat("x", maxRedeem)), someone), http.StatusRequestEntityTooLarge, "content_too_large")
	if w := d.post(id, tokenBody(token), someone); w.Code != http.StatusCreated {
		t.Fatalf("the link is still good, but: %d %s", w.Code, w.Body)
	}
}

func TestAHubWithoutItsDatabaseSaysThatTheLinkMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	d := newDoor(t, f)
	id, token := d.invite(hub.InviteInput{Handle: "frank@acme"})
	if err := f.Store.Close(); err != nil {
		t.Fatal(err)
	}
	w := d.post(id, tokenBody(token), someone)
	wantRefused(t, "no database", w, http.StatusServiceUnavailable, "unavailable")
	if w.Header().Get("Retry-After") == "" {
		t.Errorf("%v", w.Header())
	}
}

func TestOneNetworkIsSlowedDownAndOthersAreNot(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	d := newDoor(t, f)
	id, token := d.invite(hub.InviteInput{Handle: "frank@acme"})
	// More than the burst and what a slow machine lets trickle in meanwhile.
	flood := func(from func(i int) string) (last *httptest.ResponseRecorder) {
		for i := range 4 * redeemsPerMinute {
			if last = d.post(id, tokenBody("x"), from(i)); last.Code == http.StatusTooManyRequests {
				break
			}
		}
		return last
	}
	w := flood(func(i int) string { return fmt.Sprintf("192.0.2.1:%d", 1000+i) })
	wantRefused(t, "one address", w, http.StatusTooManyRequests, "rate_limited")
	if w.Header().Get("Retry-After") == "" {
		t.Errorf("%v", w.Header())
	}
	wantRefused(t, "a /64", flood(func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1", i+1) }), http.StatusTooManyRequests, "rate_limited")
	wantRefused(t, "the same as IPv6", d.post(id, tokenBody("x"), "[::ffff:192.0.2.1]:1"), http.StatusTooManyRequests, "rate_limited")
	if w := d.post(id, tokenBody(token), "[2001:db8:0:1::1]:1"); w.Code != http.StatusCreated {
		t.Errorf("another network: %d %s", w.Code, w.Body)
	}
}

func TestWhoAskedIsForgottenBeforeItFillsTheMemory(t *testing.T) {
	t.Parallel()
	d := Redeem(hubtest.New(t, "sqlite").Hub, slog.New(slog.DiscardHandler)).(*redeemer)
	for i := range maxAddresses + 5 {
		d.limits.wait(fmt.Sprintf("10.%d.%d.%d:1", i>>16&255, i>>8&255, i&255))
	}
	if n := len(d.limits.recent); n == 0 || n > maxAddresses {
		t.Errorf("%d addresses are remembered", n)
	}
}
