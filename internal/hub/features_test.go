package hub_test

import (
	"encoding/json"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// restarted is the hub of the fixture anew, with other settings.
func restarted(f *hubtest.Fixture, change func(*hub.Config)) *hubtest.Fixture {
	cfg := f.HubCfg
	cfg.Store = f.Store
	change(&cfg)
	again := *f
	again.Hub = hub.New(cfg)
	return &again
}

func TestWithTraceOffATraceIDIsIgnoredAndAbsent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		before := opened(f, anna, hub.OpenInput{TraceID: "t-1", IdempotencyKey: "k"})
		if before.TraceID != "t-1" {
			t.Fatalf("%+v", before)
		}
		off := restarted(f, func(c *hub.Config) { c.NoTrace = true })
		for _, id := range []string{"t-2", " ", "", string(make([]byte, 200))} { // whatever it is
			got := opened(off, anna.WithTraceParent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"), hub.OpenInput{TraceID: id})
			if got.TraceID != "" || look(f, got.HandoffID).Handoff.TraceID != "" {
				t.Errorf("%q: %+v", id, got)
			}
		}
		if again := opened(off, anna, hub.OpenInput{TraceID: "t-1", IdempotencyKey: "k"}); !again.Replay || again.TraceID != "" {
			t.Errorf("a replay: %+v", again)
		}
		if got := claimNext(off, cid); got == nil || got.Handoff.ID != before.HandoffID {
			t.Errorf("made before: %+v", got)
		}
	})
}

func TestWithVerificationOffItsParametersAreRefusedAndWhatWasMadeBeforeIsDecided(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{Criteria: []string{"it is green"}}).HandoffID
		off := restarted(f, func(c *hub.Config) { c.NoVerification = true })
		for field, in := range map[string]hub.OpenInput{
			"acceptance_criteria": {Criteria: []string{"x"}, VerifyBy: json.RawMessage(`{"kind":"creator"}`)},
			"verify_by":           {VerifyBy: json.RawMessage(`{"kind":"creator"}`)},
		} {
			wantOff(t, off, anna, in, field)
		}
		opened(off, anna, hub.OpenInput{VerifyBy: json.RawMessage(`null`), Criteria: []string{}})
		if got := claimNext(off, cid); got == nil || got.Handoff.ID != id {
			t.Fatalf("%+v", got)
		}
		w, err := off.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id)})
		if err != nil || w.Handoff.State != handoff.Verifying {
			t.Fatalf("%+v %v", w, err)
		}
		w, err = off.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, id), Verdict: "pass"})
		if err != nil || w.Handoff.State != handoff.Completed {
			t.Fatalf("%+v %v", w, err)
		}
	})
}

func TestWithDependenciesOffTheyAreRefusedAndWhatWaitsIsUnblocked(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		first := opened(f, anna, hub.OpenInput{}).HandoffID
		second := opened(f, anna, hub.OpenInput{DependsOn: []string{first}}).HandoffID
		off := restarted(f, func(c *hub.Config) { c.NoDAG = true })
		wantOff(t, off, anna, hub.OpenInput{DependsOn: []string{first}}, "depends_on")
		for _, id := range []string{first, second} {
			if got := claimNext(off, cid); got == nil || got.Handoff.ID != id {
				t.Fatalf("%+v", got)
			}
			_, err := off.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id)})
			noError(t, err)
		}
	})
}

// wantOff wants the create refused for the field, and nothing stored.
func wantOff(t *testing.T, f *hubtest.Fixture, from hub.Call, in hub.OpenInput, field string) {
	t.Helper()
	before := stored(f)
	in.ProjectRoot, in.From, in.Visibility, in.Target = project, from.Actor.Handle, "public", json.RawMessage(codeTarget)
	_, err := f.Hub.Open(bg, from, in)
	if e := hubtest.WantCode(t, err, handoff.CodeFeatureDisabled); e.Details["field"] != field {
		t.Errorf("%s: %+v", field, e)
	}
	if stored(f) != before {
		t.Errorf("%s: something was stored", field)
	}
}
