package restapi

import (
	"net/http"
	"net/url"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// AgentDetail is all that the operator may see of an agent.
type AgentDetail struct {
	Agent
	Email        string              `json:"email"`
	Capabilities []string            `json:"capabilities"`
	Tags         map[string][]string `json:"tags"`
	Unlisted     bool                `json:"unlisted"`
	Keys         []Key               `json:"keys"`
	Blocks       []Block             `json:"blocks"`     // whom it keeps away
	BlockedBy    []Block             `json:"blocked_by"` // who keeps it away
	Handoffs     Load                `json:"handoffs"`
	Notify       []AgentChannel      `json:"notify"` // where it is told of its inbox outside
}

// Block is one agent that another keeps away, or that keeps it away.
type Block struct {
	Handle string `json:"handle"`
	Reason string `json:"reason"`
	Since  string `json:"since"`
}

// Load counts the handoffs that wait for an agent, and those that it holds.
type Load struct {
	Open int `json:"open"`
	Held int `json:"held"`
}

// BlockChange is the answer to an operator's block or unblock.
type BlockChange struct {
	Handle  string `json:"handle"`
	Other   string `json:"other"`
	Blocked bool   `json:"blocked"`
	Changed bool   `json:"changed"` // false when it was so before
}

// AgentNotify is where an agent is told of its own inbox.
type AgentNotify struct {
	Handle   string         `json:"handle"`
	Channels []AgentChannel `json:"channels"`
}

// AgentChannel is one of them. The secret is shown when it is made and never again; of the address of a
// chat only the host, for the rest is its secret.
type AgentChannel struct {
	Channel string `json:"channel"`
	Address string `json:"address"`
	Secret  string `json:"secret,omitempty"`
	// Forbidden is why this hub does not dial the address.
	Forbidden string `json:"forbidden,omitempty"`
}

func agentChannel(channel handoff.Channel, address, secret string) AgentChannel {
	if channel == handoff.ChannelSlack {
		u, err := url.Parse(address)
		address = "its address is secret"
		if err == nil {
			address = u.Scheme + "://" + u.Host + "/…"
		}
	}
	return AgentChannel{Channel: string(channel), Address: address, Secret: secret}
}

func (o *operator) setNotify(w http.ResponseWriter, r *http.Request) {
	var in hub.NotifyInput
	if !o.decode(w, r, &in) {
		return
	}
	n, err := o.hub.SetNotify(r.Context(), asOperator, r.PathValue("handle"), in)
	out := AgentNotify{n.Handle, make([]AgentChannel, len(n.Channels))}
	for i, c := range n.Channels {
		out.Channels[i] = agentChannel(c.Channel, c.Address, c.Secret)
		out.Channels[i].Forbidden = n.Forbidden[c.Channel]
	}
	o.answer(w, r, err, out)
}

func (o *operator) showAgent(w http.ResponseWriter, r *http.Request) {
	a, err := o.hub.Agent(r.Context(), asOperator, r.PathValue("handle"))
	o.answer(w, r, err, agentDetail(&a))
}

func (o *operator) editAgent(w http.ResponseWriter, r *http.Request) {
	var in hub.AgentEdit
	if !o.decode(w, r, &in) {
		return
	}
	a, err := o.hub.EditAgent(r.Context(), asOperator, r.PathValue("handle"), in)
	o.answer(w, r, err, agentDetail(&a))
}

func (o *operator) setBlock(blocked bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Other  string `json:"other"`
			Reason string `json:"reason"`
		}
		if !o.decode(w, r, &in) {
			return
		}
		b, err := o.hub.SetBlockFor(r.Context(), asOperator, r.PathValue("handle"), hub.BlockInput{Handle: in.Other, Reason: in.Reason}, blocked)
		o.answer(w, r, err, BlockChange(b))
	}
}

func agentJSON(a *hub.AgentInfo) Agent {
	status := "active"
	if a.Disabled {
		status = "disabled"
	}
	return Agent{a.ID, a.Handle, a.Name, a.Role, orEmpty(a.Skills), orEmpty(a.Repos), status, stamp(a.CreatedAt), stampOrNull(a.LastSeenAt)}
}

func agentDetail(a *hub.AgentInfo) AgentDetail {
	out := AgentDetail{
		Agent: agentJSON(a), Email: a.Email, Capabilities: orEmpty(a.Capabilities), Tags: a.Tags, Unlisted: a.Unlisted,
		Keys: keysJSON(a), Blocks: make([]Block, len(a.Blocks)), BlockedBy: make([]Block, len(a.BlockedBy)), Handoffs: Load{a.Open, a.Held},
		Notify: make([]AgentChannel, len(a.Channels)),
	}
	if out.Tags == nil {
		out.Tags = map[string][]string{}
	}
	for i, c := range a.Channels {
		out.Notify[i] = agentChannel(c.Channel, c.Address, c.Secret)
	}
	for i, b := range a.Blocks {
		out.Blocks[i] = Block{b.Handle, b.Reason, stamp(b.Since)}
	}
	for i, b := range a.BlockedBy {
		out.BlockedBy[i] = Block{b.Handle, b.Reason, stamp(b.Since)}
	}
	return out
}

func keysJSON(a *hub.AgentInfo) []Key {
	out := make([]Key, len(a.Keys))
	for i, k := range a.Keys {
		out[i] = Key{k.ID, k.Hint + "…", k.Label, stamp(k.CreatedAt), stampOrNull(k.LastUsedAt), stampOrNull(k.RevokedAt)}
	}
	return out
}
