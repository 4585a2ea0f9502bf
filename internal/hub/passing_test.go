package hub_test

import (
	"encoding/json"
	"testing"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// One call looks at so many that do not fit; what stands behind a larger heap is found by the next ones.
func TestWhatStandsBehindAHeapThatDoesNotFitIsClaimedInTheEnd(t *testing.T) {
	t.Parallel()
	for name, heap := range map[string]struct {
		creator string
		in      hub.OpenInput
	}{
		"its own":        {"bob@acme", hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`)}},
		"exclusions":     {"anna@acme", hub.OpenInput{Target: json.RawMessage(`{"strategy":"tag","selector":[{"key":"team","operator":"NotIn","values":["blue"]}]}`)}},
		"only it judges": {"anna@acme", hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`), Criteria: criteria, VerifyBy: json.RawMessage(`{"kind":"agent","agent_id":"bob@acme"}`)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
				f.Hub.ScanMost(100)
				agents := map[string]hub.Call{"anna@acme": f.Agent("anna@acme")}
				k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: "bob@acme", Tags: map[string][]string{"team": {"blue"}}})
				noError(t, err)
				actor, err := f.Hub.Authenticate(bg, k.Secret)
				noError(t, err)
				bob := hub.Call{Actor: actor}
				agents["bob@acme"] = bob
				for range 400 {
					openedIn(f, project, agents[heap.creator], heap.in)
				}
				id := openedIn(f, project, agents["anna@acme"], hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`)})
				for range 2 { // also when the search has come to its end and begins anew
					var got hub.ClaimResult
					for tries := 0; got.Work == nil; tries++ {
						if tries > 10 {
							t.Fatal("nothing is claimed")
						}
						got, err = f.Hub.Claim(bg, bob, hub.ClaimInput{ProjectRoot: project, AgentID: "bob@acme"})
						noError(t, err)
					}
					if got.Work.Handoff.ID != id {
						t.Fatalf("%s is claimed", got.Work.Handoff.ID)
					}
					back := holding(bob, id)
					back.ClaimEpoch = &got.Work.Handoff.Epoch
					_, err = f.Hub.Release(bg, bob, hub.ReleaseInput{HoldInput: back})
					noError(t, err)
				}
			})
		})
	}
}
