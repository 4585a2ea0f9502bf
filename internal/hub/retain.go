package hub

import (
	"context"
	"errors"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// Retention says how long what is finished is kept; 0 keeps it for ever.
type Retention struct {
	// Handoffs is how long after its end a handoff has its texts and contact details.
	Handoffs time.Duration
	// Deliveries is how long a delivery that is final is kept, once its handoff has ended. The first one
	// of a handoff of the desk stays, and replies are kept as long as their keys at least.
	Deliveries time.Duration
	// Events is how long events are kept that belong to no handoff, or to one that ended as long ago.
	Events time.Duration
}

// Retained counts what one pass removed.
type Retained struct {
	Handoffs   int // erased
	Deliveries int
	Events     int
}

const (
	// retainChunk is how many rows one transaction removes, and how many one read looks through.
	retainChunk = 500
	eraseBatch  = 100
)

// Retains reports whether anything is kept for a time only.
func (h *Hub) Retains() bool { return h.cfg.Retain != Retention{} }

// Retain erases and removes what was kept as long as it is to be kept, until nothing is left that was due when it
// began. What fails is due the next time; the rest is done.
func (h *Hub) Retain(ctx context.Context) (Retained, error) {
	var out Retained
	var now time.Time
	if err := h.st.Read(ctx, func(tx *store.Tx) error { now = tx.Now(); return nil }); err != nil {
		return out, err
	}
	keep := h.cfg.Retain
	var errs [3]error
	if keep.Handoffs > 0 {
		out.Handoffs, errs[0] = h.eraseOld(ctx, now.Add(-keep.Handoffs))
	}
	if keep.Deliveries > 0 {
		out.Deliveries, errs[1] = h.removeDeliveries(ctx, now.Add(-keep.Deliveries), now.Add(-max(keep.Deliveries, keepKeys)))
	}
	if keep.Events > 0 {
		out.Events, errs[2] = h.removeEvents(ctx, now.Add(-keep.Events))
	}
	return out, errors.Join(errs[:]...)
}

func (h *Hub) eraseOld(ctx context.Context, before time.Time) (erased int, err error) {
	defer func() {
		if erased > 0 {
			h.checkpointErased(ctx, false)
		}
	}()
	for {
		var ids []string
		if err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			ids, err = tx.Erasable(before, eraseBatch)
			return err
		}); err != nil || len(ids) == 0 {
			return erased, err
		}
		for _, id := range ids {
			out, err := h.erase(ctx, Call{Actor: handoff.System()}, id)
			if err != nil {
				return erased, err
			}
			if !out.Replay { // another node was first
				erased++
			}
		}
	}
}

func (h *Hub) removeDeliveries(ctx context.Context, before, replies time.Time) (removed int, err error) {
	var at store.DeliveryPlace
	for more := true; more; {
		var ids []string
		if err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			ids, at, more, err = tx.OldDeliveries(before, replies, at, h.chunk)
			return err
		}); err != nil {
			return removed, err
		}
		n, err := removeIn(ctx, h, ids, (*store.Tx).RemoveDeliveries)
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

func (h *Hub) removeEvents(ctx context.Context, before time.Time) (removed int, err error) {
	var at store.EventPlace
	for more := true; more; {
		var ids []int64
		if err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			ids, at, more, err = tx.OldEvents(before, at, h.chunk)
			return err
		}); err != nil {
			return removed, err
		}
		n, err := removeIn(ctx, h, ids, (*store.Tx).RemoveEvents)
		if err != nil {
			return removed, err
		}
		removed += n
	}
	return removed, nil
}

// removeIn removes rows in one transaction, and says how many it was that did so.
func removeIn[T any](ctx context.Context, h *Hub, ids []T, remove func(*store.Tx, []T) (int, error)) (n int, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = h.st.Write(ctx, func(tx *store.Tx) (err error) {
		n, err = remove(tx, ids)
		return err
	})
	if err != nil {
		n = 0
	}
	return n, err
}
