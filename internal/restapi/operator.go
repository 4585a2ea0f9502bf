// Package restapi serves plain HTTP with JSON. So far it holds the operator's routes, which
// are reached through the owner's socket: whoever can open that is the operator. For agents it has
// the events that they may see, and for all the one route by which a join link is redeemed.
package restapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// Operator serves the operator's verbs. Whoever reaches it acts as the operator, so it is
// mounted on the owner's socket only.
func Operator(h *hub.Hub, log *slog.Logger) http.Handler {
	o := &operator{hub: h, log: log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /operator/agents", o.listAgents)
	mux.HandleFunc("POST /operator/agents", o.addAgent)
	mux.HandleFunc("GET /operator/agents/{handle}", o.showAgent)
	mux.HandleFunc("POST /operator/agents/{handle}/edit", o.editAgent)
	mux.HandleFunc("POST /operator/agents/{handle}/block", o.setBlock(true))
	mux.HandleFunc("POST /operator/agents/{handle}/unblock", o.setBlock(false))
	mux.HandleFunc("POST /operator/agents/{handle}/notify", o.setNotify)
	mux.HandleFunc("POST /operator/agents/{handle}/disable", o.setDisabled(true))
	mux.HandleFunc("POST /operator/agents/{handle}/enable", o.setDisabled(false))
	mux.HandleFunc("GET /operator/agents/{handle}/keys", o.listKeys)
	mux.HandleFunc("POST /operator/agents/{handle}/keys", o.newKey(h.AddKey))
	mux.HandleFunc("POST /operator/agents/{handle}/keys/rotate", o.newKey(h.RotateKey))
	mux.HandleFunc("POST /operator/keys/{id}/revoke", o.revokeKey)
	mux.HandleFunc("GET /operator/invites", o.listInvites)
	mux.HandleFunc("POST /operator/invites", o.invite)
	mux.HandleFunc("POST /operator/invites/{jti}/revoke", o.revokeInvite)
	mux.HandleFunc("GET /operator/drafts", o.listDrafts)
	mux.HandleFunc("GET /operator/drafts/{id}", o.showDraft)
	mux.HandleFunc("POST /operator/drafts/{id}/decision", o.decideDraft)
	mux.HandleFunc("GET /operator/events", o.listEvents)
	mux.HandleFunc("GET /operator/backup", o.backup)
	mux.HandleFunc("GET /operator/catalog", o.listCatalog)
	mux.HandleFunc("POST /operator/catalog/add", o.changeCatalog(h.AddToCatalog))
	mux.HandleFunc("POST /operator/catalog/remove", o.changeCatalog(h.RemoveFromCatalog))
	mux.HandleFunc("GET /operator/workspaces", o.listWorkspaces)
	mux.HandleFunc("POST /operator/workspaces/alias", o.aliasWorkspace)
	mux.HandleFunc("POST /operator/workspaces/members", o.workspaceMembers)
	o.handoffRoutes(mux)
	o.deskRoutes(mux)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		o.fail(w, nil, handoff.Refuse(handoff.CodeMethodNotFound, "the hub that owns this folder does not know the operation", "It runs another version: restart it with this one."))
	})
	return mux
}

type operator struct {
	hub *hub.Hub
	log *slog.Logger
}

var asOperator = hub.Call{Actor: handoff.Operator()}

// NewKey is a key at the one moment it is shown.
type NewKey struct {
	AgentID string `json:"agent_id"`
	Handle  string `json:"handle"`
	KeyID   string `json:"key_id"`
	APIKey  string `json:"api_key"`
}

// Agent is an agent as the operator sees it.
type Agent struct {
	AgentID    string   `json:"agent_id"`
	Handle     string   `json:"handle"`
	Name       string   `json:"name"`
	Role       string   `json:"role"`
	Skills     []string `json:"skills"`
	Repos      []string `json:"repos_owned"`
	Status     string   `json:"status"` // active or disabled
	CreatedAt  string   `json:"created_at"`
	LastSeenAt *string  `json:"last_seen_at"`
}

