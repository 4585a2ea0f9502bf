package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/notify"
	"handclasp/internal/telemetry"
)

const (
	// atOnce is how many notifications of this node are on their way at a time.
	atOnce = 16
	// lookEvery is how often it looks for due ones at least: another node may have made some and gone.
	lookEvery = 5 * time.Second
	// sendFor ends one attempt; the lease of a delivery outlives it.
	sendFor = handoff.SendLease / 2
	// reportFor is how long the outcome of an attempt is tried to be written down.
	reportFor = 30 * time.Second
)

// Send takes due deliveries and sends them until ctx ends; then it waits for those that are on their
// way. One that is cut off by the end of the process is taken anew when its lease is over.
func Send(ctx context.Context, h *hub.Hub, sender notify.Sender, log *slog.Logger, m *telemetry.Metrics) error {
	s := &sending{hub: h, sender: sender, log: log, metrics: m, free: make(chan struct{}, atOnce)}
	defer s.under.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-h.Sendable():
		}
		timer.Reset(s.round(ctx))
	}
}

type sending struct {
	hub     *hub.Hub
	sender  notify.Sender
	log     *slog.Logger
	metrics *telemetry.Metrics
	free    chan struct{} // one token for each that is on its way
	under   sync.WaitGroup
}

// round sends what is due and says when to look again.
func (s *sending) round(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		s.free <- struct{}{} // there is room for one at least
		room := 1 + cap(s.free) - len(s.free)
		<-s.free
		list, err := s.hub.TakeDeliveries(ctx, room)
		if err != nil {
			if ctx.Err() == nil {
				s.log.WarnContext(ctx, "due deliveries could not be taken; trying again", "error", err)
			}
			return lookEvery
		}
		for i := range list {
			s.free <- struct{}{}
			s.under.Go(func() {
				defer func() { <-s.free }()
				s.one(context.WithoutCancel(ctx), &list[i])
			})
		}
		if len(list) < room {
			break
		}
	}
	wait, err := s.hub.UntilDelivery(ctx, lookEvery)
	if err != nil {
		return lookEvery
	}
	return max(wait, soonest)
}

// one sends one notification and reports the outcome. A panic of a sender is an unknown outcome.
func (s *sending) one(ctx context.Context, out *hub.Outgoing) {
	o := handoff.Outcome{Kind: handoff.OutcomeRefused, Reason: out.Refused}
	if out.Refused == "" {
		o = s.attempt(ctx, out)
	}
	s.metrics.Deliveries.WithLabelValues(string(out.Channel), string(o.Kind)).Inc()
	if o.Err != nil {
		s.log.WarnContext(ctx, "a notification did not get through", "delivery", out.ID, "channel", string(out.Channel), "outcome", string(o.Kind), "reason", o.Reason, "attempt", out.Attempt, "error", o.Err)
	}
	ctx, cancel := context.WithTimeout(ctx, reportFor)
	defer cancel()
	for pause := soonest; ; pause *= 2 {
		err := s.hub.ReportDelivery(ctx, out, o)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			s.log.ErrorContext(ctx, "the outcome of a notification could not be written down; it is taken anew", "delivery", out.ID, "error", err)
			return
		case <-time.After(pause):
		}
	}
}

func (s *sending) attempt(ctx context.Context, out *hub.Outgoing) (o handoff.Outcome) {
	defer func() {
		if p := recover(); p != nil {
			s.log.ErrorContext(ctx, "a sender failed", "delivery", out.ID, "panic", p)
			o = handoff.Outcome{Kind: handoff.OutcomeUnknown, Reason: "internal"}
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, sendFor)
	defer cancel()
	return s.sender.Send(ctx, out.Notification)
}
