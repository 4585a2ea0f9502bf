package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"

	"handclasp/internal/handoff"
)

// sqliteReaders is how many snapshots may be read at once. Two cores gain nothing from more.
const sqliteReaders = 4

func (s *Store) openSQLite(ctx context.Context) error {
	if err := prepareFile(s.cfg.Path); err != nil {
		return err
	}
	wdb, err := sql.Open("sqlite3", s.dsn("_pragma=query_only(off)"))
	if err != nil {
		return fmt.Errorf("open database %s: %w", s.cfg.Path, err)
	}
	wdb.SetMaxOpenConns(1)
	if err := migrateTo(ctx, s.d, wdb, s.cfg.schemaVersion()); err != nil {
		_ = wdb.Close()
		return s.explainOpen(err)
	}
	s.wdb = wdb
	s.rdb, err = sql.Open("sqlite3", s.dsn("_pragma=query_only(on)"))
	if err != nil {
		return fmt.Errorf("open database %s for reading: %w", s.cfg.Path, err)
	}
	s.rdb.SetMaxOpenConns(sqliteReaders)
	s.readers = make(chan *sqliteConn, sqliteReaders)
	for range sqliteReaders {
		s.readers <- &sqliteConn{} // opened at first use
	}
	s.group = newCommitter(s, func(ctx context.Context) (*sqliteConn, error) { return openConn(ctx, wdb) })
	return nil
}

// journal is the database and its write-ahead log as files, so that a log whose database was put
// aside is known as such.
type journal struct{ database, log os.FileInfo }

func (s *Store) noteJournal() {
	s.journal.database, _ = os.Stat(s.cfg.Path) // it was just opened; without it nothing is dropped
	s.journal.log, _ = os.Stat(s.cfg.Path + "-wal")
}

// dropOrphanedLog removes a log of ours that lies beside another database now: SQLite would play
// it into that one, whatever it holds.
func (s *Store) dropOrphanedLog() {
	if s.journal.database == nil || s.journal.log == nil || sameFile(s.cfg.Path, s.journal.database) || !sameFile(s.cfg.Path+"-wal", s.journal.log) {
		return
	}
	for _, tail := range []string{"-wal", "-shm"} {
		_ = os.Remove(s.cfg.Path + tail) // whoever opens the other database says what is wrong
	}
}

func sameFile(path string, as os.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, as)
}

// speed: savepoints keep the pages they may have to restore in memory instead of a file, the
// writer's cache holds the inner pages of a few million rows, and a checkpoint, which a commit
// has to wait for, comes every 16 MiB of log instead of every four. Durability is untouched.
const speed = "_pragma=temp_store(memory)&_pragma=cache_size(-8000)&_pragma=wal_autocheckpoint(4000)"

// dsn puts busy_timeout first: switching to WAL may itself have to wait. secure_delete overwrites
// what is removed, so that erased text does not linger in free pages; its cheaper setting "fast"
// leaves those alone that long texts fill. modeof gives the WAL,
// which holds the same as the database, its mode.
func (s *Store) dsn(extra string) string {
	escape := func(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") } // SQLite keeps a plus
	q := fmt.Sprintf("_pragma=busy_timeout(%d)&", busyTimeout.Milliseconds()) + "_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(on)&_pragma=secure_delete(on)&" + speed + "&" + extra +
		"&vfs=" + escape(diskVFS(s.cfg.VFS)) + "&modeof=" + escape(s.cfg.Path)
	return (&url.URL{Scheme: "file", OmitHost: true, Path: s.cfg.Path, RawQuery: q}).String()
}

// prepareFile makes the folder and the file with owner-only modes, and says plainly when it
// cannot.
func prepareFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("the data folder %s cannot be made: %w. Choose another with --data, or give yourself the right to write there", filepath.Dir(path), err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("the database %s cannot be opened for writing: %w. Choose another folder with --data, or give yourself the right to write there", path, err)
	}
	return f.Close()
}

