package store

import "time"

// Block says that an agent keeps another from reaching it.
type Block struct {
	// Handle is the other side: who is kept away, or who keeps away.
	Handle string
	Reason string
	Since  time.Time
}

// Blocked reports whether a keeps b from reaching it.
func (tx *Tx) Blocked(a, b string) (bool, error) {
	var n int
	err := tx.row(`SELECT count(*) FROM blocks WHERE agent_id = $1 AND blocked_id = $2`, a, b).scan(&n)
	return n > 0, err
}

// InsertBlock keeps blocked from reaching agent; again changes nothing.
func (tx *Tx) InsertBlock(agentID, blockedID, reason string, now time.Time) error {
	return tx.exec(`INSERT INTO blocks (agent_id, blocked_id, reason, created_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, agentID, blockedID, reason, micros(now))
}

// DeleteBlock lifts a block.
func (tx *Tx) DeleteBlock(agentID, blockedID string) error {
	return tx.exec(`DELETE FROM blocks WHERE agent_id = $1 AND blocked_id = $2`, agentID, blockedID)
}

// Blocks reads whom the agent keeps from reaching it, in the order of handles.
func (tx *Tx) Blocks(agentID string) ([]Block, error) {
	return tx.blocks(`JOIN agents a ON a.id = b.blocked_id WHERE b.agent_id = $1`, agentID)
}

// BlockedBy reads who keeps the agent from reaching them, in the order of handles.
func (tx *Tx) BlockedBy(agentID string) ([]Block, error) {
	return tx.blocks(`JOIN agents a ON a.id = b.agent_id WHERE b.blocked_id = $1`, agentID)
}

func (tx *Tx) blocks(where, agentID string) ([]Block, error) {
	var list []Block
	err := tx.each("SELECT a.handle, b.reason, b.created_at FROM blocks b "+where+" ORDER BY a.handle_key", []any{agentID}, func(r rows) error {
		var b Block
		var since int64
		err := r.Scan(&b.Handle, &b.Reason, &since)
		b.Since = timeOf(since)
		list = append(list, b)
		return err
	})
	return list, err
}
