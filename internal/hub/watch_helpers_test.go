package hub_test

import (
	"database/sql"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// foreign writes n events into the log that no agent may see.
func foreign(f *hubtest.Fixture, n int) {
	f.T.Helper()
	noError(f.T, f.Store.Write(bg, func(tx *store.Tx) error {
		for range n {
			if err := tx.InsertEvent(&handoff.Event{Type: handoff.EventKeyRevoked, ActorID: handoff.Operator().ID, SubjectID: "x", At: tx.Now()}); err != nil {
				return err
			}
		}
		return nil
	}))
}

// olderTransaction keeps what is committed from now on from the readers of the log, until the
// function is called. On SQLite nothing can.
func olderTransaction(t *testing.T, f *hubtest.Fixture) (end func()) {
	t.Helper()
	if f.Store.Kind() != "postgres" {
		return func() {}
	}
	db, err := sql.Open("pgx", f.Config.URL)
	noError(t, err)
	tx, err := db.BeginTx(bg, nil)
	noError(t, err)
	var id string
	noError(t, tx.QueryRowContext(bg, `SELECT pg_current_xact_id()::text`).Scan(&id))
	end = sync.OnceFunc(func() {
		_ = tx.Rollback()
		_ = db.Close()
	})
	t.Cleanup(end)
	return end
}
