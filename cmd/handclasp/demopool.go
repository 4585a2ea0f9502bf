package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"handclasp/internal/hub"
)

// The part of the demo about open handoffs: work for whichever agent can do it.

const (
	lea   = "lea@acme"
	maxim = "max@acme"
	shop  = "/srv/shop"
)

// pool is one call at the pool: who calls and in which project is on all of them.
func (s *story) pool(handle, tool string, args map[string]any) (map[string]any, error) {
	return s.call(handle, tool, inShop(handle, args))
}

func inShop(handle string, args map[string]any) map[string]any {
	all := map[string]any{"project_root": shop, "agent_id": handle}
	for k, v := range args {
		all[k] = v
	}
	return all
}

// openWork shows that work can wait for a kind of agent, and for other work.
func (s *story) openWork() error {
	for _, a := range []hub.AgentInput{
		{Handle: lea, Name: "Lea's agent", Capabilities: []string{"review"}},
		{Handle: maxim, Name: "Max's agent", Capabilities: []string{"review"}},
	} {
		if err := s.register(a); err != nil {
			return err
		}
		if err := s.connect(a.Handle); err != nil {
			return err
		}
	}
	s.scene("Anna's agent offers work to whoever can review, not to a name", "handoff_create")
	made, err := s.call(anna, "handoff_create", map[string]any{
		"project_root": shop, "from_agent_id": anna, "visibility": "public",
		"target":              map[string]any{"strategy": "capability", "capability": "review"},
		"payload":             map[string]any{"pull_request": 41, "budget": 1.5},
		"acceptance_criteria": []any{"Every changed query has a test."},
	})
	if err != nil {
		return err
	}
	s.thread, _ = made["handoff_id"].(string)
	next, err := s.call(anna, "handoff_create", map[string]any{
		"project_root": shop, "from_agent_id": anna, "visibility": "public",
		"target": map[string]any{"strategy": "capability", "capability": "review"}, "depends_on": []any{s.thread},
	})
	if err != nil {
		return err
	}
	s.next, _ = next["handoff_id"].(string)
	s.say("   → %v, for %v agents. What it is about (payload) only the one that takes it will read.\n"+
		"   → a second one waits until the first is completed: %v pending.", made["status"], made["eligible_count"], field(next, "dependencies", "pending"))
	return nil
}

func field(m map[string]any, path ...string) any {
	var v any = m
	for _, name := range path {
		inner, _ := v.(map[string]any)
		v = inner[name]
	}
	return v
}

// race shows that of two who want it one gets it, and that the other is told.
func (s *story) race() error {
	s.scene("Lea's and Max's agents try to take it at the same moment", "handoff_claim")
	type answer struct {
		who   string
		taken map[string]any
		err   error
	}
	answers := make(chan answer, 2)
	for _, who := range []string{lea, maxim} {
		go func() {
			taken, err := s.pool(who, "handoff_claim", map[string]any{"handoff_id": s.thread})
			answers <- answer{who, taken, err}
		}()
	}
	var fault error
	for range 2 {
		a := <-answers
		switch {
		case a.err == nil && s.holder == "":
			s.holder = a.who
			payload, err := jsonText(a.taken["payload"], "")
			if err != nil {
				return err
			}
			s.say("   → %s has it: %v, claim epoch %v, payload %s.", a.who, a.taken["status"], a.taken["claim_epoch"], payload)
		case a.err == nil:
			return errors.New("both of them got it")
		default:
			s.loser, fault = a.who, a.err
		}
	}
	if s.holder == "" {
		return fault
	}
	refused, err := s.refused(s.loser, "handoff_claim", inShop(s.loser, map[string]any{"handoff_id": s.thread}))
	if err != nil {
		return err
	}
	s.say("   → %s was refused, and is again if it repeats the call:\n     %v, held by %v.", s.loser, refused["code"], field(refused, "details", "claimed_by"))
	return nil
}

// rework shows that work which is judged is done when its judge says so.
func (s *story) rework() error {
	s.scene("It is delivered, sent back once, and passes", "handoff_complete, handoff_verify")
	done, err := s.pool(s.holder, "handoff_complete", map[string]any{"handoff_id": s.thread, "result": "Reviewed."})
	if err != nil {
		return err
	}
	back, err := s.pool(anna, "handoff_verify", map[string]any{"handoff_id": s.thread, "verdict": "fail", "feedback": "The query in users.go has none.", "claim_epoch": 1})
	if err != nil {
		return err
	}
	stale, err := s.refused(s.holder, "handoff_complete", inShop(s.holder, map[string]any{"handoff_id": s.thread, "result": "Reviewed.", "claim_epoch": 1}))
	if err != nil {
		return err
	}
	s.say("   → delivered: %v. Anna's agent judges it by its criteria: fail,\n     so it is %v by the same agent, epoch %v.\n"+
		"   → its first delivery, arriving once more: refused, %v.", done["status"], back["status"], back["claim_epoch"], stale["code"])
	if _, err := s.pool(s.holder, "handoff_complete", map[string]any{"handoff_id": s.thread, "result": "Reviewed; the test is there.", "claim_epoch": 2}); err != nil {
		return err
	}
	return s.unblock()
}

// unblock shows that what waited for the work is there at once for who waits for it.
func (s *story) unblock() error {
	type answer struct {
		taken map[string]any
		at    time.Time
		err   error
	}
	woken := make(chan answer, 1)
	go func() {
		taken, err := s.pool(s.loser, "handoff_claim", map[string]any{"timeout_seconds": 30})
		woken <- answer{taken, time.Now(), err}
	}()
	if _, err := s.waitUntilParked(); err != nil {
		return err
	}
	judged := time.Now()
	passed, err := s.pool(anna, "handoff_verify", map[string]any{"handoff_id": s.thread, "verdict": "pass", "claim_epoch": 2})
	if err != nil {
		return err
	}
	got := <-woken
	if got.err != nil {
		return got.err
	}
	if got.taken["handoff_id"] != s.next {
		return fmt.Errorf("the one that waited got %v instead of %s", got.taken["handoff_id"], s.next)
	}
	events, err := s.log()
	if err != nil {
		return err
	}
	if len(events) != 6 {
		return fmt.Errorf("the log of the handoff is %v", events)
	}
	s.say("   → done again, and pass: %v.\n"+
		"   → %s had a call waiting: it held the second handoff %d ms after the verdict.\n"+
		"   The log of the first:\n   %s,\n   %s", passed["status"], s.loser, got.at.Sub(judged).Milliseconds(), strings.Join(events[:3], ", "), strings.Join(events[3:], ", "))
	return nil
}
