package hub_test

import (
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestTheWorkIsDeliveredBeforeItsLeaseLapsesOrLostAndNeverBoth(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		s.must(s.claimFor(s.bob, id, 10))
		s.Clock.Advance(9 * time.Second)
		other := s.claim(s.cid, id)
		if s.round%8 < 4 {
			other = sweep
		}
		completed, taken := s.meet(s.complete(s.bob, id, 1), other, func() { s.Clock.Advance(time.Second) })
		if s.kind != loose && s.late() != (completed.err != nil) {
			s.errorf("way %d: the delivery was answered %v", s.kind, completed.err)
		}
		row := s.row(id)
		if completed.err == nil {
			s.want("the other, after the delivery", taken, "", handoff.CodeThreadTerminal, handoff.CodeAlreadyClaimed)
			if row.State != handoff.Completed || row.Epoch != 1 || s.happened(id, handoff.EventLeaseLapsed) != 0 {
				s.errorf("delivered, and the row is %s at epoch %d", row.State, row.Epoch)
			}
			return
		}
		s.want("a delivery after the lapse", completed, handoff.CodeLeaseLost)
		s.want("the other", taken, "", handoff.CodeAlreadyClaimed)
		if now := row.At(s.Clock.Now()); now.State == handoff.Completed || now.Holder == s.bob.Actor.ID || s.happened(id, handoff.EventCompleted) != 0 {
			s.errorf("the lease was lost, and the row is %s by %s", now.State, now.Holder)
		}
	})
}

func TestDeliveredWorkIsVerifiedHoweverLateAndItsLeaseDoesNotLapse(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{Criteria: criteria})
		s.must(s.claimFor(s.bob, id, 10))
		s.must(s.complete(s.bob, id, 1))
		verdict := []string{"pass", "fail"}[s.round/4%2]
		other := verb(sweep)
		if s.round%16 >= 8 {
			other = s.claim(s.cid, id)
		}
		judged, _ := s.meet(s.verify(s.anna, id, verdict, 1), other, func() { s.Clock.Advance(11 * time.Second) })
		s.want("the verdict", judged, "")
		row := s.row(id)
		switch {
		case s.happened(id, handoff.EventLeaseLapsed) > 0 && (verdict == "pass" || s.kind != loose && s.kind != firstHolds):
			s.errorf("the lease lapsed while the work waited for its verdict")
		case verdict == "pass" && row.State != handoff.Completed:
			s.errorf("passed, and it is %s", row.State)
		case verdict == "fail" && s.happened(id, handoff.EventVerificationFailed) != 1:
			s.errorf("sent back, and it is %s at epoch %d", row.State, row.Epoch)
		}
	})
}

func TestAVerdictOrAReassignmentAndNotOneUponTheOther(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.delivered()
		verdict := []string{"pass", "fail"}[s.round/4%2]
		judged, reassigned := s.meet(s.verify(s.anna, id, verdict, 1), s.reassign(id, s.cid), nil)
		row := s.row(id)
		switch {
		case judged.err != nil:
			s.want("a verdict on what was reassigned", judged, handoff.CodeInvalidTransition)
			s.want("the reassignment", reassigned, "")
			if row.Holder != s.cid.Actor.ID || row.Epoch != 2 {
				s.errorf("held by %s at epoch %d", row.Holder, row.Epoch)
			}
		case verdict == "pass":
			s.want("a reassignment of what passed", reassigned, handoff.CodeThreadTerminal)
			if row.State != handoff.Completed {
				s.errorf("passed, and it is %s", row.State)
			}
		default:
			s.want("a reassignment of what was sent back", reassigned, "")
			if row.Holder != s.cid.Actor.ID || row.Epoch != 3 {
				s.errorf("held by %s at epoch %d", row.Holder, row.Epoch)
			}
		}
	})
}

