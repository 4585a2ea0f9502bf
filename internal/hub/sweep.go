package hub

import (
	"context"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

const (
	sweepChunk = 100
	// keepKeys is how long idempotency keys are kept.
	keepKeys = 30 * 24 * time.Hour
)

// Sweep writes down lapsed leases, passed deadlines and idle sessions, so that those who wait are
// told, and finishes what an alias of a workspace that was cut off left behind. Nothing depends on it
// having run: reads and verbs judge by the clock. It returns how many handoffs changed their state.
func (h *Hub) Sweep(ctx context.Context) (int, error) {
	call := Call{Actor: handoff.System()}
	swept := 0
	for {
		var due []string
		err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			due, err = tx.Due(tx.Now(), sweepChunk)
			return err
		})
		if err != nil {
			return swept, err
		}
		if len(due) == 0 {
			return swept, first(
				func() error { return h.sweepSessions(ctx) },
				func() error { return h.gather(ctx, call, "") })
		}
		before := swept
		for _, id := range due {
			did := false
			if err := h.change(ctx, "sweep", call, func(c *change) (err error) {
				did, err = c.settle(id)
				return err
			}); err != nil {
				return swept, err
			}
			if did {
				swept++
			}
		}
		if swept == before { // another node is at it
			return swept, nil
		}
	}
}

// UntilDue is how long it takes until a sweep has something to write down: nothing where something
// is due already, and at most the given time.
func (h *Hub) UntilDue(ctx context.Context, most time.Duration) (wait time.Duration, err error) {
	wait = most
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		at, err := tx.NextDue()
		if err == nil && !at.IsZero() {
			wait = min(max(at.Sub(tx.Now()), 0), most)
		}
		return err
	})
	return wait, err
}

// settle writes down what time did to one handoff, and reports whether there was something that
// nobody else had.
func (c *change) settle(id string) (bool, error) {
	was, err := c.LockHandoff(id)
	if err != nil {
		return false, err
	}
	row := was
	if err := c.lapse(&was, &row); err != nil {
		return false, err
	}
	if row.EventSeq == was.EventSeq {
		return false, nil
	}
	return true, c.update(&was, &row)
}

// Forget removes idempotency keys that are older than 30 days, a chunk at a time.
func (h *Hub) Forget(ctx context.Context) error {
	return h.st.Write(ctx, func(tx *store.Tx) error {
		return tx.PurgeEffects(tx.Now().Add(-keepKeys), 1000)
	})
}

// Stats is what the metrics show of the database.
type Stats = store.Stats

// statsFor bounds how often scraping the metrics counts in the database.
const statsFor = 5 * time.Second

type statsCache struct {
	mu   sync.Mutex
	at   time.Time
	last Stats
}

// Stats counts handoffs by state and door, the oldest unfetched one, and how far behind
// readers of events are. Answers may be five seconds old.
func (h *Hub) Stats(ctx context.Context) (Stats, error) {
	h.stats.mu.Lock()
	defer h.stats.mu.Unlock()
	if !h.stats.at.IsZero() && time.Since(h.stats.at) < statsFor {
		return h.stats.last, nil
	}
	var st Stats
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		st, err = tx.Stats()
		return err
	})
	if err == nil {
		h.stats.last, h.stats.at = st, time.Now()
	}
	return st, err
}
