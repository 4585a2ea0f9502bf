package hubtest

import (
	"context"
	"log/slog"
	"strings"
	"sync"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/outbox"
)

// Postbox stands for whatever brings notifications to people: it keeps them and answers as it is told.
type Postbox struct {
	mu     sync.Mutex
	got    []handoff.Notification
	answer func(handoff.Notification) handoff.Outcome
}

// Send takes one notification.
func (p *Postbox) Send(_ context.Context, n handoff.Notification) handoff.Outcome {
	p.mu.Lock()
	p.got = append(p.got, n)
	answer := p.answer
	p.mu.Unlock()
	if answer == nil {
		return handoff.Outcome{Kind: handoff.OutcomeSent, ProviderID: n.ID + "@hub.example"}
	}
	return answer(n)
}

// All is what was sent so far.
func (p *Postbox) All() []handoff.Notification {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]handoff.Notification(nil), p.got...)
}

// Token is the token in the person's link of the last notification.
func (p *Postbox) Token() string {
	all := p.All()
	if len(all) == 0 {
		return ""
	}
	link := all[len(all)-1].Link
	return link[strings.LastIndexByte(link, '/')+1:]
}

// Post runs an outbox of a hub that delivers to a postbox. Without an answer all is sent.
func (f *Fixture) Post(h *hub.Hub, answer func(handoff.Notification) handoff.Outcome) *Postbox {
	f.T.Helper()
	p := &Postbox{answer: answer}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = outbox.Send(ctx, h, p, slog.New(slog.DiscardHandler), f.Metrics)
	}()
	f.T.Cleanup(func() { cancel(); <-done })
	return p
}

// WithMail lets the hub send e-mail.
func WithMail() Option { return WithHub(func(c *hub.Config) { c.Mail = true }) }

// Shop configures a business that is reached by e-mail, and whose messages are counted.
func (f *Fixture) Shop() {
	f.T.Helper()
	name, channel, email, most := "The Shop", "email", "ann@shop.example", 100_000
	if _, err := f.Hub.AddBusiness(context.Background(), Operator(), hub.BusinessInput{Slug: "shop", Name: &name, Channel: &channel, Email: &email, DailyMessages: &most}); err != nil {
		f.T.Fatalf("add the business: %v", err)
	}
}
