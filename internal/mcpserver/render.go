package mcpserver

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// Inputs that are more than the hub's own input structs.

type inboxArgs struct {
	Status []string `json:"status"`
	Since  string   `json:"since"`
	Limit  int      `json:"limit"`
	Cursor string   `json:"cursor"`
	Role   string   `json:"role"`
	Wait   int      `json:"wait_seconds"`
}

type acceptArgs struct {
	ThreadID       string `json:"thread_id"`
	SessionID      string `json:"session_id"`
	Lease          int64  `json:"lease_seconds"`
	IdempotencyKey string `json:"idempotency_key"`
}

type teammatesArgs struct {
	Role   string `json:"role"`
	Skill  string `json:"skill"`
	Repo   string `json:"repo"`
	Cursor string `json:"cursor"`
}

func parseTime(field, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, handoff.Invalid(field, handoff.Quote(s)+" came; an RFC 3339 time is accepted, such as 2026-11-30T12:00:00Z")
	}
	return t, nil
}

// Output schemas. They are open: a field that a later version adds breaks no client.

// outputSchema admits a refusal too: the TypeScript SDK 1.x checks the structured content of
// errors as well, and would show its own complaint instead of what was refused.
func outputSchema(params []param) json.RawMessage {
	open := bytes.ReplaceAll(schema(params), []byte(`,"additionalProperties":false`), nil)
	at := bytes.LastIndex(open, []byte(`,"required":[`)) // of the root, which ends with it
	if at < 0 || !bytes.HasSuffix(open, []byte("]}")) {
		return open
	}
	return slices.Concat(open[:at], []byte(`,"if":{"required":["error"]},"else":{`), open[at+1:], []byte("}"))
}

func partyOut(name string) param {
	return object(name, "", str("handle", "").need(), str("name", "").need(), str("role", "").need())
}

// nullable is a string or null.
func nullable(name, desc string) param { return raw(name, desc) }

var (
	provenanceOut = object("provenance", "Who wrote this, and how far to trust it.").open()
	artifactsOut  = list("artifacts", "", object("", "").open())
	draftOut      = object("", "", str("draft_id", "").need(), str("status", "drafted, approved, declined or superseded.").need(), str("from", "").need(),
		str("suggested_diff", "Absent once superseded."), str("description", ""), list("target_files", "", str("", "")), str("rationale", ""), str("decided_by", ""), str("reason", "Of who decided."),
		str("created_at", "").need(), str("decided_at", "")).open()
	messageOut = object("", "", str("message_id", "").need(), integer("sequence_no", "", 1, math.MaxInt32).need(), str("from", "").need(), str("body", "").need(),
		raw("payload", ""), artifactsOut.need(), boolean("expects_reply", ""), str("created_at", "").need(), provenanceOut.need()).open()
	threadOut = []param{
		str("thread_id", "").need(), str("door", "").need(), str("status", "").need(), str("intent", "").need(), partyOut("sender").need(), partyOut("recipient").need(),
		str("summary", "First page only."), str("question", ""), artifactsOut, object("proposed_action", "").open(), list("drafts", "", draftOut),
		object("metadata", "").open(), list("messages", "", messageOut).need(),
		str("created_at", "").need(), str("recipient_fetched_at", ""), str("accepted_at", ""), str("completed_at", ""),
		str("result_summary", ""), list("completion_artifacts", "", object("", "").open()), str("ended_reason", ""),
		integer("claim_epoch", "", 0, math.MaxInt32).need(), str("lease_expires_at", ""), integer("next_sequence_no", "", 0, math.MaxInt32),
		boolean("has_more", "").need(), boolean("idempotent_replay", ""), provenanceOut.need(),
	}
	endedOut = []param{
		str("thread_id", "").need(), str("status", "").need(), str("completed_at", ""), boolean("verifying", "The result waits for its verdict."), boolean("idempotent_replay", ""),
	}
	blockOut = []param{str("handle", "").need(), boolean("blocked", "").need(), boolean("idempotent_replay", "")}
)

func replay(r *result, again bool) {
	if again {
		r.flag("idempotent_replay", true)
	}
}

func endedResult(e hub.Ended, err error) (*result, error) {
	if err != nil {
		return nil, err
	}
	r := newResult()
	r.token("thread_id", e.ThreadID)
	r.token("status", e.Status)
	r.time("completed_at", e.CompletedAt)
	if e.Verifying {
		r.flag("verifying", true)
	}
	replay(r, e.Replay)
	return r, nil
}

