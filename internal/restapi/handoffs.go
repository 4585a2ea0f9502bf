package restapi

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// handoffRoutes are the operator's hand on handoffs. An {id} may be the beginning of one.
func (o *operator) handoffRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /operator/handoffs", o.listHandoffs)
	mux.HandleFunc("GET /operator/handoffs/{id}", o.showHandoff)
	mux.HandleFunc("GET /operator/handoffs/{id}/events", o.showHistory)
	mux.HandleFunc("POST /operator/handoffs/{id}/cancel", o.cancelHandoff)
	mux.HandleFunc("POST /operator/handoffs/{id}/reassign", o.reassignHandoff)
	mux.HandleFunc("POST /operator/handoffs/{id}/erase", o.eraseHandoff)
}

// Handoff is a handoff as a list shows it. From, To and Holder are handles. What its door does not
// know is left out.
type Handoff struct {
	ThreadID       string  `json:"thread_id"`
	Door           string  `json:"door"`
	Status         string  `json:"status"` // a word of its door
	State          string  `json:"state"`
	From           string  `json:"from"`
	To             string  `json:"to,omitempty"` // whom it names; most targets name nobody
	Holder         *string `json:"holder"`       // who holds it, or held it when it ended
	Intent         string  `json:"intent,omitempty"`
	Preview        string  `json:"summary_preview,omitempty"`
	*Pool          `json:",omitempty"`
	*Desk          `json:",omitempty"`
	ClaimEpoch     int     `json:"claim_epoch"`
	LeaseExpiresAt *string `json:"lease_expires_at"`
	HeldSince      *string `json:"held_since,omitempty"` // in lists, while somebody holds it
	CreatedAt      string  `json:"created_at"`
	UpdatedAt      string  `json:"updated_at"`
	ExpiresAt      *string `json:"expires_at"`
	FetchedAt      *string `json:"recipient_fetched_at"`
	AcceptedAt     *string `json:"accepted_at"`
	CompletedAt    *string `json:"completed_at"`
	ErasedAt       *string `json:"erased_at"`
}

// Pool is what an open handoff has besides.
type Pool struct {
	WorkspaceID string          `json:"workspace_id"`
	ProjectRoot string          `json:"project_root"`
	Target      *handoff.Target `json:"target"` // who may claim it
	Visibility  string          `json:"visibility"`
	Priority    string          `json:"priority"`
	TraceID     string          `json:"trace_id,omitempty"`
}

// Desk is what a handoff of the desk has besides.
type Desk struct {
	Slug string `json:"business_slug"`
	Mode string `json:"mode"` // human or agent
}

// Party is somebody who has to do with a handoff.
type Party struct {
	AgentID string `json:"agent_id"`
	Handle  string `json:"handle"`
	Name    string `json:"name"`
	Role    string `json:"role"`
}

// ThreadMessage is one message of a thread.
type ThreadMessage struct {
	MessageID    string            `json:"message_id"`
	SequenceNo   int               `json:"sequence_no"`
	From         string            `json:"from"`
	Body         string            `json:"body"`
	Payload      json.RawMessage   `json:"payload,omitempty"`
	Artifacts    []json.RawMessage `json:"artifacts"`
	ExpectsReply bool              `json:"expects_reply,omitempty"`
	CreatedAt    string            `json:"created_at"`
}

// HandoffThread is a handoff with one page of its thread: all that its operator may see, which
// is neither payload nor result nor feedback. The parts from Summary on stand on the first page only,
// but for Messages.
type HandoffThread struct {
	Handoff
	*Contract           `json:",omitempty"`
	WaitsForReply       bool                    `json:"waits_for_reply,omitempty"`
	Parties             []Party                 `json:"parties"`
	EndedBy             string                  `json:"ended_by,omitempty"`
	EndedReason         string                  `json:"ended_reason,omitempty"`
	Summary             string                  `json:"summary,omitempty"`
	Question            string                  `json:"question,omitempty"`
	Artifacts           []json.RawMessage       `json:"artifacts,omitempty"`
	ProposedAction      *handoff.ProposedAction `json:"proposed_action,omitempty"`
	Metadata            json.RawMessage         `json:"metadata,omitempty"`
	Drafts              []Draft                 `json:"drafts,omitempty"`
	ResultSummary       string                  `json:"result_summary,omitempty"`
	CompletionArtifacts []json.RawMessage       `json:"completion_artifacts,omitempty"`
	Messages            []ThreadMessage         `json:"messages"`
	// Deliveries are what went out of it to people, and to agents outside.
	Deliveries     []Delivery `json:"deliveries,omitempty"`
	HasMore        bool       `json:"has_more"`
	NextSequenceNo int        `json:"next_sequence_no,omitempty"`
	// Events is filled by the command, which reads them page by page.
	Events []HandoffEvent `json:"events,omitempty"`
}

