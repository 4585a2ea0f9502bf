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

// What lies before the place where the last search stopped is found too, whatever is done behind it.
func TestAHandoffThatIsFreeAgainInFrontOfAHeapIsClaimed(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Hub.ScanMost(100)
		anna, bob, cid := f.Agent("anna@acme"), able(f, "bob@acme"), able(f, "cid@acme")
		everybody := hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`)}
		middle := ""
		for i := range 300 {
			if i == 160 {
				middle = openedIn(f, project, anna, everybody)
			}
			openedIn(f, project, bob, everybody)
			openedIn(f, otherRoot, bob, everybody)
		}
		next := func(root string) string {
			got, err := f.Hub.Claim(bg, bob, hub.ClaimInput{ProjectRoot: root, AgentID: "bob@acme"})
			noError(t, err)
			if got.Work == nil {
				return ""
			}
			return got.Work.Handoff.ID
		}
		_, err := f.Hub.Claim(bg, cid, hub.ClaimInput{ProjectRoot: project, AgentID: "cid@acme", ThreadID: middle})
		noError(t, err)
		for range 6 { // a place is kept, in each project
			if id := next(project) + next(otherRoot); id != "" {
				t.Fatalf("%s is claimed", id)
			}
		}
		_, err = f.Hub.Release(bg, cid, hub.ReleaseInput{HoldInput: holding(cid, middle)})
		noError(t, err)
		for tries := 0; ; tries++ {
			if tries > 10 {
				t.Fatal("it is never claimed")
			}
			openedIn(f, project, anna, everybody)
			next(otherRoot)
			if next(project) == middle {
				return
			}
		}
	})
}