func blockResult(b hub.BlockState, err error) (*result, error) {
	if err != nil {
		return nil, err
	}
	r := newResult()
	r.token("handle", b.Handle)
	r.flag("blocked", b.Blocked)
	replay(r, b.Replay)
	return r, nil
}

// party writes how an agent is shown. A display name is prose, unless it just repeats the
// handle.
func party(r *result, name lit, p hub.Party, own bool) {
	r.object(name, func() {
		r.token("handle", p.Handle)
		displayName(r, p.Name, p.Handle, own)
		r.prose("role", p.Role, own)
	})
}

func displayName(r *result, name, handle string, own bool) {
	if name == handle {
		r.token("name", name)
		return
	}
	r.prose("name", name, own)
}

func inboxResult(p *hub.Inbox) *result {
	r := newResult()
	r.head("Handoffs on this page: %d. Unread messages in all: %d.", len(p.Items), p.UnreadTotal)
	r.list("items", len(p.Items), 0, func(i int) { inboxItem(r, p, &p.Items[i]) })
	r.num("unread_total", int64(p.UnreadTotal))
	nullToken(r, "next_cursor", p.NextCursor)
	return r
}

func nullToken(r *result, name lit, s string) {
	if s == "" {
		r.null(name)
		return
	}
	r.token(name, s)
}

func inboxItem(r *result, p *hub.Inbox, item *hub.InboxItem) {
	h := &item.Handoff
	own := h.Creator == p.Viewer.ID
	r.token("thread_id", h.ID)
	r.token("door", string(h.Door))
	party(r, "sender", p.Parties[h.Creator], own)
	party(r, "recipient", p.Parties[h.Recipient], h.Recipient == p.Viewer.ID)
	if heldByAnother(h) {
		party(r, "holder", p.Parties[h.Holder], h.Holder == p.Viewer.ID)
	}
	r.prose("summary_preview", h.Preview, own || erased(h))
	r.token("intent", string(h.Intent))
	r.token("status", h.State.TeamStatus())
	r.num("unread_messages", int64(item.Unread))
	news := make([]string, len(item.News))
	for i, n := range item.News {
		news[i] = string(n)
	}
	r.tokens("news", news)
	r.time("created_at", h.CreatedAt)
	r.time("updated_at", h.UpdatedAt)
	if own {
		r.time("recipient_fetched_at", h.FetchedAt)
	}
	r.time("erased_at", h.ErasedAt)
	author(r, h, origin(h), p.Parties[h.Creator].Handle, own)
}

// heldByAnother: the operator gave it to another agent than the one it was sent to.
func heldByAnother(h *handoff.Handoff) bool { return h.Holder != "" && h.Holder != h.Recipient }

// erased: what stands in place of the texts is the hub's own word.
func erased(h *handoff.Handoff) bool { return !h.ErasedAt.IsZero() }

// author says who wrote the object at hand, a part of h: the hub, once it was erased.
func author(r *result, h *handoff.Handoff, origin, sender string, own bool) {
	if erased(h) {
		origin, sender, own = "system", handoff.System().Handle, false
	}
	r.from(provenance{Origin: origin, Sender: sender, SenderVerified: origin != originBearer}, own)
}

// origin is where the text of a handoff comes from.
func origin(h *handoff.Handoff) string {
	switch h.Door {
	case handoff.DoorPool:
		return "pool_creator"
	case handoff.DoorDesk:
		return "business"
	}
	return "teammate"
}

// originBearer is who redeemed a continuation without a credential: nobody vouches for it.
const originBearer = "a2a_client"

// originOf is where a message comes from.
func originOf(h *handoff.Handoff, authorID string) string {
	if handoff.IsBearer(authorID) {
		return originBearer
	}
	if _, person := handoff.PersonSlug(authorID); person {
		return "person"
	}
	if authorID == handoff.System().ID {
		return "system"
	}
	return origin(h)
}

func teammatesResult(mates []hub.Teammate, cursor string) *result {
	// The list is in the order of folded handles; the cursor is the last handle shown.
	for cursor != "" && len(mates) > 0 && handoff.FoldHandle(mates[0].Handle) <= handoff.FoldHandle(cursor) {
		mates = mates[1:]
	}
	fits := fitting(len(mates), envelope, func(i int) int {
		return weigh(func(r *result) { teammate(r, &mates[i]) })
	})
	r := newResult()
	r.head("%d teammates.", fits)
	r.list("teammates", fits, 0, func(i int) { teammate(r, &mates[i]) })
	if fits < len(mates) {
		r.token("next_cursor", mates[fits-1].Handle)
	}
	return r
}

