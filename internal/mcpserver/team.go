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
	threadID = str("thread_id", "Handoff's id.").chars(1, 0).need()
	epoch    = integer("claim_epoch", "From accept_handoff; needed if above 1.", 0, 0).atLeast(0)
	key      = str("idempotency_key", "Same key, one effect.").limit(0, 255)
	agent    = str("handle", "Such as frank@acme.").limit(1, 256).need()
)

// artifact is one typed attachment. The hub checks it once more, and what a schema cannot say.
func artifact() param {
	return object("", "",
		enum("type", "Kind.", handoff.ArtifactTypes()...).need(),
		str("path", "Of a file.").limit(0, 1024), str("diff", "Unified.").limit(0, 512<<10),
		str("git_sha", "Commit."), list("lines", "[from, to].", integer("", "", 0, 0).atLeast(0)).items(2, 2),
		str("command", "To run.").limit(0, 8<<10), str("cwd", "Folder to run it in."),
		str("schema_url", "http(s)."), raw("inline", "Any JSON."),
		str("url", "http(s)."), str("title", "Link text."),
	).open().eg(`{"type":"link","url":"https://example.com/x"}`).
		when("type", "file_diff", "path", "diff").
		when("type", "file_ref", "path").
		when("type", "test_command", "command").
		when("type", "link", "url")
}

// artifacts is the list of them where a call may carry some.
func artifacts(desc string, item param) param {
	return list("artifacts", desc, item).items(0, 50)
}

// inWords describes an artifact whose fields handoff_to_teammate publishes one by one.
const inWords = "By type: file_diff {path, diff}; file_ref {path, git_sha?, lines?}; test_command {command, cwd?}; " +
	"api_contract {schema_url?, inline?}; link {url, title?}."

