package hub_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func strict(c *hub.Config) { c.StrictTrust = true }

// strictVerb is a verb on a pool handoff at one door.
type strictVerb struct {
	on   string // the state that it needs: open, held or delivered
	by   string // maker or worker
	tool string // which takes a session for it
	call func(h *hub.Hub, call hub.Call, in hub.HoldInput) error
}

// sessionVerbs take a session, the others cannot.
var (
	sessionVerbs = map[string]strictVerb{
		"claim": {"open", "worker", "handoff_claim", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Claim(bg, call, hub.ClaimInput{ProjectRoot: in.ProjectRoot, AgentID: in.AgentID, ThreadID: in.ThreadID, Session: in.Session, IdempotencyKey: in.IdempotencyKey})
			return err
		}},
		"claim the next": {"open", "worker", "handoff_claim", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Claim(bg, call, hub.ClaimInput{ProjectRoot: in.ProjectRoot, AgentID: in.AgentID, Session: in.Session, IdempotencyKey: in.IdempotencyKey})
			return err
		}},
		"extend": {"held", "worker", "handoff_extend", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Extend(bg, call, hub.ExtendInput{HoldInput: in})
			return err
		}},
		"release": {"held", "worker", "handoff_release", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Release(bg, call, hub.ReleaseInput{HoldInput: in})
			return err
		}},
		"complete": {"held", "worker", "handoff_complete", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Deliver(bg, call, hub.DeliverInput{HoldInput: in})
			return err
		}},
		"verify": {"delivered", "maker", "handoff_verify", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Verify(bg, call, hub.VerifyInput{HoldInput: in, Verdict: "pass"})
			return err
		}},
		"reject": {"held", "worker", "handoff_reject", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Reject(bg, call, hub.RejectInput{HoldInput: in})
			return err
		}},
		"cancel": {"open", "maker", "handoff_cancel", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.TakeBack(bg, call, hub.TakeBackInput{HoldInput: in})
			return err
		}},
	}
	sessionless = map[string]strictVerb{
		"accept_handoff": {"open", "worker", "handoff_claim", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Accept(bg, call, hub.AcceptInput{ThreadID: in.ThreadID, SessionID: in.Session.ID, IdempotencyKey: in.IdempotencyKey})
			return err
		}},
		"complete_handoff": {"held", "worker", "handoff_complete", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Complete(bg, call, hub.CompleteInput{ThreadID: in.ThreadID, ResultSummary: "done", IdempotencyKey: in.IdempotencyKey})
			return err
		}},
		"decline_handoff": {"held", "worker", "handoff_reject", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Decline(bg, call, hub.DeclineInput{ThreadID: in.ThreadID, Reason: "no", IdempotencyKey: in.IdempotencyKey})
			return err
		}},
		"cancel_handoff": {"open", "maker", "handoff_cancel", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Cancel(bg, call, hub.CancelInput{ThreadID: in.ThreadID, IdempotencyKey: in.IdempotencyKey})
			return err
		}},
		"draft_proposed_action": {"held", "worker", "handoff_complete", func(h *hub.Hub, call hub.Call, in hub.HoldInput) error {
			_, err := h.Draft(bg, call, hub.DraftInput{ThreadID: in.ThreadID, SuggestedDiff: "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n", IdempotencyKey: in.IdempotencyKey})
			return err
		}},
	}
)

// strictStage is a hub with a maker, a worker and a session of each.
type strictStage struct {
	*hubtest.Fixture
	calls    map[string]hub.Call
	sessions map[string]hub.Session
}

func newStrictStage(f *hubtest.Fixture) *strictStage {
	f.T.Helper()
	s := &strictStage{f, map[string]hub.Call{"maker": f.Agent("maker@acme"), "worker": able(f, "worker@acme")}, map[string]hub.Session{}}
	for who, call := range s.calls {
		s.sessions[who] = openSession(f, call)
	}
	return s
}

// in is the input of a call by one of them, with its session.
func (s *strictStage) in(who, id string) hub.HoldInput {
	in := holding(s.calls[who], id)
	in.Session = s.sessions[who]
	return in
}

// handoff makes one in the state.
func (s *strictStage) handoff(state string) string {
	s.T.Helper()
	id := opened(s.Fixture, s.calls["maker"], hub.OpenInput{Criteria: []string{"it is green"}}).HandoffID
	steps := map[string][]string{"open": {}, "held": {"claim"}, "delivered": {"claim", "complete"}}[state]
	for _, verb := range steps {
		noError(s.T, sessionVerbs[verb].call(s.Hub, s.calls["worker"], s.in("worker", id)))
	}
	return id
}

