package poolmodel

import (
	"cmp"
	"slices"
	"time"

	"handclasp/internal/handoff"
)

// poolLease is what a claim gets that asks for nothing.
const poolLease = 300 * time.Second

// lease is what the call asks for; 0 for nothing.
func (c Call) lease() time.Duration { return time.Duration(c.Lease) * time.Second }

// claim takes the named handoff, at the pool or by accepting it.
func (m *Model) claim(c Call, h *Handoff) Reply {
	// Whoever could have claimed it while it was OPEN is told that it came too late.
	late := h.held() && m.mayClaim(h, c.Actor)
	if !late && !m.knows(h, c.Actor) {
		return refuse(handoff.CodeNotFound)
	}
	e, found, dup := m.before(c)
	switch {
	case dup:
		return refuse(handoff.CodeDuplicateKey)
	case found && !h.stands(c.Actor, e.epoch):
		return refuse(handoff.CodeLeaseLost)
	case found:
		return Reply{Replay: true}
	}
	code := m.claimable(h, c.Actor)
	switch {
	case code == handoff.CodeAlreadyClaimed && m.reads(h, c.Actor):
		return Reply{Code: code, HeldBy: h.Holder}
	case code != "":
		return refuse(code)
	}
	m.take(h, c.Actor, c.lease())
	m.keep(c, h, 0)
	return Reply{}
}

// stands reports whether the claim that the agent made at the epoch still does.
func (h *Handoff) stands(who string, epoch int) bool {
	return h.readsPayload(who) && h.Epoch == epoch
}

// Claimable reports whether a claim by the agent would succeed now.
func (m *Model) Claimable(h *Handoff, who string) bool { return m.claimable(h, who) == "" }

// claimable is the refusal of a claim. Whoever could never have had it hears that, also when somebody
// has it.
func (m *Model) claimable(h *Handoff, who string) handoff.Code {
	switch {
	case h.terminal():
		return handoff.CodeThreadTerminal
	case h.held() && h.Holder == who: // a lost answer must not strand work
		return ""
	case h.held() && m.mayClaim(h, who):
		return handoff.CodeAlreadyClaimed
	case !m.mayClaim(h, who) || m.unverifiable(h, who):
		return handoff.CodeNotEligibleToClaim
	case h.blocked():
		return handoff.CodeDependencyNotMet
	}
	return ""
}

// take gives h to the agent, or renews the lease that it has.
func (m *Model) take(h *Handoff, who string, length time.Duration) {
	switch h.State {
	case handoff.Verifying:
		return
	case handoff.Claimed:
		h.renew(length, m.now)
		return
	}
	if length == 0 {
		length = poolLease
	}
	h.Epoch++
	h.Holder, h.State = who, handoff.Claimed
	h.renew(length, m.now)
	h.event(handoff.EventClaimed)
}

// renew begins a lease: of the length asked for, else of the one it had. None stays none.
func (h *Handoff) renew(length time.Duration, now time.Time) {
	if length > 0 {
		h.Lease = length
	}
	if h.Lease > 0 {
		h.LeaseEnds = now.Add(h.Lease)
	}
}

// claimNext takes the first of what is available.
func (m *Model) claimNext(c Call) Reply {
	e, found, dup := m.before(c)
	switch {
	case dup:
		return refuse(handoff.CodeDuplicateKey)
	case found && !e.handoff.stands(c.Actor, e.epoch):
		return refuse(handoff.CodeLeaseLost)
	case found:
		return m.shown(Reply{Replay: true}, c, e.handoff)
	}
	w := m.workspace(c.Root)
	if !m.mayUse(w, c.Actor) {
		return refuse(handoff.CodePermissionDenied)
	}
	list := m.available(w, c.Actor)
	if len(list) == 0 {
		return Reply{} // and keeps no key
	}
	m.take(list[0], c.Actor, c.lease())
	m.keep(c, list[0], 0)
	return m.shown(Reply{}, c, list[0])
}

// available is what the agent may claim now, higher priority then oldest first.
func (m *Model) available(workspace, who string) []*Handoff {
	return m.chosen(workspace, byPriority, func(h *Handoff) bool {
		return h.State == handoff.Open && !h.blocked() && m.mayClaim(h, who) && !m.unverifiable(h, who)
	})
}

func byPriority(a, b *Handoff) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.CreatedAt.Compare(b.CreatedAt))
}

func newestFirst(a, b *Handoff) int { return b.CreatedAt.Compare(a.CreatedAt) }

func (m *Model) chosen(workspace string, order func(a, b *Handoff) int, is func(*Handoff) bool) []*Handoff {
	var list []*Handoff
	for _, h := range m.Handoffs {
		if h.Workspace == workspace && is(h) {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, order)
	return list
}

// list answers each scope. Lists show no payload.
func (m *Model) list(c Call) Reply {
	w := m.workspace(c.Root)
	if !m.mayUse(w, c.Actor) {
		return refuse(handoff.CodePermissionDenied)
	}
	var found []*Handoff
	switch c.Scope {
	case "", "available":
		found = m.available(w, c.Actor)
	case "mine_created":
		found = m.chosen(w, newestFirst, func(h *Handoff) bool { return h.Creator == c.Actor })
	case "mine_claimed":
		found = m.chosen(w, newestFirst, func(h *Handoff) bool { return h.held() && h.Holder == c.Actor })
	case "to_verify":
		found = m.chosen(w, byPriority, func(h *Handoff) bool { return h.State == handoff.Verifying && m.verifier(h, c.Actor) })
	}
	var r Reply
	for _, h := range found {
		s := m.see(h, c.Actor)
		s.Payload = ""
		r.Seen = append(r.Seen, s)
	}
	return r
}
