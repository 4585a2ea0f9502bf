package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// SchemaVersion is the newest migration that this program knows.
const SchemaVersion = 4

// NewerSchemaError says that a newer program has written the database.
type NewerSchemaError struct{ Found int64 }

func (e NewerSchemaError) Error() string {
	return fmt.Sprintf("the database has schema %d and this program knows schemas up to %d: it was written by a newer Handclasp. Start that version, or restore a backup made with this one. Nothing was changed", e.Found, SchemaVersion)
}

// migrateTo brings the schema up to a version, one node at a time on PostgreSQL.
func migrateTo(ctx context.Context, d dialect, db *sql.DB, version int64) error {
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if d.name() == "postgres" {
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // looks every second, not every five
		if err != nil {
			return err
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	options = append(options, goose.WithGoMigrations(goMigrations(d)...))
	provider, err := goose.NewProvider(gooseDialect(d), db, nil, options...)
	if err != nil {
		return err
	}
	found, err := provider.GetDBVersion(ctx)
	if err != nil {
		return err
	}
	if found > SchemaVersion {
		return NewerSchemaError{Found: found}
	}
	if found >= version {
		return nil
	}
	_, err = provider.UpTo(ctx, version)
	return err
}

func gooseDialect(d dialect) goose.Dialect {
	if d.name() == "postgres" {
		return goose.DialectPostgres
	}
	return goose.DialectSQLite3
}

// raise brings the schema from one version to another inside tx, and notes that where goose will
// look for it. From 0 the database has no table of ours yet. A restore needs it: goose commits
// after each step, and a database that is half restored must not be left behind.
func raise(ctx context.Context, d dialect, tx *sql.Tx, from, to int64) error {
	versions, err := database.NewStore(gooseDialect(d), goose.DefaultTablename)
	if err != nil {
		return err
	}
	if from == 0 {
		if err := versions.CreateVersionTable(ctx, tx); err != nil {
			return err
		}
		if err := versions.Insert(ctx, tx, database.InsertRequest{Version: 0}); err != nil { // goose's own beginning
			return err
		}
	}
	for version := from + 1; version <= to; version++ {
		if err := step(ctx, d, tx, version); err != nil {
			return err
		}
		if err := versions.Insert(ctx, tx, database.InsertRequest{Version: version}); err != nil {
			return err
		}
	}
	return nil
}

// goMigrations gives goose the embedded files; each becomes one transaction.
func goMigrations(d dialect) []*goose.Migration {
	var steps []*goose.Migration
	for version := int64(1); version <= SchemaVersion; version++ {
		steps = append(steps, goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
			return step(ctx, d, tx, version)
		}}, nil))
	}
	return steps
}

// step runs the statements of one migration.
func step(ctx context.Context, d dialect, tx *sql.Tx, version int64) error {
	files, err := fs.Glob(migrations, fmt.Sprintf("migrations/%04d_*", version))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := migrations.ReadFile(file)
		if err != nil {
			return err
		}
		for _, st := range split(d.ddl(string(text))) {
			if _, err := tx.ExecContext(ctx, st); err != nil {
				return fmt.Errorf("migration %d: %w", version, err)
			}
		}
	}
	return nil
}

var comment = regexp.MustCompile(`(?m)^\s*--.*$`)

// split cuts a migration into statements. Ours hold no semicolons but those that end them.
func split(text string) []string {
	var out []string
	for _, st := range strings.Split(comment.ReplaceAllString(text, ""), ";") {
		if st = strings.TrimSpace(st); st != "" {
			out = append(out, st)
		}
	}
	return out
}

// loadEpoch reads the cursor epoch of the database and makes one at first use. Restoring a
// backup sets a new one, so that cursors from before are recognised.
func (s *Store) loadEpoch(ctx context.Context) error {
	read := func(tx *Tx) error {
		return tx.row(`SELECT value FROM settings WHERE name = $1`, epochSetting).scan(&s.epoch)
	}
	err := s.Read(ctx, read)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	epoch := newEpoch()
	if err := s.Write(ctx, func(tx *Tx) error {
		return tx.exec(`INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, epochSetting, epoch)
	}); err != nil {
		return err
	}
	return s.Read(ctx, read)
}

const epochSetting = "cursor_epoch"

func newEpoch() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
