package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The operator's verbs: agents and their keys. Each is refused with permission_denied to
// anyone else.

func operatorOnly(call Call) error {
	if call.Actor.IsOperator() {
		return nil
	}
	return handoff.Refuse(handoff.CodePermissionDenied, "only the operator may do that", "")
}

// AgentInput registers an agent.
type AgentInput struct {
	Handle       string              `json:"handle"`
	Name         string              `json:"name,omitempty"`
	Email        string              `json:"email,omitempty"`
	Role         string              `json:"role,omitempty"`
	Skills       []string            `json:"skills,omitempty"`
	Repos        []string            `json:"repos,omitempty"`
	Capabilities []string            `json:"capabilities,omitempty"`
	Tags         map[string][]string `json:"tags,omitempty"`
	Unlisted     bool                `json:"unlisted,omitempty"`
	KeyLabel     string              `json:"key_label,omitempty"`
}

// NewKey is a key at the one moment it can be shown.
type NewKey struct {
	AgentID string
	Handle  string
	KeyID   string
	Secret  string
}

// AddAgent registers an agent and makes its first key, which is shown here and never again. A
// handle that was ever given out, in any case, is refused.
func (h *Hub) AddAgent(ctx context.Context, call Call, in AgentInput) (NewKey, error) {
	if err := operatorOnly(call); err != nil {
		return NewKey{}, err
	}
	handle, err := handoff.ParseHandle(in.Handle)
	if err != nil {
		return NewKey{}, err
	}
	if err := h.checkAgent(in); err != nil {
		return NewKey{}, err
	}
	var out NewKey
	err = h.change(ctx, "agent_add", call, func(c *change) error {
		if err := c.handleFree(handle); err != nil {
			return err
		}
		out, err = c.register(handle, in)
		return err
	})
	return out, err
}

// handleFree refuses a handle that was ever given out.
func (c *change) handleFree(handle string) error {
	other, err := c.AgentByHandle(handle)
	if err == nil {
		return handoff.Invalid("handle", handoff.Quote(handle)+" was given out before, as "+other.Handle+", and a handle is never given out twice, whatever its case; choose another, or make another key of that agent: handclasp agent key rotate "+other.Handle+" --keep")
	}
	if isCode(err, handoff.CodeNotFound) {
		return nil
	}
	return err
}

// register writes down an agent whose handle is free, and its first key.
func (c *change) register(handle string, in AgentInput) (NewKey, error) {
	if in.Name == "" {
		in.Name = handle
	}
	row := store.AgentRow{Email: in.Email, Agent: handoff.Agent{
		ID: uuid.NewString(), Handle: handle, Name: in.Name, Role: in.Role, Skills: in.Skills, Repos: in.Repos,
		Capabilities: in.Capabilities, Tags: in.Tags, Unlisted: in.Unlisted,
	}}
	if err := c.InsertAgent(&row, c.Now()); err != nil {
		return NewKey{}, err
	}
	if err := c.expected(handle, row.ID); err != nil {
		return NewKey{}, err
	}
	if err := c.agentEvent(handoff.EventAgentAdded, row.ID, row.ID); err != nil {
		return NewKey{}, err
	}
	return c.newKey(&row, in.KeyLabel)
}

// agentNamed reads an agent for an operator's command. A handle that nobody bears is answered with
// those that may be meant; the operator may know them all.
func agentNamed(tx *store.Tx, handle string) (store.AgentRow, error) {
	a, err := tx.AgentByHandle(handle)
	if !isCode(err, handoff.CodeNotFound) {
		return a, err
	}
	handles, err := tx.Handles()
	if err != nil {
		return a, err
	}
	const list = "List them with: handclasp agent list"
	e := handoff.Refuse(handoff.CodeNotFound, "no agent is registered as "+handoff.Quote(handle), list)
	if near := handoff.NearMatches(handle, handles, 3); len(near) > 0 {
		e.Hint = "Did you mean " + joinOr(near) + "? " + list
		e = e.With("near_matches", near)
	}
	return a, e
}

func (h *Hub) checkAgent(in AgentInput) error {
	texts := [][2]string{{"name", in.Name}, {"role", in.Role}, {"key_label", in.KeyLabel}}
	for _, list := range []struct {
		name  string
		words []string
	}{{"skills", in.Skills}, {"repos", in.Repos}, {"capabilities", in.Capabilities}} {
		for i, s := range list.words {
			field := fmt.Sprintf("%s[%d]", list.name, i)
			if s == "" {
				return handoff.Invalid(field, "it is empty; name one, or leave it out")
			}
			texts = append(texts, [2]string{field, s})
		}
	}
	for key, values := range in.Tags {
		if key == "" || strings.Contains(key, "=") || slices.Contains(values, "") {
			return handoff.Invalid("tags", handoff.Quote(key)+" came with its values; a key that is not empty and holds no = is accepted, with values that are not empty")
		}
		texts = append(texts, [2]string{"tags", key})
		for _, v := range values {
			texts = append(texts, [2]string{"tags." + key, v})
		}
	}
	for _, f := range texts {
		if err := handoff.CheckText(f[0], f[1], h.lim.SelectorValue); err != nil {
			return err
		}
	}
	return handoff.CheckText("email", in.Email, h.lim.Email)
}

func (c *change) newKey(a *store.AgentRow, label string) (NewKey, error) {
	secret, hash, hint := auth.NewKey()
	k := store.Key{ID: newID(), AgentID: a.ID, Hash: hash, Hint: hint, Label: label, CreatedAt: c.Now()}
	if err := c.InsertKey(&k); err != nil {
		return NewKey{}, err
	}
	return NewKey{AgentID: a.ID, Handle: a.Handle, KeyID: k.ID, Secret: secret}, c.agentEvent(handoff.EventKeyCreated, a.ID, k.ID)
}