func TestAStrictHubWantsASessionAndItsSecretWithEveryVerbOnAnOpenHandoff(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		s := newStrictStage(f)
		for name, v := range sessionVerbs {
			in := s.in(v.by, s.handoff(v.on))
			for what, session := range map[string]hub.Session{
				"none": {}, "an id alone": {ID: in.Session.ID}, "a secret alone": {Secret: in.Session.Secret}, "an unknown id alone": {ID: "x"},
			} {
				bare := in
				bare.Session = session
				e := hubtest.WantCode(t, v.call(f.Hub, s.calls[v.by], bare), handoff.CodeSessionRequired)
				if !strings.Contains(e.Message, "trust_mode strict") || !strings.Contains(e.Hint, "session_open") || !strings.Contains(e.Hint, v.tool+".") {
					t.Errorf("%s with %s: %v %s", name, what, e, e.Hint)
				}
			}
			for what, session := range map[string]hub.Session{
				"another's": s.sessions[map[string]string{"maker": "worker", "worker": "maker"}[v.by]], "a wrong secret": {ID: in.Session.ID, Secret: in.Session.Secret + "0"},
			} {
				wrong := in
				wrong.Session = session
				if err := v.call(f.Hub, s.calls[v.by], wrong); handoff.CodeOf(err) != handoff.CodeSessionRequired {
					t.Errorf("%s with %s: %v", name, what, err)
				}
			}
			if err := v.call(f.Hub, s.calls[v.by], in); err != nil {
				t.Errorf("%s with its session: %v", name, err)
			}
		}
	}, hubtest.WithHub(strict))
}

func TestAStrictHubRefusesOpenHandoffsAtToolsThatTakeNoSession(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		s := newStrictStage(f)
		for name, v := range sessionless {
			id := s.handoff(v.on)
			before := look(f, id).Handoff
			e := hubtest.WantCode(t, v.call(f.Hub, s.calls[v.by], s.in(v.by, id)), handoff.CodeSessionRequired)
			if !strings.Contains(e.Hint, "session_open") || !strings.Contains(e.Hint, v.tool+".") {
				t.Errorf("%s: %s", name, e.Hint)
			}
			if after := look(f, id).Handoff; after.State != before.State || after.EventSeq != before.EventSeq || after.Epoch != before.Epoch {
				t.Errorf("%s changed %+v", name, after)
			}
			// The same on a handoff of their own door.
			team := f.Send(s.calls["maker"], "worker@acme")
			if v.on != "open" {
				accept(f, s.calls["worker"], team)
			}
			if err := v.call(f.Hub, s.calls[v.by], s.in(v.by, team)); name != "draft_proposed_action" && err != nil || handoff.CodeOf(err) == handoff.CodeSessionRequired {
				t.Errorf("%s at its own door: %v", name, err)
			}
		}
		id := s.handoff("held")
		say(f, s.calls["worker"], id, "how is it going?")
		view(f, s.calls["maker"], id)
	}, hubtest.WithHub(strict))
}

func TestWhatOneMayNotSeeIsNotFoundBeforeASessionIsAskedFor(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		s := newStrictStage(f)
		eve := f.Agent("eve@acme")
		id := opened(f, s.calls["maker"], hub.OpenInput{Visibility: "private"}).HandoffID
		for _, verbs := range []map[string]strictVerb{sessionVerbs, sessionless} {
			for name, v := range verbs {
				if err := v.call(f.Hub, eve, holding(eve, id)); name != "claim the next" && handoff.CodeOf(err) != handoff.CodeNotFound {
					t.Errorf("%s by a stranger: %v", name, err)
				}
			}
		}
	}, hubtest.WithHub(strict))
}

// A key replays what was done, the payload of a claim included: it is no substitute for the secret.
func TestAKeyReplaysNothingWithoutTheSession(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		s := newStrictStage(f)
		opened(f, s.calls["maker"], hub.OpenInput{Payload: json.RawMessage(`{"n":1}`)})
		next := sessionVerbs["claim the next"]
		in := s.in("worker", "")
		in.IdempotencyKey = "k"
		noError(t, next.call(f.Hub, s.calls["worker"], in))
		noError(t, next.call(f.Hub, s.calls["worker"], in))
		in.Session = hub.Session{}
		hubtest.WantCode(t, next.call(f.Hub, s.calls["worker"], in), handoff.CodeSessionRequired)
	}, hubtest.WithHub(strict))
}

func TestAStrictHubLetsTheOperatorAndTheClockDoTheirPart(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		s := newStrictStage(f)
		able(f, "other@acme")
		id := s.handoff("held")
		_, err := f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "other@acme", Reason: "they know it"})
		noError(t, err)
		_, err = f.Hub.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "not needed"})
		noError(t, err)
		lapsing := s.handoff("held")
		f.Clock.Advance(6 * time.Minute)
		if n, err := f.Hub.Sweep(bg); n != 1 || err != nil {
			t.Fatalf("swept %d, %v", n, err)
		}
		noError(t, sessionVerbs["claim"].call(f.Hub, s.calls["worker"], s.in("worker", lapsing)))
		disable(f, "worker@acme")
		if got := look(f, lapsing).Handoff; got.State != handoff.Open {
			t.Errorf("after its holder was disabled: %+v", got)
		}
	}, hubtest.WithHub(strict))
}

func TestAStrictHubLetsAgentsCreateAndLookWithoutASession(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		maker, worker := f.Agent("maker@acme"), able(f, "worker@acme")
		id := opened(f, maker, hub.OpenInput{}).HandoffID
		list, err := f.Hub.Available(bg, worker, hub.AvailableInput{ProjectRoot: project, AgentID: "worker@acme"})
		if err != nil || len(list.Works) != 1 {
			t.Fatalf("%+v %v", list, err)
		}
		_, err = f.Hub.Get(bg, worker, hub.GetInput{ProjectRoot: project, AgentID: "worker@acme", HandoffID: id})
		noError(t, err)
	}, hubtest.WithHub(strict))
}
