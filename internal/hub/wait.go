package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/telemetry"
)

// pollEvery is how often a parked call looks again by itself: a notification between nodes
// may get lost, and a lease may lapse where no sweep runs.
const pollEvery = 5 * time.Second

// waiters wakes parked calls when something that concerns their actor was committed.
type waiters struct {
	mu       sync.Mutex
	byActor  map[string]map[chan struct{}]bool
	limit    int
	metrics  *telemetry.Metrics
	draining chan struct{}
	drained  sync.Once
}

func newWaiters(m *telemetry.Metrics, limit int) *waiters {
	return &waiters{byActor: map[string]map[chan struct{}]bool{}, limit: limit, metrics: m, draining: make(chan struct{})}
}

// join registers a parked call of the actor. The channel is signalled, once at most until it
// is read, when something changed.
func (w *waiters) join(actorID string) (wake chan struct{}, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byActor[actorID]) >= w.limit {
		e := handoff.Refuse(handoff.CodeRateLimited, fmt.Sprintf("%d calls of yours are waiting already, which is the limit", w.limit), "Let one of them return, or call without wait_seconds.")
		return nil, nil, e.With("retry_after_seconds", 1)
	}
	if w.byActor[actorID] == nil {
		w.byActor[actorID] = map[chan struct{}]bool{}
	}
	wake = make(chan struct{}, 1)
	w.byActor[actorID][wake] = true
	w.metrics.ParkedCalls.Inc()
	return wake, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.byActor[actorID], wake)
		if len(w.byActor[actorID]) == 0 {
			delete(w.byActor, actorID)
		}
		w.metrics.ParkedCalls.Dec()
	}, nil
}

func (w *waiters) wake(actorID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.byActor[actorID] {
		signal(ch)
	}
}

// recheck wakes everyone: a credential changed, or notifications may have been lost.
func (w *waiters) recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, chans := range w.byActor {
		for ch := range chans {
			signal(ch)
		}
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Drain lets every parked call return at once with what there is, and later ones not park at
// all. It is the first step of a shutdown.
func (h *Hub) Drain() { h.waiters.drained.Do(func() { close(h.waiters.draining) }) }

// park calls look until it reports done, at once and again whenever something that concerns
// the actor was committed, for at most wait. It returns nil when the time is over or the hub
// drains, the error of look, or unauthenticated when the caller's key was revoked meanwhile.
func (h *Hub) park(ctx context.Context, call Call, wait time.Duration, look func() (done bool, err error)) error {
	return h.parkFor(ctx, call, call.Actor.ID, wait, look)
}

// parkFor is park for news of another than the caller.
func (h *Hub) parkFor(ctx context.Context, call Call, whom string, wait time.Duration, look func() (done bool, err error)) error {
	if wait <= 0 {
		_, err := look()
		return err
	}
	// Registered before the first look, so that a commit in between is not missed.
	wake, leave, err := h.waiters.join(whom)
	if err != nil {
		return err
	}
	defer leave()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTimer(pollEvery/2 + rand.N(pollEvery))
	defer poll.Stop()
	for {
		done, err := look()
		if done || err != nil {
			return err
		}
		select {
		case <-wake:
		case <-poll.C:
			poll.Reset(pollEvery/2 + rand.N(pollEvery))
		case <-deadline.C:
			return nil
		case <-h.waiters.draining:
			return nil
		case <-ctx.Done():
			return handoff.Unavailable("the call was cancelled while it waited", ctx.Err())
		}
		if err := h.StillValid(ctx, call.Actor); err != nil {
			return err
		}
	}
}
