package hub

import (
	"context"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// TeammatesInput filters the list; every given filter must match, in any case.
type TeammatesInput struct {
	Role  string
	Skill string
	Repo  string
}

// Teammate is an agent that the caller can hand work to.
type Teammate struct {
	Handle     string
	Name       string
	Role       string
	Skills     []string
	Repos      []string
	LastSeenAt time.Time
}

// Teammates lists the active agents with a name@team handle, without the caller.
func (h *Hub) Teammates(ctx context.Context, call Call, in TeammatesInput) ([]Teammate, error) {
	for _, f := range [][2]string{{"role", in.Role}, {"skill", in.Skill}, {"repo", in.Repo}} {
		if err := handoff.CheckText(f[0], f[1], h.lim.Reason); err != nil {
			return nil, err
		}
	}
	all, err := h.teammates(ctx, call.Actor)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(t Teammate) bool {
		return in.Role != "" && !strings.EqualFold(t.Role, in.Role) ||
			in.Skill != "" && !containsFold(t.Skills, in.Skill) ||
			in.Repo != "" && !containsFold(t.Repos, in.Repo)
	}), nil
}

func (h *Hub) teammates(ctx context.Context, actor handoff.Actor) ([]Teammate, error) {
	var list []Teammate
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		agents, err := tx.Agents()
		for i := range agents {
			a := &agents[i]
			if a.ID == actor.ID || a.Disabled || !handoff.ValidTeammateHandle(a.Handle) {
				continue
			}
			list = append(list, Teammate{Handle: a.Handle, Name: a.Name, Role: a.Role, Skills: a.Skills, Repos: a.Repos, LastSeenAt: a.LastSeenAt})
		}
		return err
	})
	return list, err
}

func containsFold(list []string, s string) bool {
	return slices.ContainsFunc(list, func(v string) bool { return strings.EqualFold(v, s) })
}

// BlockInput names a teammate to keep away or to let in again.
type BlockInput struct {
	Handle         string `json:"handle"`
	Reason         string `json:"reason,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// BlockState is the answer to both verbs.
type BlockState struct {
	Handle  string
	Blocked bool
	Replay  bool
}

// SetBlock keeps a teammate from handing work to the caller and from writing to what they
// share, or lifts that. What was accepted before can still be completed or declined. Doing it
// again changes nothing.
func (h *Hub) SetBlock(ctx context.Context, call Call, in BlockInput, blocked bool) (BlockState, error) {
	if in.Handle == "" {
		return BlockState{}, handoff.Invalid("handle", "it is empty; a handle such as frank@acme is needed")
	}
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return BlockState{}, err
	}
	verb := "block"
	if !blocked {
		verb = "unblock"
	}
	once, err := h.keyed(call, verb, &in.IdempotencyKey, &in)
	if err != nil {
		return BlockState{}, err
	}
	var out BlockState
	err = h.change(ctx, verb, call, func(c *change) error {
		other, err := c.AgentByHandle(in.Handle)
		if isCode(err, handoff.CodeNotFound) {
			return noRecipient("handle", in.Handle)
		}
		if err != nil {
			return err
		}
		if other.ID == call.Actor.ID {
			return handoff.Invalid("handle", handoff.Quote(in.Handle)+" is yourself; name another agent")
		}
		_, found, err := c.done(once.op, once.print)
		if err != nil {
			return err
		}
		was, err := c.Blocked(call.Actor.ID, other.ID)
		if err != nil {
			return err
		}
		out = BlockState{Handle: other.Handle, Blocked: blocked, Replay: found}
		if found {
			out.Blocked = was
			return nil
		}
		if was != blocked {
			if err := c.setBlock(call.Actor.ID, other.ID, other.ID, in.Reason, blocked); err != nil {
				return err
			}
		}
		return c.keep(once, store.Effect{})
	})
	return out, err
}

// setBlock writes down a block or its end, and the event about subject.
func (c *change) setBlock(agentID, otherID, subject, reason string, blocked bool) error {
	var err error
	event := handoff.EventBlockAdded
	c.wake[agentID], c.wake[otherID] = true, true
	if blocked {
		err = c.InsertBlock(agentID, otherID, reason, c.Now())
	} else {
		event, err = handoff.EventBlockRemoved, c.DeleteBlock(agentID, otherID)
	}
	if err != nil {
		return err
	}
	return c.InsertEvent(&handoff.Event{Type: event, ActorID: c.call.Actor.ID, SubjectID: subject, TraceID: c.call.traceID(), At: c.Now()})
}
