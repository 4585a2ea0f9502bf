package poolmodel

import (
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// takeBack is the creator's cancel: while nobody holds it, or an agent that was turned off does.
func (m *Model) takeBack(c Call, h *Handoff) Reply {
	switch {
	case h.State == handoff.Cancelled && h.EndedBy == c.Actor && h.EndedReason == c.Text:
		return Reply{Replay: true}
	case c.Actor != h.Creator:
		return refuse(handoff.CodeNotOwner)
	case h.terminal():
		return refuse(handoff.CodeThreadTerminal)
	case h.State == handoff.Open, h.State == handoff.Claimed && !m.active(h.Holder):
		m.cancel(h, c.Actor, c.Text)
		return Reply{}
	}
	return refuse(handoff.CodeInvalidTransition)
}

func (m *Model) cancel(h *Handoff, by, reason string) {
	h.end(handoff.Cancelled, by, reason)
	h.event(handoff.EventCancelled)
	m.ended(h, m.now)
}

// send appends to the thread.
func (m *Model) send(c Call, h *Handoff) Reply {
	switch {
	case !m.takesPart(h, c.Actor):
		return refuse(handoff.CodeNotAParticipant)
	case h.terminal():
		return refuse(handoff.CodeThreadTerminal)
	case c.Asks && (h.State != handoff.Claimed || h.Holder != c.Actor):
		return refuse(handoff.CodeNotOwner)
	}
	for other := range m.Agents {
		side := other == h.Creator || other == h.Holder || h.invited(other)
		if side && other != c.Actor && m.Blocks(other, c.Actor) {
			return refuse(handoff.CodeTeammateBlocked)
		}
	}
	h.Messages++
	if c.Asks {
		h.event(handoff.EventInputRequired)
	} else {
		h.event(handoff.EventMessageCreated)
	}
	return Reply{SequenceNo: h.Messages}
}

// cancelAny is the operator's cancel: while it has not ended, with a reason.
func (m *Model) cancelAny(c Call) Reply {
	h := m.find(c.Handoff)
	switch {
	case h == nil:
		return refuse(handoff.CodeNotFound)
	case h.State == handoff.Cancelled && h.EndedBy == Operator && h.EndedReason == c.Text:
		return m.teamEnd(Reply{Replay: true}, h)
	case h.terminal() && c.Text == "":
		return Reply{Code: handoff.CodeThreadTerminal, Or: []handoff.Code{handoff.CodeInvalidParams}}
	case h.terminal():
		return refuse(handoff.CodeThreadTerminal)
	case c.Text == "":
		return refuse(handoff.CodeInvalidParams)
	}
	m.cancel(h, Operator, c.Text)
	return m.teamEnd(Reply{}, h)
}

// reassign gives a handoff that has not ended to another agent, without a lease, whoever its target
// means and whatever it waits for: but not to its creator unless it names that.
func (m *Model) reassign(c Call) Reply {
	h := m.find(c.Handoff)
	if h == nil {
		return refuse(handoff.CodeNotFound)
	}
	faults := m.reassignFaults(c, h)
	if len(faults) > 0 {
		return Reply{Code: faults[0], Or: faults}
	}
	switch {
	case m.unverifiable(h, c.To):
		return refuse(handoff.CodeNotEligibleToClaim)
	case h.State == handoff.Claimed && h.Holder == c.To:
		return Reply{Epoch: h.Epoch, Replay: true}
	}
	if h.held() {
		h.Past[h.Holder] = true
	}
	h.Epoch++
	h.State, h.Holder = handoff.Claimed, c.To
	h.Lease, h.LeaseEnds = 0, time.Time{}
	h.Messages++
	h.event(handoff.EventReassigned)
	return Reply{Epoch: h.Epoch}
}

func (m *Model) reassignFaults(c Call, h *Handoff) (codes []handoff.Code) {
	to := m.Agents[c.To]
	if to == nil {
		codes = append(codes, handoff.CodeRecipientNotFound)
	}
	if c.Text == "" || to != nil && (to.Disabled || c.To == h.Creator && !h.Target.names(to, true)) {
		codes = append(codes, handoff.CodeInvalidParams)
	}
	if h.terminal() {
		codes = append(codes, handoff.CodeThreadTerminal)
	}
	if h.Holder != c.To && m.Blocks(c.To, h.Creator) {
		codes = append(codes, handoff.CodeTeammateBlocked)
	}
	return codes
}

// administer is what the operator, or an agent for itself, changes of agents.
func (m *Model) administer(c Call) Reply {
	switch c.Verb {
	case Block:
		m.block[[2]string{c.Actor, c.To}] = c.Disabled
	case Admit:
		m.Workspaces[m.workspace(c.Root)].Members[c.To] = !c.Disabled
	case Restrict:
		m.Workspaces[m.workspace(c.Root)].Strict = !c.Disabled
	case Alias: // what stands in the old workspace moves
		m.Aliases[c.To] = c.Root
		for _, h := range m.Handoffs {
			h.Workspace = m.workspace(h.Workspace)
		}
	case Register:
		a := *c.Edit
		a.Handle = c.To
		m.Agents[c.To] = &a
		for _, h := range m.Handoffs { // some have waited for it
			if h.Target.Strategy == Fallback && strings.EqualFold(h.Target.Agent, c.To) {
				h.Recipient = c.To
			}
		}
	case Edit:
		a := m.Agents[c.To]
		a.Role, a.Capabilities, a.Tags = c.Edit.Role, slices.Clone(c.Edit.Capabilities), c.Edit.Tags
	case Disable:
		a := m.Agents[c.To]
		was := a.Disabled
		if a.Disabled = c.Disabled; was || !c.Disabled {
			break
		}
		for _, h := range m.Handoffs { // its claims are the pool's again
			if h.State == handoff.Claimed && h.Holder == a.Handle {
				h.reopen(m.now)
				h.event(handoff.EventReleased)
			}
		}
	}
	return Reply{}
}
