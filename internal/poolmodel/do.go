package poolmodel

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"handclasp/internal/handoff"
)

// Do answers a call at a moment.
func (m *Model) Do(c Call, now time.Time) Reply {
	m.Advance(now)
	if !c.malformed() {
		return m.verb(c)
	}
	// Nothing comes of it; what else is wrong may be said as well.
	r := m.without(c)
	return Reply{Code: handoff.CodeInvalidParams, Or: []handoff.Code{r.Code}}
}

// malformed reports whether an argument alone is a reason to refuse the call.
func (c Call) malformed() bool {
	switch c.Verb {
	case Claim, Accept, Extend:
		return c.Lease != 0 && (c.Lease < 10 || c.Lease > 86_400)
	case Verify:
		return c.Pass && c.Text != ""
	case Complete, Decline, Send:
		return c.Text == ""
	case List:
		return !slices.Contains([]string{"", "available", "mine_created", "mine_claimed", "to_verify"}, c.Scope)
	}
	return false
}

// without is what a malformed call would be refused for besides.
func (m *Model) without(c Call) Reply {
	trial := *m
	trial.keys = maps.Clone(m.keys)
	trial.Handoffs = nil
	for _, h := range m.Handoffs {
		same := *h
		same.Past = maps.Clone(h.Past)
		trial.Handoffs = append(trial.Handoffs, &same)
	}
	return trial.verb(c)
}

func (m *Model) verb(c Call) Reply {
	switch c.Verb {
	case Disable, Edit, Register, Admit, Restrict, Alias, Block:
		return m.administer(c)
	case CancelAny:
		return m.cancelAny(c)
	case Reassign:
		return m.reassign(c)
	case Inspect:
		h := m.find(c.Handoff)
		return Reply{Seen: []Seen{m.thread(h, Operator)}}
	case Accept, Complete, Decline, Cancel, View, Send:
		return m.team(c)
	}
	if c.As != c.Actor {
		return refuse(handoff.CodePermissionDenied)
	}
	if c.Root == "" {
		return refuse(handoff.CodeWorkspaceUnresolved)
	}
	switch c.Verb {
	case Create:
		return m.create(c)
	case List:
		return m.list(c)
	case Claim:
		if c.Handoff == "" {
			return m.claimNext(c)
		}
	}
	h := m.find(c.Handoff)
	if h == nil || h.Workspace != m.workspace(c.Root) {
		return refuse(handoff.CodeNotFound)
	}
	switch c.Verb {
	case Claim:
		r := m.claim(c, h)
		return m.shown(r, c, h)
	case Get:
		if !m.reads(h, c.Actor) {
			return refuse(handoff.CodeNotFound)
		}
		return m.shown(Reply{}, c, h)
	}
	r := m.change(c, h)
	if r.Code != "" || c.Verb == Extend {
		return r
	}
	return m.shown(r, c, h)
}

// team is a call at the other door. It names no workspace.
func (m *Model) team(c Call) Reply {
	h := m.find(c.Handoff)
	if h == nil {
		return refuse(handoff.CodeNotFound)
	}
	switch c.Verb {
	case Accept:
		r := m.claim(c, h)
		if r.Code == "" {
			m.Advance(m.now)
			r.Seen = []Seen{m.thread(h, c.Actor)}
		}
		return r
	case View:
		switch {
		case !m.reads(h, c.Actor):
			return refuse(handoff.CodeNotFound)
		case !m.takesPart(h, c.Actor):
			return refuse(handoff.CodeNotAParticipant)
		}
		return Reply{Seen: []Seen{m.thread(h, c.Actor)}}
	}
	r := m.change(c, h)
	if r.Code == "" && c.Verb != Send {
		r = m.teamEnd(r, h)
	}
	return r
}

// teamEnd is the short answer of the team door.
func (m *Model) teamEnd(r Reply, h *Handoff) Reply {
	m.Advance(m.now)
	r.Status, r.Verifying = h.State.TeamStatus(), h.State == handoff.Verifying
	return r
}

