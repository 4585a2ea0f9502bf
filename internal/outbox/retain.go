package outbox

import (
	"context"
	"log/slog"
	"time"

	"handclasp/internal/hub"
)

// Retain removes what was kept as long as the operator wants it kept, at once and then every ten minutes,
// until ctx ends. A pass that fails is logged and tried again.
func Retain(ctx context.Context, h *hub.Hub, log *slog.Logger) error {
	if !h.Retains() {
		return nil
	}
	tick := time.NewTicker(forgetEvery)
	defer tick.Stop()
	for {
		n, err := h.Retain(ctx)
		if n != (hub.Retained{}) {
			log.InfoContext(ctx, "removed what was kept long enough", "handoffs_erased", n.Handoffs, "deliveries", n.Deliveries, "events", n.Events)
		}
		if err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "not all that was kept long enough could be removed; the next pass tries again", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
