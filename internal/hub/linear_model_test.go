package hub_test

import (
	"fmt"
	"strings"

	"handclasp/internal/handoff"
)

// The rules for one open handoff, written down a second time from the contract, as they concern
// clients that see only answers. The hub's clock moves while calls run, and a call may read it at any
// time in between: so a lease may have lapsed for a call if it was over when the call was answered,
// and may not have if it was not over when the call began. A lapse itself changes nothing that is
// written; what acts upon one writes it down.

// asked is a call as its client made it.
type asked struct {
	client, actor int
	verb          string
	on            int // which handoff; -1 for the next one, whichever it will be
	key           string
	epoch         int   // 0 = none given
	lease         int64 // microseconds; 0 = none given
	text          string
	pass          bool
	made          made
	from, till    int64 // the hub's clock when it began and when it was answered, in microseconds
}

// made is what a handoff was created with.
type made struct {
	review, criteria bool
	priority         int
}

// told is an answer; unknown when the client left before one came.
type told struct {
	unknown bool
	code    handoff.Code
	on      int
	none    bool // there was nothing to claim
	by      int  // who holds it, where a refusal says so; -1 where it does not
	replay  bool
	noRow   bool // the answer does not show the handoff
	state   handoff.State
	epoch   int
	holder  int
	ends    int64 // when the lease ends
	place   string
}

// nobody holds it.
const nobody = -1

// ledger is one handoff.
type ledger struct {
	made            bool
	as              made
	creator         int
	state           handoff.State
	holder          int
	past            uint32 // who held it once
	epoch           int
	lease           int64
	soonest, latest int64 // bounds of when the lease ends
	result          string
	judged          bool
	verdict         string // as pass or fail with its feedback, and the epoch that it left
	endedBy         int
	reason          string
	keys            string // those that took effect, each with its epoch
	place           string
}

const defaultLease = 300e6

func (s ledger) terminal() bool { return s.state.Terminal() }

// reopened is s when its holder has lost it or given it back.
func (s ledger) reopened() ledger {
	s.past |= 1 << s.holder
	s.state, s.holder, s.lease, s.soonest, s.latest = handoff.Open, nobody, 0, 0, 0
	return s
}

func (s ledger) mayLapse(in *asked) bool {
	return s.state == handoff.Claimed && s.lease > 0 && in.till >= s.soonest
}

func (s ledger) mayHold(in *asked) bool {
	return s.state != handoff.Claimed || s.lease == 0 || in.from < s.latest
}

func (s ledger) ended(state handoff.State, by int, reason string) ledger {
	s.state, s.endedBy, s.reason, s.soonest, s.latest = state, by, reason, 0, 0
	return s
}

func keyed(key string, epoch int) string { return fmt.Sprintf("%s@%d;", key, epoch) }

func (s ledger) did(in *asked) (epoch int, found bool) {
	if in.key == "" {
		return 0, false
	}
	_, rest, found := strings.Cut(s.keys, in.key+"@")
	if found {
		_, _ = fmt.Sscanf(rest, "%d;", &epoch)
	}
	return epoch, found
}

// want is the answer that a rule gives, with what is shown and what is written down then.
type want struct {
	code    handoff.Code
	by      int
	replay  bool
	granted int64 // the lease counts anew, for so long
	shown   ledger
	next    ledger
}

// mayClaim: the target matches, and it does not mean the creator.
func (s ledger) mayClaim(actor int) bool {
	return actor != s.creator && (!s.as.review || reviews(actor))
}

// reviews says which agents offer the second capability.
func reviews(actor int) bool { return actor%2 == 0 }

