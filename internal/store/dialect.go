package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"net"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/ncruces/go-sqlite3"
)

// dialect is all that differs between the two databases in SQL and in their errors. SQL is
// written for PostgreSQL's $1 parameters and rewritten for SQLite.
type dialect interface {
	name() string
	// ddl fills in the marks of a migration.
	ddl(text string) string
	// forUpdate locks the rows of a SELECT until the transaction ends.
	forUpdate() string
	// forShare keeps the rows of a SELECT from being changed until the transaction ends.
	forShare() string
	// forKeyShare keeps the rows of one table of a SELECT from being locked by forUpdate, and lets
	// them be changed.
	forKeyShare(table string) string
	// forKeyShareFree is forKeyShare that leaves out rows which others hold; empty where nobody can.
	forKeyShareFree(table string) string
	// skipLocked is forUpdate for the rows of a table h that leaves out what others hold; empty where nobody can.
	skipLocked() string
	// lockShared and lockAlone take a lock that is no row's, by its number, until the transaction
	// ends; empty where there is one writer anyway.
	lockShared() string
	lockAlone() string
	// by names the index that a query of one table must walk, where it would be chosen badly otherwise.
	by(index string) string
	// eventsAfter selects the events behind the position ($1 = xact, $2 = id), in the order in
	// which readers follow them: those that may still get company in front stay out of it.
	eventsAfter() string
	// behindLast is the transaction by which an event of a handoff ($2), but not its first, is ordered:
	// it stands behind the one before ($3 counts them), also where that one's transaction began later.
	// Empty where the order of ids is enough.
	behindLast() string
	// eventsHidden finds one event behind the position, also where eventsAfter keeps it out; empty
	// where it keeps out none.
	eventsHidden() string
	// positionNow selects the position behind which only what is not visible yet comes.
	positionNow() string
	// lagQuery counts the events that eventsAfter still keeps out; empty where there are none.
	lagQuery() string
	// catalogQuery lists the columns of the tables that a plain name reaches: table, column, type,
	// and the column's place in the primary key, from 1, or 0.
	catalogQuery() string
	// patientQuery lets the transaction take as long as it needs; empty where nothing limits it.
	patientQuery() string
	// identityQuery makes events count on from the largest id; empty where they do by themselves.
	identityQuery() string
	classify(err error) fault
}

type sqlite struct{}

func (sqlite) name() string { return "sqlite" }

func (sqlite) ddl(text string) string {
	return strings.NewReplacer(
		"{{serial}}", "integer PRIMARY KEY", "{{xact}}", "0",
		// The id alone is the order here, and a table that is its own primary key saves an index.
		"{{events_in_order}}", "", "{{clustered}}", " WITHOUT ROWID").Replace(text)
}

// One writer: nothing needs a row lock, and events commit in the order of their ids.
func (sqlite) forUpdate() string    { return "" }
func (sqlite) forShare() string     { return "" }
func (sqlite) skipLocked() string   { return "" }
func (sqlite) lockShared() string   { return "" }
func (sqlite) lockAlone() string    { return "" }
func (sqlite) eventsHidden() string { return "" }
func (sqlite) behindLast() string   { return "" }

func (sqlite) forKeyShare(string) string     { return "" }
func (sqlite) forKeyShareFree(string) string { return "" }

// Without statistics SQLite takes an index with an equal first column before a smaller one.
func (sqlite) by(index string) string { return " INDEXED BY " + index }
func (sqlite) eventsAfter() string    { return "xact >= $1 AND id > $2 ORDER BY id" }
func (sqlite) lagQuery() string       { return "" }
func (sqlite) positionNow() string    { return "SELECT 0, COALESCE(max(id), 0) FROM events" }

func (sqlite) catalogQuery() string {
	return `SELECT t.name, c.name, lower(c.type), c.pk FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.cid`
}

func (sqlite) patientQuery() string  { return "" }
func (sqlite) identityQuery() string { return "" }

func (sqlite) classify(err error) fault {
	switch {
	case errors.Is(err, sqlite3.CONSTRAINT_UNIQUE), errors.Is(err, sqlite3.CONSTRAINT_PRIMARYKEY):
		return faultUnique
	case errors.Is(err, sqlite3.FULL), noRoom(err):
		return faultFull
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return faultCorrupt
	case errors.Is(err, sqlite3.READONLY), errors.Is(err, sqlite3.CANTOPEN), errors.Is(err, sqlite3.PERM):
		return faultReadOnly
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED):
		return faultBusy
	case errors.Is(err, sqlite3.IOERR):
		return faultGone
	}
	return faultOther
}

var dollar = regexp.MustCompile(`\$(\d+)`)

