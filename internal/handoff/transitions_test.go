package handoff

import (
	"errors"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// sent is a team handoff from the creator to the recipient.
func sent(change ...func(*Handoff)) *Handoff {
	h := &Handoff{ID: "h", Door: DoorTeam, State: Open, Creator: creator, Recipient: recipient, Intent: Inform, Visibility: Private, Messages: 1, CreatedAt: noon, UpdatedAt: noon}
	for _, c := range change {
		c(h)
	}
	return h
}

func in(s State, holder string, epoch int) func(*Handoff) {
	return func(h *Handoff) { h.State, h.Holder, h.Epoch, h.AcceptedAt = s, holder, epoch, noon }
}

func past(ids ...string) func(*Handoff) { return func(h *Handoff) { h.PastHolders = ids } }

func verifiedBy(v VerifyBy) func(*Handoff) {
	return func(h *Handoff) { h.Criteria, h.VerifyBy = []string{"it works"}, &v }
}

func agentOf(id string) *Agent { return cast()[id] }

func TestAClaimIsRefusedInTheOrderThatIsPromised(t *testing.T) {
	t.Parallel()
	blocked := func(h *Handoff) { h.DepsPending = 1 }
	failed := func(h *Handoff) { h.DepsFailed = 1 }
	byCreator := verifiedBy(VerifyBy{Kind: VerifyByCreator})
	everyone := func(h *Handoff) {
		h.Door, h.Recipient, h.Target = DoorPool, "", &Target{Strategy: StrategyMixed, Rules: []*Target{{Strategy: StrategyBroadcast}, {Strategy: StrategyDirect, AgentID: creator}}}
	}
	tests := []struct {
		name string
		h    *Handoff
		who  string
		want Code
	}{
		{"ended comes before everything", sent(in(Cancelled, "", 0), blocked), stranger, CodeThreadTerminal},
		{"the one who completed it too", sent(in(Completed, recipient, 1)), recipient, CodeThreadTerminal},
		{"held by another comes before blocked", sent(in(Claimed, coder, 2), blocked), recipient, CodeAlreadyClaimed},
		{"delivered by another", sent(in(Verifying, coder, 2)), recipient, CodeAlreadyClaimed},
		{"who could never have claimed it hears that, held", sent(in(Claimed, recipient, 1)), stranger, CodeNotEligibleToClaim},
		{"and open", sent(), stranger, CodeNotEligibleToClaim},
		{"the sender", sent(), creator, CodeNotEligibleToClaim},
		{"not eligible comes before blocked", sent(blocked), stranger, CodeNotEligibleToClaim},
		{"nobody left to verify comes before blocked", sent(everyone, byCreator, blocked), creator, CodeNotEligibleToClaim},
		{"another agent leaves the creator to verify", sent(everyone, byCreator), coder, ""},
		{"a pending dependency", sent(blocked), recipient, CodeDependencyNotMet},
		{"a failed dependency", sent(failed), recipient, CodeDependencyNotMet},
		{"the holder again", sent(in(Claimed, recipient, 1)), recipient, ""},
		{"the holder again, although it is blocked", sent(in(Claimed, recipient, 1), blocked), recipient, ""},
		{"the holder while its work is judged", sent(in(Verifying, recipient, 1)), recipient, ""},
		{"the recipient", sent(), recipient, ""},
		{"the recipient that lost it once", sent(past(recipient)), recipient, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			epoch, state := test.h.Epoch, test.h.State
			_, err := test.h.Claim(actorOf(test.who), ClaimInput{Agent: agentOf(test.who)}, noon, DefaultLimits())
			if CodeOf(err) != test.want {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if fresh := err == nil && state == Open; (test.h.Epoch == epoch+1) != fresh || fresh && test.h.Holder != test.who {
				t.Fatalf("epoch %d after %d, held by %s", test.h.Epoch, epoch, test.h.Holder)
			}
		})
	}
}

func TestAHoldersVerbIsRefusedInTheOrderThatIsPromised(t *testing.T) {
	t.Parallel()
	one, two := new(1), new(2)
	tests := []struct {
		name  string
		h     *Handoff
		who   string
		epoch *int
		want  Code
	}{
		{"a recipient that has not accepted", sent(), recipient, nil, CodeInvalidTransition},
		{"with an epoch too", sent(), recipient, one, CodeInvalidTransition},
		{"the one who completed it", sent(in(Completed, recipient, 1)), recipient, one, CodeThreadTerminal},
		{"with a wrong epoch too", sent(in(Completed, recipient, 1)), recipient, two, CodeThreadTerminal},
		{"held once, open again", sent(past(recipient)), recipient, one, CodeLeaseLost},
		{"held once, another holds it", sent(in(Claimed, coder, 2), past(recipient)), recipient, one, CodeLeaseLost},
		{"held once, another completed it", sent(in(Completed, coder, 2), past(recipient)), recipient, one, CodeLeaseLost},
		{"never held it", sent(in(Claimed, recipient, 1)), coder, one, CodeNotOwner},
		{"the sender never held it", sent(), creator, nil, CodeNotOwner},
		{"never held it, ended", sent(in(Completed, recipient, 1)), creator, nil, CodeNotOwner},
		{"a recipient that never held it, ended", sent(in(Cancelled, "", 0)), recipient, nil, CodeThreadTerminal},
		{"another epoch", sent(in(Claimed, recipient, 1)), recipient, two, CodeStaleClaimEpoch},
		{"no epoch after a second claim", sent(in(Claimed, recipient, 2), past(recipient)), recipient, nil, CodeStaleClaimEpoch},
		{"an old epoch", sent(in(Claimed, recipient, 2)), recipient, one, CodeStaleClaimEpoch},
		{"delivered", sent(in(Verifying, recipient, 1)), recipient, one, CodeInvalidTransition},
		{"the holder, without an epoch", sent(in(Claimed, recipient, 1)), recipient, nil, ""},
		{"the holder, again after it lost it", sent(in(Claimed, recipient, 2), past(recipient)), recipient, two, ""},
	}
	verbs := map[string]func(*Handoff, Actor, *int) (EventType, error){
		"complete": func(h *Handoff, a Actor, e *int) (EventType, error) { return h.Complete(a, e, noon) },
		"extend":   func(h *Handoff, a Actor, e *int) (EventType, error) { return h.Extend(a, 0, e, noon, DefaultLimits()) },
		"release":  func(h *Handoff, a Actor, e *int) (EventType, error) { return h.Release(a, e, noon) },
		"draft": func(h *Handoff, a Actor, e *int) (EventType, error) {
			h.Intent = ProposeAction
			return h.Draft(a, e, noon)
		},
		"reject": func(h *Handoff, a Actor, e *int) (EventType, error) { return h.Reject(a, "no", e, noon) },
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for verb, do := range verbs {
				h, want := copyOf(test.h), test.want
				if verb == "reject" && h.State == Open && test.who == h.Recipient {
					want = "" // before the claim it may say no
				}
				if verb == "reject" && test.who == creator {
					want = CodeNotOwner
				}
				if _, err := do(&h, actorOf(test.who), test.epoch); CodeOf(err) != want {
					t.Errorf("%s: got %v, want %q", verb, err, want)
				}
			}
		})
	}
}

