package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/hubtest"
)

const (
	creator = "boss@acme"
	root    = "/srv/drain"
	// lease is what the workers ask for; that of a killed one lapses after it.
	lease = 10 * time.Second
	// holds is how many handoffs a worker holds when it is killed.
	holds = 3
)

// pool is one run: some nodes of a hub on one database, the workers, and what they said.
type pool struct {
	name    string
	where   []string // flags that name the database
	hubs    []*process
	nodes   []string // their addresses
	workers []*worker
	offers  map[string]*offer // by handoff id
	said    chan said
}

// offer is a handoff of the pool.
type offer struct {
	n          int
	capability string // that its claimant needs; empty for any
}

// worker is a process that claims and completes until it is told to stop.
type worker struct {
	*process
	handle, client, capability string
	node                       int
	hold                       int // it is killed once it holds so many
	ready, holding             bool
	claims                     map[claim]bool
	completed                  map[string]bool
	lost                       int
}

type claim struct {
	id    string
	epoch int
}

// said is a line of a worker.
type said struct {
	by                 *worker
	Ready              bool
	Claimed, Completed string
	Lost               string
	Epoch, Holding     int
	ended              bool
	garbled            string
}

// drain lets eight workers empty a pool. CLIENTS is the folder of the programs, NODE and PYTHON run
// them, HUB_BINARY is the hub, WORK a folder for data.
func drain(ctx context.Context, database string) int {
	ctx, cancel := context.WithCancel(ctx)
	p := &pool{name: "the pool on SQLite", said: make(chan said, 1000), offers: map[string]*offer{}}
	defer func() { // also after a failed check
		cancel()
		for _, w := range p.workers {
			<-w.exited
		}
		for _, hub := range p.hubs {
			<-hub.exited
		}
	}()
	nodes, count := 1, 400
	if database == "postgres" {
		nodes, count, p.name = 2, 200, "the pool on PostgreSQL with two nodes"
		if _, err := hubtest.PostgresBin(); err != nil {
			must("HANDCLASP_REQUIRE names postgres", !strings.Contains(","+os.Getenv("HANDCLASP_REQUIRE")+",", ",postgres,"), err)
			fmt.Printf("not run: %s, for there are no server programs\n", p.name)
			return 0
		}
		cluster, err := hubtest.StartCluster(false)
		must("start PostgreSQL", err == nil, err)
		defer func() { _ = cluster.Close() }()
		p.where = []string{"--database-url", cluster.URL("postgres")}
	} else {
		p.where = []string{"--data", filepath.Join(os.Getenv("WORK"), "drain")}
	}
	for range nodes {
		hub, url := serve(ctx, p.where)
		p.hubs, p.nodes = append(p.hubs, hub), append(p.nodes, url)
	}
	boss := p.register(ctx, creator)
	p.hire(ctx)
	p.listen(p.allReady)
	began := time.Now()
	p.fill(ctx, boss, count)
	p.listen(p.allHolding)
	for _, w := range p.workers {
		if w.hold > 0 {
			w.kill()
		}
	}
	killed := time.Now()
	p.listen(p.allDone)
	taken := time.Since(killed)
	check(fmt.Sprintf("%s: what two killed workers held was done by others in %.1f s", p.name, taken.Seconds()), taken < lease+10*time.Second)
	p.dismiss(ctx, boss)
	p.count(ctx, boss)
	fmt.Printf("%s: %d handoffs, %d workers, %.1f s\n", p.name, count, len(p.workers), time.Since(began).Seconds())
	return 0
}

// register adds an agent and gives its key.
func (p *pool) register(ctx context.Context, handle string, capabilities ...string) string {
	args := []string{"agent", "add", handle, "--json"}
	for _, c := range capabilities {
		args = append(args, "--capability", c)
	}
	type key struct {
		Secret string `json:"api_key"`
	}
	return operator[key](ctx, p.where, args...)[0].Secret
}

// hire starts the workers: four in TypeScript and four in Python, by two libraries each, spread over
// the nodes. One of each language is to be killed. Without Python all are in TypeScript.
func (p *pool) hire(ctx context.Context) {
	clients := []string{"older", "modern", "older", "modern", "mcp", "fastmcp", "mcp", "fastmcp"}
	python := os.Getenv("PYTHON")
	if python == "" {
		copy(clients[4:], clients[:4])
		fmt.Println("not run: workers in Python")
	}
	for i, client := range clients {
		w := &worker{
			handle: fmt.Sprintf("w%d@acme", i), client: client, capability: []string{"go", "sql"}[i/2%2], node: i % len(p.nodes),
			claims: map[claim]bool{}, completed: map[string]bool{},
		}
		if i%4 == 3 {
			w.hold = holds
		}
		me, err := json.Marshal(map[string]any{
			"url": p.nodes[w.node] + "/mcp/pool", "key": p.register(ctx, w.handle, w.capability), "handle": w.handle, "root": root, "client": client, "hold": w.hold,
		})
		must("encode", err == nil, err)
		program, script := os.Getenv("NODE"), "worker.mjs"
		if client == "mcp" || client == "fastmcp" {
			program, script = python, "worker.py"
		}
		cmd := exec.CommandContext(ctx, program, filepath.Join(os.Getenv("CLIENTS"), script))
		cmd.Env = append(os.Environ(), "WORKER="+string(me))
		w.process = start(ctx, cmd, true, func(line string) {
			s := said{by: w}
			if json.Unmarshal([]byte(line), &s) != nil {
				s.garbled = line
			}
			p.said <- s
		})
		go func() { <-w.exited; p.said <- said{by: w, ended: true} }()
		p.workers = append(p.workers, w)
	}
}

