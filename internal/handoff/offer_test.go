package handoff

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// pooled is an open handoff of the pool for whom the target lets, made at noon.
func pooled(t *testing.T, target string, change ...func(*Handoff)) *Handoff {
	t.Helper()
	h := &Handoff{ID: "h", Door: DoorPool, State: Open, Creator: creator, Target: mustTarget(t, target), Visibility: Private, CreatedAt: noon, UpdatedAt: noon}
	for _, c := range change {
		c(h)
	}
	opened := h.FallbackOpened
	h.Begin(noon)
	h.FallbackOpened = opened
	return h
}

const (
	forCoders   = `{"strategy":"capability","capability":"code"}`
	forOneFirst = `{"strategy":"direct_with_fallback","agent_id":"Recipient@Acme","fallback_after_seconds":600,"fallback":{"strategy":"capability","capability":"code"}}`
)

func blockedBy(n int) func(*Handoff) { return func(h *Handoff) { h.DepsPending = n } }
func declined(h *Handoff)            { h.Recipient, h.RecipientDeclined = recipient, true }
func opened(h *Handoff)              { h.FallbackOpened = true }

// listed renders offers: the key, the rank where it is not 0, and the minutes after noon where it is
// later.
func listed(h *Handoff) string {
	var list []string
	for _, o := range h.Offers() {
		text := o.Key
		if o.Rank != 0 {
			text += fmt.Sprintf(" %+d", o.Rank)
		}
		if minutes := o.Position.Sub(noon).Minutes(); minutes != 0 {
			text += fmt.Sprintf(" %gm", minutes)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

func TestWhatWaitsForATakerIsOfferedUnderTheKeysOfItsTarget(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, target string
		change       func(*Handoff)
		want         string
	}{
		{"direct", `{"strategy":"direct","agent_id":"Frank@Acme"}`, nil, "agent:frank@acme"},
		{"capability", `{"strategy":"capability","capability":["b","a"]}`, nil, "cap:a, cap:b"},
		{"role", `{"strategy":"role","role":"R"}`, nil, "role:R"},
		{"tag", `{"strategy":"tag","selector":{"team":["x","y"],"area":["eu"]}}`, nil, "tag:area=eu"},
		{"exclusion", `{"strategy":"tag","selector":[{"key":"team","operator":"NotIn","values":["x"]}]}`, nil, "scan"},
		{"broadcast", `{"strategy":"broadcast"}`, nil, "any"},
		{"mixed", `{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"direct","agent_id":"a"},{"strategy":"role","role":"r"}]}`, nil, "agent:a, role:r"},

		{"one first", forOneFirst, nil, "agent:recipient@acme, later:cap:code 10m"},
		{"one first, whose wait is written down as over", forOneFirst, opened, "agent:recipient@acme, cap:code"},
		{"one first, who declined", forOneFirst, declined, "cap:code"},
		{"one first, who declined after the wait", forOneFirst, func(h *Handoff) { opened(h); declined(h) }, "cap:code"},
		{
			"one first and also later", `{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":60,"fallback":{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"A"},{"strategy":"direct","agent_id":"b"}]}}`,
			nil, "agent:a, later:agent:b 1m",
		},
		{"one first, then anybody", `{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":60}`, nil, "agent:a, later:any 1m"},
		{"one first, high", forOneFirst, func(h *Handoff) { h.Priority = 1 }, "agent:recipient@acme -1, later:cap:code 10m"},

		{"high", forCoders, func(h *Handoff) { h.Priority = 1 }, "cap:code -1"},
		{"low", forCoders, func(h *Handoff) { h.Priority = -1 }, "cap:code +1"},
		{"changed since", forCoders, func(h *Handoff) { h.UpdatedAt, h.Epoch = noon.Add(time.Hour), 3 }, "cap:code"},
		{"past a deadline that is not written down", forCoders, func(h *Handoff) { h.ExpiresAt = noon.Add(-time.Hour) }, "cap:code"},
		{"blocked", forCoders, blockedBy(1), ""},
		{"blocked for good", forCoders, func(h *Handoff) { h.DepsFailed = 1 }, ""},
		{"blocked, one first", forOneFirst, blockedBy(1), ""},
		{"of a team", forCoders, func(h *Handoff) { h.Door = DoorTeam }, ""},
		{"without a target", forCoders, func(h *Handoff) { h.Target = nil }, ""},
	}
	for _, test := range tests {
		change := test.change
		if change == nil {
			change = func(*Handoff) {}
		}
		if got := listed(pooled(t, test.target, change)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

func TestDeliveredWorkIsOfferedToItsVerifierAndNothingElseToAnybody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by   *VerifyBy
		want string
	}{
		"nobody named": {nil, "verify:agent:creator -1"},
		"creator":      {&VerifyBy{Kind: VerifyByCreator}, "verify:agent:creator -1"},
		"agent":        {&VerifyBy{Kind: VerifyByAgent, AgentID: verifier}, "verify:agent:verifier -1"},
		"capability":   {&VerifyBy{Kind: VerifyByCapability, Capability: "Review"}, "verify:cap:Review -1"},
	} {
		for _, target := range []string{forCoders, forOneFirst} {
			for _, s := range States() {
				h := pooled(t, target, in(s, coder, 1), func(h *Handoff) { h.VerifyBy, h.Priority = test.by, 1 })
				want := ""
				switch s {
				case Open:
					continue
				case Verifying:
					want = test.want
				}
				if got := listed(h); got != want {
					t.Errorf("verified by %s and %s: %q, want %q", name, s, got, want)
				}
			}
		}
	}
	keys := VerifierKeys(&Agent{ID: verifier, Handle: "v@acme", Role: "r", Capabilities: []string{"Review", "code"}, Tags: map[string][]string{"team": {"x"}}})
	if !slices.Equal(keys, []string{"verify:agent:verifier", "verify:cap:Review", "verify:cap:code"}) {
		t.Errorf("a verifier looks under %q", keys)
	}
}
