package handoff

import (
	"strings"
	"testing"
	"time"
)

// onlookers are those whose sight is tested, in the order of the tables' columns: who made it, the
// operator, who holds it, who held it before, one that may claim it, one that offers "review", one that
// is called the verifier, and a stranger; then one that offers everything but may not use the
// workspace, and one that was turned off.
var onlookers = []string{creator, operator, coder, both, recipient, reviewer, verifier, stranger, "outside", "off"}

func onlooker(id string) (Actor, *Agent) {
	switch id {
	case "outside":
		return actorOf(id), &Agent{ID: id, Handle: id + "@acme", Capabilities: []string{"code", "review"}, Outside: true}
	case "off":
		return actorOf(id), &Agent{ID: id, Handle: id + "@acme", Capabilities: []string{"code", "review"}, Disabled: true}
	}
	return actorOf(id), agentOf(id)
}

// sight is what each onlooker sees of h: it takes part (t), reads (r), knows that there is something
// (k), or finds nothing (-).
func sight(h *Handoff) string {
	var columns []string
	for _, id := range onlookers {
		actor, a := onlooker(id)
		takesPart, reads, knows := h.Participant(actor, a), h.ReadableBy(actor, a, noon), h.VisibleTo(actor, a, noon)
		switch {
		case takesPart && reads && knows:
			columns = append(columns, "t")
		case reads && knows:
			columns = append(columns, "r")
		case knows && !takesPart:
			columns = append(columns, "k")
		case !takesPart:
			columns = append(columns, "-")
		default:
			columns = append(columns, "?")
		}
	}
	return strings.Join(columns, " ")
}

// Ways that a handoff can stand. All but a new one were held by both before.
var stands = map[string]func(*Handoff){
	"new":       func(*Handoff) {},
	"open":      past(both),
	"claimed":   func(h *Handoff) { in(Claimed, coder, 2)(h); past(both)(h) },
	"verifying": func(h *Handoff) { in(Verifying, coder, 2)(h); past(both)(h) },
	"completed": func(h *Handoff) { in(Completed, coder, 2)(h); past(both)(h); h.EndedBy = coder },
	"rejected":  func(h *Handoff) { in(Rejected, coder, 2)(h); past(both)(h); h.EndedBy = coder },
	"cancelled": func(h *Handoff) { in(Cancelled, "", 1)(h); past(both)(h); h.EndedBy = creator },
	"expired":   func(h *Handoff) { in(Expired, "", 1)(h); past(both)(h); h.EndedBy = System().ID },
	"lapsed":    func(h *Handoff) { in(Claimed, both, 1)(h); h.LeaseLength, h.LeaseExpiresAt = time.Minute, noon },
	"overdue":   func(h *Handoff) { past(both)(h); h.ExpiresAt = noon },
}

func TestWhoSeesAnOpenHandoff(t *testing.T) {
	t.Parallel()
	byAgent, byCapability, byCreator := VerifyBy{Kind: VerifyByAgent, AgentID: verifier}, VerifyBy{Kind: VerifyByCapability, Capability: "review"}, VerifyBy{Kind: VerifyByCreator}
	// The columns: creator, operator, coder, both, recipient, reviewer, verifier, stranger, outside, off.
	for _, test := range []struct {
		visibility Visibility
		by         VerifyBy
		rows       map[string]string
	}{
		{Private, byCapability, map[string]string{
			"new":       "t t r r r - - - - -",
			"open":      "t t r r r - - - - -",
			"claimed":   "t t t k - - - - - -",
			"verifying": "t t t t - t - - - -", // it offers the capability and did not deliver this
			"completed": "t t t t - t - - - -",
			"rejected":  "t t t k - - - - - -",
			"cancelled": "t t - k - - - - - -",
			"expired":   "t t - k - - - - - -",
			"lapsed":    "t t r t r - - - - -", // the hub writes the lapse down before anybody acts
			"overdue":   "t t - k - - - - - -",
		}},
		{Private, byAgent, map[string]string{
			"new":       "t t r r r - r - - -",
			"open":      "t t r r r - r - - -",
			"claimed":   "t t t k - - r - - -",
			"verifying": "t t t k - - t - - -",
			"completed": "t t t k - - t - - -",
			"rejected":  "t t t k - - r - - -",
			"cancelled": "t t - k - - r - - -",
			"expired":   "t t - k - - r - - -",
		}},
		{Private, byCreator, map[string]string{
			"new":       "t t r r r - - - - -",
			"claimed":   "t t t k - - - - - -",
			"verifying": "t t t k - - - - - -",
			"completed": "t t t k - - - - - -",
			"cancelled": "t t - k - - - - - -",
		}},
		{Eligible, byCapability, map[string]string{
			"new":       "t t r r r - - - - -",
			"open":      "t t r r r - - - - -",
			"claimed":   "t t t r r - - - - -",
			"verifying": "t t t t r t - - - -",
			"completed": "t t t t r t - - - -",
			"rejected":  "t t t r r - - - - -",
			"cancelled": "t t r r r - - - - -",
			"expired":   "t t r r r - - - - -",
		}},
		{Public, byCapability, map[string]string{
			"new":       "t t r r r r r r - -",
			"open":      "t t r r r r r r - -",
			"claimed":   "t t t r r r r r - -",
			"verifying": "t t t t r t r r - -",
			"completed": "t t t t r t r r - -",
			"rejected":  "t t t r r r r r - -",
			"cancelled": "t t r r r r r r - -",
			"expired":   "t t r r r r r r - -",
		}},
	} {
		for name, want := range test.rows {
			h := pooled(t, forCoders, stands[name], verifiedBy(test.by), func(h *Handoff) { h.Visibility = test.visibility })
			if got := sight(h); got != want {
				t.Errorf("%s, verified by %s, %s:\n%s, want\n%s", test.visibility, test.by.Kind, name, got, want)
			}
		}
	}
}

