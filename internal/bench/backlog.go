package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"sort"
	"strings"
	"time"

	"handclasp/internal/hub"
	"handclasp/internal/store"
)

// Backlog: how long an agent with ten handoffs of its own waits for a list and for a claim, while
// more and more handoffs of others are open. Those of others are made by copying one of each kind
// that the hub wrote.

const (
	matching = 10
	samples  = 300
)

// aim is a kind of target: one that the asking agent matches, and one that it does not.
type aim struct{ name, mine, others string }

var aims = []aim{
	{"direct", `{"strategy":"direct","agent_id":"me-direct@bench"}`, `{"strategy":"direct","agent_id":"other@bench"}`},
	{"capability", `{"strategy":"capability","capability":"mine"}`, `{"strategy":"capability","capability":"theirs"}`},
	{"role", `{"strategy":"role","role":"mine"}`, `{"strategy":"role","role":"theirs"}`},
	{"tag", `{"strategy":"tag","selector":{"team":["mine"]}}`, `{"strategy":"tag","selector":{"team":["theirs"]}}`},
	{
		"direct_with_fallback", `{"strategy":"direct_with_fallback","agent_id":"me-direct_with_fallback@bench","fallback_after_seconds":2592000}`,
		`{"strategy":"direct_with_fallback","agent_id":"other@bench","fallback_after_seconds":2592000}`,
	},
	{"broadcast", `{"strategy":"broadcast"}`, ""}, // everybody matches it
}

// exclusion is reported apart: what it excludes stands in everybody's way, but comes last.
var exclusion = aim{"NotIn", `{"strategy":"tag","selector":[{"key":"team","operator":"NotIn","values":["theirs"]}]}`, `{"strategy":"tag","selector":[{"key":"team","operator":"NotIn","values":["any"]}]}`}

// backlogOutcome is what one size gives, by kind.
type backlogOutcome struct {
	List  map[string]time.Duration `json:"list"`
	Claim map[string]time.Duration `json:"claim"`
}

// asker registers the agent that asks for one kind.
func asker(ctx context.Context, h *hub.Hub, name string) (hub.Call, error) {
	in := hub.AgentInput{Handle: "me-" + name + "@bench", Tags: map[string][]string{"team": {"any"}}}
	switch name {
	case "capability":
		in.Capabilities = []string{"mine"}
	case "role":
		in.Role = "mine"
	case "tag":
		in.Tags = map[string][]string{"team": {"any", "mine"}}
	}
	return register(ctx, h, in)
}

// backlog measures one size, j.Callers being how many handoffs of others are open.
func (j job) backlog() (backlogOutcome, error) {
	debug.SetGCPercent(400)
	ctx := context.Background()
	out := backlogOutcome{List: map[string]time.Duration{}, Claim: map[string]time.Duration{}}
	p, err := fresh(j.Database, j.URL)
	if err != nil {
		return out, err
	}
	st, err := store.Open(ctx, p.cfg)
	if err != nil {
		return out, err
	}
	h := hub.New(hub.Config{Store: st, PublicURL: "https://hub.example"})
	kinds := aims
	if j.Key == exclusion.name {
		kinds = []aim{exclusion}
	}
	creator, err := register(ctx, h, hub.AgentInput{Handle: "creator@bench"})
	if err == nil {
		_, err = register(ctx, h, hub.AgentInput{Handle: "other@bench", Role: "theirs", Capabilities: []string{"theirs"}, Tags: map[string][]string{"team": {"theirs"}}})
	}
	askers := map[string]hub.Call{}
	for _, k := range kinds {
		if err == nil {
			askers[k.name], err = asker(ctx, h, k.name)
		}
	}
	templates := map[string]string{}
	for _, k := range kinds {
		if k.others != "" && err == nil {
			templates[k.name], err = offer(ctx, h, creator, k.others)
		}
	}
	if err := errors.Join(err, st.Close()); err != nil {
		return out, err
	}
	for _, id := range templates {
		if err := copies(ctx, j.Database, p, id, j.Callers/len(templates)); err != nil {
			return out, err
		}
	}
	if st, err = store.Open(ctx, p.cfg); err != nil {
		return out, err
	}
	h = hub.New(hub.Config{Store: st, PublicURL: "https://hub.example"})
	for _, k := range kinds {
		for range matching {
			if _, err := offer(ctx, h, creator, k.mine); err != nil {
				return out, err
			}
		}
	}
	for _, k := range kinds {
		if err := ask(ctx, h, askers[k.name], k, j.Callers, &out); err != nil {
			return out, fmt.Errorf("%s: %w", k.name, err)
		}
	}
	return out, errors.Join(st.Close(), p.close())
}

func offer(ctx context.Context, h *hub.Hub, creator hub.Call, target string) (string, error) {
	o, err := h.Open(ctx, creator, hub.OpenInput{ProjectRoot: project, From: creator.Actor.Handle, Target: json.RawMessage(target), Visibility: "private"})
	return o.HandoffID, err
}

