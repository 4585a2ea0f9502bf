package hub_test

import (
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

const project = "/srv/shop"

func opened(f *hubtest.Fixture, from hub.Call, in hub.OpenInput) hub.Opened {
	f.T.Helper()
	in.ProjectRoot, in.From = project, from.Actor.Handle
	if in.Visibility == "" {
		in.Visibility = "public"
	}
	if in.Target == nil {
		in.Target = json.RawMessage(codeTarget)
	}
	out, err := f.Hub.Open(bg, from, in)
	noError(f.T, err)
	return out
}

func claimNext(f *hubtest.Fixture, call hub.Call) *hub.Work {
	f.T.Helper()
	out, err := f.Hub.Claim(bg, call, hub.ClaimInput{ProjectRoot: project, AgentID: call.Actor.Handle})
	noError(f.T, err)
	return out.Work
}

func holding(call hub.Call, id string) hub.HoldInput {
	return hub.HoldInput{ProjectRoot: project, AgentID: call.Actor.Handle, ThreadID: id}
}

func TestAnOpenHandoffIsClaimedVerifiedAndUnblocksTheNext(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		one := opened(f, anna, hub.OpenInput{Payload: json.RawMessage(`{"n":1.50}`), Criteria: []string{"it is green"}})
		if one.Status != "OPEN" || one.EligibleCount != 2 || one.TraceID == "" {
			t.Fatalf("opened: %+v", one)
		}
		next := opened(f, anna, hub.OpenInput{DependsOn: []string{one.HandoffID}})
		if next.Dependencies.Pending != 1 {
			t.Fatalf("waits: %+v", next)
		}
		list, err := f.Hub.Available(bg, cid, hub.AvailableInput{ProjectRoot: project, AgentID: "cid@acme"})
		noError(t, err)
		if len(list.Works) != 1 || list.Works[0].Handoff.ID != one.HandoffID || list.Works[0].Handoff.Payload != nil {
			t.Fatalf("available: %+v", list)
		}
		got := claimNext(f, cid)
		if got == nil || got.Handoff.ID != one.HandoffID || string(got.Handoff.Payload) != `{"n":1.50}` || got.Handoff.Epoch != 1 {
			t.Fatalf("claimed: %+v", got)
		}
		if again := claimNext(f, dora); again != nil {
			t.Fatalf("twice: %+v", again)
		}
		w, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, one.HandoffID), Result: json.RawMessage(`"done"`)})
		noError(t, err)
		if w.Handoff.State != handoff.Verifying {
			t.Fatalf("delivered: %+v", w)
		}
		w, err = f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, one.HandoffID), Verdict: "fail", Feedback: "not green"})
		noError(t, err)
		if w.Handoff.State != handoff.Claimed || w.Handoff.Epoch != 2 {
			t.Fatalf("sent back: %+v", w)
		}
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, one.HandoffID), Result: json.RawMessage(`"done"`)})
		hubtest.WantCode(t, err, handoff.CodeStaleClaimEpoch)
		epoch := 2
		in := holding(cid, one.HandoffID)
		in.ClaimEpoch = &epoch
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: in, Result: json.RawMessage(`"done"`)})
		noError(t, err)
		in = holding(anna, one.HandoffID)
		in.ClaimEpoch = &epoch
		w, err = f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: in, Verdict: "pass"})
		noError(t, err)
		if w.Handoff.State != handoff.Completed {
			t.Fatalf("passed: %+v", w)
		}
		if got := claimNext(f, dora); got == nil || got.Handoff.ID != next.HandoffID {
			t.Fatalf("unblocked: %+v", got)
		}
		f.Clock.Advance(301 * time.Second)
		if got := claimNext(f, cid); got == nil || got.Handoff.ID != next.HandoffID || got.Handoff.Epoch != 2 {
			t.Fatalf("after the lapse: %+v", got)
		}
		eventsOf(f, one.HandoffID)
		eventsOf(f, next.HandoffID)
	})
}

