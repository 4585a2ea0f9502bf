package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"handclasp/internal/hub"
	"handclasp/internal/store"
)

// The raw limit: the same rows as one create, written by prepared statements and nothing else.
// The rows are those that the hub itself wrote for a create, with fresh ids.

// template is one row of one table.
type template struct {
	table   string
	columns []string
	values  []any
}

// templates has the hub make one handoff, of the desk or of the team, and reads back every row that came
// of it.
func templates(ctx context.Context, database string, p place, desk bool) ([]template, error) {
	st, err := store.Open(ctx, p.cfg)
	if err != nil {
		return nil, err
	}
	h := hub.New(hub.Config{Store: st, PublicURL: "https://hub.example"})
	senders, _, err := people(ctx, h, 1)
	if err != nil {
		return nil, err
	}
	id, tables := "", []string{"handoffs", "messages", "notices", "events", "idempotency"}
	if desk {
		tables = []string{"handoffs", "messages", "desk", "continuations", "events", "idempotency"}
		if err = addShop(ctx, h); err == nil {
			id, err = handOn(ctx, h, senders[0], "key-template")
		}
	} else {
		var c hub.Created
		c, err = h.Create(ctx, senders[0], create("key-template"))
		id = c.ThreadID
	}
	if err := errors.Join(err, st.Close()); err != nil {
		return nil, err
	}
	db, err := open(database, p)
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	var out []template
	for _, t := range tables {
		key := "handoff_id"
		if t == "handoffs" {
			key = "id"
		}
		rows, err := db.QueryContext(ctx, "SELECT * FROM "+t+" WHERE "+key+" = '"+id+"'")
		if err != nil {
			return nil, err
		}
		columns, err := rows.Columns()
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			values := make([]any, len(columns))
			dest := make([]any, len(columns))
			for i := range values {
				dest[i] = &values[i]
			}
			if err := rows.Scan(dest...); err != nil {
				return nil, err
			}
			out = append(out, template{t, columns, values}.withoutGenerated())
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// withoutGenerated leaves out what the database fills in.
func (t template) withoutGenerated() template {
	if t.table != "events" {
		return t
	}
	out := template{table: t.table}
	for i, c := range t.columns {
		if c != "id" && c != "xact" {
			out.columns, out.values = append(out.columns, c), append(out.values, t.values[i])
		}
	}
	return out
}

func (t template) insert(mark string) string {
	marks := make([]string, len(t.columns))
	for i := range marks {
		marks[i] = fmt.Sprintf("%s%d", mark, i+1)
	}
	return "INSERT INTO " + t.table + " (" + strings.Join(t.columns, ", ") + ") VALUES (" + strings.Join(marks, ", ") + ")"
}

// row is the template with fresh ids.
func (t template) row(handoffID, messageID, key string) []any {
	values := append([]any(nil), t.values...)
	for i, c := range t.columns {
		switch {
		case c == "handoff_id", t.table == "handoffs" && c == "id":
			values[i] = handoffID
		case t.table == "messages" && c == "id", c == "subject_id":
			values[i] = messageID
		case c == "key":
			values[i] = key
		}
	}
	return values
}

func open(database string, p place) (*sql.DB, error) {
	if database == "postgres" {
		return sql.Open("pgx", p.cfg.URL)
	}
	q := "_pragma=busy_timeout(5000)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=foreign_keys(on)&_pragma=temp_store(memory)&_pragma=cache_size(-8000)&_pragma=wal_autocheckpoint(4000)"
	return sql.Open("sqlite3", (&url.URL{Scheme: "file", OmitHost: true, Path: p.cfg.Path, RawQuery: q}).String())
}

func replaceDatabase(raw, name string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	u.Path = "/" + name
	return u.String()
}

func (j job) raw() (outcome, error) {
	debug.SetGCPercent(800)
	ctx := context.Background()
	p, err := fresh(j.Database, j.URL)
	if err != nil {
		return outcome{}, err
	}
	ts, err := templates(ctx, j.Database, p, j.Kind == "raw-desk")
	if err != nil {
		return outcome{}, err
	}
	var out outcome
	if j.Database == "postgres" {
		out, err = j.rawPostgres(ctx, p, ts)
	} else {
		out, err = j.rawSQLite(ctx, p, ts)
	}
	return out, errors.Join(err, p.close())
}

// rawPostgres sends the rows of one create as one pgx batch: one round trip, one implicit
// transaction.
func (j job) rawPostgres(ctx context.Context, p place, ts []template) (outcome, error) {
	cfg, err := pgxpool.ParseConfig(p.cfg.URL)
	if err != nil {
		return outcome{}, err
	}
	cfg.MaxConns = int32(p.cfg.MaxConns)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return outcome{}, err
	}
	defer pool.Close()
	inserts := make([]string, len(ts))
	for i, t := range ts {
		inserts[i] = t.insert("$")
	}
	return work(j.Callers, j.Duration, func(w, i int) error {
		batch := &pgx.Batch{}
		id, msg, key := ids(w, i)
		for k, t := range ts {
			batch.Queue(inserts[k], t.row(id, msg, key)...)
		}
		return pool.SendBatch(ctx, batch).Close()
	}), nil
}

func ids(w, i int) (handoff, message, key string) {
	n := time.Now().UnixMicro()
	return fmt.Sprintf("%012x-%04x-7000-8000-%08x", n, w, i), fmt.Sprintf("%012x-%04x-7000-9000-%08x", n, w, i), fmt.Sprintf("key-%d-%d", w, i)
}

// rawSQLite writes the rows of waiting callers in one transaction by prepared statements: one
// writer, the hub's own bounds for a batch.
func (j job) rawSQLite(ctx context.Context, p place, ts []template) (outcome, error) {
	db, err := open("sqlite", p)
	if err != nil {
		return outcome{}, err
	}
	defer func() { _ = db.Close() }()
	var inserts []string
	for _, t := range ts {
		inserts = append(inserts, t.insert("?"))
	}
	apply, end, err := batched(ctx, db, inserts)
	if err != nil {
		return outcome{}, err
	}
	defer end()
	return work(j.Callers, j.Duration, func(w, i int) error {
		id, msg, key := ids(w, i)
		var rows [][]any
		for _, t := range ts {
			rows = append(rows, t.row(id, msg, key))
		}
		return apply(rows)
	}), nil
}

// batched runs the statements, each with its row of values, for many callers in shared transactions.
func batched(ctx context.Context, db *sql.DB, statements []string) (apply func(rows [][]any) error, end func(), err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	prepare := func(q string) *sql.Stmt {
		st, e := conn.PrepareContext(ctx, q)
		err = errors.Join(err, e)
		return st
	}
	begin, commit := prepare("BEGIN IMMEDIATE"), prepare("COMMIT")
	var prepared []*sql.Stmt
	for _, q := range statements {
		prepared = append(prepared, prepare(q))
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	type request struct {
		rows [][]any
		done chan error
	}
	queue := make(chan request, 128)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for first := range queue {
			_, err := begin.ExecContext(ctx)
			began := time.Now()
			batch := []request{first}
			for next := true; next; {
				for k, row := range batch[len(batch)-1].rows {
					done, e := prepared[k].ExecContext(ctx, row...)
					if err = errors.Join(err, e); e == nil && k == 0 {
						if n, e := done.RowsAffected(); e == nil && n == 0 {
							break // another was faster, so the rest is not due
						}
					}
				}
				next = false
				if len(batch) < 128 && time.Since(began) < 5*time.Millisecond {
					select {
					case r := <-queue:
						batch, next = append(batch, r), true
					default:
					}
				}
			}
			_, e := commit.ExecContext(ctx)
			err = errors.Join(err, e)
			for _, r := range batch {
				r.done <- err
			}
		}
	}()
	apply = func(rows [][]any) error {
		r := request{rows: rows, done: make(chan error, 1)}
		queue <- r
		return <-r.done
	}
	return apply, func() {
		close(queue)
		<-over
		for _, st := range append(prepared, begin, commit) {
			_ = st.Close()
		}
		_ = conn.Close()
	}, nil
}
