package handoff

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestNoSequenceOfCallsReachesWhatTheDomainForbids(t *testing.T) {
	t.Parallel()
	for kind := range targets {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for range 4 {
				rapid.Check(t, func(t *rapid.T) { newMachine(t, kind).run(t) })
			}
		})
	}
}

func (m *machine) run(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"claim": m.claim, "claim ": m.claim, "complete": m.complete, "complete ": m.complete, "verify": m.verify, "verify ": m.verify,
		"reject": m.reject, "cancel": m.cancel, "extend": m.extend, "release": m.release, "reassign": m.reassign, "append": m.append, "erase": m.erase,
		"draft": m.draft, "a dependency ends": m.dependency, "disable": m.disable, "time": m.time,
	})
}

func (m *machine) time(t *rapid.T) {
	m.now = m.now.Add(rapid.SampledFrom([]time.Duration{time.Second, 9 * time.Second, time.Minute, 5 * time.Minute, time.Hour}).Draw(t, "passes"))
	m.settle(t)
}

// disable turns an agent off, or on again; then its pool claim is released.
func (m *machine) disable(t *rapid.T) {
	id := rapid.SampledFrom([]string{coder, both, recipient, reviewer, verifier, creator}).Draw(t, "agent")
	m.agents[id].Disabled = !m.agents[id].Disabled
	if m.settle(t); !m.agents[id].Disabled || m.h.Holder != id {
		return
	}
	before := copyOf(&m.h)
	event, released := m.h.ReleaseDisabled(m.now)
	if released != (before.State == Claimed && before.Door == DoorPool) {
		t.Fatalf("disabling the holder of a %s %s handoff released it: %v", before.State, before.Door, released)
	}
	m.judge(t, "disable", id, &before, event, nil)
}

func (m *machine) may(id string, h *Handoff) bool {
	a := m.agents[id]
	if a == nil || a.Disabled {
		return false
	}
	code := a.HasCapability("code")
	switch {
	case h.Target == nil || h.Target.Strategy == StrategyDirect:
		return id == recipient
	case h.Target.Strategy == StrategyCapability:
		return code && id != creator
	case h.Target.Strategy == StrategyMixed:
		return code
	case h.Target.Strategy == StrategyDirectWithFallback:
		return id == recipient && !h.RecipientDeclined || id != recipient && id != creator && m.poolOpen() && code
	}
	return id != creator
}

func (m *machine) othersWhoReview(who string) int {
	n := 0
	for id, a := range m.agents {
		if id != who && !a.Disabled && a.HasCapability("review") {
			n++
		}
	}
	return n
}

// verifierOff reports whether the one agent that may verify was turned off.
func (m *machine) verifierOff(h *Handoff) bool {
	switch {
	case h.VerifyBy == nil || h.VerifyBy.Kind == VerifyByCapability:
		return false
	case h.VerifyBy.Kind == VerifyByCreator:
		return m.agents[creator].Disabled
	}
	return m.agents[h.VerifyBy.AgentID].Disabled
}

// nobodyLeft reports whether nobody could verify what who delivers.
func (m *machine) nobodyLeft(who string, h *Handoff) bool {
	switch {
	case h.VerifyBy == nil:
		return false
	case h.VerifyBy.Kind == VerifyByCreator:
		return who == creator || m.verifierOff(h)
	case h.VerifyBy.Kind == VerifyByAgent:
		return who == h.VerifyBy.AgentID || m.verifierOff(h)
	}
	return m.othersWhoReview(who) == 0
}

func (m *machine) judges(id string, h *Handoff) bool {
	switch {
	case h.VerifyBy == nil || id == operator || id == h.Holder:
		return false
	case h.VerifyBy.Kind == VerifyByCreator:
		return id == creator
	case h.VerifyBy.Kind == VerifyByAgent:
		return id == h.VerifyBy.AgentID
	}
	return m.agents[id].HasCapability("review") && !m.agents[id].Disabled
}

func (m *machine) claim(t *rapid.T) {
	who := m.actor(t, m.claims)
	lease := rapid.SampledFrom([]time.Duration{0, 0, 10 * time.Second, time.Hour, time.Second, 25 * time.Hour}).Draw(t, "lease")
	length := m.h.LeaseLength
	event, ok := m.play(t, "claim", who, func(h *Handoff) Code {
		switch {
		case h.State.Terminal():
			return CodeThreadTerminal
		case lease != 0 && (lease < 10*time.Second || lease > 24*time.Hour):
			return CodeInvalidParams
		case h.State != Open && h.Holder == who:
			return ""
		case h.State != Open && m.may(who, h):
			return CodeAlreadyClaimed
		case h.State != Open, !m.may(who, h), m.nobodyLeft(who, h):
			return CodeNotEligibleToClaim
		case h.DepsPending > 0 || h.DepsFailed > 0:
			return CodeDependencyNotMet
		}
		return ""
	}, func() (EventType, error) {
		return m.h.Claim(actorOf(who), ClaimInput{Agent: m.agent(who), Lease: lease, OtherVerifiers: m.othersWhoReview(who), VerifierDisabled: m.verifierOff(&m.h)}, m.now, m.lim)
	})
	switch {
	case !ok || m.h.State == Verifying:
		return
	case lease == 0 && event == Repeated:
		lease = length // renewed with the length it had
	case lease == 0 && m.h.Door == DoorPool:
		lease = 300 * time.Second
	}
	if m.h.Holder != who || m.h.LeaseLength != lease || (lease > 0 && !m.h.LeaseExpiresAt.Equal(m.now.Add(lease))) {
		t.Fatalf("claimed by %s for %v: %+v", who, lease, m.h)
	}
}

