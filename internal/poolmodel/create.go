package poolmodel

import (
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// create makes an open handoff.
func (m *Model) create(c Call) Reply {
	e, found, dup := m.before(c)
	switch {
	case dup:
		return refuse(handoff.CodeDuplicateKey)
	case found:
		m.Advance(m.now)
		return Reply{Seen: []Seen{m.opened(e.handoff)}, Replay: true}
	}
	o := c.Open
	h := &Handoff{
		Workspace: m.workspace(c.Root), Creator: c.Actor, Target: o.Target, Visibility: handoff.Visibility(strings.ToLower(o.Visibility)),
		Payload: o.Payload, State: handoff.Open, Past: map[string]bool{}, CreatedAt: m.now,
	}
	if code := m.check(c, h); code != "" {
		return refuse(code)
	}
	h.Priority = map[string]int{"low": -1, "high": 1}[strings.ToLower(o.Priority)]
	if o.ExpiresIn > 0 {
		h.Deadline = m.now.Add(time.Duration(o.ExpiresIn) * time.Second)
	}
	if o.Criteria {
		if h.VerifyBy = o.VerifyBy; h.VerifyBy == nil {
			h.VerifyBy = &VerifyBy{Kind: "creator"}
		}
		if a := m.agent(h.VerifyBy.Agent); a != nil {
			h.VerifyBy = &VerifyBy{Kind: "agent", Agent: a.Handle}
		}
	}
	h.Name = NameOf(len(m.Handoffs))
	m.Handoffs = append(m.Handoffs, h)
	h.event(handoff.EventCreated)
	h.waitForFallback(m.now)
	m.keep(c, h, 0)

	r := Reply{Seen: []Seen{m.opened(h)}}
	for who := range m.Agents {
		if m.mayClaimOnce(h, who) {
			r.Eligible++
		}
	}
	r.Warned = r.Eligible == 0
	if m.active(h.Recipient) && h.Recipient != h.Creator && !h.blocked() {
		r.Notified = []string{h.Recipient}
	}
	return r
}

// mayClaimOnce counts the fallback pool as open: it will be.
func (m *Model) mayClaimOnce(h *Handoff, who string) bool {
	later := *h
	later.FallbackOpen = true
	return m.mayClaim(&later, who)
}

// check finds what is wrong with a create. What it names is resolved in h.
func (m *Model) check(c Call, h *Handoff) handoff.Code {
	o := c.Open
	switch {
	case o.VerifyBy != nil && !o.Criteria,
		o.ExpiresIn != 0 && (o.ExpiresIn < 60 || o.ExpiresIn > 31_536_000),
		!slices.Contains([]string{"", "low", "normal", "high"}, strings.ToLower(o.Priority)),
		!slices.Contains([]string{"public", "eligible", "private"}, strings.ToLower(o.Visibility)),
		repeats(o.DependsOn):
		return handoff.CodeInvalidParams
	case !m.mayUse(h.Workspace, c.Actor):
		return handoff.CodePermissionDenied
	}
	for _, t := range o.Target.all() {
		if t.Strategy == Direct && m.agent(t.Agent) == nil {
			return handoff.CodeRecipientNotFound
		}
	}
	if o.Target.Strategy == Direct || o.Target.Strategy == Fallback {
		for who := range m.Agents { // a first choice may be turned off as yet
			if strings.EqualFold(who, o.Target.Agent) {
				h.Recipient = who
			}
		}
	}
	if m.active(h.Recipient) && m.Blocks(h.Recipient, h.Creator) {
		return handoff.CodeTeammateBlocked
	}
	if slices.ContainsFunc(o.Target.words(), func(w string) bool { return !m.Catalog[w] }) {
		return handoff.CodeInvalidParams
	}
	if v := o.VerifyBy; v != nil {
		if v.Kind == "agent" && m.agent(v.Agent) == nil {
			return handoff.CodeRecipientNotFound
		}
		if v.Kind == "capability" && !m.Catalog[v.Capability] {
			return handoff.CodeInvalidParams
		}
	}
	if o.Criteria && m.onlyClaimantVerifies(h, o) {
		return handoff.CodeInvalidParams
	}
	return m.depend(h, o.DependsOn)
}

// onlyClaimantVerifies: the one who could claim is the one who would verify.
func (m *Model) onlyClaimantVerifies(h *Handoff, o *Open) bool {
	verifier := h.Creator
	if o.VerifyBy != nil {
		switch o.VerifyBy.Kind {
		case "agent":
			verifier = o.VerifyBy.Agent
		case "capability": // others may come to offer it
			return false
		}
	}
	return strings.EqualFold(o.Target.only(), verifier)
}

func (m *Model) depend(h *Handoff, names []string) handoff.Code {
	for _, name := range names {
		d := m.find(name)
		if d == nil || d.Workspace != h.Workspace || !m.reads(d, h.Creator) {
			return handoff.CodeDependencyNotFound
		}
		h.DependsOn = append(h.DependsOn, d)
	}
	if _, _, _, failed := h.Dependencies(); failed > 0 {
		return handoff.CodeDependencyNotMet
	}
	return ""
}

func repeats(list []string) bool {
	return len(slices.Compact(slices.Sorted(slices.Values(list)))) < len(list)
}

// opened is what a create tells of what it made.
func (m *Model) opened(h *Handoff) Seen {
	s := Seen{Name: h.Name, State: h.State, CreatedAt: h.CreatedAt, Dependencies: h.counts()}
	for _, d := range h.DependsOn {
		s.DependsOn = append(s.DependsOn, d.Name)
	}
	slices.Sort(s.DependsOn)
	return s
}

// NameOf is how the n-th handoff is called.
func NameOf(n int) string { return "h" + string(rune('0'+n/10)) + string(rune('0'+n%10)) }
