package store

import (
	"fmt"
	"strconv"
	"time"

	"handclasp/internal/handoff"
)

// What is kept for a time only is looked for in reads, page by page, and removed in transactions that
// look again: two nodes that are at it remove each row once.

// Erasable names handoffs that ended at a time or before and still have their texts, the earliest first,
// at most limit.
func (tx *Tx) Erasable(before time.Time, limit int) ([]string, error) {
	return tx.ids(`SELECT id FROM handoffs`+tx.d.by("handoffs_to_erase")+
		` WHERE ended_at > 0 AND erased_at = 0 AND ended_at <= $1 ORDER BY ended_at, id LIMIT $2`, micros(before), limit)
}

// DeliveryPlace is where a walk over final deliveries stands; the zero value is before the first.
type DeliveryPlace struct {
	updatedAt int64
	id        string
}

// oldDelivery: it is final, and not the notification by which a handoff of the desk is known.
const oldDelivery = `state IN ('sent', 'refused', 'dead') AND kind <> 'handoff'`

// OldDeliveries looks at most limit final deliveries through that changed last at a time or before, and names
// those whose handoff has ended. Replies are named by a time of their own. next goes on; more tells
// that there may be others.
func (tx *Tx) OldDeliveries(before, replies time.Time, after DeliveryPlace, limit int) (ids []string, next DeliveryPlace, more bool, err error) {
	next, seen := after, 0
	err = tx.each(`SELECT d.updated_at, d.id, CASE WHEN d.kind = 'reply' AND d.updated_at > $2 THEN 0
		ELSE (SELECT count(*) FROM handoffs h WHERE h.id = d.handoff_id AND h.ended_at > 0) END
		FROM deliveries d`+tx.d.by("deliveries_final")+` WHERE `+oldDelivery+` AND d.updated_at <= $1 AND (d.updated_at, d.id) > ($3, $4)
		ORDER BY d.updated_at, d.id LIMIT $5`,
		[]any{micros(before), micros(replies), after.updatedAt, after.id, limit}, func(r rows) error {
			var gone int
			if err := r.Scan(&next.updatedAt, &next.id, &gone); err != nil {
				return err
			}
			if seen++; gone > 0 {
				ids = append(ids, next.id)
			}
			return nil
		})
	return ids, next, seen == limit, err
}

// RemoveDeliveries removes those of the named deliveries that are still there and final, and that nobody
// else is removing, and says how many.
func (tx *Tx) RemoveDeliveries(ids []string) (int, error) {
	in, args := placeholders(ids, 1)
	there, err := tx.ids(`SELECT h.id FROM deliveries h WHERE h.id IN (`+in+`) AND `+oldDelivery+` ORDER BY h.id`+tx.d.skipLocked(), args...)
	if err != nil || len(there) == 0 {
		return 0, err
	}
	in, args = placeholders(there, 1)
	return len(there), tx.exec(`DELETE FROM deliveries WHERE id IN (`+in+`)`, args...)
}

// EventPlace is where a walk over the log stands; the zero value is before the first event.
type EventPlace struct{ place }

// OldEvents looks at most limit events through, in the order of the log, and names those from a time or before
// that belong to no handoff, or to one that had ended by then and of which nothing waits to be sent.
// next goes on; more tells that there may be others.
func (tx *Tx) OldEvents(before time.Time, after EventPlace, limit int) (ids []int64, next EventPlace, more bool, err error) {
	next = after
	seen, old := 0, false
	at := micros(before)
	err = tx.each(`SELECT xact, id, at, CASE handoff_id WHEN '' THEN 1 ELSE (SELECT count(*) FROM handoffs h
			WHERE h.id = events.handoff_id AND h.ended_at > 0 AND h.ended_at <= $4
			AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.handoff_id = h.id AND d.state IN ('queued', 'sending'))) END
		FROM events WHERE `+tx.d.eventsAfter()+` LIMIT $3`,
		[]any{after.xact, after.id, limit, at}, func(r rows) error {
			var when int64
			var gone int
			if err := r.Scan(&next.xact, &next.id, &when, &gone); err != nil {
				return err
			}
			seen++
			if when <= at {
				if old = true; gone > 0 {
					ids = append(ids, next.id)
				}
			}
			return nil
		})
	return ids, next, seen == limit && old, err
}

// RemoveEvents removes those of the named events that are still there, and says how many. Readers that
// stand before the last of them are refused from then on. The newest event stays: SQLite counts on from it.
func (tx *Tx) RemoveEvents(ids []int64) (int, error) {
	if err := tx.exec(`INSERT INTO settings (name, value) VALUES ('` + horizonSetting + `', '') ON CONFLICT (name) DO NOTHING`); err != nil {
		return 0, err
	}
	gone, err := tx.readHorizon(horizonQuery + tx.d.forUpdate())
	if err != nil {
		return 0, err
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	var there []any
	err = tx.each(`SELECT xact, id FROM events WHERE id IN (`+params(1, len(args))+`) AND id < (SELECT max(id) FROM events)`, args, func(r rows) error {
		var p place
		if err := r.Scan(&p.xact, &p.id); err != nil {
			return err
		}
		if there = append(there, p.id); gone.before(p) {
			gone.xact, gone.id = p.xact, p.id
		}
		return nil
	})
	if err != nil || len(there) == 0 {
		return 0, err
	}
	gone.removals++
	if err := tx.exec(`DELETE FROM events WHERE id IN (`+params(1, len(there))+`)`, there...); err != nil || keepHorizon {
		return len(there), err
	}
	return len(there), tx.exec(`UPDATE settings SET value = $1 WHERE name = '`+horizonSetting+`'`, tx.cursorAt(gone.xact, gone.id)+removalsMark(gone))
}

// The horizon is the position of the last event that was removed, and how many times some were: a
// cursor of this database's epoch. One of another epoch, in a database that was restored, counts for nothing:
// no reader has a cursor from before.
const (
	horizonSetting = "events_horizon"
	horizonQuery   = `SELECT value FROM settings WHERE name = '` + horizonSetting + `'`
)

// horizon is the zero value where nothing was removed.
func (tx *Tx) horizon() (place, error) { return tx.readHorizon(horizonQuery) }

func (tx *Tx) readHorizon(query string) (place, error) {
	value := ""
	if err := tx.row(query).scan(&value); err != nil && !IsNoRows(err) {
		return place{}, err
	}
	if value == "" {
		return place{}, nil
	}
	epoch, p, ok := splitCursor(value)
	switch {
	case !ok:
		return place{}, fmt.Errorf("the setting %s holds %s, which is no position", horizonSetting, handoff.Quote(value))
	case epoch != tx.s.epoch:
		return place{}, nil
	}
	return p, nil
}

func removalsMark(p place) string { return ".r" + strconv.FormatInt(p.removals, 10) }
