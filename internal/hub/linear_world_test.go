package hub_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// The hub that the clients of a history call, and what they saw.

const (
	linearClients = 16
	linearActors  = 12 // some clients call as the same agent
	linearSteps   = 8
	atFirst       = 7
	mostHandoffs  = 10
)

// world is a hub, or two nodes of one, that clients call and somebody restarts.
type world struct {
	t     *testing.T
	f     *hubtest.Fixture
	nodes []*node
	calls [linearActors]hub.Call
	who   map[string]int // by handle and by id
}

// node is a hub that is closed and opened again.
type node struct {
	mu     sync.Mutex
	hub    *hub.Hub
	opened chan struct{} // closed when the next hub is there
	stop   func()
}

func newWorld(t *testing.T, kind string) *world {
	f := hubtest.New(t, kind, hubtest.WithStore(func(c *store.Config) {
		c.Pause = func(store.Point) { loiter(20) }
	}))
	w := &world{t: t, f: f, who: map[string]int{}}
	for i := range w.calls {
		in := hub.AgentInput{Handle: fmt.Sprintf("a%d@acme", i), Capabilities: []string{"code"}}
		if reviews(i) {
			in.Capabilities = append(in.Capabilities, "review")
		}
		k, err := f.Hub.AddAgent(bg, hubtest.Operator(), in)
		noError(t, err)
		actor, err := f.Hub.Authenticate(bg, k.Secret)
		noError(t, err)
		w.calls[i] = hub.Call{Actor: actor}
		w.who[actor.ID], w.who[actor.Handle] = i, i
	}
	if kind == "sqlite" {
		noError(t, f.Store.Close()) // one process opens the file
	}
	for range map[string]int{"sqlite": 1, "postgres": 2}[kind] {
		n := &node{}
		n.open(w)
		w.nodes = append(w.nodes, n)
	}
	t.Cleanup(func() {
		for _, n := range w.nodes {
			n.stop()
		}
	})
	return w
}

func (n *node) open(w *world) {
	st, err := store.Open(bg, w.f.Config)
	if err != nil {
		w.t.Errorf("open store: %v", err)
		return
	}
	cfg := w.f.HubCfg
	cfg.Store = st
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.opened != nil {
		close(n.opened)
	}
	n.hub, n.opened = hub.New(cfg), make(chan struct{})
	n.stop = func() {
		n.hub.Drain()
		if err := st.Close(); err != nil {
			w.t.Errorf("close store: %v", err)
		}
	}
}

// restart is what a new version of the program does, or the same one that is started again.
func (n *node) restart(w *world) {
	n.stop()
	n.open(w)
}

func (n *node) now() (h *hub.Hub, next <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hub, n.opened
}

// loiter lets others run for a while.
func loiter(most int) {
	for range rand.IntN(most + 1) { //nolint:gosec // it delays
		runtime.Gosched()
	}
}

// history is what the clients of one run saw.
type history struct {
	*world
	root    string
	seq     atomic.Int64
	mu      sync.Mutex
	ops     []seen
	ids     []string // by number
	numbers map[string]int
	created int
	epochs  map[int]int // as somebody saw them last
	cutOff  atomic.Int64
	running map[*asked]bool
	left    sync.WaitGroup
}

// seen is a call with its answer, and its place among the others. Unheard is what the hub answered a
// client that had left.
type seen struct {
	in        asked
	out       told
	unheard   *told
	call, ret int64
}

func (w *world) record(run int) *history {
	h := &history{world: w, root: fmt.Sprintf("/srv/linear%d", run), numbers: map[string]int{}, epochs: map[int]int{}, running: map[*asked]bool{}}
	h.ids = make([]string, mostHandoffs)
	clients := make([]*client, linearClients)
	for i := range clients {
		clients[i] = &client{history: h, number: i, rnd: rand.New(rand.NewPCG(uint64(run), uint64(i))), holds: map[int]int{}} //nolint:gosec // repeatable, not secret
	}
	for i := range atFirst {
		clients[i%creators].create()
	}
	var wg sync.WaitGroup
	var done atomic.Int64
	for _, c := range clients {
		wg.Go(func() {
			for range linearSteps {
				c.step()
				if done.Add(1) == linearClients*linearSteps/2 {
					w.nodes[run%len(w.nodes)].restart(w)
				}
				loiter(30)
			}
		})
	}
	wg.Wait()
	h.left.Wait()
	for on := range h.created { // what came of it
		for h.ids[on] != "" && clients[0].do(asked{verb: "get", on: on}).unknown {
			continue
		}
	}
	h.left.Wait()
	return h
}

// number is the handoff with this id. Its creator numbered it before it had an id, and its payload
// carries the number.
func (h *history) number(id string, payload json.RawMessage) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if on, ok := h.numbers[id]; ok {
		return on
	}
	on := 0
	if err := json.Unmarshal(payload, &on); err != nil {
		h.t.Errorf("%s is known to nobody, and its payload is %q", id, payload)
		return 0
	}
	h.numbers[id], h.ids[on] = on, id
	return on
}

func (h *history) id(on int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ids[on]
}

// timePasses moves the clock, but not by as much as the shortest lease while a call runs: a write is
// given up sooner, so no lease that it grants is over before it is committed.
func (h *history) timePasses(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.f.Clock.Now()
	for in := range h.running {
		if now.Add(d).UnixMicro()-in.from > 9e6 {
			return
		}
	}
	h.f.Clock.Advance(d)
}

// begin notes that a call runs, and when it began.
func (h *history) begin(in *asked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	in.from = h.f.Clock.Now().UnixMicro()
	h.running[in] = true
}

func (h *history) end(in *asked) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, in)
}

func (h *history) add(s seen) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, s)
	if s.out.code == "" && s.out.epoch > 0 {
		h.epochs[s.out.on] = s.out.epoch
	}
}
