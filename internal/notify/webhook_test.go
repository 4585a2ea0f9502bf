package notify

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"handclasp/internal/handoff"
)

func news(to string) handoff.Notification {
	return handoff.Notification{
		ID: "delivery-1", HandoffID: aHandoff, Kind: handoff.NotifyNews, Channel: handoff.ChannelWebhook, To: to, Secret: testSecret,
		Event: handoff.EventCompleted, Status: "completed", Sender: "bob@team", Link: "https://hub.example/handoffs/1?a=1&b=2",
		Reason: "prose", Body: "prose", ContactName: "prose", AgentLabel: "prose", Business: "prose",
		CreatedAt: time.Date(2026, 3, 1, 12, 30, 0, 0, time.UTC),
	}
}

// inbox is a server that keeps the one request that it gets; answer may be nil.
type inbox struct {
	URL     string
	request chan request
}

type request struct {
	header http.Header
	method string
	body   []byte
}

func newInbox(t *testing.T, answer http.HandlerFunc) *inbox {
	t.Helper()
	in := &inbox{request: make(chan request, 10)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		in.request <- request{r.Header, r.Method, body}
		if answer != nil {
			answer(w, r)
		}
	}))
	t.Cleanup(server.Close)
	in.URL = server.URL + "/hook/T0PS3CR3T"
	return in
}

func TestAWebhookIsSignedAndCarriesNoProse(t *testing.T) {
	t.Parallel()
	in := newInbox(t, nil)
	n := news(in.URL)
	wantOutcome(t, NewWebhook(loopback()).Send(t.Context(), n), handoff.OutcomeSent, "")
	got := <-in.request
	verifier, err := standardwebhooks.NewWebhook(n.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := verifier.Verify(got.body, got.header); err != nil {
		t.Errorf("the receiver's library says %v", err)
	}
	if id := got.header.Get("webhook-id"); id != n.ID || got.method != http.MethodPost || got.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s with id %q, %q", got.method, id, got.header.Get("Content-Type"))
	}
	var body any
	if err := json.Unmarshal(got.body, &body); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": "handoff.completed", "timestamp": "2026-03-01T12:30:00Z",
		"data": map[string]any{"handoff_id": aHandoff, "event": "handoff.completed", "status": "completed", "link": n.Link},
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestAWebhookWithoutAGoodSecretIsNotSent(t *testing.T) {
	t.Parallel()
	in := newInbox(t, nil)
	for _, secret := range []string{"", "whsec_", "T0PS3CR3T", "whsec_T0PS3CR3T", "whsec_!!!", strings.TrimPrefix(testSecret, "whsec_")} {
		n := news(in.URL)
		n.Secret = secret
		wantOutcome(t, NewWebhook(loopback()).Send(t.Context(), n), handoff.OutcomeRefused, handoff.ReasonNotConfigured)
	}
	n := news(in.URL)
	n.ID = "a\r\nX: y"
	wantOutcome(t, NewWebhook(loopback()).Send(t.Context(), n), handoff.OutcomeRefused, ReasonMessage)
	if len(in.request) != 0 {
		t.Error("something was sent")
	}
}

func TestWhatAReceiverAnswersIsTheOutcome(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]handoff.OutcomeKind{
		200: handoff.OutcomeSent, 202: handoff.OutcomeSent, 204: handoff.OutcomeSent,
		301: handoff.OutcomeFailed, 307: handoff.OutcomeFailed, 304: handoff.OutcomeFailed,
		400: handoff.OutcomeFailed, 401: handoff.OutcomeFailed, 404: handoff.OutcomeFailed, 408: handoff.OutcomeFailed, 429: handoff.OutcomeFailed,
		410: handoff.OutcomeRefused, 500: handoff.OutcomeFailed, 502: handoff.OutcomeFailed, 503: handoff.OutcomeFailed,
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			in := newInbox(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "/elsewhere")
				w.Header().Set("Retry-After", "120")
				w.WriteHeader(code)
			})
			reason := "provider_" + strconv.Itoa(code)
			if want == handoff.OutcomeSent {
				reason = ""
			}
			var wait time.Duration
			if code == 429 || code == 503 {
				wait = 2 * time.Minute
			}
			for _, s := range []Sender{NewWebhook(loopback()), NewSlack(loopback())} {
				o := s.Send(t.Context(), news(in.URL))
				wantOutcome(t, o, want, reason)
				if o.RetryAfter != wait {
					t.Errorf("retry after %v, want %v", o.RetryAfter, wait)
				}
			}
			if n := len(in.request); n != 2 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestAReceiverMayAskToWaitForUpToADay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "soon": 0, "-5": 0, "0": 0, "90": 90 * time.Second, "99999999": handoff.GiveUpAfter, "99999999999999999999": 0,
		"Sun, 01 Mar 2026 12:05:00 GMT": 5 * time.Minute, "Sun, 01 Mar 2026 11:00:00 GMT": 0, "Sun, 01 Mar 2099 11:00:00 GMT": handoff.GiveUpAfter,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: %v, want %v", value, got, want)
		}
	}
}

