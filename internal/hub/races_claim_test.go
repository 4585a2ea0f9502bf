package hub_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestOfThirtyTwoClaimantsOneWinsAndTheOthersAreToldWho(t *testing.T) {
	t.Parallel()
	races(t, 30, func(s *stage) {
		visibility := []string{"public", "eligible", "private"}[s.round%3]
		id := s.offer(hub.OpenInput{Visibility: visibility})
		verbs := make([]verb, len(s.able))
		for i, call := range s.able {
			verbs[i] = s.claim(call, id)
		}
		answers := s.crowd(verbs)
		won := -1
		for i, o := range answers {
			if o.err == nil {
				if won >= 0 || o.work.Handoff.Holder != s.able[i].Actor.ID || o.work.Handoff.Epoch != 1 {
					s.errorf("%s claimed too: %+v", s.able[i].Actor.Handle, o.work.Handoff)
				}
				won = i
			}
		}
		if winner := s.row(id).Holder; won < 0 || winner != s.able[won].Actor.ID {
			s.t.Fatalf("round %d: %d won, the holder is %s", s.round, won, winner)
		}
		for i, o := range answers {
			if i == won {
				continue
			}
			s.want(s.able[i].Actor.Handle, o, handoff.CodeAlreadyClaimed)
			var e *handoff.Error
			_ = errors.As(o.err, &e)
			if named := e != nil && e.Details["claimed_by"] == s.able[won].Actor.Handle; named != (visibility != "private") {
				s.errorf("%s: %s was told %v", visibility, s.able[i].Actor.Handle, e)
			}
		}
	})
}

func TestThirtyTwoThatClaimTheNextOfTwentyGetTwentyDifferentOnes(t *testing.T) {
	t.Parallel()
	races(t, 30, func(s *stage) {
		for range 20 {
			s.offer(hub.OpenInput{})
		}
		verbs := make([]verb, len(s.able))
		for i, call := range s.able {
			verbs[i] = s.next(call)
		}
		taken := map[string]bool{}
		none := 0
		for i, o := range s.crowd(verbs) {
			switch {
			case o.err != nil:
				s.errorf("%s: %v", s.able[i].Actor.Handle, o.err)
			case o.work == nil:
				none++
			case taken[o.work.Handoff.ID] || o.work.Handoff.Epoch != 1 || o.work.Handoff.Holder != s.able[i].Actor.ID:
				s.errorf("%s claimed %+v", s.able[i].Actor.Handle, o.work.Handoff)
			default:
				taken[o.work.Handoff.ID] = true
			}
		}
		if len(taken) != 20 || none != len(s.able)-20 {
			s.errorf("%d taken, %d got none", len(taken), none)
		}
	})
}

func TestTwoClaimsOfOneAgentAtOnceAreOneClaim(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		if s.round%8 < 4 { // it holds it already
			s.must(s.claim(s.bob, id))
		}
		a, b := s.meet(s.claim(s.bob, id), s.claimFor(s.bob, id, 60), nil)
		for _, o := range []outcome{a, b} {
			if s.want("a claim", o, ""); o.err == nil && (o.work.Handoff.Epoch != 1 || o.work.Handoff.Holder != s.bob.Actor.ID) {
				s.errorf("%+v", o.work.Handoff)
			}
		}
		if n := s.happened(id, handoff.EventClaimed); n != 1 {
			s.errorf("claimed %d times", n)
		}
	})
}

func TestTheCreatorCancelsOrAnAgentClaims(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		claimed, cancelled := s.meet(s.claim(s.bob, id), s.takeBack(s.anna, id), nil)
		if claimed.err == nil {
			s.want("a cancel after the claim", cancelled, handoff.CodeInvalidTransition)
		} else {
			s.want("a claim after the cancel", claimed, handoff.CodeThreadTerminal)
			s.want("the cancel", cancelled, "")
		}
		s.eitherOr(id, handoff.EventClaimed, handoff.EventCancelled)
	})
}

func TestWhoClaimsTheNextOneWhileItIsCancelledGetsAnotherOrTrulyNone(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		first := s.offer(hub.OpenInput{Priority: "high"})
		other := ""
		if s.round%8 < 4 {
			other = s.offer(hub.OpenInput{})
		}
		got, cancelled := s.meet(s.next(s.bob), s.takeBack(s.anna, first), nil)
		s.want("the claim", got, "")
		switch {
		case got.err != nil:
		case cancelled.err != nil:
			s.want("a cancel after the claim", cancelled, handoff.CodeInvalidTransition)
			if got.work == nil || got.work.Handoff.ID != first {
				s.errorf("the first is not cancelled, and %+v was claimed", got.work)
			}
		case other == "" && got.work != nil, other != "" && (got.work == nil || got.work.Handoff.ID != other):
			s.errorf("the first is cancelled, %q is left, and %+v was claimed", other, got.work)
		}
	})
}

