package store

import (
	"time"

	"handclasp/internal/handoff"
)

const deskColumns = `handoff_id, slug, mode, urgency, reason, purpose, reservation_id, agent_label`

// InsertDesk stores what a handoff of the desk has besides, with the end user's contact.
func (tx *Tx) InsertDesk(d *handoff.Desk, contact handoff.Contact) error {
	if err := tx.exec("INSERT INTO desk ("+deskColumns+") VALUES ("+params(1, 8)+")",
		d.HandoffID, d.Slug, string(d.Mode), string(d.Urgency), d.Reason, d.Purpose, d.ReservationID, d.AgentLabel); err != nil {
		return err
	}
	if contact == (handoff.Contact{}) {
		return nil
	}
	return tx.exec(`INSERT INTO contacts (subject_id, name, email, phone) VALUES ($1, $2, $3, $4)`, d.HandoffID, contact.Name, contact.Email, contact.Phone)
}

// Desk reads what a handoff of the desk has besides; [handoff.CodeNotFound] for one of another door.
func (tx *Tx) Desk(handoffID string) (handoff.Desk, error) {
	var d handoff.Desk
	err := tx.row("SELECT "+deskColumns+" FROM desk WHERE handoff_id = $1", handoffID).
		scan(&d.HandoffID, &d.Slug, &d.Mode, &d.Urgency, &d.Reason, &d.Purpose, &d.ReservationID, &d.AgentLabel)
	return d, notFound(err, "handoff", handoffID)
}

// Destinations are the businesses, and the modes, of those handoffs that are of the desk.
func (tx *Tx) Destinations(ids []string) (map[string]handoff.Desk, error) {
	out := map[string]handoff.Desk{}
	if len(ids) == 0 {
		return out, nil
	}
	in, args := placeholders(ids, 1)
	err := tx.each(`SELECT handoff_id, slug, mode FROM desk WHERE handoff_id IN (`+in+`)`, args, func(r rows) error {
		var d handoff.Desk
		err := r.Scan(&d.HandoffID, &d.Slug, &d.Mode)
		out[d.HandoffID] = d
		return err
	})
	return out, err
}

// Contact reads the end user of a handoff; empty when none is known or it was erased.
func (tx *Tx) Contact(handoffID string) (handoff.Contact, error) {
	var c handoff.Contact
	err := tx.row(`SELECT name, email, phone FROM contacts WHERE subject_id = $1`, handoffID).scan(&c.Name, &c.Email, &c.Phone)
	if IsNoRows(err) {
		err = nil
	}
	return c, err
}

// LinkUse says what a person's token opens.
type LinkUse string

// The uses: the page, and the address that an e-mail is answered to.
const (
	LinkPage  LinkUse = "page"
	LinkReply LinkUse = "reply"
)

// SetLink stores the hash of a person's token in place of the last.
func (tx *Tx) SetLink(handoffID string, use LinkUse, generation int, hash string) error {
	return tx.exec(`INSERT INTO person_links (handoff_id, use, generation, hash) VALUES ($1, $2, $3, $4)
		ON CONFLICT (handoff_id, use) DO UPDATE SET generation = excluded.generation, hash = excluded.hash`, handoffID, string(use), generation, hash)
}

// LinkedHandoff is the handoff that a token opens; [sql.ErrNoRows] when there is none.
func (tx *Tx) LinkedHandoff(use LinkUse, hash string) (handoffID string, err error) {
	err = tx.row(`SELECT handoff_id FROM person_links WHERE hash = $1 AND use = $2`, hash, string(use)).scan(&handoffID)
	return handoffID, err
}

// LinkGeneration is the generation of a person's token; 0 when there is none.
func (tx *Tx) LinkGeneration(handoffID string, use LinkUse) (generation int, err error) {
	err = tx.row(`SELECT generation FROM person_links WHERE handoff_id = $1 AND use = $2`, handoffID, string(use)).scan(&generation)
	if IsNoRows(err) {
		err = nil
	}
	return generation, err
}

// SigningKey signs continuations. The newest one that has no end signs; the others verify until
// theirs.
type SigningKey struct {
	ID        string
	Secret    string // base64url
	CreatedAt time.Time
	EndsAt    time.Time // zero for the one that signs
}

