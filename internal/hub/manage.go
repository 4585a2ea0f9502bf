package hub

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The operator's hand on handoffs: finding, inspecting and cancelling those of anyone. Reassigning
// and erasing are in files of their own. Each verb is refused with permission_denied to anyone
// else, and takes an id or its beginning.

// ListInput selects a page of all handoffs. What is empty does not filter.
type ListInput struct {
	// Statuses are words of any door, in any case.
	Statuses []string
	// Door is where they were made: team, pool or desk.
	Door string
	// Root is a project_root: only those of its workspace.
	Root string
	// Agent takes part in any role; From sent it, To is its recipient. All are handles, or person:SLUG for
	// the person of a business.
	Agent, From, To string
	// Since keeps what was created at that time or later.
	Since time.Time
	// Unfetched keeps pending ones that their recipient was never handed.
	Unfetched bool
	// Untold keeps open ones whose person was not told, or nobody knows.
	Untold bool
	// HeldLonger keeps those that their holder has had for at least as long.
	HeldLonger time.Duration
	// Limit is the most items of a page, 1 to 200; 0 means 50.
	Limit  int
	Cursor string
}

// ListedHandoff is a handoff with the time since when its holder has it.
type ListedHandoff = store.ListedHandoff

// Listing is a page of all handoffs, newest first.
type Listing struct {
	Items   []ListedHandoff
	Parties map[string]Party
	// Roots are those of the workspaces, by their ids.
	Roots map[string]string
	// Desks are the businesses and modes of those that are of the desk, by the ids of the handoffs.
	Desks      map[string]handoff.Desk
	NextCursor string // empty on the last page
}

// Handoffs lists the handoffs of everyone for the operator. It marks nothing read or fetched.
func (h *Hub) Handoffs(ctx context.Context, call Call, in ListInput) (Listing, error) {
	if err := operatorOnly(call); err != nil {
		return Listing{}, err
	}
	q, err := handoffQuery(in)
	if err != nil {
		return Listing{}, err
	}
	var at place
	if in.Root != "" {
		if at, err = placeOf(in.Root); err != nil {
			return Listing{}, err
		}
	}
	var out Listing
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		for _, by := range []struct {
			handle string
			id     *string
		}{{in.Agent, &q.AgentID}, {in.From, &q.CreatorID}, {in.To, &q.RecipientID}} {
			if by.handle == "" {
				continue
			}
			if *by.id, err = actorNamed(tx, by.handle); err != nil {
				return err
			}
		}
		if in.Root != "" {
			w, _, err := tx.Workspace(at.id, "")
			if err != nil {
				return err
			}
			q.WorkspaceID = w.ID
		}
		if in.HeldLonger > 0 {
			q.HeldSince = tx.Now().Add(-in.HeldLonger)
		}
		if out.Items, err = tx.Handoffs(q); err != nil {
			return err
		}
		ids, places, desks := map[string]bool{}, map[string]bool{}, []string{}
		for i := range out.Items {
			row := out.Items[i].Handoff.At(tx.Now())
			ids[row.Creator], ids[row.Recipient], ids[row.Holder] = true, true, true
			places[row.WorkspaceID] = true
			if row.Door == handoff.DoorDesk {
				desks = append(desks, row.ID)
			}
			out.Items[i].Handoff = row
		}
		delete(ids, "")
		delete(places, "")
		if out.Roots, err = tx.Roots(sortedKeys(places)); err != nil {
			return err
		}
		if out.Desks, err = tx.Destinations(desks); err != nil {
			return err
		}
		out.Parties, err = names(tx, sortedKeys(ids))
		return err
	})
	if err == nil && len(out.Items) == q.Limit {
		out.Items = out.Items[:q.Limit-1]
		last := &out.Items[q.Limit-2].Handoff
		out.NextCursor = inboxCursor(last.CreatedAt, last.ID)
	}
	return out, err
}

func handoffQuery(in ListInput) (store.HandoffQuery, error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return store.HandoffQuery{}, err
	}
	q := store.HandoffQuery{Since: in.Since, Unfetched: in.Unfetched, Untold: in.Untold, Limit: limit + 1}
	if in.HeldLonger < 0 {
		return q, handoff.Invalid("held_longer_than_seconds", fmt.Sprintf("%g came; a positive number is accepted", in.HeldLonger.Seconds()))
	}
	if q.Door = handoff.Door(in.Door); in.Door != "" && q.Door != handoff.DoorTeam && q.Door != handoff.DoorPool && q.Door != handoff.DoorDesk {
		return q, handoff.Invalid("door", handoff.Quote(in.Door)+" came; team, pool and desk are accepted")
	}
	if q.States, err = statesOfAnyDoor(in.Statuses); err != nil {
		return q, err
	}
	if in.Cursor != "" {
		_, q.BeforeID, err = parseInboxCursor(in.Cursor)
	}
	return q, err
}

// actorNamed is the id of an agent by its handle, or of the person of a business by person:SLUG.
func actorNamed(tx *store.Tx, handle string) (string, error) {
	slug, person := handoff.PersonSlug(handle)
	if !person {
		a, err := agentNamed(tx, handle)
		return a.ID, err
	}
	_, err := tx.Business(slug)
	return handoff.Person(slug).ID, businessCommand(err)
}