func (s *Store) explainOpen(err error) error {
	fault := s.d.classify(err)
	if errors.Is(err, sqlite3.IOERR_SHMSIZE) { // no room for the log's index; the system's reason is lost
		fault = faultFull
	}
	switch fault {
	case faultCorrupt:
		return fmt.Errorf("%s is damaged or is not a Handclasp database (%w). Nothing was changed. Restore a backup, or move the file away to begin anew: handclasp doctor says how", s.cfg.Path, err)
	case faultReadOnly:
		return fmt.Errorf("%s or its folder cannot be written (%w). Choose another folder with --data, or give yourself the right to write there", s.cfg.Path, err)
	case faultFull:
		return fmt.Errorf("the disk that holds %s is full (%w). Make room and start again; nothing was changed", s.cfg.Path, err)
	}
	return fmt.Errorf("open database %s: %w. Nothing was changed; handclasp doctor looks closer", s.cfg.Path, err)
}

// sqliteConn is one connection of database/sql, pinned, with its prepared statements. Statements
// run on the driver's own connection: database/sql around each of them costs as much as a small
// insert itself.
type sqliteConn struct {
	c     *sql.Conn
	raw   *sqlite3.Conn
	stmts map[string]*sqlite3.Stmt
}

func openConn(ctx context.Context, db *sql.DB) (*sqliteConn, error) {
	c, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	conn := &sqliteConn{c: c, stmts: map[string]*sqlite3.Stmt{}}
	if err := c.Raw(func(dc any) error {
		conn.raw = dc.(driver.Conn).Raw()
		return nil
	}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return conn, nil
}

// prepare gives the statement with its parameters bound, ready to run until ctx ends.
func (c *sqliteConn) prepare(ctx context.Context, query string, args []any) (*sqlite3.Stmt, error) {
	c.raw.SetInterrupt(ctx)
	st, ok := c.stmts[query]
	if !ok {
		var err error
		if st, _, err = c.raw.Prepare(sqliteSQL(query)); err != nil {
			return nil, err
		}
		c.stmts[query] = st
	}
	for i, arg := range args {
		var err error
		switch v := arg.(type) {
		case string:
			err = st.BindText(i+1, v)
		case int64:
			err = st.BindInt64(i+1, v)
		case int:
			err = st.BindInt(i+1, v)
		default:
			err = fmt.Errorf("parameter %d is a %T; the store binds texts and whole numbers", i+1, arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return st, nil
}

func (c *sqliteConn) exec(ctx context.Context, query string, args []any) error {
	st, err := c.prepare(ctx, query, args)
	if err != nil {
		return err
	}
	return st.Exec()
}

func (c *sqliteConn) execOne(ctx context.Context, query string, args []any) error {
	if err := c.exec(ctx, query, args); err != nil {
		return err
	}
	if c.raw.Changes() != 1 {
		return errNotOne
	}
	return nil
}

func (c *sqliteConn) query(ctx context.Context, query string, args []any) (rows, error) {
	st, err := c.prepare(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return sqliteRows{st}, nil
}

// sqliteRows are the rows of a running statement. No column of ours is ever NULL.
type sqliteRows struct{ st *sqlite3.Stmt }

func (r sqliteRows) Next() bool   { return r.st.Step() }
func (r sqliteRows) Err() error   { return r.st.Err() }
func (r sqliteRows) Close() error { return r.st.Reset() }

// Scan reads the columns of the row into texts and whole numbers, or types made of them.
func (r sqliteRows) Scan(dest ...any) error {
	if n := r.st.ColumnCount(); n != len(dest) {
		return fmt.Errorf("%d columns came for %d destinations", n, len(dest))
	}
	for i, d := range dest {
		switch d := d.(type) {
		case *string:
			*d = r.st.ColumnText(i)
		case *int64:
			*d = r.st.ColumnInt64(i)
		case *int:
			*d = r.st.ColumnInt(i)
		default:
			switch v := reflect.ValueOf(d).Elem(); v.Kind() {
			case reflect.String:
				v.SetString(r.st.ColumnText(i))
			case reflect.Int, reflect.Int64:
				v.SetInt(r.st.ColumnInt64(i))
			default:
				return fmt.Errorf("column %d is read into a %T; the store reads texts and whole numbers", i+1, d)
			}
		}
	}
	return nil
}

func (*sqliteConn) expect(string, []any) {} // a question costs no way

// retime does nothing: nobody shares a transaction whose time matters.
func (c *sqliteConn) retime() {}

func (c *sqliteConn) begun(context.Context) (time.Time, error) {
	return time.Time{}, errors.New("a SQLite transaction has its time from the start")
}

// control runs a transaction statement.
func (c *sqliteConn) control(ctx context.Context, query string) error { return c.exec(ctx, query, nil) }

func (c *sqliteConn) close() {
	for _, st := range c.stmts {
		_ = st.Close()
	}
	_ = c.c.Close()
}

// commitRefused reports whether a COMMIT that failed with err certainly did not happen: its
// last frame found no room, so it is not whole. After a failed fsync it may be on the disk all
// the same.
func commitRefused(err error) bool {
	return sqlite{}.classify(err) == faultFull && !errors.Is(err, sqlite3.IOERR_FSYNC) && !errors.Is(err, sqlite3.IOERR_DIR_FSYNC)
}

// drop closes the driver's connection, so that nothing of a broken transaction is reused.
func (c *sqliteConn) drop() {
	for _, st := range c.stmts {
		_ = st.Close()
	}
	_ = c.c.Raw(badConn)
	_ = c.c.Close()
}

func (s *Store) readSQLite(ctx context.Context, fn func(*Tx) error) error {
	return s.onReader(ctx, func(run context.Context, conn *sqliteConn) error { return s.snapshotOn(run, conn, fn) })
}

const (
	// busyTimeout is how long a statement waits for a lock.
	busyTimeout = 5 * time.Second
	// A checkpoint keeps writers out while it waits for readers, and a backup may read for long. So
	// it waits in short steps, with pauses for writers between them.
	checkpointStep     = 20 * time.Millisecond
	checkpointPause    = 60 * time.Millisecond
	checkpointPatience = 3 * time.Second
)

// checkpointSQLite waits for writers and readers, and leaves the log empty. If a backup reads for
// longer than it waits, the end of the backup makes up for it.
func (s *Store) checkpointSQLite(ctx context.Context) error {
	return s.onReader(ctx, func(run context.Context, conn *sqliteConn) (err error) {
		if err := conn.raw.BusyTimeout(checkpointStep); err != nil {
			return databaseError{err}
		}
		defer func() { err = errors.Join(err, conn.raw.BusyTimeout(busyTimeout)) }()
		patience := time.After(checkpointPatience)
		for {
			busy, err := conn.checkpoint(run)
			if err != nil {
				return databaseError{err}
			}
			if s.logInUse.Store(busy); !busy {
				return nil
			}
			select {
			case <-time.After(checkpointPause):
			case <-patience:
				return errors.New("the log is in use")
			case <-s.closed:
				return errClosed
			case <-ctx.Done():
				return handoff.Unavailable("the call was cancelled", ctx.Err())
			}
		}
	})
}

// checkpoint empties the log, unless somebody uses it.
func (c *sqliteConn) checkpoint(ctx context.Context) (busy bool, err error) {
	st, err := c.prepare(ctx, "PRAGMA wal_checkpoint(TRUNCATE)", nil)
	if err != nil {
		return false, err
	}
	busy = st.Step() && st.ColumnBool(0)
	return busy, st.Reset()
}

// onReader runs fn on one of the reading connections, until readDeadline.
func (s *Store) onReader(ctx context.Context, fn func(context.Context, *sqliteConn) error) error {
	var conn *sqliteConn
	select {
	case conn = <-s.readers:
	case <-s.closed:
		return errClosed
	case <-ctx.Done():
		return handoff.Unavailable("the call was cancelled", ctx.Err())
	}
	defer func() { s.readers <- conn }()
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), readDeadline)
	defer cancel()
	if conn.c == nil {
		opened, err := openConn(run, s.rdb)
		if err != nil {
			return databaseError{err}
		}
		*conn = *opened
	}
	return fn(run, conn)
}

// snapshotOn runs fn in a read transaction on conn, which is forgotten if that cannot be ended.
func (s *Store) snapshotOn(ctx context.Context, conn *sqliteConn, fn func(*Tx) error) error {
	if err := conn.control(ctx, "BEGIN"); err != nil {
		conn.forget()
		return databaseError{err}
	}
	err := call(fn, &Tx{ctx: ctx, now: s.clock(), d: s.d, e: conn, s: s})
	if end := conn.control(ctx, "ROLLBACK"); end != nil {
		conn.forget()
	}
	return err
}

// closeReaders waits for the reads under way and closes their connections; they would keep the
// files open otherwise, for the pool does not know them as idle.
func (s *Store) closeReaders() {
	for range sqliteReaders {
		if conn := <-s.readers; conn.c != nil {
			conn.close()
		}
	}
}

func (c *sqliteConn) forget() {
	c.drop()
	*c = sqliteConn{}
}