// addressed reports whether the handoff is for this agent, first or alone.
func (m *machine) addressed(id string, h *Handoff) bool {
	return id == recipient && (h.Target == nil || h.Target.Strategy == StrategyDirect || h.Target.Strategy == StrategyDirectWithFallback)
}

// asHolder is the refusal of the holder's verbs.
func (m *machine) asHolder(who string, epoch *int) func(*Handoff) Code {
	return func(h *Handoff) Code {
		switch ended := h.State.Terminal(); {
		case who == h.Holder && ended:
			return CodeThreadTerminal
		case who != h.Holder && m.held[who]:
			return CodeLeaseLost
		case who != h.Holder && m.addressed(who, h) && h.State == Open:
			return CodeInvalidTransition
		case who != h.Holder && m.addressed(who, h) && ended:
			return CodeThreadTerminal
		case who != h.Holder:
			return CodeNotOwner
		case m.stale(epoch):
			return CodeStaleClaimEpoch
		case h.State == Verifying:
			return CodeInvalidTransition
		}
		return ""
	}
}

func (m *machine) stale(epoch *int) bool {
	if epoch == nil {
		return m.epochs > 1 // ever re-claimed, reassigned or sent back
	}
	return *epoch != m.epochs
}

func (m *machine) complete(t *rapid.T) {
	who, epoch := m.actor(t, m.holds), m.epoch(t)
	m.play(t, "complete", who, m.asHolder(who, epoch), func() (EventType, error) { return m.h.Complete(actorOf(who), epoch, m.now) })
}

func (m *machine) extend(t *rapid.T) {
	who, epoch := m.actor(t, m.holds), m.epoch(t)
	lease := rapid.SampledFrom([]time.Duration{0, 20 * time.Second, time.Second}).Draw(t, "lease")
	length := m.h.LeaseLength
	_, ok := m.play(t, "extend", who, func(h *Handoff) Code {
		if code := m.asHolder(who, epoch)(h); code != "" || lease != time.Second {
			return code
		}
		return CodeInvalidParams
	}, func() (EventType, error) { return m.h.Extend(actorOf(who), lease, epoch, m.now, m.lim) })
	if lease > 0 {
		length = lease
	}
	if ok && (m.h.LeaseLength != length || length > 0 && !m.h.LeaseExpiresAt.Equal(m.now.Add(length))) {
		t.Fatalf("extended for %v: %+v", length, m.h)
	}
}

func (m *machine) release(t *rapid.T) {
	who, epoch := m.actor(t, m.holds), m.epoch(t)
	m.play(t, "release", who, m.asHolder(who, epoch), func() (EventType, error) { return m.h.Release(actorOf(who), epoch, m.now) })
}

func (m *machine) draft(t *rapid.T) {
	who, epoch := m.actor(t, m.holds), m.epoch(t)
	m.play(t, "draft", who, func(h *Handoff) Code {
		if code := m.asHolder(who, epoch)(h); code != "" || h.Intent == ProposeAction {
			return code
		}
		return CodeInvalidIntentPayload
	}, func() (EventType, error) { return m.h.Draft(actorOf(who), epoch, m.now) })
}

func (m *machine) verify(t *rapid.T) {
	who, epoch, pass := m.actor(t, func(id string) bool { return m.judges(id, &m.h) }), m.epoch(t), rapid.Bool().Draw(t, "pass")
	m.play(t, "verify", who, func(h *Handoff) Code {
		switch {
		case !m.judges(who, h):
			return CodeVerifierNotEligible
		case h.State.Terminal():
			return CodeThreadTerminal
		case h.State != Verifying:
			return CodeInvalidTransition
		case m.stale(epoch):
			return CodeStaleClaimEpoch
		}
		return ""
	}, func() (EventType, error) { return m.h.Verify(actorOf(who), m.agent(who), pass, "so", epoch, m.now) })
}

