package store

import "handclasp/internal/handoff"

// AgentChannel is where an agent wants to be told of its own inbox.
type AgentChannel struct {
	AgentID string
	Channel handoff.Channel
	// Address is an e-mail address or a URL.
	Address string
	// Secret signs webhooks; empty for the others.
	Secret string
}

// SetAgentChannel stores one in place of the last of its kind.
func (tx *Tx) SetAgentChannel(c *AgentChannel) error {
	return tx.exec(`INSERT INTO agent_channels (agent_id, channel, address, secret, created_at) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (agent_id, channel) DO UPDATE SET address = excluded.address, secret = excluded.secret, created_at = excluded.created_at`,
		c.AgentID, string(c.Channel), c.Address, c.Secret, micros(tx.Now()))
}

// RemoveAgentChannels removes all of an agent.
func (tx *Tx) RemoveAgentChannels(agentID string) error {
	return tx.exec(`DELETE FROM agent_channels WHERE agent_id = $1`, agentID)
}

// AgentChannels reads those of all agents, in the order of agents and channels.
func (tx *Tx) AgentChannels() ([]AgentChannel, error) { return tx.agentChannels("") }

// ChannelsOf reads those of one agent.
func (tx *Tx) ChannelsOf(agentID string) ([]AgentChannel, error) {
	return tx.agentChannels("WHERE agent_id = $1", agentID)
}

func (tx *Tx) agentChannels(where string, args ...any) ([]AgentChannel, error) {
	var list []AgentChannel
	err := tx.each(`SELECT agent_id, channel, address, secret FROM agent_channels `+where+` ORDER BY agent_id, channel`, args, func(r rows) error {
		var c AgentChannel
		err := r.Scan(&c.AgentID, &c.Channel, &c.Address, &c.Secret)
		list = append(list, c)
		return err
	})
	return list, err
}

// AgentChannel reads one; [IsNoRows] when there is none.
func (tx *Tx) AgentChannel(agentID string, channel handoff.Channel) (AgentChannel, error) {
	c := AgentChannel{AgentID: agentID, Channel: channel}
	err := tx.row(`SELECT address, secret FROM agent_channels WHERE agent_id = $1 AND channel = $2`, agentID, string(channel)).scan(&c.Address, &c.Secret)
	return c, err
}

// RenewNews lets a notification about a handoff that waits to go out to an agent for the first time name a
// later event. It reports whether there was one: one that was taken meanwhile goes out as it is.
func (tx *Tx) RenewNews(handoffID, agentID string, channel handoff.Channel, eventSeq int) (bool, error) {
	found, err := tx.ids(`SELECT id FROM deliveries WHERE handoff_id = $1 AND recipient_id = $2 AND channel = $3 AND kind = 'news' AND state = 'queued' AND attempts = 0 LIMIT 1`+tx.d.forUpdate(),
		handoffID, agentID, string(channel))
	if err != nil || len(found) == 0 {
		return false, err
	}
	return true, tx.exec(`UPDATE deliveries SET event_seq = $1 WHERE id = $2`, eventSeq, found[0])
}
