package store_test

import (
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

const (
	oneSpace     = "00000000000000aa0000000000000001"
	anotherSpace = "ffffffffffffffff0000000000000002"
)

// createIn creates a handoff as a use case does, in the workspace that an id stands for.
func createIn(tx *store.Tx, id string, in *string) error {
	if err := tx.KeepWorkspace(oneSpace); err != nil {
		return err
	}
	w, _, err := tx.Workspace(oneSpace, "")
	if err != nil {
		return err
	}
	*in = w.ID
	if w.Root == "" {
		w.Root, w.CreatedAt = "/one", noon
		if err := tx.AddWorkspace(&w); err != nil {
			return err
		}
	}
	return tx.InsertHandoff(&handoff.Handoff{
		ID: id, Door: handoff.DoorPool, State: handoff.Open, Creator: "a", WorkspaceID: w.ID, Target: &handoff.Target{Strategy: handoff.StrategyBroadcast}, CreatedAt: noon, UpdatedAt: noon,
	})
}

func join(tx *store.Tx) error {
	if err := tx.LockWorkspace(oneSpace); err != nil {
		return err
	}
	for id, root := range map[string]string{oneSpace: "/one", anotherSpace: "/another"} {
		if err := tx.AddWorkspace(&store.Workspace{ID: id, Root: root, CreatedAt: noon}); err != nil {
			return err
		}
	}
	return tx.SetAlias(oneSpace, anotherSpace)
}

func TestAWorkspaceThatIsBeingCreatedInBecomesNoAliasBeforeThat(t *testing.T) {
	t.Parallel()
	f, db := onPostgres(t)
	in, moved := "", 0
	f.write(func(tx *store.Tx) error {
		return tx.AddWorkspace(&store.Workspace{ID: oneSpace, Root: "/one", CreatedAt: noon})
	})
	whileOpen(t, f, db,
		func(tx *store.Tx) error { return createIn(tx, "h1", &in) },
		func(tx *store.Tx) error {
			if err := join(tx); err != nil {
				return err
			}
			list, err := tx.MovePool(oneSpace, anotherSpace, 10)
			moved = len(list)
			return err
		})
	if in != oneSpace || moved != 1 {
		t.Errorf("created in %s, and %d moved", in, moved)
	}
}

func TestWhatIsCreatedDuringAnAliasIsInWhatItStandsFor(t *testing.T) {
	t.Parallel()
	f, db := onPostgres(t)
	in := ""
	whileOpen(t, f, db, join, func(tx *store.Tx) error { return createIn(tx, "h1", &in) })
	if in != anotherSpace {
		t.Errorf("created in %s", in)
	}
}

func TestMovedHandoffsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	onEachAtNoon(t, func(t *testing.T, f *fixture) {
		in := ""
		f.write(func(tx *store.Tx) error {
			for _, id := range []string{"h1", "h2", "h3"} {
				if err := createIn(tx, id, &in); err != nil {
					return err
				}
			}
			return join(tx)
		})
		offered := func(workspace string) (n int) {
			f.read(func(tx *store.Tx) error {
				list, err := tx.Offered(workspace, []string{"any"}, store.Start, 10)
				n = len(list)
				return err
			})
			return n
		}
		for i, want := range []int{2, 1, 0} { // at most two at a time
			f.write(func(tx *store.Tx) error {
				scattered, err := tx.Scattered()
				if (scattered[oneSpace] == anotherSpace) != (i < 2) {
					t.Errorf("scattered: %v", scattered)
				}
				must(t, err)
				list, err := tx.MovePool(oneSpace, anotherSpace, 2)
				if len(list) != want {
					t.Errorf("%d moved, want %d", len(list), want)
				}
				return err
			})
			if here, there := offered(oneSpace), offered(anotherSpace); here+there != 3 || there != min(3, 2*(i+1)) {
				t.Errorf("%d offered here, %d there", here, there)
			}
		}
	})
}