func (m *machine) reject(t *rapid.T) {
	who, epoch := m.actor(t, m.holds), m.epoch(t)
	m.play(t, "reject", who, func(h *Handoff) Code {
		switch {
		case who == creator && h.Holder != creator:
			return CodeNotOwner
		case h.State == Open && m.addressed(who, h) && h.RecipientDeclined:
			return CodeInvalidTransition
		case h.State == Open && m.addressed(who, h):
			return ""
		}
		return m.asHolder(who, epoch)(h)
	}, func() (EventType, error) { return m.h.Reject(actorOf(who), "no", epoch, m.now) })
}

func (m *machine) cancel(t *rapid.T) {
	who, reason := m.actor(t, func(id string) bool { return id == creator || id == operator }), rapid.SampledFrom([]string{"", "gone", "gone"}).Draw(t, "reason")
	if rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
		return
	}
	off := m.h.Holder != "" && m.agents[m.h.Holder].Disabled
	m.play(t, "cancel", who, func(h *Handoff) Code {
		switch {
		case who != operator && who != creator:
			return CodeNotOwner
		case h.State.Terminal():
			return CodeThreadTerminal
		case who == operator && reason == "":
			return CodeInvalidParams
		case who == creator && h.State != Open && (h.State != Claimed || !off):
			return CodeInvalidTransition
		}
		return ""
	}, func() (EventType, error) { return m.h.Cancel(actorOf(who), reason, off, m.now) })
}

func (m *machine) reassign(t *rapid.T) {
	who := rapid.SampledFrom([]string{operator, operator, creator, coder}).Draw(t, "actor")
	to := rapid.SampledFrom([]string{coder, both, recipient, stranger, creator, verifier}).Draw(t, "to")
	m.play(t, "reassign", who, func(h *Handoff) Code {
		switch {
		case who != operator:
			return CodePermissionDenied
		case h.State.Terminal():
			return CodeThreadTerminal
		case m.agents[to].Disabled, to == creator && !m.named(creator, h):
			return CodeInvalidParams
		case m.nobodyLeft(to, h):
			return CodeNotEligibleToClaim
		}
		return ""
	}, func() (EventType, error) {
		in := ReassignInput{To: m.agent(to), Reason: "stuck", OtherVerifiers: m.othersWhoReview(to), VerifierDisabled: m.verifierOff(&m.h)}
		return m.h.Reassign(actorOf(who), in, m.now)
	})
}

// named reports whether the target names the agent, whoever else it lets.
func (m *machine) named(id string, h *Handoff) bool {
	return h.Target != nil && h.Target.NamesDirectly(m.agent(id))
}

// erase never works on what has not ended; what it does to what has, has a test of its own.
func (m *machine) erase(t *rapid.T) {
	who := rapid.SampledFrom([]string{operator, creator}).Draw(t, "actor")
	m.settle(t)
	if m.h.State.Terminal() {
		return
	}
	m.play(t, "erase", who, func(*Handoff) Code {
		if who != operator {
			return CodePermissionDenied
		}
		return CodeInvalidTransition
	}, func() (EventType, error) { return m.h.Erase(actorOf(who), m.now) })
}

func (m *machine) append(t *rapid.T) {
	who, asks := m.actor(t, m.holds), rapid.Bool().Draw(t, "expects a reply")
	m.play(t, "append", who, func(h *Handoff) Code {
		// At the pool the one that is named takes part until it says no or somebody has claimed.
		named := m.addressed(who, h) && (h.Door == DoorTeam || h.Holder == "" && !h.RecipientDeclined)
		takesPart := who == operator || who == creator || named || who == h.Holder ||
			(h.State == Verifying || h.State == Completed) && m.judges(who, h)
		switch {
		case !takesPart:
			return CodeNotAParticipant
		case h.State.Terminal():
			return CodeThreadTerminal
		case asks && (h.State != Claimed || who != h.Holder):
			return CodeNotOwner
		case h.Messages >= m.lim.Messages:
			return CodeContentTooLarge
		}
		return ""
	}, func() (EventType, error) { return m.h.Append(actorOf(who), m.agent(who), asks, m.now, m.lim) })
}

func (m *machine) dependency(t *rapid.T) {
	m.settle(t)
	if m.h.DepsPending == 0 {
		return
	}
	before := copyOf(&m.h)
	ended := rapid.SampledFrom([]State{Completed, Completed, Completed, Rejected, Cancelled, Expired}).Draw(t, "ended as")
	event := m.h.DependencyEnded(ended, m.now)
	m.judge(t, "dependency", System().ID, &before, event, nil)
	if !before.State.Terminal() && m.h.DepsPending != before.DepsPending-1 || (event == EventUnblocked) != (before.Blocked() && !m.h.Blocked()) {
		t.Fatalf("%d pending and %d failed after %d pending: %s", m.h.DepsPending, m.h.DepsFailed, before.DepsPending, event)
	}
}
