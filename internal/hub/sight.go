package hub

import (
	"maps"
	"slices"
	"strings"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// sight decides which events one agent may see, as things stand in its transaction: those of
// handoffs that it may read, and what happened to itself. What a page needs is read in one go.
type sight struct {
	tx    *store.Tx
	actor handoff.Actor
	agent handoff.Agent
	rows  map[string]*handoff.Handoff // by id, as they are now; nil where there is none
	seats map[string]seat             // by the workspace's id in a row
	own   map[string]bool             // subjects that are a key or a session: whether of the agent
}

// seat is the agent's place in a workspace.
type seat struct {
	workspace string // after its alias
	member    bool
}

func newSight(tx *store.Tx, actor handoff.Actor) (*sight, error) {
	a, err := tx.AgentIn(actor.ID, "")
	return &sight{tx: tx, actor: actor, agent: a, rows: map[string]*handoff.Handoff{}, seats: map[string]seat{}, own: map[string]bool{}}, err
}

// keep leaves of some events those that the agent may see, without what they name that it may not.
// also says which of them the reader is after; h is nil where the event is of no handoff.
func (s *sight) keep(list []handoff.Event, also func(e *handoff.Event, h *handoff.Handoff, a *handoff.Agent) bool) ([]handoff.Event, error) {
	if err := s.load(list); err != nil {
		return nil, err
	}
	var kept []handoff.Event
	for i := range list {
		e := list[i]
		h := s.rows[e.HandoffID]
		if h == nil {
			if e.HandoffID == "" && s.concerns(&e) && also(&e, nil, nil) {
				kept = append(kept, s.shown(e))
			}
			continue
		}
		if a := s.in(h); h.ReadableBy(s.actor, a, s.tx.Now()) && also(&e, h, a) {
			kept = append(kept, s.shown(e))
		}
	}
	return kept, nil
}

// load reads what the events name and is not known yet.
func (s *sight) load(list []handoff.Event) error {
	handoffs, subjects := map[string]bool{}, map[string]bool{}
	for i := range list {
		e := &list[i]
		ids := []string{e.HandoffID}
		if namesDependency(e) {
			ids = append(ids, e.SubjectID)
		}
		for _, id := range ids {
			if _, known := s.rows[id]; !known && id != "" {
				handoffs[id] = true
			}
		}
		if _, known := s.own[e.SubjectID]; !known && e.HandoffID == "" && e.ActorID != s.actor.ID {
			subjects[e.SubjectID] = true
		}
	}
	rows, err := s.tx.HandoffsByID(sortedKeys(handoffs))
	if err != nil {
		return err
	}
	for id := range handoffs {
		s.rows[id] = nil
		if row, ok := rows[id]; ok {
			if row, err = s.seated(row); err != nil {
				return err
			}
			s.rows[id] = &row
		}
	}
	own, err := s.tx.Belonging(s.actor.ID, sortedKeys(subjects))
	if err != nil {
		return err
	}
	for id := range subjects {
		s.own[id] = own[id]
	}
	return nil
}

// seated gives a row as it is now, and finds the agent's place in its workspace.
func (s *sight) seated(row handoff.Handoff) (handoff.Handoff, error) {
	if _, known := s.seats[row.WorkspaceID]; !known && row.WorkspaceID != "" {
		w, member, err := s.tx.Workspace(row.WorkspaceID, s.actor.ID)
		if err != nil {
			return row, err
		}
		s.seats[row.WorkspaceID] = seat{w.ID, member}
	}
	return row.At(s.tx.Now()), nil
}

// in is the agent as one that uses the handoff's workspace.
func (s *sight) in(h *handoff.Handoff) *handoff.Agent {
	a := s.agent
	a.Outside = h.WorkspaceID != "" && !s.seats[h.WorkspaceID].member
	return &a
}

// reads reports whether the agent may read a row that is seated.
func (s *sight) reads(h *handoff.Handoff) bool {
	return h.ReadableBy(s.actor, s.in(h), s.tx.Now())
}

// concerns reports whether an event of no handoff is about the agent, which may be one of two: see
// [handoff.Event].
func (s *sight) concerns(e *handoff.Event) bool {
	return e.ActorID == s.actor.ID || strings.Contains(e.SubjectID, s.actor.ID) || s.own[e.SubjectID]
}

func namesDependency(e *handoff.Event) bool {
	return e.Type == handoff.EventUnblocked || e.Type == handoff.EventDependencyFailed
}

// shown takes from an event what the agent may not know of: a dependency that it may not read, and
// by which session another acted.
func (s *sight) shown(e handoff.Event) handoff.Event {
	if namesDependency(&e) {
		if d := s.rows[e.SubjectID]; d == nil || !s.reads(d) {
			e.SubjectID = ""
		}
	}
	if e.ActorID != s.actor.ID {
		e.SessionID = ""
	}
	return e
}

// SeenEvent is an event as one agent sees it.
type SeenEvent struct {
	handoff.Event
	// Actor is the handle of who caused it.
	Actor string
	// Creator is the handle of who made the handoff, whose word the trace id may be; Own tells that
	// it was the reader. Both are empty where the event is of no handoff.
	Creator string
	Own     bool
}

// named gives events with the handles of those who caused them.
func (s *sight) named(list []handoff.Event) ([]SeenEvent, error) {
	ids := map[string]bool{}
	for i := range list {
		ids[list[i].ActorID] = true
		if h := s.rows[list[i].HandoffID]; h != nil {
			ids[h.Creator] = true
		}
	}
	people, err := names(s.tx, slices.Sorted(maps.Keys(ids)))
	if err != nil {
		return nil, err
	}
	handle := func(id string) string {
		if p, ok := people[id]; ok {
			return p.Handle
		}
		return id
	}
	out := make([]SeenEvent, len(list))
	for i, e := range list {
		out[i] = SeenEvent{Event: e, Actor: handle(e.ActorID)}
		if h := s.rows[e.HandoffID]; h != nil {
			out[i].Creator, out[i].Own = handle(h.Creator), h.Creator == s.actor.ID
		}
	}
	return out, nil
}
