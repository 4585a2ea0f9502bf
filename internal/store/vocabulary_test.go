package store_test

import (
	"context"
	"database/sql"
	"slices"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// whileOpen runs first, and second while the transaction of first is still open. Second must wait for
// its end, or get to its own.
func whileOpen(t *testing.T, f *fixture, db *sql.DB, first, second func(*store.Tx) error) {
	t.Helper()
	begun, goOn, ends := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		ends <- f.Write(context.Background(), func(tx *store.Tx) error {
			if err := first(tx); err != nil {
				return err
			}
			_, err := tx.UnreadTotal("nobody") // sends what is queued
			close(begun)
			<-goOn
			return err
		})
	}()
	<-begun
	over := make(chan struct{})
	go func() {
		defer close(over)
		ends <- f.Write(context.Background(), second)
	}()
	eventually(t, "the second waits, or has ended", func() bool {
		select {
		case <-over:
			return true
		default:
		}
		var waiting int
		must(t, db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting))
		return waiting > 0
	})
	close(goOn)
	must(t, <-ends)
	must(t, <-ends)
}

func TestARemovalSeesWhoIsGivenTheWordMeanwhile(t *testing.T) {
	t.Parallel()
	f, db := onPostgres(t)
	give := func(tx *store.Tx) error {
		return tx.InsertAgent(&store.AgentRow{Agent: handoff.Agent{ID: "a", Handle: "anna@acme", Capabilities: []string{"review"}, Tags: map[string][]string{"team": {"x"}}}}, noon)
	}
	f.write(func(tx *store.Tx) error {
		for kind, name := range map[string]string{store.CatalogCapability: "review", store.CatalogTag: "team", store.CatalogTagValue: "team=x"} {
			if err := tx.AddToCatalog(kind, name); err != nil {
				return err
			}
		}
		return nil
	})
	whileOpen(t, f, db, give, func(tx *store.Tx) error {
		for kind, name := range map[string]string{store.CatalogCapability: "review", store.CatalogTag: "team", store.CatalogTagValue: "team=x"} {
			must(t, tx.RemoveFromCatalog(kind, name))
			bearers, err := tx.Bearers(kind, name)
			if err != nil || !slices.Equal(bearers, []string{"anna@acme"}) {
				t.Errorf("%s %s is borne by %v, %v", kind, name, bearers, err)
			}
		}
		return nil
	})
}