func TestTheOthersVerbsNameTheWrongActorFirstThenTheEnd(t *testing.T) {
	t.Parallel()
	byCapability := verifiedBy(VerifyBy{Kind: VerifyByCapability, Capability: "review"})
	cancel := func(who, reason string, disabled bool) func(*Handoff) error {
		return func(h *Handoff) error { _, err := h.Cancel(actorOf(who), reason, disabled, noon); return err }
	}
	verify := func(who string, epoch *int) func(*Handoff) error {
		return func(h *Handoff) error {
			_, err := h.Verify(actorOf(who), agentOf(who), true, "", epoch, noon)
			return err
		}
	}
	write := func(who string, asks bool) func(*Handoff) error {
		return func(h *Handoff) error {
			_, err := h.Append(actorOf(who), agentOf(who), asks, noon, DefaultLimits())
			return err
		}
	}
	tests := []struct {
		name string
		h    *Handoff
		do   func(*Handoff) error
		want Code
	}{
		{"a stranger cancels what has ended", sent(in(Expired, "", 0)), cancel(stranger, "", false), CodeNotOwner},
		{"the recipient cancels", sent(), cancel(recipient, "", false), CodeNotOwner},
		{"the sender cancels what has ended", sent(in(Expired, "", 0)), cancel(creator, "", false), CodeThreadTerminal},
		{"the sender cancels what was accepted", sent(in(Claimed, recipient, 1)), cancel(creator, "", false), CodeInvalidTransition},
		{"the sender cancels what a disabled agent holds", sent(in(Claimed, recipient, 1)), cancel(creator, "", true), ""},
		{"the sender cancels what a disabled agent delivered", sent(in(Verifying, recipient, 1)), cancel(creator, "", true), CodeInvalidTransition},
		{"the operator cancels without a reason", sent(), cancel(operator, "", false), CodeInvalidParams},
		{"the operator cancels what has ended, without a reason", sent(in(Completed, recipient, 1)), cancel(operator, "", false), CodeThreadTerminal},
		{"the operator cancels accepted work", sent(in(Claimed, recipient, 1)), cancel(operator, "stuck", false), ""},
		{"the operator cancels delivered work", sent(in(Verifying, recipient, 1)), cancel(operator, "stuck", false), ""},

		{"there is nobody to verify", sent(in(Verifying, recipient, 1)), verify(creator, nil), CodeVerifierNotEligible},
		{"the deliverer verifies", sent(in(Verifying, both, 1), byCapability), verify(both, nil), CodeVerifierNotEligible},
		{"a wrong verifier on what has ended", sent(in(Completed, recipient, 1), byCapability), verify(coder, nil), CodeVerifierNotEligible},
		{"a verifier on what has ended", sent(in(Completed, recipient, 1), byCapability), verify(reviewer, new(7)), CodeThreadTerminal},
		{"a verifier before the delivery", sent(in(Claimed, recipient, 1), byCapability), verify(reviewer, new(7)), CodeInvalidTransition},
		{"a verifier with another epoch", sent(in(Verifying, recipient, 2), byCapability), verify(reviewer, new(1)), CodeStaleClaimEpoch},
		{"a verifier without an epoch after a fail", sent(in(Verifying, recipient, 2), byCapability), verify(reviewer, nil), CodeStaleClaimEpoch},
		{"a verifier", sent(in(Verifying, recipient, 1), byCapability), verify(reviewer, nil), ""},

		{"a stranger writes to what has ended", sent(in(Expired, "", 0)), write(stranger, false), CodeNotAParticipant},
		{"the sender writes to what has ended", sent(in(Expired, "", 0)), write(creator, true), CodeThreadTerminal},
		{"a past holder writes", sent(in(Claimed, recipient, 2), past(coder)), write(coder, false), CodeNotAParticipant},
		{"the sender asks in the holder's stead", sent(in(Claimed, recipient, 1)), write(creator, true), CodeNotOwner},
		{"the recipient asks before accepting", sent(), write(recipient, true), CodeNotOwner},
		{"a full thread", sent(func(h *Handoff) { h.Messages = 10_000 }), write(creator, false), CodeContentTooLarge},
		{"a verifier writes while there is something to verify", sent(in(Verifying, recipient, 1), byCapability), write(reviewer, false), ""},
		{"a verifier writes before", sent(in(Claimed, recipient, 1), byCapability), write(reviewer, false), CodeNotAParticipant},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			before := copyOf(test.h)
			if err := test.do(test.h); CodeOf(err) != test.want {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if d := diffOf(&before, test.h); (d == "") != (test.want != "") {
				t.Fatalf("it changed: %s", d)
			}
		})
	}
}

