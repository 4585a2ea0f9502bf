package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// Restore fills a new database from a backup that a store of either kind has made, and brings it to
// the schema of this program. The database must not hold a hub yet, and on SQLite the caller owns
// the folder. All of it is there afterwards, durably, or nothing is; a backup that is not whole is
// refused with [BadBackupError]. Event cursors from before are answered cursor_expired from then on.
// progress, if not nil, is told the number of rows so far.
func Restore(ctx context.Context, cfg Config, r io.Reader, progress func(rows int64)) (BackupInfo, error) {
	if (cfg.Path == "") == (cfg.URL == "") {
		return BackupInfo{}, errors.New("restore: name either a SQLite file or a PostgreSQL URL")
	}
	in, err := openBackup(r)
	if err != nil {
		return BackupInfo{}, err
	}
	into := &restoring{s: &Store{cfg: cfg, d: sqlite{}}, in: in, progress: progress}
	if into.progress == nil {
		into.progress = func(int64) {}
	}
	if cfg.URL != "" {
		into.s.d = postgres{}
		err = into.postgres(ctx)
	} else {
		err = into.sqlite(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return BackupInfo{}, errors.New("the restore was cancelled. Nothing was changed")
	}
	return in.info, err
}

// OccupiedError says that there is a hub already where a backup should go.
type OccupiedError struct{ Where, Instead string }

func (e OccupiedError) Error() string {
	return fmt.Sprintf("%s, and a backup is restored into a new database only. %s. Nothing was changed", e.Where, e.Instead)
}

type restoring struct {
	s        *Store
	in       *backupReader
	progress func(int64)
	n        int64 // rows so far
}

// sqlite fills a file beside the database's place and puts it there when it is whole.
func (r *restoring) sqlite(ctx context.Context) (err error) {
	path := r.s.cfg.Path
	for _, suffix := range []string{"", "-wal", "-journal"} { // a log that was left behind would be played into it
		if _, err := os.Lstat(path + suffix); !errors.Is(err, os.ErrNotExist) {
			return OccupiedError{"there is already a " + filepath.Base(path+suffix) + " in " + filepath.Dir(path), "Name another folder with --data, or move that file away"}
		}
	}
	r.s.cfg.Path = path + ".restoring" // a killed restore leaves it, and the next replaces it
	remove := func() {
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			_ = os.Remove(r.s.cfg.Path + suffix)
		}
	}
	remove()
	defer remove()
	if err := prepareFile(r.s.cfg.Path); err != nil {
		return err
	}
	// Nobody else sees the file before it is whole, so it needs no journal.
	db, err := sql.Open("sqlite3", r.s.dsn("_pragma=journal_mode(off)&_pragma=synchronous(off)"))
	if err != nil {
		return fmt.Errorf("open database %s: %w", r.s.cfg.Path, err)
	}
	db.SetMaxOpenConns(1)
	err = r.inTransaction(ctx, db, func(_ *sql.Conn, tx *sql.Tx) error { return r.fill(ctx, tx, insertInto(tx)) })
	if err := errors.Join(err, db.Close()); err != nil {
		return r.explain(err, r.s.explainOpen)
	}
	return putInPlace(r.s.cfg.Path, path)
}

// putInPlace renames a finished file so that it is there after a power cut as well.
func putInPlace(from, to string) error {
	for _, step := range []func() error{
		func() error { return syncPath(from) },
		func() error { return os.Rename(from, to) },
		func() error { return syncPath(filepath.Dir(to)) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("put the restored database in its place: %w", err)
		}
	}
	return nil
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// postgres fills an empty database in one transaction, its schema included.
func (r *restoring) postgres(ctx context.Context) error {
	cfg, err := r.s.postgresConfig()
	if err != nil {
		return err
	}
	db := openPool(cfg)
	defer func() { _ = db.Close() }()
	err = r.inTransaction(ctx, db, func(conn *sql.Conn, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, r.s.d.patientQuery()); err != nil {
			return err
		}
		if err := r.unoccupied(ctx, tx, cfg.Database); err != nil {
			return err
		}
		return r.fill(ctx, tx, copyInto(conn))
	})
	return r.explain(err, func(err error) error { return r.s.explainPostgres(cfg, err) })
}

// unoccupied refuses a database that holds a hub, or is just being given one.
func (r *restoring) unoccupied(ctx context.Context, tx *sql.Tx, name string) error {
	if err := alone(ctx, tx, name); err != nil {
		return err
	}
	var version sql.NullString
	if err := tx.QueryRowContext(ctx, `SELECT to_regclass('goose_db_version')::text`).Scan(&version); err != nil {
		return err
	}
	there, err := readCatalog(r.s.d, eachIn(ctx, tx))
	if err != nil {
		return err
	}
	if version.Valid || len(there) > 0 {
		return OccupiedError{"the database " + name + " holds the tables of a hub already", "Make another, such as createdb " + name + "2, and name it with --database-url"}
	}
	return nil
}

// afterCancelled is how long the server may take to notice that a restore was cut off, which then
// is not in the way of the next.
const afterCancelled = 3 * time.Second

