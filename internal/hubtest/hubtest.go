// Package hubtest is the test kit: a hub on a fresh database of either kind, a clock that the
// test owns, agents to call as, and a throw-away PostgreSQL cluster.
package hubtest

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

// Clock is a clock that the test moves.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock starts at a fixed moment.
func NewClock() *Clock { return &Clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

// Now gives the time and moves on by a microsecond, so that no two rows share theirs.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Microsecond)
	return c.now
}

// Advance moves the clock on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Kinds are the databases that every behaviour is tested on.
func Kinds() []string { return []string{"sqlite", "postgres"} }

// OnEach runs the test on both databases, in parallel, each with a fixture of these options.
func OnEach(t *testing.T, test func(t *testing.T, f *Fixture), options ...Option) {
	t.Helper()
	for _, kind := range Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, New(t, kind, options...))
		})
	}
}

// Fixture is a hub on a database of its own.
type Fixture struct {
	T       testing.TB
	Hub     *hub.Hub
	Store   *store.Store
	Clock   *Clock
	Metrics *telemetry.Metrics
	// Config is what the store was opened with, for a second node or a reopening.
	Config store.Config
	HubCfg hub.Config
	Log    *LogBuffer
}

// Option changes what a fixture is made of.
type Option func(*Fixture)

// WithHub changes the hub's configuration.
func WithHub(change func(*hub.Config)) Option { return func(f *Fixture) { change(&f.HubCfg) } }

// WithStore changes the store's configuration.
func WithStore(change func(*store.Config)) Option { return func(f *Fixture) { change(&f.Config) } }

// RealClock leaves time to the machine or the database.
func RealClock() Option { return func(f *Fixture) { f.Config.Clock = nil } }

// New makes a hub on a fresh database of the kind "sqlite" or "postgres".
func New(t testing.TB, kind string, options ...Option) *Fixture {
	t.Helper()
	f := &Fixture{T: t, Clock: NewClock(), Metrics: telemetry.New(), Log: &LogBuffer{}}
	f.Config = store.Config{Clock: f.Clock.Now, Metrics: f.Metrics, Log: slog.New(slog.NewTextHandler(f.Log, nil))}
	f.HubCfg = hub.Config{Metrics: f.Metrics, Log: f.Config.Log, PublicURL: "https://hub.example"}
	if kind == "postgres" {
		f.Config.URL = PostgresURL(t)
	} else {
		f.Config.Path = filepath.Join(t.TempDir(), "handclasp.db")
	}
	for _, o := range options {
		o(f)
	}
	f.Store, f.Hub = f.Node(f.HubCfg)
	return f
}

// Node opens another hub on the same database, as a second node would (PostgreSQL only).
func (f *Fixture) Node(cfg hub.Config) (*store.Store, *hub.Hub) {
	f.T.Helper()
	st, err := store.Open(context.Background(), f.Config)
	if err != nil {
		f.T.Fatalf("open store: %v", err)
	}
	cfg.Store = st
	h := hub.New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = h.Run(ctx)
	}()
	f.T.Cleanup(func() {
		h.Drain()
		cancel()
		<-done
		if err := st.Close(); err != nil {
			f.T.Errorf("close store: %v", err)
		}
	})
	return st, h
}

// Agent registers an agent and returns the call it makes.
func (f *Fixture) Agent(handle string) hub.Call {
	f.T.Helper()
	call, _ := f.AgentWithKey(handle)
	return call
}

// AgentWithKey registers an agent and returns its key too.
func (f *Fixture) AgentWithKey(handle string) (hub.Call, string) {
	f.T.Helper()
	k, err := f.Hub.AddAgent(context.Background(), Operator(), hub.AgentInput{Handle: handle})
	if err != nil {
		f.T.Fatalf("add agent %s: %v", handle, err)
	}
	actor, err := f.Hub.Authenticate(context.Background(), k.Secret)
	if err != nil {
		f.T.Fatalf("authenticate %s: %v", handle, err)
	}
	return hub.Call{Actor: actor}, k.Secret
}

// Operator is a call of the operator.
func Operator() hub.Call { return hub.Call{Actor: handoff.Operator()} }

// Send hands something simple from one agent to another and returns the thread id.
func (f *Fixture) Send(from hub.Call, to string) string {
	f.T.Helper()
	out, err := f.Hub.Create(context.Background(), from, hub.CreateInput{To: to, Intent: handoff.Inform, Summary: "a summary"})
	if err != nil {
		f.T.Fatalf("create: %v", err)
	}
	return out.ThreadID
}

// WantCode fails the test unless err has the code.
func WantCode(t testing.TB, err error, code handoff.Code) *handoff.Error {
	t.Helper()
	if got := handoff.CodeOf(err); got != code {
		t.Fatalf("got %q (%v), want the code %s", got, err, code)
	}
	e, _ := err.(*handoff.Error) //nolint:errorlint // hub returns it bare
	return e
}

// Eventually waits until a fact holds, and fails the test when it does not within ten seconds.
func Eventually(t testing.TB, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("it did not come about within ten seconds")
		}
	}
}

// LogBuffer collects what was logged.
type LogBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends to the log.
func (l *LogBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String is everything logged so far.
func (l *LogBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
