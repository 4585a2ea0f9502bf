package store

import (
	"fmt"
	"strconv"
	"strings"

	"handclasp/internal/handoff"
)

// InsertEvent appends to the log. A handoff's own events are numbered by its EventSeq, which
// the caller counts under the row's lock; readers meet them in that order.
func (tx *Tx) InsertEvent(e *handoff.Event) error {
	column, value := "", ""
	if behind := tx.d.behindLast(); e.Seq > 1 && behind != "" {
		column, value = ", xact", ", "+behind
	}
	return tx.exec(`INSERT INTO events (type, handoff_id, seq, actor_id, subject_id, state, epoch, trace_id, at, session_id`+column+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10`+value+`)`,
		string(e.Type), e.HandoffID, e.Seq, e.ActorID, e.SubjectID, string(e.State), e.Epoch, e.TraceID, micros(e.At), e.SessionID)
}

// A cursor is "<epoch>.<xact>.<id>": the position behind the event that carries it. Ids alone
// do not order what readers may see (see dialect.eventsAfter), so both halves are kept. Where events
// behind that position are gone already, ".r<removals>" follows: whoever read it knows of so many removals.

// Beginning is the cursor before the first event.
const Beginning = "0"

// place is a position in the log, and how many removals whoever stands there knows of.
type place struct{ xact, id, removals int64 }

func (p place) before(q place) bool { return p.xact < q.xact || p.xact == q.xact && p.id < q.id }

func (s *Store) parseCursor(cursor string) (place, error) {
	if cursor == Beginning {
		return place{}, nil
	}
	epoch, p, ok := splitCursor(cursor)
	if !ok {
		return p, BadCursor(cursor)
	}
	return p, s.checkEpoch(epoch)
}

func splitCursor(cursor string) (epoch string, p place, ok bool) {
	parts := strings.Split(cursor, ".")
	if len(parts) != 3 && len(parts) != 4 {
		return "", p, false
	}
	var errX, errID, errR error
	p.xact, errX = strconv.ParseInt(parts[1], 10, 64)
	p.id, errID = strconv.ParseInt(parts[2], 10, 64)
	if len(parts) == 4 {
		number, marked := strings.CutPrefix(parts[3], "r")
		p.removals, errR = strconv.ParseInt(number, 10, 64)
		ok = marked && p.removals > 0
	} else {
		ok = true
	}
	return parts[0], p, ok && errX == nil && errID == nil && errR == nil && p.xact >= 0 && p.id >= 0
}

func (s *Store) checkEpoch(epoch string) error {
	if epoch == s.epoch {
		return nil
	}
	return handoff.Refuse(handoff.CodeCursorExpired, "cursor: it was given out before the hub's database was restored", beginAnew)
}

const beginAnew = "Begin anew with cursor \"0\", or without one for what comes from now on."

// CursorGone refuses a cursor behind which events are gone.
func CursorGone() *handoff.Error {
	return handoff.Refuse(handoff.CodeCursorExpired, "cursor: events behind it are older than the hub keeps them", beginAnew)
}

// BadCursor refuses a cursor that was not given out for what is being read.
func BadCursor(cursor string) *handoff.Error {
	return handoff.Invalid("cursor", fmt.Sprintf("%s came; pass next_cursor of an earlier answer of the same stream back as it was, or \"0\" for the beginning", handoff.Quote(cursor)))
}

// Who follows one handoff counts its own events: "h.<epoch>.<seq>.<handoff id>". A restore may take
// back some, so that the numbers come again.
const handoffCursor = "h."

// HandoffCursor is the position behind an event of a handoff.
func (tx *Tx) HandoffCursor(handoffID string, seq int) string {
	return handoffCursor + tx.s.epoch + "." + strconv.Itoa(seq) + "." + handoffID
}

// ParseHandoffCursor gives the number of the event that the cursor stands behind.
func (tx *Tx) ParseHandoffCursor(cursor, handoffID string) (seq int, err error) {
	if cursor == Beginning {
		return 0, nil
	}
	parts := strings.SplitN(cursor, ".", 4)
	if len(parts) != 4 || parts[0]+"." != handoffCursor || parts[3] != handoffID {
		return 0, BadCursor(cursor)
	}
	if seq, err = strconv.Atoi(parts[2]); err != nil || seq < 0 {
		return 0, BadCursor(cursor)
	}
	return seq, tx.s.checkEpoch(parts[1])
}

// Events reads the log after cursor in commit order, at most limit events, and returns the
// cursor to go on with. No event that is committed by the time a later page is read is ever
// skipped, whatever the order in which transactions commit: where some may be gone, the cursor is
// refused with [handoff.CodeCursorExpired]. [Beginning] begins with what is still there.
func (tx *Tx) Events(cursor string, limit int) ([]handoff.Event, string, error) {
	at, err := tx.s.parseCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	tx.e.expect(horizonQuery, nil)
	var list []handoff.Event
	err = tx.each("SELECT "+eventColumns+" FROM events WHERE "+tx.d.eventsAfter()+" LIMIT $3",
		[]any{at.xact, at.id, limit}, func(r rows) error {
			e, err := tx.scanEvent(r)
			list = append(list, e)
			return err
		})
	if err != nil {
		return nil, "", err
	}
	// Asked behind the events: what was removed in between is refused rather than missed.
	gone, err := tx.horizon()
	if err != nil {
		return nil, "", err
	}
	if cursor != Beginning && at.before(gone) && at.removals != gone.removals {
		return nil, "", CursorGone()
	}
	for i := range list {
		if _, p, _ := splitCursor(list[i].Cursor); p.before(gone) {
			list[i].Cursor += removalsMark(gone)
		}
		cursor = list[i].Cursor
	}
	return list, cursor, nil
}

// CursorNow is the cursor behind everything that readers may see: what follows it comes from now on.
func (tx *Tx) CursorNow() (string, error) {
	var xact, id int64
	err := tx.row(tx.d.positionNow()).scan(&xact, &id)
	return tx.cursorAt(xact, id), err
}

func (tx *Tx) cursorAt(xact, id int64) string { return fmt.Sprintf("%s.%d.%d", tx.s.epoch, xact, id) }

// Unsettled reports whether something behind the cursor was committed that [Tx.Events] does not show
// yet. Ask at the end of what it shows.
func (tx *Tx) Unsettled(cursor string) (bool, error) {
	query := tx.d.eventsHidden()
	if query == "" {
		return false, nil
	}
	at, err := tx.s.parseCursor(cursor)
	if err != nil {
		return false, err
	}
	var one int
	err = tx.row(query, at.xact, at.id).scan(&one)
	if IsNoRows(err) {
		return false, nil
	}
	return err == nil, err
}

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
