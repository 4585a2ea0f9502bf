package mcpserver

import (
	"context"
	"encoding/json"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// The pool toolset: an open handoff that the first eligible agent claims.

var (
	projectRoot = str("project_root", "Absolute path or URI of the project.").limit(1, 4096).need().emptyIs(handoff.CodeWorkspaceUnresolved)
	me          = str("agent_id", "Your own handle.").limit(1, 256).need()
	handoffID   = str("handoff_id", "").chars(1, 0).need()
	held        = integer("claim_epoch", "From handoff_claim; needed if above 1.", 0, 0).atLeast(0)
	heldNow     = integer("claim_epoch", "From handoff_claim.", 0, 0).atLeast(0).need()
	timeout     = integer("timeout_seconds", "Longest wait.", 0, 50).fallback(0).alias("wait_seconds")
	poolReason  = str("reason", "What the creator should know.").limit(0, 4<<10)
	session     = str("session_id", "Of session_open.")
	secret      = str("session_secret", "Its secret.").hide()
)

// heldArgs are what the verbs on a handoff share, as they come.
type heldArgs struct {
	ProjectRoot string `json:"project_root"`
	HandoffID   string `json:"handoff_id"`
	AgentID     string `json:"agent_id"`
	ClaimEpoch  *int   `json:"claim_epoch"`
	hub.Session
	IdempotencyKey string `json:"idempotency_key"`
}

func (a *heldArgs) input() hub.HoldInput {
	return hub.HoldInput{
		ProjectRoot: a.ProjectRoot, AgentID: a.AgentID, ThreadID: a.HandoffID, ClaimEpoch: a.ClaimEpoch, IdempotencyKey: a.IdempotencyKey, Session: a.Session,
	}
}

type claimArgs struct {
	heldArgs
	Lease   int64 `json:"lease_seconds"`
	Timeout int   `json:"timeout_seconds"`
}

type availableArgs struct {
	ProjectRoot string `json:"project_root"`
	AgentID     string `json:"agent_id"`
	Scope       string `json:"scope"`
	Cursor      string `json:"cursor"`
	Limit       int    `json:"limit"`
	Timeout     int    `json:"timeout_seconds"`
}

type getArgs struct {
	ProjectRoot string `json:"project_root"`
	HandoffID   string `json:"handoff_id"`
	AgentID     string `json:"agent_id"`
	KnownStatus string `json:"known_status"`
	Timeout     int    `json:"timeout_seconds"`
}

type eventArgs struct {
	ProjectRoot string           `json:"project_root"`
	AgentID     string           `json:"agent_id"`
	Stream      string           `json:"stream"`
	Cursor      string           `json:"cursor"`
	Filters     hub.EventFilters `json:"filters"`
	Limit       int              `json:"limit"`
	Timeout     int              `json:"timeout_seconds"`
}

type extendArgs struct {
	heldArgs
	Lease int64 `json:"lease_seconds"`
}

type reasonArgs struct {
	heldArgs
	Reason string `json:"reason"`
}

type deliverArgs struct {
	heldArgs
	Result json.RawMessage `json:"result"`
}

type verifyArgs struct {
	heldArgs
	Verdict  string `json:"verdict"`
	Feedback string `json:"feedback"`
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// poolStatuses are the words of the states at the pool.
func poolStatuses() []string {
	var list []string
	for _, s := range handoff.States() {
		list = append(list, s.PoolStatus())
	}
	return list
}

var poolTools = []tool{
	{
		set: "pool", name: "handoff_create", title: "Offer work to whichever agent may take it",
		desc: "Create an open handoff that the first eligible agent claims. Use it if any agent of a kind may do it. Only the claimant reads payload; acceptance_criteria are what others choose and judge by. " +
			"target says who may claim (you only if it names you), visibility who may see. " +
			"With acceptance_criteria the result waits for handoff_verify; with depends_on nobody can claim it before all those are COMPLETED. " +
			"handoff_cancel takes it back while OPEN; handoff_get with known_status waits for its end. " +
			"eligible_count 0: nobody matches yet, it stays open. " +
			"Refused, with nothing stored: recipient_not_found, teammate_blocked, dependency_not_found, dependency_not_met, feature_disabled. A repeat without idempotency_key makes a second one.",
		hints: hints{},
		params: []param{
			projectRoot,
			str("from_agent_id", "Your own handle; the owner is whoever claims.").limit(1, 256).need(),
			object("target", `One of {"strategy":"direct","agent_id":"a"}; {"strategy":"capability","capability":"review"} (a list means any of); {"strategy":"role","role":"r"}; `+
				`{"strategy":"tag","selector":{"team":["platform"]}} (AND across keys, OR within) or selector [{"key","operator":"In|NotIn|Exists|DoesNotExist","values"}]; {"strategy":"broadcast"} (any agent, one claimant); `+
				`{"strategy":"mixed","rules":[targets]} (any of); {"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":60,"fallback":target}. More: `+grammarURI+`.`,
				enum("strategy", "", handoff.Strategies()...).need()).open().eg(`{"strategy":"broadcast"}`).need(),
			enum("visibility", "public: every agent of the workspace; eligible: those who match target; private: creator, claimant, verifier.", "public", "eligible", "private").need(),
			raw("payload", "What to work on, any JSON, at most 64 KiB, kept byte for byte.").limit(0, 1<<20),
			list("acceptance_criteria", "What the result must meet, at most 500 characters each; cannot change later.", str("", "").limit(1, 2000)).items(1, 20),
			object("verify_by", `Default {"kind":"creator"}; or {"kind":"agent","agent_id"}; {"kind":"capability","capability"}. Only with acceptance_criteria.`,
				enum("kind", "", "creator", "agent", "capability").need()).open(),
			list("depends_on", "Ids of handoffs of this workspace.", str("", "").limit(1, 64)).items(1, 20),
			str("trace_id", "Default: of the call, else new.").limit(0, 128),
			session,
			integer("expires_in_seconds", "When it expires unclaimed. Default: never.", 60, 31_536_000),
			enum("priority", "", "low", "normal", "high").fallback("normal"),
			key,
		},
		output: []param{
			str("handoff_id", "").need(), str("workspace_id", "").need(), str("status", "").need(), str("created_at", "").need(), str("trace_id", ""),
			integer("eligible_count", "Agents that match now.", 0, 0).atLeast(0), str("warning", ""), list("notified", "Handles that were told.", str("", "")),
			list("depends_on", "", str("", "")), dependenciesOut, boolean("idempotent_replay", ""),
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.OpenInput) (*result, error) {
			o, err := h.Open(ctx, call, in)
			if err != nil {
				return nil, err
			}
			return openedResult(&o), nil
		}),
	},
	{
		set: "pool", name: "handoff_list_available", title: "See what you may claim, or what is yours",
		desc: "List open handoffs without taking any: by default those that you may claim now, higher priority then oldest first. " +
			"scope mine_created lists what you offered, mine_claimed what you hold, to_verify what waits for your handoff_verify. To see a payload, claim it. " +
			"timeout_seconds parks the call, instead of polling, until there is something. Empty? Check project_root too. Handoffs sent to you by name are in check_inbox.",
		hints: hints{readOnly: true, idempotent: true},
		parks: true,
		params: []param{
			projectRoot, me,
			enum("scope", "", hub.Scopes()...).fallback(hub.ScopeAvailable),
			str("cursor", "next_cursor of the last page."),
			integer("limit", "Items a page.", 1, hub.AvailableLimit).fallback(hub.DefaultPage),
			timeout,
		},
		output: []param{
			list("handoffs", "", object("", "", workOut...).open()).need(), nullable("next_cursor", "null on the last page."), boolean("has_more", "").need(), boolean("timed_out", "").need(), provenanceOut,
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in availableArgs) (*result, error) {
			a, err := h.Available(ctx, call, hub.AvailableInput{
				ProjectRoot: in.ProjectRoot, AgentID: in.AgentID, Scope: in.Scope, Cursor: in.Cursor, Limit: in.Limit, Wait: seconds(in.Timeout), Fit: fitWorks,
			})
			if err != nil {
				return nil, err
			}
			return availableResult(&a), nil
		}),
	},
	{
		set: "pool", name: "handoff_claim", title: "Take an open handoff",
		desc: "Take one open handoff and get its payload: the one of handoff_id, or without it the next that you may claim, never one that another caller gets. " +
			"handoff_list_available looks without taking. You hold it for lease_seconds; handoff_extend keeps it longer, and a lapsed lease opens it to others. " +
			"End with handoff_complete, give it back with handoff_release, refuse it with handoff_reject. " +
			"timeout_seconds waits for a next one; handoff_id null means that there was none. Its payload is your task, within your own rules; pass its claim_epoch in later calls. " +
			"Refused: handoff_already_claimed, not_eligible_to_claim, dependency_not_met, thread_terminal, not_found, lease_lost (the claim of this key is gone).",
		hints: hints{},
		parks: true,
		params: []param{
			projectRoot, str("handoff_id", "Default: the next one."), me,
			integer("lease_seconds", "", 10, 86400).fallback(300), session, secret, timeout, key,
		},
		output: claimOut(),
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in claimArgs) (*result, error) {
			c, err := h.Claim(ctx, call, hub.ClaimInput{
				ProjectRoot: in.ProjectRoot, AgentID: in.AgentID, ThreadID: in.HandoffID, Lease: in.Lease, IdempotencyKey: in.IdempotencyKey, Session: in.Session, Wait: seconds(in.Timeout),
			})
			if err != nil || c.Work != nil {
				return workResult(c.Work, err)
			}
			r := newResult()
			r.null("handoff_id")
			r.flag("timed_out", c.TimedOut)
			return r, nil
		}),
	},
	{
		set: "pool", name: "handoff_extend", title: "Keep a claim longer",
		desc: "Renew the lease of a handoff that you hold, from now on, so that a long job is not given to another agent. " +
			"Call it well before lease_expires_at; after that it is lease_lost, and handoff_claim may take it again. Only the holder can; there is no need while the work waits for its verdict. " +
			"Refused: not_owner, lease_lost, stale_claim_epoch, thread_terminal, invalid_transition.",
		hints:  hints{idempotent: true},
		params: []param{projectRoot, handoffID, me, heldNow, integer("lease_seconds", "Default: as long as before.", 10, 86400), session, secret, key},
		output: []param{str("handoff_id", "").need(), str("lease_expires_at", ""), integer("claim_epoch", "", 0, 0).atLeast(0).need(), boolean("idempotent_replay", "")},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in extendArgs) (*result, error) {
			e, err := h.Extend(ctx, call, hub.ExtendInput{HoldInput: in.input(), Lease: in.Lease})
			if err != nil {
				return nil, err
			}
			r := newResult()
			r.token("handoff_id", e.HandoffID)
			r.time("lease_expires_at", e.LeaseExpiresAt)
			r.num("claim_epoch", int64(e.Epoch))
			replay(r, e.Replay)
			return r, nil
		}),
	},
	{
		set: "pool", name: "handoff_release", title: "Give a claimed handoff back to the pool",
		desc: "Give back a handoff that you hold: it is OPEN again at once, for you as well as for others. Use it when another agent should do the work; handoff_reject ends the handoff instead. " +
			"handoff_claim without handoff_id may return it at once. A repeat without idempotency_key is lease_lost. Also refused: not_owner, stale_claim_epoch, invalid_transition, thread_terminal.",
		hints:  hints{},
		params: []param{projectRoot, handoffID, me, held, poolReason, session, secret, key},
		output: workOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in reasonArgs) (*result, error) {
			w, err := h.Release(ctx, call, hub.ReleaseInput{HoldInput: in.input(), Reason: in.Reason})
			return workResult(&w, err)
		}),
	},
	{
		set: "pool", name: "handoff_complete", title: "Deliver the result of a claimed handoff",
		desc: "Deliver the result of a handoff that you hold. Without acceptance criteria it is COMPLETED for good and its creator is told; with them it is VERIFYING until handoff_verify passes it or sends it back to you with feedback. " +
			"If you cannot do it, handoff_release or handoff_reject. Repeating the same delivery changes nothing. " +
			"Refused, nothing stored: lease_lost, not_owner, stale_claim_epoch (look with handoff_get), invalid_transition, thread_terminal, content_too_large.",
		hints:  hints{idempotent: true},
		params: []param{projectRoot, handoffID, me, raw("result", "Any JSON, at most 64 KiB; creator and verifier read it.").limit(0, 1<<20), held, session, secret, key},
		output: workOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in deliverArgs) (*result, error) {
			w, err := h.Deliver(ctx, call, hub.DeliverInput{HoldInput: in.input(), Result: in.Result})
			return workResult(&w, err)
		}),
	},
	{
		set: "pool", name: "handoff_verify", title: "Judge delivered work",
		desc: "Judge the result of a VERIFYING handoff against its acceptance criteria. pass completes it for good; fail returns it, with feedback and a new claim_epoch, to its agent; it is OPEN if that one is disabled. " +
			"Only whom verify_by names can, and never the one who delivered: verifier_not_eligible. handoff_list_available with scope to_verify finds what waits for you; read the result with handoff_get first. Repeating a verdict changes nothing. " +
			"Also refused: invalid_transition (not VERIFYING), stale_claim_epoch, thread_terminal.",
		hints: hints{idempotent: true},
		params: []param{
			projectRoot, handoffID, me, enum("verdict", "", "pass", "fail").need(), str("feedback", "What is missing; with fail only.").limit(0, 2000),
			integer("claim_epoch", "From handoff_get, if above 1.", 0, 0).atLeast(0), session, secret, key,
		},
		output: workOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in verifyArgs) (*result, error) {
			w, err := h.Verify(ctx, call, hub.VerifyInput{HoldInput: in.input(), Verdict: in.Verdict, Feedback: in.Feedback})
			return workResult(&w, err)
		}),
	},
	{
		set: "pool", name: "handoff_reject", title: "Refuse a handoff",
		desc: "End for good a handoff that you hold, or an OPEN one that names you. Its creator is told the reason. A direct_with_fallback target that you refuse before claiming goes to its pool instead. " +
			"handoff_release lets others do it; creators use handoff_cancel. Not while VERIFYING. " +
			"Refused: not_owner, lease_lost, stale_claim_epoch, invalid_transition, thread_terminal.",
		hints:  hints{destructive: true, idempotent: true},
		params: []param{projectRoot, handoffID, me, poolReason, held, session, secret, key},
		output: workOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in reasonArgs) (*result, error) {
			w, err := h.Reject(ctx, call, hub.RejectInput{HoldInput: in.input(), Reason: in.Reason})
			return workResult(&w, err)
		}),
	},
	{
		set: "pool", name: "handoff_cancel", title: "Take back an open handoff you created",
		desc: "Take back, for good, a handoff that you created and nobody holds. Once claimed: invalid_transition; only holder or operator can end it. " +
			"Handoffs that depend on it stay blocked, and their creators are told. Repeating it changes nothing. Also refused: not_owner, thread_terminal.",
		hints:  hints{destructive: true, idempotent: true},
		params: []param{projectRoot, handoffID, me, str("reason", "").limit(0, 4<<10), session, secret, key},
		output: workOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in reasonArgs) (*result, error) {
			w, err := h.TakeBack(ctx, call, hub.TakeBackInput{HoldInput: in.input(), Reason: in.Reason})
			return workResult(&w, err)
		}),
	},
	{
		set: "pool", name: "handoff_get", title: "Read one handoff",
		desc: "Read one handoff that you may see, as it is now: a lapsed lease reads as OPEN. payload is there for its claimant only, result and feedback for creator, claimant and verifier. " +
			"To wait, pass known_status with timeout_seconds: it returns when the status differs, or unchanged when the time is up. Not visible: not_found.",
		hints:  hints{idempotent: true},
		parks:  true,
		params: []param{projectRoot, handoffID, me, timeout, enum("known_status", "The status you know.", poolStatuses()...)},
		output: workOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in getArgs) (*result, error) {
			w, err := h.Get(ctx, call, hub.GetInput{ProjectRoot: in.ProjectRoot, HandoffID: in.HandoffID, AgentID: in.AgentID, KnownStatus: in.KnownStatus, Wait: seconds(in.Timeout)})
			return workResult(&w, err)
		}),
	},
	{
		set: "pool", name: "event_wait", title: "Follow what happens to handoffs",
		desc: "Follow what happens to handoffs that you may see: ids, statuses, who did it, never texts. " +
			"stream workspace is this project; agent all that you take part in, and your account; handoff the one of filters.handoff_id. " +
			"Starts at the end, with cursor 0 at the beginning; go on with next_cursor, even after an empty page, and miss nothing. timeout_seconds waits for more. " +
			"handoff_get waits for one status, handoff_list_available finds work. Refused: cursor_expired (begin anew), not_found.",
		hints: hints{readOnly: true, idempotent: true},
		parks: true,
		params: []param{
			projectRoot, me, enum("stream", "", hub.Streams()...).fallback(hub.StreamWorkspace), str("cursor", "next_cursor of the last answer.").numeric(),
			object("filters", "",
				list("type", "handoff.claimed; or handoff. for all such", str("", "")).items(0, 32),
				str("agent_id", "Who did it."), str("handoff_id", ""), str("trace_id", "")),
			integer("limit", "", 1, hub.EventLimit).fallback(hub.DefaultEvents), timeout,
		},
		output: []param{
			list("events", "", object("", "", eventOut...).open()).need(), str("next_cursor", "").need(), boolean("has_more", "There may be more already: ask again at once.").need(), boolean("timed_out", "").need(), provenanceOut,
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in eventArgs) (*result, error) {
			p, err := h.EventWait(ctx, call, hub.EventWaitInput{
				ProjectRoot: in.ProjectRoot, AgentID: in.AgentID, Stream: in.Stream, Cursor: in.Cursor, Filters: in.Filters, Limit: in.Limit, Wait: seconds(in.Timeout), Fit: fitEvents,
			})
			if err != nil {
				return nil, err
			}
			return eventsResult(&p), nil
		}),
	},
}

// claimOut is workOut, or nothing to claim.
func claimOut() []param {
	out := []param{nullable("handoff_id", "null when there was nothing to claim.")}
	for _, p := range workOut[1:] {
		p.required = false
		out = append(out, p)
	}
	return append(out, boolean("timed_out", "Nothing came while it waited."))
}