// alone sees to it that no other restore fills the database at the same time.
func alone(ctx context.Context, tx *sql.Tx, name string) error {
	patience := time.After(afterCancelled)
	for {
		var mine bool
		if err := tx.QueryRowContext(ctx, `SELECT pg_try_advisory_xact_lock(hashtext('handclasp restore'))`).Scan(&mine); err != nil || mine {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		case <-patience:
			return OccupiedError{"another restore fills the database " + name, "Wait for it"}
		}
	}
}

// explain words a fault of the database; what says by itself what is wrong stays as it is.
func (r *restoring) explain(err error, database func(error) error) error {
	var bad BadBackupError
	var occupied OccupiedError
	var reading readError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &bad):
		return bad
	case errors.As(err, &occupied):
		return occupied
	case errors.As(err, &reading):
		return reading.err
	}
	switch r.s.d.classify(err) {
	case faultUnique, faultOther:
		return fmt.Errorf("the database does not take the backup: %w. Nothing was changed", err)
	}
	return database(err)
}

// readError is a fault of the file in contrast to one of the database.
type readError struct{ err error }

func (e readError) Error() string { return e.err.Error() }
func (e readError) Unwrap() error { return e.err }

func (r *restoring) inTransaction(ctx context.Context, db *sql.DB, fn func(*sql.Conn, *sql.Tx) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(conn, tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// load puts the rows that next gives, up to [io.EOF], into a table.
type load func(ctx context.Context, table string, columns []string, next func() ([]any, error)) error

// fill makes the schema that the backup has, loads its rows, and brings both up to date.
func (r *restoring) fill(ctx context.Context, tx *sql.Tx, load load) error {
	if err := raise(ctx, r.s.d, tx, 0, r.in.info.Schema); err != nil {
		return err
	}
	there, err := readCatalog(r.s.d, eachIn(ctx, tx))
	if err != nil {
		return err
	}
	for done := 0; ; done++ {
		name, columns, err := r.in.table()
		if errors.Is(err, io.EOF) {
			if done != len(there) {
				return damaged("it has %d tables, and schema %d has %d", done, r.in.info.Schema, len(there))
			}
			break
		}
		if err != nil {
			return readError{err}
		}
		i := slices.IndexFunc(there, func(t *table) bool { return t.name == name })
		if i < 0 || !slices.Equal(slices.Sorted(slices.Values(columns)), slices.Sorted(slices.Values(there[i].names()))) {
			return damaged("its table %s is not that of schema %d", name, r.in.info.Schema)
		}
		if err := r.table(ctx, there[i], columns, load); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
	}
	if err := r.settle(ctx, tx); err != nil {
		return err
	}
	return raise(ctx, r.s.d, tx, r.in.info.Schema, SchemaVersion)
}

func (r *restoring) table(ctx context.Context, t *table, columns []string, load load) error {
	numbers := make([]bool, len(columns))
	for i, name := range columns {
		numbers[i] = t.columns[slices.IndexFunc(t.columns, func(c column) bool { return c.name == name })].number
	}
	into := columns
	if t.name == xactTable {
		into = append(slices.Clone(columns), xactColumn)
	}
	return load(ctx, t.name, into, func() ([]any, error) {
		row, err := r.in.row()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				err = readError{err}
			}
			return nil, err
		}
		for i, v := range row {
			if _, number := v.(int64); number != numbers[i] {
				return nil, damaged("%s.%s holds what is not of its type", t.name, columns[i])
			}
		}
		if t.name == xactTable {
			row = append(row, int64(0))
		}
		r.n++
		r.progress(r.n)
		return row, nil
	})
}

// settle gives the log a new epoch, so that cursors from before are recognised, and lets events
// count on.
func (r *restoring) settle(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`, epochSetting, newEpoch()); err != nil {
		return err
	}
	if query := r.s.d.identityQuery(); query != "" {
		_, err := tx.ExecContext(ctx, query)
		return err
	}
	return nil
}

// eachIn is [Tx.each] for a transaction outside a store.
func eachIn(ctx context.Context, tx *sql.Tx) func(query string, args []any, scan func(rows) error) error {
	return func(query string, args []any, scan func(rows) error) error {
		r, err := tx.QueryContext(ctx, query, args...) //nolint:rowserrcheck // readAll does
		if err != nil {
			return err
		}
		return readAll(r, scan)
	}
}

// insertInto loads row by row, which costs SQLite nothing.
func insertInto(tx *sql.Tx) load {
	return func(ctx context.Context, table string, columns []string, next func() ([]any, error)) error {
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(columns)), ", ")
		st, err := tx.PrepareContext(ctx, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES ("+marks+")")
		if err != nil {
			return err
		}
		defer func() { _ = st.Close() }()
		for {
			row, err := next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if _, err := st.ExecContext(ctx, row...); err != nil {
				return err
			}
		}
	}
}

// copyInto loads with COPY; a statement for each row would be a round trip for each.
func copyInto(conn *sql.Conn) load {
	return func(ctx context.Context, table string, columns []string, next func() ([]any, error)) error {
		return conn.Raw(func(dc any) error {
			var broken error
			_, err := dc.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromFunc(func() ([]any, error) {
				row, err := next()
				if errors.Is(err, io.EOF) {
					return nil, nil // how pgx is told the end
				}
				broken = err
				return row, err
			}))
			return errors.Join(broken, err) // the server only knows that the client gave up
		})
	}
}
