// Package outbox is what the hub does on its own: it drives the sweeps, and will take due
// deliveries, send them and report their outcome.
package outbox

import (
	"context"
	"log/slog"
	"time"

	"handclasp/internal/hub"
)

const (
	// sweepEvery is how often it sweeps at least: what is due within that time comes with a shorter
	// lease or wait than any that was known. Reads judge by the clock and are never late.
	sweepEvery = time.Second
	// soonest is the least between two sweeps, however much falls due.
	soonest     = 10 * time.Millisecond
	forgetEvery = 10 * time.Minute
)

// Run sweeps until ctx ends, whenever something falls due: those who wait learn of a lapsed lease, a
// deadline or an opening fallback at that moment. A sweep that fails is logged and tried again.
func Run(ctx context.Context, h *hub.Hub, log *slog.Logger) error {
	sweep, forget := time.NewTimer(0), time.NewTicker(forgetEvery)
	defer sweep.Stop()
	defer forget.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			_, err = h.Sweep(ctx)
			sweep.Reset(pause(ctx, h, err))
		case <-forget.C:
			err = h.Forget(ctx)
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "a sweep failed; the next one tries again", "error", err)
		}
	}
}

// pause is how long to wait before the next sweep.
func pause(ctx context.Context, h *hub.Hub, err error) time.Duration {
	if err != nil {
		return sweepEvery
	}
	wait, err := h.UntilDue(ctx, sweepEvery)
	if err != nil { // the next sweep says why
		return sweepEvery
	}
	return max(wait, soonest)
}
