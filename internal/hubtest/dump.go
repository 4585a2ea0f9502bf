package hubtest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"

	"handclasp/internal/store"
)

// Dump is every row of every table of a database, each as its table and its columns by name, in an
// order that does not depend on the database. It asks the database itself what there is, so that a
// table or a column that a backup forgets is missed. Left out is what a restore changes by design:
// the transaction id of an event, the value of the cursor epoch, and goose's own notes. texts runs a
// query and gives its first column.
func Dump(t testing.TB, kind string, texts func(query string) ([]string, error)) []string {
	t.Helper()
	ask := func(query string) []string {
		list, err := texts(query)
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return list
	}
	tables := `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
	if kind == "postgres" {
		tables = `SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema()`
	}
	var rows []string
	for _, table := range ask(tables) {
		if table == "goose_db_version" {
			continue
		}
		query := `SELECT to_jsonb(t)::text FROM ` + table + ` t`
		if kind != "postgres" {
			query = `SELECT json_object(` + strings.Join(ask(`SELECT '''' || name || ''', ' || name FROM pragma_table_info('`+table+`')`), ", ") + `) FROM ` + table
		}
		for _, row := range ask(query) {
			rows = append(rows, table+" "+canonical(t, table, row))
		}
	}
	slices.Sort(rows)
	return rows
}

// canonical puts the columns of a row in the order of their names.
func canonical(t testing.TB, table, row string) string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(row))
	dec.UseNumber() // a float would round what two databases keep exactly
	columns := map[string]any{}
	if err := dec.Decode(&columns); err != nil {
		t.Fatalf("%s: %s: %v", table, row, err)
	}
	if table == "events" {
		delete(columns, "xact")
	}
	if table == "settings" && columns["name"] == "cursor_epoch" {
		delete(columns, "value")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(columns); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}

// DumpOf dumps a database that no store has open, or PostgreSQL.
func DumpOf(t testing.TB, cfg store.Config) []string {
	t.Helper()
	kind := "postgres"
	if cfg.URL == "" {
		kind = "sqlite"
	}
	return Dump(t, kind, Texts(Beside(t, cfg)))
}

// Querier is a database, or a transaction in one.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Texts runs queries and gives their first column.
func Texts(in Querier) func(query string) ([]string, error) {
	return func(query string) (list []string, err error) {
		rows, err := in.QueryContext(context.Background(), query)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var text string
			if err := rows.Scan(&text); err != nil {
				return nil, err
			}
			list = append(list, text)
		}
		return list, rows.Err()
	}
}

// Beside opens a database without the store.
func Beside(t testing.TB, cfg store.Config) *sql.DB {
	t.Helper()
	driver, source := "pgx", cfg.URL
	if cfg.URL == "" {
		driver, source = "sqlite3", (&url.URL{Scheme: "file", OmitHost: true, Path: cfg.Path}).String()
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// WantSameRows fails the test, and says where, unless two dumps are equal.
func WantSameRows(t testing.TB, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	only := func(in, out []string) []string {
		list := slices.DeleteFunc(slices.Clone(in), func(row string) bool {
			_, found := slices.BinarySearch(out, row)
			return found
		})
		return list[:min(len(list), 5)]
	}
	t.Errorf("%s: %d rows came, %d should be there\nmissing: %s\nextra: %s", what, len(got), len(want),
		strings.Join(only(want, got), "\n         "), strings.Join(only(got, want), "\n       "))
}