// Contract is what must be proved of an open handoff and what came of it, with what it waits for. It
// stands on the first page.
type Contract struct {
	Criteria     []string          `json:"acceptance_criteria,omitempty"`
	VerifyBy     *handoff.VerifyBy `json:"verify_by,omitempty"` // an agent by its handle
	Verification *Verification     `json:"verification,omitempty"`
	HasResult    bool              `json:"has_result"` // its creator, its claimant and its verifier read it
	DependsOn    []Dependency      `json:"depends_on,omitempty"`
	Dependencies *DependencyCount  `json:"dependencies,omitempty"`
}

// Verification is the latest verdict.
type Verification struct {
	Verdict    string `json:"verdict"` // pass or fail
	VerifiedBy string `json:"verified_by"`
	At         string `json:"at"`
}

// Dependency is a handoff that another waits or waited for.
type Dependency struct {
	HandoffID string `json:"handoff_id"`
	Status    string `json:"status"`
}

// DependencyCount says how far they are.
type DependencyCount struct {
	Total     int `json:"total"`
	Satisfied int `json:"satisfied"`
	Pending   int `json:"pending"`
	Failed    int `json:"failed"`
}

// HandoffEvent is one event of a handoff with the handle of who caused it.
type HandoffEvent struct {
	Event
	Actor string `json:"actor"`
}

// HandoffEvents is a page of them; NextSeq is 0 on the last.
type HandoffEvents struct {
	Events  []HandoffEvent `json:"events"`
	NextSeq int            `json:"next_event_seq,omitempty"`
}

// Handoffs is a page of a list.
type Handoffs struct {
	Handoffs   []Handoff `json:"handoffs"`
	NextCursor *string   `json:"next_cursor"`
}

// Ended answers a cancellation.
type Ended struct {
	ThreadID string `json:"thread_id"`
	Status   string `json:"status"`
	Replay   bool   `json:"idempotent_replay,omitempty"`
}

// Reassigned answers a reassignment.
type Reassigned struct {
	ThreadID   string `json:"thread_id"`
	Holder     string `json:"holder"`
	ClaimEpoch int    `json:"claim_epoch"`
	Replay     bool   `json:"idempotent_replay,omitempty"`
}

// Erased answers an erasure.
type Erased struct {
	ThreadID string `json:"thread_id"`
	ErasedAt string `json:"erased_at"`
	Replay   bool   `json:"idempotent_replay,omitempty"`
}

func (o *operator) listHandoffs(w http.ResponseWriter, r *http.Request) {
	q := query{values: r.URL.Query()}
	in := hub.ListInput{
		Statuses: q.values["status"], Door: q.text("door"), Root: q.text("project_root"), Agent: q.text("agent"), From: q.text("from"), To: q.text("to"),
		Since: q.time("since"), Unfetched: q.text("unfetched") == "true", Untold: q.text("untold") == "true",
		HeldLonger: time.Duration(q.number("held_longer_than_seconds")) * time.Second,
		Limit:      q.number("limit"), Cursor: q.text("cursor"),
	}
	if q.err != nil {
		o.fail(w, r, q.err)
		return
	}
	page, err := o.hub.Handoffs(r.Context(), asOperator, in)
	out := Handoffs{Handoffs: make([]Handoff, len(page.Items))}
	for i := range page.Items {
		item := &page.Items[i]
		out.Handoffs[i] = handoffLine(&item.Handoff, page.Roots[item.Handoff.WorkspaceID], func(id string) string { return handleIn(page.Parties, id) })
		out.Handoffs[i].Desk = deskOf(page.Desks[item.Handoff.ID])
		out.Handoffs[i].HeldSince = stampOrNull(item.HeldSince)
	}
	if page.NextCursor != "" {
		out.NextCursor = &page.NextCursor
	}
	o.answer(w, r, err, out)
}

