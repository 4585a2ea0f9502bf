package webui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// handedOver is a hub where a customer waits for the person of a shop, and that person's link.
func handedOver(t *testing.T, in hub.InitiateInput) (f *hubtest.Fixture, bot hub.Call, id, path string) {
	t.Helper()
	f = hubtest.New(t, "sqlite", hubtest.WithMail())
	f.Shop()
	box := f.Post(f.Hub, nil)
	bot = f.Agent("bot@shop")
	in.Slug, in.Mode, in.IdempotencyKey = "shop", "human", "k"
	out, err := f.Hub.Initiate(t.Context(), bot, in)
	if err != nil {
		t.Fatal(err)
	}
	return f, bot, out.HandoffID, "/h/" + box.Token()
}

func state(t *testing.T, f *hubtest.Fixture, bot hub.Call, id string) hub.DeskStatus {
	t.Helper()
	s, err := f.Hub.DeskStatus(t.Context(), bot, hub.StatusInput{HandoffID: id})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAPersonReadsARequestAndNothingHappensUntilAButtonIsPressed(t *testing.T) {
	t.Parallel()
	f, bot, id, path := handedOver(t, hub.InitiateInput{Reason: "Wants to return a bike", ContactName: "Carl", ContactPhone: "030 901820", Urgency: "emergency", ReservationID: "R-7", AgentLabel: "shop-bot"})
	b := newBrowser(t, f)
	before := hubtest.DumpOf(t, f.Config)
	for _, did := range []string{"take", "answer", "complete", "decline", "x"} { // what an address says did not happen
		wantNotIn(t, b.page(path+"?did="+did), `class="said"`)
	}
	page := b.page(path)
	wantIn(t, page, "The Shop", "Wants to return a bike", "Carl", "030 901820", "R-7", "unverified", "shop-bot", "emergency", "waits for you", "Send the answer", `action="`+path+`"`)
	for _, method := range []string{http.MethodHead, http.MethodGet, http.MethodOptions, http.MethodPut} {
		b.do(httptest.NewRequest(method, path, nil))
	}
	hubtest.WantSameRows(t, "after it was opened", hubtest.DumpOf(t, f.Config), before)
	if s := state(t, f, bot, id); s.Handoff.State != handoff.Open {
		t.Errorf("it is %s", s.Handoff.State)
	}
	w := b.get(path)
	for name, want := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Robots-Tag": "noindex"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
}

var hiddenKey = regexp.MustCompile(`name="key" value="([^"]+)"`)

func TestAPersonTakesAnswersAndCompletes(t *testing.T) {
	t.Parallel()
	f, bot, id, path := handedOver(t, hub.InitiateInput{Reason: "Wants a call"})
	b := newBrowser(t, f)
	key := hiddenKey.FindStringSubmatch(b.page(path))[1]
	answer := url.Values{"act": {"answer"}, "text": {"I will call.\r\nToday."}, "key": {key}}
	wantRedirect(t, b.post(path, answer), path+"?did=answer")
	wantRedirect(t, b.post(path, answer), path+"?did=answer") // sent twice
	s := state(t, f, bot, id)
	if s.Handoff.Holder != "person:shop" || len(s.Messages) != 1 || s.Messages[0].Body != "I will call.\nToday." {
		t.Fatalf("%+v", s)
	}
	wantIn(t, b.page(path+"?did=answer"), "Your answer was passed on", "I will call.", "you have taken it")
	wantNotIn(t, b.page(path), "I take it")
	w := b.post(path, url.Values{"act": {"answer"}, "text": {" "}})
	if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "Write an answer first.") {
		t.Errorf("an empty answer: %d %s", w.Code, w.Body)
	}
	wantRedirect(t, b.post(path, url.Values{"act": {"complete"}, "text": {"Called."}}), path+"?did=complete")
	page := b.page(path)
	wantIn(t, page, "has ended", "Called.")
	wantNotIn(t, page, "<form method=\"post\" action=\"/h/")
	wantIn(t, b.page(path+"?did=complete"), "It is marked as done")
	if _, err := f.Hub.Erase(t.Context(), hubtest.Operator(), id); err != nil {
		t.Fatal(err)
	}
	page = b.page(path)
	wantIn(t, page, ">erased</dd>")
	wantNotIn(t, page, "Wants a call", "I will call")
	if w := b.post(path, url.Values{"act": {"answer"}, "text": {"x"}}); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "has ended meanwhile") {
		t.Errorf("after the end: %d %s", w.Code, w.Body)
	}
}

