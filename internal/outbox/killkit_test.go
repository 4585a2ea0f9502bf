package outbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
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

	"github.com/emersion/go-smtp"

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

// The moments, besides the points of the three writes: the initiate, the taking, the report.
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
	var watching, armed atomic.Bool
	var counts [3]atomic.Int64
	quiet := make(chan struct{})
	quieten := sync.OnceFunc(func() { close(quiet) })
	cfg := store.Config{Path: spec.Path, URL: spec.URL}
	cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	cfg.Pause = func(at store.Point) {
		if armed.Load() {
			hold(fmt.Sprint(pointWords[at], " ", counts[at].Add(1)))
		} else if at == store.Ends && watching.Load() {
			quieten()
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
	if _, err := n.hub.TakeDeliveries(ctx, 0); err != nil { // makes the secret that it needs
		return err
	}
	send := senderFunc(func(ctx context.Context, what handoff.Notification) handoff.Outcome {
		o := n.mail.Send(ctx, what)
		hold(holdWhenAnswered)
		return o
	})
	watching.Store(true)
	go func() { _ = outbox.Send(ctx, n.hub, send, slog.New(slog.DiscardHandler), telemetry.New()) }()
	<-quiet // its first look is over, so that the next write is the initiate
	armed.Store(true)
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

// The moments of a session at which a mail server can stand still.
const (
	atArrival = iota // the connection is there, and nothing was said
	atEHLO           // each before the answer to that
	atMail
	atRcpt
	atData
	atDot    // the whole mail is there
	atQuit   // its sender knows that it is
	inBody   // half of the mail is there
	afterDot // the answer to the mail was written
)

// mailServer is a real one that keeps what it gets and can hold a session.
type mailServer struct {
	port    int
	mu      sync.Mutex
	refusal *smtp.SMTPError // answers RCPT, if set
	// holds says whether a session is to stand still at a moment; nil for never. helo is empty before
	// that is said, and number counts from 1.
	holds    func(helo string, number, moment int) bool
	sessions int
	mail     []arrived
	held     map[string]int // by helo
	release  chan struct{}
}

// arrived is a mail.
type arrived struct {
	helo, id string
	text     string
}

func startMail(t *testing.T) *mailServer {
	t.Helper()
	s := &mailServer{held: map[string]int{}, release: make(chan struct{})}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		w := c.Conn().(*wire)
		w.helo = c.Hostname()
		return &mailSession{s, w}, nil
	}))
	server.Domain, server.ErrorLog = "localhost", silent{}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(&wires{l, s}) }()
	t.Cleanup(func() { s.letGo(); _ = server.Close(); <-done })
	return s
}

// letGo lets all sessions go on.
func (s *mailServer) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = nil
	select {
	case <-s.release:
	default:
		close(s.release)
	}
}

func (s *mailServer) hold(holds func(helo string, number, moment int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = holds
}

// refuses answers every recipient with a code; 0 ends that.
func (s *mailServer) refuses(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = nil
	if code != 0 {
		s.refusal = &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 0, 0}, Message: "not this one"}
	}
}

// standing is how many sessions of a node stand still.
func (s *mailServer) standing(helo string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[helo]
}

func (s *mailServer) all() []arrived {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrived(nil), s.mail...)
}

type wires struct {
	net.Listener
	s *mailServer
}

func (l *wires) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.sessions++
	return &wire{Conn: c, s: l.s, number: l.s.sessions}, nil
}

// wire is a connection that knows how far its session is.
type wire struct {
	net.Conn
	s      *mailServer
	helo   string
	number int
	said   int // answers
	cut    bool
}

// stands holds the session where that is wanted.
func (w *wire) stands(moment int) (held bool) {
	w.s.mu.Lock()
	held = w.s.holds != nil && w.s.holds(w.helo, w.number, moment)
	if held {
		w.s.held[w.helo]++
	}
	w.s.mu.Unlock()
	if held {
		<-w.s.release
	}
	return held
}

func (w *wire) Write(p []byte) (int, error) {
	if len(p) < 4 || p[3] != ' ' { // a line of an answer that goes on
		return w.Conn.Write(p)
	}
	moment := w.said
	w.said++
	w.stands(moment)
	n, err := w.Conn.Write(p)
	if moment == atDot {
		w.stands(afterDot)
	}
	return n, err
}

func (w *wire) Read(p []byte) (int, error) {
	if w.cut {
		return 0, io.ErrUnexpectedEOF
	}
	if w.said == atData+1 && len(p) > 300 {
		n, err := w.Conn.Read(p[:300])
		if w.stands(inBody) {
			w.cut = true // what was under way to the server is lost
		}
		return n, err
	}
	return w.Conn.Read(p)
}

type mailSession struct {
	s *mailServer
	w *wire
}

func (m *mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (m *mailSession) Rcpt(string, *smtp.RcptOptions) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.refusal != nil {
		return m.s.refusal
	}
	return nil
}

func (m *mailSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	msg, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	id, _, _ := strings.Cut(strings.Trim(msg.Header.Get("Message-Id"), "<>"), "@")
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.mail = append(m.s.mail, arrived{m.w.helo, id, string(raw)})
	return nil
}

func (*mailSession) Reset()        {}
func (*mailSession) Logout() error { return nil }

type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}
