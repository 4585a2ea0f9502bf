package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// SchemaVersion is the newest migration that this program knows.
const SchemaVersion = 2

// NewerSchemaError says that a newer program has written the database.
type NewerSchemaError struct{ Found int64 }

func (e NewerSchemaError) Error() string {
	return fmt.Sprintf("the database has schema %d and this program knows schemas up to %d: it was written by a newer Handclasp. Start that version, or restore a backup made with this one. Nothing was changed", e.Found, SchemaVersion)
}

// migrate brings the schema up to date, one node at a time on PostgreSQL.
func migrate(ctx context.Context, d dialect, db *sql.DB) error {
	kind := goose.DialectSQLite3
	options := []goose.ProviderOption{goose.WithDisableGlobalRegistry(true)}
	if d.name() == "postgres" {
		kind = goose.DialectPostgres
		locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // looks every second, not every five
		if err != nil {
			return err
		}
		options = append(options, goose.WithSessionLocker(locker))
	}
	steps, err := goMigrations(d)
	if err != nil {
		return err
	}
	options = append(options, goose.WithGoMigrations(steps...))
	provider, err := goose.NewProvider(kind, db, nil, options...)
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
	if found == SchemaVersion {
		return nil
	}
	_, err = provider.Up(ctx)
	return err
}

// goMigrations reads the embedded files; each becomes one transaction.
func goMigrations(d dialect) ([]*goose.Migration, error) {
	var steps []*goose.Migration
	for version := int64(1); version <= SchemaVersion; version++ {
		entries, err := migrations.ReadDir("migrations")
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if !strings.HasPrefix(entry.Name(), fmt.Sprintf("%04d_", version)) {
				continue
			}
			text, err := migrations.ReadFile("migrations/" + entry.Name())
			if err != nil {
				return nil, err
			}
			statements := split(d.ddl(string(text)))
			steps = append(steps, goose.NewGoMigration(version, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				for _, st := range statements {
					if _, err := tx.ExecContext(ctx, st); err != nil {
						return fmt.Errorf("migration %d: %w", version, err)
					}
				}
				return nil
			}}, nil))
		}
	}
	return steps, nil
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
	const name = "cursor_epoch"
	read := func(tx *Tx) error {
		return tx.row(`SELECT value FROM settings WHERE name = $1`, name).scan(&s.epoch)
	}
	err := s.Read(ctx, read)
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	if err := s.Write(ctx, func(tx *Tx) error {
		return tx.exec(`INSERT INTO settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, hex.EncodeToString(b))
	}); err != nil {
		return err
	}
	return s.Read(ctx, read)
}
