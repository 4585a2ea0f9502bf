package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"handclasp/internal/handoff"
)

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

const (
	beginWrite   = "BEGIN"
	beginRead    = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	beginNothing = ""
)

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

func (s *Store) readPostgres(ctx context.Context, begin string, fn func(*Tx) error) error {
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), readDeadline)
	defer cancel()
	if sooner, ok := ctx.Deadline(); ok { // a check of readiness does not wait ten seconds
		var end context.CancelFunc
		run, end = context.WithDeadline(run, sooner)
		defer end()
	}
	for try := 0; ; try++ {
		_, err := s.attempt(ctx, run, begin, fn)
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
