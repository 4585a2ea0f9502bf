package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

// Wake: how soon a parked claim returns after the create that it waits for, and what thousands of
// parked calls cost the others. The server and the callers are processes of their own.

const parkedAgents = 2_000

// wakeServer serves a hub with parkedAgents agents, each the only one that its handle is meant for,
// and prints the file of their keys.
func wakeServer(dir string) (http.Handler, error) {
	ctx := context.Background()
	metrics := telemetry.New()
	st, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, "handclasp.db"), Metrics: metrics})
	if err != nil {
		return nil, err
	}
	h := hub.New(hub.Config{Store: st, Metrics: metrics})
	keys := make([]string, parkedAgents+1)
	var wg sync.WaitGroup
	var failed atomic.Value
	for i := range keys {
		wg.Go(func() {
			k, err := h.AddAgent(ctx, hub.Call{Actor: handoff.Operator()}, hub.AgentInput{Handle: fmt.Sprintf("agent%d@bench", i)})
			if err != nil {
				failed.Store(err)
			}
			keys[i] = k.Secret
		})
	}
	wg.Wait()
	if err, ok := failed.Load().(error); ok {
		return nil, err
	}
	file := filepath.Join(dir, "keys.json")
	text, err := json.Marshal(keys)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	fmt.Println("key", file)
	mux := http.NewServeMux()
	mux.Handle("/", httpserver.New(httpserver.Config{Hub: h, Metrics: metrics, MCP: mcpserver.New(h, mcpserver.Options{
		Version: "bench", Probe: true,
		Observe: func(tool, code string) { metrics.ToolCalls.WithLabelValues(tool, code).Inc() },
	})}))
	// What is in use, without garbage.
	mux.HandleFunc("POST /free", func(w http.ResponseWriter, _ *http.Request) {
		for range 4 { // each lets a stack that was once deep shrink by half
			debug.FreeOSMemory()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		_, _ = fmt.Fprint(w, m.HeapAlloc+m.StackInuse)
	})
	return mux, nil
}

// caller makes tool calls over HTTP.
type caller struct {
	client *http.Client
	url    string
	keys   []string
}

func newCaller(url, file string) (*caller, error) {
	text, err := os.ReadFile(file) //nolint:gosec // a file of this program
	if err != nil {
		return nil, err
	}
	c := &caller{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: parkedAgents, MaxConnsPerHost: 0}}, url: url}
	return c, json.Unmarshal(text, &c.keys)
}

