package outbox_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/notify"
	"handclasp/internal/outbox"
)

// hanging is a sender whose endpoint for one address does not answer until the attempt is cut off.
type hanging struct {
	address string
	mu      sync.Mutex
	hang    int
	sent    map[string]int
}

func (h *hanging) Send(ctx context.Context, n handoff.Notification) handoff.Outcome {
	if n.To == h.address {
		h.count(&h.hang, 1)
		defer h.count(&h.hang, -1)
		<-ctx.Done()
		return handoff.Outcome{Kind: handoff.OutcomeUnknown, Reason: notify.ReasonNoAnswer}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent[n.To]++
	return handoff.Outcome{Kind: handoff.OutcomeSent}
}

func (h *hanging) count(n *int, by int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*n += by
}

func (h *hanging) seen(address string) (hang, sent int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hang, h.sent[address]
}

func TestAnEndpointThatHangsKeepsNobodyElseWaiting(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		const slow, quick = "https://slow.example/", "https://quick.example/"
		bot, anna := f.Agent("bot@shop"), f.Agent("anna@acme")
		for handle, address := range map[string]string{"frank@acme": slow, "grace@acme": quick} {
			f.Agent(handle)
			if _, err := f.Hub.SetNotify(t.Context(), hubtest.Operator(), handle, hub.NotifyInput{Webhook: address}); err != nil {
				t.Fatal(err)
			}
		}
		s := &hanging{address: slow, sent: map[string]int{}}
		ctx, end := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = outbox.Send(ctx, f.Hub, s, slog.New(slog.DiscardHandler), f.Metrics)
		}()
		t.Cleanup(func() { end(); <-ended })
		for range 40 {
			f.Send(anna, "frank@acme")
		}
		eventually(t, "some hang", func() bool { hang, _ := s.seen(slow); return hang > 0 })
		for range 5 {
			f.Send(anna, "grace@acme")
		}
		out, err := f.Hub.Initiate(t.Context(), bot, hub.InitiateInput{Slug: "shop", Mode: "human", IdempotencyKey: "k"})
		if err != nil || out.Delivery.State != handoff.DeliverySent {
			t.Errorf("the mail to a person: %+v %v", out.Delivery, err)
		}
		eventually(t, "the other agent is told", func() bool { _, sent := s.seen(quick); return sent == 5 })
		if hang, _ := s.seen(slow); hang > 2 {
			t.Errorf("%d are on their way to one endpoint", hang)
		}
		// The process may end at any moment.
		began := time.Now()
		end()
		<-ended
		if took := time.Since(began); took > 8*time.Second {
			t.Errorf("it took %v to end", took)
		}
		list, err := f.Hub.Deliveries(t.Context(), hubtest.Operator(), hub.DeliveryQuery{States: []string{"queued", "sending"}, Limit: 100})
		if err != nil || len(list) != 40 {
			t.Errorf("%d wait for another attempt (%v)", len(list), err)
		}
	}, hubtest.WithMail())
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("it never came that %s", what)
}
