package outbox

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/notify"
	"handclasp/internal/telemetry"
)

const (
	// atOnce is how many notifications of a lane are on their way from this node at a time.
	atOnce = 16
	// eachAtOnce is how many of these an agent's own endpoints may take up: one that hangs must not keep
	// others from being told.
	eachAtOnce = 2
	// lookEvery is how often it looks for due ones at least: another node may have made some and gone.
	lookEvery = 5 * time.Second
	// sendFor ends one attempt; the lease of a delivery outlives it.
	sendFor = handoff.SendLease / 2
	// reportFor is how long the outcome of an attempt is tried to be written down.
	reportFor = 30 * time.Second
	// drainFor is how long attempts go on that are under way when the process is to end.
	drainFor = 3 * time.Second
)

// Send takes due deliveries and sends them until ctx ends; then it waits a moment for those that are on
// their way, and cuts off the rest. One that was cut off is taken anew when its lease is over.
func Send(ctx context.Context, h *hub.Hub, sender notify.Sender, log *slog.Logger, m *telemetry.Metrics) error {
	attempts, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(drainFor, cut) })()
	var lanes []*sending
	var under sync.WaitGroup
	// A lane for each channel: what people are told does not wait behind what agents asked to be told.
	for channel, batch := range map[handoff.Channel]int{
		handoff.ChannelEmail: atOnce, handoff.ChannelSMS: atOnce, handoff.ChannelWebhook: eachAtOnce, handoff.ChannelSlack: eachAtOnce,
	} {
		s := &sending{
			hub: h, sender: sender, log: log, metrics: m, attempts: attempts, lane: hub.Lane{Channel: channel}, batch: batch,
			free: make(chan struct{}, atOnce), poked: make(chan struct{}, 1), to: map[string]int{},
		}
		lanes = append(lanes, s)
		under.Go(func() { s.run(ctx) })
	}
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-h.Sendable():
			for _, s := range lanes {
				s.poke()
			}
		}
	}
	under.Wait()
	return nil
}

// sending is one lane.
type sending struct {
	hub      *hub.Hub
	sender   notify.Sender
	log      *slog.Logger
	metrics  *telemetry.Metrics
	attempts context.Context //nolint:containedctx // of what is on its way, which outlives the loop
	lane     hub.Lane
	batch    int           // how many are taken together; fewer than atOnce are one recipient's share
	free     chan struct{} // one token for each that is on its way
	poked    chan struct{}
	under    sync.WaitGroup

	mu sync.Mutex
	to map[string]int // how many are on their way, by recipient
}

func (s *sending) poke() {
	select {
	case s.poked <- struct{}{}:
	default:
	}
}

func (s *sending) run(ctx context.Context) {
	defer s.under.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.poked:
		}
		timer.Reset(s.round(ctx))
	}
}

// shares reports whether each recipient has a share of the lane.
func (s *sending) shares() bool { return s.batch < atOnce }

// open is the lane without the recipients that may have all of their share on its way.
func (s *sending) open() hub.Lane {
	lane := s.lane
	if s.shares() {
		s.mu.Lock()
		defer s.mu.Unlock()
		lane.Not = slices.Collect(maps.Keys(s.to))
	}
	return lane
}

// on counts one that is on its way to a recipient, or has ended.
func (s *sending) on(to string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to[to] += n; s.to[to] == 0 {
		delete(s.to, to)
	}
}

// round sends what is due and says when to look again.
func (s *sending) round(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		wait, err := s.hub.UntilDelivery(ctx, s.open(), lookEvery)
		if err != nil {
			return lookEvery
		}
		if wait > 0 { // taking what is not there would be a write
			return max(wait, soonest)
		}
		s.free <- struct{}{} // there is room for one at least
		room := min(1+cap(s.free)-len(s.free), s.batch)
		<-s.free
		list, err := s.hub.TakeDeliveries(ctx, s.open(), room)
		if err != nil {
			if ctx.Err() == nil {
				s.log.WarnContext(ctx, "due deliveries could not be taken; trying again", "error", err)
			}
			return lookEvery
		}
		for i := range list {
			s.free <- struct{}{}
			s.on(list[i].Recipient, 1)
			s.under.Go(func() {
				defer func() {
					<-s.free
					if s.on(list[i].Recipient, -1); s.shares() {
						s.poke() // there may be more for the same
					}
				}()
				s.one(s.attempts, &list[i])
			})
		}
		if len(list) == 0 { // another node was faster
			return soonest
		}
	}
	return lookEvery
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportFor)
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
