package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"handclasp/internal/handoff"
)

// Backup writes everything that the database holds at one moment to w, in a form that [Restore]
// reads back into a database of either kind. Writers and readers go on meanwhile; on SQLite the
// write-ahead log grows until it is done. One backup runs at a time, another waits. The memory that
// it takes does not depend on the size of the database. An error may come after a part was written:
// such a part lacks the last line and is refused by Restore.
func (s *Store) Backup(ctx context.Context, w io.Writer) error {
	select {
	case <-s.backing:
	case <-s.closed:
		return errClosed
	case <-ctx.Done():
		return handoff.Unavailable("the backup was cancelled", ctx.Err())
	}
	defer func() { s.backing <- struct{}{} }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-s.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	b := newBackupWriter(w)
	err := s.snapshot(ctx, func(tx *Tx) error { return tx.backup(b) })
	if s.logInUse.Load() {
		_ = s.checkpointSQLite(context.WithoutCancel(ctx)) // whoever asked for it was told of the failure
	}
	switch {
	case err == nil:
		return nil
	case b.failed != nil:
		return b.failed
	case s.isClosed():
		return handoff.Unavailable("the hub is shutting down; the backup broke off", err)
	case ctx.Err() != nil:
		return handoff.Unavailable("the backup was cancelled", ctx.Err())
	}
	return s.translate(err)
}

// snapshot is Read without a deadline, on a connection of its own, and ends with ctx: what it reads
// may be large, and whoever it is for may be slow.
func (s *Store) snapshot(ctx context.Context, fn func(*Tx) error) (err error) {
	if s.Shared() {
		_, err = s.attempt(ctx, ctx, beginRead, fn)
		return err
	}
	db, err := sql.Open("sqlite3", s.dsn("_pragma=query_only(on)"))
	if err != nil {
		return databaseError{err}
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := openConn(ctx, db)
	if err != nil {
		return databaseError{err}
	}
	defer func() {
		if conn.c != nil {
			conn.close()
		}
	}()
	return s.snapshotOn(ctx, conn, fn)
}

// backup writes the snapshot of the transaction.
func (tx *Tx) backup(b *backupWriter) error {
	if err := tx.patient(); err != nil {
		return err
	}
	info := BackupInfo{Format: backupFormat, Program: tx.s.cfg.Program, Database: tx.d.name(), CreatedAt: tx.Now()}
	if err := tx.row(`SELECT max(version_id) FROM goose_db_version`).scan(&info.Schema); err != nil {
		return err
	}
	if info.Schema > SchemaVersion { // on PostgreSQL a newer node may have come meanwhile
		return handoff.Refuse(handoff.CodeUnavailable, NewerSchemaError{Found: info.Schema}.Error(), "")
	}
	all, err := readCatalog(tx.d, tx.each)
	if err != nil {
		return err
	}
	for _, t := range all {
		info.Tables = append(info.Tables, t.name)
	}
	if err := b.line(info); err != nil {
		return err
	}
	for _, t := range all {
		if err := tx.backupTable(b, t); err != nil {
			return err
		}
	}
	return b.end()
}

func (tx *Tx) backupTable(b *backupWriter, t *table) error {
	if err := b.table(t); err != nil {
		return err
	}
	row := make([]any, len(t.columns))
	for i, c := range t.columns {
		if row[i] = any(new(string)); c.number {
			row[i] = new(int64)
		}
	}
	return tx.each(t.selectAll(), nil, func(r rows) error {
		if err := r.Scan(row...); err != nil {
			return err
		}
		for i, v := range row {
			// JSON would replace it without a word.
			if text, ok := v.(*string); ok && !utf8.ValidString(*text) {
				return fmt.Errorf("%s.%s holds a text that is not UTF-8", t.name, t.columns[i].name)
			}
		}
		return b.row(t.name, row)
	})
}

// patient lifts the limits of the server on the length of this transaction.
func (tx *Tx) patient() error {
	query := tx.d.patientQuery()
	if query == "" {
		return nil
	}
	return tx.each(query, nil, func(rows) error { return nil })
}
