package mcpserver

import (
	"encoding/json"
	"math"
	"regexp"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// How handoffs look at the pool.

var (
	dependenciesOut = object("dependencies", "How far those are that it waits for.",
		integer("total", "", 0, math.MaxInt32).need(), integer("satisfied", "", 0, math.MaxInt32).need(),
		integer("pending", "", 0, math.MaxInt32).need(), integer("failed", "", 0, math.MaxInt32).need())
	workOut = []param{
		str("handoff_id", "").need(), str("workspace_id", ""), str("status", "").need(), str("created_by", "").need(),
		object("target", "").open(), str("visibility", ""), str("priority", ""), str("created_at", "").need(),
		str("claimed_by", ""), integer("claim_epoch", "", 0, math.MaxInt32).need(), str("lease_expires_at", ""),
		list("acceptance_criteria", "", str("", "")), object("verify_by", "").open(), object("verification", "The latest verdict.").open(),
		raw("result", "As delivered."), str("result_summary", ""), str("ended_reason", ""), list("depends_on", "Those that you may see.", str("", "")), dependenciesOut,
		str("trace_id", ""), raw("payload", "For the claimant only, as it was given."), str("summary_preview", "Of a handoff of the team door."),
		boolean("idempotent_replay", ""), provenanceOut.need(),
	}
)

// madeTraceID is what trace ids look like that the hub, or a tracer, made. Others are words that the
// creator chose, and an id that was altered would be of no use.
var madeTraceID = regexp.MustCompile(`^[0-9a-f]{32}$`)

var eventOut = []param{
	str("type", "").need(), str("handoff_id", ""), integer("event_seq", "Counts the handoff's own events.", 0, math.MaxInt32), str("actor", "Who did it.").need(),
	str("subject_id", "What else it is about."), str("status", "Of the handoff, then."), integer("claim_epoch", "", 0, math.MaxInt32),
	str("trace_id", ""), str("session_id", "Of your own."), str("at", "").need(), provenanceOut,
}

var priorityWords = map[int]string{-1: "low", 0: "normal", 1: "high"}

func workResult(w *hub.Work, err error) (*result, error) {
	if err != nil {
		return nil, err
	}
	r := newResult()
	r.head("Handoff %s is %s.", w.Handoff.ID, w.Handoff.State.PoolStatus())
	workFields(r, w)
	replay(r, w.Replay)
	return r, nil
}

func workFields(r *result, w *hub.Work) {
	h := &w.Handoff
	mine := h.Creator == w.Viewer.ID
	own := mine || erased(h) // an erasure leaves target and trace as they are
	pool := h.Door == handoff.DoorPool
	r.token("handoff_id", h.ID)
	if pool {
		r.token("workspace_id", h.WorkspaceID)
	}
	r.token("status", h.State.PoolStatus())
	r.token("created_by", w.Handle(h.Creator))
	if pool {
		target, _ := json.Marshal(h.Target) // it came as JSON
		r.data("target", json.RawMessage(target), mine)
		r.token("visibility", string(h.Visibility))
		r.token("priority", priorityWords[h.Priority])
	} else {
		r.token("door", string(h.Door))
		r.prose("summary_preview", h.Preview, own)
	}
	r.time("created_at", h.CreatedAt)
	if h.Holder != "" {
		r.token("claimed_by", w.Handle(h.Holder))
	}
	r.num("claim_epoch", int64(h.Epoch))
	r.time("lease_expires_at", h.LeaseExpiresAt)
	if len(h.Criteria) > 0 {
		r.proses("acceptance_criteria", h.Criteria, own)
	}
	verification(r, w)
	workResults(r, w)
	if len(w.DependsOn) > 0 {
		r.tokens("depends_on", w.DependsOn)
	}
	dependencies(r, w.Dependencies)
	if pool && h.TraceID != "" {
		r.data("trace_id", h.TraceID, mine || madeTraceID.MatchString(h.TraceID))
	}
	if len(h.Payload) > 0 {
		r.data("payload", h.Payload, own)
	}
	r.time("erased_at", h.ErasedAt)
	author(r, h, origin(h), w.Handle(h.Creator), mine)
}

// verification is who judges the work, and the latest verdict.
func verification(r *result, w *hub.Work) {
	h := &w.Handoff
	if v := h.VerifyBy; v != nil {
		r.object("verify_by", func() {
			r.token("kind", string(v.Kind))
			if v.AgentID != "" {
				r.token("agent_id", w.Handle(v.AgentID))
			}
			if v.Capability != "" {
				r.token("capability", v.Capability)
			}
		})
	}
	if v := h.Verdict; v != nil {
		r.object("verification", func() {
			verdict := "fail"
			if v.Pass {
				verdict = "pass"
			}
			r.token("verdict", verdict)
			if v.Feedback != "" {
				r.prose("feedback", v.Feedback, v.VerifiedBy == w.Viewer.ID || erased(h))
			}
			r.token("verified_by", w.Handle(v.VerifiedBy))
			r.time("at", v.At)
		})
	}
}

// workResults is what came of it.
func workResults(r *result, w *hub.Work) {
	h := &w.Handoff
	mine := h.DeliveredBy(w.Viewer.ID) || erased(h)
	if len(h.Result) > 0 {
		r.data("result", h.Result, mine)
	}
	if h.ResultSummary != "" {
		r.prose("result_summary", h.ResultSummary, mine)
	}
	if h.EndedReason != "" {
		r.prose("ended_reason", h.EndedReason, h.EndedBy == w.Viewer.ID || h.EndedBy == handoff.System().ID || erased(h))
	}
}

func dependencies(r *result, d *hub.DependencyCount) {
	if d == nil {
		return
	}
	r.object("dependencies", func() {
		r.num("total", int64(d.Total))
		r.num("satisfied", int64(d.Satisfied))
		r.num("pending", int64(d.Pending))
		r.num("failed", int64(d.Failed))
	})
}

func openedResult(o *hub.Opened) *result {
	r := newResult()
	r.token("handoff_id", o.HandoffID)
	r.token("workspace_id", o.WorkspaceID)
	r.token("status", o.Status)
	r.time("created_at", o.CreatedAt)
	if o.TraceID != "" {
		r.prose("trace_id", o.TraceID, true)
	}
	if o.EligibleCount >= 0 {
		r.num("eligible_count", int64(o.EligibleCount))
	}
	if o.Warning != "" {
		r.prose("warning", o.Warning, true) // a sentence of the hub
	}
	if len(o.Notified) > 0 {
		r.tokens("notified", o.Notified)
	}
	if len(o.DependsOn) > 0 {
		r.tokens("depends_on", o.DependsOn)
	}
	dependencies(r, o.Dependencies)
	replay(r, o.Replay)
	return r
}

func availableResult(a *hub.Available) *result {
	r := newResult()
	r.head("Handoffs on this page: %d.", len(a.Works))
	r.list("handoffs", len(a.Works), 0, func(i int) { workFields(r, &a.Works[i]) })
	nullToken(r, "next_cursor", a.NextCursor)
	r.flag("has_more", a.NextCursor != "")
	r.flag("timed_out", a.TimedOut)
	return r
}

func eventsResult(p *hub.EventPage) *result {
	r := newResult()
	r.head("Events on this page: %d.", len(p.Events))
	r.list("events", len(p.Events), 0, func(i int) { eventFields(r, &p.Events[i]) })
	r.token("next_cursor", p.NextCursor)
	r.flag("has_more", p.HasMore)
	r.flag("timed_out", p.TimedOut)
	return r
}

func eventFields(r *result, e *hub.SeenEvent) {
	r.token("type", string(e.Type))
	if e.HandoffID != "" {
		r.token("handoff_id", e.HandoffID)
		r.num("event_seq", int64(e.Seq))
	}
	r.token("actor", e.Actor)
	if e.SubjectID != "" {
		r.token("subject_id", e.SubjectID)
	}
	if e.HandoffID != "" {
		r.token("status", e.State.PoolStatus())
		r.num("claim_epoch", int64(e.Epoch))
	}
	if e.TraceID != "" {
		own := e.Own || madeTraceID.MatchString(e.TraceID)
		r.data("trace_id", e.TraceID, own)
		if !own {
			r.from(provenance{Origin: "pool_creator", Sender: e.Creator, SenderVerified: true}, false)
		}
	}
	if e.SessionID != "" {
		r.token("session_id", e.SessionID)
	}
	r.time("at", e.At)
}

// fitEvents tells how many events of a page fit.
func fitEvents(list []hub.SeenEvent) int {
	return fitting(len(list), envelope, func(i int) int {
		return weigh(func(r *result) { eventFields(r, &list[i]) })
	})
}

// fitWorks tells how many handoffs of a page fit.
func fitWorks(list []hub.Work) int {
	return fitting(len(list), envelope, func(i int) int {
		return weigh(func(r *result) { workFields(r, &list[i]) })
	})
}
