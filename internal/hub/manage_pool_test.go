package hub_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// verifying is an open handoff whose work cid delivered, with a marker in its payload, a secret in
// what may be erased, and dora, who can code too, or anna to judge it.
func verifying(f *hubtest.Fixture, anna, cid hub.Call, verifyBy string) string {
	f.T.Helper()
	id := openedIn(f, project, anna, hub.OpenInput{
		Payload: json.RawMessage(`"SECRET"`), Criteria: []string{"SECRET"}, VerifyBy: json.RawMessage(verifyBy), TraceID: "trace-1",
	})
	_, err := f.Hub.Claim(bg, cid, hub.ClaimInput{ProjectRoot: project, AgentID: cid.Actor.Handle, ThreadID: id})
	noError(f.T, err)
	_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id), Result: json.RawMessage(`{"r":"SECRET"}`)})
	noError(f.T, err)
	return id
}

const byCode = `{"kind":"capability","capability":"code"}`

func TestTheOperatorFindsOpenHandoffsByDoorWorkspaceAndTheirWords(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := able(f, "anna@acme"), able(f, "cid@acme")
		sent := f.Send(anna, "cid@acme")
		waiting := verifying(f, anna, cid, "")
		there := openedIn(f, otherRoot, anna, hub.OpenInput{Payload: json.RawMessage(`"SECRET"`)})
		open := openedIn(f, "/srv/else", anna, hub.OpenInput{})
		alias(f, otherRoot, project)
		for _, c := range []struct {
			in   hub.ListInput
			want []string
		}{
			{hub.ListInput{Door: "pool"}, []string{open, there, waiting}},
			{hub.ListInput{Door: "team"}, []string{sent}},
			{hub.ListInput{Root: project + "/"}, []string{there, waiting}},
			{hub.ListInput{Root: otherRoot, Statuses: []string{"open"}}, []string{there}},
			{hub.ListInput{Root: "/never/used"}, nil},
			{hub.ListInput{Statuses: []string{"VERIFYING"}}, []string{waiting}},
			{hub.ListInput{Statuses: []string{"accepted"}}, []string{waiting}},
			{hub.ListInput{Statuses: []string{"Open"}}, []string{open, there, sent}},
			{hub.ListInput{Statuses: []string{"pending", "REJECTED"}, Door: "team"}, []string{sent}},
			{hub.ListInput{Agent: "cid@acme"}, []string{waiting, sent}},
		} {
			if got := listed(list(f, c.in)); !slices.Equal(got, c.want) {
				t.Errorf("%+v: %v, want %v", c.in, got, c.want)
			}
		}
		page, err := f.Hub.Handoffs(bg, hubtest.Operator(), hub.ListInput{})
		if err != nil || page.Roots[page.Items[1].Handoff.WorkspaceID] != project || strings.Contains(fmt.Sprintf("%+v", page.Items[0]), "SECRET") {
			t.Errorf("%+v, %v", page, err)
		}
		for i := range page.Items {
			if page.Items[i].Handoff.Payload != nil {
				t.Error("a list holds a payload")
			}
		}
		for code, in := range map[handoff.Code]hub.ListInput{handoff.CodeInvalidParams: {Door: "back"}, handoff.CodeWorkspaceUnresolved: {Root: "shop"}} {
			_, err := f.Hub.Handoffs(bg, hubtest.Operator(), in)
			hubtest.WantCode(t, err, code)
		}
		_, err = f.Hub.Handoffs(bg, hubtest.Operator(), hub.ListInput{Statuses: []string{"opened"}})
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); !strings.Contains(e.Message, "pending") || !strings.Contains(e.Message, "VERIFYING") {
			t.Errorf("%s", e.Message)
		}
	})
}

