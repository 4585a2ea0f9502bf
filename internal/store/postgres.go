package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"

	"handclasp/internal/handoff"
)

// On PostgreSQL the price of a transaction is its round trips. BEGIN and the clock travel
// with the first read, writes are queued and travel with the next read or with COMMIT; a verb
// that reads once costs two round trips, one that only writes costs one.
//
// Rows that a verb changes are read FOR UPDATE first, so a queued guarded write cannot miss.

func (s *Store) openPostgres(ctx context.Context) error {
	cfg, err := s.postgresConfig()
	if err != nil {
		return err
	}
	s.db = openPool(cfg)
	conns := s.cfg.MaxConns
	if conns <= 0 {
		conns = 16
	}
	s.db.SetMaxOpenConns(conns + 2) // two for telling other nodes, see notify.go
	s.out = newOutgoing()
	s.joint = &together{s: s, lanes: s.cfg.Lanes}
	if s.cfg.Lanes == 0 {
		s.joint.lanes = lanes
	}
	s.db.SetMaxIdleConns(conns)
	s.db.SetConnMaxLifetime(time.Hour)
	if err := migrateTo(ctx, s.d, s.db, s.cfg.schemaVersion()); err != nil {
		return s.explainPostgres(cfg, err)
	}
	return nil
}

func openPool(cfg *pgx.ConnConfig) *sql.DB { return stdlib.OpenDB(*cfg) }

func (s *Store) postgresConfig() (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(s.cfg.URL)
	if err != nil {
		return nil, errors.New("the database URL cannot be read; it looks like postgres://user:password@host:5432/name")
	}
	cfg.RuntimeParams["application_name"] = "handclasp"
	// A node that stalls inside a transaction must not hold back every reader of events.
	cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "10000"
	cfg.RuntimeParams["lock_timeout"] = "8000"
	// Every query is written for one plan, whatever is asked for, and reads few rows. To make a plan, to
	// compile one, or to start processes for one costs more than most take to run.
	cfg.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	cfg.RuntimeParams["jit"] = "off"
	cfg.RuntimeParams["max_parallel_workers_per_gather"] = "0"
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	return cfg, nil
}

// oneLineError shows an error without its line breaks: the driver lists each attempt on a line.
type oneLineError struct{ error }

func (e oneLineError) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLineError) Unwrap() error { return e.error }