// SigningKeys reads all of them, the newest first.
func (tx *Tx) SigningKeys() ([]SigningKey, error) {
	var list []SigningKey
	err := tx.each(`SELECT id, secret, created_at, ends_at FROM signing_keys ORDER BY created_at DESC, id DESC`, nil, func(r rows) error {
		var k SigningKey
		var created, ends int64
		err := r.Scan(&k.ID, &k.Secret, &created, &ends)
		k.CreatedAt, k.EndsAt = timeOf(created), timeOf(ends)
		list = append(list, k)
		return err
	})
	return list, err
}

// InsertSigningKey stores a new key and lets the others verify until the given time.
func (tx *Tx) InsertSigningKey(k *SigningKey, othersEnd time.Time) error {
	if err := tx.exec(`UPDATE signing_keys SET ends_at = $1 WHERE ends_at = 0 OR ends_at > $1`, micros(othersEnd)); err != nil {
		return err
	}
	return tx.exec(`INSERT INTO signing_keys (id, secret, created_at, ends_at) VALUES ($1, $2, $3, 0)`, k.ID, k.Secret, micros(k.CreatedAt))
}

// Continuation is a signed link that gives a handoff to its bearer once.
type Continuation struct {
	HandoffID  string
	KeyID      string
	IssuedAt   time.Time
	ExpiresAt  time.Time
	RevokedAt  time.Time
	RedeemedAt time.Time
	// RedeemerID is who redeemed it.
	RedeemerID string
	// RepeatHash recognises the same redeemer that asks again.
	RepeatHash string
	// SessionUsed is when the bearer's session was used last, SessionEnds when it is over at the latest.
	SessionUsed time.Time
	SessionEnds time.Time
}

const continuationColumns = `handoff_id, key_id, issued_at, expires_at, revoked_at, redeemed_at, redeemer_id, repeat_hash, session_used, session_ends`

// InsertContinuation stores a new one.
func (tx *Tx) InsertContinuation(c *Continuation) error {
	return tx.exec("INSERT INTO continuations ("+continuationColumns+") VALUES ($1, $2, $3, $4, 0, 0, '', '', 0, 0)",
		c.HandoffID, c.KeyID, micros(c.IssuedAt), micros(c.ExpiresAt))
}

// Continuation reads that of a handoff; [handoff.CodeNotFound] when there is none.
func (tx *Tx) Continuation(handoffID string) (Continuation, error) {
	var c Continuation
	var issued, expires, revoked, redeemed, used, ends int64
	err := tx.row("SELECT "+continuationColumns+" FROM continuations WHERE handoff_id = $1", handoffID).
		scan(&c.HandoffID, &c.KeyID, &issued, &expires, &revoked, &redeemed, &c.RedeemerID, &c.RepeatHash, &used, &ends)
	c.IssuedAt, c.ExpiresAt, c.RevokedAt, c.RedeemedAt = timeOf(issued), timeOf(expires), timeOf(revoked), timeOf(redeemed)
	c.SessionUsed, c.SessionEnds = timeOf(used), timeOf(ends)
	return c, notFound(err, "handoff", handoffID)
}

// RedeemContinuation notes who redeemed one that nobody had redeemed or revoked.
func (tx *Tx) RedeemContinuation(c *Continuation) error {
	return tx.execOne(`UPDATE continuations SET redeemed_at = $1, redeemer_id = $2, repeat_hash = $3, session_used = $4, session_ends = $5
		WHERE handoff_id = $6 AND redeemed_at = 0 AND revoked_at = 0`,
		micros(c.RedeemedAt), c.RedeemerID, c.RepeatHash, micros(c.SessionUsed), micros(c.SessionEnds), c.HandoffID)
}

// RevokeContinuation ends the link and the session that came of it.
func (tx *Tx) RevokeContinuation(handoffID string, now time.Time) error {
	return tx.exec(`UPDATE continuations SET revoked_at = $1 WHERE handoff_id = $2 AND revoked_at = 0`, micros(now), handoffID)
}

// UseContinuationSession notes that the bearer's session was used.
func (tx *Tx) UseContinuationSession(handoffID string, now time.Time) error {
	return tx.exec(`UPDATE continuations SET session_used = $1 WHERE handoff_id = $2`, micros(now), handoffID)
}