// ask lists and claims, and gives back what it claimed.
func ask(ctx context.Context, h *hub.Hub, me hub.Call, k aim, open int, out *backlogOutcome) error {
	var lists, claims []time.Duration
	n, warm := samples, 20
	if k.name == exclusion.name && open > 10_000 { // each takes seconds
		n, warm = 3, 0
	}
	for i := range n + warm {
		began := time.Now()
		listed, pages := 0, 0
		for cursor := ""; pages == 0 || cursor != ""; pages++ { // more than one where a heap does not fit
			page, err := h.Available(ctx, me, hub.AvailableInput{ProjectRoot: project, AgentID: me.Actor.Handle, Cursor: cursor})
			if err != nil {
				return err
			}
			listed, cursor = listed+len(page.Works), page.NextCursor
		}
		took := time.Since(began)
		if listed < matching {
			return fmt.Errorf("%d listed", listed)
		}
		began = time.Now()
		var got hub.ClaimResult
		for tries := 0; got.Work == nil; tries++ {
			if tries > 100 {
				return errors.New("nothing to claim")
			}
			var err error
			if got, err = h.Claim(ctx, me, hub.ClaimInput{ProjectRoot: project, AgentID: me.Actor.Handle}); err != nil {
				return err
			}
		}
		claimed := time.Since(began)
		epoch := got.Work.Handoff.Epoch
		if _, err := h.Release(ctx, me, hub.ReleaseInput{HoldInput: hub.HoldInput{ProjectRoot: project, AgentID: me.Actor.Handle, ThreadID: got.Work.Handoff.ID, ClaimEpoch: &epoch}}); err != nil {
			return err
		}
		if i >= warm {
			lists, claims = append(lists, took), append(claims, claimed)
		}
	}
	out.List[k.name], out.Claim[k.name] = p99(lists), p99(claims)
	return nil
}

func p99(all []time.Duration) time.Duration {
	sort.Slice(all, func(i, j int) bool { return all[i] < all[j] })
	return all[len(all)*99/100]
}

// copies writes n handoffs like the one that has the id, with its place among the offers.
func copies(ctx context.Context, database string, p place, id string, n int) error {
	db, err := open(database, p)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	rows, err := db.QueryContext(ctx, "SELECT * FROM handoffs LIMIT 0")
	if err != nil {
		return err
	}
	columns, err := rows.Columns()
	if err := errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return err
	}
	values := make([]string, len(columns))
	for i, c := range columns {
		switch values[i] = "t." + c; c {
		case "id":
			values[i] = "t.id || '-' || n.i"
		case "created_at", "updated_at":
			values[i] = "t." + c + " + n.i"
		}
	}
	const chunk = 50_000 // SQLite keeps what a statement would have to take back in memory
	for from := 0; from < n; from += chunk {
		counted := fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT %d UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", from+1, min(from+chunk, n))
		for _, q := range []string{
			fmt.Sprintf("INSERT INTO handoffs (%s) SELECT %s FROM handoffs t, n WHERE t.id = '%s'", strings.Join(columns, ", "), strings.Join(values, ", "), id),
			fmt.Sprintf("INSERT INTO offers (target_key, workspace_id, rank, position, handoff_id) SELECT o.target_key, o.workspace_id, o.rank, o.position + n.i, o.handoff_id || '-' || n.i FROM offers o, n WHERE o.handoff_id = '%s'", id),
		} {
			if _, err := db.ExecContext(ctx, counted+q); err != nil {
				return err
			}
		}
	}
	if database == "postgres" {
		_, err = db.ExecContext(ctx, "ANALYZE handoffs, offers")
	}
	return err
}

var backlogSizes = []int{1_000, 100_000, 1_000_000}

// backlogTable shows the 99th percentile by kind and size, and how much the largest costs more.
func (b *bench) backlogTable(name, url string) error {
	measured := map[int]backlogOutcome{}
	for _, size := range backlogSizes {
		all := backlogOutcome{List: map[string]time.Duration{}, Claim: map[string]time.Duration{}}
		for _, key := range []string{"", exclusion.name} {
			var out backlogOutcome
			if err := (job{Kind: "backlog", Database: name, URL: url, Callers: size, Key: key}).child(&out); err != nil {
				return err
			}
			for k := range out.List {
				all.List[k], all.Claim[k] = out.List[k], out.Claim[k]
			}
		}
		measured[size] = all
	}
	fmt.Printf("\n%s: p99 for an agent with %d handoffs of its own among others', %d samples\n\n", name, matching, samples)
	fmt.Println("| target | list at 1,000 | at 100,000 | at 1,000,000 | ratio | claim-next at 1,000 | at 100,000 | at 1,000,000 | ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|")
	for _, k := range append(append([]aim(nil), aims...), exclusion) {
		fmt.Printf("| %s |", k.name)
		for _, of := range []func(backlogOutcome) time.Duration{
			func(o backlogOutcome) time.Duration { return o.List[k.name] }, func(o backlogOutcome) time.Duration { return o.Claim[k.name] },
		} {
			for _, size := range backlogSizes {
				fmt.Printf(" %s |", ms(of(measured[size])))
			}
			fmt.Printf(" %.2f |", float64(of(measured[1_000_000]))/float64(of(measured[1_000])))
		}
		fmt.Println()
	}
	return nil
}

func (b *bench) backlog() error {
	if err := b.backlogTable("sqlite", ""); err != nil {
		return err
	}
	return onPostgres(b.backlogTable)
}