// listen takes down what the workers say until it is enough.
func (p *pool) listen(enough func() bool) {
	for late := time.After(2 * time.Minute); !enough(); {
		select {
		case s := <-p.said:
			p.note(s)
		case <-late:
			must(p.name+": the workers go on", false, p.state())
		}
	}
}

func (p *pool) note(s said) {
	w := s.by
	must(p.name+": "+w.handle+" speaks JSON", s.garbled == "", s.garbled)
	must(p.name+": "+w.handle+" goes on", !s.ended || w.holding, w.state)
	switch {
	case s.Ready:
		w.ready = true
	case s.Holding > 0:
		w.holding = true
	case s.Lost != "":
		w.lost++
	case s.Claimed != "":
		c := claim{s.Claimed, s.Epoch}
		for _, other := range p.workers {
			must(p.name+": no claim is given out twice", !other.claims[c], c, other.handle, w.handle)
		}
		w.claims[c] = true
	case s.Completed != "":
		for _, other := range p.workers {
			must(p.name+": nothing is completed twice", !other.completed[s.Completed], s.Completed, other.handle, w.handle)
		}
		must(p.name+": who completes has claimed", w.claims[claim{s.Completed, s.Epoch}], s.Completed, w.handle)
		w.completed[s.Completed] = true
	}
}

func (p *pool) allReady() bool {
	return !slices.ContainsFunc(p.workers, func(w *worker) bool { return !w.ready })
}

func (p *pool) allHolding() bool {
	return !slices.ContainsFunc(p.workers, func(w *worker) bool { return w.hold > 0 && !w.holding })
}

func (p *pool) allDone() bool { return p.done() == len(p.offers) }

func (p *pool) done() (n int) {
	for _, w := range p.workers {
		n += len(w.completed)
	}
	return n
}

func (p *pool) state() string {
	var lines []string
	for _, w := range p.workers {
		lines = append(lines, fmt.Sprintf("%s (%s, %s): ready %t, %d claims, %d completed, holding %t", w.handle, w.client, w.capability, w.ready, len(w.claims), len(w.completed), w.holding))
	}
	return fmt.Sprintf("%d of %d done\n%s", p.done(), len(p.offers), strings.Join(lines, "\n"))
}

// fill offers handoffs through all nodes while the workers are parked, and then busy.
func (p *pool) fill(ctx context.Context, key string, count int) {
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed []error
	const callers = 4
	for c := range callers {
		all.Go(func() {
			session, err := p.connect(ctx, p.nodes[c%len(p.nodes)], key)
			for i := c; err == nil && i < count; i += callers {
				target, o := map[string]any{"strategy": "broadcast"}, &offer{n: i}
				if i%3 > 0 {
					o.capability = []string{"go", "sql"}[i%3-1]
					target = map[string]any{"strategy": "capability", "capability": o.capability}
				}
				var id string
				if id, err = create(ctx, session, target, map[string]any{"n": i}); err == nil {
					mu.Lock()
					p.offers[id] = o
					mu.Unlock()
				}
			}
			if session != nil {
				err = errors.Join(err, session.Close())
			}
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		})
	}
	all.Wait()
	err := errors.Join(failed...)
	check(fmt.Sprintf("%s: %d handoffs are offered", p.name, count), err == nil && len(p.offers) == count, err)
}

func (p *pool) connect(ctx context.Context, node, key string) (*mcp.ClientSession, error) {
	return mcp.NewClient(&mcp.Implementation{Name: "handclasp-interop", Version: "0.0.0"}, nil).Connect(ctx, overHTTP(node+"/mcp/pool", key), nil)
}

func create(ctx context.Context, as *mcp.ClientSession, target, payload map[string]any) (string, error) {
	result, err := as.CallTool(ctx, &mcp.CallToolParams{Name: "handoff_create", Arguments: map[string]any{
		"project_root": root, "from_agent_id": creator, "target": target, "visibility": "eligible", "payload": payload,
	}})
	if err != nil {
		return "", err
	}
	out, _ := result.StructuredContent.(map[string]any)
	id, made := out["handoff_id"].(string)
	if result.IsError || !made {
		return "", fmt.Errorf("handoff_create: %v", out)
	}
	return id, nil
}

// dismiss ends each worker that is left by a handoff of its own.
func (p *pool) dismiss(ctx context.Context, key string) {
	session, err := p.connect(ctx, p.nodes[0], key)
	must("connect", err == nil, err)
	defer func() { _ = session.Close() }()
	for _, w := range p.workers {
		if w.hold > 0 {
			continue
		}
		w.holding = true // its end is what we want
		id, err := create(ctx, session, map[string]any{"strategy": "direct", "agent_id": w.handle}, map[string]any{"n": -1, "stop": true})
		must("create", err == nil, err)
		p.offers[id] = &offer{n: -1}
	}
	p.listen(p.allDone)
	for _, w := range p.workers {
		<-w.exited
		must(p.name+": "+w.handle+" ends well", w.hold > 0 || w.state == nil, w.state)
	}
}
