package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/telemetry"
)

// pollEvery is how often a parked call looks again by itself: a notification between nodes
// may get lost, and a lease may lapse where no sweep runs.
const pollEvery = 5 * time.Second

// waiters wakes parked calls when something that concerns them was committed: a call waits for keys,
// such as its actor's id, and what is committed names keys.
type waiters struct {
	mu       sync.Mutex
	byKey    map[string]map[*waiter]bool
	parked   map[string]int // by actor
	limit    int
	metrics  *telemetry.Metrics
	draining chan struct{}
	drained  sync.Once
}

// waiter is one parked call. Its channel is signalled, once at most until it is read, when something
// changed.
type waiter struct {
	all   *waiters
	actor string
	keys  []string
	wake  chan struct{}
	// moved: the keys changed since it last looked, so what was committed in between may be missed.
	moved bool
}

func newWaiters(m *telemetry.Metrics, limit int) *waiters {
	return &waiters{byKey: map[string]map[*waiter]bool{}, parked: map[string]int{}, limit: limit, metrics: m, draining: make(chan struct{})}
}

// join registers a parked call of the actor, to be woken for any of the keys.
func (w *waiters) join(actorID string, keys []string) (one *waiter, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.parked[actorID] >= w.limit {
		e := handoff.Refuse(handoff.CodeRateLimited, fmt.Sprintf("%d calls of yours are waiting already, which is the limit", w.limit), "Let one of them return, or call without wait_seconds.")
		return nil, nil, e.With("retry_after_seconds", 1)
	}
	w.parked[actorID]++
	w.metrics.ParkedCalls.Inc()
	one = &waiter{all: w, actor: actorID, wake: make(chan struct{}, 1)}
	w.enter(one, keys)
	return one, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.exit(one)
		if w.parked[actorID]--; w.parked[actorID] == 0 {
			delete(w.parked, actorID)
		}
		w.metrics.ParkedCalls.Dec()
	}, nil
}

func (w *waiters) enter(one *waiter, keys []string) {
	one.keys = keys
	for _, k := range keys {
		if w.byKey[k] == nil {
			w.byKey[k] = map[*waiter]bool{}
		}
		w.byKey[k][one] = true
	}
}

func (w *waiters) exit(one *waiter) {
	for _, k := range one.keys {
		delete(w.byKey[k], one)
		if len(w.byKey[k]) == 0 {
			delete(w.byKey, k)
		}
	}
}

// on changes what the call waits for. A look that does so is repeated before the call sleeps.
func (one *waiter) on(keys []string) {
	if slices.Equal(one.keys, keys) {
		return
	}
	one.all.mu.Lock()
	defer one.all.mu.Unlock()
	one.all.exit(one)
	one.all.enter(one, keys)
	one.moved = true
}

func (w *waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.byKey[key] {
		signal(one.wake)
	}
}

// recheck wakes everyone: a credential changed, or notifications may have been lost.
func (w *waiters) recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, some := range w.byKey {
		for one := range some {
			signal(one.wake)
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

// checkWait bounds how long a call may be parked.
func checkWait(wait time.Duration) error {
	if wait < 0 || wait > MaxWait {
		return handoff.Invalid("timeout_seconds", fmt.Sprintf("%g came; 0 to %g are accepted", wait.Seconds(), MaxWait.Seconds()))
	}
	return nil
}

// park calls look until it reports done, at once and again whenever something that concerns
// the actor was committed, for at most wait. It returns nil when the time is over or the hub
// drains, the error of look, or unauthenticated when the caller's key was revoked meanwhile.
func (h *Hub) park(ctx context.Context, call Call, wait time.Duration, look func() (done bool, err error)) error {
	return h.parkFor(ctx, call, call.Actor.ID, wait, look)
}

// parkFor is park for news of another than the caller.
func (h *Hub) parkFor(ctx context.Context, call Call, whom string, wait time.Duration, look func() (done bool, err error)) error {
	return h.parkOn(ctx, call, []string{whom}, wait, func(*waiter) (bool, error) { return look() })
}

// parkOn is park for any of some keys, which look may change: it is given the waiter, or nil where
// the call does not wait.
func (h *Hub) parkOn(ctx context.Context, call Call, keys []string, wait time.Duration, look func(*waiter) (done bool, err error)) error {
	if wait <= 0 {
		_, err := look(nil)
		return err
	}
	// Registered before the first look, so that a commit in between is not missed.
	one, leave, err := h.waiters.join(call.Actor.ID, keys)
	if err != nil {
		return err
	}
	defer leave()
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTimer(pollEvery/2 + rand.N(pollEvery))
	defer poll.Stop()
	for {
		one.moved = false
		done, err := look(one)
		if done || err != nil {
			return err
		}
		if one.moved {
			if done, err := look(one); done || err != nil {
				return err
			}
		}
		select {
		case <-one.wake:
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
