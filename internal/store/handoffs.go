package store

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"handclasp/internal/handoff"
)

// handoffColumns is the one column list of the table, in the order of scanHandoff and
// handoffValues.
const handoffColumns = `id, door, state, creator_id, recipient_id, holder_id, past_holders, epoch, lease_length, lease_expires_at,
	intent, preview, question, proposed_action, metadata, workspace_id, target, visibility, priority, payload,
	result, criteria, verify_by, verdict, deps_pending, deps_failed, fallback_at, recipient_declined, waits_for_reply, message_count,
	event_seq, trace_id, traceparent, created_at, updated_at, expires_at, fetched_at, accepted_at, completed_at, ended_by,
	ended_reason, result_summary, completion_artifacts, erased_at, fallback_opened, deps_total`

// handoffScan collects one row; value turns it into a Handoff.
type handoffScan struct {
	h                                                      handoff.Handoff
	pastHolders, action, metadata, target, payload, result string
	criteria, verifyBy, verdict, artifacts                 string
	lease, leaseEnds, fallback, declined, waits            int64
	created, updated, expires, fetched, accepted, complete int64
	erased, opened                                         int64
}

func (s *handoffScan) dest() []any {
	h := &s.h
	return []any{
		&h.ID, &h.Door, &h.State, &h.Creator, &h.Recipient, &h.Holder, &s.pastHolders, &h.Epoch, &s.lease, &s.leaseEnds,
		&h.Intent, &h.Preview, &h.Question, &s.action, &s.metadata, &h.WorkspaceID, &s.target, &h.Visibility, &h.Priority, &s.payload,
		&s.result, &s.criteria, &s.verifyBy, &s.verdict, &h.DepsPending, &h.DepsFailed, &s.fallback, &s.declined, &s.waits, &h.Messages,
		&h.EventSeq, &h.TraceID, &h.TraceParent, &s.created, &s.updated, &s.expires, &s.fetched, &s.accepted, &s.complete, &h.EndedBy,
		&h.EndedReason, &h.ResultSummary, &s.artifacts, &s.erased, &s.opened, &h.DepsTotal,
	}
}

func (s *handoffScan) value() (handoff.Handoff, error) {
	h := s.h
	h.LeaseLength = time.Duration(s.lease) * time.Microsecond
	h.LeaseExpiresAt, h.FallbackAt = timeOf(s.leaseEnds), timeOf(s.fallback)
	h.RecipientDeclined, h.WaitsForReply = s.declined != 0, s.waits != 0
	h.CreatedAt, h.UpdatedAt, h.ExpiresAt = timeOf(s.created), timeOf(s.updated), timeOf(s.expires)
	h.FetchedAt, h.AcceptedAt, h.CompletedAt = timeOf(s.fetched), timeOf(s.accepted), timeOf(s.complete)
	h.ErasedAt, h.FallbackOpened = timeOf(s.erased), s.opened != 0
	h.Metadata, h.Payload, h.Result = raw(s.metadata), raw(s.payload), raw(s.result)
	err := errors.Join(
		jsonValue("past_holders", s.pastHolders, &h.PastHolders),
		jsonValue("proposed_action", s.action, &h.ProposedAction),
		jsonValue("target", s.target, &h.Target),
		jsonValue("criteria", s.criteria, &h.Criteria),
		jsonValue("verify_by", s.verifyBy, &h.VerifyBy),
		jsonValue("verdict", s.verdict, &h.Verdict),
		jsonValue("completion_artifacts", s.artifacts, &h.CompletionArtifacts))
	return h, err
}

func raw(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	return json.RawMessage(text)
}

func handoffValues(h *handoff.Handoff) []any {
	return []any{
		h.ID, string(h.Door), string(h.State), h.Creator, h.Recipient, h.Holder, jsonText(h.PastHolders), h.Epoch, h.LeaseLength.Microseconds(), micros(h.LeaseExpiresAt),
		string(h.Intent), h.Preview, h.Question, jsonText(h.ProposedAction), jsonText(h.Metadata), h.WorkspaceID, jsonText(h.Target), string(h.Visibility), h.Priority, jsonText(h.Payload),
		jsonText(h.Result), jsonText(h.Criteria), jsonText(h.VerifyBy), jsonText(h.Verdict), h.DepsPending, h.DepsFailed, micros(h.FallbackAt), flag(h.RecipientDeclined), flag(h.WaitsForReply), h.Messages,
		h.EventSeq, h.TraceID, h.TraceParent, micros(h.CreatedAt), micros(h.UpdatedAt), micros(h.ExpiresAt), micros(h.FetchedAt), micros(h.AcceptedAt), micros(h.CompletedAt), h.EndedBy,
		h.EndedReason, h.ResultSummary, jsonText(h.CompletionArtifacts), micros(h.ErasedAt), flag(h.FallbackOpened), h.DepsTotal,
	}
}