func TestAPersonReadsTimesByTheClockOfTheBusinessAndFindsNoWayToTheInbox(t *testing.T) {
	t.Parallel()
	f, _, _, path := handedOver(t, hub.InitiateInput{Reason: "Wants a call"})
	zone := "Europe/Berlin"
	if _, err := f.Hub.EditBusiness(t.Context(), hubtest.Operator(), hub.BusinessInput{Slug: "shop", Timezone: &zone}); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, f)
	wantIn(t, b.page(path), ", 13:00 CET</time>")
	for _, p := range []string{path, path + "a"} {
		wantNotIn(t, b.get(p).Body.String(), `href="/inbox"`)
	}
}

func TestAPersonDeclinesWithAReason(t *testing.T) {
	t.Parallel()
	f, bot, id, path := handedOver(t, hub.InitiateInput{})
	b := newBrowser(t, f)
	wantRedirect(t, b.post(path, url.Values{"act": {"decline"}, "text": {"not ours"}}), path+"?did=decline")
	if s := state(t, f, bot, id); s.Handoff.State != handoff.Rejected || s.Handoff.EndedReason != "not ours" {
		t.Errorf("%+v", s.Handoff)
	}
}

func TestALinkThatIsNoneShowsNothing(t *testing.T) {
	t.Parallel()
	f, _, id, path := handedOver(t, hub.InitiateInput{Reason: "SECRET_MARK"})
	b := newBrowser(t, f)
	for _, p := range []string{"/h/x", path[:len(path)-1], path + "a", strings.ToUpper(path[:3]) + strings.ToUpper(path[3:]), "/h/" + strings.Repeat("a", 32), "/h/" + id, "/h/" + strings.Repeat("y", 5000)} {
		for _, w := range []*httptest.ResponseRecorder{b.get(p), b.post(p, url.Values{"act": {"take"}})} {
			if w.Code != http.StatusNotFound || strings.Contains(w.Body.String(), "SECRET_MARK") {
				t.Errorf("%.60s: %d %.300s", p, w.Code, w.Body)
			}
		}
	}
	if w := b.post(path, url.Values{"act": {"explode"}}); w.Code != http.StatusBadRequest {
		t.Errorf("an unknown act: %d", w.Code)
	}
	if w := b.post(path, url.Values{"text": {strings.Repeat("x", maxAnswer)}}); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("a huge form: %d", w.Code)
	}
	if _, err := f.Hub.RevokeContinuation(t.Context(), hubtest.Operator(), id); err != nil {
		t.Fatal(err)
	}
	if w := b.get(path); w.Code != http.StatusNotFound {
		t.Errorf("a revoked link: %d", w.Code)
	}
}

func TestWhatACustomerWroteCannotActOnThePersonsPage(t *testing.T) {
	t.Parallel()
	const hostile = `<script>alert(1)</script><img src=x onerror=alert(2)>` + "\u202eevil\u0007 </dd></dl><form action=https://evil.example>"
	f, _, _, path := handedOver(t, hub.InitiateInput{Reason: hostile, ContactName: hostile, AgentLabel: hostile, ReservationID: hostile})
	page := newBrowser(t, f).page(path)
	wantNotIn(t, page, "<script", "<img src=x", "\u202e", "\u0007", "<form action=https", `href="https://evil`)
}