func TestTheOperatorSeesAnOpenHandoffWithoutPayloadResultAndFeedback(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := able(f, "anna@acme"), able(f, "cid@acme")
		first := openedIn(f, project, anna, hub.OpenInput{})
		id := verifying(f, anna, cid, "")
		_, err := f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, id), Verdict: "fail", Feedback: "FEEDBACK"})
		noError(t, err)
		got, err := f.Hub.Inspect(bg, hubtest.Operator(), hub.ViewInput{ThreadID: id})
		noError(t, err)
		h := got.Handoff
		if h.Payload != nil || h.Result != nil || !got.HasResult || h.Verdict == nil || h.Verdict.Pass || h.Verdict.Feedback != "" || got.Party(h.Verdict.VerifiedBy).Handle != "anna@acme" {
			t.Errorf("%+v", got)
		}
		if h.Status() != "CLAIMED" || got.Root != project || !slices.Equal(h.Criteria, []string{"SECRET"}) || got.Dependencies != nil {
			t.Errorf("%+v", got)
		}
		// Whoever ordered the work reads both.
		if seen := view(f, anna, id).Handoff; string(seen.Result) != `{"r":"SECRET"}` || seen.Verdict.Feedback != "FEEDBACK" || seen.Payload != nil {
			t.Errorf("%+v", seen)
		}
		waits := openedIn(f, project, anna, hub.OpenInput{DependsOn: []string{first, id}})
		_, err = f.Hub.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "r"})
		noError(t, err)
		got, err = f.Hub.Inspect(bg, hubtest.Operator(), hub.ViewInput{ThreadID: waits})
		noError(t, err)
		want := []hub.Dependency{{ID: first, State: handoff.Open}, {ID: id, State: handoff.Cancelled}}
		if d := got.Dependencies; d == nil || *d != (hub.DependencyCount{Total: 2, Pending: 1, Failed: 1}) || !slices.Equal(got.DependsOn, want) {
			t.Errorf("%+v %+v", got.Dependencies, got.DependsOn)
		}
	})
}

func TestANamedAgentDoesNotReadWhatAnEarlierHolderDelivered(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob, cid := f.Agent("anna@acme"), f.Agent("bob@acme"), able(f, "cid@acme")
		id := openedIn(f, project, anna, hub.OpenInput{
			Criteria: []string{"green"},
			Target:   json.RawMessage(`{"strategy":"direct_with_fallback","agent_id":"bob@acme","fallback_after_seconds":1,"fallback":` + codeTarget + `}`),
		})
		f.Clock.Advance(2e9)
		drained(f, project, cid)
		_, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id), Result: json.RawMessage(`"RESULT"`)})
		noError(t, err)
		_, err = f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, id), Verdict: "fail", Feedback: "FEEDBACK"})
		noError(t, err)
		epoch := 2
		in := holding(cid, id)
		in.ClaimEpoch = &epoch
		_, err = f.Hub.Release(bg, cid, hub.ReleaseInput{HoldInput: in})
		noError(t, err)
		seen := view(f, bob, id).Handoff // it is open to it again
		if seen.State != handoff.Open || seen.Result != nil || seen.Verdict.Feedback != "" {
			t.Errorf("%+v", seen)
		}
	})
}

func TestWorkThatNeedsNoVerdictAnyMoreLeavesTheInboxesOfItsVerifiers(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		f.Agent("grace@acme")
		cancelled, reassigned, back := verifying(f, anna, cid, byCode), verifying(f, anna, cid, byCode), verifying(f, anna, cid, byCode)
		if got := ids(inbox(f, dora, hub.InboxInput{})); len(got) != 3 {
			t.Fatalf("dora is told: %v", got)
		}
		out, err := f.Hub.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: cancelled, Reason: "called off"})
		if err != nil || out.DoorStatus != "CANCELLED" || out.Status != "cancelled" {
			t.Fatalf("%+v %v", out, err)
		}
		for id, to := range map[string]string{reassigned: "grace@acme", back: "cid@acme"} {
			out, err := f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: to, Reason: "anew"})
			if err != nil || out.Holder != to || out.Epoch != 2 || out.Replay {
				t.Fatalf("%+v %v", out, err)
			}
			if h := look(f, id).Handoff; h.State != handoff.Claimed || !h.LeaseExpiresAt.IsZero() {
				t.Errorf("%+v", h)
			}
		}
		if got := ids(inbox(f, dora, hub.InboxInput{})); len(got) != 0 {
			t.Errorf("dora still finds %v", got)
		}
		_, err = f.Hub.Verify(bg, dora, hub.VerifyInput{HoldInput: holding(dora, reassigned), Verdict: "pass"})
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		page, err := f.Hub.Available(bg, dora, hub.AvailableInput{ProjectRoot: project, AgentID: "dora@acme", Scope: hub.ScopeToVerify})
		if err != nil || len(page.Works) != 0 {
			t.Errorf("to verify: %+v %v", page, err)
		}
		// Who held or holds it is told, and the creator; who lost it is told lease_lost.
		for call, want := range map[*hub.Call][]string{&cid: {back, cancelled}, &anna: {back, reassigned, cancelled}} {
			if got := ids(inbox(f, *call, hub.InboxInput{})); !slices.Equal(got, want) {
				t.Errorf("%s finds %v, want %v", call.Actor.Handle, got, want)
			}
		}
		for _, id := range []string{cancelled, reassigned, back} {
			eventsOf(f, id)
		}
	})
}