func TestWithoutAnAnswerItDependsOnWhetherTheRequestWasWritten(t *testing.T) {
	t.Parallel()
	cert, _ := authority()
	closed, closedPort := listen(t)
	closed.Close()
	tests := []struct {
		name   string
		scheme string
		play   func(*line) // nil: nobody listens
		kind   handoff.OutcomeKind
		reason string
	}{
		{"nobody listens", "http", nil, handoff.OutcomeFailed, ReasonUnreachable},
		{"gone before TLS", "https", func(*line) {}, handoff.OutcomeFailed, ReasonUnreachable},
		{"silent instead of TLS", "https", (*line).hang, handoff.OutcomeFailed, ReasonUnreachable},
		{"no TLS at all", "https", func(l *line) { l.hear(); l.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n") }, handoff.OutcomeFailed, ReasonUnreachable},
		{"gone after the request", "http", func(l *line) { hearRequest(l) }, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"silent after the request", "http", (*line).hang, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"noise for an answer", "http", func(l *line) { hearRequest(l); l.say("250 fine") }, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"endless headers", "http", func(l *line) { hearRequest(l); l.say("HTTP/1.1 200 OK"); l.dribble("X: y\r\n") }, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"an endless header", "http", func(l *line) { hearRequest(l); l.say("HTTP/1.1 200 OK"); l.dribble("xxxxxxxx") }, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"endless interim answers", "http", func(l *line) { hearRequest(l); l.dribble("HTTP/1.1 102 Processing\r\n\r\n") }, handoff.OutcomeUnknown, ReasonNoAnswer},
		{"an endless body", "http", func(l *line) {
			hearRequest(l)
			l.say("HTTP/1.1 200 OK\r\n")
			l.dribble(strings.Repeat("x", 4096))
		}, handoff.OutcomeSent, ""},
		{"a body that never comes", "http", func(l *line) { hearRequest(l); l.say("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n"); l.hang() }, handoff.OutcomeSent, ""},
		{"a refusal with a body that never comes", "http", func(l *line) { hearRequest(l); l.say("HTTP/1.1 410 Gone\r\nContent-Length: 9\r\n"); l.hang() }, handoff.OutcomeRefused, "provider_410"},
		{"over TLS", "https", func(l *line) {
			s := tls.Server(l, &tls.Config{Certificates: []tls.Certificate{cert}})
			inner := &line{s, bufio.NewReader(s)}
			hearRequest(inner)
			inner.say("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n")
			_ = s.Close()
		}, handoff.OutcomeSent, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			port := closedPort
			if tt.play != nil {
				port = script(t, tt.play)
			}
			o := loopback()
			o.Timeout = 400 * time.Millisecond
			n := news(tt.scheme + "://127.0.0.1:" + strconv.Itoa(port) + "/T0PS3CR3T")
			wantOutcome(t, NewWebhook(o).Send(t.Context(), n), tt.kind, tt.reason)
		})
	}
}

// hearRequest reads a request to the end of its body, which is one line of JSON.
func hearRequest(l *line) {
	for l.hear() != "" {
	}
	var body any
	_ = json.NewDecoder(l.r).Decode(&body)
}

func TestACertificateThatNobodyTrustsIsOursToMend(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = nil
	cert, _ := authority()
	server.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.StartTLS()
	t.Cleanup(server.Close)
	o := loopback()
	o.RootCAs = nil
	wantOutcome(t, NewWebhook(o).Send(t.Context(), news(server.URL)), handoff.OutcomeFailed, ReasonTLS)
	wantOutcome(t, NewWebhook(loopback()).Send(t.Context(), news(server.URL)), handoff.OutcomeFailed, "provider_404")
}

// What is no address is refused for good; one that is forbidden here the operator may yet allow.
func TestAForbiddenAddressIsNotDialled(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]handoff.OutcomeKind{
		"http://169.254.169.254/T0PS3CR3T": handoff.OutcomeFailed, "http://127.0.0.1:1/T0PS3CR3T": handoff.OutcomeFailed, "http://[::1]/T0PS3CR3T": handoff.OutcomeFailed,
		"https://u:T0PS3CR3T@hub.example/": handoff.OutcomeRefused, "gopher://x/T0PS3CR3T": handoff.OutcomeRefused, "http://:80/T0PS3CR3T": handoff.OutcomeRefused,
		"http://hub.example:99999/T0PS3CR3T": handoff.OutcomeRefused, "http://hub.example:0/T0PS3CR3T": handoff.OutcomeRefused, "http://hub.example:/T0PS3CR3T": handoff.OutcomeRefused,
		"http://hub.example/T0PS3CR3T\u202e": handoff.OutcomeRefused, "http://hub.example/T0PS3CR3T\u200b": handoff.OutcomeRefused,
	} {
		for _, s := range []Sender{NewWebhook(Outside{}), NewSlack(Outside{})} {
			o := s.Send(t.Context(), news(to))
			wantOutcome(t, o, want, handoff.ReasonInvalid)
		}
	}
	o := Outside{resolve: func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }}
	wantOutcome(t, NewWebhook(o).Send(t.Context(), news("http://inbox.example/")), handoff.OutcomeFailed, ReasonUnreachable)
}