func (o *operator) showHandoff(w http.ResponseWriter, r *http.Request) {
	q := query{values: r.URL.Query()}
	in := hub.ViewInput{ThreadID: r.PathValue("id"), After: q.number("after_sequence_no"), Limit: q.number("limit"), Size: hub.TextSize{}}
	if q.err != nil {
		o.fail(w, r, q.err)
		return
	}
	t, err := o.hub.Inspect(r.Context(), asOperator, in)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	o.answer(w, r, nil, handoffThread(&t))
}

func (o *operator) showHistory(w http.ResponseWriter, r *http.Request) {
	q := query{values: r.URL.Query()}
	after := q.number("after_event_seq")
	if q.err != nil {
		o.fail(w, r, q.err)
		return
	}
	page, err := o.hub.History(r.Context(), asOperator, r.PathValue("id"), after)
	out := HandoffEvents{Events: make([]HandoffEvent, len(page.Events)), NextSeq: page.NextSeq}
	for i := range page.Events {
		out.Events[i] = HandoffEvent{eventRow(&page.Events[i]), handleIn(page.Parties, page.Events[i].ActorID)}
	}
	o.answer(w, r, err, out)
}

func (o *operator) cancelHandoff(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Reason string `json:"reason"`
	}
	if !o.decode(w, r, &in) {
		return
	}
	e, err := o.hub.CancelAny(r.Context(), asOperator, hub.CancelInput{ThreadID: r.PathValue("id"), Reason: in.Reason})
	o.answer(w, r, err, Ended{e.ThreadID, e.DoorStatus, e.Replay})
}

func (o *operator) reassignHandoff(w http.ResponseWriter, r *http.Request) {
	var in struct {
		To     string `json:"to"`
		Reason string `json:"reason"`
	}
	if !o.decode(w, r, &in) {
		return
	}
	a, err := o.hub.Reassign(r.Context(), asOperator, hub.ReassignInput{ThreadID: r.PathValue("id"), To: in.To, Reason: in.Reason})
	o.answer(w, r, err, Reassigned{a.ThreadID, a.Holder, a.Epoch, a.Replay})
}

func (o *operator) eraseHandoff(w http.ResponseWriter, r *http.Request) {
	e, err := o.hub.Erase(r.Context(), asOperator, r.PathValue("id"))
	o.answer(w, r, err, Erased{e.ThreadID, stamp(e.ErasedAt), e.Replay})
}

var priorities = map[int]string{-1: "low", 0: "normal", 1: "high"}

func handoffLine(h *handoff.Handoff, root string, handle func(id string) string) Handoff {
	out := Handoff{
		ThreadID: h.ID, Door: string(h.Door), Status: h.Status(), State: string(h.State),
		From: handle(h.Creator), To: handle(h.Recipient), Intent: string(h.Intent), Preview: h.Preview, ClaimEpoch: h.Epoch,
		LeaseExpiresAt: stampOrNull(h.LeaseExpiresAt), CreatedAt: stamp(h.CreatedAt), UpdatedAt: stamp(h.UpdatedAt), ExpiresAt: stampOrNull(h.ExpiresAt),
		FetchedAt: stampOrNull(h.FetchedAt), AcceptedAt: stampOrNull(h.AcceptedAt), CompletedAt: stampOrNull(h.CompletedAt), ErasedAt: stampOrNull(h.ErasedAt),
	}
	if h.Holder != "" {
		holder := handle(h.Holder)
		out.Holder = &holder
	}
	if h.Door == handoff.DoorPool {
		out.Pool = &Pool{h.WorkspaceID, root, h.Target, string(h.Visibility), priorities[h.Priority], h.TraceID}
	}
	return out
}