func TestAnErasureOfAnOpenHandoffKeepsItsIdsOnly(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := able(f, "anna@acme"), able(f, "cid@acme")
		id := verifying(f, anna, cid, "")
		_, err := f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, id), Verdict: "fail", Feedback: "SECRET"})
		noError(t, err)
		in := holding(cid, id)
		epoch := 2
		in.ClaimEpoch = &epoch
		_, err = f.Hub.Erase(bg, hubtest.Operator(), id)
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidTransition); !strings.Contains(e.Message, "CLAIMED") {
			t.Errorf("%s", e.Message)
		}
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: in, Result: json.RawMessage(`"SECRET"`)})
		noError(t, err)
		in = holding(anna, id)
		in.ClaimEpoch = &epoch
		_, err = f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: in, Verdict: "pass"})
		noError(t, err)
		erase(f, id)
		for _, call := range []hub.Call{anna, cid} {
			w, err := f.Hub.Get(bg, call, hub.GetInput{ProjectRoot: project, AgentID: call.Actor.Handle, HandoffID: id})
			noError(t, err)
			h := w.Handoff
			if h.State != handoff.Completed || h.Payload != nil || h.Result != nil || !slices.Equal(h.Criteria, []string{handoff.ErasedText}) || h.Verdict == nil || !h.Verdict.Pass || h.ErasedAt.IsZero() {
				t.Errorf("%+v", h)
			}
			if b, err := json.Marshal(w); err != nil || strings.Contains(string(b), "SECRET") {
				t.Errorf("%s %v", b, err)
			}
			// What names and correlates stays: it stands in the log too, which is whole.
			if h.Target.Words() != "capability code" || h.TraceID != "trace-1" || h.WorkspaceID != workspaceID(project) || h.VerifyBy.Kind != handoff.VerifyByCreator {
				t.Errorf("%+v", h)
			}
		}
		events, err := f.Hub.History(bg, hubtest.Operator(), id, 0)
		noError(t, err)
		for _, e := range events.Events {
			if e.TraceID != "trace-1" {
				t.Errorf("%+v", e)
			}
		}
	})
}

func TestClaimsAtThePoolCountAsHeldAndEndWithTheirAgent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		waiting := verifying(f, anna, cid, "")
		for range 2 {
			openedIn(f, project, anna, hub.OpenInput{})
		}
		openedIn(f, project, anna, hub.OpenInput{Target: json.RawMessage(`{"strategy":"direct","agent_id":"cid@acme"}`)})
		claimNext(f, cid)
		claimNext(f, cid)
		if got := show(f, "cid@acme"); got.Held != 3 || got.Open != 1 {
			t.Errorf("%d held, %d open", got.Held, got.Open)
		}
		brought := parkedClaim(f, project, dora, 1)
		disable(f, "cid@acme")
		noError(t, soon(t, brought))
		if got := drained(f, project, dora); len(got) != 1 {
			t.Errorf("left: %v", got)
		}
		// What it delivered can still be judged.
		if got := show(f, "cid@acme"); got.Held != 1 || got.Open != 1 {
			t.Errorf("%d held, %d open", got.Held, got.Open)
		}
		_, err := f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, waiting), Verdict: "pass"})
		noError(t, err)
	})
}