// Key is a key without its secret.
type Key struct {
	KeyID      string  `json:"key_id"`
	Hint       string  `json:"hint"`
	Label      string  `json:"label"`
	CreatedAt  string  `json:"created_at"`
	LastUsedAt *string `json:"last_used_at"`
	RevokedAt  *string `json:"revoked_at"`
}

// Draft is a draft that waits for a decision, or was decided.
type Draft struct {
	DraftID       string   `json:"draft_id"`
	ThreadID      string   `json:"thread_id"`
	From          string   `json:"from,omitempty"`   // who offers it
	Sender        string   `json:"sender,omitempty"` // who asked for the action
	Status        string   `json:"status"`
	Description   string   `json:"description"`
	Rationale     string   `json:"rationale"`
	TargetFiles   []string `json:"target_files"`
	SuggestedDiff string   `json:"suggested_diff"`
	Reason        string   `json:"reason,omitempty"`
	CreatedAt     string   `json:"created_at"`
}

// Event is one row of the log.
type Event struct {
	Cursor    string `json:"cursor"`
	Type      string `json:"type"`
	HandoffID string `json:"handoff_id,omitempty"`
	Seq       int    `json:"event_seq,omitempty"`
	ActorID   string `json:"actor_id"`
	SubjectID string `json:"subject_id,omitempty"`
	State     string `json:"state,omitempty"`
	Epoch     int    `json:"claim_epoch"`
	TraceID   string `json:"trace_id,omitempty"`
	SessionID string `json:"session_id,omitempty"` // in which the actor did it
	At        string `json:"at"`
}

// Events is a page of the log; NextCursor goes on behind it, also where it is empty.
type Events struct {
	Events     []Event `json:"events"`
	NextCursor string  `json:"next_cursor"`
}

func (o *operator) addAgent(w http.ResponseWriter, r *http.Request) {
	var in hub.AgentInput
	if !o.decode(w, r, &in) {
		return
	}
	k, err := o.hub.AddAgent(r.Context(), asOperator, in)
	o.answer(w, r, err, NewKey{k.AgentID, k.Handle, k.KeyID, k.Secret})
}

func (o *operator) listAgents(w http.ResponseWriter, r *http.Request) {
	list, err := o.hub.Agents(r.Context(), asOperator)
	out := make([]Agent, len(list))
	for i := range list {
		out[i] = agentJSON(&hub.AgentInfo{AgentRow: list[i]})
	}
	o.answer(w, r, err, map[string]any{"agents": out})
}

func (o *operator) setDisabled(disabled bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		err := o.hub.SetDisabled(r.Context(), asOperator, r.PathValue("handle"), disabled)
		o.answer(w, r, err, map[string]any{"handle": r.PathValue("handle"), "disabled": disabled})
	}
}

func (o *operator) listKeys(w http.ResponseWriter, r *http.Request) {
	list, err := o.hub.Keys(r.Context(), asOperator, r.PathValue("handle"))
	o.answer(w, r, err, map[string]any{"keys": keysJSON(&hub.AgentInfo{Keys: list})})
}

func (o *operator) newKey(issue func(context.Context, hub.Call, string, string) (hub.NewKey, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			Label string `json:"label"`
		}
		if !o.decode(w, r, &in) {
			return
		}
		k, err := issue(r.Context(), asOperator, r.PathValue("handle"), in.Label)
		o.answer(w, r, err, NewKey{k.AgentID, k.Handle, k.KeyID, k.Secret})
	}
}

func (o *operator) revokeKey(w http.ResponseWriter, r *http.Request) {
	err := o.hub.RevokeKey(r.Context(), asOperator, r.PathValue("id"))
	o.answer(w, r, err, map[string]any{"key_id": r.PathValue("id"), "revoked": true})
}

func (o *operator) listDrafts(w http.ResponseWriter, r *http.Request) {
	list, err := o.hub.UndecidedDrafts(r.Context(), asOperator)
	out := make([]Draft, len(list))
	for i := range list {
		out[i] = draftInfo(&list[i])
	}
	o.answer(w, r, err, map[string]any{"drafts": out})
}