// Under the key of exclusions anything may stand: a heap of it must not hide what matches.
func TestAHeapOfExclusionsHidesNothingThatMatches(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: "cid@acme", Tags: map[string][]string{"region": {"eu"}}})
		noError(t, err)
		actor, err := f.Hub.Authenticate(bg, k.Secret)
		noError(t, err)
		cid := hub.Call{Actor: actor}
		notIn := func(region string) json.RawMessage {
			return json.RawMessage(`{"strategy":"tag","selector":[{"key":"region","operator":"NotIn","values":["` + region + `"]}]}`)
		}
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 80 {
					opened(f, anna, hub.OpenInput{Target: notIn("eu")})
				}
			})
		}
		wg.Wait()
		direct := opened(f, anna, hub.OpenInput{Target: json.RawMessage(`{"strategy":"direct","agent_id":"cid@acme"}`)})
		_, err = f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: "us@acme", Tags: map[string][]string{"region": {"us"}}})
		noError(t, err)
		matching := opened(f, anna, hub.OpenInput{Target: notIn("us")})

		var seen []string
		for cursor := ""; ; {
			page, err := f.Hub.Available(bg, cid, hub.AvailableInput{ProjectRoot: project, AgentID: "cid@acme", Limit: 1, Cursor: cursor})
			noError(t, err)
			for _, w := range page.Works {
				seen = append(seen, w.Handoff.ID)
			}
			if cursor = page.NextCursor; cursor == "" {
				break
			}
		}
		if !slices.Equal(seen, []string{direct.HandoffID, matching.HandoffID}) {
			t.Fatalf("listed: %v", seen)
		}
		for _, want := range seen {
			if got := claimNext(f, cid); got == nil || got.Handoff.ID != want {
				t.Fatalf("claimed %+v, want %s", got, want)
			}
		}
		if got := claimNext(f, cid); got != nil {
			t.Fatalf("claimed what excludes it: %+v", got)
		}
	})
}

func TestNobodyFromOutsideAStrictWorkspaceVerifiesByACapability(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		reviewer := func(handle string) hub.Call {
			k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: handle, Capabilities: []string{"review"}})
			noError(t, err)
			actor, err := f.Hub.Authenticate(bg, k.Secret)
			noError(t, err)
			return hub.Call{Actor: actor}
		}
		rita, out := reviewer("rita@acme"), reviewer("out@acme")
		members(f, hub.MembersInput{Root: project, Add: []string{"anna@acme", "cid@acme"}, Strict: ptr(true)})
		id := opened(f, anna, hub.OpenInput{Criteria: []string{"green"}, VerifyBy: json.RawMessage(`{"kind":"capability","capability":"review"}`), Visibility: "private"}).HandoffID
		claim := hub.ClaimInput{ProjectRoot: project, AgentID: "cid@acme", ThreadID: id}
		_, err := f.Hub.Claim(bg, cid, claim) // both who could verify are outside
		hubtest.WantCode(t, err, handoff.CodeNotEligibleToClaim)
		members(f, hub.MembersInput{Root: project, Add: []string{"rita@acme"}})
		_, err = f.Hub.Claim(bg, cid, claim)
		noError(t, err)
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id)})
		noError(t, err)
		_, err = f.Hub.Verify(bg, out, hub.VerifyInput{HoldInput: holding(out, id), Verdict: "pass"})
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		w, err := f.Hub.Verify(bg, rita, hub.VerifyInput{HoldInput: holding(rita, id), Verdict: "pass"})
		noError(t, err)
		if w.Handoff.State != handoff.Completed {
			t.Errorf("%+v", w)
		}
	})
}

// A heap that nobody may claim is a lever on the hub's time: who reads it pays, and nobody else.
func TestWhoeverReadsAHeapInVainPaysForIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), f.Agent("cid@acme")
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range 90 {
					opened(f, anna, hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`), Visibility: "private"})
				}
			})
		}
		wg.Wait()
		last := opened(f, anna, hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`)})
		hubtest.Eventually(t, func() bool { // then the log shows what came before, too
			page, err := f.Hub.EventWait(bg, anna, hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Cursor: "0", Filters: hub.EventFilters{HandoffID: last.HandoffID}})
			noError(t, err)
			return len(page.Events) == 1
		})
		for name, read := range map[string]func(h *hub.Hub) error{
			"list": func(h *hub.Hub) error { // its own, which it may not claim
				_, err := h.Available(bg, anna, hub.AvailableInput{ProjectRoot: project, AgentID: "anna@acme"})
				return err
			},
			"events": func(h *hub.Hub) error {
				_, err := h.EventWait(bg, anna, hub.EventWaitInput{ProjectRoot: "/elsewhere", AgentID: "anna@acme", Cursor: "0"})
				return err
			},
		} {
			cfg := f.HubCfg
			cfg.CallsPerMinute, cfg.Store = 2, f.Store
			h := hub.New(cfg)
			noError(t, read(h))
			e := hubtest.WantCode(t, h.Allow(anna.Actor), handoff.CodeRateLimited)
			if e.Details["retry_after_seconds"] == nil {
				t.Fatalf("%s: %+v", name, e)
			}
			noError(t, h.Allow(cid.Actor))
		}
	})
}
