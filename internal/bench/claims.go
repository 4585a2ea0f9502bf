package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/store"
)

// Claims: many agents drain a pool of open handoffs, against the same updates written as fast as
// the driver can. A measurement lasts until the pool is empty.

const (
	poolSize = 10_000
	project  = "/srv/bench"
)

// pool is a hub on a fresh database with agents, and poolSize open handoffs for any of them.
type pool struct {
	place
	st     *store.Store
	h      *hub.Hub
	agents []hub.Call
	ids    []string
}

func newPool(ctx context.Context, database, url string, agents int) (*pool, error) {
	p, err := fresh(database, url)
	if err != nil {
		return nil, err
	}
	st, err := store.Open(ctx, p.cfg)
	if err != nil {
		return nil, err
	}
	out := &pool{place: p, st: st, h: hub.New(hub.Config{Store: st, PublicURL: "https://hub.example"}), ids: make([]string, poolSize)}
	if out.agents, _, err = people(ctx, out.h, agents); err != nil {
		return nil, err
	}
	creator, err := register(ctx, out.h, hub.AgentInput{Handle: "creator@bench"})
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make([]error, 64)
	for w := range 64 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < poolSize && errs[w] == nil; i = int(next.Add(1)) - 1 {
				o, err := out.h.Open(ctx, creator, hub.OpenInput{
					ProjectRoot: project, From: "creator@bench", Target: json.RawMessage(`{"strategy":"broadcast"}`), Visibility: "public", Payload: json.RawMessage(`{"job":"resize","n":1}`),
				})
				out.ids[i], errs[w] = o.HandoffID, err
			}
		})
	}
	wg.Wait()
	return out, errors.Join(errs...)
}

func (p *pool) end() error { return errors.Join(p.st.Close(), p.close()) }

func register(ctx context.Context, h *hub.Hub, in hub.AgentInput) (hub.Call, error) {
	k, err := h.AddAgent(ctx, hub.Call{Actor: handoff.Operator()}, in)
	if err != nil {
		return hub.Call{}, err
	}
	actor, err := h.Authenticate(ctx, k.Secret)
	return hub.Call{Actor: actor}, err
}

// claims drains the pool by claim-next ("claim-next"), or lets every agent try all ids in the same
// order ("claim-ids"): then every answer counts, and each handoff must be won once.
func (j job) claims() (outcome, error) {
	debug.SetGCPercent(800)
	ctx := context.Background()
	p, err := newPool(ctx, j.Database, j.URL, j.Callers)
	if err != nil {
		return outcome{}, err
	}
	var won atomic.Int64
	out := drain(j.Callers, func(w, i int) (bool, error) {
		in := hub.ClaimInput{ProjectRoot: project, AgentID: p.agents[w].Actor.Handle}
		if j.Kind == "claim-ids" {
			if i == len(p.ids) {
				return false, nil
			}
			in.ThreadID = p.ids[i]
		}
		got, err := p.h.Claim(ctx, p.agents[w], in)
		switch {
		case handoff.CodeOf(err) == handoff.CodeAlreadyClaimed:
			return true, nil
		case err == nil && got.Work != nil:
			won.Add(1)
		}
		return err == nil && got.Work != nil, err
	})
	if n := won.Load(); n != poolSize && out.Errors == 0 {
		return out, fmt.Errorf("%d of %d handoffs were claimed", n, poolSize)
	}
	return out, p.end()
}

// drain calls do from n goroutines until each has had no more.
func drain(n int, do func(worker, i int) (bool, error)) outcome {
	var wg sync.WaitGroup
	var calls, failed atomic.Int64
	var last atomic.Value
	began := time.Now()
	for w := range n {
		wg.Go(func() {
			for i := 0; ; i++ {
				more, err := do(w, i)
				if err != nil {
					failed.Add(1)
					last.Store(err.Error())
				}
				if !more {
					return
				}
				calls.Add(1)
			}
		})
	}
	wg.Wait()
	out := outcome{PerSecond: float64(calls.Load()) / time.Since(began).Seconds(), Errors: int(failed.Load())}
	out.LastError, _ = last.Load().(string)
	return out
}

// The updates of one claim, as the hub writes them.
const (
	rawClaim = `UPDATE handoffs SET state = $1, holder_id = $2, past_holders = $3, epoch = $4, lease_length = $5,
		lease_expires_at = $6, result = $7, verdict = $8, deps_pending = $9, deps_failed = $10, recipient_declined = $11,
		waits_for_reply = $12, message_count = $13, event_seq = $14, updated_at = $15, fetched_at = $16, accepted_at = $17,
		completed_at = $18, ended_by = $19, ended_reason = $20, result_summary = $21, completion_artifacts = $22
		WHERE id = $23 AND state = $24 AND epoch = $25`
	rawOffer = `DELETE FROM offers WHERE target_key = $1 AND workspace_id = $2 AND rank = $3 AND position = $4 AND handoff_id = $5`
	rawEvent = `INSERT INTO events (type, handoff_id, seq, actor_id, subject_id, state, epoch, trace_id, at, session_id) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`
)

