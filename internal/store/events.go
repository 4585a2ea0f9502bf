package store

import (
	"fmt"
	"strconv"
	"strings"

	"handclasp/internal/handoff"
)

// InsertEvent appends to the log. A handoff's own events are numbered by its EventSeq, which
// the caller counts under the row's lock.
func (tx *Tx) InsertEvent(e *handoff.Event) error {
	return tx.exec(`INSERT INTO events (type, handoff_id, seq, actor_id, subject_id, state, epoch, trace_id, at, session_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
		string(e.Type), e.HandoffID, e.Seq, e.ActorID, e.SubjectID, string(e.State), e.Epoch, e.TraceID, micros(e.At), e.SessionID)
}

// A cursor is "<epoch>.<xact>.<id>": the position behind the event that carries it. Ids alone
// do not order what readers may see (see dialect.eventsAfter), so both halves are kept.

// Beginning is the cursor before the first event.
const Beginning = "0"

func (s *Store) parseCursor(cursor string) (xact, id int64, err error) {
	if cursor == Beginning {
		return 0, 0, nil
	}
	parts := strings.Split(cursor, ".")
	if len(parts) == 3 {
		xact, errX := strconv.ParseInt(parts[1], 10, 64)
		id, errID := strconv.ParseInt(parts[2], 10, 64)
		if errX == nil && errID == nil && xact >= 0 && id >= 0 {
			if parts[0] != s.epoch {
				return 0, 0, handoff.Refuse(handoff.CodeCursorExpired, "cursor: it was given out before the hub's database was restored", "Begin anew with cursor \"0\", or without one for what comes from now on.")
			}
			return xact, id, nil
		}
	}
	return 0, 0, handoff.Invalid("cursor", fmt.Sprintf("%s came; pass next_cursor of an earlier answer back as it was, or \"0\" for the beginning", handoff.Quote(cursor)))
}

// Events reads the log after cursor in commit order, at most limit events, and returns the
// cursor to go on with. No event that is committed by the time a later page is read is ever
// skipped, whatever the order in which transactions commit.
func (tx *Tx) Events(cursor string, limit int) ([]handoff.Event, string, error) {
	xact, id, err := tx.s.parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	var list []handoff.Event
	err = tx.each("SELECT "+eventColumns+" FROM events WHERE "+tx.d.eventsAfter()+" LIMIT $3",
		[]any{xact, id, limit}, func(r rows) error {
			e, err := tx.scanEvent(r)
			cursor = e.Cursor
			list = append(list, e)
			return err
		})
	return list, cursor, err
}

// CursorNow is the cursor behind everything that readers may see: what follows it comes from now on.
func (tx *Tx) CursorNow() (string, error) {
	var xact, id int64
	err := tx.row(tx.d.positionNow()).scan(&xact, &id)
	return tx.cursorAt(xact, id), err
}

func (tx *Tx) cursorAt(xact, id int64) string { return fmt.Sprintf("%s.%d.%d", tx.s.epoch, xact, id) }

// eventColumns is the one column list of the log, in the order of scanEvent.
const eventColumns = `xact, id, type, handoff_id, seq, actor_id, subject_id, state, epoch, trace_id, at, session_id`

func (tx *Tx) scanEvent(r rows) (handoff.Event, error) {
	var e handoff.Event
	var xact, id, at int64
	err := r.Scan(&xact, &id, &e.Type, &e.HandoffID, &e.Seq, &e.ActorID, &e.SubjectID, &e.State, &e.Epoch, &e.TraceID, &at, &e.SessionID)
	e.Cursor, e.At = tx.cursorAt(xact, id), timeOf(at)
	return e, err
}

// HandoffEvents reads the events of one handoff in their order, after the given number, at most
// limit.
func (tx *Tx) HandoffEvents(handoffID string, after, limit int) ([]handoff.Event, error) {
	var list []handoff.Event
	err := tx.each("SELECT "+eventColumns+" FROM events WHERE handoff_id = $1 AND handoff_id <> '' AND seq > $2 ORDER BY seq LIMIT $3",
		[]any{handoffID, after, limit}, func(r rows) error {
			e, err := tx.scanEvent(r)
			list = append(list, e)
			return err
		})
	return list, err
}
