package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/store"
)

// place is a fresh database for one measurement.
type place struct {
	cfg   store.Config
	close func() error
}

// fresh makes an empty database: a file beside the others of the machine's temporary folder,
// or a new database on the cluster at url.
func fresh(database, url string) (place, error) {
	if database == "sqlite" {
		dir, err := os.MkdirTemp("", "handclasp-bench-")
		return place{store.Config{Path: filepath.Join(dir, "handclasp.db")}, func() error { return os.RemoveAll(dir) }}, err
	}
	db, err := sql.Open("pgx", url)
	if err != nil {
		return place{}, err
	}
	name := fmt.Sprintf("bench_%d", os.Getpid())
	if _, err := db.ExecContext(context.Background(), "CREATE DATABASE "+name); err != nil {
		return place{}, errors.Join(err, db.Close())
	}
	return place{store.Config{URL: replaceDatabase(url, name), MaxConns: 16}, func() error {
		_, err := db.ExecContext(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)")
		return errors.Join(err, db.Close())
	}}, nil
}

// people registers a sender for each caller and one recipient.
func people(ctx context.Context, h *hub.Hub, n int) (senders []hub.Call, recipient hub.Call, err error) {
	for i := range n {
		c, err := register(ctx, h, hub.AgentInput{Handle: fmt.Sprintf("sender%d@bench", i)})
		if err != nil {
			return nil, hub.Call{}, err
		}
		senders = append(senders, c)
	}
	recipient, err = register(ctx, h, hub.AgentInput{Handle: "recipient@bench"})
	return senders, recipient, err
}

const summary = "GET /users is paginated now: it returns {items, next_cursor}. The list screen still expects an array; please follow next_cursor and keep the old behaviour for one release."

func create(key string) hub.CreateInput {
	return hub.CreateInput{To: "recipient@bench", Intent: handoff.AskQuestion, Summary: summary, Question: "Can this be done in the current sprint?", IdempotencyKey: key}
}

// hub measures the use case, called as a door calls it.
func (j job) hub() (outcome, error) {
	debug.SetGCPercent(800)
	ctx := context.Background()
	p, err := fresh(j.Database, j.URL)
	if err != nil {
		return outcome{}, err
	}
	st, err := store.Open(ctx, p.cfg)
	if err != nil {
		return outcome{}, err
	}
	h := hub.New(hub.Config{Store: st, PublicURL: "https://hub.example"})
	senders, recipient, err := people(ctx, h, j.Callers)
	if err != nil {
		return outcome{}, err
	}
	out := work(j.Callers, j.Duration, func(w, i int) error {
		c, err := h.Create(ctx, senders[w], create(fmt.Sprintf("key-%d-%d", w, i)))
		if err != nil || j.Kind == "hub" {
			return err
		}
		if _, err := h.Accept(ctx, recipient, hub.AcceptInput{ThreadID: c.ThreadID}); err != nil {
			return err
		}
		_, err = h.Complete(ctx, recipient, hub.CompleteInput{ThreadID: c.ThreadID, ResultSummary: "Done, with tests."})
		return err
	})
	return out, errors.Join(st.Close(), p.close())
}