func deskOf(d handoff.Desk) *Desk {
	if d.Slug == "" {
		return nil
	}
	return &Desk{d.Slug, string(d.Mode)}
}

func handoffThread(t *hub.Thread) HandoffThread {
	h := &t.Handoff
	handle := func(id string) string { return handleIn(t.Parties, id) }
	out := HandoffThread{
		Handoff: handoffLine(h, t.Root, handle), WaitsForReply: h.WaitsForReply, Parties: []Party{}, EndedBy: handle(h.EndedBy), EndedReason: h.EndedReason,
		Messages: make([]ThreadMessage, len(t.Messages)), HasMore: t.HasMore, NextSequenceNo: t.NextSequenceNo,
	}
	for _, id := range []string{h.Creator, h.Recipient, h.Holder} {
		if p := t.Party(id); id != "" && (len(out.Parties) == 0 || out.Parties[len(out.Parties)-1].AgentID != id) {
			out.Parties = append(out.Parties, Party{p.ID, p.Handle, p.Name, p.Role})
		}
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		out.Messages[i] = ThreadMessage{m.ID, m.SequenceNo, handle(m.Author), m.Body, m.Payload, raws(m.Artifacts), m.ExpectsReply, stamp(m.CreatedAt)}
	}
	out.Desk = deskOf(t.Desk)
	if !t.FirstPage {
		return out
	}
	for i := range t.Deliveries {
		out.Deliveries = append(out.Deliveries, deliveryJSON(&t.Deliveries[i], handleIn(t.Recipients, t.Deliveries[i].Recipient)))
	}
	if h.Door == handoff.DoorPool {
		out.Contract = contract(t, handle)
	} else {
		out.Summary, out.Artifacts = t.Summary.Body, raws(t.Summary.Artifacts)
	}
	out.Question, out.ProposedAction = h.Question, h.ProposedAction
	out.Metadata, out.ResultSummary, out.CompletionArtifacts = h.Metadata, h.ResultSummary, raws(h.CompletionArtifacts)
	for i := range t.Drafts {
		d := showDraft(&t.Drafts[i])
		d.From = handle(t.Drafts[i].Author)
		out.Drafts = append(out.Drafts, d)
	}
	return out
}

func contract(t *hub.Thread, handle func(id string) string) *Contract {
	h := &t.Handoff
	out := &Contract{Criteria: h.Criteria, HasResult: t.HasResult}
	if h.VerifyBy != nil {
		by := *h.VerifyBy
		if by.AgentID != "" {
			by.AgentID = handle(by.AgentID)
		}
		out.VerifyBy = &by
	}
	if v := h.Verdict; v != nil {
		out.Verification = &Verification{map[bool]string{true: "pass", false: "fail"}[v.Pass], handle(v.VerifiedBy), stamp(v.At)}
	}
	for _, d := range t.DependsOn {
		out.DependsOn = append(out.DependsOn, Dependency{d.ID, d.State.PoolStatus()})
	}
	if t.Dependencies != nil {
		count := DependencyCount(*t.Dependencies)
		out.Dependencies = &count
	}
	return out
}

func handleIn(parties map[string]hub.Party, id string) string {
	if p, ok := parties[id]; ok {
		return p.Handle
	}
	return id // the operator and the hub are called what they are
}

func raws(list []handoff.Artifact) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i := range list {
		out[i] = list[i].Raw
	}
	return out
}

// query reads the parameters of a request and keeps the first fault.
type query struct {
	values url.Values
	err    error
}

func (q *query) text(name string) string { return q.values.Get(name) }

func (q *query) number(name string) int {
	s := q.text(name)
	if s == "" {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil && q.err == nil {
		q.err = handoff.Invalid(name, handoff.Quote(s)+" came; a whole number is accepted")
	}
	return int(n)
}

func (q *query) time(name string) time.Time {
	s := q.text(name)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil && q.err == nil {
		q.err = handoff.Invalid(name, handoff.Quote(s)+" came; an RFC 3339 time is accepted, such as 2026-11-30T12:00:00Z")
	}
	return t
}
