package restapi

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// gate is the endpoint of continuations as a client meets it.
type gate struct {
	t *testing.T
	h http.Handler
}

func newGate(t *testing.T, f *hubtest.Fixture) *gate {
	return &gate{t, Continuations(f.Hub, slog.New(slog.DiscardHandler))}
}

// ask makes a request; headers come in pairs.
func (d *gate) ask(method, path, body string, headers ...string) *httptest.ResponseRecorder {
	d.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	return w
}

func (d *gate) json(w *httptest.ResponseRecorder, dest any) {
	d.t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), dest); err != nil {
		d.t.Fatalf("%d %s: %v", w.Code, w.Body, err)
	}
}

func handOn(t *testing.T, f *hubtest.Fixture, bot hub.Call, key string) (id, path, token string) {
	t.Helper()
	out, err := f.Hub.Initiate(t.Context(), bot, hub.InitiateInput{Slug: "shop", Mode: "agent", IdempotencyKey: key, Purpose: "book the table", ContactName: "Carl"})
	if err != nil {
		t.Fatal(err)
	}
	return out.HandoffID, strings.TrimPrefix(out.Continuation.URL, "https://hub.example"), out.Continuation.Token
}

// 64 redeem one token at once, while previews look at it all the time; the winner repeats and works on.
func TestOneOfManyRedeemersWinsAndPreviewsChangeNothing(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		d := newGate(t, f)
		id, path, _ := handOn(t, f, bot, "k")
		before := hubtest.DumpOf(t, f.Config)
		for range 100 {
			for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
				if w := d.ask(method, path, ""); w.Code >= 300 {
					t.Fatalf("%s: %d %s", method, w.Code, w.Body)
				}
			}
		}
		hubtest.WantSameRows(t, "after previews", hubtest.DumpOf(t, f.Config), before)
		var won, lost atomic.Int32
		var got Redemption
		var key string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				mine := "key-" + string(rune('A'+i))
				w := d.ask(http.MethodPost, path, "", "Idempotency-Key", mine)
				switch w.Code {
				case http.StatusOK:
					won.Add(1)
					mu.Lock()
					defer mu.Unlock()
					d.json(w, &got)
					key = mine
				case http.StatusConflict:
					lost.Add(1)
				default:
					t.Errorf("%d %s", w.Code, w.Body)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 63 {
			t.Fatalf("%d won, %d were told that they lost", won.Load(), lost.Load())
		}
		if got.HandoffID != id || got.Purpose != "book the table" || got.Contact.Name != "Carl" || got.Slug != "shop" || got.SessionToken == "" || got.ThreadURL != "https://hub.example/api/v1/continuations/"+id ||
			len(got.Messages) != 1 || got.Provenance.Origin != "business" {
			t.Errorf("the winner gets %+v", got)
		}
		var again Redemption
		d.json(d.ask(http.MethodPost, path, "", "Idempotency-Key", key), &again)
		if !again.Replay || again.SessionToken != got.SessionToken {
			t.Errorf("the winner again: %+v", again)
		}
		if w := d.ask(http.MethodPost, path, ""); w.Code != http.StatusConflict {
			t.Errorf("without a key: %d", w.Code)
		}
		var said Description
		if d.json(d.ask(http.MethodGet, path, "", "Accept", "application/json"), &said); !said.Redeemed || !strings.Contains(said.HowTo, "any more") {
			t.Errorf("it is described as %+v", said)
		}

		bearer := []string{"Authorization", "Bearer " + got.SessionToken}
		thread := strings.TrimPrefix(got.ThreadURL, "https://hub.example")
		if w := d.ask(http.MethodPost, thread+"/messages", `{"body":"Which day?"}`, bearer...); w.Code != http.StatusOK {
			t.Errorf("a message: %d %s", w.Code, w.Body)
		}
		var read SessionThread
		d.json(d.ask(http.MethodGet, thread, "", bearer...), &read)
		if read.Status != "CLAIMED" || len(read.Messages) != 2 || read.Messages[1].Provenance.ContentTrust != "own" || read.Messages[0].Provenance.ContentTrust != "untrusted" {
			t.Errorf("the thread is %+v", read)
		}
		for _, bad := range []struct{ path, token string }{{thread, ""}, {thread, "x"}, {strings.Replace(thread, id, "0192f3a4-0000-7000-8000-000000000000", 1), got.SessionToken}, {thread, strings.TrimPrefix(path, "/a2a/continue/")}} {
			if w := d.ask(http.MethodGet, bad.path, "", "Authorization", "Bearer "+bad.token); w.Code != http.StatusUnauthorized {
				t.Errorf("%+v: %d %s", bad, w.Code, w.Body)
			}
		}
		if w := d.ask(http.MethodPost, thread+"/messages", `{"bodi":"x"}`, bearer...); w.Code != http.StatusBadRequest {
			t.Errorf("an unknown field: %d %s", w.Code, w.Body)
		}
		if w := d.ask(http.MethodPost, thread+"/complete", `{"result_summary":"Booked."}`, bearer...); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "COMPLETED") {
			t.Errorf("completing: %d %s", w.Code, w.Body)
		}
		if w := d.ask(http.MethodGet, thread, "", bearer...); w.Code != http.StatusUnauthorized {
			t.Errorf("after the end: %d", w.Code)
		}
		if w := d.ask(http.MethodPost, path, "", "Idempotency-Key", "late"); w.Code != http.StatusGone {
			t.Errorf("a late redeemer: %d %s", w.Code, w.Body)
		}
	})
}