// answer gives what the rules say to a call; s is as it is now, was as it is written down.
func (s ledger) answer(was ledger, in *asked) want {
	refuse := func(code handoff.Code) want { return want{code: code, by: nobody, next: was} }
	epoch, found := s.did(in)
	ok := func(next ledger) want {
		if in.key != "" && !found {
			next.keys += keyed(in.key, next.epoch)
		}
		return want{by: nobody, replay: found, shown: next, next: next}
	}
	switch {
	case in.verb == "create" && s.made:
		w := ok(s)
		w.next = was
		return w
	case in.verb == "create":
		return ok(ledger{made: true, as: in.made, creator: in.actor, state: handoff.Open, holder: nobody})
	case !s.made:
		return refuse(handoff.CodeNotFound)
	case in.verb == "get":
		return want{by: nobody, shown: s, next: was}
	case in.verb == "claim" || in.verb == "next":
		return s.claim(in, refuse, ok, epoch, found)
	case found && in.verb == "extend" && (s.state != handoff.Claimed || s.holder != in.actor):
		return refuse(s.notHolding(in))
	case found:
		return ok(s)
	}
	repeated := func() want {
		w := ok(s)
		w.replay = true
		return w
	}
	sameEpoch := in.epoch == 0 || in.epoch == s.epoch
	switch in.verb {
	case "extend":
		if code := s.notHolding(in); code != "" {
			return refuse(code)
		}
		if in.lease > 0 {
			s.lease = in.lease
		}
		w := ok(s)
		w.granted = s.lease
		return w
	case "release":
		if code := s.notHolding(in); code != "" {
			return refuse(code)
		}
		return ok(s.reopened())
	case "complete":
		if (s.state == handoff.Completed || s.state == handoff.Verifying) && s.holder == in.actor && s.result == in.text && sameEpoch {
			return repeated()
		}
		if code := s.notHolding(in); code != "" {
			return refuse(code)
		}
		if s.result = in.text; s.as.criteria {
			s.state, s.soonest, s.latest = handoff.Verifying, 0, 0
			return ok(s)
		}
		return ok(s.ended(handoff.Completed, in.actor, ""))
	case "verify":
		return s.verify(in, refuse, ok, repeated)
	case "reject":
		if s.state == handoff.Rejected && s.endedBy == in.actor && s.reason == in.text && sameEpoch {
			return repeated()
		}
		if in.actor == s.creator {
			return refuse(handoff.CodeNotOwner)
		}
		if code := s.notHolding(in); code != "" {
			return refuse(code)
		}
		return ok(s.ended(handoff.Rejected, in.actor, in.text))
	}
	switch { // cancel
	case s.state == handoff.Cancelled && s.endedBy == in.actor && s.reason == in.text:
		return repeated()
	case in.actor != s.creator:
		return refuse(handoff.CodeNotOwner)
	case s.terminal():
		return refuse(handoff.CodeThreadTerminal)
	case s.state != handoff.Open:
		return refuse(handoff.CodeInvalidTransition)
	}
	return ok(s.ended(handoff.Cancelled, in.actor, in.text))
}

func (s ledger) claim(in *asked, refuse func(handoff.Code) want, ok func(ledger) want, epoch int, found bool) want {
	holds := s.holder == in.actor && s.state != handoff.Open
	switch {
	case found && holds && s.epoch == epoch && (!s.terminal() || s.state == handoff.Completed):
		return ok(s)
	case found:
		return refuse(handoff.CodeLeaseLost)
	case in.verb == "next" && (s.state != handoff.Open || !s.mayClaim(in.actor)):
		return refuse("it is not the next one") // no answer is like that
	case s.terminal():
		return refuse(handoff.CodeThreadTerminal)
	case holds && s.state == handoff.Verifying:
		return ok(s)
	case holds:
		if in.lease > 0 {
			s.lease = in.lease
		}
		w := ok(s)
		w.granted = s.lease
		return w
	case !s.mayClaim(in.actor):
		return refuse(handoff.CodeNotEligibleToClaim)
	case s.state != handoff.Open:
		w := refuse(handoff.CodeAlreadyClaimed)
		w.by = s.holder
		return w
	}
	s.epoch++
	s.state, s.holder, s.lease = handoff.Claimed, in.actor, defaultLease
	if in.lease > 0 {
		s.lease = in.lease
	}
	w := ok(s)
	w.granted = s.lease
	return w
}

