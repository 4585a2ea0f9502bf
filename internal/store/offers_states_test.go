package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// aPool is an open handoff of the pool door that waits for whom the target lets.
func aPool(id, workspace, target string) *handoff.Handoff {
	h := &handoff.Handoff{ID: id, Door: handoff.DoorPool, State: handoff.Open, Creator: "creator", WorkspaceID: workspace, Visibility: handoff.Private, Payload: json.RawMessage(`{"for":"the holder"}`), CreatedAt: noon, UpdatedAt: noon}
	if err := json.Unmarshal([]byte(target), &h.Target); err != nil {
		panic(err)
	}
	h.Begin(noon)
	return h
}

// offersOf are the rows of one handoff, and offersIn those that it should have.
func offersOf(tx *store.Tx, id string) ([]string, error) {
	return tx.Texts(`SELECT target_key || ' ' || workspace_id || ' ' || rank || ' ' || position FROM offers WHERE handoff_id = '` + id + `' ORDER BY target_key`)
}

func offersIn(h *handoff.Handoff) (want []string) {
	for _, o := range h.Offers() {
		position := int64(0)
		if !o.Position.IsZero() {
			position = o.Position.UnixMicro()
		}
		want = append(want, fmt.Sprint(o.Key, " ", h.WorkspaceID, " ", o.Rank, " ", position))
	}
	return want
}

// moment is one thing that happens to a handoff.
type moment struct {
	Verb   string
	Passes time.Duration
}

var (
	verbs   = []string{"claim", "claim", "claim", "claim", "complete", "complete", "complete", "complete", "pass", "fail", "finish", "finish", "finish", "finish", "release", "extend", "give up", "decline", "cancel", "reassign", "disable", "depend", "depend", "break", "register", "write", "wait", "wait"}
	someDay = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) moment {
		return moment{rapid.SampledFrom(verbs).Draw(t, "verb"), rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute, time.Hour}).Draw(t, "passes")}
	}), 1, 25)
	someWork = rapid.Custom(func(t *rapid.T) *handoff.Handoff {
		h := aPool(newID("handoff"), rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "workspace"), rapid.SampledFrom([]string{
			`{"strategy":"broadcast"}`,
			`{"strategy":"direct","agent_id":"frank@acme"}`,
			`{"strategy":"capability","capability":["go","sql"]}`,
			`{"strategy":"tag","selector":[{"key":"team","operator":"NotIn","values":["x"]}]}`,
			`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"capability","capability":"go"},{"strategy":"tag","selector":{"team":["x","y"]}}]}`,
			`{"strategy":"direct_with_fallback","agent_id":"frank@acme","fallback_after_seconds":90}`,
			`{"strategy":"direct_with_fallback","agent_id":"frank@acme","fallback_after_seconds":90,"fallback":{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"frank@acme"},{"strategy":"role","role":"r"}]}}`,
		}).Draw(t, "target"))
		h.Priority = rapid.IntRange(-1, 1).Draw(t, "priority")
		h.DepsPending = rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "dependencies")
		h.FallbackAt = time.Time{}
		h.Begin(noon)
		if rapid.Bool().Draw(t, "deadline") {
			h.ExpiresAt = noon.Add(2 * time.Hour)
		}
		if rapid.SampledFrom([]bool{true, true, true, false}).Draw(t, "criteria") {
			h.Criteria = []string{"it works"}
			h.VerifyBy = rapid.SampledFrom([]*handoff.VerifyBy{{Kind: handoff.VerifyByCreator}, {Kind: handoff.VerifyByAgent, AgentID: "vera"}, {Kind: handoff.VerifyByCapability, Capability: "review"}}).Draw(t, "verify by")
		}
		return h
	})
)

