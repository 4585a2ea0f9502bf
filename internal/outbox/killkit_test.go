package outbox_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	netmail "net/mail"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/notify"
	"handclasp/internal/outbox"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

// nodeEnv makes this test's program a node: a hub with an outbox that sends mail, until its stdin ends.
const nodeEnv = "HANDCLASP_TEST_SENDS"

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeEnv); text != "" {
		if err := runNode(text); err != nil {
			fmt.Println("failed", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(hubtest.Main(m))
}

// nodeSpec says what a node is. It initiates a handoff for each line of its stdin, "initiate KEY".
// After "later DURATION" its clock is ahead by that.
type nodeSpec struct {
	Path, URL, Key string
	Port           int
	HELO           string
	// Hold is a moment of the first send at which the node stands still until it is killed; empty for
	// never. A point of a write is "commits 2", of the second one.
	Hold string
}

// holdWhenAnswered is when the sender knows its outcome. The writes are the initiate, the taking and the
// report.
const holdWhenAnswered = "answered"

var pointWords = map[store.Point]string{store.Begins: "begins", store.Commits: "commits", store.Ends: "ends"}

// runNode is the child. It says on stdout where it holds and which handoffs were acknowledged.
func runNode(text string) error {
	var spec nodeSpec
	if err := json.Unmarshal([]byte(text), &spec); err != nil {
		return err
	}
	var out sync.Mutex
	say := func(words ...any) {
		out.Lock()
		defer out.Unlock()
		fmt.Println(words...)
	}
	hold := func(at string) {
		if at == spec.Hold {
			say("at", at)
			select {}
		}
	}
	var ahead atomic.Int64
	var armed atomic.Bool
	var counts [3]atomic.Int64
	cfg := store.Config{Path: spec.Path, URL: spec.URL}
	cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	cfg.Pause = func(at store.Point) {
		if armed.Load() {
			hold(fmt.Sprint(pointWords[at], " ", counts[at].Add(1)))
		}
	}
	ctx := context.Background()
	n, err := openNode(cfg, spec.Port, spec.HELO)
	if err != nil {
		return err
	}
	go func() { _ = n.hub.Run(ctx) }()
	actor, err := n.hub.Authenticate(ctx, spec.Key)
	if err != nil {
		return err
	}
	if _, err := n.hub.TakeDeliveries(ctx, hub.Lane{Channel: handoff.ChannelEmail}, 0); err != nil { // makes the secret that it needs
		return err
	}
	send := senderFunc(func(ctx context.Context, what handoff.Notification) handoff.Outcome {
		o := n.mail.Send(ctx, what)
		hold(holdWhenAnswered)
		return o
	})
	go func() { _ = outbox.Send(ctx, n.hub, send, slog.New(slog.DiscardHandler), telemetry.New()) }()
	armed.Store(true) // a look at what is not there writes nothing: the next write is the initiate
	say("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, word, _ := strings.Cut(lines.Text(), " ")
		switch verb {
		case "later":
			d, err := time.ParseDuration(word)
			if err != nil {
				return err
			}
			ahead.Store(int64(d))
		case "initiate":
			go func() {
				got, err := n.hub.Initiate(ctx, hub.Call{Actor: actor}, toTheShop(word))
				if err != nil {
					say("failed", err)
					return
				}
				say("acknowledged", word, got.HandoffID)
			}()
		}
	}
	return nil
}

func toTheShop(key string) hub.InitiateInput {
	return hub.InitiateInput{Slug: "shop", Mode: "human", IdempotencyKey: key, Reason: "the reason of " + key}
}

type senderFunc func(context.Context, handoff.Notification) handoff.Outcome

func (f senderFunc) Send(ctx context.Context, n handoff.Notification) handoff.Outcome {
	return f(ctx, n)
}

// node is a hub with what it sends mail with.
type node struct {
	st   *store.Store
	hub  *hub.Hub
	mail *notify.Email
}

func openNode(cfg store.Config, port int, helo string) (*node, error) {
	mail, err := notify.NewEmail(notify.EmailConfig{
		Host: "127.0.0.1", Port: port, TLS: notify.TLSNone, HELO: helo, From: netmail.Address{Name: "The Desk", Address: "desk@hub.example"},
	})
	if err != nil {
		return nil, err
	}
	st, err := store.Open(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	return &node{st: st, mail: mail, hub: hub.New(hub.Config{Store: st, Mail: true, PublicURL: "https://hub.example"})}, nil
}

// desk is a database with a business and an agent, which nodes come and go on.
type desk struct {
	t    *testing.T
	cfg  store.Config
	key  string
	anna hub.Call
	mail *mailServer
}

func newDesk(t *testing.T, kind string) *desk {
	t.Helper()
	d := &desk{t: t, mail: startMail(t)}
	if kind == "postgres" {
		d.cfg.URL = hubtest.PostgresURL(t)
	} else {
		d.cfg.Path = filepath.Join(t.TempDir(), "handclasp.db")
	}
	n, err := openNode(d.cfg, d.mail.port, "maker.example")
	if err != nil {
		t.Fatal(err)
	}
	f := &hubtest.Fixture{T: t, Hub: n.hub}
	f.Shop()
	d.anna, d.key = f.AgentWithKey("anna@acme")
	if err := n.st.Close(); err != nil {
		t.Fatal(err)
	}
	return d
}

// starts runs a node in a process of its own.
func (d *desk) starts(helo, hold string) *process {
	d.t.Helper()
	spec, err := json.Marshal(nodeSpec{Path: d.cfg.Path, URL: d.cfg.URL, Key: d.key, Port: d.mail.port, HELO: helo, Hold: hold})
	if err != nil {
		d.t.Fatal(err)
	}
	p := &process{t: d.t, cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+string(spec))
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	})
	p.end = sync.OnceFunc(func() { _ = p.in.Close(); reading.Wait(); _ = p.cmd.Wait() })
	d.t.Cleanup(p.end)
	p.hears("ready")
	return p
}

// later opens a node in this process, for which the leases of the others are over.
func (d *desk) later() *node {
	d.t.Helper()
	cfg := d.cfg
	cfg.Clock = func() time.Time { return time.Now().Add(2 * handoff.SendLease) }
	n, err := openNode(cfg, d.mail.port, "later.example")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		if err := n.st.Close(); err != nil {
			d.t.Error(err)
		}
	})
	return n
}

