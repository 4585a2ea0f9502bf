package hub_test

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/outbox"
)

// postbox stands for whatever brings notifications to people: it keeps them and answers as it is told.
type postbox struct {
	mu      sync.Mutex
	got     []handoff.Notification
	answer  func(handoff.Notification) handoff.Outcome
	arrived chan struct{}
}

func (p *postbox) Send(_ context.Context, n handoff.Notification) handoff.Outcome {
	p.mu.Lock()
	p.got = append(p.got, n)
	answer := p.answer
	p.mu.Unlock()
	p.arrived <- struct{}{}
	if answer == nil {
		return handoff.Outcome{Kind: handoff.OutcomeSent, ProviderID: n.ID + "@hub.example"}
	}
	return answer(n)
}

func (p *postbox) all() []handoff.Notification {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]handoff.Notification(nil), p.got...)
}

// post runs an outbox of the hub that delivers to a postbox.
func post(t testing.TB, f *hubtest.Fixture, h *hub.Hub, answer func(handoff.Notification) handoff.Outcome) *postbox {
	t.Helper()
	p := &postbox{answer: answer, arrived: make(chan struct{}, 10_000)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = outbox.Send(ctx, h, p, slog.New(slog.DiscardHandler), f.Metrics)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

var withMail = hubtest.WithHub(func(c *hub.Config) { c.Mail = true })

// shop configures a business that is reached by e-mail.
func shop(f *hubtest.Fixture) {
	f.T.Helper()
	business(f, hub.BusinessInput{Slug: "shop", Name: ptr("The Shop"), Channel: ptr("email"), Email: ptr("ann@shop.example")})
}

func business(f *hubtest.Fixture, in hub.BusinessInput) {
	f.T.Helper()
	_, err := f.Hub.AddBusiness(bg, hubtest.Operator(), in)
	noError(f.T, err)
}

func initiate(f *hubtest.Fixture, call hub.Call, in hub.InitiateInput) hub.Initiated {
	f.T.Helper()
	if in.Slug == "" {
		in.Slug = "shop"
	}
	if in.Mode == "" {
		in.Mode = "human"
	}
	out, err := f.Hub.Initiate(bg, call, in)
	noError(f.T, err)
	return out
}

// tokenIn is the token at the end of a person's link.
func tokenIn(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

func does(f *hubtest.Fixture, token string, act hub.PersonAct, text string) {
	f.T.Helper()
	noError(f.T, f.Hub.PersonDoes(bg, hub.PersonInput{Token: token, Act: act, Text: text}))
}

func deskStatus(f *hubtest.Fixture, call hub.Call, id string) hub.DeskStatus {
	f.T.Helper()
	s, err := f.Hub.DeskStatus(bg, call, hub.StatusInput{HandoffID: id})
	noError(f.T, err)
	return s
}

// withoutSecrets leaves out the settings: a secret may be made at its first use.
func withoutSecrets(rows []string) []string {
	return slices.DeleteFunc(slices.Clone(rows), func(row string) bool { return strings.HasPrefix(row, "settings") })
}
