package store_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

func TestMain(m *testing.M) { os.Exit(hubtest.Main(m)) }

// fixture is a store on a database of its own.
type fixture struct {
	*store.Store
	t   testing.TB
	cfg store.Config
	log *hubtest.LogBuffer
	// closed tells that the test closed the store itself.
	closed bool
}

// Close closes the store before the test's end.
func (f *fixture) Close() error {
	f.closed = true
	return f.Store.Close()
}

// config names a fresh database of the kind.
func config(t testing.TB, kind string) store.Config {
	t.Helper()
	if kind == "postgres" {
		return store.Config{URL: hubtest.PostgresURL(t)}
	}
	return store.Config{Path: filepath.Join(t.TempDir(), "handclasp.db")}
}

// open opens a store that the test's end closes.
func open(t testing.TB, cfg store.Config) *fixture {
	t.Helper()
	f := &fixture{t: t, cfg: cfg, log: &hubtest.LogBuffer{}}
	f.cfg.Log, f.cfg.Metrics = slog.New(slog.NewTextHandler(f.log, nil)), telemetry.New()
	st, err := store.Open(context.Background(), f.cfg)
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	f.Store = st
	t.Cleanup(func() {
		if n := st.InUse(); n != 0 && !t.Failed() && !f.closed {
			t.Errorf("%d connections were not given back", n)
		}
		if err := st.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	})
	return f
}

// onEach runs the test on both databases.
func onEach(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, open(t, config(t, kind)))
		})
	}
}

// add is a write that leaves one trace: an agent of that name.
func add(name string) func(*store.Tx) error { return addLarge(name, 0) }

// addLarge is add with that many bytes on top, in an event.
func addLarge(name string, bytes int) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		err := tx.InsertAgent(&store.AgentRow{Agent: handoff.Agent{ID: name, Handle: name, Role: strings.Repeat("x", min(bytes, 1000))}}, tx.Now())
		if err != nil || bytes == 0 {
			return err
		}
		return tx.InsertEvent(&handoff.Event{Type: handoff.EventAgentAdded, SubjectID: name, TraceID: strings.Repeat("x", bytes), At: tx.Now()})
	}
}

// there lists the traces that are in the database.
func (f *fixture) there() []string {
	f.t.Helper()
	var names []string
	if err := f.Read(context.Background(), func(tx *store.Tx) error {
		agents, err := tx.Agents()
		names = nil
		for _, a := range agents {
			names = append(names, a.ID)
		}
		return err
	}); err != nil {
		f.t.Fatalf("read what is there: %v", err)
	}
	slices.Sort(names)
	return names
}

// thereOnDisk closes the store, opens the database without any injected fault, and lists the
// traces in it.
func (f *fixture) thereOnDisk() []string {
	f.t.Helper()
	if err := f.Close(); err != nil {
		f.t.Fatalf("close store: %v", err)
	}
	cfg := f.cfg
	cfg.VFS = ""
	return open(f.t, cfg).there()
}

// write runs fn and fails the test if it is not written.
func (f *fixture) write(fn func(*store.Tx) error) {
	f.t.Helper()
	if err := f.Write(context.Background(), fn); err != nil {
		f.t.Fatalf("write: %v", err)
	}
}

// read runs fn and fails the test if it fails.
func (f *fixture) read(fn func(*store.Tx) error) {
	f.t.Helper()
	if err := f.Read(context.Background(), fn); err != nil {
		f.t.Fatalf("read: %v", err)
	}
}

// call is a write that waits for its answer elsewhere.
type call struct {
	ctx context.Context
	fn  func(*store.Tx) error
}

// together gives the SQLite writer all the calls in one batch, in their order.
func (f *fixture) together(calls ...call) []error {
	f.t.Helper()
	f.LongBatches()
	return f.behindOne(f.Write, f.Queued, calls)
}

// behindOne makes the calls, in their order, while a first one that writes nothing is held until they
// have queued.
func (f *fixture) behindOne(write func(context.Context, func(*store.Tx) error) error, queued func() int, calls []call) []error {
	f.t.Helper()
	held, release := make(chan struct{}), make(chan struct{})
	holder := make(chan error, 1)
	go func() {
		holder <- write(context.Background(), func(*store.Tx) error {
			close(held)
			<-release
			return nil
		})
	}()
	<-held
	answers := make([]chan error, len(calls))
	for i, c := range calls {
		answers[i] = make(chan error, 1)
		ctx := c.ctx
		if ctx == nil {
			ctx = context.Background()
		}
		go func() { answers[i] <- write(ctx, c.fn) }()
		eventually(f.t, "the call is queued", func() bool { return queued() == i+1 })
	}
	close(release)
	<-holder // it shares the fate of the batch
	out := make([]error, len(calls))
	for i := range calls {
		out[i] = <-answers[i]
	}
	return out
}

// eventually waits until fact holds.
func eventually(t testing.TB, what string, fact func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !fact() {
		select {
		case <-deadline:
			t.Fatalf("after 30 s it is still not so that %s", what)
		case <-tick.C:
		}
	}
}

// batches is how many SQLite transactions were tried, and how many writes were in them.
func (f *fixture) batches() (count, writes int) {
	var m dto.Metric
	if err := f.cfg.Metrics.BatchSize.Write(&m); err != nil {
		f.t.Fatal(err)
	}
	return int(m.GetHistogram().GetSampleCount()), int(m.GetHistogram().GetSampleSum())
}

// The three things that an answer can say about a write.
const (
	written = "written"
	nothing = "nothing was written"
	unknown = "not known whether"
)

// says sorts an answer by what it tells about the write.
func says(err error) string {
	var e *handoff.Error
	switch {
	case err == nil:
		return written
	case !errors.As(err, &e):
		return nothing // a refusal of the function or its panic
	case strings.Contains(e.Message, unknown):
		return unknown
	case e.Code != handoff.CodeUnavailable, strings.Contains(e.Message, nothing), strings.Contains(e.Message, "before anything was written"):
		return nothing
	}
	return "an answer that does not say what became of the write: " + e.Message
}

// wantSays fails the test unless the answer says so, and is unavailable and retryable where it
// is the database's fault.
func wantSays(t rapid.TB, who string, err error, want string) {
	t.Helper()
	if got := says(err); got != want {
		t.Errorf("%s was told %q (%v), want %q", who, got, err, want)
	}
}

func wantUnavailable(t rapid.TB, who string, err error, want string) {
	t.Helper()
	wantSays(t, who, err, want)
	var e *handoff.Error
	if !errors.As(err, &e) || e.Code != handoff.CodeUnavailable || !e.Retryable() {
		t.Errorf("%s got %v, want unavailable and retryable", who, err)
	}
}

func wantThere(t rapid.TB, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("in the database are %s, want %s", fmt.Sprint(got), fmt.Sprint(want))
	}
}

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
