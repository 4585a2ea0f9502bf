package mcpserver

import (
	"context"
	"math"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// The team toolset: a handoff to a named teammate's agent, in a thread.

const handlePattern = `^[A-Za-z0-9._-]+@[A-Za-z0-9._-]+$`

var (
	threadID = str("thread_id", "The handoff's id.").chars(1, 64).need()
	epoch    = integer("claim_epoch", "From your accept; needed once the handoff was claimed again or sent back.", 0, math.MaxInt32)
	key      = str("idempotency_key", "Repeat a call with its key and it takes effect once.").limit(1, 255)
)

// artifact is one typed attachment. The hub checks what each type needs.
func artifact() param {
	return object("", "",
		enum("type", "", handoff.ArtifactTypes()...).need(),
		str("path", "").limit(0, 1024), str("diff", "").limit(0, 512<<10),
		str("git_sha", ""), list("lines", "[from, to]", integer("", "", 0, math.MaxInt32)).items(2, 2),
		str("command", "").limit(0, 8<<10), str("cwd", ""),
		str("schema_url", ""), raw("inline", ""),
		str("url", "http(s)"), str("title", ""),
	).open().eg(`{"type":"link","url":"https://example.com/x"}`)
}

func artifacts(desc string) param { return list("artifacts", desc, artifact()).items(0, 50) }

// spelledOut publishes what each type needs. Only the main tool affords the room.
func spelledOut() param {
	return artifact().
		when("type", "file_diff", "path", "diff").
		when("type", "file_ref", "path").
		when("type", "test_command", "command").
		when("type", "link", "url")
}

var teamTools = []tool{
	{
		set: "team", name: "handoff_to_teammate", title: "Hand work to a teammate's agent",
		desc: "Send a handoff to one named teammate's agent and open a thread with it. Use it when you know who should act or know; " +
			"use send_message to go on in a thread that exists, list_teammates to find a handle. " +
			"The recipient sees it in its inbox and owns the work only once it accepts; until then cancel_handoff takes it back. " +
			"intent inform expects no reply, ask_question expects one, propose_action asks for a concrete change and needs proposed_action (other intents refuse it). " +
			"Either everything is stored or, on an error, nothing. Without idempotency_key a repeated call sends a second handoff.",
		hints: hints{},
		params: []param{
			str("to", "The teammate's handle, such as frank@acme; case does not matter.").match(handlePattern, "name@team").limit(0, 256).need(),
			enum("intent", "What you expect.", "inform", "ask_question", "propose_action").need(),
			str("summary", "One or two paragraphs: what this is, what is done, what is open. The inbox shows the first 240 characters.").limit(1, 64<<10).need(),
			list("artifacts", "Attachments, by type; extra fields are kept. The hub never opens paths or URLs.", spelledOut()).items(0, 50).fallback([]string{}),
			str("question", "The first question, with ask_question.").limit(0, 8<<10),
			object("proposed_action", "The change you ask for. Leave suggested_diff out and the receiver drafts one.",
				str("description", "").limit(1, 8<<10).need(),
				list("target_files", "Relative paths, no `..`.", str("", "").limit(1, 1024)).items(0, 100).need(),
				str("rationale", "").limit(1, 8<<10).need(),
				str("suggested_diff", "Unified diff.").limit(0, 512<<10)),
			object("metadata", "Free keys and values, shown to the receiver.").open().limit(0, 16<<10),
			integer("expires_in_seconds", "Expires if not accepted in time. Default: never.", 60, 31_536_000),
			key,
		},
		output: []param{
			str("thread_id", "").need(), str("status", "pending; on a replay as it is now.").need(), str("recipient", "As you wrote it.").need(),
			str("created_at", "RFC 3339.").need(), str("inbox_url", "").need(),
			str("warning", "What is odd about suggested_diff."), boolean("idempotent_replay", "The key was used before: nothing was sent again."),
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.CreateInput) (*result, error) {
			c, err := h.Create(ctx, call, in)
			if err != nil {
				return nil, err
			}
			r := newResult()
			r.token("thread_id", c.ThreadID)
			r.token("status", c.Status)
			r.token("recipient", c.Recipient)
			r.time("created_at", c.CreatedAt)
			r.token("inbox_url", c.InboxURL)
			if c.Warning != "" {
				r.prose("warning", c.Warning, true) // quotes only what the caller sent
			}
			replay(r, c.Replay)
			return r, nil
		}),
	},
	{
		set: "team", name: "check_inbox", title: "See what waits for you",
		desc: "List your handoffs as previews, newest first, with exact unread counts and what changed since you last looked. " +
			"Without filters: pending and accepted ones sent to you, plus anything you sent or received that has news. Read one with view_thread, take one with accept_handoff. " +
			"Marks nothing read; a sender can see that you fetched it. " +
			"wait_seconds parks the call until something unread (with since: anything newer) arrives, instead of polling.",
		hints: hints{idempotent: true},
		params: []param{
			list("status", "Only these.", enum("", "", handoff.TeamStatuses()...)).items(1, 6),
			str("since", "Only what changed after this RFC 3339 time.").eg(`"2026-11-30T12:00:00Z"`),
			integer("limit", "Items a page.", 1, hub.PageLimit).fallback(hub.DefaultPage),
			str("cursor", "next_cursor of the last page."),
			enum("role", "Only those sent to you (recipient) or by you (sender).", "recipient", "sender"),
			integer("wait_seconds", "Longest wait.", 0, 50).fallback(0),
		},
		output: []param{
			list("items", "", object("", "",
				str("thread_id", "").need(), str("door", "").need(), partyOut("sender").need(), partyOut("recipient").need(),
				str("summary_preview", "").need(), str("intent", "").need(), str("status", "").need(),
				integer("unread_messages", "", 0, math.MaxInt32).need(), list("news", "Events since you last viewed it.", str("", "")).need(),
				str("created_at", "").need(), str("updated_at", "").need(), str("recipient_fetched_at", "For the sender: when the recipient first saw it.")).open()).need(),
			integer("unread_total", "", 0, math.MaxInt32).need(), nullable("next_cursor", "null on the last page."), provenanceOut,
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in inboxArgs) (*result, error) {
			since, err := parseTime("since", in.Since)
			if err != nil {
				return nil, err
			}
			page, err := h.Inbox(ctx, call, hub.InboxInput{
				Statuses: in.Status, Since: since, Limit: in.Limit, Cursor: in.Cursor, Role: in.Role,
				Wait: time.Duration(in.Wait) * time.Second, Fit: fitInbox,
			})
			if err != nil {
				return nil, err
			}
			return inboxResult(&page), nil
		}),
	},
	{
		set: "team", name: "accept_handoff", title: "Take a handoff that was sent to you",
		desc: "Become the holder of a pending handoff sent to you; only its recipient can. Returns the whole thread, its first messages marked read. " +
			"To read without taking use view_thread; to refuse use decline_handoff. Accepting again returns the same claim. " +
			"With lease_seconds you lose it unless you finish in time; without, you hold it until you complete_handoff or decline_handoff. " +
			"If another has it: handoff_already_claimed.",
		hints: hints{idempotent: true},
		params: []param{
			threadID,
			str("session_id", "Your session, for attribution.").limit(0, 256),
			integer("lease_seconds", "Hold it only this long.", 10, 86400),
			key,
		},
		output: threadOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in acceptArgs) (*result, error) {
			t, err := h.Accept(ctx, call, hub.AcceptInput{ThreadID: in.ThreadID, SessionID: in.SessionID, Lease: in.Lease, IdempotencyKey: in.IdempotencyKey, Size: sizer{}})
			if err != nil {
				return nil, err
			}
			return threadResult(&t), nil
		}),
	},
	{
		set: "team", name: "decline_handoff", title: "Refuse a handoff",
		desc: "Refuse a handoff sent to you, pending or already accepted; its sender is told your reason. This ends it for good. " +
			"To ask first use send_message; senders use cancel_handoff. Repeating the same refusal succeeds and changes nothing.",
		hints:  hints{destructive: true, idempotent: true},
		params: []param{threadID, str("reason", "What the sender should know.").limit(1, 4<<10).need(), epoch, key},
		output: endedOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.DeclineInput) (*result, error) {
			return endedResult(h.Decline(ctx, call, in))
		}),
	},
	{
		set: "team", name: "view_thread", title: "Read a handoff and its messages",
		desc: "Read a handoff you sent, received or hold: summary, artifacts, proposed action, drafts, messages. " +
			"Marks exactly the returned messages read and changes nothing else; check_inbox lists threads without marking. " +
			"Long threads come in pages: when has_more is true, call again with after_sequence_no = next_sequence_no. " +
			"Summary, artifacts, action and drafts stand on the first page only. What you may not see is not_found.",
		hints: hints{idempotent: true},
		params: []param{
			threadID,
			integer("after_sequence_no", "Only messages after this one.", 0, math.MaxInt32).fallback(0),
			integer("limit", "Messages a page.", 1, hub.PageLimit).fallback(hub.DefaultPage),
		},
		output: threadOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.ViewInput) (*result, error) {
			in.Size = sizer{}
			t, err := h.View(ctx, call, in)
			if err != nil {
				return nil, err
			}
			return threadResult(&t), nil
		}),
	},
	{
		set: "team", name: "send_message", title: "Write to a thread",
		desc: "Add a message to a handoff you take part in that has not ended; the other side finds it in its inbox. " +
			"To start new work use handoff_to_teammate; to deliver the result use complete_handoff. " +
			"A sent message cannot be taken back, and without idempotency_key a repeated call sends it twice.",
		hints: hints{},
		params: []param{
			threadID,
			str("body", "What you want to say.").limit(1, 64<<10).need(),
			raw("payload", "Any JSON, delivered exactly as it is.").limit(0, 64<<10),
			artifacts("Attachments, as in handoff_to_teammate."),
			boolean("expects_reply", "Holder only: you wait for the sender's answer.").fallback(false),
			key,
		},
		output: []param{
			str("thread_id", "").need(), str("message_id", "").need(), integer("sequence_no", "", 1, math.MaxInt32).need(),
			str("created_at", "").need(), boolean("idempotent_replay", ""),
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.SendInput) (*result, error) {
			m, err := h.Send(ctx, call, in)
			if err != nil {
				return nil, err
			}
			r := newResult()
			r.token("thread_id", m.ThreadID)
			r.token("message_id", m.MessageID)
			r.num("sequence_no", int64(m.SequenceNo))
			r.time("created_at", m.CreatedAt)
			replay(r, m.Replay)
			return r, nil
		}),
	},
	{
		set: "team", name: "draft_proposed_action", title: "Offer a diff for a proposed action",
		desc: "Offer a unified diff for the action that a propose_action handoff asks for; only its holder can, after accept_handoff. " +
			"It must parse and touch only the named files. A person then approves or declines it, which you see in view_thread; a new draft replaces an undecided one. " +
			"The hub never applies a diff. For any other diff attach a file_diff with send_message.",
		hints: hints{},
		params: []param{
			threadID,
			str("suggested_diff", "As git diff prints it.").limit(1, 512<<10).need(),
			str("description", "Default: the action's.").limit(0, 8<<10),
			list("target_files", "Default: the action's.", str("", "").limit(1, 1024)).items(1, 100),
			str("rationale", "Default: the action's.").limit(0, 8<<10),
			epoch, key,
		},
		output: []param{str("thread_id", "").need(), str("draft_id", "").need(), str("status", "").need(), boolean("idempotent_replay", "")},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.DraftInput) (*result, error) {
			d, err := h.Draft(ctx, call, in)
			if err != nil {
				return nil, err
			}
			r := newResult()
			r.token("thread_id", d.ThreadID)
			r.token("draft_id", d.DraftID)
			r.token("status", string(d.Status))
			replay(r, d.Replay)
			return r, nil
		}),
	},
	{
		set: "team", name: "complete_handoff", title: "Deliver the result",
		desc: "Deliver the result of a handoff you hold, which ends it for good; its sender is told. Only after accept_handoff. " +
			"To report progress or ask use send_message; if you will not do it use decline_handoff. " +
			"With acceptance criteria it waits for a verdict (verifying: true) and may come back. Repeating the same delivery succeeds and changes nothing.",
		hints: hints{idempotent: true},
		params: []param{
			threadID,
			str("result_summary", "What was done, and what was not.").limit(1, 64<<10).need(),
			artifacts("Results, as in handoff_to_teammate."),
			epoch, key,
		},
		output: endedOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.CompleteInput) (*result, error) {
			return endedResult(h.Complete(ctx, call, in))
		}),
	},
	{
		set: "team", name: "cancel_handoff", title: "Take back a handoff you sent",
		desc: "Take back a handoff you sent, for good, while it is pending; its recipient is told. Once accepted it is refused with invalid_transition " +
			"(unless the holder was disabled): ask with send_message instead. Recipients use decline_handoff.",
		hints:  hints{destructive: true, idempotent: true},
		params: []param{threadID, str("reason", "What the recipient should know.").limit(0, 4<<10), key},
		output: endedOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.CancelInput) (*result, error) {
			return endedResult(h.Cancel(ctx, call, in))
		}),
	},
	{
		set: "team", name: "list_teammates", title: "Find a teammate's handle",
		desc: "List the active agents you can hand work to, with role, skills, repositories and when each was last seen. " +
			"Every given filter must match exactly, in any case. Use it before handoff_to_teammate when you do not know the handle.",
		hints: hints{readOnly: true, idempotent: true},
		params: []param{
			str("role", "Such as backend."), str("skill", "One skill."), str("repo", "One repository."), str("cursor", "next_cursor of the last page."),
		},
		output: []param{
			list("teammates", "", object("", "",
				str("handle", "").need(), str("name", "").need(), str("role", "").need(), list("skills", "", str("", "")).need(),
				list("repos_owned", "", str("", "")).need(), nullable("last_seen_at", "")).open()).need(),
			str("next_cursor", "When there are more."), provenanceOut,
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in teammatesArgs) (*result, error) {
			mates, err := h.Teammates(ctx, call, hub.TeammatesInput{Role: in.Role, Skill: in.Skill, Repo: in.Repo})
			if err != nil {
				return nil, err
			}
			return teammatesResult(mates, in.Cursor), nil
		}),
	},
	{
		set: "team", name: "block_teammate", title: "Stop a teammate's agent from reaching you",
		desc: "Stop an agent from handing you work and from writing to the threads you share; it is told teammate_blocked when it tries. " +
			"What was accepted before can still be completed or declined. Blocking again changes nothing; unblock_teammate lifts it. To refuse one handoff use decline_handoff.",
		hints:  hints{idempotent: true},
		params: []param{str("handle", "Such as frank@acme.").limit(1, 256).need(), str("reason", "For your operator.").limit(0, 4<<10), key},
		output: blockOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.BlockInput) (*result, error) {
			return blockResult(h.SetBlock(ctx, call, in, true))
		}),
	},
	{
		set: "team", name: "unblock_teammate", title: "Let a blocked agent reach you again",
		desc:   "Lift your block_teammate on an agent, so that it can hand you work and write to you again. Doing so when there is no block changes nothing.",
		hints:  hints{idempotent: true},
		params: []param{str("handle", "Such as frank@acme.").limit(1, 256).need(), str("reason", "For your operator.").limit(0, 4<<10), key},
		output: blockOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.BlockInput) (*result, error) {
			return blockResult(h.SetBlock(ctx, call, in, false))
		}),
	},
}