// maxShapes bounds how many statements insertHandoff makes.
const maxShapes = 64

// shapes are the INSERTs of handoffs by which columns are given.
var shapes = struct {
	sync.RWMutex
	byMask map[uint64]string
}{byMask: map[uint64]string{}}

// insertHandoff gives the INSERT for a row: what is empty stands in the statement itself,
// because binding forty texts costs more than the insert. Rows have few shapes; past maxShapes
// everything is bound.
func insertHandoff(values []any) (query string, args []any) {
	const all = uint64(1)<<63 - 1
	mask := uint64(0)
	args = make([]any, 0, len(values))
	for i, v := range values {
		if v != "" && v != 0 && v != int64(0) {
			mask |= 1 << i
			args = append(args, v)
		}
	}
	shapes.RLock()
	query, known := shapes.byMask[mask]
	if !known && len(shapes.byMask) >= maxShapes {
		mask, args = all, values
		query, known = shapes.byMask[all]
	}
	shapes.RUnlock()
	if known {
		return query, args
	}
	parts := make([]string, len(values))
	bound := 0
	for i, v := range values {
		switch {
		case mask&(1<<i) != 0:
			bound++
			parts[i] = "$" + itoa(bound)
		case v == "":
			parts[i] = "''"
		default:
			parts[i] = "0"
		}
	}
	query = "INSERT INTO handoffs (" + handoffColumns + ") VALUES (" + strings.Join(parts, ", ") + ")"
	shapes.Lock()
	defer shapes.Unlock()
	shapes.byMask[mask] = query
	return query, args
}

// params is "$from, …" for n parameters.
func params(from, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteByte('$')
		b.WriteString(itoa(from + i))
	}
	return b.String()
}

// InsertHandoff stores a new handoff with the keys under which its target is found.
func (tx *Tx) InsertHandoff(h *handoff.Handoff) error {
	query, args := insertHandoff(handoffValues(h))
	if err := tx.exec(query, args...); err != nil {
		return err
	}
	return tx.setOffers(h, nil, h.Offers())
}

// UpdateHandoff stores what a transition changed. It is guarded by the state and epoch of was,
// the row as it was read under its lock in this transaction.
func (tx *Tx) UpdateHandoff(was, h *handoff.Handoff) error {
	if err := tx.setOffers(h, was.Offers(), h.Offers()); err != nil {
		return err
	}
	if was.Recipient != h.Recipient || was.FallbackOpened != h.FallbackOpened || !was.FallbackAt.Equal(h.FallbackAt) {
		if err := tx.exec(`UPDATE handoffs SET recipient_id = $1, fallback_at = $2, fallback_opened = $3 WHERE id = $4`,
			h.Recipient, micros(h.FallbackAt), flag(h.FallbackOpened), h.ID); err != nil {
			return err
		}
	}
	ended := time.Time{}
	if h.State.Terminal() {
		ended = h.UpdatedAt
	}
	return tx.execOne(`UPDATE handoffs SET state = $1, holder_id = $2, past_holders = $3, epoch = $4, lease_length = $5,
		lease_expires_at = $6, result = $7, verdict = $8, deps_pending = $9, deps_failed = $10, recipient_declined = $11,
		waits_for_reply = $12, message_count = $13, event_seq = $14, updated_at = $15, fetched_at = $16, accepted_at = $17,
		completed_at = $18, ended_by = $19, ended_reason = $20, result_summary = $21, completion_artifacts = $22,
		ended_at = CASE ended_at WHEN 0 THEN CAST($26 AS bigint) ELSE ended_at END
		WHERE id = $23 AND (state = $24 AND epoch = $25`+unguarded+`)`,
		string(h.State), h.Holder, jsonText(h.PastHolders), h.Epoch, h.LeaseLength.Microseconds(),
		micros(h.LeaseExpiresAt), jsonText(h.Result), jsonText(h.Verdict), h.DepsPending, h.DepsFailed, flag(h.RecipientDeclined),
		flag(h.WaitsForReply), h.Messages, h.EventSeq, micros(h.UpdatedAt), micros(h.FetchedAt), micros(h.AcceptedAt),
		micros(h.CompletedAt), h.EndedBy, h.EndedReason, h.ResultSummary, jsonText(h.CompletionArtifacts),
		h.ID, string(was.State), was.Epoch, micros(ended))
}