// rawRow is what the updates of one claim need to know.
type rawRow struct {
	id, workspace, trace string
	created              int64
}

func (r rawRow) claim(holder string) [][]any {
	now := time.Now().UnixMicro()
	return [][]any{
		{"claimed", holder, "", 1, int64(300e6), now + 300e6, "", "", 0, 0, 0, 0, 0, 2, now, 0, now, 0, "", "", "", "", r.id, "open", 0},
		{"any", r.workspace, 0, r.created, r.id},
		{"handoff.claimed", r.id, 2, holder, "", "claimed", 1, r.trace, now, ""},
	}
}

// rawClaims makes the same updates to the same rows by prepared statements: each once ("raw-claims"), or
// tried by every caller in the same order ("raw-ids"), where all but one find it changed already.
func (j job) rawClaims() (outcome, error) {
	debug.SetGCPercent(800)
	ctx := context.Background()
	p, err := newPool(ctx, j.Database, j.URL, j.Callers)
	if err != nil {
		return outcome{}, err
	}
	if err := p.st.Close(); err != nil {
		return outcome{}, err
	}
	db, err := open(j.Database, p.place)
	if err != nil {
		return outcome{}, err
	}
	rows, err := readRaw(ctx, db)
	if err != nil {
		return outcome{}, err
	}
	var next atomic.Int64
	var apply func(values [][]any) error
	var end func()
	if j.Database == "postgres" {
		cfg, err := pgxpool.ParseConfig(p.cfg.URL)
		if err != nil {
			return outcome{}, err
		}
		cfg.MaxConns = int32(p.cfg.MaxConns)
		conns, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return outcome{}, err
		}
		end = conns.Close
		queries := []string{rawClaim, rawOffer, rawEvent}
		apply = func(values [][]any) error {
			from := 0
			if j.Kind == "raw-ids" {
				tag, err := conns.Exec(ctx, rawClaim, values[0]...)
				if err != nil || tag.RowsAffected() == 0 {
					return err
				}
				from = 1
			}
			batch := &pgx.Batch{}
			for i, q := range queries[from:] {
				batch.Queue(q, values[from+i]...)
			}
			return conns.SendBatch(ctx, batch).Close()
		}
	} else if apply, end, err = batched(ctx, db, []string{rawClaim, rawOffer, rawEvent}); err != nil {
		return outcome{}, err
	}
	out := drain(j.Callers, func(w, i int) (bool, error) {
		if j.Kind == "raw-claims" {
			i = int(next.Add(1)) - 1
		}
		if i >= len(rows) {
			return false, nil
		}
		return true, apply(rows[i].claim(p.agents[w].Actor.ID))
	})
	end()
	return out, errors.Join(db.Close(), p.close())
}

func readRaw(ctx context.Context, db *sql.DB) ([]rawRow, error) {
	rows, err := db.QueryContext(ctx, `SELECT id, workspace_id, trace_id, created_at FROM handoffs ORDER BY created_at, id`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var list []rawRow
	for rows.Next() {
		var r rawRow
		if err := rows.Scan(&r.id, &r.workspace, &r.trace, &r.created); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// claimTable compares draining by claim-next and by id with the raw limit. Where all try the same
// ids, one answer in as many as there are callers is a claim.
func (b *bench) claimTable(name, url string) error {
	fmt.Printf("\n%s: %d open handoffs claimed by 64 agents, per second (median of %d)\n\n", name, poolSize, b.rounds)
	fmt.Println("| | raw limit | hub | ratio |")
	fmt.Println("|---|---|---|---|")
	for _, row := range []struct{ what, raw, hub string }{
		{"each takes the next one: claims", "raw-claims", "claim-next"},
		{"all try the same ids: answers", "raw-ids", "claim-ids"},
	} {
		raw := job{Database: name, URL: url, Callers: 64, Kind: row.raw}
		hub := raw
		hub.Kind = row.hub
		out, err := b.measure(raw, hub)
		if err != nil {
			return err
		}
		fmt.Printf("| %s | %.0f | %.0f | %.2f |\n", row.what, out[0].PerSecond, out[1].PerSecond, out[1].PerSecond/out[0].PerSecond)
	}
	return nil
}