// happen does to h what the moment says, or nothing if a rule forbids it.
func happen(h *handoff.Handoff, m moment, now time.Time) {
	lim := handoff.DefaultLimits()
	grace := &handoff.Agent{ID: "grace", Handle: "grace@acme", Role: "r", Capabilities: []string{"go"}, Tags: map[string][]string{"team": {"y"}}}
	frank := handoff.Actor{Kind: handoff.KindAgent, ID: "frank", Handle: "frank@acme"}
	as := func(id string) handoff.Actor { return handoff.Actor{Kind: handoff.KindAgent, ID: id} }
	h.Lapse(now)
	h.Expire(now)
	switch m.Verb {
	case "wait":
		h.OpenFallback(now)
	case "claim":
		a := grace
		if h.Epoch%2 == 0 && !h.RecipientDeclined {
			a = &handoff.Agent{ID: "frank", Handle: "frank@acme", Role: "r", Capabilities: []string{"sql"}}
		}
		_, _ = h.Claim(as(a.ID), handoff.ClaimInput{Agent: a, OtherVerifiers: 1}, now, lim)
	case "complete":
		_, _ = h.Complete(as(h.Holder), &h.Epoch, now)
	case "pass", "fail":
		verifier := &handoff.Agent{ID: "vera", Capabilities: []string{"review"}}
		if h.VerifyBy != nil && h.VerifyBy.Kind == handoff.VerifyByCreator {
			verifier.ID = h.Creator
		}
		_, _ = h.Verify(as(verifier.ID), verifier, m.Verb == "pass", "", &h.Epoch, now)
	case "finish": // the next step to its end, which single verbs seldom reach
		switch h.State {
		case handoff.Open:
			happen(h, moment{Verb: "claim"}, now)
		case handoff.Claimed:
			happen(h, moment{Verb: "complete"}, now)
		case handoff.Verifying:
			happen(h, moment{Verb: "pass"}, now)
		}
	case "release":
		_, _ = h.Release(as(h.Holder), &h.Epoch, now)
	case "extend":
		_, _ = h.Extend(as(h.Holder), 0, &h.Epoch, now, lim)
	case "give up":
		_, _ = h.Reject(as(h.Holder), "no", &h.Epoch, now)
	case "decline":
		_, _ = h.Reject(frank, "no", nil, now)
	case "cancel":
		_, _ = h.Cancel(as(h.Creator), "", false, now)
	case "reassign":
		_, _ = h.Reassign(handoff.Operator(), handoff.ReassignInput{To: grace, Reason: "so", OtherVerifiers: 1}, now)
	case "disable":
		h.ReleaseDisabled(now)
	case "depend", "break":
		if h.DepsPending > 0 {
			h.DependencyEnded(map[string]handoff.State{"depend": handoff.Completed, "break": handoff.Cancelled}[m.Verb], now)
		}
	case "register":
		h.Recipient = "frank"
	case "write":
		_, _ = h.Append(as(h.Creator), nil, false, now, lim)
	}
}

func TestWhatIsOfferedFollowsTheHandoffThroughEveryState(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		states := map[handoff.State]int{}
		through := func(h *handoff.Handoff, day []moment) error {
			return f.Write(context.Background(), func(tx *store.Tx) error {
				if err := tx.InsertHandoff(h); err != nil {
					return err
				}
				now := noon
				for i, m := range day {
					was, err := tx.LockHandoff(h.ID)
					if err != nil {
						return err
					}
					is := was
					now = now.Add(m.Passes)
					happen(&is, m, now)
					if err := tx.UpdateHandoff(&was, &is); err != nil {
						return err
					}
					got, err := offersOf(tx, h.ID)
					if err != nil {
						return err
					}
					if want := offersIn(&is); !slices.Equal(got, want) {
						return fmt.Errorf("after %v from %s to %s it is offered as %q, want %q", day[:i+1], was.State, is.State, got, want)
					}
					states[is.State]++
				}
				return nil
			})
		}
		rapid.Check(t, func(rt *rapid.T) {
			must(rt, through(someWork.Draw(rt, "handoff"), someDay.Draw(rt, "moments")))
		})
		// Chance alone does not reach every state each time.
		for _, day := range [][]moment{
			{{Verb: "finish"}, {Verb: "finish"}, {Verb: "finish"}}, {{Verb: "claim"}, {Verb: "give up"}}, {{Verb: "cancel"}}, {{Verb: "wait", Passes: 3 * time.Hour}},
		} {
			h := aPool(newID("handoff"), "w1", `{"strategy":"broadcast"}`)
			h.Criteria, h.VerifyBy, h.ExpiresAt = []string{"it works"}, &handoff.VerifyBy{Kind: handoff.VerifyByCreator}, noon.Add(2*time.Hour)
			h.Begin(noon)
			must(t, through(h, day))
		}
		for _, s := range handoff.States() {
			if states[s] == 0 {
				t.Errorf("no handoff was ever %s", s)
			}
		}
		f.read(func(tx *store.Tx) error {
			var want []string
			ids, err := tx.Texts(`SELECT id FROM handoffs ORDER BY id`)
			for _, id := range ids {
				h, err := tx.Handoff(id)
				must(t, err)
				if want = append(want, offersIn(&h)...); h.State.Terminal() && len(h.Offers()) > 0 {
					t.Errorf("%s is %s and offered", id, h.State)
				}
			}
			got, err2 := tx.Texts(`SELECT target_key || ' ' || workspace_id || ' ' || rank || ' ' || position FROM offers ORDER BY handoff_id, target_key`)
			if !slices.Equal(got, want) {
				t.Errorf("in the end there are %d rows, want %d", len(got), len(want))
			}
			return errors.Join(err, err2)
		})
	})
}

func TestAChangeThatMovesNothingOnOfferWritesNoneOfIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		h := aPool("h", "w", `{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"capability","capability":"go"}]}`)
		f.write(func(tx *store.Tx) error { return tx.InsertHandoff(h) })
		f.write(func(tx *store.Tx) error { return tx.Exec(`DELETE FROM offers`) }) // it would be put back
		f.write(func(tx *store.Tx) error {
			was, err := tx.LockHandoff("h")
			must(t, err)
			is := was
			is.Messages, is.EventSeq, is.UpdatedAt = 2, 2, noon.Add(time.Second)
			must(t, tx.UpdateHandoff(&was, &is))
			if rows, err := offersOf(tx, "h"); err != nil || len(rows) > 0 {
				t.Errorf("written anew: %q (%v)", rows, err)
			}
			return nil
		})
	})
}