func TestAHolderWaitsForAnAnswerUntilTheSenderGivesOne(t *testing.T) {
	t.Parallel()
	h := sent(in(Claimed, recipient, 1))
	write := func(who string, asks bool, want EventType, waits bool) {
		t.Helper()
		event, err := h.Append(actorOf(who), agentOf(who), asks, noon, DefaultLimits())
		if err != nil || event != want || h.WaitsForReply != waits {
			t.Fatalf("%s: %q %v, waits %v", who, event, err, h.WaitsForReply)
		}
	}
	write(recipient, true, EventInputRequired, true)
	write(recipient, false, EventMessageCreated, true)
	write(operator, false, EventMessageCreated, true)
	write(creator, false, EventMessageCreated, false)
	if h.Messages != 5 {
		t.Fatalf("%d messages", h.Messages)
	}
}

func TestADeclineBeforeTheClaimOpensTheFallbackAtOnce(t *testing.T) {
	t.Parallel()
	h := sent(func(h *Handoff) {
		h.Door, h.FallbackAt = DoorPool, noon.Add(time.Hour)
		h.Target = &Target{Strategy: StrategyDirectWithFallback, AgentID: recipient, Fallback: &Target{Strategy: StrategyBroadcast}}
	})
	if h.MayClaim(agentOf(coder), noon) || !h.MayClaim(agentOf(coder), noon.Add(time.Hour)) {
		t.Fatal("the fallback opens after its time, not before")
	}
	event, err := h.Reject(actorOf(recipient), "busy", nil, noon)
	if err != nil || event != EventFallbackOpened || h.State != Open {
		t.Fatalf("%s %v: %s", event, err, h.State)
	}
	if h.MayClaim(agentOf(recipient), noon) || !h.MayClaim(agentOf(coder), noon) || h.MayClaim(agentOf(creator), noon) {
		t.Fatal("then the pool may claim it, and neither who declined nor the creator")
	}
	_, err = h.Claim(actorOf(recipient), ClaimInput{Agent: agentOf(recipient)}, noon, DefaultLimits())
	wantCode(t, err, CodeNotEligibleToClaim, "")
	_, err = h.Reject(actorOf(recipient), "busy", nil, noon)
	wantCode(t, err, CodeInvalidTransition, "declined")
	_, err = h.Complete(actorOf(recipient), nil, noon) // it cannot accept any more
	wantCode(t, err, CodeInvalidTransition, "declined")
}

