package mcpserver

import (
	"context"
	"math"

	"handclasp/internal/hub"
)

// What an agent asks of itself and of others, and its sessions. They belong to the pool toolset.

// sessionArgs are the arguments of the verbs on one session.
type sessionArgs struct {
	hub.Session
	IdempotencyKey string `json:"idempotency_key"`
}

var (
	thisSession = []param{session.chars(1, 0).need(), secret.chars(1, 0).need(), key}
	claimedOut  = object("", "",
		str("handoff_id", "").need(), str("workspace_id", ""), str("project_root", "To call with."), str("door", "").need(), str("status", "").need(),
		integer("claim_epoch", "", 0, math.MaxInt32).need(), str("lease_expires_at", "")).open()
	noticeOut = object("", "",
		str("type", "").need(), str("handoff_id", "").need(), str("door", "").need(), str("at", "").need(),
		integer("sequence_no", "Of the message that it brings.", 1, math.MaxInt32)).open()
)

var agentTools = []tool{
	{
		set: "pool", name: "agent_whoami", title: "See who you are, what you hold and what is new",
		desc: "Show your own handle, role, capabilities and tags, what you hold at this moment at any door, and what you were told and have not seen. " +
			"Use it after a restart to find the work that is still yours; view_thread, or handoff_get with the project_root it was claimed under, reads it; handoff_extend keeps it. " +
			"Marks nothing seen; handoff_get marks news, not messages.",
		hints: hints{readOnly: true, idempotent: true},
		output: []param{
			str("handle", "").need(), str("name", "").need(), str("role", "").need(), list("capabilities", "", str("", "")).need(), object("tags", "").open().need(),
			list("open_claims", "What lapses soonest first.", claimedOut).need(), integer("unread_total", "Messages.", 0, math.MaxInt32).need(),
			list("notices", "Newest first.", noticeOut).need(), boolean("more", "Some did not fit."),
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, _ struct{}) (*result, error) {
			w, err := h.Whoami(ctx, call)
			if err != nil {
				return nil, err
			}
			return whoamiResult(&w), nil
		}),
	},
	{
		set: "pool", name: "capability_list", title: "See which capabilities there are and who offers them",
		desc: "List the capabilities that a target of handoff_create may name, each with agents that offer it; present ones called within 30 minutes. " +
			"total counts unlisted agents too. A role is no capability: agent_whoami shows yours.",
		hints:  hints{readOnly: true, idempotent: true},
		params: []param{str("cursor", "next_cursor of the last page.")},
		output: []param{
			list("capabilities", "", object("", "", str("capability", "").need(), list("agents", "Present ones first, 50 at most.",
				object("", "", str("handle", "").need(), boolean("present", "").need()).open()).need(), integer("total", "", 0, math.MaxInt32).need()).open()).need(),
			nullable("next_cursor", "null on the last page."), provenanceOut,
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in struct{ Cursor string }) (*result, error) {
			c, err := h.Capabilities(ctx, call, hub.CapabilitiesInput{Cursor: in.Cursor, Fit: fitCapabilities})
			if err != nil {
				return nil, err
			}
			return capabilitiesResult(&c), nil
		}),
	},
	{
		set: "pool", name: "session_open", title: "Open a session for one run of yours", strictOnly: true,
		desc: "Open a session, which marks in the log what one run of yours does, and get its secret, shown once. " +
			"handoff_claim and the tools behind it take both; with trust_mode strict they are session_required without. " +
			"Each use keeps it open, as session_heartbeat does; unused it closes after 30 minutes, or by session_close. " +
			"A repeat opens another; at most 20: rate_limited.",
		hints:  hints{},
		params: []param{projectRoot, me},
		output: []param{
			str("session_id", "").need(), str("session_secret", "Kept nowhere else.").need(), str("workspace_id", "").need(), str("opened_at", "").need(), str("expires_at", "Unless it is used.").need(),
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in struct {
			ProjectRoot string `json:"project_root"`
			AgentID     string `json:"agent_id"`
		},
		) (*result, error) {
			s, err := h.OpenSession(ctx, call, in.ProjectRoot, in.AgentID)
			if err != nil {
				return nil, err
			}
			r := newResult()
			r.token("session_id", s.ID)
			r.token("session_secret", s.Secret)
			r.token("workspace_id", s.WorkspaceID)
			r.time("opened_at", s.OpenedAt)
			r.time("expires_at", s.ExpiresAt)
			return r, nil
		}),
	},
	{
		set: "pool", name: "session_heartbeat", title: "Keep a session open while you call nothing else", strictOnly: true,
		desc: "Keep a session open through work in which you call nothing that names it. It keeps no claim: handoff_extend does. " +
			"Refused as session_required when it is not yours, closed, or the secret is wrong; then session_open.",
		hints:  hints{idempotent: true},
		params: thisSession,
		output: sessionOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in sessionArgs) (*result, error) {
			return sessionResult(h.HeartbeatSession(ctx, call, in.Session, in.IdempotencyKey))
		}),
	},
	{
		set: "pool", name: "session_close", title: "Close a session whose run is over", strictOnly: true,
		desc: "Close a session for good. What you claimed stays yours; handoff_release gives it back. Closing again changes nothing. " +
			"Refused as session_required when it is not yours or the secret is wrong.",
		hints:  hints{destructive: true, idempotent: true},
		params: thisSession,
		output: sessionOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in sessionArgs) (*result, error) {
			return sessionResult(h.CloseSession(ctx, call, in.Session, in.IdempotencyKey))
		}),
	},
}

var sessionOut = []param{str("session_id", "").need(), enum("status", "", "open", "closed").need(), str("expires_at", "Unless it is used."), boolean("idempotent_replay", "")}

func sessionResult(s hub.SessionState, err error) (*result, error) {
	if err != nil {
		return nil, err
	}
	r := newResult()
	r.token("session_id", s.ID)
	status := "open"
	if s.Closed {
		status = "closed"
	}
	r.token("status", status)
	r.time("expires_at", s.ExpiresAt)
	replay(r, s.Replay)
	return r, nil
}