var teamTools = []tool{
	{
		set: "team", name: "handoff_to_teammate", title: "Hand work to a teammate's agent",
		desc: "Send a handoff to one named teammate's agent, in a new thread. Use it when you know who; " +
			"send_message goes on in a thread that exists, list_teammates finds a handle. " +
			"The recipient owns the work once it accepts; until then cancel_handoff takes it back. " +
			"intent inform expects no reply, ask_question expects one, propose_action asks for a concrete change. " +
			"Refused: invalid_intent_payload, recipient_not_found (with near matches), teammate_blocked, content_too_large, duplicate_idempotency_key. " +
			"On an error nothing is stored; a repeat without idempotency_key sends a second handoff.",
		hints: hints{},
		params: []param{
			str("to", "Such as frank@acme, in any case.").match(handlePattern, "name@team").limit(0, 256).need(),
			enum("intent", "What you expect.", "inform", "ask_question", "propose_action").need(),
			str("summary", "One or two paragraphs: what this is, what is done, what is open. Its first 240 characters are the preview.").limit(1, 64<<10).need(),
			artifacts("Attachments, by type; extra fields are kept. The hub opens no path or URL.", artifact()).fallback([]string{}),
			str("question", "Your first question; give one with ask_question.").limit(0, 8<<10),
			object("proposed_action", "Required with propose_action, refused otherwise.",
				str("description", "What to change.").limit(1, 8<<10).need(),
				list("target_files", "Relative paths, no `..`.", str("", "").limit(1, 1024)).items(0, 100).need(),
				str("rationale", "Why.").limit(1, 8<<10).need(),
				str("suggested_diff", "Unified diff; left out, the receiver drafts one.").limit(0, 512<<10)),
			object("metadata", "Your own keys, at most 16 KiB; the receiver sees them.").open().limit(0, 16<<10),
			integer("expires_in_seconds", "When it expires unaccepted. Default: never.", 60, 31_536_000),
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
			"Without status: pending and accepted ones sent to you, plus all with news that you sent or received. " +
			"Use it to find work or await a reply; view_thread reads one, accept_handoff takes one. Marks nothing read; the sender sees that you fetched it. " +
			"wait_seconds parks the call, instead of polling, until something is unread (with since: changed after it) " +
			"or time is up. Too many parked calls: rate_limited.",
		hints: hints{idempotent: true},
		parks: true,
		params: []param{
			list("status", "Only these.", enum("", "", handoff.TeamStatuses()...)).items(1, 6),
			str("since", "Only what changed after this RFC 3339 time.").eg(`"2026-11-30T12:00:00Z"`),
			integer("limit", "Items a page.", 1, hub.PageLimit).fallback(hub.DefaultPage),
			str("cursor", "next_cursor of the last page."),
			enum("role", "Sent to you (recipient) or by you (sender). Default: both.", "recipient", "sender"),
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
		desc: "Take a pending handoff that was sent to you and become its holder; only its recipient can; cancel_handoff then fails. " +
			"Marks the returned messages read. view_thread reads without taking, decline_handoff refuses. " +
			"A repeat keeps the claim and renews its lease. Without lease_seconds you hold it until complete_handoff or decline_handoff; " +
			"with it the handoff is pending again when the lease ends. " +
			"Refused: not_found, thread_terminal, handoff_already_claimed, not_eligible_to_claim (you sent it), lease_lost (the claim of this key is gone).",
		hints: hints{idempotent: true},
		params: []param{
			threadID,
			str("session_id", "Not stored.").limit(0, 256),
			integer("lease_seconds", "Default: no end.", 10, 86400),
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
		desc: "Refuse a handoff that was sent to you, pending or accepted. This ends it for good, and its sender is told the reason. " +
			"To ask, send_message; to stop its sender, block_teammate; senders use cancel_handoff. Repeating the same refusal changes nothing. " +
			"Refused: not_owner, thread_terminal, lease_lost or stale_claim_epoch (accept again).",
		hints:  hints{destructive: true, idempotent: true},
		params: []param{threadID, str("reason", "What the sender should know.").limit(1, 4<<10).need(), epoch, key},
		output: endedOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.DeclineInput) (*result, error) {
			return endedResult(h.Decline(ctx, call, in))
		}),
	},
	{
		set: "team", name: "view_thread", title: "Read a handoff and its messages",
		desc: "Read one handoff in full, that you sent, received or hold. " +
			"Marks exactly the returned messages read; the sender sees when you first looked. check_inbox lists threads without marking; accept_handoff takes one. " +
			"While has_more is true, call again with after_sequence_no = next_sequence_no; all but messages stands on the first page only. " +
			"Not yours: not_found.",
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
		desc: "Add a message to a handoff that you take part in and that has not ended; the other side finds it in check_inbox. " +
			"Start new work with handoff_to_teammate, deliver results with complete_handoff. " +
			"It cannot be edited or taken back, and a repeat without idempotency_key sends it twice. " +
			"Refused, with nothing sent: not_found, thread_terminal, teammate_blocked, content_too_large, not_owner (expects_reply by another than the holder).",
		hints: hints{},
		params: []param{
			threadID,
			str("body", "What you want to say.").limit(1, 64<<10).need(),
			raw("payload", "Any JSON, at most 64 KiB, delivered byte for byte.").limit(0, 64<<10),
			artifacts(inWords, artifact().words()),
			boolean("expects_reply", "Holder only: marks that the sender must answer.").fallback(false),
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
		desc: "Offer a unified diff for the action of a propose_action handoff; only its holder can, after accept_handoff. " +
			"It must parse and touch only target_files (else invalid_params). A person approves or declines it, which view_thread shows; the hub never applies it. End with complete_handoff. " +
			"A new draft replaces an undecided one; the same again, while undecided, returns it. Any other diff goes as a file_diff artifact of send_message. " +
			"Refused: invalid_transition (not accepted yet), invalid_intent_payload (other intent), not_owner, thread_terminal, lease_lost or stale_claim_epoch (accept again).",
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
		desc: "Deliver the result of a handoff that you hold, after accept_handoff. This ends it for good, and its sender is told; errors store nothing. " +
			"Report progress or ask with send_message; if you will not do it, decline_handoff. " +
			"Repeating the same delivery changes nothing. " +
			"Refused: invalid_transition (not accepted yet), not_owner, thread_terminal, lease_lost or stale_claim_epoch (accept again), content_too_large.",
		hints: hints{idempotent: true},
		params: []param{
			threadID,
			str("result_summary", "What was done, and what was not.").limit(1, 64<<10).need(),
			artifacts(inWords, artifact().words()),
			epoch, key,
		},
		output: endedOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.CompleteInput) (*result, error) {
			return endedResult(h.Complete(ctx, call, in))
		}),
	},
	{
		set: "team", name: "cancel_handoff", title: "Take back a handoff you sent",
		desc: "Take back a handoff that you sent, for good, while it is pending; its recipient is told. " +
			"Once accepted it is invalid_transition: ask its holder with send_message to decline. Recipients use decline_handoff. " +
			"Repeating it changes nothing. Also refused: not_owner, thread_terminal.",
		hints:  hints{destructive: true, idempotent: true},
		params: []param{threadID, str("reason", "What the recipient should know.").limit(0, 4<<10), key},
		output: endedOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.CancelInput) (*result, error) {
			return endedResult(h.Cancel(ctx, call, in))
		}),
	},
	{
		set: "team", name: "list_teammates", title: "Find a teammate's handle",
		desc: "List the other active agents by handle, role, skills and repositories. " +
			"Use it when you do not know the handle that handoff_to_teammate needs; who wrote to you, check_inbox shows. " +
			"Filters match whole values in any case; several narrow it. Who blocks you is listed too: teammate_blocked comes when you write.",
		hints: hints{readOnly: true, idempotent: true},
		params: []param{
			str("role", "Such as backend."), str("skill", "One of skills, such as go."), str("repo", "One of repos_owned, such as acme/api."),
			str("cursor", "next_cursor of the last page."),
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
		desc: "Stop an agent from handing you work and from writing to the threads you share; it gets teammate_blocked when it tries. " +
			"Work accepted before can still be completed or declined. To refuse one handoff use decline_handoff; unblock_teammate lifts the block. " +
			"Blocking again changes nothing. Unknown handle: recipient_not_found.",
		hints:  hints{idempotent: true},
		params: []param{agent, str("reason", "For your operator only.").limit(0, 4<<10), key},
		output: blockOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.BlockInput) (*result, error) {
			return blockResult(h.SetBlock(ctx, call, in, true))
		}),
	},
	{
		set: "team", name: "unblock_teammate", title: "Let a blocked agent reach you again",
		desc: "Lift your own block_teammate on an agent, so that it can hand you work and write to you again; a block on you is its owner's to lift. " +
			"What was refused meanwhile does not arrive later. Without a block nothing changes. Unknown handle: recipient_not_found.",
		hints:  hints{idempotent: true},
		params: []param{agent, str("reason", "Not stored.").limit(0, 4<<10), key},
		output: blockOut,
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.BlockInput) (*result, error) {
			return blockResult(h.SetBlock(ctx, call, in, false))
		}),
	},
}
