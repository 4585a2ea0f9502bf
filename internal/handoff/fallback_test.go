package handoff

import (
	"testing"
	"time"
)

// step is something that happens some minutes after noon, and how the handoff stands then: its state,
// the minute at which its pool opens (-1 = no wait runs), and whether who is first and the pool may
// claim.
type step struct {
	minute int
	do     func(h *Handoff, now time.Time) (EventType, error)
	state  State
	opens  int
	first  bool
	pool   bool
}

func TestTheWaitForTheFallbackPoolBeginsAnewWheneverTheHandoffIsOpenAgain(t *testing.T) {
	t.Parallel()
	claim := func(who string, lease time.Duration) func(*Handoff, time.Time) (EventType, error) {
		return func(h *Handoff, now time.Time) (EventType, error) {
			return h.Claim(actorOf(who), ClaimInput{Agent: agentOf(who), Lease: lease, OtherVerifiers: 1}, now, DefaultLimits())
		}
	}
	byClock := func(f func(*Handoff, time.Time) (EventType, bool)) func(*Handoff, time.Time) (EventType, error) {
		return func(h *Handoff, now time.Time) (EventType, error) {
			event, did := f(h, now)
			if did == (event == Repeated) {
				t.Errorf("%q and %v", event, did)
			}
			return event, nil
		}
	}
	look := byClock(func(*Handoff, time.Time) (EventType, bool) { return Repeated, false })
	lapse, open := byClock((*Handoff).Lapse), byClock((*Handoff).OpenFallback)
	release := func(h *Handoff, now time.Time) (EventType, error) { return h.Release(actorOf(h.Holder), &h.Epoch, now) }
	decline := func(h *Handoff, now time.Time) (EventType, error) {
		return h.Reject(actorOf(recipient), "no", nil, now)
	}
	complete := func(h *Handoff, now time.Time) (EventType, error) {
		return h.Complete(actorOf(h.Holder), &h.Epoch, now)
	}
	fail := func(h *Handoff, now time.Time) (EventType, error) {
		return h.Verify(actorOf(creator), agentOf(creator), false, "", &h.Epoch, now)
	}
	dependency := func(s State) func(*Handoff, time.Time) (EventType, error) {
		return func(h *Handoff, now time.Time) (EventType, error) { return h.DependencyEnded(s, now), nil }
	}
	reassign := func(h *Handoff, now time.Time) (EventType, error) {
		return h.Reassign(Operator(), ReassignInput{To: agentOf(both), Reason: "so", OtherVerifiers: 1}, now)
	}
	disable := byClock(func(h *Handoff, now time.Time) (EventType, bool) { return h.ReleaseDisabled(now) })
	tests := []struct {
		name   string
		change func(*Handoff)
		steps  []step
	}{
		{"nobody takes it", nil, []step{
			{0, look, Open, 10, true, false}, {9, open, Open, 10, true, false}, {10, look, Open, 10, true, true}, {10, open, Open, 10, true, true}, {11, open, Open, 10, true, true},
		}},
		{"held for longer than the wait", nil, []step{
			{1, claim(recipient, 0), Claimed, 10, true, false}, {30, look, Claimed, 10, true, false},
		}},
		{"released", nil, []step{
			{1, claim(recipient, time.Hour), Claimed, 10, true, false}, {3, release, Open, 13, true, false}, {12, open, Open, 13, true, false}, {13, look, Open, 13, true, true},
		}},
		{"released by the pool", nil, []step{
			{10, open, Open, 10, true, true}, {12, claim(coder, time.Hour), Claimed, 10, true, true}, {20, release, Open, 30, true, false}, {30, open, Open, 30, true, true},
		}},
		{"lapsed, which is written down later", nil, []step{
			{10, claim(coder, time.Minute), Claimed, 10, true, true}, {15, lapse, Open, 21, true, false}, {21, look, Open, 21, true, true},
		}},
		{"lapsed so long ago that the wait is over too", nil, []step{
			{1, claim(recipient, time.Minute), Claimed, 10, true, false}, {60, lapse, Open, 12, true, true}, {60, open, Open, 12, true, true},
		}},
		{"its holder was disabled", nil, []step{
			{11, claim(both, 0), Claimed, 10, true, true}, {12, disable, Open, 22, true, false},
		}},
		{"declined", nil, []step{
			{2, decline, Open, -1, false, true}, {3, claim(coder, time.Minute), Claimed, -1, false, true}, {8, lapse, Open, -1, false, true}, {20, open, Open, -1, false, true},
		}},
		{"sent back and released", func(h *Handoff) { verifiedBy(VerifyBy{Kind: VerifyByCreator})(h) }, []step{
			{1, claim(recipient, 0), Claimed, 10, true, false}, {2, complete, Verifying, 10, true, false}, {40, fail, Claimed, 10, true, false}, {41, release, Open, 51, true, false},
		}},
		{"unblocked", blockedBy(2), []step{
			{0, look, Open, -1, true, false}, {20, open, Open, -1, true, false}, {30, dependency(Completed), Open, -1, true, false}, {40, dependency(Completed), Open, 50, true, false}, {50, open, Open, 50, true, true},
		}},
		{"blocked for good", blockedBy(2), []step{
			{30, dependency(Rejected), Open, -1, true, false}, {40, dependency(Completed), Open, -1, true, false}, {99, open, Open, -1, true, false},
		}},
		{"given away while it was blocked, and back", blockedBy(1), []step{
			{5, reassign, Claimed, -1, true, false}, {6, release, Open, -1, true, false}, {7, reassign, Claimed, -1, true, false}, {8, dependency(Completed), Claimed, 18, true, false}, {9, release, Open, 19, true, false},
		}},
	}
	for _, test := range tests {
		change := test.change
		if change == nil {
			change = func(*Handoff) {}
		}
		h := pooled(t, forOneFirst, change)
		for i, s := range test.steps {
			now := noon.Add(time.Duration(s.minute) * time.Minute)
			read := h.At(now)
			event, err := s.do(h, now)
			if err != nil {
				t.Fatalf("%s, step %d: %v", test.name, i, err)
			}
			opens := -1
			if !h.FallbackAt.IsZero() {
				opens = int(h.FallbackAt.Sub(noon).Minutes())
			}
			first, pool := h.MayClaim(agentOf(recipient), now), h.MayClaim(agentOf(coder), now)
			if h.State != s.state || opens != s.opens || first != s.first || pool != s.pool {
				t.Errorf("%s, step %d, minute %d: %s, opens at %d, first %v, pool %v; want %+v", test.name, i, s.minute, h.State, opens, first, pool, s)
			}
			if event == EventLeaseLapsed && (!read.FallbackAt.Equal(h.FallbackAt) || read.FallbackOpened != h.FallbackOpened || read.State != Open) {
				t.Errorf("%s, step %d: before it was written down it was read as %s, opening at %v", test.name, i, read.State, read.FallbackAt)
			}
		}
	}
}
