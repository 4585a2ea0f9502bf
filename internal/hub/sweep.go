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
				func() error { _, err := h.gather(ctx, call, ""); return err })
		}
		for _, id := range due {
			if err := h.settle(ctx, call, id); err != nil {
				return swept, err
			}
		}
		swept += len(due)
	}
}

// settle writes down what time did to one handoff.
func (h *Hub) settle(ctx context.Context, call Call, id string) error {
	return h.change(ctx, "sweep", call, func(c *change) error { return c.settle(id) })
}

// settle writes down what time did to one handoff.
func (c *change) settle(id string) error {
	was, err := c.LockHandoff(id)
	if err != nil {
		return err
	}
	row := was
	if err := c.lapse(&was, &row); err != nil {
		return err
	}
	if row.EventSeq == was.EventSeq {
		return nil // somebody else did
	}
	return c.update(&was, &row)
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
