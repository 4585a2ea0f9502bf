package poolmodel

import (
	"time"

	"handclasp/internal/handoff"
)

// Advance lets happen what the clock brings until now: lapsed leases, passed deadlines, opened
// fallbacks, in the order of time.
func (m *Model) Advance(now time.Time) {
	for {
		var first *Handoff
		var at time.Time
		for _, h := range m.Handoffs {
			if due := h.due(); !due.IsZero() && !due.After(now) && (first == nil || due.Before(at)) {
				first, at = h, due
			}
		}
		if first == nil {
			m.now = now
			return
		}
		m.strike(first, at)
	}
}

// due is when the clock next does something to h; zero for never.
func (h *Handoff) due() time.Time {
	switch h.State {
	case handoff.Claimed:
		return h.LeaseEnds
	case handoff.Open:
		fallback := h.FallbackAt
		if h.FallbackOpen {
			fallback = time.Time{}
		}
		if fallback.IsZero() || !h.Deadline.IsZero() && !fallback.Before(h.Deadline) {
			return h.Deadline
		}
		return fallback
	}
	return time.Time{}
}

// strike is what the clock does at that moment.
func (m *Model) strike(h *Handoff, at time.Time) {
	switch {
	case h.State == handoff.Claimed:
		h.reopen(at)
		h.event(handoff.EventLeaseLapsed)
	case at.Equal(h.Deadline):
		h.end(handoff.Expired, hub, DeadlinePassed)
		h.event(handoff.EventExpired)
		m.ended(h, at)
	default:
		h.FallbackOpen = true
		h.event(handoff.EventFallbackOpened)
	}
}

// DeadlinePassed stands for the reason that the hub gives for an expiry.
const DeadlinePassed = "(deadline)"

// reopen takes h from its holder. The time of a fallback begins anew.
func (h *Handoff) reopen(at time.Time) {
	h.Past[h.Holder] = true
	h.Holder = ""
	h.State = handoff.Open
	h.Lease, h.LeaseEnds = 0, time.Time{}
	h.waitForFallback(at)
}

// waitForFallback begins the time of the first choice: at creation, when unblocked, and at each
// return to OPEN.
func (h *Handoff) waitForFallback(at time.Time) {
	h.FallbackAt, h.FallbackOpen = time.Time{}, h.Declined
	if h.Target.Strategy == Fallback && !h.Declined && !h.blocked() {
		h.FallbackAt = at.Add(h.Target.After)
	}
}

// end brings h into a terminal state. Whoever held it then is on record.
func (h *Handoff) end(s handoff.State, by, reason string) {
	h.State, h.EndedBy, h.EndedReason = s, by, reason
	h.LeaseEnds = time.Time{}
}

// ended tells those that wait for h. It is the same transaction as the end itself.
func (m *Model) ended(h *Handoff, at time.Time) {
	for _, d := range m.Handoffs {
		if d.terminal() || !d.waitsFor(h) {
			continue
		}
		switch {
		case h.State != handoff.Completed:
			if h.State == handoff.Expired {
				d.Late++
			}
			d.event(handoff.EventDependencyFailed)
		case !d.blocked():
			d.event(handoff.EventUnblocked)
			if d.State == handoff.Open {
				d.waitForFallback(at)
			}
		}
	}
}

func (h *Handoff) waitsFor(other *Handoff) bool {
	for _, d := range h.DependsOn {
		if d == other {
			return true
		}
	}
	return false
}

// Due is when the clock next does something to h; zero for never.
func (h *Handoff) Due() time.Time { return h.due() }
