// Package store holds the SQL: one implementation for SQLite and PostgreSQL, the embedded
// migrations, and the two ways in which a transaction is committed (group commit on SQLite,
// one flush with COMMIT on PostgreSQL).
//
// Only package hub opens transactions, through [Store.Write] and [Store.Read]. The queries of
// one table stand together in one file, its column list beside its scan function.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/telemetry"
)

// Config says which database to open. Exactly one of Path and URL is set.
type Config struct {
	// Path is the SQLite database file; it is created with mode 0600.
	Path string
	// URL is a postgres:// address.
	URL string
	// Clock gives the time of a transaction. Nil means the machine's clock on SQLite and the
	// database's on PostgreSQL; tests bring their own.
	Clock func() time.Time
	// Log receives faults of the database. Nil discards them.
	Log *slog.Logger
	// Metrics counts batches and faults. Nil counts nowhere.
	Metrics *telemetry.Metrics
	// VFS names a registered SQLite VFS; tests inject disk faults with one.
	VFS string
	// MaxConns bounds the PostgreSQL connections of this process; 0 means 16.
	MaxConns int
	// Lanes bounds the transactions that calls of [Store.WriteTogether] share on PostgreSQL at a time; 0
	// means 4, a negative number that they share none.
	Lanes int
	// Program is the version of this program; a backup names it.
	Program string
	// Pause, if set, is called at the points of every write, which goes on when it returns. Tests
	// order transactions with it.
	Pause func(Point)

	schema int64 // tests stop at an older one; 0 means SchemaVersion
}

// Point is a moment of a write.
type Point int

// The points: before it is queued or begun, before it is committed, and when it is over either way.
const (
	Begins Point = iota
	Commits
	Ends
)

func (s *Store) pause(at Point) {
	if s.cfg.Pause != nil {
		s.cfg.Pause(at)
	}
}

func (c *Config) schemaVersion() int64 {
	if c.schema != 0 {
		return c.schema
	}
	return SchemaVersion
}

// Store is an open database.
type Store struct {
	cfg   Config
	log   *slog.Logger
	d     dialect
	epoch string // of event cursors; see events.go

	closing sync.Once
	closed  chan struct{}
	backing chan struct{} // holds one token: who has it makes a backup

	// SQLite
	group   *committer
	readers chan *sqliteConn
	journal journal
	wdb     *sql.DB
	rdb     *sql.DB
	// logInUse: the last checkpoint that was asked for could not empty the log.
	logInUse atomic.Bool
	// PostgreSQL
	db    *sql.DB
	out   *outgoing
	joint *together
}

const (
	// writeDeadline ends a write that the database does not get on with. The caller's own
	// context never reaches the driver: cancelling one call must not undo another's.
	writeDeadline = 10 * time.Second
	readDeadline  = 10 * time.Second
	// maxRetries bounds how often a PostgreSQL transaction is run again after a conflict.
	maxRetries = 10
)

// Open opens the database, creates or migrates its schema, and refuses one that a newer
// program has written. Errors are sentences for an operator.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, log: cfg.Log, closed: make(chan struct{}), backing: make(chan struct{}, 1)}
	s.backing <- struct{}{}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.cfg.Metrics == nil {
		s.cfg.Metrics = telemetry.New()
	}
	var err error
	switch {
	case (cfg.Path == "") == (cfg.URL == ""):
		return nil, errors.New("open database: name either a SQLite file or a PostgreSQL URL")
	case cfg.URL != "":
		s.d = postgres{}
		err = s.openPostgres(ctx)
	default:
		s.d = sqlite{}
		err = s.openSQLite(ctx)
	}
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	if err := s.loadEpoch(ctx); err != nil {
		_ = s.Close()
		if cfg.Path != "" && s.d.classify(err) == faultCorrupt {
			return nil, s.explainOpen(err)
		}
		return nil, fmt.Errorf("read the database's settings: %w", err)
	}
	if cfg.Path != "" {
		s.noteJournal()
	}
	return s, nil
}

// Close ends the writer after the writes that were taken, breaks off a backup, waits for the reads
// under way, and closes every connection. Whoever comes later is told that the hub is shutting down.
func (s *Store) Close() error {
	var errs []error
	s.closing.Do(func() {
		close(s.closed)
		<-s.backing
		s.Flush()
		if s.group != nil {
			s.group.stop()
		}
		if s.readers != nil {
			s.closeReaders()
		}
		for _, db := range []*sql.DB{s.rdb, s.wdb, s.db} {
			if db != nil {
				errs = append(errs, db.Close())
			}
		}
		s.dropOrphanedLog()
	})
	return errors.Join(errs...)
}