// explainPostgres says what to do about a database that cannot be opened.
func (s *Store) explainPostgres(cfg *pgx.ConnConfig, err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		switch pgErr.Code {
		case "3D000":
			return fmt.Errorf("PostgreSQL at %s:%d has no database %s. Create it: createdb -h %s -p %d -U %s %s", cfg.Host, cfg.Port, cfg.Database, cfg.Host, cfg.Port, cfg.User, cfg.Database)
		case "28P01", "28000":
			return fmt.Errorf("PostgreSQL at %s:%d refuses the user %s (%s). Correct user and password in --database-url", cfg.Host, cfg.Port, cfg.User, pgErr.Message)
		}
	}
	if s.d.classify(err) == faultGone {
		return fmt.Errorf("PostgreSQL at %s:%d does not answer (%w). Start it, or correct --database-url", cfg.Host, cfg.Port, oneLineError{err})
	}
	return fmt.Errorf("open database %s on %s:%d: %w", cfg.Database, cfg.Host, cfg.Port, err)
}

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
	if !t.open {
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
	if !t.open {
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
	before, after := !t.open && t.begin != beginWrite, !t.open && t.begin == beginWrite
	results, err := t.send(ctx, false, func(b *pgx.Batch) {
		if before {
			b.Queue(clockQuery)
		}
		b.Queue(query, args...)
		for _, e := range next {
			b.Queue(e.query, e.args...)
		}
		if after {
			b.Queue(clockQuery)
		}
	})
	if err == nil && before {
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
	if len(next) == 0 && !after {
		return &pgRows{r, results}, nil
	}
	first, err := t.readRows(r)
	for i := 0; i < len(next) && err == nil; i++ {
		if r, err = results.Query(); err == nil {
			next[i].rows, err = t.readRows(r)
		}
	}
	if err == nil && after {
		err = results.QueryRow().Scan(&t.now)
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return nil, err
	}
	t.next = next
	return first, nil
}

func (t *pgTx) begun(ctx context.Context) (time.Time, error) {
	if t.clock != nil {
		return t.clock(), nil
	}
	if !t.open {
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

const beginWrite = "BEGIN"

// writePostgres runs fn until it commits, is refused, or fails for good.
func (s *Store) writePostgres(ctx context.Context, fn func(*Tx) error) error {
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeDeadline)
	defer cancel()
	for try := 0; ; try++ {
		unknown, err := s.attempt(ctx, run, beginWrite, fn)
		if err == nil {
			return nil
		}
		switch kind := s.d.classify(err); {
		case unknown:
			return unknownOutcome(err)
		case kind == faultConflict, kind == faultUnique:
			// A unique violation means that another call with the same key was faster: read
			// again, and find what it wrote.
		case kind == faultGone && try < 2:
			// The pool may hand out a connection that died since; nothing was written yet.
		default:
			return err
		}
		if try >= maxRetries || run.Err() != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				return err
			}
			return handoff.Unavailable("too many calls changed the same handoff at once; nothing was written", err)
		}
	}
}

func unknownOutcome(err error) error {
	return handoff.Unavailable("the database was lost while it committed; it is not known whether the call took effect", err)
}

func (s *Store) readPostgres(ctx context.Context, fn func(*Tx) error) error {
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), readDeadline)
	defer cancel()
	if sooner, ok := ctx.Deadline(); ok { // a check of readiness does not wait ten seconds
		var end context.CancelFunc
		run, end = context.WithDeadline(run, sooner)
		defer end()
	}
	for try := 0; ; try++ {
		_, err := s.attempt(ctx, run, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", fn)
		if err != nil && ctx.Err() != nil && isFault(err) { // by the caller's own deadline
			return handoff.Unavailable("the call was cancelled", ctx.Err())
		}
		if err == nil || s.d.classify(err) != faultGone || try >= 2 {
			return err
		}
	}
}

// poolWait is how long a call waits for a connection that other calls use.
const poolWait = 5 * time.Second

// connect takes a connection of the pool. Only here the caller's context counts: a client that
// left must not stand in the queue of those that did not. Afterwards the transaction runs to its
// end whoever waits for it.
func (s *Store) connect(ctx context.Context) (*sql.Conn, error) {
	wait, cancel := context.WithTimeout(ctx, poolWait)
	defer cancel()
	conn, err := s.db.Conn(wait)
	switch {
	case err == nil:
		return conn, nil
	case ctx.Err() != nil:
		return nil, handoff.Unavailable("the call was cancelled before anything was written", ctx.Err())
	case wait.Err() != nil && s.db.Stats().Idle == 0 && s.db.Stats().InUse > 0:
		return nil, handoff.Unavailable("more calls came than the hub's database connections can serve; nothing was written", nil)
	}
	if s.isClosed() {
		return nil, errClosed
	}
	return nil, databaseError{err}
}

// attempt runs one transaction on one connection: it waits for that as long as caller does, and
// then runs until ctx ends. unknown tells that it failed in a way that leaves open whether it was
// committed.
func (s *Store) attempt(caller, ctx context.Context, begin string, fn func(*Tx) error) (unknown bool, err error) {
	conn, err := s.connect(caller)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close() }()
	var pg *pgx.Conn
	if err := conn.Raw(func(dc any) error {
		pg = dc.(*stdlib.Conn).Conn()
		return nil
	}); err != nil {
		return false, databaseError{err}
	}
	t := &pgTx{conn: pg, begin: begin, clock: s.cfg.Clock}
	err = call(fn, &Tx{ctx: ctx, d: s.d, e: t, s: s})
	if err == nil {
		if begin == beginWrite {
			s.pause(Commits)
		}
		if err = t.commit(ctx); err == nil {
			return false, nil
		}
		unknown = !surelyRolledBack(err)
		err = databaseError{err}
	}
	if t.open {
		rollback, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if _, rbErr := pg.Exec(rollback, "ROLLBACK"); rbErr != nil {
			_ = conn.Raw(badConn)
		}
	}
	return unknown, err
}