func TestAVerdictOrTheOperatorsCancellation(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.delivered()
		judged, cancelled := s.meet(s.verify(s.anna, id, "pass", 1), s.operatorCancels(id), nil)
		if judged.err == nil {
			s.want("a cancellation of what passed", cancelled, handoff.CodeThreadTerminal)
		} else {
			s.want("a verdict on what was cancelled", judged, handoff.CodeThreadTerminal)
			s.want("the cancellation", cancelled, "")
		}
		s.eitherOr(id, handoff.EventCompleted, handoff.EventCancelled)
	})
}

func TestOfTwoVerdictsAtOnceOneCounts(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.delivered()
		passed, failed := s.meet(s.verify(s.anna, id, "pass", 1), s.verify(s.anna, id, "fail", 1), nil)
		if passed.err == nil {
			s.want("a fail after the pass", failed, handoff.CodeThreadTerminal)
		} else {
			s.want("a pass after the fail", passed, handoff.CodeInvalidTransition)
			s.want("the fail", failed, "")
		}
		s.eitherOr(id, handoff.EventCompleted, handoff.EventVerificationFailed)
	})
}

// The executor is turned off: what it holds or is given back is released, what it has delivered stays delivered.
func TestAVerdictMeetsTheDisablingOfTheExecutor(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.delivered()
		verdict := []string{"pass", "fail"}[s.round/4%2]
		judged, disabled := s.meet(s.verify(s.anna, id, verdict, 1), s.disables(s.bob, true), nil)
		s.want("the verdict", judged, "")
		s.want("the disabling", disabled, "")
		switch row := s.row(id); {
		case verdict == "pass" && row.State != handoff.Completed:
			s.errorf("passed, and it is %s", row.State)
		case verdict == "fail" && (row.State != handoff.Open || row.Holder != ""):
			s.errorf("sent back, and it is %s by %q, who is turned off", row.State, row.Holder)
		}
		s.must(s.disables(s.bob, false))
	})
}

func TestAnAgentThatIsDisabledDeliversOrLosesItsClaim(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		s.must(s.claim(s.bob, id))
		completed, disabled := s.meet(s.complete(s.bob, id, 1), s.disables(s.bob, true), nil)
		s.want("the disabling", disabled, "")
		s.want("the delivery", completed, "", handoff.CodeLeaseLost)
		s.eitherOr(id, handoff.EventCompleted, handoff.EventReleased)
		s.must(s.disables(s.bob, false))
	})
}

func TestAnAgentThatIsDisabledKeepsNoClaim(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		by := s.claim(s.bob, id)
		switch s.round / 4 % 3 {
		case 1:
			by = s.next(s.bob)
		case 2:
			by = s.reassign(id, s.bob)
		}
		_, disabled := s.meet(by, s.disables(s.bob, true), nil)
		s.want("the disabling", disabled, "")
		if row := s.row(id); row.Holder != "" {
			s.errorf("way %d: %s by a disabled agent", s.kind, row.State)
		}
		s.must(s.disables(s.bob, false))
	})
}

// The same verdict again is a success only while what it made still stands.
func TestAVerdictIsNotRepeatedOnTheNextClaim(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob, cid := f.Agent("anna@acme"), able(f, "bob@acme"), able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{Criteria: criteria}).HandoffID
		claimNext(f, bob)
		_, err := f.Hub.Deliver(bg, bob, hub.DeliverInput{HoldInput: holding(bob, id)})
		noError(t, err)
		fail := hub.VerifyInput{HoldInput: holding(anna, id), Verdict: "fail", Feedback: "not green"}
		for range 2 {
			_, err = f.Hub.Verify(bg, anna, fail)
			noError(t, err)
		}
		release := holding(bob, id)
		release.ClaimEpoch = new(2)
		_, err = f.Hub.Release(bg, bob, hub.ReleaseInput{HoldInput: release})
		noError(t, err)
		claimNext(f, cid)
		for _, epoch := range []*int{nil, new(1), new(2)} {
			fail.ClaimEpoch = epoch
			_, err = f.Hub.Verify(bg, anna, fail)
			hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		}
	})
}