// isClosed reports whether Close was called.
func (s *Store) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// Kind is "sqlite" or "postgres".
func (s *Store) Kind() string { return s.d.name() }

// Shared reports whether other nodes may use the same database.
func (s *Store) Shared() bool { return s.db != nil }

// Write runs fn in one read-write transaction and commits it. Everything that fn wrote is
// there afterwards, durably, or nothing is: an error of fn rolls its own work back and comes
// back as it is. fn may run more than once (PostgreSQL conflicts) and does SQL only; it must
// not keep tx or change anything outside before Write has returned nil.
//
// A fault of the database is [handoff.CodeUnavailable]; its message says when the outcome of
// the commit is unknown.
func (s *Store) Write(ctx context.Context, fn func(*Tx) error) error {
	if err := s.mayWrite(ctx); err != nil {
		return err
	}
	s.pause(Begins)
	defer s.pause(Ends)
	var err error
	if s.group != nil {
		err = s.group.do(ctx, fn)
	} else {
		err = s.writePostgres(ctx, fn)
	}
	return s.translate(err)
}

func (s *Store) mayWrite(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return handoff.Unavailable("the call was cancelled before anything was written", err)
	}
	if s.isClosed() {
		return errClosed
	}
	return nil
}

// Read runs fn on one consistent snapshot. It never writes.
func (s *Store) Read(ctx context.Context, fn func(*Tx) error) error {
	return s.read(ctx, beginRead, fn)
}

// Glance is Read without the one snapshot: on PostgreSQL each question sees what is committed when it
// is asked, and those that were announced are asked at once, in one round trip instead of two. It is for
// an answer that only has to be true of one moment of the row it is about.
func (s *Store) Glance(ctx context.Context, fn func(*Tx) error) error {
	return s.read(ctx, beginNothing, fn)
}

func (s *Store) read(ctx context.Context, begin string, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return handoff.Unavailable("the call was cancelled", err)
	}
	if s.isClosed() {
		return errClosed
	}
	var err error
	if s.readers != nil {
		err = s.readSQLite(ctx, fn)
	} else {
		err = s.readPostgres(ctx, begin, fn)
	}
	return s.translate(err)
}

// Checkpoint moves what was committed out of the write-ahead log, so that nothing older is left in
// a file. PostgreSQL does so by itself.
func (s *Store) Checkpoint(ctx context.Context) error {
	if s.readers == nil {
		return nil
	}
	return s.checkpointSQLite(ctx)
}

// Ping reports whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	return s.Read(ctx, func(tx *Tx) error {
		var one int
		return tx.row(`SELECT 1`).scan(&one)
	})
}

// translate turns a fault of the database into what a caller may see. Refusals pass as they
// are; the fault itself goes to the log once, here.
func (s *Store) translate(err error) error {
	if err == nil {
		return nil
	}
	if !isFault(err) {
		return err
	}
	kind := s.d.classify(err)
	s.cfg.Metrics.DatabaseErrors.WithLabelValues(string(kind)).Inc()
	s.log.Error("database fault", "kind", string(kind), "error", err)
	var refusal *handoff.Error
	if errors.As(err, &refusal) {
		return refusal
	}
	return s.lost("nothing was written", err)
}

// lost words a fault of the database for a caller; outcome says what became of the call.
func (s *Store) lost(outcome string, err error) *handoff.Error {
	if s.d.classify(err) == faultFull {
		return handoff.Unavailable("the hub cannot store anything just now, its disk is full; "+outcome, databaseError{err})
	}
	return handoff.Unavailable("the hub's database failed; "+outcome, databaseError{err})
}

// fault is what went wrong in a database, as far as it changes what happens next.
type fault string

const (
	faultOther    fault = "other"
	faultUnique   fault = "unique"   // a unique constraint was hit
	faultConflict fault = "conflict" // run it again with fresh reads
	faultFull     fault = "full"
	faultGone     fault = "gone" // no connection, or it broke
	faultCorrupt  fault = "corrupt"
	faultReadOnly fault = "read_only"
	faultBusy     fault = "busy"
)

// databaseError marks an error as the database's own, in contrast to a fault of our code.
type databaseError struct{ err error }

func (e databaseError) Error() string { return e.err.Error() }
func (e databaseError) Unwrap() error { return e.err }

func isFault(err error) bool {
	var d databaseError
	return errors.As(err, &d)
}