// teammate writes one agent. What an operator typed about it is another's text to the reader;
// skills and repositories stay unaltered, because the filters compare whole values.
func teammate(r *result, m *hub.Teammate) {
	r.token("handle", m.Handle)
	displayName(r, m.Name, m.Handle, false)
	r.prose("role", m.Role, false)
	labels(r, "skills", m.Skills)
	labels(r, "repos_owned", m.Repos)
	if m.LastSeenAt.IsZero() {
		r.null("last_seen_at")
		return
	}
	r.time("last_seen_at", m.LastSeenAt)
}

func labels(r *result, name lit, list []string) {
	if list == nil {
		list = []string{}
	}
	r.data(name, list, len(list) == 0)
}

func threadResult(t *hub.Thread) *result {
	h := &t.Handoff
	r := newResult()
	r.head("Thread %s is %s.", h.ID, h.State.TeamStatus())
	threadHead(r, t)
	if t.FirstPage {
		threadBody(r, t)
	}
	r.list("messages", len(t.Messages), 0, func(i int) { message(r, t, &t.Messages[i]) })
	if t.NextSequenceNo > 0 {
		r.num("next_sequence_no", int64(t.NextSequenceNo))
	}
	r.flag("has_more", t.HasMore)
	replay(r, t.Replay)
	author(r, h, origin(h), t.Party(h.Creator).Handle, h.Creator == t.Viewer.ID)
	return r
}

// threadHead is what stands on every page.
func threadHead(r *result, t *hub.Thread) {
	h := &t.Handoff
	r.token("thread_id", h.ID)
	r.token("door", string(h.Door))
	r.token("status", h.State.TeamStatus())
	r.token("intent", string(h.Intent))
	party(r, "sender", t.Party(h.Creator), h.Creator == t.Viewer.ID)
	party(r, "recipient", t.Party(h.Recipient), h.Recipient == t.Viewer.ID)
	if heldByAnother(h) {
		party(r, "holder", t.Party(h.Holder), h.Holder == t.Viewer.ID)
	}
	r.time("created_at", h.CreatedAt)
	r.time("updated_at", h.UpdatedAt)
	r.time("recipient_fetched_at", h.FetchedAt)
	r.time("accepted_at", h.AcceptedAt)
	r.time("completed_at", h.CompletedAt)
	r.num("claim_epoch", int64(h.Epoch))
	r.time("lease_expires_at", h.LeaseExpiresAt)
	r.time("erased_at", h.ErasedAt)
}

// threadBody is what stands on the first page only.
func threadBody(r *result, t *hub.Thread) {
	h := &t.Handoff
	own := h.Creator == t.Viewer.ID || erased(h)
	// The thread of an open handoff begins with whoever writes first.
	firstMine := t.Summary.Author == t.Viewer.ID || erased(h)
	r.prose("summary", t.Summary.Body, firstMine)
	if h.Question != "" {
		r.prose("question", h.Question, own)
	}
	r.records("artifacts", raws(t.Summary.Artifacts), firstMine, "title")
	if a := h.ProposedAction; a != nil {
		r.object("proposed_action", func() {
			r.prose("description", a.Description, own)
			r.data("target_files", a.TargetFiles, own)
			r.prose("rationale", a.Rationale, own)
			if a.SuggestedDiff != "" {
				r.data("suggested_diff", a.SuggestedDiff, own)
			}
		})
	}
	r.list("drafts", len(t.Drafts), 0, func(i int) { draft(r, t, &t.Drafts[i]) })
	metadata := h.Metadata
	if len(metadata) == 0 {
		metadata = json.RawMessage("{}")
	}
	r.data("metadata", metadata, own || len(h.Metadata) == 0)
	if h.ResultSummary != "" {
		byMe := h.DeliveredBy(t.Viewer.ID) || erased(h)
		r.prose("result_summary", h.ResultSummary, byMe)
		r.records("completion_artifacts", raws(h.CompletionArtifacts), byMe, "title")
	} else {
		r.list("completion_artifacts", 0, 0, nil)
	}
	if h.EndedReason != "" {
		r.prose("ended_reason", h.EndedReason, h.EndedBy == t.Viewer.ID || h.EndedBy == handoff.System().ID || erased(h))
	}
}

