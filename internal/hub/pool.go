package hub

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// OpenInput is a handoff to whichever eligible agent claims it first. Sizes are bounded by
// [handoff.Limits].
type OpenInput struct {
	ProjectRoot string          `json:"project_root"`
	From        string          `json:"from_agent_id"`
	Target      json.RawMessage `json:"target"`
	Visibility  string          `json:"visibility"`
	// Payload is any JSON value, null included; nothing is no payload.
	Payload        json.RawMessage `json:"payload,omitempty"`
	Criteria       []string        `json:"acceptance_criteria,omitempty"`
	VerifyBy       json.RawMessage `json:"verify_by,omitempty"`
	DependsOn      []string        `json:"depends_on,omitempty"`
	TraceID        string          `json:"trace_id,omitempty"`
	SessionID      string          `json:"session_id,omitempty"`
	ExpiresIn      int64           `json:"expires_in_seconds,omitempty"`
	Priority       string          `json:"priority,omitempty"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
}

// Opened is the answer to it.
type Opened struct {
	HandoffID   string
	WorkspaceID string
	Status      string
	CreatedAt   time.Time
	TraceID     string
	// EligibleCount is how many active agents could claim it as things stand; not counted on a
	// replay.
	EligibleCount int
	Warning       string
	Notified      []string // handles that were told
	DependsOn     []string
	Dependencies  *DependencyCount
	Replay        bool
}

// DependencyCount says how far the handoffs are that one waits for.
type DependencyCount struct{ Total, Satisfied, Pending, Failed int }

// Open makes an open handoff: invalid_params, workspace_unresolved, permission_denied,
// recipient_not_found, teammate_blocked, dependency_not_found, dependency_not_met,
// feature_disabled, content_too_large or duplicate_idempotency_key, and then nothing is stored.
func (h *Hub) Open(ctx context.Context, call Call, in OpenInput) (Opened, error) {
	n, err := h.newPoolHandoff(call, in)
	if err != nil {
		return Opened{}, err
	}
	session := Session{ID: in.SessionID}
	in.SessionID = ""
	once, err := h.keyed(call, verbCreate, &in.IdempotencyKey, &in)
	if err != nil {
		return Opened{}, err
	}
	roster, err := h.roster(ctx)
	if err != nil {
		return Opened{}, err
	}
	var out Opened
	var made handoff.Handoff
	var members map[string]bool
	err = h.change(ctx, verbCreate, call, func(c *change) error {
		effect, found, err := c.done(once.op, once.print)
		if err != nil {
			return err
		}
		if found {
			out, err = c.reopened(effect.HandoffID)
			return err
		}
		if err := c.KeepWorkspace(n.place.id); err != nil {
			return err
		}
		w, err := enter(c.Tx, n.place, call.Actor)
		if err != nil {
			return err
		}
		if err := c.attribute(session); err != nil {
			return err
		}
		now := c.Now()
		if w.Root == "" {
			w.Root, w.CreatedAt = n.place.root, now
			if err := c.AddWorkspace(&w); err != nil {
				return err
			}
		}
		row := n.handoff
		row.WorkspaceID, row.CreatedAt, row.UpdatedAt = w.ID, now, now
		if in.ExpiresIn > 0 {
			row.ExpiresAt = now.Add(time.Duration(in.ExpiresIn) * time.Second)
		}
		out = Opened{HandoffID: row.ID, WorkspaceID: w.ID, Status: row.Status(), CreatedAt: now, TraceID: row.TraceID, DependsOn: in.DependsOn}
		if err := first(
			func() error { return c.aim(&row, &out) },
			func() error { return c.known(&row) },
			func() error { return c.verifiable(&row) },
			func() error { return c.dependOn(&row, in.DependsOn) }); err != nil {
			return err
		}
		row.Begin(now)
		if row.Blocked() { // whom it names is told once it can be claimed
			out.Notified = nil
		}
		if len(in.DependsOn) > 0 {
			out.Dependencies = &DependencyCount{Total: row.DepsTotal, Pending: row.DepsPending, Satisfied: row.DepsTotal - row.DepsPending}
		}
		if members, err = c.membersOf(w); err != nil {
			return err
		}
		row.EventSeq = 1
		made = row
		return first(
			func() error { return c.InsertHandoff(&row) },
			func() error {
				for _, id := range in.DependsOn {
					if err := c.InsertDependency(row.ID, id); err != nil {
						return err
					}
				}
				return nil
			},
			func() error { return c.tell(&row, handoff.EventCreated, call.Actor, "", 0, toldWhenOpen(&row)...) },
			func() error { c.wakeOffers(nil, &row); return nil },
			func() error { return c.keep(once, store.Effect{HandoffID: row.ID}) })
	})
	if isCode(err, handoff.CodeRecipientNotFound) {
		err = nearAgents(err, roster)
	}
	if err == nil && !out.Replay {
		out.countEligible(&made, members, roster)
	}
	return out, h.nearWords(ctx, err)
}

// toldWhenOpen is the agent that a direct target names; it is told once the handoff can be claimed.
func toldWhenOpen(row *handoff.Handoff) []string {
	if row.Blocked() {
		return nil
	}
	return []string{row.Recipient}
}

// countDependencies counts them as they are now: a deadline that passed has failed its handoff whether
// or not that is written down.
func countDependencies(deps []handoff.Handoff, now time.Time) *DependencyCount {
	if len(deps) == 0 {
		return nil
	}
	n := DependencyCount{Total: len(deps)}
	for i := range deps {
		switch state := deps[i].At(now).State; {
		case state == handoff.Completed:
			n.Satisfied++
		case state.Terminal():
			n.Failed++
		default:
			n.Pending++
		}
	}
	return &n
}

// reopened describes what an earlier create with the same key made, as it is now.
func (c *change) reopened(id string) (Opened, error) {
	row, err := c.Handoff(id)
	if err != nil {
		return Opened{}, err
	}
	row = row.At(c.Now())
	out := Opened{HandoffID: row.ID, WorkspaceID: row.WorkspaceID, Status: row.Status(), CreatedAt: row.CreatedAt, TraceID: row.TraceID, EligibleCount: -1, Replay: true}
	if c.hub.cfg.NoTrace {
		out.TraceID = ""
	}
	deps, err := c.Dependencies([]string{id})
	if err != nil {
		return out, err
	}
	for _, d := range deps[id] {
		out.DependsOn = append(out.DependsOn, d.ID)
	}
	out.Dependencies = countDependencies(deps[id], c.Now())
	return out, nil
}

// newOpen is what can be decided about an open handoff before the database is asked.
type newOpen struct {
	handoff handoff.Handoff
	place   place
}

var priorities = map[string]int{"": 0, "low": -1, "normal": 0, "high": 1}

func (h *Hub) newPoolHandoff(call Call, in OpenInput) (newOpen, error) {
	n := newOpen{handoff: handoff.Handoff{
		ID: newID(), Door: handoff.DoorPool, State: handoff.Open, Creator: call.Actor.ID, Payload: in.Payload, TraceParent: call.TraceParent,
	}}
	row := &n.handoff
	known := false
	return n, first(
		func() error { return isYou(call, "from_agent_id", in.From) },
		func() (err error) { n.place, err = placeOf(in.ProjectRoot); return err },
		func() (err error) { row.Target, err = handoff.ParseTarget(in.Target, h.lim); return err },
		func() (err error) { row.Visibility, err = parseVisibility(in.Visibility); return err },
		func() error {
			if len(in.Payload) == 0 {
				return nil
			}
			return handoff.CheckRawJSON("payload", in.Payload, h.lim.Payload, 0)
		},
		func() error { return h.contract(row, in) },
		func() error { return h.checkDependsOn(in.DependsOn) },
		func() error { return h.trace(row, call, in.TraceID) },
		func() error { return h.checkExpiry(in.ExpiresIn) },
		func() error {
			if row.Priority, known = priorities[strings.ToLower(in.Priority)]; !known {
				return handoff.Invalid("priority", handoff.Quote(in.Priority)+" came; low, normal and high are accepted")
			}
			return nil
		})
}

func parseVisibility(s string) (handoff.Visibility, error) {
	switch v := handoff.Visibility(strings.ToLower(s)); v {
	case handoff.Public, handoff.Eligible, handoff.Private:
		return v, nil
	}
	return "", handoff.Invalid("visibility", handoff.Quote(s)+" came; public, eligible and private are accepted")
}

func disabled(field, feature string) error {
	return handoff.Refuse(handoff.CodeFeatureDisabled, field+": it came, and this hub runs with feature_"+feature+" off",
		"Nothing was written. Leave "+field+" out, or ask the operator to turn the feature on.").With("field", field)
}

// contract reads the acceptance criteria and who verifies them.
func (h *Hub) contract(row *handoff.Handoff, in OpenInput) error {
	verifyBy := len(in.VerifyBy) > 0 && string(in.VerifyBy) != "null"
	switch {
	case h.cfg.NoVerification && len(in.Criteria) > 0:
		return disabled("acceptance_criteria", "verification")
	case h.cfg.NoVerification && verifyBy:
		return disabled("verify_by", "verification")
	case len(in.Criteria) == 0 && verifyBy:
		return handoff.Invalid("verify_by", "it came without acceptance_criteria; give criteria to verify, or leave it out")
	case len(in.Criteria) == 0:
		return nil
	}
	var err error
	if row.Criteria, err = handoff.ParseCriteria(in.Criteria, h.lim); err != nil {
		return err
	}
	row.VerifyBy, err = handoff.ParseVerifyBy(in.VerifyBy, h.lim)
	return err
}

func (h *Hub) checkDependsOn(ids []string) error {
	switch {
	case len(ids) == 0:
		return nil
	case h.cfg.NoDAG:
		return disabled("depends_on", "dag")
	}
	return handoff.CheckDependsOn(ids, h.lim)
}

// trace gives the handoff its trace id: the argument, else that of the call, else a new one.
func (h *Hub) trace(row *handoff.Handoff, call Call, argument string) error {
	if h.cfg.NoTrace {
		return nil
	}
	if argument != "" {
		if strings.TrimSpace(argument) == "" {
			return handoff.Invalid("trace_id", "only spaces came; a text of 1 to 128 bytes is accepted")
		}
		row.TraceID = argument
		if len(argument) > h.lim.TraceID {
			return handoff.Invalid("trace_id", fmt.Sprintf("%d bytes came, at most %d are accepted", len(argument), h.lim.TraceID))
		}
		return handoff.CheckText("trace_id", argument, h.lim.TraceID)
	}
	if row.TraceID = call.traceID(); row.TraceID == "" {
		var b [16]byte
		_, _ = rand.Read(b[:]) // it never fails
		row.TraceID = hex.EncodeToString(b[:])
	}
	return nil
}

// aim finds the agents that the target names.
func (c *change) aim(row *handoff.Handoff, out *Opened) error {
	for _, name := range row.Target.Names().Agents {
		a, err := c.agentCalled("target.agent_id", name)
		if err != nil {
			return err
		}
		if row.Target.Strategy == handoff.StrategyDirect {
			row.Recipient = a.ID
			out.Notified = []string{a.Handle}
		}
	}
	if row.Target.HasFallback() {
		a, err := c.agentCalled("target.agent_id", row.Target.AgentID)
		switch {
		case err == nil:
			row.Recipient = a.ID
			out.Notified = []string{a.Handle}
		case !isCode(err, handoff.CodeRecipientNotFound): // it may register later
			return err
		}
	}
	if row.Recipient == "" || row.Recipient == c.call.Actor.ID {
		out.Notified = nil
		return nil
	}
	blocked, err := c.Blocked(row.Recipient, c.call.Actor.ID)
	if err == nil && blocked {
		err = handoff.Refuse(handoff.CodeTeammateBlocked, "target.agent_id: "+handoff.Quote(row.Target.AgentID)+" does not take handoffs from you", "Nothing was written. Name another agent, or a target that others match.")
	}
	return err
}

// agentCalled reads an active agent by its handle or UUID.
func (c *change) agentCalled(field, name string) (store.AgentRow, error) {
	a, err := c.AgentByHandle(name)
	if isCode(err, handoff.CodeNotFound) && handoff.IsUUID(name) {
		a, err = c.Agent(strings.ToLower(name))
	}
	if err == nil && a.Disabled || isCode(err, handoff.CodeNotFound) {
		return a, noAgent(field, name)
	}
	return a, err
}

func noAgent(field, name string) *handoff.Error {
	e := noRecipient(field, name)
	e.Hint = "Nothing was written. Check the handle, or use a target such as a capability, which agents may match later."
	return e.With("named", name)
}

// nearAgents adds the handles that may be meant.
func nearAgents(err error, roster []store.AgentRow) error {
	e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
	if !ok {
		return err
	}
	name, _ := e.Details["named"].(string)
	delete(e.Details, "named")
	var handles []string
	for i := range roster {
		if !roster[i].Unlisted && handoff.ValidTeammateHandle(roster[i].Handle) {
			handles = append(handles, roster[i].Handle)
		}
	}
	near := handoff.NearMatches(name, handles, 3)
	if len(near) == 0 {
		return e
	}
	e.Message += "; did you mean " + joinOr(near) + "?"
	return e.With("near_matches", near)
}

// verifiable resolves who verifies, and refuses a contract that only the claimant could ever judge.
func (c *change) verifiable(row *handoff.Handoff) error {
	if row.VerifyBy == nil {
		return nil
	}
	verifier := row.Creator
	if row.VerifyBy.Kind == handoff.VerifyByAgent {
		a, err := c.agentCalled("verify_by.agent_id", row.VerifyBy.AgentID)
		if err != nil {
			return err
		}
		by := *row.VerifyBy
		by.AgentID, verifier = a.ID, a.ID
		row.VerifyBy = &by
	}
	if row.VerifyBy.Kind == handoff.VerifyByCapability { // others may come to offer it
		return nil
	}
	alone, err := c.onlyClaimant(row.Target, verifier)
	if err == nil && alone {
		err = handoff.Invalid("verify_by", "only the agent that the target names could verify the work, and whoever delivers never does; name another verifier, or another target")
	}
	return err
}

// onlyClaimant reports whether nobody but this agent can ever claim what has the target.
func (c *change) onlyClaimant(t *handoff.Target, agentID string) (bool, error) {
	if !t.NamedOnly() {
		return false, nil
	}
	named := t.Names().Agents
	if t.HasFallback() {
		named = append(named, t.AgentID)
	}
	for _, name := range named {
		a, err := c.agentCalled("target.agent_id", name)
		if isCode(err, handoff.CodeRecipientNotFound) || err == nil && a.ID != agentID {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	return true, nil
}

// dependOn locks the handoffs that row waits for and counts those that are not completed yet.
func (c *change) dependOn(row *handoff.Handoff, ids []string) error {
	row.DepsTotal = len(ids)
	deps, err := c.LockDependencies(ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		at := slices.IndexFunc(deps, func(d handoff.Handoff) bool { return d.ID == id })
		visible := false
		if at >= 0 {
			deps[at] = deps[at].At(c.Now())
		}
		if at >= 0 && deps[at].Door == handoff.DoorPool {
			if err := c.inSame(&deps[at], row); err == nil {
				if visible, err = readable(c.Tx, c.call.Actor, &deps[at]); err != nil {
					return err
				}
			} else if !isCode(err, handoff.CodeNotFound) {
				return err
			}
		}
		if !visible {
			return handoff.Refuse(handoff.CodeDependencyNotFound, fmt.Sprintf("depends_on[%d]: no handoff %s that you may see in this workspace", i, handoff.Quote(id)),
				"Nothing was written. handoff_list_available with scope mine_created lists those that you made.").With("field", fmt.Sprintf("depends_on[%d]", i))
		}
		switch state := deps[at].State; {
		case state == handoff.Completed:
		case state.Terminal():
			row.DepsFailed++
		default:
			row.DepsPending++
		}
	}
	if row.DepsFailed > 0 {
		return handoff.Refuse(handoff.CodeDependencyNotMet, fmt.Sprintf("depends_on: %d of %d have ended without being completed", row.DepsFailed, len(ids)),
			"Nothing was written. Leave those out that failed, or replace them first.").With("failed", row.DepsFailed).With("pending", row.DepsPending)
	}
	return nil
}

func (c *change) inSame(dependency, row *handoff.Handoff) error {
	return inPlace(c.Tx, dependency, place{id: row.WorkspaceID})
}

// readable reports whether the actor may read h.
func readable(tx *store.Tx, actor handoff.Actor, h *handoff.Handoff) (bool, error) {
	a, err := agentFor(tx, actor, h)
	if err != nil {
		return false, err
	}
	return h.ReadableBy(actor, a, tx.Now()), nil
}

// membersOf are the agents that may use the workspace; nil where every agent may.
func (c *change) membersOf(w store.Workspace) (map[string]bool, error) {
	if !w.Strict {
		return nil, nil
	}
	list, err := c.Members(w.ID)
	members := make(map[string]bool, len(list))
	for _, id := range list {
		members[id] = true
	}
	return members, err
}

// countEligible counts who could claim the handoff that was made, and warns when nobody could. Many
// rules and many agents take time, so it comes when no other write waits.
func (o *Opened) countEligible(made *handoff.Handoff, members map[string]bool, roster []store.AgentRow) {
	asLater := *made
	if asLater.Target.HasFallback() {
		asLater.FallbackOpened = true
	}
	for i := range roster {
		if a := &roster[i].Agent; (members == nil || members[a.ID]) && asLater.MayClaim(a, made.CreatedAt) {
			o.EligibleCount++
		}
	}
	if o.EligibleCount == 0 {
		o.Warning = "No active agent matches this target now. The handoff stays open, and whoever matches later can claim it."
	}
}