// sends lets a node send until all is done.
func (d *desk) sends(n *node) {
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = outbox.Send(ctx, n.hub, n.mail, slog.New(slog.DiscardHandler), telemetry.New()) })
	d.t.Cleanup(func() { end(); wg.Wait() })
}

// deliveries are all that the database knows, or those of one state.
func (d *desk) deliveries(n *node, states ...string) []handoff.Delivery {
	d.t.Helper()
	var all []handoff.Delivery
	for before := ""; ; before = all[len(all)-1].ID {
		list, err := n.hub.Deliveries(d.t.Context(), hubtest.Operator(), hub.DeliveryQuery{States: states, Before: before, Limit: 50})
		if err != nil {
			d.t.Fatal(err)
		}
		if all = append(all, list...); len(list) < 50 {
			return all
		}
	}
}

// process is a node in another process.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	end   func()
	// acknowledged are the handoffs of the calls that were answered, by key.
	acknowledged map[string]string
}

func (p *process) says(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// hears waits for a line that begins so.
func (p *process) hears(want string) {
	p.t.Helper()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for {
		select {
		case line, more := <-p.lines:
			p.notes(line)
			if !more {
				p.t.Fatalf("the node ended before it said %q", want)
			}
			if strings.HasPrefix(line, want) {
				return
			}
		case <-late.C:
			p.t.Fatalf("the node did not say %q within 30 s", want)
		}
	}
}

func (p *process) notes(line string) {
	p.t.Helper()
	words := strings.Fields(line)
	switch {
	case len(words) == 3 && words[0] == "acknowledged":
		if p.acknowledged == nil {
			p.acknowledged = map[string]string{}
		}
		p.acknowledged[words[1]] = words[2]
	case len(words) > 0 && words[0] == "failed":
		p.t.Errorf("the node says: %s", line)
	}
}

// kill ends the process as a crash does, and reads what it had said.
func (p *process) kill() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		p.t.Fatal(err)
	}
	p.end()
	for line := range p.lines {
		p.notes(line)
	}
	if status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		p.t.Fatalf("the node ended by itself: %v", p.cmd.ProcessState)
	}
}