func (s ledger) verify(in *asked, refuse func(handoff.Code) want, ok func(ledger) want, repeated func() want) want {
	verdict := fmt.Sprint(in.pass, in.text)
	switch {
	case in.pass && s.state == handoff.Completed && s.judged && s.verdict == verdict && in.actor == s.creator && (in.epoch == 0 || in.epoch == s.epoch):
		return repeated()
	case !in.pass && s.state == handoff.Claimed && s.judged && s.verdict == verdict+keyed("", s.epoch) && in.actor == s.creator && (in.epoch == 0 || in.epoch == s.epoch-1):
		return repeated()
	case !s.as.criteria || in.actor != s.creator:
		return refuse(handoff.CodeVerifierNotEligible)
	case s.terminal():
		return refuse(handoff.CodeThreadTerminal)
	case s.state != handoff.Verifying:
		return refuse(handoff.CodeInvalidTransition)
	case in.epoch != s.epoch && (in.epoch != 0 || s.epoch > 1):
		return refuse(handoff.CodeStaleClaimEpoch)
	}
	s.judged, s.verdict = true, verdict
	if in.pass {
		return ok(s.ended(handoff.Completed, in.actor, ""))
	}
	s.state = handoff.Claimed
	s.epoch++
	s.verdict += keyed("", s.epoch)
	w := ok(s)
	w.granted = s.lease
	return w
}

// notHolding is why the actor may not do what only the holder does; empty when it may.
func (s ledger) notHolding(in *asked) handoff.Code {
	holds := s.holder == in.actor && s.state != handoff.Open
	switch {
	case !holds && s.past&(1<<in.actor) != 0 && s.holder != in.actor:
		return handoff.CodeLeaseLost
	case !holds:
		return handoff.CodeNotOwner
	case s.terminal():
		return handoff.CodeThreadTerminal
	case in.epoch != s.epoch && (in.epoch != 0 || s.epoch > 1):
		return handoff.CodeStaleClaimEpoch
	case s.state != handoff.Claimed:
		return handoff.CodeInvalidTransition
	}
	return ""
}

// follow gives the states in which a call with this answer may leave the handoff; none when the
// answer cannot be.
func (s ledger) follow(in *asked, out *told) []ledger {
	var all []ledger
	if s.mayHold(in) {
		all = append(all, s.answer(s, in).fits(s, in, out)...)
	}
	if s.mayLapse(in) {
		all = append(all, s.reopened().answer(s, in).fits(s, in, out)...)
	}
	if out.unknown {
		all = append(all, s) // it never got there
	}
	return all
}

func (w want) fits(was ledger, in *asked, out *told) []ledger {
	next := &w.next
	if out.unknown {
		if w.code != "" {
			return nil
		}
		if w.granted > 0 {
			next.soonest, next.latest = in.from+w.granted, in.till+w.granted
		}
		return []ledger{*next}
	}
	if w.code != out.code {
		return nil
	}
	if w.code != "" {
		if w.by != out.by {
			return nil
		}
		return []ledger{was}
	}
	if w.replay != out.replay {
		return nil
	}
	show := w.shown
	switch {
	case out.noRow:
		return []ledger{*next}
	case in.verb == "create":
		if next.place == "" {
			next.place = out.place
		}
		if show.state != out.state {
			return nil
		}
		return []ledger{*next}
	case show.epoch != out.epoch || in.verb != "extend" && (show.state != out.state || show.holder != out.holder):
		return nil
	}
	switch leased := show.state == handoff.Claimed && show.lease > 0; {
	case !leased && out.ends != 0, w.granted > 0 && (out.ends < in.from+w.granted || out.ends > in.till+w.granted),
		leased && w.granted == 0 && (out.ends < show.soonest || out.ends > show.latest):
		return nil
	case leased && next.state == handoff.Claimed:
		next.soonest, next.latest = out.ends, out.ends
	}
	return []ledger{*next}
}