// statesOf reads words of the team door.
func statesOf(words []string) ([]handoff.State, error) {
	var states []handoff.State
	for _, s := range words {
		these := handoff.StatesOf(s)
		if these == nil {
			return nil, handoff.Invalid("status", handoff.Quote(s)+" came; "+joinOr(handoff.TeamStatuses())+" are accepted")
		}
		states = append(states, these...)
	}
	return states, nil
}

// statesOfAnyDoor reads words of any door, in any case.
func statesOfAnyDoor(words []string) ([]handoff.State, error) {
	var states []handoff.State
	for _, word := range words {
		these := handoff.StatesOf(strings.ToLower(word))
		for _, s := range handoff.States() {
			if strings.EqualFold(word, s.PoolStatus()) {
				these = []handoff.State{s}
			}
		}
		if these == nil {
			return nil, handoff.Invalid("status", handoff.Quote(word)+" came; accepted are "+strings.Join(handoff.TeamStatuses(), ", ")+", and at the pool "+strings.Join(poolStatuses(), ", "))
		}
		states = append(states, these...)
	}
	return states, nil
}

// shortestPrefix is how much of an id says which handoff is meant: its first eight characters are
// a time to the minute.
const shortestPrefix = 8

var idPrefix = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

// named gives the id of the one handoff that the operator means by an id or its beginning.
func (h *Hub) named(ctx context.Context, call Call, prefix string) (string, error) {
	if err := operatorOnly(call); err != nil {
		return "", err
	}
	if len(prefix) < shortestPrefix || !idPrefix.MatchString(prefix) {
		return "", handoff.Invalid("id", handoff.Quote(prefix)+fmt.Sprintf(" came; the id of a handoff is accepted, or at least its first %d characters", shortestPrefix))
	}
	const most = 100
	var ids []string
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		ids, err = tx.HandoffsNamed(strings.ToLower(prefix), most)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(ids) == 0:
		return "", handoff.Refuse(handoff.CodeNotFound, "no handoff has the id "+handoff.Quote(prefix)+", or one that begins so", "List them with: handclasp handoff list")
	case len(ids) == 1 || ids[0] == strings.ToLower(prefix):
		return ids[0], nil
	}
	number := fmt.Sprint(len(ids))
	if len(ids) == most {
		number += " or more"
	}
	return "", handoff.Invalid("id", "the ids of "+number+" handoffs begin with "+handoff.Quote(prefix)+"; give more of it").With("matches", len(ids))
}

// Inspect shows a handoff to the operator, one page of its messages included. in.ThreadID may be
// the beginning of an id.
func (h *Hub) Inspect(ctx context.Context, call Call, in ViewInput) (Thread, error) {
	var err error
	if in.ThreadID, err = h.named(ctx, call, in.ThreadID); err != nil {
		return Thread{}, err
	}
	in.ForPerson = true
	t, err := h.View(ctx, call, in)
	if err == nil {
		err = h.st.Read(ctx, func(tx *store.Tx) error { return t.outside(tx) })
	}
	if err != nil || t.Handoff.Door != handoff.DoorPool {
		return t, err
	}
	// Result and feedback belong to those who do, ordered or judge the work.
	t.HasResult, t.Handoff.Result = len(t.Handoff.Result) > 0, nil
	if v := t.Handoff.Verdict; v != nil {
		verdict := *v
		verdict.Feedback = ""
		t.Handoff.Verdict = &verdict
	}
	return t, nil
}

// outside reads whom the desk sent a handoff to, and what went out of it.
func (t *Thread) outside(tx *store.Tx) error {
	list, err := tx.DeliveriesOf(t.Handoff.ID)
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	for i := range list {
		ids[list[i].Recipient] = true
	}
	t.Deliveries = list
	if t.Recipients, err = names(tx, sortedKeys(ids)); err != nil || t.Handoff.Door != handoff.DoorDesk {
		return err
	}
	desks, err := tx.Destinations([]string{t.Handoff.ID})
	t.Desk = desks[t.Handoff.ID]
	return err
}

// History is a page of what happened to one handoff.
type History struct {
	Events  []handoff.Event
	Parties map[string]Party // by the ids of the actors
	// NextSeq is what to pass as after for the next page; 0 when there is none.
	NextSeq int
}

// History reads the events of one handoff for the operator, in their order, after the given
// event_seq.
func (h *Hub) History(ctx context.Context, call Call, id string, after int) (History, error) {
	id, err := h.named(ctx, call, id)
	if err != nil {
		return History{}, err
	}
	const page = 1000
	var out History
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		if out.Events, err = tx.HandoffEvents(id, after, page+1); err != nil {
			return err
		}
		ids := map[string]bool{}
		for i := range out.Events {
			ids[out.Events[i].ActorID] = true
		}
		out.Parties, err = names(tx, sortedKeys(ids))
		return err
	})
	if err == nil && len(out.Events) > page {
		out.Events = out.Events[:page]
		out.NextSeq = out.Events[page-1].Seq
	}
	return out, err
}

// CancelAny ends a handoff of anyone by the operator's hand; all who take part are told.
func (h *Hub) CancelAny(ctx context.Context, call Call, in CancelInput) (Ended, error) {
	var err error
	if in.ThreadID, err = h.named(ctx, call, in.ThreadID); err != nil {
		return Ended{}, err
	}
	return h.Cancel(ctx, call, in)
}
