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
	// sweepEvery bounds how late those who wait learn of a lapsed lease or a deadline; reads
	// judge by the clock and are never late.
	sweepEvery  = time.Second
	forgetEvery = 10 * time.Minute
)

// Run sweeps until ctx ends. A sweep that fails is logged and tried again.
func Run(ctx context.Context, h *hub.Hub, log *slog.Logger) error {
	sweep, forget := time.NewTicker(sweepEvery), time.NewTicker(forgetEvery)
	defer sweep.Stop()
	defer forget.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			_, err = h.Sweep(ctx)
		case <-forget.C:
			err = h.Forget(ctx)
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "a sweep failed; the next one tries again", "error", err)
		}
	}
}
