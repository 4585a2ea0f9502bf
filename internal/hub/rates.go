package hub

import (
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"handclasp/internal/handoff"
)

// rates limits the calls of each actor.
type rates struct {
	mu        sync.Mutex
	perMinute int
	byActor   map[string]*rate.Limiter
}

func newRates(perMinute int) *rates {
	return &rates{perMinute: perMinute, byActor: map[string]*rate.Limiter{}}
}

// mostCounted is from how many actors on those are forgotten that have not called for a while.
const mostCounted = 10_000

// Allow counts one call of the actor and refuses it with rate_limited, and the seconds to
// wait, when there were too many in the last minute.
func (h *Hub) Allow(actor handoff.Actor) error {
	r := h.rates
	if r.perMinute <= 0 {
		return nil
	}
	reservation := r.of(actor).Reserve()
	wait := reservation.Delay()
	if wait == 0 {
		return nil
	}
	reservation.Cancel()
	seconds := int(math.Ceil(wait.Seconds()))
	return handoff.Refuse(handoff.CodeRateLimited, fmt.Sprintf("more than %d calls a minute came from you", r.perMinute),
		fmt.Sprintf("Wait %s; a call that takes wait_seconds or timeout_seconds waits for news by itself.", time.Duration(seconds)*time.Second)).With("retry_after_seconds", seconds)
}

func (r *rates) of(actor handoff.Actor) *rate.Limiter {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.byActor[actor.ID]
	if l == nil {
		if len(r.byActor) >= mostCounted { // bearers and persons come and go
			maps.DeleteFunc(r.byActor, func(_ string, l *rate.Limiter) bool { return l.Tokens() >= float64(l.Burst()) })
		}
		l = rate.NewLimiter(rate.Limit(float64(r.perMinute)/60), r.perMinute)
		r.byActor[actor.ID] = l
	}
	return l
}

// charge counts a call that read many rows in vain as several: reading them takes as long as
// answering so many others. What is within freeRows costs nothing.
func (h *Hub) charge(actor handoff.Actor, inVain int) {
	const (
		freeRows    = 1000
		rowsPerCall = 200
	)
	if r := h.rates; r.perMinute > 0 && inVain > freeRows {
		r.of(actor).ReserveN(time.Now(), min((inVain-freeRows)/rowsPerCall, r.perMinute))
	}
}

// initiateRates limits how often each caller hands users to one business.
type initiateRates struct {
	mu     sync.Mutex
	byPair map[[2]string]*rate.Limiter
}

// initiatesPerHour is for one caller and one business (contracts: errors, "Limits").
const initiatesPerHour = 60

// allowInitiate counts a new handoff of the desk.
func (h *Hub) allowInitiate(actor handoff.Actor, slug string) error {
	if h.rates.perMinute <= 0 {
		return nil
	}
	r := &h.initiates
	r.mu.Lock()
	if r.byPair == nil || len(r.byPair) > cacheSize {
		r.byPair = map[[2]string]*rate.Limiter{}
	}
	l := r.byPair[[2]string{actor.ID, slug}]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(initiatesPerHour)/3600, initiatesPerHour)
		r.byPair[[2]string{actor.ID, slug}] = l
	}
	r.mu.Unlock()
	reservation := l.Reserve()
	wait := reservation.Delay()
	if wait == 0 {
		return nil
	}
	reservation.Cancel()
	seconds := int(math.Ceil(wait.Seconds()))
	return handoff.Refuse(handoff.CodeRateLimited, fmt.Sprintf("more than %d handoffs an hour came from you for this business", initiatesPerHour),
		fmt.Sprintf("Nothing was written. Wait %s.", time.Duration(seconds)*time.Second)).With("retry_after_seconds", seconds)
}
