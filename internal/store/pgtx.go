package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// On PostgreSQL the price of a transaction is its round trips. BEGIN and the clock travel
// with the first read, writes are queued and travel with the next read or with COMMIT; a verb
// that reads once costs two round trips, one that only writes costs one.
//
// Rows that a verb changes are read FOR UPDATE first, so a queued guarded write cannot miss.

type pgTx struct {
	conn  *pgx.Conn
	clock func() time.Time
	begin string
	open  bool
	now   time.Time
	queue []queued
	next  []expected
}

// queued is a write that waits for the next way to the server; one must change exactly one row.
type queued struct {
	query string
	args  []any
	one   bool
}

// guarded makes the server itself refuse a guarded write that misses: it may travel together
// with COMMIT, and then it is too late to look at the number of rows.
func (q *queued) guarded() string {
	if !q.one {
		return q.query
	}
	return "WITH guarded AS (" + q.query + " RETURNING 1) SELECT 1 / (CASE WHEN count(*) = 1 THEN 1 ELSE 0 END) FROM guarded"
}

// expected is a query that was announced; rows are there once it was asked ahead.
type expected struct {
	query string
	args  []any
	rows  *readRows
}

func (t *pgTx) expect(query string, args []any) {
	if len(t.next) > 0 && t.next[0].rows != nil { // of a call before, in a shared transaction
		t.next = nil
	}
	t.next = append(t.next, expected{query: query, args: args})
}

func (t *pgTx) exec(_ context.Context, query string, args []any) error {
	return t.enqueue(queued{query, args, false})
}

func (t *pgTx) execOne(_ context.Context, query string, args []any) error {
	return t.enqueue(queued{query, args, true})
}

func (t *pgTx) enqueue(q queued) error {
	if t.begin != beginWrite {
		return errors.New("a read wants to write: " + q.query)
	}
	t.next = nil // what was read ahead may not be so any more
	t.queue = append(t.queue, q)
	return nil
}

// The clock of a read is asked before its snapshot is taken, that of a write after its first question
// was answered: it may have waited for the lock of a row, and what another did meanwhile, and the time
// that went by, belong together.
const clockQuery = "SELECT clock_timestamp()"

// send puts BEGIN in front of the queue when the transaction is not open yet, sends everything, and
// reads the answers up to the statements that the caller adds. last tells that the transaction ends with
// them.
func (t *pgTx) send(ctx context.Context, last bool, add func(*pgx.Batch)) (pgx.BatchResults, error) {
	batch := &pgx.Batch{}
	begins := !t.open && t.begin != beginNothing
	if begins {
		batch.Queue(t.begin)
	}
	for i := range t.queue {
		q := &t.queue[i]
		if last {
			batch.Queue(q.guarded(), q.args...)
			continue
		}
		batch.Queue(q.query, q.args...)
	}
	if add != nil {
		add(batch)
	}
	wrote := t.queue
	t.queue = nil
	results := t.conn.SendBatch(ctx, batch)
	if begins {
		if _, err := results.Exec(); err != nil {
			return nil, errors.Join(err, results.Close())
		}
		t.open = true
	}
	return results, check(results, wrote, last)
}

// check reads the answers of queued writes.
func check(results pgx.BatchResults, wrote []queued, last bool) error {
	for _, q := range wrote {
		tag, err := results.Exec()
		var pg *pgconn.PgError
		switch {
		case err == nil && (!q.one || last || tag.RowsAffected() == 1):
			continue
		case err == nil:
			err = errNotOne
		case q.one && errors.As(err, &pg) && pg.Code == "22012": // division by zero
			err = errors.Join(errNotOne, err)
		}
		return errors.Join(err, results.Close())
	}
	return nil
}

