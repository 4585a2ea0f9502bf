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
	err = tx.row(`SELECT fingerprint, handoff_id, ref_id, epoch FROM idempotency WHERE actor_id = $1 AND operation = $2 AND key = $3`,
		op.Actor, op.Verb, op.Key).scan(&e.Fingerprint, &e.HandoffID, &e.RefID, &e.Epoch)
	if errors.Is(err, sql.ErrNoRows) {
		return Effect{}, false, nil
	}
	return e, err == nil, err
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