// A call that is refused holds the handoff for a moment too.
func TestWhoClaimsTheNextOneGetsItAlthoughAnotherCallIsAtIt(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		got, said := s.meet(s.next(s.bob), func(h *hub.Hub) (*hub.Work, error) {
			_, err := h.Send(bg, s.anna, hub.SendInput{ThreadID: id, Body: "b"})
			return nil, err
		}, nil)
		s.want("a message", said, "")
		if s.want("the claim", got, ""); got.err == nil && (got.work == nil || got.work.Handoff.ID != id) {
			s.errorf("there is one to claim, and %+v came (way %d)", got.work, s.kind)
		}
	})
}

func TestWhoClaimsTheNextOneGetsItWhileItsLapseIsWrittenDown(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		s.must(s.claimFor(s.cid, id, 10))
		s.Clock.Advance(10 * time.Second)
		got, swept := s.meet(s.next(s.bob), sweep, nil)
		s.want("the sweep", swept, "")
		if s.want("the claim", got, ""); got.err == nil && (got.work == nil || got.work.Handoff.Epoch != 2) {
			s.errorf("there is one to claim, and %+v came (way %d)", got.work, s.kind)
		}
		s.eitherOr(id, handoff.EventLeaseLapsed, handoff.EventCancelled)
	})
}

func TestTheHolderExtendsOrAnotherClaimsWhatLapsed(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		s.must(s.claimFor(s.bob, id, 10))
		s.Clock.Advance(9 * time.Second)
		extended, claimed := s.meet(s.extend(s.bob, id, 1), s.claim(s.cid, id), func() { s.Clock.Advance(2 * time.Second) })
		if s.kind != loose && s.late() != (extended.err != nil) {
			s.errorf("way %d: the extension was answered %v", s.kind, extended.err)
		}
		if claimed.err == nil {
			s.want("an extension after the lapse", extended, handoff.CodeLeaseLost)
		} else {
			s.want("a claim before the lapse", claimed, handoff.CodeAlreadyClaimed)
			s.want("an extension", extended, "", handoff.CodeLeaseLost)
		}
		if row := s.row(id); claimed.err == nil && (row.Holder != s.cid.Actor.ID || row.Epoch != 2) || claimed.err != nil && (row.Holder != s.bob.Actor.ID || row.Epoch != 1) {
			s.errorf("held by %s at epoch %d", row.Holder, row.Epoch)
		}
	})
}

func TestTheHolderReleasesOrDeliversAndNotBoth(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{})
		s.must(s.claim(s.bob, id))
		released, completed := s.meet(s.release(s.bob, id, 1), s.complete(s.bob, id, 1), nil)
		if released.err == nil {
			s.want("a delivery after the release", completed, handoff.CodeLeaseLost)
		} else {
			s.want("a release after the delivery", released, handoff.CodeThreadTerminal)
			s.want("the delivery", completed, "")
		}
		s.eitherOr(id, handoff.EventReleased, handoff.EventCompleted)
	})
}

func TestAClaimedHandoffThatIsReleasedGoesToWhoClaimsTheNextOne(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		id := s.offer(hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`)})
		s.must(s.claim(s.bob, id))
		released, got := s.meet(s.release(s.bob, id, 1), s.next(s.cid), nil)
		s.want("the release", released, "")
		s.want("the claim", got, "")
		if row := s.row(id); got.work != nil && row.Holder != s.cid.Actor.ID || got.work == nil && row.State != handoff.Open {
			s.errorf("%+v was claimed, the row is %s by %q", got.work, row.State, row.Holder)
		}
	})
}

// A claim that waits for the edit of its agent goes by what the edit left.
func TestACapabilityThatIsTakenAwayClaimsNoMore(t *testing.T) {
	t.Parallel()
	races(t, 0, func(s *stage) {
		can := func(words ...string) verb {
			return func(h *hub.Hub) (*hub.Work, error) {
				_, err := h.EditAgent(bg, hubtest.Operator(), s.bob.Actor.Handle, hub.AgentEdit{Capabilities: &words})
				return nil, err
			}
		}
		id := s.offer(hub.OpenInput{})
		by := s.claim(s.bob, id)
		if s.round/4%2 == 1 {
			by = s.next(s.bob)
		}
		edited, got := s.meet(can("other"), by, nil)
		s.want("the edit", edited, "")
		if s.want("the claim", got, "", handoff.CodeNotEligibleToClaim); s.kind == firstHolds && got.err == nil && got.work != nil {
			s.errorf("claimed by what was taken away before")
		}
		s.must(can("code"))
	})
}
