package store_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// waiting puts four handoffs into the database, of which two wait for others.
func waiting(t *testing.T, f *fixture) {
	t.Helper()
	f.write(func(tx *store.Tx) error {
		var errs []error
		for _, id := range []string{"a", "b", "c", "d"} {
			errs = append(errs, tx.InsertHandoff(aPool(id, "w", `{"strategy":"broadcast"}`)))
		}
		for _, pair := range [][2]string{{"d", "b"}, {"d", "a"}, {"c", "a"}} {
			errs = append(errs, tx.InsertDependency(pair[0], pair[1]))
		}
		return errors.Join(errs...)
	})
}

func TestWhoWaitsForWhomIsReadBothWays(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		waiting(t, f)
		f.read(func(tx *store.Tx) error {
			for id, want := range map[string][]string{"a": {"c", "d"}, "b": {"d"}, "c": nil, "none": nil} {
				if got, err := tx.Dependents(id); err != nil || !slices.Equal(got, want) {
					t.Errorf("for %s wait %v (%v)", id, got, err)
				}
			}
			got, err := tx.Dependencies([]string{"d", "c", "a", "none"})
			must(t, err)
			if len(got) != 2 || !slices.Equal(idsOf(got["d"]), []string{"a", "b"}) || !slices.Equal(idsOf(got["c"]), []string{"a"}) {
				t.Errorf("they wait for %v", got)
			}
			if got["d"][0].Payload != nil || got["d"][0].WorkspaceID != "w" {
				t.Errorf("what d waits for is read as %+v", got["d"][0])
			}
			none, err := tx.Dependencies(nil)
			if len(none) > 0 {
				t.Errorf("nothing waits for %v", none)
			}
			return err
		})
		wantUnavailable(t, "a dependency twice", f.Write(context.Background(), func(tx *store.Tx) error { return tx.InsertDependency("d", "a") }), nothing)
	})
}

func TestDependenciesAreLockedInTheOrderOfTheirIDs(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		waiting(t, f)
		f.write(func(tx *store.Tx) error {
			list, err := tx.LockDependencies([]string{"c", "nobody", "a", "bro\xffken", "with\x00nul", "c"})
			if got := idsOf(list); !slices.Equal(got, []string{"a", "c"}) {
				t.Errorf("locked are %q", got)
			}
			must(t, err)
			for _, none := range [][]string{nil, {"\x00"}} {
				if list, err := tx.LockDependencies(none); err != nil || len(list) > 0 {
					t.Errorf("of %q are locked %v (%v)", none, list, err)
				}
			}
			return nil
		})
	})
}

// A creation that counts what is still pending must not miss an end, nor an end the new dependent.
func TestWhatOthersWereToDependOnEndsAfterTheyWereWrittenDown(t *testing.T) {
	t.Parallel()
	f, db := onPostgres(t)
	waiting(t, f)
	ended := make(chan error, 1)
	var after atomic.Bool
	f.write(func(tx *store.Tx) error {
		if _, err := tx.LockDependencies([]string{"a"}); err != nil {
			return err
		}
		f.write(func(other *store.Tx) error { // two that depend on the same do not wait for each other
			list, err := other.LockDependencies([]string{"a", "b"})
			if len(list) != 2 {
				t.Errorf("the other locks %v", idsOf(list))
			}
			return err
		})
		go func() {
			ended <- f.Write(context.Background(), func(tx *store.Tx) error {
				was, err := tx.LockHandoff("a")
				if err != nil {
					return err
				}
				if !after.Load() {
					t.Error("it ended under a creation")
				}
				is := was
				is.State, is.EndedBy = handoff.Cancelled, "creator"
				if err := tx.UpdateHandoff(&was, &is); err != nil {
					return err
				}
				if ids, err := tx.Dependents("a"); err != nil || !slices.Contains(ids, "new") {
					t.Errorf("the end tells %v (%v)", ids, err)
				}
				return nil
			})
		}()
		eventually(t, "the end waits for the creation", func() bool {
			var n int
			must(t, db.QueryRow(`SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE NOT l.granted AND a.datname = current_database()`).Scan(&n))
			return n > 0
		})
		h := aPool("new", "w", `{"strategy":"broadcast"}`)
		h.DepsPending = 1
		after.Store(true)
		return errors.Join(tx.InsertHandoff(h), tx.InsertDependency("new", "a"))
	})
	must(t, <-ended)
}
