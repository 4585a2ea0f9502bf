package hub

import (
	"context"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// Work is a handoff as one reader sees it at the pool: what it may not see is left out. Texts are as
// they were sent; doors mark what others wrote.
type Work struct {
	Handoff handoff.Handoff
	Viewer  handoff.Actor
	handles map[string]string // by actor id
	// DependsOn are those of the dependencies that the reader may see; Dependencies counts them all,
	// nil when there are none.
	DependsOn    []string
	Dependencies *DependencyCount
	Replay       bool
}

// Handle is how the actor with this id is named.
func (w *Work) Handle(id string) string {
	if handle, ok := w.handles[id]; ok {
		return handle
	}
	return id
}

// works makes what the reader sees of some handoffs, as they are now. a is the reader's agent with
// its labels, nil for the operator.
func (h *Hub) works(tx *store.Tx, viewer handoff.Actor, a *handoff.Agent, rows []handoff.Handoff) ([]Work, error) {
	ids, waiting := map[string]bool{}, []string{}
	for i := range rows {
		row := &rows[i]
		hide(row, viewer, a)
		if !row.ReadableBy(viewer, a, tx.Now()) {
			conceal(row)
		}
		for _, id := range []string{row.Creator, row.Holder, row.EndedBy, row.Recipient} {
			ids[id] = true
		}
		if row.Verdict != nil {
			ids[row.Verdict.VerifiedBy] = true
		}
		if row.VerifyBy != nil {
			ids[row.VerifyBy.AgentID] = true
		}
		if row.DepsTotal > 0 {
			waiting = append(waiting, row.ID)
		}
	}
	handles, err := h.handles.of(tx, ids)
	if err != nil {
		return nil, err
	}
	deps, err := tx.Dependencies(waiting)
	if err != nil {
		return nil, err
	}
	list := make([]Work, len(rows))
	for i := range rows {
		w := Work{Handoff: rows[i], Viewer: viewer, handles: handles}
		for _, d := range deps[rows[i].ID] {
			if seen := d.At(tx.Now()); seen.ReadableBy(viewer, a, tx.Now()) {
				w.DependsOn = append(w.DependsOn, d.ID)
			}
		}
		w.Dependencies = countDependencies(deps[rows[i].ID], tx.Now())
		list[i] = w
	}
	return list, nil
}

// hide takes from a row what its reader may not see (domain: "Who sees what").
func hide(row *handoff.Handoff, viewer handoff.Actor, a *handoff.Agent) {
	if !row.PayloadFor(viewer.ID) {
		row.Payload = nil
	}
	if row.ResultFor(viewer, a) {
		return
	}
	row.Result, row.ResultSummary, row.CompletionArtifacts = nil, "", nil
	if !row.Participant(viewer, a) && viewer.ID != row.EndedBy { // whom it names may know why it was taken back
		row.EndedReason = ""
	}
	if row.Verdict != nil {
		verdict := *row.Verdict
		verdict.Feedback = ""
		row.Verdict = &verdict
	}
}

// conceal leaves of a row what may hear of it whoever lost it and repeats a call of before: its status,
// and not who has it now.
func conceal(row *handoff.Handoff) {
	row.Holder, row.EndedBy, row.Verdict, row.LeaseExpiresAt = "", "", nil, time.Time{}
}

// work is works for one handoff.
func (h *Hub) work(tx *store.Tx, viewer handoff.Actor, a *handoff.Agent, row handoff.Handoff) (Work, error) {
	list, err := h.works(tx, viewer, a, []handoff.Handoff{row})
	if err != nil {
		return Work{}, err
	}
	return list[0], nil
}

// labelled reads an agent with its labels as one that uses a workspace; nil for another actor.
func labelled(tx *store.Tx, actor handoff.Actor, workspaceID string) (*handoff.Agent, error) {
	if actor.Kind != handoff.KindAgent {
		return nil, nil
	}
	a, err := tx.AgentIn(actor.ID, workspaceID)
	return &a, err
}

// keptLabelled is labelled for the caller that is about to hold something: it cannot be turned off before
// that is committed, and then what it holds is found.
func (c *change) keptLabelled(workspaceID string) (*handoff.Agent, error) {
	actor := c.call.Actor
	if actor.Kind != handoff.KindAgent {
		return nil, nil
	}
	if c.kept == nil || c.keptIn != workspaceID {
		a, err := c.KeepAgentIn(actor.ID, workspaceID)
		if err != nil {
			return nil, err
		}
		c.kept, c.keptIn = &a, workspaceID
	}
	return c.kept, nil
}

// GetInput reads one handoff.
type GetInput struct {
	ProjectRoot string `json:"project_root"`
	HandoffID   string `json:"handoff_id"`
	AgentID     string `json:"agent_id"`
	// KnownStatus and Wait park the call until the status is another.
	KnownStatus string        `json:"known_status"`
	Wait        time.Duration `json:"-"`
}

// Get reads a handoff as the caller may see it; not_found for whoever may not. What the caller was
// told of it counts as seen.
func (h *Hub) Get(ctx context.Context, call Call, in GetInput) (Work, error) {
	at, err := h.poolCall(call, in.AgentID, in.ProjectRoot)
	if err != nil {
		return Work{}, err
	}
	if err := checkWait(in.Wait); err != nil {
		return Work{}, err
	}
	known, err := parseStatus(in.KnownStatus)
	if err != nil {
		return Work{}, err
	}
	var out Work
	var seen []store.Notice
	err = h.park(ctx, call, []string{wakeHandoff(in.HandoffID)}, in.Wait, func(*waiter) (bool, error) {
		err := h.st.Read(ctx, func(tx *store.Tx) error {
			var err error
			if out, err = h.shown(tx, call, in.HandoffID, &at); err != nil {
				return err
			}
			notices, err := tx.Notices(call.Actor.ID, &out.Handoff)
			seen = slices.DeleteFunc(notices, func(n store.Notice) bool { return n.SequenceNo > 0 })
			return err
		})
		return known == "" || out.Handoff.State != known, err
	})
	if err != nil || len(seen) == 0 {
		return out, err
	}
	return out, h.change(ctx, "get", call, func(c *change) error { return c.clear(call.Actor, &out.Handoff, seen) })
}

// Show reads a handoff as the caller may see it, in whichever workspace, and leaves no trace.
func (h *Hub) Show(ctx context.Context, call Call, id string) (Work, error) {
	var out Work
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		out, err = h.shown(tx, call, id, nil)
		return err
	})
	return out, err
}

