package store

import (
	"slices"
	"strconv"
	"time"

	"handclasp/internal/handoff"
)

func itoa(n int) string { return strconv.Itoa(n) }

const messageColumns = `id, handoff_id, sequence_no, author_id, body, payload, artifacts, expects_reply, created_at`

func scanMessage(r rows) (handoff.Message, error) {
	var m handoff.Message
	var payload, list string
	var expects, created int64
	if err := r.Scan(&m.ID, &m.HandoffID, &m.SequenceNo, &m.Author, &m.Body, &payload, &list, &expects, &created); err != nil {
		return m, err
	}
	m.Payload, m.ExpectsReply, m.CreatedAt = raw(payload), expects != 0, timeOf(created)
	return m, jsonValue("artifacts", list, &m.Artifacts)
}

// InsertMessage appends to the thread.
func (tx *Tx) InsertMessage(m *handoff.Message) error {
	return tx.exec("INSERT INTO messages ("+messageColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
		m.ID, m.HandoffID, m.SequenceNo, m.Author, m.Body, jsonText(m.Payload), jsonText(m.Artifacts), flag(m.ExpectsReply), micros(m.CreatedAt))
}

// Messages reads the thread in order, after the given sequence number, at most limit
// messages.
func (tx *Tx) Messages(handoffID string, after, limit int) ([]handoff.Message, error) {
	var list []handoff.Message
	err := tx.each("SELECT "+messageColumns+" FROM messages WHERE handoff_id = $1 AND sequence_no > $2 ORDER BY sequence_no LIMIT $3",
		[]any{handoffID, after, limit}, func(r rows) error {
			m, err := scanMessage(r)
			list = append(list, m)
			return err
		})
	return list, err
}

// MessageAt reads one message of the thread.
func (tx *Tx) MessageAt(handoffID string, sequenceNo int) (handoff.Message, error) {
	list, err := tx.Messages(handoffID, sequenceNo-1, 1)
	if err == nil && (len(list) == 0 || list[0].SequenceNo != sequenceNo) {
		err = handoff.NotFound("message", itoa(sequenceNo))
	}
	if err != nil {
		return handoff.Message{}, err
	}
	return list[0], nil
}

// LastMessages reads the last messages of a thread that others than the given author wrote, in order.
func (tx *Tx) LastMessages(handoffID, butBy string, limit int) ([]handoff.Message, error) {
	var list []handoff.Message
	err := tx.each("SELECT "+messageColumns+" FROM messages WHERE handoff_id = $1 AND author_id <> $2 ORDER BY sequence_no DESC LIMIT $3",
		[]any{handoffID, butBy, limit}, func(r rows) error {
			m, err := scanMessage(r)
			list = append(list, m)
			return err
		})
	slices.Reverse(list)
	return list, err
}

const draftColumns = `id, handoff_id, draft_no, author_id, epoch, suggested_diff, description, target_files, rationale, status, decided_by, reason, created_at, decided_at`

// standingDraft is draftColumns with the texts of superseded drafts left out.
const standingDraft = `id, handoff_id, draft_no, author_id, epoch,
	CASE status WHEN 'superseded' THEN '' ELSE suggested_diff END, CASE status WHEN 'superseded' THEN '' ELSE description END,
	CASE status WHEN 'superseded' THEN '' ELSE target_files END, CASE status WHEN 'superseded' THEN '' ELSE rationale END,
	status, decided_by, reason, created_at, decided_at`

func scanDraft(r rows) (handoff.Draft, error) {
	var d handoff.Draft
	var files string
	var created, decided int64
	if err := r.Scan(&d.ID, &d.HandoffID, &d.No, &d.Author, &d.Epoch, &d.SuggestedDiff, &d.Description, &files, &d.Rationale, &d.Status, &d.DecidedBy, &d.Reason, &created, &decided); err != nil {
		return d, err
	}
	d.CreatedAt, d.DecidedAt = timeOf(created), timeOf(decided)
	return d, jsonValue("target_files", files, &d.TargetFiles)
}

// InsertDraft stores a new draft.
func (tx *Tx) InsertDraft(d *handoff.Draft) error {
	return tx.exec("INSERT INTO drafts ("+draftColumns+") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)",
		d.ID, d.HandoffID, d.No, d.Author, d.Epoch, d.SuggestedDiff, d.Description, jsonText(d.TargetFiles), d.Rationale, string(d.Status), d.DecidedBy, d.Reason, micros(d.CreatedAt), micros(d.DecidedAt))
}

// UpdateDraft stores a draft's new status.
func (tx *Tx) UpdateDraft(d *handoff.Draft) error {
	return tx.execOne("UPDATE drafts SET status = $1, decided_by = $2, reason = $3, decided_at = $4 WHERE id = $5",
		string(d.Status), d.DecidedBy, d.Reason, micros(d.DecidedAt), d.ID)
}

