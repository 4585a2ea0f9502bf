package poolmodel

import "handclasp/internal/handoff"

// Who sees what, for agents; the operator sees all but payload, result and feedback.

// mayClaim reports whether the target lets the agent claim h, whatever its state.
func (m *Model) mayClaim(h *Handoff, who string) bool {
	a := m.Agents[who]
	switch {
	case a == nil || a.Disabled || !m.mayUse(h.Workspace, who):
		return false
	case h.Declined && who == h.Recipient:
		return false
	case who == h.Creator && !h.Target.names(a, h.FallbackOpen):
		return false
	}
	return h.Target.matches(a, h.FallbackOpen)
}

// unverifiable: if this agent delivered the work, nobody could judge it.
func (m *Model) unverifiable(h *Handoff, claimant string) bool {
	if h.VerifyBy == nil {
		return false
	}
	for who, a := range m.Agents {
		if who != claimant && !a.Disabled && m.resolves(h, who) {
			return false
		}
	}
	return true
}

// resolves reports whether verify_by means the agent at this moment.
func (m *Model) resolves(h *Handoff, who string) bool {
	if h.VerifyBy == nil {
		return false
	}
	switch h.VerifyBy.Kind {
	case "creator":
		return who == h.Creator
	case "agent":
		return who == h.VerifyBy.Agent
	}
	a := m.Agents[who]
	return a != nil && !a.Disabled && a.offers(h.VerifyBy.Capability) && m.mayUse(h.Workspace, who)
}

// verifier is resolves without the one who delivered.
func (m *Model) verifier(h *Handoff, who string) bool { return who != h.Holder && m.resolves(h, who) }

// judged: VERIFYING has come, and with it the sight of its verifiers.
func (h *Handoff) judged() bool { return h.State == handoff.Verifying || h.State == handoff.Completed }

// claimant is the current holder, or whoever held h when it ended.
func (h *Handoff) claimant(who string) bool { return h.State != handoff.Open && who == h.Holder }

// reads reports whether the agent may see h.
func (m *Model) reads(h *Handoff, who string) bool {
	switch {
	case who == h.Creator, h.claimant(who), who == h.EndedBy, h.Verdict != nil && who == h.Verdict.By:
		return true
	case h.VerifyBy != nil && h.VerifyBy.Kind == "agent" && who == h.VerifyBy.Agent:
		return true
	case h.judged() && m.verifier(h, who):
		return true
	case h.invited(who):
		return true
	}
	if !m.active(who) || !m.mayUse(h.Workspace, who) {
		return false
	}
	switch {
	case h.State == handoff.Open && m.mayClaim(h, who), h.Visibility == handoff.Public:
		return true
	case h.Visibility == handoff.Eligible:
		return h.Target.matches(m.Agents[who], true)
	}
	return false
}

// invited is the one whom h names, as long as it has not declined and nobody holds h.
func (h *Handoff) invited(who string) bool {
	return who == h.Recipient && h.Holder == "" && !h.Declined
}

// knows reports whether the agent may learn that h exists: whoever held it is told that it lost it,
// and whoever was named that it is too late.
func (m *Model) knows(h *Handoff, who string) bool {
	return who == Operator || h.Past[who] || who == h.Recipient || m.reads(h, who)
}

// takesPart reports whether the agent may read and write messages: creator, holder, verifier from
// VERIFYING on, and the one whom h names until it is taken.
func (m *Model) takesPart(h *Handoff, who string) bool {
	return who == Operator || who == h.Creator || h.claimant(who) || h.invited(who) || h.judged() && m.verifier(h, who)
}

// readsResult reports whether the agent is shown result and feedback: those who ordered, do or judge
// the work. The operator is not.
func (m *Model) readsResult(h *Handoff, who string) bool {
	if who == Operator {
		return false
	}
	return who == h.Creator || h.claimant(who) || h.Verdict != nil && who == h.Verdict.By ||
		h.VerifyBy != nil && h.VerifyBy.Kind == "agent" && who == h.VerifyBy.Agent || h.judged() && m.verifier(h, who)
}

// readsPayload: the current or the completing claimant alone.
func (h *Handoff) readsPayload(who string) bool {
	return who == h.Holder && (h.State == handoff.Claimed || h.State == handoff.Verifying || h.State == handoff.Completed)
}
