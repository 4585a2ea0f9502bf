package store_test

import (
	"database/sql"
	"math"
	"strconv"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// odd are texts that a careless format would not carry.
var odd = []string{"", "plain", "a\nb\r\n\tc", `"quoted" \back\`, "<b>&amp;", "🤝 ünï \u2028\u2029 \ufeff", `{"a":[1,2.50,1e400]}`, "\u0001\u007f", "'; DROP TABLE agents; --", strings.Repeat("long ", 3000)}

// fillEveryTable writes n rows into each table of the schema, whatever it is, by its own catalogue.
func fillEveryTable(t *testing.T, cfg store.Config, n int) {
	t.Helper()
	db := hubtest.Beside(t, cfg)
	for _, table := range store.Tables() {
		for i := range n {
			fillRow(t, db, cfg, table, i)
		}
	}
	must(t, db.Close())
}

// fillRow writes the i-th row of a table. Keys and references are made of i, so that the i-th rows
// of all tables belong together.
func fillRow(t *testing.T, db *sql.DB, cfg store.Config, table string, i int) {
	t.Helper()
	var names, marks []string
	var values []any
	for _, c := range columnsOf(t, db, cfg, table) {
		if c.name == "xact" {
			continue
		}
		var value any
		switch {
		case !c.number && (c.name == "id" || strings.HasSuffix(c.name, "_id") || c.name == "depends_on" || c.name == "slug" || c.key || c.unique):
			value = "key-" + strconv.Itoa(i)
		case !c.number:
			value = odd[(i+len(names))%len(odd)]
		case c.key || c.unique:
			value = int64(i + 1)
		default:
			value = []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1<<53 + 1, 1796051685545396}[(i+len(names))%7]
		}
		names, values = append(names, c.name), append(values, value)
		marks = append(marks, "$"+strconv.Itoa(len(names)))
	}
	if _, err := db.Exec("INSERT INTO "+table+" ("+strings.Join(names, ", ")+") VALUES ("+strings.Join(marks, ", ")+")", values...); err != nil {
		t.Fatalf("row %d of %s: %v", i, table, err)
	}
}

type columnOf struct {
	name                string
	number, key, unique bool
}

// columnsOf asks the database for the columns of a table, by other means than the store.
func columnsOf(t *testing.T, db *sql.DB, cfg store.Config, table string) (list []columnOf) {
	t.Helper()
	query := `SELECT c.name, lower(c.type) <> 'text', c.pk > 0, EXISTS (SELECT 1 FROM pragma_index_list($1) l, pragma_index_info(l.name) i WHERE l."unique" AND i.name = c.name) FROM pragma_table_info($1) c`
	if cfg.URL != "" {
		query = `SELECT a.attname, a.atttypid <> 'text'::regtype,
			EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)),
			EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = a.attrelid AND i.indisunique AND a.attnum = ANY (i.indkey))
			FROM pg_attribute a WHERE a.attrelid = $1::text::regclass AND a.attnum > 0`
	}
	rows, err := db.Query(query, table)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var c columnOf
		must(t, rows.Scan(&c.name, &c.number, &c.key, &c.unique))
		list = append(list, c)
	}
	must(t, rows.Err())
	return list
}
