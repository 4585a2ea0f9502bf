package restapi

import (
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// AgentEvents serves GET /api/v1/events: everything of the log that the calling agent may see, over
// all workspaces, as [AgentEventPage]. The query takes cursor ("0" is the beginning; none, or now,
// what comes from now on), wait (seconds, 0 to 50) and limit (1 to 500). caller says who calls; mount
// it behind what establishes that.
func AgentEvents(h *hub.Hub, log *slog.Logger, caller func(*http.Request) (hub.Call, bool)) http.Handler {
	return &agentEvents{hub: h, log: log, caller: caller}
}

type agentEvents struct {
	hub    *hub.Hub
	log    *slog.Logger
	caller func(*http.Request) (hub.Call, bool)
}

// AgentEventPage is a page of the log as an agent sees it. NextCursor goes on behind it, also where it
// is empty; with HasMore at once.
type AgentEventPage struct {
	Events     []HandoffEvent `json:"events"`
	NextCursor string         `json:"next_cursor"`
	HasMore    bool           `json:"has_more"`
}

func (a *agentEvents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	page, err := a.page(r)
	answer(w, r, a.log, err, page)
}

func (a *agentEvents) page(r *http.Request) (AgentEventPage, error) {
	call, ok := a.caller(r)
	if !ok {
		return AgentEventPage{}, handoff.Refuse(handoff.CodeUnauthenticated, "no credential came with the call", "Send Authorization: Bearer hc_live_….")
	}
	if err := a.hub.Allow(call.Actor); err != nil {
		return AgentEventPage{}, err
	}
	q := query{values: r.URL.Query()}
	in := hub.EventWaitInput{
		Stream: hub.StreamAll, AgentID: call.Actor.Handle, Cursor: q.text("cursor"),
		Limit: q.number("limit"), Wait: time.Duration(q.number("wait")) * time.Second,
	}
	if in.Cursor == "now" {
		in.Cursor = ""
	}
	if in.Wait < 0 || in.Wait > hub.MaxWait {
		q.err = handoff.Invalid("wait", handoff.Quote(q.text("wait"))+" came; 0 to 50 seconds are accepted")
	}
	if q.err != nil {
		return AgentEventPage{}, q.err
	}
	list, err := a.hub.EventWait(r.Context(), call, in)
	out := AgentEventPage{make([]HandoffEvent, len(list.Events)), list.NextCursor, list.HasMore}
	for i := range list.Events {
		e := &list.Events[i]
		out.Events[i] = HandoffEvent{eventRow(&e.Event), e.Actor}
	}
	return out, err
}

// retryAfter tells a client of a refusal that passes when to come again.
func retryAfter(w http.ResponseWriter, e *handoff.Error) {
	if seconds, ok := e.Details["retry_after_seconds"].(int); ok {
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
	} else if e.Code == handoff.CodeUnavailable {
		w.Header().Set("Retry-After", "1")
	}
}