func TestWhoSeesAHandoffThatNamesItsRecipient(t *testing.T) {
	t.Parallel()
	named := func(h *Handoff) { h.Recipient = recipient }
	const direct = `{"strategy":"direct","agent_id":"recipient@acme"}`
	cancelled := func(h *Handoff) { in(Cancelled, "", 0)(h); h.EndedBy = creator }
	for _, test := range []struct {
		name, target string
		visibility   Visibility
		change       func(*Handoff)
		want         string
	}{
		{"direct, open", direct, Private, func(*Handoff) {}, "t t - - t - - - - -"},
		{"direct, held by it", direct, Private, in(Claimed, recipient, 1), "t t - - t - - - - -"},
		{"direct, given to another", direct, Private, in(Claimed, coder, 1), "t t t - k - - - - -"},
		{"direct, given to another, for all who match", direct, Eligible, in(Claimed, coder, 1), "t t t - r - - - - -"},
		{"direct, completed by another", direct, Private, func(h *Handoff) { in(Completed, coder, 1)(h); h.EndedBy = coder }, "t t t - k - - - - -"},
		{"direct, cancelled", direct, Private, cancelled, "t t - - t - - - - -"},
		{"direct, declined", direct, Private, func(h *Handoff) { in(Rejected, "", 0)(h); h.EndedBy = recipient }, "t t - - t - - - - -"},
		{"one first", forOneFirst, Private, func(*Handoff) {}, "t t - - t - - - - -"},
		{"one first, for all who match", forOneFirst, Eligible, func(*Handoff) {}, "t t r r t - - - - -"},
		{"one first, the pool is open", forOneFirst, Private, opened, "t t r r t - - - - -"},
		{"one first, which declined", forOneFirst, Private, declined, "t t r r k - - - - -"},
		{"one first, which declined, cancelled", forOneFirst, Private, func(h *Handoff) { declined(h); cancelled(h) }, "t t - - k - - - - -"},
		{"one first, which declined, for all", forOneFirst, Public, declined, "t t r r r r r r - -"},
		{"one first, not registered", forOneFirst, Private, func(h *Handoff) { h.Recipient = "" }, "t t - - t - - - - -"},
	} {
		if got := sight(pooled(t, test.target, named, func(h *Handoff) { h.Visibility = test.visibility }, test.change)); got != test.want {
			t.Errorf("%s:\n%s, want\n%s", test.name, got, test.want)
		}
	}
	// At the team door the recipient keeps its part, whoever else holds it; and nobody else has one.
	for name, change := range map[string]func(*Handoff){"open": func(*Handoff) {}, "given away": in(Claimed, coder, 1), "ended": in(Completed, coder, 1)} {
		want := map[bool]string{true: "t t - - t - - - - -", false: "t t t - t - - - - -"}[name == "open"]
		if got := sight(sent(change, func(h *Handoff) { h.Visibility = Public })); got != want {
			t.Errorf("of a team, %s:\n%s, want\n%s", name, got, want)
		}
	}
}

// shownTo lists the onlookers to whom something is shown.
func shownTo(shown func(Actor, *Agent) bool) string {
	var list []string
	for _, id := range onlookers {
		if shown(onlooker(id)) {
			list = append(list, id)
		}
	}
	return strings.Join(list, " ")
}

func TestThePayloadIsForTheCurrentOrTheCompletingClaimantAlone(t *testing.T) {
	t.Parallel()
	for name, change := range stands {
		want := map[string]string{"claimed": coder, "verifying": coder, "completed": coder}[name]
		for _, visibility := range []Visibility{Public, Eligible, Private} {
			h := pooled(t, forCoders, change, verifiedBy(VerifyBy{Kind: VerifyByAgent, AgentID: verifier}), func(h *Handoff) { h.Visibility = visibility })
			now := h.At(noon)
			if got := shownTo(func(actor Actor, _ *Agent) bool { return now.PayloadFor(actor.ID) }); got != want {
				t.Errorf("%s, %s: it is shown to %q, want %q", visibility, name, got, want)
			}
		}
	}
	if pooled(t, forCoders).PayloadFor("") {
		t.Error("it is shown to nobody in particular")
	}
}