// agentEvent logs what happened to an agent or a key and tells every node to look again.
func (c *change) agentEvent(event handoff.EventType, agentID, subject string) error {
	c.wake[credentialChanged+agentID] = true
	switch event {
	case handoff.EventAgentAdded, handoff.EventAgentEdited, handoff.EventAgentEnabled:
		c.wake[wakeVerifiers] = true
	}
	return c.InsertEvent(&handoff.Event{Type: event, ActorID: c.call.Actor.ID, SubjectID: subject, At: c.Now()})
}

// Agents lists every agent.
func (h *Hub) Agents(ctx context.Context, call Call) ([]store.AgentRow, error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	var list []store.AgentRow
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		list, err = tx.Agents()
		return err
	})
	return list, err
}

// SetDisabled turns an agent off or on. Turned off, its keys stop at once and its parked calls
// end; its sessions close, its pool claims are released and senders may cancel what it holds.
func (h *Hub) SetDisabled(ctx context.Context, call Call, handle string, disabled bool) error {
	if err := operatorOnly(call); err != nil {
		return err
	}
	event := handoff.EventAgentEnabled
	if disabled {
		event = handoff.EventAgentDisabled
	}
	return h.change(ctx, "agent_disable", call, func(c *change) error {
		a, err := agentNamed(c.Tx, handle)
		if err == nil {
			// Under its lock: what it is just claiming is committed first, and released.
			a, err = c.LockAgent(a.Handle)
		}
		if err != nil || a.Disabled == disabled {
			return err
		}
		if err := c.Tx.SetDisabled(a.ID, disabled, c.Now()); err != nil {
			return err
		}
		if err := c.agentEvent(event, a.ID, a.ID); err != nil || !disabled {
			return err
		}
		return first(
			func() error { return c.closeSessionsOf(a.ID) },
			func() error { return c.releaseAll(a.ID) })
	})
}

// releaseAll opens the pool claims of an agent that was turned off.
func (c *change) releaseAll(agentID string) error {
	ids, err := c.HeldBy(agentID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if _, err := c.settle(id); err != nil { // its lease may be over already
			return err
		}
		was, err := c.LockHandoff(id)
		if err != nil {
			return err
		}
		row := was
		event, released := row.ReleaseDisabled(c.Now())
		if !released || was.Holder != agentID {
			continue
		}
		if err := c.record(&row, event, c.call.Actor, "", 0, row.Creator); err != nil {
			return err
		}
		if err := c.update(&was, &row); err != nil {
			return err
		}
	}
	return nil
}

// AddKey makes another key of an agent; the others stay valid until they are revoked.
func (h *Hub) AddKey(ctx context.Context, call Call, handle, label string) (NewKey, error) {
	if err := operatorOnly(call); err != nil {
		return NewKey{}, err
	}
	if err := handoff.CheckText("label", label, h.lim.SelectorValue); err != nil {
		return NewKey{}, err
	}
	var out NewKey
	err := h.change(ctx, "key_add", call, func(c *change) error {
		a, err := agentNamed(c.Tx, handle)
		if err != nil {
			return err
		}
		if a.Disabled {
			return handoff.Refuse(handoff.CodeInvalidTransition, "the agent is disabled", "Enable it first: handclasp agent enable "+a.Handle)
		}
		out, err = c.newKey(&a, label)
		return err
	})
	return out, err
}

// RotateKey makes a new key of an agent and revokes all its others.
func (h *Hub) RotateKey(ctx context.Context, call Call, handle, label string) (NewKey, error) {
	if err := operatorOnly(call); err != nil {
		return NewKey{}, err
	}
	if err := handoff.CheckText("label", label, h.lim.SelectorValue); err != nil {
		return NewKey{}, err
	}
	var out NewKey
	err := h.change(ctx, "key_rotate", call, func(c *change) error {
		a, err := agentNamed(c.Tx, handle)
		if err != nil {
			return err
		}
		keys, err := c.Keys(a.ID)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if err := c.revoke(k); err != nil {
				return err
			}
		}
		out, err = c.newKey(&a, label)
		return err
	})
	return out, err
}

func (c *change) revoke(k store.Key) error {
	if !k.RevokedAt.IsZero() {
		return nil
	}
	if err := c.Tx.RevokeKey(k.ID, c.Now()); err != nil {
		return err
	}
	return c.agentEvent(handoff.EventKeyRevoked, k.AgentID, k.ID)
}

// RevokeKey ends a key at once: calls that are parked with it end too.
func (h *Hub) RevokeKey(ctx context.Context, call Call, keyID string) error {
	if err := operatorOnly(call); err != nil {
		return err
	}
	return h.change(ctx, "key_revoke", call, func(c *change) error {
		k, _, err := c.KeyByID(keyID)
		if store.IsNoRows(err) {
			return handoff.Refuse(handoff.CodeNotFound, "no key has the id "+handoff.Quote(keyID), "List the keys of an agent with: handclasp agent key list HANDLE")
		}
		if err != nil {
			return err
		}
		return c.revoke(k)
	})
}

// Keys lists the keys of an agent, without their secrets.
func (h *Hub) Keys(ctx context.Context, call Call, handle string) ([]store.Key, error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	var list []store.Key
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		a, err := agentNamed(tx, handle)
		if err != nil {
			return err
		}
		list, err = tx.Keys(a.ID)
		return err
	})
	return list, err
}
