package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// work is a handoff as its creator reads it.
type work struct {
	ID        string `json:"handoff_id"`
	Status    string `json:"status"`
	ClaimedBy string `json:"claimed_by"`
	Epoch     int    `json:"claim_epoch"`
	Result    struct {
		By string `json:"by"`
		N  int    `json:"n"`
	} `json:"result"`
}

// event is a row of the log as the operator reads it.
type event struct {
	Type      string    `json:"type"`
	HandoffID string    `json:"handoff_id"`
	Seq       int       `json:"event_seq"`
	At        time.Time `json:"at"`
}

// count compares what the workers said with what the creator and the operator read.
func (p *pool) count(ctx context.Context, key string) {
	works := p.created(ctx, key)
	must(p.name+": the creator lists each handoff once", len(works) == len(p.offers), len(works), len(p.offers))
	for _, w := range works {
		p.judge(&w)
	}
	ok(p.name + ": every handoff is COMPLETED, by one worker that could claim it, with that worker's result")

	taken := 0
	log := p.events(ctx)
	for _, w := range works {
		story := log[w.ID]
		want := []string{"created"}
		for range w.Epoch - 1 {
			want = append(want, "claimed", "lease_lapsed")
		}
		want = append(want, "claimed", "completed")
		var got []string
		for i, e := range story {
			got = append(got, strings.TrimPrefix(e.Type, "handoff."))
			must(p.name+": the events of each handoff are dense", e.Seq == i+1, story)
		}
		must(p.name+": the log tells one completion", slices.Equal(got, want), w, got)
		if w.Epoch > 1 {
			taken++
			waited := story[len(story)-2].At.Sub(story[len(story)-4].At)
			must(p.name+": nobody takes over before the lease has lapsed", waited >= lease, waited)
		}
	}
	ok(p.name + ": the log tells the same: dense, each completed once")

	held, lost, languages, nodes := 0, 0, map[bool]int{}, map[int]int{}
	for _, w := range p.workers {
		lost += w.lost
		if w.hold > 0 {
			held += len(w.claims) - len(w.completed)
		}
		languages[strings.Contains(w.client, "mcp")] += len(w.completed)
		nodes[w.node] += len(w.completed)
	}
	check(fmt.Sprintf("%s: only what the killed ones held, %d, was claimed twice", p.name, held), held == 2*holds && taken == held+lost, held, lost, taken)
	check(fmt.Sprintf("%s: by language %v and node %v", p.name, values(languages), values(nodes)), !slices.Contains(values(languages), 0) && !slices.Contains(values(nodes), 0), p.state())
}

// judge checks one handoff against what was offered and what the workers said.
func (p *pool) judge(w *work) {
	offer := p.offers[w.ID]
	must(p.name+": the creator lists its own", offer != nil, w)
	must(p.name+": COMPLETED, with the holder's result", w.Status == "COMPLETED" && w.Result.By == w.ClaimedBy && w.Result.N == offer.n, *w, *offer)
	i := slices.IndexFunc(p.workers, func(k *worker) bool { return k.handle == w.ClaimedBy })
	must(p.name+": held by one of the workers", i >= 0, *w)
	by := p.workers[i]
	must(p.name+": by the worker that said so, under the last claim", by.completed[w.ID] && by.claims[claim{w.ID, w.Epoch}], *w)
	must(p.name+": by a worker that could claim it", offer.capability == "" || offer.capability == by.capability, *w, *offer)
}

// created reads all pages of what the creator made.
func (p *pool) created(ctx context.Context, key string) (all []work) {
	session, err := p.connect(ctx, p.nodes[len(p.nodes)-1], key)
	must("connect", err == nil, err)
	defer func() { _ = session.Close() }()
	for cursor := ""; ; {
		args := map[string]any{"project_root": root, "agent_id": creator, "scope": "mine_created", "limit": 100}
		if cursor != "" {
			args["cursor"] = cursor
		}
		var page struct {
			Handoffs []work `json:"handoffs"`
			Next     string `json:"next_cursor"`
		}
		text, err := json.Marshal(call(ctx, session, "handoff_list_available", args))
		must("a page", err == nil, err)
		err = json.Unmarshal(text, &page)
		must("a page", err == nil, err)
		all = append(all, page.Handoffs...)
		if cursor = page.Next; cursor == "" {
			return all
		}
	}
}

// events reads the log by handoff, once all is in it: on PostgreSQL a reader stays behind the oldest
// transaction that runs.
func (p *pool) events(ctx context.Context) map[string][]event {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		completed := 0
		log := map[string][]event{}
		for _, e := range operator[event](ctx, p.where, "export") {
			log[e.HandoffID] = append(log[e.HandoffID], e)
			if e.Type == "handoff.completed" {
				completed++
			}
		}
		if completed >= len(p.offers) {
			return log
		}
		select {
		case <-ctx.Done():
			must(p.name+": the log has all", false, completed)
		case <-tick.C:
		}
	}
}

func values[K comparable](m map[K]int) (list []int) {
	for _, n := range m {
		list = append(list, n)
	}
	slices.Sort(list)
	return list
}
