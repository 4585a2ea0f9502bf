package store

import (
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// InboxQuery selects a page of an agent's inbox, newest first.
type InboxQuery struct {
	AgentID string
	// Role is "recipient", "sender" or "" for both. What the agent holds though it was sent to
	// another counts as received.
	Role string
	// States are the states asked for; nil takes the default: open, claimed and verifying
	// ones to the agent or held by it, and anything of either role with unseen notices.
	States []handoff.State
	// Since keeps only handoffs that changed after it.
	Since time.Time
	// Before is the position to go on behind; a zero time begins with the newest.
	BeforeTime time.Time
	BeforeID   string
	Limit      int
}

// InboxItem is one handoff of a page with what its reader has not seen.
type InboxItem struct {
	Handoff handoff.Handoff
	Unread  int
	News    []handoff.EventType
}

// effectiveState is a handoff's state as it is at the time $now: lapsed leases and passed
// deadlines count before any sweep has written them down.
const effectiveState = `CASE
	WHEN h.state = 'claimed' AND h.lease_expires_at > 0 AND h.lease_expires_at <= $now
		THEN CASE WHEN h.expires_at > 0 AND h.expires_at <= $now THEN 'expired' ELSE 'open' END
	WHEN h.state = 'open' AND h.expires_at > 0 AND h.expires_at <= $now THEN 'expired'
	ELSE h.state END`

// changedSince is whether a handoff changed after the time $since, by a write or by the clock.
const changedSince = `(h.updated_at > $since
	OR (h.state = 'claimed' AND h.lease_expires_at > $since AND h.lease_expires_at <= $now)
	OR (h.expires_at > $since AND ` + effectiveState + ` = 'expired'))`

// holdsAnothers is whether the holder of a handoff, at the time $now, is another than the one it
// was sent to. It begins as the index that finds those.
const holdsAnothers = ` AND h.holder_id <> '' AND h.holder_id <> h.recipient_id
	AND (h.state <> 'claimed' OR h.lease_expires_at = 0 OR h.lease_expires_at > $now)`

// Inbox reads one page. Every branch walks an index in the order of the page and stops at the
// limit, so the cost of a page does not grow with the inbox.
func (tx *Tx) Inbox(q InboxQuery) ([]InboxItem, error) {
	args := []any{q.AgentID, micros(tx.Now()), q.Limit}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + itoa(len(args))
	}
	position, noticePosition := "1 = 1", "1 = 1"
	if !q.BeforeTime.IsZero() {
		t, id := arg(micros(q.BeforeTime)), arg(q.BeforeID)
		position = "(h.created_at, h.id) < (" + t + ", " + id + ")"
		noticePosition = "(n.handoff_created_at, n.handoff_id) < (" + t + ", " + id + ")"
	}
	also := ""
	if !q.Since.IsZero() {
		also = " AND " + strings.NewReplacer("$now", "$2", "$since", arg(micros(q.Since))).Replace(changedSince)
	}
	states := q.States
	if states == nil {
		states = []handoff.State{handoff.Open, handoff.Claimed, handoff.Verifying}
	}
	in := make([]string, len(states))
	for i, s := range states {
		in[i] = arg(string(s))
	}
	current := strings.ReplaceAll(effectiveState, "$now", "$2") + " IN (" + strings.Join(in, ", ") + ")"

	branch := func(column, where string) string {
		return "SELECT * FROM (SELECT h.id, h.created_at FROM handoffs h WHERE h." + column + " = $1" + where + " AND " + position + " AND " + current + also +
			" ORDER BY h.created_at DESC, h.id DESC LIMIT $3) AS " + column
	}
	var branches []string
	if q.Role != "sender" {
		branches = append(branches, branch("recipient_id", ""), branch("holder_id", strings.ReplaceAll(holdsAnothers, "$now", "$2")))
	}
	if q.Role != "recipient" && (q.States != nil || q.Role == "sender") {
		branches = append(branches, branch("creator_id", ""))
	}
	if q.States == nil {
		role := ""
		switch q.Role {
		case "recipient":
			role = " AND (h.recipient_id = $1 OR h.holder_id = $1)"
		case "sender":
			role = " AND h.creator_id = $1"
		}
		branches = append(branches, `SELECT * FROM (SELECT DISTINCT h.id, h.created_at FROM notices n JOIN handoffs h ON h.id = n.handoff_id
			WHERE n.actor_id = $1 AND `+noticePosition+role+also+` ORDER BY h.created_at DESC, h.id DESC LIMIT $3) AS news`)
	}
	ids := strings.Join(branches, " UNION ")
	query := `SELECT ` + allColumns + ` FROM (` + ids + `) AS p JOIN handoffs h ON h.id = p.id ORDER BY h.created_at DESC, h.id DESC LIMIT $3`

	var items []InboxItem
	at := map[string]int{}
	err := tx.each(query, args, func(r rows) error {
		var s handoffScan
		if err := r.Scan(s.dest()...); err != nil {
			return err
		}
		h, err := s.value()
		at[h.ID] = len(items)
		items = append(items, InboxItem{Handoff: h})
		return err
	})
	if err != nil || len(items) == 0 {
		return items, err
	}
	return items, tx.fillNews(q.AgentID, items, at)
}

func (tx *Tx) fillNews(agentID string, items []InboxItem, at map[string]int) error {
	list := make([]string, len(items))
	for i := range items {
		list[i] = items[i].Handoff.ID
	}
	in, ids := placeholders(list, 2)
	return tx.each(`SELECT n.handoff_id, n.type, sum(CASE WHEN n.sequence_no > 0 THEN 1 ELSE 0 END)
		FROM handoffs h JOIN notices n ON n.actor_id = $1 AND n.handoff_created_at = h.created_at AND n.handoff_id = h.id
		WHERE h.id IN (`+in+`) GROUP BY n.handoff_id, n.type ORDER BY n.handoff_id, min(n.event_seq)`,
		append([]any{agentID}, ids...), func(r rows) error {
			var id string
			var t handoff.EventType
			var unread int
			if err := r.Scan(&id, &t, &unread); err != nil {
				return err
			}
			item := &items[at[id]]
			item.Unread += unread
			item.News = append(item.News, t)
			return nil
		})
}

// UnreadTotal is how many messages of others wait for the agent.
func (tx *Tx) UnreadTotal(agentID string) (int, error) {
	var n int
	err := tx.row(`SELECT count(*) FROM notices WHERE actor_id = $1 AND sequence_no > 0`, agentID).scan(&n)
	return n, err
}

// News is a notice with the door of its handoff and when it came.
type News struct {
	Notice
	Door handoff.Door
	At   time.Time
}

// News reads what the actor has not seen of all handoffs, newest first, at most limit.
func (tx *Tx) News(actorID string, limit int) ([]News, error) {
	var list []News
	err := tx.each(`SELECT n.handoff_id, n.event_seq, n.sequence_no, n.type, n.created_at, h.door FROM notices n JOIN handoffs h ON h.id = n.handoff_id
		WHERE n.actor_id = $1 ORDER BY n.created_at DESC, n.handoff_id DESC, n.event_seq DESC LIMIT $2`, []any{actorID, limit}, func(r rows) error {
		var n News
		var at int64
		err := r.Scan(&n.HandoffID, &n.EventSeq, &n.SequenceNo, &n.Type, &at, &n.Door)
		n.At = timeOf(at)
		list = append(list, n)
		return err
	})
	return list, err
}