func TestTheResultIsForThoseWhoAskedForItMadeItAndJudgeIt(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		by   *VerifyBy
		rows map[string]string
	}{
		{nil, map[string]string{
			"new": "creator operator", "claimed": "creator operator coder", "completed": "creator operator coder", "rejected": "creator operator coder", "cancelled": "creator operator", "lapsed": "creator operator",
		}},
		{&VerifyBy{Kind: VerifyByAgent, AgentID: verifier}, map[string]string{
			"new": "creator operator verifier", "claimed": "creator operator coder verifier", "verifying": "creator operator coder verifier", "completed": "creator operator coder verifier", "cancelled": "creator operator verifier",
		}},
		// Who else offers the capability judges too, but not from outside, and not once it was turned off.
		{&VerifyBy{Kind: VerifyByCapability, Capability: "review"}, map[string]string{
			"new": "creator operator", "claimed": "creator operator coder", "verifying": "creator operator coder both reviewer", "completed": "creator operator coder both reviewer", "rejected": "creator operator coder", "expired": "creator operator",
		}},
	} {
		for name, want := range test.rows {
			h := pooled(t, forCoders, stands[name], func(h *Handoff) { h.VerifyBy, h.Visibility = test.by, Public })
			now := h.At(noon)
			if got := shownTo(now.ResultFor); got != want {
				t.Errorf("verified by %+v, %s: %q, want %q", test.by, name, got, want)
			}
		}
	}
	direct := pooled(t, `{"strategy":"direct","agent_id":"recipient@acme"}`, func(h *Handoff) { h.Recipient = recipient; in(Rejected, "", 0)(h); h.EndedBy = recipient })
	if got := shownTo(direct.ResultFor); got != "creator operator" { // another may have delivered before
		t.Errorf("the result is shown to %q", got)
	}
}

func TestWhoCouldHaveClaimedItIsToldThatItCameTooLate(t *testing.T) {
	t.Parallel()
	lost := func(h *Handoff) string { return shownTo(func(_ Actor, a *Agent) bool { return h.Lost(a, noon) }) }
	for name, want := range map[string]string{"new": "", "claimed": "coder both recipient", "verifying": "coder both recipient", "completed": "", "rejected": "", "cancelled": "", "expired": ""} {
		if got := lost(pooled(t, forCoders, stands[name])); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for name, test := range map[string]struct {
		change func(*Handoff)
		want   string
	}{
		"by the one that was first":     {func(*Handoff) {}, "recipient"},
		"by another, the pool was open": {opened, "coder both recipient"},
		"by another, which declined":    {declined, "coder both"},
	} {
		if got := lost(pooled(t, forOneFirst, in(Claimed, stranger, 1), test.change)); got != test.want {
			t.Errorf("lost to the first: %s: %q, want %q", name, got, test.want)
		}
	}
}

func TestWorkThatNobodyCouldVerifyIsNotClaimed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		by       *VerifyBy
		claimant string
		in       ClaimInput
		want     bool
	}{
		{"no verifier", nil, coder, ClaimInput{VerifierDisabled: true}, false},
		{"the creator", &VerifyBy{Kind: VerifyByCreator}, coder, ClaimInput{}, false},
		{"the creator claims", &VerifyBy{Kind: VerifyByCreator}, creator, ClaimInput{OtherVerifiers: 3}, true},
		{"the creator was turned off", &VerifyBy{Kind: VerifyByCreator}, coder, ClaimInput{VerifierDisabled: true, OtherVerifiers: 3}, true},
		{"an agent", &VerifyBy{Kind: VerifyByAgent, AgentID: verifier}, coder, ClaimInput{}, false},
		{"an agent, and the creator claims", &VerifyBy{Kind: VerifyByAgent, AgentID: verifier}, creator, ClaimInput{}, false},
		{"the agent claims", &VerifyBy{Kind: VerifyByAgent, AgentID: verifier}, verifier, ClaimInput{OtherVerifiers: 3}, true},
		{"the agent was turned off", &VerifyBy{Kind: VerifyByAgent, AgentID: verifier}, coder, ClaimInput{VerifierDisabled: true}, true},
		{"one more offers it", &VerifyBy{Kind: VerifyByCapability, Capability: "review"}, both, ClaimInput{OtherVerifiers: 1}, false},
		{"nobody else offers it", &VerifyBy{Kind: VerifyByCapability, Capability: "review"}, both, ClaimInput{}, true},
		{"others offer it, and someone was turned off", &VerifyBy{Kind: VerifyByCapability, Capability: "review"}, both, ClaimInput{OtherVerifiers: 1, VerifierDisabled: true}, false},
	} {
		h := pooled(t, `{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"creator@acme"},{"strategy":"direct","agent_id":"verifier@acme"},{"strategy":"capability","capability":"code"}]}`, func(h *Handoff) { h.VerifyBy = test.by })
		if got := h.Unverifiable(test.claimant, test.in); got != test.want {
			t.Errorf("%s: unverifiable %v", test.name, got)
		}
		test.in.Agent = agentOf(test.claimant)
		_, err := h.Claim(actorOf(test.claimant), test.in, noon, DefaultLimits())
		if want := map[bool]Code{true: CodeNotEligibleToClaim}[test.want]; CodeOf(err) != want {
			t.Errorf("%s: claiming gives %v", test.name, err)
		}
	}
}