// shown reads a handoff as the caller may see it, of the workspace at; of any for nil.
func (h *Hub) shown(tx *store.Tx, call Call, id string, at *place) (Work, error) {
	row, err := tx.Handoff(id)
	if isCode(err, handoff.CodeNotFound) {
		return Work{}, poolNotFound(id)
	}
	if err == nil && at != nil {
		err = inPlace(tx, &row, *at)
	}
	if err != nil {
		return Work{}, err
	}
	row = row.At(tx.Now())
	a, err := labelled(tx, call.Actor, row.WorkspaceID)
	if err != nil {
		return Work{}, err
	}
	if !row.ReadableBy(call.Actor, a, tx.Now()) {
		return Work{}, poolNotFound(id)
	}
	return h.work(tx, call.Actor, a, row)
}

// parseStatus reads a status word of any door; nothing is no state.
func parseStatus(word string) (handoff.State, error) {
	if word == "" {
		return "", nil
	}
	for _, s := range handoff.States() {
		if strings.EqualFold(word, s.PoolStatus()) {
			return s, nil
		}
	}
	return "", handoff.Invalid("known_status", handoff.Quote(word)+" came; "+joinOr(poolStatuses())+" are accepted")
}

// poolStatuses lists the words of the pool.
func poolStatuses() []string {
	var words []string
	for _, s := range handoff.States() {
		words = append(words, s.PoolStatus())
	}
	return words
}

// poolCall checks what every call at the pool names: the caller itself and a project.
func (h *Hub) poolCall(call Call, agentID, projectRoot string) (place, error) {
	if err := isYou(call, "agent_id", agentID); err != nil {
		return place{}, err
	}
	return placeOf(projectRoot)
}