func TestTheTokenMayComeAsABearerSoThatItStaysOutOfAddresses(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	f.Shop()
	bot, key := f.AgentWithKey("bot@shop")
	d := newGate(t, f)
	_, _, token := handOn(t, f, bot, "k")
	for _, wrong := range []string{"", "Basic abc", "Bearer", "Bearer x.y.z"} {
		if w := d.ask(http.MethodPost, "/a2a/continue", "", "Authorization", wrong); w.Code != http.StatusBadRequest {
			t.Errorf("%q: %d %s", wrong, w.Code, w.Body)
		}
	}
	var got Redemption
	d.json(d.ask(http.MethodPost, "/a2a/continue", "", "Authorization", "Bearer "+token), &got)
	if got.SessionToken == "" {
		t.Errorf("%+v", got)
	}
	// With a key of the hub its agent is the holder.
	id, path, _ := handOn(t, f, bot, "other")
	d.json(d.ask(http.MethodPost, path, "", "Authorization", "Bearer "+key), &got)
	s, err := f.Hub.DeskStatus(t.Context(), bot, hub.StatusInput{HandoffID: id})
	if err != nil || s.Handoff.Holder != bot.Actor.ID {
		t.Errorf("it is held by %s (%v)", s.Handoff.Holder, err)
	}
	if w := d.ask(http.MethodPost, path, "", "Authorization", "Bearer hc_live_wrong"); w.Code != http.StatusUnauthorized {
		t.Errorf("an unknown key: %d", w.Code)
	}
	if w := d.ask(http.MethodPost, "/a2a/continue/abc", "", "Authorization", "Bearer hc_live_wrong"); w.Code != http.StatusBadRequest {
		t.Errorf("no token, and an unknown key: %d", w.Code)
	}
}

func TestAnExpiredContinuationIsGoneFromItsSecondOn(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	f.Shop()
	bot := f.Agent("bot@shop")
	d := newGate(t, f)
	_, path, _ := handOn(t, f, bot, "k")
	f.Clock.Advance(time.Hour)
	if w := d.ask(http.MethodPost, path, ""); w.Code != http.StatusGone || !strings.Contains(w.Body.String(), "continuation_expired") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := d.ask(http.MethodGet, path, "", "Accept", "application/json"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "EXPIRED") {
		t.Errorf("its description: %d %s", w.Code, w.Body)
	}
}

func TestAContinuationIsDescribedWithoutItsPurposeToABrowser(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	f.Shop()
	bot := f.Agent("bot@shop")
	d := newGate(t, f)
	_, path, _ := handOn(t, f, bot, "k")
	page := d.ask(http.MethodGet, path, "", "Accept", "text/html,*/*")
	if !strings.Contains(page.Body.String(), "The Shop") || strings.Contains(page.Body.String(), "book the table") || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") {
		t.Errorf("a browser: %s", page.Body)
	}
	asJSON := d.ask(http.MethodGet, path, "", "Accept", "application/json;q=0.9, text/plain")
	if !strings.Contains(asJSON.Body.String(), `"purpose":"book the table"`) {
		t.Errorf("a program: %s", asJSON.Body)
	}
	for _, w := range []*httptest.ResponseRecorder{page, asJSON} {
		if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Referrer-Policy") != "no-referrer" || w.Header().Get("X-Robots-Tag") != "noindex" {
			t.Errorf("headers %v", w.Header())
		}
	}
	for p, want := range map[string]int{"/a2a/continue/x": 400, "/a2a/continue/" + strings.Repeat("a", 5000): 400, path[:len(path)-2] + "AA": 401} {
		if w := d.ask(http.MethodGet, p, ""); w.Code != want || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%.40s: %d %s", p, w.Code, w.Body)
		}
	}
}
