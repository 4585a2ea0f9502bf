package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"handclasp/internal/handoff"
)

// Webhook sends news to an address of an agent's own, signed as in the Standard Webhooks
// specification. It names what happened and where to read it, and carries nothing that anybody wrote.
type Webhook struct {
	client *http.Client
	now    func() time.Time
}

// NewWebhook returns a sender that dials by the rules of o.
func NewWebhook(o Outside) *Webhook { return &Webhook{o.Client(), time.Now} }

const (
	secretPrefix = "whsec_"
	// leastSecret and mostSecret are the specification's bounds, in bytes.
	leastSecret, mostSecret = 24, 64
)

// hook is the body of a webhook.
type hook struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      hookData  `json:"data"`
}

type hookData struct {
	HandoffID string `json:"handoff_id"`
	Event     string `json:"event"`
	Status    string `json:"status"`
	Link      string `json:"link"`
}

// Send delivers n. As the specification has it, 2xx is success, 410 ends the subscription, and all
// else is to be tried again.
func (w *Webhook) Send(ctx context.Context, n handoff.Notification) handoff.Outcome {
	if !token.MatchString(n.ID) {
		return refused(ReasonMessage, errors.New("the delivery has no id"))
	}
	signer, err := signer(n.Secret)
	if err != nil {
		return refused(handoff.ReasonNotConfigured, err)
	}
	event := string(eventOf(n))
	body, err := json.Marshal(hook{event, n.CreatedAt.UTC(), hookData{n.HandoffID, event, n.Status, liveLink(n.Link)}})
	if err != nil {
		return refused(ReasonMessage, err)
	}
	now := w.now()
	signature, err := signer.Sign(n.ID, now, body)
	if err != nil {
		return refused(handoff.ReasonNotConfigured, err)
	}
	return post(ctx, w.client, n.To, body, now, map[string]string{
		standardwebhooks.HeaderWebhookID:        n.ID,
		standardwebhooks.HeaderWebhookTimestamp: strconv.FormatInt(now.Unix(), 10),
		standardwebhooks.HeaderWebhookSignature: signature,
	})
}

func signer(secret string) (*standardwebhooks.Webhook, error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(key) < leastSecret || len(key) > mostSecret {
		return nil, fmt.Errorf("the secret must be %s and %d to %d bytes in base64", secretPrefix, leastSecret, mostSecret)
	}
	return standardwebhooks.NewWebhookRaw(key)
}

// eventOf is what n is news of; the other kinds have but one event.
func eventOf(n handoff.Notification) handoff.EventType {
	switch {
	case n.Event != "":
		return n.Event
	case n.Kind == handoff.NotifyReply:
		return handoff.EventMessageCreated
	}
	return handoff.EventCreated
}

// Slack sends news to an address that takes what Slack's incoming webhooks take.
type Slack struct {
	client *http.Client
	now    func() time.Time
}

// NewSlack returns a sender that dials by the rules of o.
func NewSlack(o Outside) *Slack { return &Slack{o.Client(), time.Now} }

// Send delivers n; outcomes are those of [Webhook.Send].
func (s *Slack) Send(ctx context.Context, n handoff.Notification) handoff.Outcome {
	body, err := json.Marshal(map[string]string{"text": slackText(n)})
	if err != nil {
		return refused(ReasonMessage, err)
	}
	return post(ctx, s.client, n.To, body, s.now(), nil)
}

func slackText(n handoff.Notification) string {
	var b strings.Builder
	switch n.Urgency {
	case handoff.UrgencyHigh, handoff.UrgencyEmergency:
		fmt.Fprintf(&b, "[%s] ", strings.ToUpper(string(n.Urgency)))
	}
	b.WriteString("News of handoff " + verbatim(Code(n.HandoffID)) + ": " + verbatim(eventWords(n)))
	if n.Status != "" {
		b.WriteString(", now " + verbatim(n.Status))
	}
	if n.Sender != "" {
		b.WriteString(", from " + verbatim(n.Sender))
	}
	if link := liveLink(n.Link); link != "" {
		b.WriteString("\n" + slackEscape.Replace(link))
	}
	return b.String()
}

// slackEscape writes out what opens a link, a mention or an entity. Nothing can be escaped of the
// rest of the markup, and what others wrote goes into code, where it has no meaning.
var slackEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

func verbatim(s string) string {
	s = strings.ReplaceAll(Inert(s, mostLine), "`", "'")
	if s == "" {
		s = "-"
	}
	return "`" + slackEscape.Replace(s) + "`"
}

// post sends body once. Anything that goes wrong after the request began to be written has an
// unknown outcome, because the other side may have read all of it.
func post(ctx context.Context, client *http.Client, address string, body []byte, now time.Time, headers map[string]string) handoff.Outcome {
	u, err := CheckURL(address)
	if err != nil {
		return refused(handoff.ReasonInvalid, err)
	}
	// The transport says so before it hands the last byte to the connection. That it has written all
	// it would say too late: an answer may be there first.
	var began atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteHeaders: func() { began.Store(true) }})
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return refused(handoff.ReasonInvalid, errors.New("the address cannot be read as a URL"))
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Handclasp")
	for name, value := range headers {
		r.Header.Set(name, value)
	}
	resp, err := client.Do(r)
	if err != nil {
		return broken(err, began.Load())
	}
	defer resp.Body.Close()
	discard(resp.Body)
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return handoff.Outcome{Kind: handoff.OutcomeSent}
	case resp.StatusCode == http.StatusGone:
		return refused(reasonCode(resp.StatusCode), errors.New("the other side wants no more of these"))
	}
	o := failed(reasonCode(resp.StatusCode), fmt.Errorf("the other side answered %d", resp.StatusCode))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		o.RetryAfter = retryAfter(resp.Header.Get("Retry-After"), now)
	}
	return o
}

// broken is the outcome of a request without an answer.
func broken(err error, began bool) handoff.Outcome {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // its text has the address, and that may hold a secret
	}
	var forbidden *AddressError
	var distrust *tls.CertificateVerificationError
	switch {
	case errors.As(err, &forbidden): // the operator may allow it yet, or another node does
		return failed(handoff.ReasonInvalid, err)
	case began:
		return unknown(err)
	case errors.As(err, &distrust):
		return failed(ReasonTLS, err)
	}
	return failed(ReasonUnreachable, err)
}

// retryAfter reads the header in either of its forms. Nobody may ask for more than the day for
// which a delivery is tried.
func retryAfter(value string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), handoff.GiveUpAfter)
}
