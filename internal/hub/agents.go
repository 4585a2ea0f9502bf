package hub

import (
	"context"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// What the operator sees and changes of an agent that exists. Adding it and its keys are in
// operator.go.

// AgentInfo is all that the operator may see of an agent.
type AgentInfo struct {
	store.AgentRow
	Keys      []store.Key
	Blocks    []store.Block // whom it keeps away
	BlockedBy []store.Block // who keeps it away
	Open      int           // handoffs that wait for it as their recipient
	Held      int           // handoffs that it holds
	// Channels are where it is told of its inbox outside, without their secrets.
	Channels []store.AgentChannel
}

// Agent shows one agent.
func (h *Hub) Agent(ctx context.Context, call Call, handle string) (AgentInfo, error) {
	if err := operatorOnly(call); err != nil {
		return AgentInfo{}, err
	}
	var info AgentInfo
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		a, err := agentNamed(tx, handle)
		if err != nil {
			return err
		}
		info, err = agentInfo(tx, a)
		return err
	})
	return info, err
}

func agentInfo(tx *store.Tx, a store.AgentRow) (AgentInfo, error) {
	info := AgentInfo{AgentRow: a}
	err := first(
		func() error { return withDetails(tx, &info.AgentRow) },
		func() (err error) { info.Keys, err = tx.Keys(a.ID); return err },
		func() (err error) { info.Blocks, err = tx.Blocks(a.ID); return err },
		func() (err error) { info.BlockedBy, err = tx.BlockedBy(a.ID); return err },
		func() (err error) { info.Open, info.Held, err = tx.Load(a.ID); return err },
		func() (err error) { info.Channels, err = tx.ChannelsOf(a.ID); return err })
	for i := range info.Channels {
		info.Channels[i].Secret = ""
	}
	return info, err
}

// withDetails fills in what stands in tables of its own.
func withDetails(tx *store.Tx, a *store.AgentRow) error {
	a.Capabilities, a.Tags = nil, nil
	if err := tx.WithLabels(a); err != nil {
		return err
	}
	return tx.WithEmail(a)
}

// AgentEdit is what changes about an agent. What is nil stays; a list that is given replaces the
// one that was, and an empty one leaves none. An empty name is the handle again.
type AgentEdit struct {
	Name         *string              `json:"name,omitempty"`
	Email        *string              `json:"email,omitempty"`
	Role         *string              `json:"role,omitempty"`
	Skills       *[]string            `json:"skills,omitempty"`
	Repos        *[]string            `json:"repos,omitempty"`
	Capabilities *[]string            `json:"capabilities,omitempty"`
	Tags         *map[string][]string `json:"tags,omitempty"`
	Unlisted     *bool                `json:"unlisted,omitempty"`
}

// IsEmpty reports whether nothing would change.
func (e AgentEdit) IsEmpty() bool { return e == AgentEdit{} }

// input is the edit as checks of an agent see it: what stays was checked before.
func (e AgentEdit) input() AgentInput {
	var in AgentInput
	set(&in.Name, e.Name)
	set(&in.Email, e.Email)
	set(&in.Role, e.Role)
	set(&in.Skills, e.Skills)
	set(&in.Repos, e.Repos)
	set(&in.Capabilities, e.Capabilities)
	set(&in.Tags, e.Tags)
	return in
}

func (e AgentEdit) apply(a *store.AgentRow) {
	set(&a.Name, e.Name)
	set(&a.Email, e.Email)
	set(&a.Role, e.Role)
	set(&a.Skills, e.Skills)
	set(&a.Repos, e.Repos)
	set(&a.Capabilities, e.Capabilities)
	set(&a.Tags, e.Tags)
	set(&a.Unlisted, e.Unlisted)
	if a.Name == "" {
		a.Name = a.Handle
	}
}

func set[T any](field, to *T) {
	if to != nil {
		*field = *to
	}
}

// EditAgent changes what is known of an agent; what it may claim and how it is listed follow at
// once. A capability or tag that is new becomes part of the catalog.
func (h *Hub) EditAgent(ctx context.Context, call Call, handle string, edit AgentEdit) (AgentInfo, error) {
	if err := operatorOnly(call); err != nil {
		return AgentInfo{}, err
	}
	if edit.IsEmpty() {
		return AgentInfo{}, handoff.Invalid("edit", "nothing came that could change; name, email, role, skills, repos, capabilities, tags and unlisted are accepted")
	}
	if err := h.checkAgent(edit.input()); err != nil {
		return AgentInfo{}, err
	}
	var info AgentInfo
	err := h.change(ctx, "agent_edit", call, func(c *change) error {
		a, err := agentNamed(c.Tx, handle)
		if err != nil {
			return err
		}
		// Under its lock, so that two edits at once both count.
		if a, err = c.LockAgent(a.Handle); err != nil {
			return err
		}
		if err := withDetails(c.Tx, &a); err != nil {
			return err
		}
		edit.apply(&a)
		if err := c.UpdateAgent(&a, c.Now()); err != nil {
			return err
		}
		if err := c.agentEvent(handoff.EventAgentEdited, a.ID, a.ID); err != nil {
			return err
		}
		info, err = agentInfo(c.Tx, a)
		return err
	})
	return info, err
}

// BlockFor is the answer to an operator's block.
type BlockFor struct {
	Handle  string // who keeps the other away
	Other   string
	Blocked bool
	Changed bool // false when it was so before
}

// SetBlockFor does for an agent what [Hub.SetBlock] does, by the operator's hand.
func (h *Hub) SetBlockFor(ctx context.Context, call Call, handle string, in BlockInput, blocked bool) (BlockFor, error) {
	if err := operatorOnly(call); err != nil {
		return BlockFor{}, err
	}
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return BlockFor{}, err
	}
	var out BlockFor
	err := h.change(ctx, "block_for", call, func(c *change) error {
		a, err := agentNamed(c.Tx, handle)
		if err != nil {
			return err
		}
		other, err := agentNamed(c.Tx, in.Handle)
		if err != nil {
			return err
		}
		if a.ID == other.ID {
			return handoff.Invalid("handle", handoff.Quote(in.Handle)+" is the agent itself; name two different agents, first who blocks, then who is blocked")
		}
		was, err := c.Blocked(a.ID, other.ID)
		if err != nil {
			return err
		}
		out = BlockFor{Handle: a.Handle, Other: other.Handle, Blocked: blocked, Changed: was != blocked}
		if !out.Changed {
			return nil
		}
		return c.setBlock(a.ID, other.ID, a.ID+"/"+other.ID, in.Reason, blocked)
	})
	return out, err
}
