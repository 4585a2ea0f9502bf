package store

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"
)

// Queued is how many writes wait for the SQLite writer.
func (s *Store) Queued() int { return len(s.group.jobs) }

// LongBatches lets a batch go on for as long as functions wait, so that a slow machine does
// not split what a test puts into one. Call it before the writes it is meant for.
func (s *Store) LongBatches() { s.group.work = time.Minute }

// EachRow runs a query and calls f for each of its rows.
func (tx *Tx) EachRow(query string, f func()) error {
	return tx.each(query, nil, func(rows) error {
		f()
		return nil
	})
}

// InUse is how many connections are lent out; none may be while nobody calls.
func (s *Store) InUse() int {
	if s.db != nil {
		return s.db.Stats().InUse
	}
	return cap(s.readers) - len(s.readers)
}

// Texts reads the first column of a query without parameters, as text.
func (tx *Tx) Texts(query string) (list []string, err error) {
	err = tx.each(query, nil, func(r rows) error {
		var text string
		err := r.Scan(&text)
		list = append(list, text)
		return err
	})
	return list, err
}

// AtSchema stops an Open at an older schema, as the program of then did.
func AtSchema(cfg Config, version int64) Config {
	cfg.schema = version
	return cfg
}

// Tables is the list of tables that a backup carries, in its order, without those that only backups
// of before have.
func Tables() []string {
	return slices.DeleteFunc(slices.Clone(tables), func(name string) bool { return name == "handoff_targets" })
}

// BackupAnd is Backup with a look at the snapshot that it was made from.
func (s *Store) BackupAnd(ctx context.Context, w io.Writer, look func(*Tx) error) error {
	b := newBackupWriter(w)
	return s.snapshot(ctx, func(tx *Tx) error { return errors.Join(tx.backup(b), look(tx)) })
}

// Selects gives the query of a backup for each table.
func (tx *Tx) Selects() (map[string]string, error) {
	list, err := readCatalog(tx.d, tx.each)
	queries := map[string]string{}
	for _, t := range list {
		queries[t.name] = t.selectAll()
	}
	return queries, err
}

// Exec runs writes without parameters.
func (tx *Tx) Exec(queries ...string) error {
	for _, query := range queries {
		if err := tx.exec(query); err != nil {
			return err
		}
	}
	return nil
}

// Plan is how SQLite would run a query.
func (tx *Tx) Plan(query string) (list []string, err error) {
	err = tx.each("EXPLAIN QUERY PLAN "+query, nil, func(r rows) error {
		var id, parent, unused int64
		var detail string
		err := r.Scan(&id, &parent, &unused, &detail)
		list = append(list, detail)
		return err
	})
	return list, err
}

// Explain runs fn and says how the database would run each of its queries, instead of their rows.
func (tx *Tx) Explain(fn func(*Tx) error) (plan string, err error) {
	e := &explaining{engine: tx.e, kind: tx.d.name()}
	explained := *tx
	explained.e = e
	err = fn(&explained)
	return strings.Join(e.lines, "\n"), err
}

type explaining struct {
	engine
	kind  string
	lines []string
}

func (e *explaining) query(ctx context.Context, query string, args []any) (rows, error) {
	var line string
	var id, parent, unused int64
	prefix, dest := "EXPLAIN ", []any{&line}
	if e.kind == "sqlite" {
		prefix, dest = "EXPLAIN QUERY PLAN ", []any{&id, &parent, &unused, &line}
	}
	r, err := e.engine.query(ctx, prefix+query, args)
	if err != nil {
		return nil, err
	}
	return noRows{}, readAll(r, func(r rows) error {
		err := r.Scan(dest...)
		e.lines = append(e.lines, line)
		return err
	})
}

type noRows struct{}

func (noRows) Next() bool        { return false }
func (noRows) Scan(...any) error { return nil }
func (noRows) Err() error        { return nil }
func (noRows) Close() error      { return nil }

// Waiting is how many calls wait for a shared transaction.
func (s *Store) Waiting() int {
	s.joint.mu.Lock()
	defer s.joint.mu.Unlock()
	return len(s.joint.waiting)
}

// Xact is the id of the transaction on PostgreSQL.
func (tx *Tx) Xact() (id string, err error) {
	err = tx.row("SELECT pg_current_xact_id()::text").scan(&id)
	return id, err
}
