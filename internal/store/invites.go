package store

import (
	"database/sql"
	"time"
)

// Invite is a one-time join link. Its token is kept nowhere: it is signed over the id.
type Invite struct {
	ID     string // the jti of the token
	Handle string // what the new agent will be called
	Name   string
	Role   string
	// InviterID is the agent that invites, or the operator.
	InviterID string
	// AgentID is who joined; empty while the link is open.
	AgentID    string
	CreatedAt  time.Time
	ExpiresAt  time.Time
	RedeemedAt time.Time
}

const inviteColumns = `id, handle, name, role, inviter_id, agent_id, created_at, expires_at, redeemed_at`

type inviteScan struct {
	i                          Invite
	created, expires, redeemed int64
}

func (s *inviteScan) dest() []any {
	return []any{&s.i.ID, &s.i.Handle, &s.i.Name, &s.i.Role, &s.i.InviterID, &s.i.AgentID, &s.created, &s.expires, &s.redeemed}
}

func (s *inviteScan) value() Invite {
	s.i.CreatedAt, s.i.ExpiresAt, s.i.RedeemedAt = timeOf(s.created), timeOf(s.expires), timeOf(s.redeemed)
	return s.i
}

// InsertInvite stores a new join link.
func (tx *Tx) InsertInvite(i *Invite) error {
	return tx.exec("INSERT INTO invites ("+inviteColumns+") VALUES ("+params(1, 9)+")",
		i.ID, i.Handle, i.Name, i.Role, i.InviterID, i.AgentID, micros(i.CreatedAt), micros(i.ExpiresAt), micros(i.RedeemedAt))
}

// LockInvite reads a join link and keeps others from redeeming it until the end of tx;
// [sql.ErrNoRows] when there is none.
func (tx *Tx) LockInvite(id string) (Invite, error) {
	if !storable(id) {
		return Invite{}, sql.ErrNoRows
	}
	var s inviteScan
	err := tx.row("SELECT "+inviteColumns+" FROM invites WHERE id = $1"+tx.d.forUpdate(), id).scan(s.dest()...)
	return s.value(), err
}

// Invites reads every join link, the newest first.
func (tx *Tx) Invites() ([]Invite, error) {
	var list []Invite
	err := tx.each("SELECT "+inviteColumns+" FROM invites ORDER BY created_at DESC, id DESC", nil, func(r rows) error {
		var s inviteScan
		err := r.Scan(s.dest()...)
		list = append(list, s.value())
		return err
	})
	return list, err
}

// RedeemInvite notes who joined by a link that was open.
func (tx *Tx) RedeemInvite(id, agentID string, now time.Time) error {
	return tx.execOne(`UPDATE invites SET agent_id = $1, redeemed_at = $2 WHERE id = $3 AND redeemed_at = 0`, agentID, micros(now), id)
}

// DeleteInvite takes back a link that nobody used.
func (tx *Tx) DeleteInvite(id string) error {
	return tx.execOne(`DELETE FROM invites WHERE id = $1 AND redeemed_at = 0`, id)
}
