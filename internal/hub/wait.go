package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"handclasp/internal/handoff"
)

const (
	// pollShared is how often a parked call looks again by itself where other nodes write too: a
	// notification between them may get lost.
	pollShared = 5 * time.Second
	// pollAlone is the same where one process sees everything that is committed.
	pollAlone = 20 * time.Second
	// soonest is the pause before the first look at what is committed and not readable yet. It doubles
	// up to the poll.
	soonest = 10 * time.Millisecond
)

// Why a parked call looks; see telemetry.Metrics.
const (
	lookFirst     = "first"
	lookMoved     = "moved"
	lookWoken     = "woken"
	lookUnsettled = "unsettled"
	lookPoll      = "poll"
)

// waiters wakes parked calls when something that concerns them was committed: a call waits for keys,
// such as its actor's id, and what is committed names keys.
type waiters struct {
	mu       sync.Mutex
	byKey    shelves
	byActor  shelves
	limit    int
	draining chan struct{}
	drained  sync.Once
}

// shelves hold parked calls by a word.
type shelves map[string]map[*waiter]bool

// waiter is one parked call. Its channel is signalled, once at most until it is read, when something
// changed.
type waiter struct {
	all  *waiters
	keys []string
	wake chan struct{}
	// moved: the keys changed since it last looked, so what was committed in between may be missed.
	moved bool
	// unsettled: it saw that there is something which it can read a little later only.
	unsettled bool
	pause     time.Duration // before it looks for that again; 0 = it does not
}

func newWaiters(limit int) *waiters {
	return &waiters{
		byKey: shelves{}, byActor: shelves{}, limit: limit, draining: make(chan struct{}),
	}
}

// join registers a parked call of the actor, to be woken for any of the keys.
func (w *waiters) join(actorID string, keys []string) (one *waiter, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.byActor[actorID]) >= w.limit {
		e := handoff.Refuse(handoff.CodeRateLimited, fmt.Sprintf("%d calls of yours are waiting already, which is the limit", w.limit), "Let one of them return, or call without waiting.")
		return nil, nil, e.With("retry_after_seconds", 1)
	}
	one = &waiter{all: w, wake: make(chan struct{}, 1)}
	w.byActor.add(actorID, one)
	one.enter(keys)
	return one, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		one.exit()
		w.byActor.drop(actorID, one)
	}, nil
}

func (s shelves) add(key string, one *waiter) {
	if s[key] == nil {
		s[key] = map[*waiter]bool{}
	}
	s[key][one] = true
}

func (s shelves) drop(key string, one *waiter) {
	delete(s[key], one)
	if len(s[key]) == 0 {
		delete(s, key)
	}
}

func (s shelves) signal(key string) {
	for one := range s[key] {
		select {
		case one.wake <- struct{}{}:
		default:
		}
	}
}

func (one *waiter) enter(keys []string) {
	one.keys = keys
	for _, k := range keys {
		one.all.byKey.add(k, one)
	}
}

func (one *waiter) exit() {
	for _, k := range one.keys {
		one.all.byKey.drop(k, one)
	}
}

// on changes what the call waits for. A look that does so is repeated before the call sleeps.
func (one *waiter) on(keys []string) {
	if slices.Equal(one.keys, keys) {
		return
	}
	one.all.mu.Lock()
	defer one.all.mu.Unlock()
	one.exit()
	one.enter(keys)
	one.moved = true
}

func (w *waiters) wake(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byKey.signal(key)
}

// recheck wakes the calls of one actor, whatever they wait for: its credential or its labels changed.
func (w *waiters) recheck(actorID string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byActor.signal(actorID)
}

// recheckAll wakes everyone: notifications may have been lost.
func (w *waiters) recheckAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.byActor {
		w.byActor.signal(id)
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

// park calls look until it reports done, at once and again whenever one of some keys was named by a
// commit, for at most wait. It returns nil when the time is over or the hub drains, the error of
// look, or unauthenticated when the caller's key was revoked meanwhile. look is given the waiter,
// whose keys it may change, or nil where the call does not wait.
func (h *Hub) park(ctx context.Context, call Call, keys []string, wait time.Duration, look func(*waiter) (done bool, err error)) error {
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
	poll := time.NewTimer(h.untilPoll())
	defer poll.Stop()
	for cause := lookFirst; ; {
		h.metrics.ParkedLooks.WithLabelValues(cause).Inc()
		one.moved, one.unsettled = false, false
		if done, err := aside(func() (bool, error) { return look(one) }); done || err != nil {
			return err
		}
		if one.moved {
			cause = lookMoved
			continue
		}
		cause, err = h.nap(ctx, one, deadline, poll)
		if cause == "" || err != nil {
			return err
		}
		if err := h.StillValid(ctx, call.Actor); err != nil {
			return err
		}
	}
}

// aside runs look on a goroutine of its own: a look at the database needs a deep stack, and the one of a
// call that waits would be kept as long as it waits.
func aside(look func() (bool, error)) (done bool, err error) {
	var panicked any
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer func() { panicked = recover() }()
		done, err = look()
	}()
	<-over
	if panicked != nil {
		panic(panicked) // where the door expects it
	}
	return done, err
}

// untilPoll spreads the polls of calls that were parked together.
func (h *Hub) untilPoll() time.Duration {
	every := pollAlone
	if h.st.Shared() {
		every = pollShared
	}
	return every/2 + rand.N(every)
}

// nap sleeps until there is a cause to look again, and names it; none when the time is over or the
// hub drains.
func (h *Hub) nap(ctx context.Context, one *waiter, deadline, poll *time.Timer) (cause string, err error) {
	h.metrics.ParkedCalls.Inc()
	defer h.metrics.ParkedCalls.Dec()
	var again *time.Timer
	var settled <-chan time.Time
	if one.pause = one.nextPause(); one.pause > 0 {
		again = time.NewTimer(one.pause)
		defer again.Stop()
		settled = again.C
	}
	for {
		select {
		case <-one.wake:
			if again == nil {
				return lookWoken, nil
			}
			// Whoever commits all the time does not make it look all the time.
			if one.pause > soonest {
				one.pause = soonest
				again.Reset(soonest)
			}
		case <-settled:
			return lookUnsettled, nil
		case <-poll.C:
			poll.Reset(h.untilPoll())
			return lookPoll, nil
		case <-deadline.C:
			return "", nil
		case <-h.waiters.draining:
			return "", nil
		case <-ctx.Done():
			return "", handoff.Unavailable("the call was cancelled while it waited", ctx.Err())
		}
	}
}

// nextPause is how long to wait for what is not readable yet.
func (one *waiter) nextPause() time.Duration {
	if !one.unsettled {
		return 0
	}
	return min(max(2*one.pause, soonest), pollShared)
}
