package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Inspection is what can be said of a database from outside, without changing it.
type Inspection struct {
	Schema   int64     // 0: none of ours yet
	Damage   string    // what an integrity check found (SQLite)
	Now      time.Time // by the database's clock
	Newest   time.Time // of the events
	Agents   int       // that are not disabled
	Waiting  time.Time // since when the oldest handoff waits for its recipient to look
	Untold   int       // open handoffs of the desk whose person was not told, or nobody knows
	ByMail   int       // businesses that are reached by e-mail
	Settings []string  // of the server, that break what is promised (PostgreSQL)
	ReadOnly bool      // a standby, or made so
}

// Inspect looks at a database and neither makes nor migrates it. It reads beside a hub that has
// it open.
func Inspect(ctx context.Context, cfg Config) (Inspection, error) {
	s := &Store{cfg: cfg, closed: make(chan struct{}), d: sqlite{}}
	look := s.inspectSQLite
	if cfg.URL != "" {
		s.d, look = postgres{}, s.inspectPostgres
	}
	var in Inspection
	err := look(ctx, &in)
	return in, err
}

func (s *Store) inspectSQLite(ctx context.Context, in *Inspection) error {
	if _, err := os.Stat(s.cfg.Path); err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", s.dsn("_pragma=query_only(on)"))
	if err != nil {
		return s.explainOpen(err)
	}
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&in.Damage); err != nil {
		return s.explainOpen(err)
	}
	if in.Damage == "ok" {
		in.Damage = ""
	}
	in.Now = time.Now()
	return s.facts(ctx, db, in, "SELECT count(*) FROM sqlite_master WHERE name = 'goose_db_version'")
}

func (s *Store) inspectPostgres(ctx context.Context, in *Inspection) error {
	cfg, err := s.postgresConfig()
	if err != nil {
		return err
	}
	db := openPool(cfg)
	defer func() { _ = db.Close() }()
	if err := db.QueryRowContext(ctx, "SELECT clock_timestamp(), pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'").Scan(&in.Now, &in.ReadOnly); err != nil {
		return s.explainPostgres(cfg, err)
	}
	for _, want := range [][2]string{{"synchronous_commit", "off"}, {"fsync", "off"}, {"full_page_writes", "off"}} {
		var value string
		if err := db.QueryRowContext(ctx, "SELECT current_setting($1)", want[0]).Scan(&value); err != nil {
			return s.explainPostgres(cfg, err)
		}
		if value == want[1] {
			in.Settings = append(in.Settings, want[0])
		}
	}
	return s.facts(ctx, db, in, "SELECT count(*) FROM pg_class WHERE relname = 'goose_db_version' AND pg_table_is_visible(oid)")
}

// facts reads what stands in our tables, as far as there are any.
func (s *Store) facts(ctx context.Context, db *sql.DB, in *Inspection, hasSchema string) error {
	var tables int
	if err := db.QueryRowContext(ctx, hasSchema).Scan(&tables); err != nil || tables == 0 {
		return err
	}
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(max(version_id), 0) FROM goose_db_version").Scan(&in.Schema); err != nil {
		return err
	}
	if in.Schema == 0 || in.Schema > SchemaVersion {
		return nil
	}
	var newest, waiting int64
	err := errors.Join(
		db.QueryRowContext(ctx, "SELECT COALESCE(max(at), 0) FROM events").Scan(&newest),
		db.QueryRowContext(ctx, "SELECT count(*) FROM agents WHERE disabled_at = 0").Scan(&in.Agents),
		db.QueryRowContext(ctx, "SELECT COALESCE(min(created_at), 0) FROM handoffs WHERE state = 'open' AND fetched_at = 0 AND recipient_id <> ''").Scan(&waiting))
	in.Newest, in.Waiting = timeOf(newest), timeOf(waiting)
	if in.Schema == SchemaVersion { // an older one may lack the columns
		err = errors.Join(err,
			db.QueryRowContext(ctx, "SELECT count(*) FROM handoffs h WHERE "+untold).Scan(&in.Untold),
			db.QueryRowContext(ctx, "SELECT count(*) FROM businesses WHERE "+byMail).Scan(&in.ByMail))
	}
	if err != nil {
		return fmt.Errorf("read the database: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}