func TestSlackGetsWordsAndNoMarkupOfOthers(t *testing.T) {
	t.Parallel()
	in := newInbox(t, nil)
	n := news(in.URL)
	n.Sender, n.Urgency = "`*<!channel>_ @here & [x](http://evil.example)", handoff.UrgencyHigh
	wantOutcome(t, NewSlack(loopback()).Send(t.Context(), n), handoff.OutcomeSent, "")
	var body map[string]string
	if err := json.Unmarshal((<-in.request).body, &body); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"text": "[HIGH] News of handoff `3FA9C1`: `handoff completed`, now `completed`, from `'*&lt;!channel&gt;_ @here &amp; [x](http[://]evil[.]example)`\nhttps://hub.example/handoffs/1?a=1&amp;b=2"}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// word is a sender that answers with its name.
type word string

func (w word) Send(context.Context, handoff.Notification) handoff.Outcome {
	return handoff.Outcome{Kind: handoff.OutcomeSent, ProviderID: string(w)}
}

func TestASetSendsByChannel(t *testing.T) {
	t.Parallel()
	set := Set{handoff.ChannelEmail: word("mail"), handoff.ChannelSlack: word("slack"), handoff.ChannelSMS: nil}
	for channel, want := range map[handoff.Channel]string{handoff.ChannelEmail: "mail", handoff.ChannelSlack: "slack"} {
		if o := set.Send(t.Context(), handoff.Notification{Channel: channel}); o.ProviderID != want {
			t.Errorf("%s: %+v", channel, o)
		}
	}
	for _, channel := range []handoff.Channel{handoff.ChannelWebhook, handoff.ChannelSMS, ""} {
		wantOutcome(t, set.Send(t.Context(), handoff.Notification{Channel: channel}), handoff.OutcomeRefused, handoff.ReasonNotConfigured)
	}
}