// Handoff reads one handoff as it is written down; [handoff.CodeNotFound] when there is none.
func (tx *Tx) Handoff(id string) (handoff.Handoff, error) {
	return tx.handoff(id, "")
}

// LockHandoff reads one handoff and keeps others from changing it until the end of tx.
func (tx *Tx) LockHandoff(id string) (handoff.Handoff, error) {
	if unguarded != "" {
		return tx.handoff(id, "")
	}
	h, err := tx.handoff(id, tx.d.forUpdate())
	tx.notBefore(h.UpdatedAt)
	return h, err
}

// ExpectLockHandoff announces [Tx.LockHandoff].
func (tx *Tx) ExpectLockHandoff(id string) {
	if unguarded == "" {
		tx.e.expect(handoffQuery+tx.d.forUpdate(), []any{id})
	}
}

const handoffQuery = "SELECT " + handoffColumns + " FROM handoffs WHERE id = $1"

func (tx *Tx) handoff(id, lock string) (handoff.Handoff, error) {
	var s handoffScan
	if err := tx.row(handoffQuery+lock, id).scan(s.dest()...); err != nil {
		return handoff.Handoff{}, notFound(err, "handoff", id)
	}
	return s.value()
}

// HandoffsByID reads some handoffs as they are written down, without payloads, by id. Those that do not
// exist are left out.
func (tx *Tx) HandoffsByID(ids []string) (map[string]handoff.Handoff, error) {
	out := make(map[string]handoff.Handoff, len(ids))
	for some := range slices.Chunk(ids, maxIDs) {
		in, args := placeholders(some, 1)
		list, err := tx.handoffs("SELECT "+lightColumns+" FROM handoffs h WHERE h.id IN ("+in+")", args)
		if err != nil {
			return nil, err
		}
		for i := range list {
			out[list[i].ID] = list[i]
		}
	}
	return out, nil
}

// maxIDs bounds the parameters of one statement.
const maxIDs = 500

// Due names handoffs whose lease, deadline or wait for a fallback is over but not written down as
// such yet, at most limit of them.
func (tx *Tx) Due(now time.Time, limit int) ([]string, error) {
	return tx.ids(tx.lapsed()+` UNION ALL `+tx.overdue()+` UNION ALL `+tx.fallbackDue()+` LIMIT $2`, micros(now), limit)
}

// lapsed selects the handoffs whose lease is over at the time $1, overdue those whose deadline is, and
// fallbackDue those whose wait for a fallback is.
func (tx *Tx) lapsed() string {
	return `SELECT id FROM handoffs` + tx.d.by("handoffs_by_lease") + ` WHERE state = 'claimed' AND lease_expires_at > 0 AND lease_expires_at <= $1`
}

func (tx *Tx) overdue() string {
	return `SELECT id FROM handoffs` + tx.d.by("handoffs_by_deadline") + ` WHERE state = 'open' AND expires_at > 0 AND expires_at <= $1`
}

func (tx *Tx) fallbackDue() string {
	return `SELECT id FROM handoffs` + tx.d.by("handoffs_by_fallback") + ` WHERE state = 'open' AND fallback_at > 0 AND fallback_opened = 0 AND fallback_at <= $1
		AND deps_pending = 0 AND deps_failed = 0 AND recipient_declined = 0`
}

// NextDue is the first moment at which [Tx.Due] will have something that it has not yet; zero when
// nothing is to come. It may be past.
func (tx *Tx) NextDue() (time.Time, error) {
	first := func(index, column, where string) string {
		return `SELECT * FROM (SELECT ` + column + ` AS at FROM handoffs` + tx.d.by(index) + ` WHERE ` + where + ` ORDER BY ` + column + ` LIMIT 1) AS ` + index
	}
	var at int64
	err := tx.each(`SELECT COALESCE(min(at), 0) FROM (`+
		first("handoffs_by_lease", "lease_expires_at", `state = 'claimed' AND lease_expires_at > 0`)+` UNION ALL `+
		first("handoffs_by_deadline", "expires_at", `state = 'open' AND expires_at > 0`)+` UNION ALL `+
		first("handoffs_by_fallback", "fallback_at", `state = 'open' AND fallback_at > 0 AND fallback_opened = 0 AND deps_pending = 0 AND deps_failed = 0 AND recipient_declined = 0`)+
		`) AS due`, nil, func(r rows) error { return r.Scan(&at) })
	return timeOf(at), err
}

// HeldBy names the handoffs that the agent holds, in the order of their ids.
func (tx *Tx) HeldBy(agentID string) ([]string, error) {
	return tx.ids(`SELECT id FROM handoffs WHERE holder_id = $1 AND state IN ('claimed', 'verifying') ORDER BY id`, agentID)
}

