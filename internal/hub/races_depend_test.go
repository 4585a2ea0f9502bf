package hub_test

import (
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// held makes handoffs that bob holds.
func (s *stage) held(n int) (list []string) {
	s.t.Helper()
	for range n {
		id := s.offer(hub.OpenInput{})
		s.must(s.claim(s.bob, id))
		list = append(list, id)
	}
	return list
}

func TestTwoDependenciesThatAreCompletedAtOnceUnblockOnce(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		on := s.held(2)
		waits := []string{s.offer(hub.OpenInput{DependsOn: on}), s.offer(hub.OpenInput{DependsOn: []string{on[1], on[0]}})}
		a, b := s.meet(s.complete(s.bob, on[0], 1), s.complete(s.bob, on[1], 1), nil)
		s.want("one delivery", a, "")
		s.want("the other", b, "")
		for _, id := range waits {
			if n := s.happened(id, handoff.EventUnblocked); n != 1 {
				s.errorf("unblocked %d times", n)
			}
			if got := s.must(s.next(s.cid)); got == nil || got.Handoff.ID != id {
				s.errorf("still blocked: %+v", got)
			}
		}
	})
}

func TestOneDependencyIsCompletedWhileAnotherIsRejected(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		on := s.held(2)
		id := s.offer(hub.OpenInput{DependsOn: on})
		a, b := s.meet(s.complete(s.bob, on[0], 1), s.reject(s.bob, on[1], 1), nil)
		s.want("the delivery", a, "")
		s.want("the rejection", b, "")
		if row := s.row(id); row.State != handoff.Open || row.DepsPending != 0 || row.DepsFailed != 1 || s.happened(id, handoff.EventDependencyFailed) != 1 || s.happened(id, handoff.EventUnblocked) != 0 {
			s.errorf("%+v", row)
		}
	})
}

func TestADependencyEndsWhileAHandoffThatWaitsForItIsMade(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		on := s.held(1)
		fails := s.round%8 < 4
		end := s.complete(s.bob, on[0], 1)
		if fails {
			end = s.reject(s.bob, on[0], 1)
		}
		made, ended := s.meet(s.offerBy(s.anna, hub.OpenInput{DependsOn: on}), end, nil)
		s.want("the end", ended, "")
		if fails {
			if s.want("the creation", made, "", handoff.CodeDependencyNotMet); made.err == nil {
				if row := s.row(made.work.Handoff.ID); row.DepsFailed != 1 || s.happened(row.ID, handoff.EventDependencyFailed) != 1 {
					s.errorf("%d failed", row.DepsFailed)
				}
			}
			return
		}
		s.want("the creation", made, "")
		if got := s.must(s.next(s.cid)); got == nil {
			s.errorf("blocked for ever (way %d)", s.kind)
		}
	})
}

func TestADependencyExpiresWhileAHandoffThatWaitsForItIsMade(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		on := s.offer(hub.OpenInput{ExpiresIn: 60})
		s.Clock.Advance(59 * time.Second)
		other := verb(sweep)
		if s.round%8 < 4 {
			other = s.claim(s.bob, on)
		}
		made, _ := s.meet(s.offerBy(s.anna, hub.OpenInput{DependsOn: []string{on}}), other, func() { s.Clock.Advance(time.Second) })
		s.want("the creation", made, "", handoff.CodeDependencyNotMet)
		_, err := sweep(s.Hub)
		noError(s.t, err)
		if made.err != nil {
			return
		}
		row := s.row(made.work.Handoff.ID)
		if claimed := s.row(on).State == handoff.Claimed; claimed != (row.DepsPending == 1) || claimed == (row.DepsFailed == 1) {
			s.errorf("waits for %s: %d pending, %d failed", s.row(on).State, row.DepsPending, row.DepsFailed)
		}
	})
}

func TestADependencyIsCompletedWhileTheOneThatWaitsIsCancelled(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		on := s.held(1)
		id := s.offer(hub.OpenInput{DependsOn: on})
		last := s.offer(hub.OpenInput{DependsOn: []string{id}})
		completed, cancelled := s.meet(s.complete(s.bob, on[0], 1), s.takeBack(s.anna, id), nil)
		s.want("the delivery", completed, "")
		s.want("the cancellation", cancelled, "")
		if row := s.row(last); row.DepsFailed != 1 || s.happened(last, handoff.EventDependencyFailed) != 1 {
			s.errorf("behind it: %+v", row)
		}
	})
}
