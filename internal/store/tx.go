package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"handclasp/internal/handoff"
)

// Tx is one transaction. It is used by one goroutine and only while the function that
// received it runs. Its time is fixed when it begins.
type Tx struct {
	ctx context.Context
	now time.Time
	// floor is the latest time at which a row was changed that tx has locked.
	floor time.Time
	d     dialect
	e     engine
	s     *Store
	// joint: others may share the transaction. wrote counts what was written.
	joint bool
	wrote int
	// broken is the first fault that the database reported in this transaction.
	broken error
}

// MayWait reports whether tx may wait for a row that another transaction has locked.
func (tx *Tx) MayWait() bool { return !tx.joint }

// fault notes that the database failed. From then on the transaction runs nothing more and
// cannot commit, even if its function goes on as if nothing had happened: SQLite may have
// rolled everything back and would run what follows on its own, and PostgreSQL's queue is
// gone.
func (tx *Tx) fault(err error) error {
	if tx.broken == nil {
		tx.broken = databaseError{err}
	}
	return tx.broken
}

// engine is what the two databases do differently inside a transaction.
type engine interface {
	// exec runs a write that returns nothing. PostgreSQL queues it until the next read or
	// the commit, so an error of its may come from there.
	exec(ctx context.Context, query string, args []any) error
	// execOne is exec for a guarded write that must change exactly one row.
	execOne(ctx context.Context, query string, args []any) error
	query(ctx context.Context, query string, args []any) (rows, error)
	// expect announces a query that will likely come, in the order in which they will. On PostgreSQL
	// they travel with the next one, and their rows are there when they are asked for. What was read
	// ahead is forgotten when something is written or something else is asked.
	expect(query string, args []any)
	// begun returns the time of the transaction, beginning it if need be.
	begun(ctx context.Context) (time.Time, error)
	// retime lets the clock be asked anew.
	retime()
}

// rows is what database/sql and pgx have in common.
type rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// Now is the time of the transaction, to the microsecond, in UTC: the database's clock on
// PostgreSQL. It is never before the last change of a handoff that tx has locked, although it may have waited
// for that lock. The zero time means that the database could not be asked; the transaction then
// fails as a whole.
func (tx *Tx) Now() time.Time {
	if tx.now.IsZero() && tx.broken == nil {
		now, err := tx.e.begun(tx.ctx)
		if err != nil {
			_ = tx.fault(err)
			return time.Time{}
		}
		tx.now = tick(now)
	}
	if tx.now.Before(tx.floor) {
		tx.now = tx.floor
	}
	return tx.now
}

// retime gives what follows a time of its own.
func (tx *Tx) retime() {
	tx.now = time.Time{}
	tx.e.retime()
}

// notBefore keeps time from running backwards along one row.
func (tx *Tx) notBefore(changed time.Time) {
	if changed.After(tx.floor) {
		tx.floor = changed
	}
}

func tick(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func (tx *Tx) exec(query string, args ...any) error {
	if tx.broken != nil {
		return tx.broken
	}
	tx.wrote++
	if err := tx.e.exec(tx.ctx, query, args); err != nil {
		return tx.fault(err)
	}
	return nil
}

func (tx *Tx) execOne(query string, args ...any) error {
	if tx.broken != nil {
		return tx.broken
	}
	tx.wrote++
	if err := tx.e.execOne(tx.ctx, query, args); err != nil {
		return tx.fault(err)
	}
	return nil
}

// each runs query and calls scan for every row.
func (tx *Tx) each(query string, args []any, scan func(rows) error) error {
	if tx.broken != nil {
		return tx.broken
	}
	r, err := tx.e.query(tx.ctx, query, args)
	if err != nil {
		return tx.fault(err)
	}
	if err := readAll(r, scan); err != nil {
		return tx.fault(err)
	}
	return nil
}

// readAll reads r to its end and closes it, also when scan panics: open rows would keep the
// connection busy for whoever comes next.
func readAll(r rows, scan func(rows) error) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	for r.Next() {
		if err := scan(r); err != nil {
			return err
		}
	}
	return r.Err()
}

// one is a query for a single row.
type one struct {
	tx    *Tx
	query string
	args  []any
}

func (tx *Tx) row(query string, args ...any) one { return one{tx, query, args} }

// scan reads the row; [sql.ErrNoRows] when there is none.
func (o one) scan(dest ...any) error {
	found := false
	err := o.tx.each(o.query, o.args, func(r rows) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dest...)
	})
	if err != nil {
		return err
	}
	if !found {
		return sql.ErrNoRows
	}
	return nil
}

// Times are microseconds since 1970 in the database, 0 for none.

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// jsonText renders v for a JSON column; nothing is the empty text. Raw JSON inside v keeps its
// literals as they came, so that what is read back compares equal to what was sent.
func jsonText(v any) string {
	switch v := v.(type) {
	case json.RawMessage:
		return string(v)
	case []string:
		if len(v) == 0 {
			return ""
		}
	case []handoff.Artifact:
		if len(v) == 0 {
			return ""
		}
	}
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	text := ""
	if enc.Encode(v) == nil {
		text = strings.TrimSuffix(b.String(), "\n")
	}
	if text == "null" {
		return ""
	}
	return text
}

// jsonValue reads a JSON column into dest; an empty one leaves dest alone.
func jsonValue(column, text string, dest any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), dest); err != nil {
		return fmt.Errorf("column %s holds broken JSON: %w", column, err)
	}
	return nil
}

// storable reports whether a text can stand in a row at all: PostgreSQL fails the whole transaction
// that merely asks for another.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// notFound turns the absence of a row into the answer for what does not exist.
func notFound(err error, noun, id string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return handoff.NotFound(noun, id)
	}
	return err
}