func (o *operator) showDraft(w http.ResponseWriter, r *http.Request) {
	d, err := o.hub.FindDraft(r.Context(), asOperator, r.PathValue("id"))
	o.answer(w, r, err, draftInfo(&d))
}

func draftInfo(d *hub.DraftInfo) Draft {
	out := showDraft(&d.Draft)
	out.From, out.Sender = d.From, d.Sender
	return out
}

func (o *operator) decideDraft(w http.ResponseWriter, r *http.Request) {
	in := hub.DecideInput{DraftID: r.PathValue("id")}
	if !o.decode(w, r, &in) {
		return
	}
	in.DraftID = r.PathValue("id")
	d, err := o.hub.DecideDraft(r.Context(), asOperator, in)
	o.answer(w, r, err, showDraft(&d))
}

func showDraft(d *handoff.Draft) Draft {
	return Draft{
		DraftID: d.ID, ThreadID: d.HandoffID, Status: string(d.Status), Description: d.Description, Rationale: d.Rationale,
		TargetFiles: orEmpty(d.TargetFiles), SuggestedDiff: d.SuggestedDiff, Reason: d.Reason, CreatedAt: stamp(d.CreatedAt),
	}
}

func (o *operator) listEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	in := hub.EventsInput{Cursor: q.Get("cursor"), As: q.Get("as")}
	switch in.Cursor {
	case "":
		in.Cursor = "0"
	case "now":
		in.Cursor = ""
	}
	if wait := q.Get("wait"); wait != "" {
		seconds, err := strconv.Atoi(wait)
		if err != nil {
			o.fail(w, r, handoff.Invalid("wait", handoff.Quote(wait)+" came; whole seconds are accepted"))
			return
		}
		in.Wait = time.Duration(seconds) * time.Second
	}
	list, next, err := o.hub.Events(r.Context(), asOperator, in)
	out := Events{make([]Event, len(list)), next}
	for i := range list {
		out.Events[i] = eventRow(&list[i])
	}
	o.answer(w, r, err, out)
}

func eventRow(e *handoff.Event) Event {
	return Event{e.Cursor, string(e.Type), e.HandoffID, e.Seq, e.ActorID, e.SubjectID, string(e.State), e.Epoch, e.TraceID, e.SessionID, stamp(e.At)}
}

// decode reads a small JSON body strictly; an empty one is an empty object.
func (o *operator) decode(w http.ResponseWriter, r *http.Request, dest any) bool {
	if err := decodeOne(http.MaxBytesReader(w, r.Body, 1<<20), dest); err != nil && !errors.Is(err, io.EOF) {
		o.fail(w, r, err)
		return false
	}
	return true
}

func (o *operator) answer(w http.ResponseWriter, r *http.Request, err error, body any) {
	answer(w, r, o.log, err, body)
}

func answer(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error, body any) {
	if err != nil {
		fail(w, r, log, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body) // the command may be gone
}

// Problem is an error on the wire (RFC 9457).
type Problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail"`
	Code      handoff.Code   `json:"code"`
	Hint      string         `json:"hint,omitempty"`
	Details   map[string]any `json:"details,omitempty"`
	Retryable bool           `json:"retryable"`
}

func (o *operator) fail(w http.ResponseWriter, r *http.Request, err error) { fail(w, r, o.log, err) }

// fail answers with a problem. r is nil where no route was found.
func fail(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	var e *handoff.Error
	if !errors.As(err, &e) {
		if r != nil {
			log.ErrorContext(r.Context(), "internal error", "route", r.Pattern, "error", err)
		}
		e = handoff.Refuse(handoff.CodeInternal, "internal error", "The log of the hub says more.")
	}
	status := handoff.Lookup(e.Code).HTTP
	retryAfter(w, e)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Problem{"about:blank", http.StatusText(status), status, e.Message, e.Code, e.Hint, e.Details, e.Retryable()})
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func stampOrNull(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := stamp(t)
	return &s
}

func orEmpty(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
