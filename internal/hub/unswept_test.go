package hub_test

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// What the clock did counts, whether or not a sweep has written it down. No test here sweeps before
// it looks.

// firstChoice goes to an agent alone for a minute, and then to whoever offers code.
func firstChoice(handle string) json.RawMessage {
	return json.RawMessage(`{"strategy":"direct_with_fallback","agent_id":"` + handle + `","fallback_after_seconds":60,"fallback":` + codeTarget + `}`)
}

func claiming(call hub.Call, id string, lease int64) hub.ClaimInput {
	return hub.ClaimInput{ProjectRoot: project, AgentID: call.Actor.Handle, ThreadID: id, Lease: lease}
}

func getOf(call hub.Call, id string) hub.GetInput {
	return hub.GetInput{ProjectRoot: project, AgentID: call.Actor.Handle, HandoffID: id}
}

func TestTheNextClaimTakesWhatTheClockOpenedBeforeWhatIsLessUrgent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob, cid := able(f, "anna@acme"), able(f, "bob@acme"), able(f, "cid@acme")
		lapsing := opened(f, anna, hub.OpenInput{Priority: "high"}).HandoffID
		_, err := f.Hub.Claim(bg, bob, claiming(bob, lapsing, 10))
		noError(t, err)
		falling := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme")}).HandoffID
		low := opened(f, anna, hub.OpenInput{Priority: "low"}).HandoffID
		f.Clock.Advance(time.Minute)
		for _, want := range []string{lapsing, falling, low} {
			if got := claimNext(f, cid); got == nil || got.Handoff.ID != want {
				t.Fatalf("claimed %+v, want %s", got, want)
			}
		}
		if got := eventsOf(f, falling); !slices.Equal(got, []handoff.EventType{handoff.EventCreated, handoff.EventFallbackOpened, handoff.EventClaimed}) {
			t.Fatalf("events %v", got)
		}
	})
}

func TestAFallbackThatOpensBeforeTheDeadlineIsInTheLogBeforeIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob := able(f, "anna@acme"), f.Agent("bob@acme")
		before := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme"), ExpiresIn: 61}).HandoffID
		never := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme"), ExpiresIn: 60}).HandoffID
		f.Clock.Advance(time.Hour)
		_, err := f.Hub.Claim(bg, bob, claiming(bob, before, 0))
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		_, err = f.Hub.Sweep(bg)
		noError(t, err)
		if got := eventsOf(f, before); !slices.Equal(got, []handoff.EventType{handoff.EventCreated, handoff.EventFallbackOpened, handoff.EventExpired}) {
			t.Fatalf("events %v", got)
		}
		if got := eventsOf(f, never); !slices.Equal(got, []handoff.EventType{handoff.EventCreated, handoff.EventExpired}) {
			t.Fatalf("events %v", got)
		}
	})
}

func TestAFallbackDoesNotOpenWhileSomebodyHoldsTheHandoff(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob, cid := able(f, "anna@acme"), f.Agent("bob@acme"), able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme"), Visibility: "private"}).HandoffID
		_, err := f.Hub.Claim(bg, bob, claiming(bob, id, 300))
		noError(t, err)
		f.Clock.Advance(2 * time.Minute)
		_, err = f.Hub.Claim(bg, cid, claiming(cid, id, 0)) // it could never have had it
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		f.Clock.Advance(3 * time.Minute) // the lease is over, and its turn is the first choice's again
		_, err = f.Hub.Claim(bg, cid, claiming(cid, id, 0))
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		f.Clock.Advance(time.Minute)
		_, err = f.Hub.Claim(bg, cid, claiming(cid, id, 0))
		noError(t, err)
	})
}

func TestADependencyPastItsDeadlineCountsAsFailed(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := able(f, "anna@acme")
		first := opened(f, anna, hub.OpenInput{ExpiresIn: 60}).HandoffID
		in := hub.OpenInput{DependsOn: []string{first}, IdempotencyKey: "k"}
		second := opened(f, anna, in).HandoffID
		f.Clock.Advance(time.Minute)
		w, err := f.Hub.Get(bg, anna, getOf(anna, second))
		noError(t, err)
		if *w.Dependencies != (hub.DependencyCount{Total: 1, Failed: 1}) {
			t.Fatalf("dependencies %+v", *w.Dependencies)
		}
		if again := opened(f, anna, in); !again.Replay || again.Dependencies.Failed != 1 {
			t.Fatalf("replayed: %+v", again)
		}
	})
}

func TestALapsedHoldingShowsADependencyToNobody(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := able(f, "anna@acme"), able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{Visibility: "private", ExpiresIn: 60}).HandoffID
		_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 10))
		noError(t, err)
		f.Clock.Advance(time.Minute)
		_, err = f.Hub.Open(bg, cid, hub.OpenInput{ProjectRoot: project, From: "cid@acme", Target: json.RawMessage(codeTarget), Visibility: "public", DependsOn: []string{id}})
		hubtest.WantCode(t, err, handoff.CodeDependencyNotFound)
	})
}

func TestDisablingAnAgentReleasesOnlyWhatItStillHolds(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := able(f, "anna@acme"), able(f, "cid@acme")
		lapsed, held := opened(f, anna, hub.OpenInput{}).HandoffID, opened(f, anna, hub.OpenInput{}).HandoffID
		for id, lease := range map[string]int64{lapsed: 10, held: 300} {
			_, err := f.Hub.Claim(bg, cid, claiming(cid, id, lease))
			noError(t, err)
		}
		f.Clock.Advance(time.Minute)
		disable(f, "cid@acme")
		for id, want := range map[string]handoff.EventType{lapsed: handoff.EventLeaseLapsed, held: handoff.EventReleased} {
			if got := eventsOf(f, id); !slices.Equal(got, []handoff.EventType{handoff.EventCreated, handoff.EventClaimed, want}) {
				t.Errorf("events %v", got)
			}
		}
	})
}

func TestWhatIsGivenBackPastItsDeadlineHasExpired(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := able(f, "anna@acme"), able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{ExpiresIn: 60}).HandoffID
		_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 300))
		noError(t, err)
		f.Clock.Advance(2 * time.Minute)
		w, err := f.Hub.Release(bg, cid, hub.ReleaseInput{HoldInput: holding(cid, id)})
		noError(t, err)
		if w.Handoff.State != handoff.Expired {
			t.Fatalf("released: %+v", w.Handoff)
		}
	})
}
