package store_test

import (
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

func TestAWorkspaceIsFoundByItsAliasesAndAdmitsItsMembers(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		agent(t, f, handoff.Agent{ID: "anna"})
		agent(t, f, handoff.Agent{ID: "frank"})
		f.write(func(tx *store.Tx) error {
			return tx.Exec(`INSERT INTO workspaces (id, root, alias_of, strict, created_at) VALUES
				('open', '/open', '', 0, 1000000), ('closed', '/closed', '', 1, 2000000), ('empty', '/empty', '', 1, 3000000),
				('worktree', '/elsewhere', 'closed', 0, 4000000), ('twin', '/twin', 'open', 1, 5000000)`,
				`INSERT INTO workspace_members (workspace_id, agent_id) VALUES ('closed', 'anna'), ('open', 'frank'), ('worktree', 'frank')`)
		})
		is := map[string]store.Workspace{
			"open":   {ID: "open", Root: "/open", CreatedAt: time.Unix(1, 0).UTC()},
			"closed": {ID: "closed", Root: "/closed", Strict: true, CreatedAt: time.Unix(2, 0).UTC()},
			"empty":  {ID: "empty", Root: "/empty", Strict: true, CreatedAt: time.Unix(3, 0).UTC()},
			"new":    {ID: "new"},
		}
		for _, test := range []struct {
			id, who, stands string
			member          bool
		}{
			{"open", "anna", "open", true},
			{"open", "nobody", "open", true},
			{"closed", "anna", "closed", true},
			{"closed", "frank", "closed", false},
			{"closed", "", "closed", false},
			{"empty", "anna", "empty", false},
			{"new", "anna", "new", true},
			// What an alias says of itself does not count.
			{"worktree", "anna", "closed", true},
			{"worktree", "frank", "closed", false},
			{"twin", "anna", "open", true},
		} {
			f.read(func(tx *store.Tx) error {
				w, member, err := tx.Workspace(test.id, test.who)
				must(t, err)
				if w != is[test.stands] || member != test.member {
					t.Errorf("%s for %s is %+v, may use it %v", test.id, test.who, w, member)
				}
				admits, err := tx.Admits(test.stands, test.who)
				if admits != test.member {
					t.Errorf("%s admits %s: %v", test.stands, test.who, admits)
				}
				if test.who == "anna" || test.who == "frank" { // both at once
					w, a, err := tx.Claimant(test.who, test.id)
					must(t, err)
					if w != is[test.stands] || a.ID != test.who || a.Outside == test.member {
						t.Errorf("%s for %+v is %+v", test.id, a, w)
					}
				}
				return err
			})
		}
	})
}

func TestAWorkspaceKeepsTheRootOfItsFirstUse(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		first := store.Workspace{ID: "w", Root: `C:\App`, CreatedAt: noon}
		for _, w := range []store.Workspace{first, {ID: "w", Root: `C:\APP`, CreatedAt: noon.Add(time.Hour), Strict: true}} {
			f.write(func(tx *store.Tx) error { return tx.AddWorkspace(&w) })
		}
		f.read(func(tx *store.Tx) error {
			got, member, err := tx.Workspace("w", "anna")
			if got != first || !member {
				t.Errorf("it is %+v, open to all %v", got, member)
			}
			return err
		})
	})
}