func draft(r *result, t *hub.Thread, d *handoff.Draft) {
	own := d.Author == t.Viewer.ID || erased(&t.Handoff)
	r.token("draft_id", d.ID)
	r.token("status", string(d.Status))
	r.token("from", t.Party(d.Author).Handle)
	if d.Status == handoff.DraftSuperseded { // its text is of no use any more
		r.time("created_at", d.CreatedAt)
		author(r, &t.Handoff, "teammate", t.Party(d.Author).Handle, own)
		return
	}
	// What the author left out was filled in from the action, which its sender wrote.
	mixed := own && t.Handoff.Creator == t.Viewer.ID || erased(&t.Handoff)
	r.prose("description", d.Description, mixed)
	r.data("target_files", d.TargetFiles, mixed)
	r.prose("rationale", d.Rationale, mixed)
	r.data("suggested_diff", d.SuggestedDiff, own)
	if d.DecidedBy != "" {
		r.token("decided_by", t.Party(d.DecidedBy).Handle)
	}
	if d.Reason != "" {
		r.prose("reason", d.Reason, d.DecidedBy == t.Viewer.ID || erased(&t.Handoff))
	}
	r.time("created_at", d.CreatedAt)
	r.time("decided_at", d.DecidedAt)
	author(r, &t.Handoff, "teammate", t.Party(d.Author).Handle, own)
}

func message(r *result, t *hub.Thread, m *handoff.Message) {
	own := m.Author == t.Viewer.ID || erased(&t.Handoff)
	r.token("message_id", m.ID)
	r.num("sequence_no", int64(m.SequenceNo))
	r.token("from", t.Party(m.Author).Handle)
	r.prose("body", m.Body, own)
	if len(m.Payload) > 0 {
		r.data("payload", m.Payload, own)
	}
	r.records("artifacts", raws(m.Artifacts), own, "title")
	if m.ExpectsReply {
		r.flag("expects_reply", true)
	}
	r.time("created_at", m.CreatedAt)
	author(r, &t.Handoff, originOf(&t.Handoff, m.Author), t.Party(m.Author).Handle, own)
}

func raws(list []handoff.Artifact) []json.RawMessage {
	out := make([]json.RawMessage, len(list))
	for i := range list {
		out[i] = list[i].Raw
	}
	return out
}

// pageBytes is how large a page of a result may become, both of its renderings together
// (contracts: errors, Limits); envelope is what surrounds them.
const (
	pageBytes = 48 << 10
	envelope  = 2 << 10
)

// sizer tells the hub how much room things take, by writing them as the result will.
type sizer struct{}

// Budget is the room for everything.
func (sizer) Budget() int { return pageBytes - envelope }

// Fixed is what the first page holds besides messages.
func (sizer) Fixed(t *hub.Thread) int {
	return weigh(func(r *result) {
		threadHead(r, t)
		if t.FirstPage {
			threadBody(r, t)
		}
	})
}

// Message is one message.
func (sizer) Message(t *hub.Thread, m *handoff.Message) int {
	return weigh(func(r *result) { message(r, t, m) })
}

// weigh is how many bytes of the response some fields take: once as structured content, where
// the SDK escapes <, > and &, and once as JSON text inside a JSON string.
func weigh(fields func(*result)) int {
	r := newResult()
	r.nested("", func() { fields(r) })
	n := 2 * r.size()
	for _, path := range r.frames[0].untrusted {
		n += 2 * (len(path) + len(`\"teammates[1000].\",`))
	}
	for i, c := range r.buf {
		switch c {
		case '"', '\\', '\n', '\r', '\t':
			n++
		case '<', '>', '&':
			n += 10
		case 0xE2: // U+2028 and U+2029 are escaped like the brackets
			if i+2 < len(r.buf) && r.buf[i+1] == 0x80 && r.buf[i+2]&^1 == 0xA8 {
				n += 6
			}
		}
	}
	return n
}

// fitting tells how many of n items fit on a page of which used bytes are gone; the first always
// does.
func fitting(n, used int, weight func(i int) int) int {
	fits, _ := fittingIn(pageBytes, n, used, weight)
	return fits
}

// fittingIn is fitting in the first bytes of a page, and tells how many are used then.
func fittingIn(room, n, used int, weight func(i int) int) (fits, full int) {
	for i := range n {
		w := weight(i)
		if i > 0 && used+w > room {
			return i, used
		}
		used += w
	}
	return n, used
}

// fitInbox tells how many items of an inbox page fit.
func fitInbox(p *hub.Inbox) int {
	return fitting(len(p.Items), envelope, func(i int) int {
		return weigh(func(r *result) { inboxItem(r, p, &p.Items[i]) })
	})
}
