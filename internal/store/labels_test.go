package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// agent puts an agent into the database, active or not.
func agent(t *testing.T, f *fixture, a handoff.Agent) {
	t.Helper()
	if a.Handle == "" {
		a.Handle = a.ID + "@acme"
	}
	f.write(func(tx *store.Tx) error {
		if err := tx.InsertAgent(&store.AgentRow{Agent: a}, noon); err != nil || !a.Disabled {
			return err
		}
		return tx.SetDisabled(a.ID, true, noon)
	})
}

func TestAWordIsKnownAsItIsOrWhereASegmentStandsBelowIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		agent(t, f, handoff.Agent{ID: "anna", Capabilities: []string{"go", "review/deep"}, Tags: map[string][]string{"team": {"ENG/BACKEND", "É/ü"}, "a/b": {"x"}}})
		f.write(func(tx *store.Tx) error { return tx.AddToCatalog(store.CatalogCapability, "go") }) // once more is no fault
		for kind, words := range map[string]map[string]bool{
			store.CatalogCapability: {"go": true, "Go": false, "g": false, "review": false, "review/deep": true, "": false, "team": false},
			store.CatalogTag:        {"team": true, "a": false, "a/b": true, "go": false},
			store.CatalogTagValue: {
				"team=ENG": true, "team=ENG/BACKEND": true, "team=É": true, "a/b=x": true,
				"team=ENGX": false, "team=EN": false, "team=ENG/": false, "team=ENG/BACK": false, "team=ENG/BACKEND/GO": false, "team=eng": false, "team=": false, "team": false, "ENG": false,
			},
		} {
			f.read(func(tx *store.Tx) error {
				known, err := tx.InCatalog(kind, slices.Collect(maps.Keys(words)))
				for word, want := range words {
					if known[word] != want {
						t.Errorf("%s %q is known: %v", kind, word, known[word])
					}
				}
				return err
			})
		}
		// More than one statement asks for.
		var many []string
		for i := range 250 {
			many = append(many, fmt.Sprint("none-", i))
		}
		f.read(func(tx *store.Tx) error {
			known, err := tx.InCatalog(store.CatalogCapability, append(many, "go"))
			if len(known) != 1 || !known["go"] {
				t.Errorf("of many %v are known", known)
			}
			return err
		})
	})
}

func TestAWordIsLookedUpWithoutReadingTheCatalog(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	f.read(func(tx *store.Tx) error {
		plan, err := tx.Explain(func(tx *store.Tx) error {
			_, err := tx.InCatalog(store.CatalogTagValue, []string{"team=ENG", "team=OPS"})
			return err
		})
		for _, walk := range []string{"SEARCH c USING PRIMARY KEY (kind=? AND name=?)", "SEARCH c USING PRIMARY KEY (kind=? AND name>? AND name<?)"} {
			if !strings.Contains(plan, walk) {
				t.Errorf("no %s in\n%s", walk, plan)
			}
		}
		return err
	})
}

func TestAnAgentIsReadWithItsLabelsAndItsPlaceInTheWorkspace(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		want := handoff.Agent{
			ID: "anna", Handle: "Anna@Acme", Name: "Anna", Role: "lead", Skills: []string{"go"}, Repos: []string{"acme/api"}, Unlisted: true,
			Capabilities: []string{"deploy", "review"}, Tags: map[string][]string{"area": {"eu", "us"}, "team": {"ENG/BACKEND"}},
		}
		agent(t, f, want)
		agent(t, f, handoff.Agent{ID: "bare", Disabled: true})
		f.write(func(tx *store.Tx) error {
			return tx.Exec(`INSERT INTO workspaces (id, root, alias_of, strict, created_at) VALUES ('open', '/o', '', 0, 1), ('mine', '/m', '', 1, 1), ('theirs', '/t', '', 1, 1)`,
				`INSERT INTO workspace_members (workspace_id, agent_id) VALUES ('mine', 'anna'), ('theirs', 'bare')`)
		})
		f.read(func(tx *store.Tx) error {
			for workspace, outside := range map[string]bool{"": false, "unknown": false, "open": false, "mine": false, "theirs": true} {
				want.Outside = outside
				got, err := tx.AgentIn("anna", workspace)
				must(t, err)
				wantSame(t, "the agent in "+workspace, got, want)
				_, got, err = tx.Claimant("anna", workspace)
				must(t, err)
				wantSame(t, "the claimant in "+workspace, got, want)
			}
			bare, err := tx.AgentIn("bare", "mine")
			must(t, err)
			wantSame(t, "the bare agent", bare, handoff.Agent{ID: "bare", Handle: "bare@acme", Disabled: true, Outside: true})
			if _, err := tx.AgentIn("nobody", "open"); handoff.CodeOf(err) != handoff.CodeNotFound {
				t.Errorf("nobody is answered %v", err)
			}
			if _, _, err := tx.Claimant("nobody", "open"); handoff.CodeOf(err) != handoff.CodeNotFound {
				t.Errorf("nobody claims, answered %v", err)
			}
			active, err := tx.ActiveAgents()
			want.Outside = false
			if len(active) != 1 {
				t.Fatalf("%d agents are active", len(active))
			}
			wantSame(t, "the active agent", active[0].Agent, want)
			members, err2 := tx.Members("theirs")
			wantSame(t, "the members", members, []string{"bare"})
			if err == nil {
				err = err2
			}
			return err
		})
	})
}