// change is the common way of the verbs that act on a handoff: who may know of it, what was done
// under the key, the verb.
func (m *Model) change(c Call, h *Handoff) Reply {
	if !m.knows(h, c.Actor) {
		return refuse(handoff.CodeNotFound)
	}
	e, found, dup := m.before(c)
	if dup {
		return refuse(handoff.CodeDuplicateKey)
	}
	if found {
		return m.again(c, h, e)
	}
	r := map[string]func(Call, *Handoff) Reply{
		Extend: m.extend, Release: m.release, Deliver: m.deliver, Complete: m.deliver, Verify: m.verify,
		Reject: m.reject, Decline: m.reject, TakeBack: m.takeBack, Cancel: m.takeBack, Send: m.send,
	}[c.Verb](c, h)
	if r.Code == "" {
		m.keep(c, h, r.SequenceNo)
	}
	return r
}

// again answers an exact repetition under the same key from what is now.
func (m *Model) again(c Call, h *Handoff, e effect) Reply {
	switch c.Verb {
	case Extend: // as with a claim, nobody is told of a lease that it has lost
		if code := m.holds(h, c.Actor, c.Epoch); code != "" && (h.State != handoff.Claimed || h.Holder != c.Actor) {
			return refuse(code)
		}
		return Reply{Epoch: h.Epoch, LeaseEnds: h.LeaseEnds, Replay: true}
	case Send:
		return Reply{SequenceNo: e.sequence, Replay: true}
	}
	return Reply{Replay: true}
}

func refuse(code handoff.Code) Reply { return Reply{Code: code} }

// shown adds the handoff as the caller sees it now.
func (m *Model) shown(r Reply, c Call, h *Handoff) Reply {
	if r.Code == "" {
		m.Advance(m.now) // what was opened past its deadline has expired
		r.Seen = []Seen{m.see(h, c.Actor)}
	}
	return r
}

// see is h as the actor sees it.
func (m *Model) see(h *Handoff, who string) Seen {
	s := Seen{
		Name: h.Name, State: h.State, Creator: h.Creator, Holder: h.Holder, Epoch: h.Epoch, LeaseEnds: h.LeaseEnds,
		Priority: h.Priority, CreatedAt: h.CreatedAt, EndedBy: h.EndedBy,
	}
	if h.readsPayload(who) {
		s.Payload = h.Payload
	}
	result := m.readsResult(h, who)
	if result {
		s.Result = h.Result
	}
	if result || who == Operator {
		s.Summary = h.Summary
	}
	if result || m.takesPart(h, who) || who == h.EndedBy {
		s.EndedReason = h.EndedReason
	}
	if v := h.Verdict; v != nil {
		s.Verdict, s.VerifiedBy = "fail", v.By
		if v.Pass {
			s.Verdict = "pass"
		}
		if result {
			s.Feedback = v.Feedback
		}
	}
	for _, d := range h.DependsOn {
		if who == Operator || m.reads(d, who) {
			s.DependsOn = append(s.DependsOn, d.Name)
		}
	}
	slices.Sort(s.DependsOn)
	s.Dependencies = h.counts()
	if who != Operator && !m.reads(h, who) { // it lost h, repeats a call, and hears the status only
		s.Holder, s.LeaseEnds, s.EndedBy, s.Verdict, s.VerifiedBy, s.Feedback = "", time.Time{}, "", "", "", ""
	}
	return s
}

// counts is how far the dependencies are, in words.
func (h *Handoff) counts() string {
	total, satisfied, pending, failed := h.Dependencies()
	if total == 0 {
		return ""
	}
	return Counts(total, satisfied, pending, failed)
}

// Counts words how far dependencies are.
func Counts(total, satisfied, pending, failed int) string {
	return fmt.Sprintf("%d satisfied, %d pending, %d failed of %d", satisfied, pending, failed, total)
}

// thread is h as one that takes part in its thread sees it.
func (m *Model) thread(h *Handoff, who string) Seen {
	s := m.see(h, who)
	s.DependsOn, s.Dependencies = nil, "" // a thread does not tell
	s.Messages = h.Messages
	return s
}

// Listing is what the operator sees of all handoffs in those states of the team door, newest first.
func (m *Model) Listing(statuses []string) []string {
	var list []string
	for _, h := range slices.Backward(m.Handoffs) {
		if statuses == nil || slices.Contains(statuses, h.State.TeamStatus()) {
			list = append(list, Line(h.Name, h.State, h.Holder, h.Epoch))
		}
	}
	return list
}

// Line is one line of the operator's list.
func Line(name string, state handoff.State, holder string, epoch int) string {
	return fmt.Sprintf("%s %s %s@%d", name, state, holder, epoch)
}
