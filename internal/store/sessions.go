package store

import "time"

// Session is one that an agent opened, to say in which of its runs it does what. Hash is of its
// secret, which is kept nowhere.
type Session struct {
	ID          string
	AgentID     string
	WorkspaceID string
	Hash        string
	OpenedAt    time.Time
	// LastSeenAt may be some seconds behind: uses are written down in bundles.
	LastSeenAt time.Time
	ClosedAt   time.Time // zero while it is open, idle ones included
}

const sessionColumns = `id, agent_id, workspace_id, hash, opened_at, last_seen_at, closed_at`

func scanSession(r rows) (Session, error) {
	var s Session
	var opened, seen, closed int64
	err := r.Scan(&s.ID, &s.AgentID, &s.WorkspaceID, &s.Hash, &opened, &seen, &closed)
	s.OpenedAt, s.LastSeenAt, s.ClosedAt = timeOf(opened), timeOf(seen), timeOf(closed)
	return s, err
}

// InsertSession notes a new session, seen when it was opened.
func (tx *Tx) InsertSession(s *Session) error {
	return tx.exec("INSERT INTO sessions ("+sessionColumns+") VALUES ($1, $2, $3, $4, $5, $5, 0)",
		s.ID, s.AgentID, s.WorkspaceID, s.Hash, micros(s.OpenedAt))
}

// Session reads a session; found is false when nobody ever opened it.
func (tx *Tx) Session(id string) (s Session, found bool, err error) { return tx.session(id, "") }

// LockSession is [Tx.Session], and keeps others from changing it until the end of tx.
func (tx *Tx) LockSession(id string) (s Session, found bool, err error) {
	return tx.session(id, tx.d.forUpdate())
}

func (tx *Tx) session(id, lock string) (s Session, found bool, err error) {
	if !storable(id) {
		return s, false, nil
	}
	err = tx.each("SELECT "+sessionColumns+" FROM sessions WHERE id = $1"+lock, []any{id}, func(r rows) error {
		found = true
		s, err = scanSession(r)
		return err
	})
	return s, found, err
}

// LockOpenSessions reads the sessions of an agent that are not closed, idle ones included, in the
// order of their ids, and keeps others from changing them until the end of tx.
func (tx *Tx) LockOpenSessions(agentID string) ([]Session, error) {
	var list []Session
	err := tx.each("SELECT "+sessionColumns+" FROM sessions WHERE agent_id = $1 AND closed_at = 0 ORDER BY id"+tx.d.forUpdate(), []any{agentID}, func(r rows) error {
		s, err := scanSession(r)
		list = append(list, s)
		return err
	})
	return list, err
}

// IdleSessions names the sessions that are not closed and were last seen at that time or earlier,
// at most limit.
func (tx *Tx) IdleSessions(since time.Time, limit int) ([]string, error) {
	return tx.ids(`SELECT id FROM sessions WHERE closed_at = 0 AND last_seen_at <= $1 ORDER BY last_seen_at, id LIMIT $2`, micros(since), limit)
}

// SawSession notes a use of an open session. An earlier one than the last changes nothing.
func (tx *Tx) SawSession(id string, at time.Time) error {
	return tx.exec(`UPDATE sessions SET last_seen_at = $1 WHERE id = $2 AND closed_at = 0 AND last_seen_at < $1`, micros(at), id)
}

// CloseSession closes an open session. Closing again changes nothing.
func (tx *Tx) CloseSession(id string, now time.Time) error {
	return tx.exec(`UPDATE sessions SET closed_at = $1 WHERE id = $2 AND closed_at = 0`, micros(now), id)
}