func TestAFailGrantsTheLeaseAnewAndRaisesTheEpoch(t *testing.T) {
	t.Parallel()
	h := sent(verifiedBy(VerifyBy{Kind: VerifyByCreator}))
	must := func(event EventType, err error) {
		t.Helper()
		if err != nil || event == Repeated {
			t.Fatalf("%q %v", event, err)
		}
	}
	must(h.Claim(actorOf(recipient), ClaimInput{Agent: agentOf(recipient), Lease: time.Hour}, noon, DefaultLimits()))
	must(h.Complete(actorOf(recipient), new(1), noon.Add(50*time.Minute)))
	if !h.LeaseExpiresAt.IsZero() || h.LeaseLapsed(noon.Add(48*time.Hour)) || h.At(noon.Add(48*time.Hour)).State != Verifying {
		t.Fatalf("the lease goes on while the work is judged: %v", h.LeaseExpiresAt)
	}
	must(h.Verify(actorOf(creator), agentOf(creator), false, "not yet", new(1), noon.Add(48*time.Hour)))
	if h.State != Claimed || h.Epoch != 2 || h.Holder != recipient || !h.LeaseExpiresAt.Equal(noon.Add(49*time.Hour)) || h.Verdict.Pass {
		t.Fatalf("sent back: %+v", h)
	}
	_, err := h.Complete(actorOf(recipient), new(1), noon.Add(48*time.Hour))
	wantCode(t, err, CodeStaleClaimEpoch, "1 came, the current one is 2")
	must(h.Complete(actorOf(recipient), new(2), noon.Add(48*time.Hour)))
	must(h.Verify(actorOf(creator), agentOf(creator), true, "", new(2), noon.Add(48*time.Hour)))
	if h.State != Completed || h.Epoch != 2 || h.Verdict.VerifiedBy != creator {
		t.Fatalf("passed: %+v", h)
	}
}

func TestARefusedClaimSaysWhatIsLeftToDo(t *testing.T) {
	t.Parallel()
	forAll := func(h *Handoff) {
		h.Door, h.Recipient, h.Target = DoorPool, "", &Target{Strategy: StrategyBroadcast}
	}
	firstMe := func(h *Handoff) {
		h.Door, h.RecipientDeclined = DoorPool, true
		h.Target = &Target{Strategy: StrategyDirectWithFallback, AgentID: recipient, Fallback: &Target{Strategy: StrategyBroadcast}}
	}
	for name, test := range map[string]struct {
		h          *Handoff
		who, wants string
	}{
		"who offered it":             {sent(forAll), creator, "handoff_cancel takes it back"},
		"who refused it":             {sent(firstMe), recipient, "you refused this handoff"},
		"whom it does not address":   {sent(), stranger, "not addressed to you"},
		"while another must be done": {sent(func(h *Handoff) { h.DepsPending = 1 }), recipient, "Wait until"},
		"after another has failed":   {sent(func(h *Handoff) { h.DepsPending, h.DepsFailed = 1, 1 }), recipient, "Leave it: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := test.h.Claim(actorOf(test.who), ClaimInput{Agent: agentOf(test.who)}, noon, DefaultLimits())
			var refusal *Error
			if !errors.As(err, &refusal) || !strings.Contains(refusal.Message+". "+refusal.Hint, test.wants) {
				t.Fatalf("got %v, want %q", err, test.wants)
			}
		})
	}
}