// sqliteSQL rewrites $1 to ?1. Drivers bind "$2, $1" by order of appearance, which is wrong.
func sqliteSQL(query string) string { return dollar.ReplaceAllString(query, "?$1") }

type postgres struct{}

func (postgres) name() string { return "postgres" }

var textColumn = regexp.MustCompile(`(?m)^(  \w+ +text)\b`)

// Text columns compare bytewise, as SQLite does: ids and handle keys are ASCII or folded, and
// a locale's order would make two databases page differently.
func (postgres) ddl(text string) string {
	text = strings.NewReplacer(
		"{{serial}}", "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
		"{{xact}}", "(pg_current_xact_id()::text::bigint)",
		"{{events_in_order}}", "CREATE INDEX events_in_order ON events (xact, id);", "{{clustered}}", "").Replace(text)
	return textColumn.ReplaceAllString(text, `$1 COLLATE "C"`)
}

func (postgres) forUpdate() string  { return " FOR UPDATE" }
func (postgres) by(string) string   { return "" }
func (postgres) forShare() string   { return " FOR SHARE" }
func (postgres) skipLocked() string { return " FOR UPDATE OF h SKIP LOCKED" }

// They cost no write and no contention on a page, as a row that many transactions lock would.
func (postgres) lockShared() string { return "SELECT pg_advisory_xact_lock_shared($1)" }
func (postgres) lockAlone() string  { return "SELECT pg_advisory_xact_lock($1)" }

func (postgres) forKeyShare(table string) string { return " FOR KEY SHARE OF " + table }
func (postgres) forKeyShareFree(table string) string {
	return postgres{}.forKeyShare(table) + " SKIP LOCKED"
}

// An id is handed out before its transaction commits, so neither the id nor the transaction
// id alone orders what readers may see. Below the oldest transaction that is still running,
// everything is final.
// A reader gets past the later transaction only when the earlier one, which writes this, has ended too:
// it stays below the oldest that runs.
func (postgres) behindLast() string {
	return `GREATEST(pg_current_xact_id()::text::bigint, COALESCE((SELECT p.xact FROM events p WHERE p.handoff_id = $2 AND p.handoff_id <> '' AND p.seq = CAST($3 AS bigint) - 1), 0))`
}

func (postgres) eventsAfter() string {
	if orderEventsByID {
		return "CAST($1 AS bigint) >= 0 AND id > $2 ORDER BY id"
	}
	return "(xact, id) > ($1, $2) AND xact < pg_snapshot_xmin(pg_current_snapshot())::text::bigint ORDER BY xact, id"
}

func (postgres) eventsHidden() string {
	return "SELECT 1 FROM events WHERE (xact, id) > ($1, $2) LIMIT 1"
}

func (postgres) positionNow() string {
	return `SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint - 1, 9223372036854775807`
}

func (postgres) lagQuery() string {
	return `SELECT count(*), COALESCE(min(at), 0) FROM events WHERE xact >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint`
}

func (postgres) catalogQuery() string {
	return `SELECT c.relname::text, a.attname::text, format_type(a.atttypid, NULL), COALESCE(array_position(i.indkey::int2[], a.attnum), -1) + 1
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
		LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE c.relkind = 'r' AND pg_table_is_visible(c.oid) ORDER BY c.relname, a.attnum`
}

// Not every version has every one of these settings, so they are looked up.
func (postgres) patientQuery() string {
	return `SELECT set_config(name, '0', true) FROM pg_settings WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')`
}

func (postgres) identityQuery() string {
	return `SELECT setval(pg_get_serial_sequence('events', 'id'), COALESCE(max(id), 1), max(id) IS NOT NULL) FROM events`
}

func (postgres) classify(err error) fault {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		switch {
		case pg.Code == "23505":
			return faultUnique
		case pg.Code == "40001", pg.Code == "40P01":
			return faultConflict
		case pg.Code == "53100":
			return faultFull
		case pg.Code == "XX001", pg.Code == "XX002":
			return faultCorrupt
		case pg.Code == "25006":
			return faultReadOnly
		case pg.Code == "55P03", pg.Code == "57014":
			return faultBusy
		case strings.HasPrefix(pg.Code, "57P"), strings.HasPrefix(pg.Code, "08"), pg.Code == "53300",
			pg.Code == "3D000", strings.HasPrefix(pg.Code, "28"): // no such database, no entry
			return faultGone
		}
		return faultOther
	}
	var network net.Error
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, net.ErrClosed),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, context.DeadlineExceeded), pgconn.SafeToRetry(err),
		strings.Contains(err.Error(), "unexpected EOF"), strings.Contains(err.Error(), "conn closed"):
		return faultGone
	}
	return faultOther
}
