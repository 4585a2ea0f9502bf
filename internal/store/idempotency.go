package store

import (
	"database/sql"
	"errors"
	"time"
)

// Operation names one effect: who did what under which key. The key is empty when the caller
// gave none.
type Operation struct {
	Actor string
	Verb  string
	Key   string
}

// Effect is what a key stands for: ids only, never content or credentials.
type Effect struct {
	Fingerprint string
	HandoffID   string
	// RefID is the draft that came of it; empty for others.
	RefID string
	// Epoch is the claim epoch that came of it; for a message, its sequence number.
	Epoch int
}

// Effect reads what was done under the key; found is false when nothing was.
func (tx *Tx) Effect(op Operation) (e Effect, found bool, err error) {
	if op.Key == "" {
		return Effect{}, false, nil
	}
	err = tx.row(effectQuery, op.Actor, op.Verb, op.Key).scan(&e.Fingerprint, &e.HandoffID, &e.RefID, &e.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return Effect{}, false, nil
	}
	return e, err == nil, err
}

const effectQuery = `SELECT fingerprint, handoff_id, ref_id, epoch FROM idempotency WHERE actor_id = $1 AND operation = $2 AND key = $3`

// ExpectEffect announces [Tx.Effect].
func (tx *Tx) ExpectEffect(op Operation) {
	if op.Key != "" {
		tx.e.expect(effectQuery, []any{op.Actor, op.Verb, op.Key})
	}
}

// HoldKey keeps the key until the end of tx, so that two calls with one key do not meet when they
// write it down. It waits for another that holds it; in a shared transaction that is [ErrWaits].
func (tx *Tx) HoldKey(op Operation) error {
	if op.Key == "" || tx.Alone() {
		return nil
	}
	free := true
	query := `SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0))`
	if tx.MayWait() {
		query = `SELECT pg_advisory_xact_lock(hashtextextended($1, 0)) IS NOT NULL`
	}
	if err := tx.row(query, op.Actor+" "+op.Verb+" "+op.Key).scan(&free); err != nil || free {
		return err
	}
	return ErrWaits
}

// InsertEffect binds the key to what was done. Two at once: the second fails on the unique
// key, and its transaction runs again and finds the first.
func (tx *Tx) InsertEffect(op Operation, e Effect, now time.Time) error {
	if op.Key == "" {
		return nil
	}
	return tx.exec(`INSERT INTO idempotency (actor_id, operation, key, fingerprint, handoff_id, ref_id, epoch, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
		op.Actor, op.Verb, op.Key, e.Fingerprint, e.HandoffID, e.RefID, e.Epoch, micros(now))
}

// PurgeEffects forgets keys older than before, at most limit of them.
func (tx *Tx) PurgeEffects(before time.Time, limit int) error {
	return tx.exec(`DELETE FROM idempotency WHERE operation <> 'initiate' AND (actor_id, operation, key) IN
		(SELECT actor_id, operation, key FROM idempotency WHERE created_at < $1 AND operation <> 'initiate' LIMIT $2)`, micros(before), limit)
}
