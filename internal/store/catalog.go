package store

import (
	"cmp"
	"slices"
	"strings"
)

// tables are all tables of ours, each behind those that it refers to: a backup carries them and a
// restore loads them in this order. A table that a later migration drops stays in the list, for the
// backups of before. Goose's own table is not ours.
var tables = []string{
	"settings", "agents", "agent_labels", "catalog", "api_keys", "blocks", "workspaces", "workspace_members",
	"handoffs", "handoff_targets", "offers", "dependencies", "messages", "drafts", "notices", "events", "idempotency",
	"contacts", "deliveries", "invites", "sessions",
	"businesses", "spend", "desk", "person_links", "signing_keys", "continuations", "agent_channels",
}

// The transaction id of an event means something in its own PostgreSQL cluster only: it stays out of
// a backup, and a restored event has 0.
const (
	xactTable  = "events"
	xactColumn = "xact"
)

// table is a table of ours as a database has it.
type table struct {
	name    string
	columns []column
}

type column struct {
	name   string
	number bool // a whole number; the others are texts
	key    int  // its place in the primary key, from 1; 0 for none
}

// names lists the columns in their order.
func (t *table) names() []string {
	list := make([]string, len(t.columns))
	for i, c := range t.columns {
		list[i] = c.name
	}
	return list
}

// selectAll reads the whole table in the order of its primary key.
func (t *table) selectAll() string {
	keys := slices.DeleteFunc(slices.Clone(t.columns), func(c column) bool { return c.key == 0 })
	slices.SortFunc(keys, func(a, b column) int { return cmp.Compare(a.key, b.key) })
	return "SELECT " + strings.Join(t.names(), ", ") + " FROM " + t.name + " ORDER BY " + strings.Join((&table{columns: keys}).names(), ", ")
}

// readCatalog gives the tables of ours that the database has, in the order of the list, without the
// column that a backup leaves out. each runs a query, as [Tx.each] does.
func readCatalog(d dialect, each func(query string, args []any, scan func(rows) error) error) ([]*table, error) {
	found := map[string]*table{}
	err := each(d.catalogQuery(), nil, func(r rows) error {
		var name, kind string
		var c column
		if err := r.Scan(&name, &c.name, &kind, &c.key); err != nil {
			return err
		}
		if !slices.Contains(tables, name) || name == xactTable && c.name == xactColumn {
			return nil
		}
		c.number = kind != "text"
		if found[name] == nil {
			found[name] = &table{name: name}
		}
		found[name].columns = append(found[name].columns, c)
		return nil
	})
	var list []*table
	for _, name := range tables {
		if found[name] != nil {
			list = append(list, found[name])
		}
	}
	return list, err
}