func (c *caller) call(ctx context.Context, agent int, tool string, args map[string]any) ([]byte, error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args}})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/mcp", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Authorization", "Bearer "+c.keys[agent])
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"isError":true`)) {
		return nil, fmt.Errorf("status %d: %.300s", resp.StatusCode, text)
	}
	return text, nil
}

func handleOf(agent int) string { return fmt.Sprintf("agent%d@bench", agent) }

func (c *caller) create(ctx context.Context, agent, to int) error {
	_, err := c.call(ctx, agent, "handoff_create", map[string]any{
		"project_root": project, "from_agent_id": handleOf(agent), "visibility": "private",
		"target": map[string]any{"strategy": "direct", "agent_id": handleOf(to)}, "payload": map[string]any{"job": "resize"},
	})
	return err
}

// parkClaim waits for a handoff of the agent's own and tells when the call returned.
func (c *caller) parkClaim(ctx context.Context, agent int) (time.Time, error) {
	text, err := c.call(ctx, agent, "handoff_claim", map[string]any{"project_root": project, "agent_id": handleOf(agent), "timeout_seconds": 50})
	if err == nil && !bytes.Contains(text, []byte(`"payload"`)) {
		err = fmt.Errorf("nothing was claimed: %.200s", text)
	}
	return time.Now(), err
}

// parked is how many calls wait at the hub.
func (c *caller) parked(ctx context.Context) (int, error) {
	n, err := c.metric(ctx, "handclasp_parked_calls")
	return int(n), err
}

func (c *caller) metric(ctx context.Context, name string) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, err
	}
	text, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return 0, err
	}
	sum := 0.0
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok && (rest[0] == ' ' || rest[0] == '{') {
			var v float64
			if _, err := fmt.Sscan(rest[strings.LastIndexByte(strings.TrimSpace(rest), ' ')+1:], &v); err != nil {
				return 0, err
			}
			sum += v
		}
	}
	return sum, nil
}

func (c *caller) untilParked(ctx context.Context, n int) error {
	for deadline := time.Now().Add(time.Minute); ; {
		at, err := c.parked(ctx)
		switch {
		case err != nil || at >= n:
			return err
		case time.Now().After(deadline):
			return fmt.Errorf("%d of %d calls are parked", at, n)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settle is how long a claim has to park before the create that it waits for is made: at random, or all
// pairs would soon go in step and wait for each other's turn on two cores.
func settle() time.Duration { return 20*time.Millisecond + rand.N(60*time.Millisecond) }

// wakeLoad lets j.Callers pairs wait for each other: a claim is parked, then a create is made for it.
// What counts is the time from the create's first byte to the claim's last.
func (j job) wakeLoad() (outcome, error) {
	ctx := context.Background()
	c, err := newCaller(j.URL, j.Key)
	if err != nil {
		return outcome{}, err
	}
	var mu sync.Mutex
	var all []time.Duration
	out := outcome{}
	var wg sync.WaitGroup
	until := time.Now().Add(warmup + j.Duration)
	for w := range j.Callers {
		wg.Go(func() {
			for i := 0; time.Now().Before(until); i++ {
				claimed := make(chan wokenAt, 1)
				go func() {
					at, err := c.parkClaim(ctx, w+1)
					claimed <- wokenAt{at, err}
				}()
				time.Sleep(settle())
				began := time.Now()
				err := c.create(ctx, 0, w+1)
				got := <-claimed
				mu.Lock()
				if err := errors.Join(err, got.err); err != nil {
					out.Errors++
					out.LastError = err.Error()
				} else if i > 2 {
					all = append(all, got.at.Sub(began))
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if len(all) > 0 {
		out.P99 = p99(all)
		out.P50 = all[len(all)/2]
	}
	out.PerSecond = float64(len(all)) / j.Duration.Seconds()
	return out, nil
}

type wokenAt struct {
	at  time.Time
	err error
}

// parkLoad parks a call of every agent with the tool of j.Path, then measures how many other calls
// a second the hub answers meanwhile, and wakes one of them.
type parkOutcome struct {
	Used      int64         `json:"used"`     // bytes that the server uses more
	Resident  int64         `json:"resident"` // bytes that it has more of the machine's
	Rate      float64       `json:"rate"`     // of other calls, while they are parked
	Alone     float64       `json:"alone"`    // of other calls, before
	Woken     int64         `json:"woken"`    // looks of parked calls that one handoff caused
	WokenTime time.Duration `json:"woken_time"`
}

func (j job) parkLoad() (parkOutcome, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out parkOutcome
	c, err := newCaller(j.URL, j.Key)
	if err != nil {
		return out, err
	}
	pid := j.Callers
	other := func() float64 {
		return work(16, 3*time.Second, func(int, int) error {
			_, err := c.call(ctx, 0, "handoff_to_teammate", map[string]any{"to": handleOf(1), "intent": "inform", "summary": "x"})
			return err
		}).PerSecond
	}
	_ = other() // the first ones fill caches
	out.Alone = other()
	usedBefore, residentBefore, err := c.inUse(ctx, pid)
	if err != nil {
		return out, err
	}
	claims := make(chan wokenAt, parkedAgents)
	for i := 1; i <= parkedAgents; i++ {
		go func() {
			if j.Path == "noop_park" {
				_, err := c.call(ctx, i, "noop_park", map[string]any{"timeout_seconds": 50})
				claims <- wokenAt{time.Now(), err}
				return
			}
			at, err := c.parkClaim(ctx, i)
			claims <- wokenAt{at, err}
		}()
		if i%100 == 0 && j.Path == "noop_park" {
			time.Sleep(100 * time.Millisecond) // it is counted nowhere
		} else if i%100 == 0 {
			if err := c.untilParked(ctx, i-10); err != nil {
				return out, err
			}
		}
	}
	if j.Path == "noop_park" {
		time.Sleep(3 * time.Second)
	} else if err := c.untilParked(ctx, parkedAgents); err != nil {
		return out, err
	}
	time.Sleep(time.Second)
	used, resident, err := c.inUse(ctx, pid)
	if err != nil {
		return out, err
	}
	out.Used, out.Resident = used-usedBefore, resident-residentBefore
	out.Rate = other()
	if j.Path == "noop_park" {
		return out, nil
	}
	looks, err := c.metric(ctx, `handclasp_parked_looks_total{cause="woken"}`)
	if err != nil {
		return out, err
	}
	began := time.Now()
	if err := c.create(ctx, 0, parkedAgents/2); err != nil {
		return out, err
	}
	got := <-claims
	out.WokenTime = got.at.Sub(began)
	after, err := c.metric(ctx, `handclasp_parked_looks_total{cause="woken"}`)
	out.Woken = int64(after - looks)
	return out, errors.Join(err, got.err)
}

// inUse is the memory that the server uses for something, and what it has of the machine.
func (c *caller) inUse(ctx context.Context, pid int) (used, resident int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/free", nil)
	if err != nil {
		return 0, 0, err
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Fscan(resp.Body, &used)
	return used, rssBytes(pid), errors.Join(err, resp.Body.Close())
}

func rssBytes(pid int) int64 {
	var pages, resident int64
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	if _, err := fmt.Sscan(string(text), &pages, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

// wake prints what the two kinds of load give.
func (b *bench) wake() error {
	measure := func(kind, path string, callers int, out any) error {
		server, err := startChild("wake")
		if err != nil {
			return err
		}
		defer server.stop()
		if kind == "park-load" {
			callers = server.cmd.Process.Pid
		}
		return job{Kind: kind, URL: server.url, Key: server.key, Path: path, Callers: callers, Duration: b.duration}.child(out)
	}
	var woken []outcome
	var claims, noop []parkOutcome
	for range b.rounds {
		var w outcome
		var c, n parkOutcome
		err := errors.Join(measure("wake-load", "", 16, &w), measure("park-load", "handoff_claim", 0, &c), measure("park-load", "noop_park", 0, &n))
		if err == nil && w.Errors > 0 {
			err = errors.New(w.LastError)
		}
		if err != nil {
			return err
		}
		woken, claims, noop = append(woken, w), append(claims, c), append(noop, n)
	}
	w := median(woken, func(o outcome) float64 { return float64(o.P50) })
	fmt.Printf("\nWake, SQLite, over HTTP, 16 pairs: from a create to the return of the claim that waits for it p50 %s, p99 %s (%.0f a second; median of %d).\n", ms(w.P50), ms(w.P99), w.PerSecond, b.rounds)
	c := median(claims, func(o parkOutcome) float64 { return o.Rate / o.Alone })
	n := median(noop, func(o parkOutcome) float64 { return float64(o.Used) })
	per := func(n int64) float64 { return float64(n) / parkedAgents / 1024 }
	fmt.Printf("%d parked claims: %.1f KiB in use each, a parked no-op %.1f KiB: %.1f KiB more (resident %.1f and %.1f KiB). Other calls: %.0f a second, %.0f without them: %.2f (while no-ops are parked %.2f). One handoff for one of them: %d looks, it returned after %s.\n",
		parkedAgents, per(c.Used), per(n.Used), per(c.Used-n.Used), per(c.Resident), per(n.Resident), c.Rate, c.Alone, c.Rate/c.Alone, n.Rate/n.Alone, c.Woken, ms(c.WokenTime))
	return nil
}

// median is the outcome in the middle.
func median[O any](list []O, by func(O) float64) O {
	slices.SortFunc(list, func(x, y O) int { return cmp.Compare(by(x), by(y)) })
	return list[len(list)/2]
}