// Drafts reads the drafts of a handoff, oldest first. Those that were superseded come without
// their texts: nobody decides on them any more, and there may be many.
func (tx *Tx) Drafts(handoffID string) ([]handoff.Draft, error) {
	return tx.drafts(standingDraft+" FROM drafts WHERE handoff_id = $1 ORDER BY draft_no", handoffID)
}

// Draft reads one draft.
func (tx *Tx) Draft(id string) (handoff.Draft, error) {
	if !storable(id) {
		return handoff.Draft{}, handoff.NotFound("draft", id)
	}
	list, err := tx.drafts(draftColumns+" FROM drafts WHERE id = $1", id)
	if err == nil && len(list) == 0 {
		err = handoff.NotFound("draft", id)
	}
	if err != nil {
		return handoff.Draft{}, err
	}
	return list[0], nil
}

// UndecidedDrafts reads the drafts that wait for a person and whose handoff has not ended, oldest
// first, at most limit.
func (tx *Tx) UndecidedDrafts(limit int) ([]handoff.Draft, error) {
	return tx.drafts(draftColumns+` FROM drafts WHERE status = 'drafted' AND handoff_id IN (SELECT id FROM handoffs WHERE state IN ('open', 'claimed', 'verifying'))
		ORDER BY created_at, id LIMIT $1`, limit)
}

func (tx *Tx) drafts(query string, args ...any) ([]handoff.Draft, error) {
	var list []handoff.Draft
	err := tx.each("SELECT "+query, args, func(r rows) error {
		d, err := scanDraft(r)
		list = append(list, d)
		return err
	})
	return list, err
}

// InsertNotice tells an actor that something happened; sequenceNo is the message it carries,
// or 0.
func (tx *Tx) InsertNotice(actorID string, h *handoff.Handoff, seq, sequenceNo int, t handoff.EventType, now time.Time) error {
	return tx.exec(`INSERT INTO notices (actor_id, handoff_id, event_seq, sequence_no, type, handoff_created_at, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		actorID, h.ID, seq, sequenceNo, string(t), micros(h.CreatedAt), micros(now))
}

// Notice is one thing that an actor was told and has not seen.
type Notice struct {
	HandoffID  string
	EventSeq   int
	SequenceNo int
	Type       handoff.EventType
}

// Notices reads what the actor has not seen of one handoff, oldest first.
func (tx *Tx) Notices(actorID string, h *handoff.Handoff) ([]Notice, error) {
	var list []Notice
	err := tx.each(`SELECT handoff_id, event_seq, sequence_no, type FROM notices WHERE actor_id = $1 AND handoff_created_at = $2 AND handoff_id = $3 ORDER BY event_seq`,
		[]any{actorID, micros(h.CreatedAt), h.ID}, func(r rows) error {
			var n Notice
			if err := r.Scan(&n.HandoffID, &n.EventSeq, &n.SequenceNo, &n.Type); err != nil {
				return err
			}
			list = append(list, n)
			return nil
		})
	return list, err
}

// ClearNotices forgets all that the actor was told of one handoff.
func (tx *Tx) ClearNotices(actorID string, h *handoff.Handoff) error {
	return tx.exec(`DELETE FROM notices WHERE actor_id = $1 AND handoff_created_at = $2 AND handoff_id = $3`, actorID, micros(h.CreatedAt), h.ID)
}

// NoticeThread tells an actor that joins a thread of every message of others in it, as if it had
// been there from the start.
func (tx *Tx) NoticeThread(actorID string, h *handoff.Handoff, now time.Time) error {
	return tx.exec(`INSERT INTO notices (actor_id, handoff_id, event_seq, sequence_no, type, handoff_created_at, created_at)
		SELECT CAST($1 AS text), m.handoff_id, e.seq, m.sequence_no, e.type, CAST($2 AS bigint), CAST($3 AS bigint) FROM messages m
		JOIN events e ON e.handoff_id = m.handoff_id AND e.handoff_id <> '' AND e.subject_id = m.id
		WHERE m.handoff_id = $4 AND m.author_id <> $1 ON CONFLICT DO NOTHING`, actorID, micros(h.CreatedAt), micros(now), h.ID)
}

// ClearNotice forgets one notice.
func (tx *Tx) ClearNotice(actorID string, h *handoff.Handoff, eventSeq int) error {
	return tx.exec(`DELETE FROM notices WHERE actor_id = $1 AND handoff_created_at = $2 AND handoff_id = $3 AND event_seq = $4`,
		actorID, micros(h.CreatedAt), h.ID, eventSeq)
}