// Claims reads what the agent holds as things are now, delivered work that waits for its verdict
// included, without payloads: what lapses soonest first, at most limit.
func (tx *Tx) Claims(agentID string, limit int) ([]handoff.Handoff, error) {
	return tx.handoffs(`SELECT `+lightColumns+` FROM handoffs h`+tx.d.by("handoffs_held")+` WHERE h.holder_id = $1 AND h.state IN ('claimed', 'verifying')
		AND (h.state = 'verifying' OR h.lease_expires_at = 0 OR h.lease_expires_at > $2)
		ORDER BY CASE h.lease_expires_at WHEN 0 THEN 1 ELSE 0 END, h.lease_expires_at, h.id LIMIT $3`, []any{agentID, micros(tx.Now()), limit})
}

// Load counts the handoffs that wait for the agent as their recipient, and those that it holds,
// as they are now.
func (tx *Tx) Load(agentID string) (open, held int, err error) {
	state := strings.ReplaceAll(effectiveState, "$now", "$2")
	now := micros(tx.Now())
	err = tx.row(`SELECT count(*) FROM handoffs h WHERE h.recipient_id = $1 AND h.state IN ('open', 'claimed') AND `+state+` = 'open'`, agentID, now).scan(&open)
	if err != nil {
		return open, held, err
	}
	err = tx.row(`SELECT count(*) FROM handoffs h WHERE h.holder_id = $1 AND h.state IN ('claimed', 'verifying') AND `+state+` IN ('claimed', 'verifying')`, agentID, now).scan(&held)
	return open, held, err
}

func (tx *Tx) ids(query string, args ...any) ([]string, error) {
	var ids []string
	err := tx.each(query, args, func(r rows) error {
		var id string
		err := r.Scan(&id)
		ids = append(ids, id)
		return err
	})
	return ids, err
}

// MarkFetched notes that handoffs were handed to their recipient for the first time.
func (tx *Tx) MarkFetched(recipientID string, ids []string, now time.Time) error {
	for _, id := range ids {
		if err := tx.exec(`UPDATE handoffs SET fetched_at = $1 WHERE id = $2 AND recipient_id = $3 AND fetched_at = 0`, micros(now), id, recipientID); err != nil {
			return err
		}
	}
	return nil
}

// StateCount is how many handoffs of one door are in one state.
type StateCount struct {
	Door  handoff.Door
	State handoff.State
	Count int64
}

// Stats is what the metrics ask of the database.
type Stats struct {
	States []StateCount
	// OldestUnfetched is when the oldest open handoff was created that its recipient has not
	// been handed yet; zero when there is none.
	OldestUnfetched time.Time
	// Unsettled is how many events readers cannot see yet, OldestUnsettled the time of the
	// oldest of them; always none on SQLite.
	Unsettled       int64
	OldestUnsettled time.Time
	// PendingDeliveries go on by themselves, FaultyDeliveries are dead or unconfirmed.
	PendingDeliveries, FaultyDeliveries int64
	// Untold is how many open handoffs of the desk nobody was told of, or it is not known.
	Untold int64
	Now    time.Time
}

// Stats counts what the metrics show.
func (tx *Tx) Stats() (Stats, error) {
	st := Stats{}
	err := tx.each(`SELECT door, state, count(*) FROM handoffs GROUP BY state, door ORDER BY state, door`, nil, func(r rows) error {
		var c StateCount
		if err := r.Scan(&c.Door, &c.State, &c.Count); err != nil {
			return err
		}
		st.States = append(st.States, c)
		return nil
	})
	if err != nil {
		return st, err
	}
	var oldest, unsettled int64
	if err := tx.row(`SELECT COALESCE(min(created_at), 0) FROM handoffs WHERE state = 'open' AND fetched_at = 0 AND recipient_id <> ''`).scan(&oldest); err != nil {
		return st, err
	}
	if q := tx.d.lagQuery(); q != "" {
		if err := tx.row(q).scan(&st.Unsettled, &unsettled); err != nil {
			return st, err
		}
	}
	for where, dest := range map[string]*int64{"state IN ('queued', 'sending')": &st.PendingDeliveries, "state IN ('unconfirmed', 'dead')": &st.FaultyDeliveries} {
		if err := tx.row(`SELECT count(*) FROM deliveries WHERE ` + where).scan(dest); err != nil {
			return st, err
		}
	}
	if err := tx.row(`SELECT count(*) FROM handoffs h WHERE ` + untold).scan(&st.Untold); err != nil {
		return st, err
	}
	st.OldestUnfetched, st.OldestUnsettled, st.Now = timeOf(oldest), timeOf(unsettled), tx.Now()
	return st, nil
}