func (t *pgTx) query(ctx context.Context, query string, args []any) (rows, error) {
	next := t.next
	t.next = nil
	if len(next) > 0 && next[0].query == query && reflect.DeepEqual(next[0].args, args) {
		if next[0].rows != nil {
			t.next = next[1:]
			return next[0].rows, nil
		}
		next = next[1:] // it is asked itself
	}
	if len(next) > 0 && next[0].rows != nil {
		next = nil // something else is asked than was announced
	}
	clockFirst, clockLast := t.now.IsZero() && t.begin == beginRead, t.now.IsZero() && t.begin != beginRead
	results, err := t.send(ctx, false, func(b *pgx.Batch) {
		if clockFirst {
			b.Queue(clockQuery)
		}
		b.Queue(query, args...)
		for _, e := range next {
			b.Queue(e.query, e.args...)
		}
		if clockLast {
			b.Queue(clockQuery)
		}
	})
	if err == nil && clockFirst {
		if err = results.QueryRow().Scan(&t.now); err != nil {
			err = errors.Join(err, results.Close())
		}
	}
	if err != nil {
		return nil, err
	}
	r, err := results.Query()
	if err != nil {
		return nil, errors.Join(err, results.Close())
	}
	if len(next) == 0 && !clockLast {
		return &pgRows{r, results}, nil
	}
	first, err := t.readRows(r)
	for i := 0; i < len(next) && err == nil; i++ {
		if r, err = results.Query(); err == nil {
			next[i].rows, err = t.readRows(r)
		}
	}
	if err == nil && clockLast {
		err = results.QueryRow().Scan(&t.now)
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return nil, err
	}
	t.next = next
	return first, nil
}

func (t *pgTx) retime() { t.now = time.Time{} }

func (t *pgTx) begun(ctx context.Context) (time.Time, error) {
	if t.clock != nil {
		return t.clock(), nil
	}
	if t.now.IsZero() {
		results, err := t.send(ctx, false, func(b *pgx.Batch) { b.Queue(clockQuery) })
		if err != nil {
			return time.Time{}, err
		}
		if err := errors.Join(results.QueryRow().Scan(&t.now), results.Close()); err != nil {
			return time.Time{}, err
		}
	}
	return t.now, nil
}

// commit sends what is queued together with COMMIT. When nothing was read, the batch is one
// implicit transaction and needs neither BEGIN nor COMMIT.
func (t *pgTx) commit(ctx context.Context) error {
	if !t.open {
		if len(t.queue) == 0 {
			return nil
		}
		batch := &pgx.Batch{}
		for i := range t.queue {
			batch.Queue(t.queue[i].guarded(), t.queue[i].args...)
		}
		results := t.conn.SendBatch(ctx, batch)
		if err := check(results, t.queue, true); err != nil {
			return err
		}
		return results.Close()
	}
	results, err := t.send(ctx, true, func(b *pgx.Batch) { b.Queue("COMMIT") })
	if err != nil {
		return err
	}
	tag, err := results.Exec()
	if err := errors.Join(err, results.Close()); err != nil {
		return err
	}
	if tag.String() != "COMMIT" {
		return fmt.Errorf("%w: the transaction ended with %s", errRolledBack, tag)
	}
	t.open = false
	return nil
}

var errRolledBack = errors.New("rolled back instead of committed")

// surelyRolledBack reports whether a commit that failed with err certainly did not happen:
// nothing was sent, or the server refused it and lives on. FATAL and PANIC, and a connection
// that broke, leave that open.
func surelyRolledBack(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.SeverityUnlocalized == "ERROR"
	}
	return pgconn.SafeToRetry(err) || errors.Is(err, errRolledBack)
}

// readRows are rows that were read to their end already.
type readRows struct {
	types  *pgtype.Map
	fields []pgconn.FieldDescription
	values [][][]byte
	at     int
}

func (t *pgTx) readRows(r pgx.Rows) (*readRows, error) {
	defer r.Close()
	out := &readRows{types: t.conn.TypeMap(), fields: slices.Clone(r.FieldDescriptions())}
	for r.Next() {
		row := make([][]byte, len(out.fields))
		for i, value := range r.RawValues() {
			row[i] = bytes.Clone(value)
		}
		out.values = append(out.values, row)
	}
	return out, r.Err()
}

func (r *readRows) Next() bool {
	r.at++
	return r.at <= len(r.values)
}

func (r *readRows) Scan(dest ...any) error {
	return pgx.ScanRow(r.types, r.fields, r.values[r.at-1], dest...)
}

func (*readRows) Err() error   { return nil }
func (*readRows) Close() error { return nil }

// pgRows closes its batch with the rows.
type pgRows struct {
	pgx.Rows
	results pgx.BatchResults
}

func (r *pgRows) Close() error {
	r.Rows.Close()
	return errors.Join(r.Rows.Err(), r.results.Close())
}
