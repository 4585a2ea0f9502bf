package hub

import (
	"fmt"
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

// Allow counts one call of the actor and refuses it with rate_limited, and the seconds to
// wait, when there were too many in the last minute.
func (h *Hub) Allow(actor handoff.Actor) error {
	r := h.rates
	if r.perMinute <= 0 {
		return nil
	}
	r.mu.Lock()
	l := r.byActor[actor.ID]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(float64(r.perMinute)/60), r.perMinute)
		r.byActor[actor.ID] = l
	}
	r.mu.Unlock()
	reservation := l.Reserve()
	wait := reservation.Delay()
	if wait == 0 {
		return nil
	}
	reservation.Cancel()
	seconds := int(math.Ceil(wait.Seconds()))
	return handoff.Refuse(handoff.CodeRateLimited, fmt.Sprintf("more than %d calls a minute came from you", r.perMinute),
		fmt.Sprintf("Wait %s; check_inbox with wait_seconds waits for news in one call.", time.Duration(seconds)*time.Second)).With("retry_after_seconds", seconds)
}