func TestOnlyActiveAgentsOfTheWorkspaceOfferACapability(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		for _, a := range []handoff.Agent{
			{ID: "c", Capabilities: []string{"review"}},
			{ID: "a", Capabilities: []string{"review", "go"}},
			{ID: "b", Capabilities: []string{"review"}, Disabled: true},
			{ID: "d", Tags: map[string][]string{"review": {"review"}}},
			{ID: "e", Capabilities: []string{"Review"}},
		} {
			agent(t, f, a)
		}
		f.write(func(tx *store.Tx) error {
			return tx.Exec(`INSERT INTO workspaces (id, root, alias_of, strict, created_at) VALUES ('open', '/o', '', 0, 1), ('closed', '/c', '', 1, 1), ('empty', '/e', '', 1, 1)`,
				`INSERT INTO workspace_members (workspace_id, agent_id) VALUES ('closed', 'c'), ('closed', 'b'), ('closed', 'd'), ('open', 'd')`)
		})
		for workspace, want := range map[string][]string{"open": {"a", "c"}, "unknown": {"a", "c"}, "closed": {"c"}, "empty": nil} {
			f.read(func(tx *store.Tx) error {
				for _, besides := range []string{"a", "b", "c", "d", ""} {
					others := slices.DeleteFunc(slices.Clone(want), func(id string) bool { return id == besides })
					if n, err := tx.OtherVerifiers("review", workspace, besides); err != nil || n != len(others) {
						t.Errorf("in %s besides %s there are %d (%v), want %v", workspace, besides, n, err, others)
					}
				}
				for limit := 1; limit <= 3; limit++ {
					if list, err := tx.Offering("review", workspace, limit); err != nil || !slices.Equal(list, want[:min(limit, len(want))]) {
						t.Errorf("in %s the first %d are %v (%v)", workspace, limit, list, err)
					}
				}
				return nil
			})
		}
	})
}

func TestWhatWaitsForAHandleIsFoundOnceItIsRegistered(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		const target = `{"strategy":"direct_with_fallback","agent_id":"Late@Acme","fallback_after_seconds":60}`
		known := aPool("known", "w", target)
		known.Recipient = "somebody"
		blocked := aPool("blocked", "w", target)
		blocked.DepsPending = 1
		taken := aPool("taken", "w", target)
		for _, h := range []*handoff.Handoff{aPool("b", "w", target), aPool("a", "other", target), known, blocked, taken, aPool("else", "w", strings.Replace(target, "Late", "Later", 1))} {
			f.write(func(tx *store.Tx) error { return tx.InsertHandoff(h) })
		}
		must(t, f.Write(context.Background(), func(tx *store.Tx) error {
			was, err := tx.LockHandoff("taken")
			must(t, err)
			now := was
			now.State, now.Holder, now.Epoch = handoff.Claimed, "somebody", 1
			return tx.UpdateHandoff(&was, &now)
		}))
		f.read(func(tx *store.Tx) error {
			for limit, want := range map[int][]string{1: {"a"}, 10: {"a", "b"}} {
				if list, err := tx.AwaitedBy("LATE@acme", limit); err != nil || !slices.Equal(list, want) {
					t.Errorf("the first %d are %v (%v)", limit, list, err)
				}
			}
			if list, err := tx.AwaitedBy("nobody@acme", 10); err != nil || len(list) > 0 {
				t.Errorf("nobody is awaited by %v (%v)", list, err)
			}
			return nil
		})
	})
}
