package store

import (
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// What the operator asks of handoffs, whoever's they are.

// HandoffQuery selects a page of all handoffs, newest first. What is empty does not filter.
type HandoffQuery struct {
	// States are those as they are now, lapses and deadlines included.
	States []handoff.State
	// AgentID takes part as creator, recipient or holder.
	AgentID     string
	CreatorID   string
	RecipientID string
	Door        handoff.Door
	WorkspaceID string
	// Since keeps what was created at that time or later.
	Since time.Time
	// Unfetched keeps open ones that never reached their recipient.
	Unfetched bool
	// HeldSince keeps those that their holder took at that time or earlier.
	HeldSince time.Time
	// Untold keeps open ones of the desk whose person was not told for certain, nor by a form.
	Untold bool
	// BeforeID is the id to go on behind; empty begins with the newest.
	BeforeID string
	Limit    int
}

// ListedHandoff is a handoff with the time since when its holder has it; zero when nobody does.
type ListedHandoff struct {
	Handoff   handoff.Handoff
	HeldSince time.Time
}

// heldSince is when the holder of h got it: a claim, or the operator's word.
const heldSince = `(SELECT COALESCE(max(e.at), 0) FROM events e
	WHERE e.handoff_id = h.id AND e.handoff_id <> '' AND e.type IN ('handoff.claimed', 'handoff.reassigned'))`

// untold: the first notification of an open handoff h of the desk did not go out, or nobody knows.
const untold = `h.state = 'open' AND h.door = 'desk' AND EXISTS (SELECT 1 FROM deliveries d WHERE d.handoff_id = h.id AND d.kind = 'handoff'
	AND (d.state IN ('dead', 'unconfirmed') OR d.state = 'refused' AND d.reason <> '` + handoff.ReasonForm + `'))`

// Handoffs reads one page in the order of ids, which is that of creation, without payloads.
func (tx *Tx) Handoffs(q HandoffQuery) ([]ListedHandoff, error) {
	args := []any{micros(tx.Now()), q.Limit}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + itoa(len(args))
	}
	current := strings.ReplaceAll(effectiveState, "$now", "$1")
	held := current + " IN ('claimed', 'verifying')"
	where := "h.created_at >= " + arg(micros(q.Since))
	also := func(condition string) { where += " AND " + condition }
	if q.BeforeID != "" {
		also("h.id < " + arg(q.BeforeID))
	}
	if q.AgentID != "" {
		id := arg(q.AgentID)
		also("(h.creator_id = " + id + " OR h.recipient_id = " + id + " OR h.holder_id = " + id + ")")
	}
	if q.CreatorID != "" {
		also("h.creator_id = " + arg(q.CreatorID))
	}
	if q.RecipientID != "" {
		also("h.recipient_id = " + arg(q.RecipientID))
	}
	if q.Door != "" {
		also("h.door = " + arg(string(q.Door)))
	}
	if q.WorkspaceID != "" {
		also("h.door = 'pool' AND h.workspace_id = " + arg(q.WorkspaceID))
	}
	if len(q.States) > 0 {
		in := make([]string, len(q.States))
		for i, s := range q.States {
			in[i] = arg(string(s))
		}
		also(current + " IN (" + strings.Join(in, ", ") + ")")
	}
	if q.Unfetched {
		also("h.fetched_at = 0 AND h.recipient_id <> '' AND " + current + " = 'open'")
	}
	if q.Untold {
		also(untold + " AND " + current + " = 'open'")
	}
	if !q.HeldSince.IsZero() {
		also("h.state IN ('claimed', 'verifying') AND " + held + " AND " + heldSince + " <= " + arg(micros(q.HeldSince)))
	}
	var list []ListedHandoff
	err := tx.each("SELECT "+lightColumns+", CASE WHEN "+held+" THEN "+heldSince+" ELSE 0 END FROM handoffs h WHERE "+where+" ORDER BY h.id DESC LIMIT $2",
		args, func(r rows) error {
			var s handoffScan
			var since int64
			if err := r.Scan(append(s.dest(), &since)...); err != nil {
				return err
			}
			h, err := s.value()
			list = append(list, ListedHandoff{h, timeOf(since)})
			return err
		})
	return list, err
}

// HandoffsNamed gives the ids that begin with prefix, at most limit. Ids hold nothing that sorts
// behind a tilde.
func (tx *Tx) HandoffsNamed(prefix string, limit int) ([]string, error) {
	return tx.ids(`SELECT id FROM handoffs WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3`, prefix, prefix+"~", limit)
}

// EraseMessages puts text in place of the bodies of the messages from..to, and removes what they
// carry.
func (tx *Tx) EraseMessages(handoffID, text string, from, to int) error {
	return tx.exec(`UPDATE messages SET body = $1, payload = '', artifacts = '' WHERE handoff_id = $2 AND sequence_no >= $3 AND sequence_no <= $4`,
		text, handoffID, from, to)
}

// EraseHandoff stores a handoff that [handoff.Handoff.Erase] took the texts from, and does the
// same to its drafts, its contacts and what was sent to people about it.
func (tx *Tx) EraseHandoff(h *handoff.Handoff, text string) error {
	if err := tx.execOne(`UPDATE handoffs SET preview = $1, question = $2, proposed_action = $3, metadata = '', payload = '', result = '', criteria = $4,
		verdict = $5, ended_reason = $6, result_summary = $7, completion_artifacts = '', event_seq = $8, erased_at = $9 WHERE id = $10 AND erased_at = 0`,
		h.Preview, h.Question, jsonText(h.ProposedAction), jsonText(h.Criteria),
		jsonText(h.Verdict), h.EndedReason, h.ResultSummary, h.EventSeq, micros(h.ErasedAt), h.ID); err != nil {
		return err
	}
	const where = ` WHERE handoff_id = $1`
	if err := tx.exec(`UPDATE drafts SET target_files = '[]', suggested_diff = $2, description = CASE description WHEN '' THEN '' ELSE $2 END,
		rationale = CASE rationale WHEN '' THEN '' ELSE $2 END, reason = CASE reason WHEN '' THEN '' ELSE $2 END`+where, h.ID, text); err != nil {
		return err
	}
	if err := tx.exec(`UPDATE desk SET reason = '', purpose = '', reservation_id = '', agent_label = ''`+where, h.ID); err != nil {
		return err
	}
	return tx.exec(`DELETE FROM contacts WHERE subject_id = $1`, h.ID)
}
