package poolmodel

import (
	"time"

	"handclasp/internal/handoff"
)

// holds is the refusal of a verb that is the holder's; empty for the holder of a CLAIMED handoff
// with the right epoch.
func (m *Model) holds(h *Handoff, who string, epoch *int) handoff.Code {
	switch {
	case h.State == handoff.Open && who == h.Recipient && !h.Past[who]:
		return handoff.CodeInvalidTransition // accept first
	case h.terminal() && h.Holder == who:
		return handoff.CodeThreadTerminal
	case h.held() && h.Holder == who:
		if h.stale(epoch) {
			return handoff.CodeStaleClaimEpoch
		}
		if h.State == handoff.Verifying {
			return handoff.CodeInvalidTransition
		}
		return ""
	case h.Past[who]:
		return handoff.CodeLeaseLost
	case h.terminal() && who == h.Recipient:
		return handoff.CodeThreadTerminal
	}
	return handoff.CodeNotOwner
}

// stale: another epoch than the current one, or none where the handoff was ever re-claimed,
// reassigned or sent back.
func (h *Handoff) stale(epoch *int) bool {
	if epoch == nil {
		return h.Epoch > 1
	}
	return *epoch != h.Epoch
}

func (m *Model) extend(c Call, h *Handoff) Reply {
	if code := m.holds(h, c.Actor, c.Epoch); code != "" {
		return refuse(code)
	}
	h.renew(c.lease(), m.now)
	h.event(handoff.EventExtended)
	return Reply{Epoch: h.Epoch, LeaseEnds: h.LeaseEnds}
}

func (m *Model) release(c Call, h *Handoff) Reply {
	if code := m.holds(h, c.Actor, c.Epoch); code != "" {
		return refuse(code)
	}
	h.says(c.Text)
	h.reopen(m.now)
	h.event(handoff.EventReleased)
	return Reply{}
}

// says puts a reason that ends nothing into the thread.
func (h *Handoff) says(reason string) {
	if reason != "" {
		h.Messages++
		h.event(handoff.EventMessageCreated)
	}
}

// deliver ends the work, with a result at the pool or a summary at the team door.
func (m *Model) deliver(c Call, h *Handoff) Reply {
	result, summary := c.Result, ""
	if c.Verb == Complete {
		result, summary = "", c.Text
	}
	if h.judged() && h.Holder == c.Actor && h.Result == result && h.Summary == summary && h.sameEpoch(c.Epoch, h.Epoch) {
		return Reply{Replay: true}
	}
	if code := m.holds(h, c.Actor, c.Epoch); code != "" {
		return refuse(code)
	}
	h.Result, h.Summary = result, summary
	h.LeaseEnds = time.Time{}
	if h.VerifyBy != nil {
		h.State = handoff.Verifying
		h.event(handoff.EventVerificationRequested)
		return Reply{}
	}
	m.complete(h, c.Actor)
	return Reply{}
}

func (m *Model) complete(h *Handoff, by string) {
	h.end(handoff.Completed, by, "")
	h.event(handoff.EventCompleted)
	m.ended(h, m.now)
}

// sameEpoch: the caller named no epoch, or this one.
func (h *Handoff) sameEpoch(named *int, epoch int) bool { return named == nil || *named == epoch }

// verify judges delivered work.
func (m *Model) verify(c Call, h *Handoff) Reply {
	if v := h.Verdict; v != nil && v.Pass == c.Pass && v.Feedback == c.Text && v.By == c.Actor && v.Epoch == h.Epoch {
		if c.Pass && h.State == handoff.Completed && h.sameEpoch(c.Epoch, h.Epoch) ||
			!c.Pass && h.State == handoff.Claimed && h.sameEpoch(c.Epoch, h.Epoch-1) {
			return Reply{Replay: true}
		}
	}
	switch {
	case !m.verifier(h, c.Actor):
		return refuse(handoff.CodeVerifierNotEligible)
	case h.terminal():
		return refuse(handoff.CodeThreadTerminal)
	case h.State != handoff.Verifying:
		return refuse(handoff.CodeInvalidTransition)
	case h.stale(c.Epoch):
		return refuse(handoff.CodeStaleClaimEpoch)
	}
	h.Verdict = &Verdict{Pass: c.Pass, Feedback: c.Text, By: c.Actor, Epoch: h.Epoch}
	if c.Pass {
		m.complete(h, c.Actor)
		return Reply{}
	}
	h.Epoch++
	h.Verdict.Epoch = h.Epoch
	h.State = handoff.Claimed
	if h.Lease > 0 { // its original length anew
		h.LeaseEnds = m.now.Add(h.Lease)
	}
	h.event(handoff.EventVerificationFailed)
	if !m.active(h.Holder) { // it was turned off since it delivered
		h.reopen(m.now)
		h.event(handoff.EventReleased)
	}
	return Reply{}
}

// reject refuses the work: its holder, or the one whom the target names while it is open.
func (m *Model) reject(c Call, h *Handoff) Reply {
	if h.State == handoff.Rejected && h.EndedBy == c.Actor && h.EndedReason == c.Text && h.sameEpoch(c.Epoch, h.Epoch) {
		return Reply{Replay: true}
	}
	if h.State == handoff.Open && h.invited(c.Actor) {
		if h.Target.Strategy == Fallback { // the pool's from now on
			h.Declined, h.FallbackOpen, h.FallbackAt = true, true, time.Time{}
			h.says(c.Text)
			h.event(handoff.EventFallbackOpened)
			return Reply{}
		}
	} else if h.State == handoff.Open && c.Actor == h.Recipient {
		return refuse(handoff.CodeInvalidTransition) // it has declined
	} else if c.Actor == h.Creator && c.Actor != h.Recipient && !h.claimant(c.Actor) {
		return refuse(handoff.CodeNotOwner) // a sender takes it back, also one that held it
	} else if code := m.holds(h, c.Actor, c.Epoch); code != "" {
		return refuse(code)
	}
	h.end(handoff.Rejected, c.Actor, c.Text)
	h.event(handoff.EventRejected)
	m.ended(h, m.now)
	return Reply{}
}
