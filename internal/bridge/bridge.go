// Package bridge serves MCP over stdio by carrying each message to a hub's own stateless
// endpoint: one JSON-RPC message is one line here and one POST there, byte for byte. So a client
// on stdio meets the same tools, rules and errors as one on HTTP.
//
// What it adds is endurance. Every tool call gets an idempotency key before its first try, unless
// it brought one, and a call whose transport failed is repeated with that key, so that a hub may
// die and come back, or another process take over, without a call being lost or done twice.
package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// Config is one stdio session.
type Config struct {
	In  io.Reader
	Out io.Writer
	// Endpoint is the address of the toolset at the hub.
	Endpoint string
	// Hub carries requests there, with the credential of the caller.
	Hub http.RoundTripper
	// Explain words a failure to reach the hub: what to do about it. The failure itself is added.
	Explain func(error) string
	Log     *slog.Logger
	// Patience is how long a call is repeated while its transport fails; 0 means 15 seconds.
	Patience time.Duration
	// MaxLine bounds a message in bytes; 0 means 4 MiB, which is what a hub takes.
	MaxLine int
}

const (
	defaultPatience = 15 * time.Second
	defaultMaxLine  = 4 << 20
	// maxRunning bounds the requests of the client that are answered at the same time.
	maxRunning = 256
	// lingerAfterEOF is how long calls may go on after the client has closed its end.
	lingerAfterEOF = 2 * time.Second
)

// Run answers until In ends, ctx ends or Out is closed. It returns nil in each of these cases.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Patience == 0 {
		cfg.Patience = defaultPatience
	}
	if cfg.MaxLine == 0 {
		cfg.MaxLine = defaultMaxLine
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &bridge{cfg: cfg, stop: stop, running: map[string]context.CancelFunc{}, slots: make(chan struct{}, maxRunning), hurry: make(chan struct{})}
	ended := make(chan error, 1)
	// Reading a line cannot be interrupted, so it is left behind when ctx ends.
	go func() { ended <- b.read(ctx) }()
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		b.linger(ctx)
	}
	stop()
	b.calls.Wait()
	return err
}

type bridge struct {
	cfg  Config
	stop context.CancelFunc

	out   sync.Mutex
	calls sync.WaitGroup
	slots chan struct{}
	hurry chan struct{} // closed when nothing is to be repeated any more

	mu      sync.Mutex
	version string // the protocol revision that initialize agreed on
	running map[string]context.CancelFunc
}

// message is a line of the client as far as it matters on the way.
type message struct {
	raw    []byte
	id     json.RawMessage // none in a notification
	method string
	// Of the params: the name or uri that the hub wants in a header too, and the revision.
	name, version string
	key           string // the idempotency key that this call gets, or none
}

func (b *bridge) read(ctx context.Context) error {
	lines := newLines(b.cfg.In, b.cfg.MaxLine)
	for ctx.Err() == nil {
		line, err := lines.next()
		switch {
		case errors.Is(err, errTooLong):
			b.writeError(nil, tooLong(b.cfg.MaxLine))
		case err != nil:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case len(bytes.TrimSpace(line)) > 0:
			b.take(ctx, line)
		}
	}
	return nil
}

// take starts what a line asks for. The handshake is waited for: the revision that it agrees on
// is needed for what follows.
func (b *bridge) take(ctx context.Context, line []byte) {
	m, refused := parse(line)
	if refused != nil {
		b.writeError(m.id, refused)
		return
	}
	switch m.method {
	case "":
		// An answer, to a question that no hub asks.
		b.cfg.Log.Debug("an answer came that nothing waits for")
	case "notifications/cancelled":
		b.cancel(m)
	case "initialize":
		b.carry(ctx, m)
	default:
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		ctx, done := b.begin(ctx, m)
		b.calls.Go(func() {
			defer func() { done(); <-b.slots }()
			b.carry(ctx, m)
		})
	}
}

// begin makes a call one that the client can cancel.
func (b *bridge) begin(ctx context.Context, m *message) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	if m.id == nil {
		return ctx, cancel
	}
	id := string(m.id)
	b.mu.Lock()
	b.running[id] = cancel
	b.mu.Unlock()
	return ctx, func() {
		cancel()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.running, id)
	}
}

// cancel ends the call that a client no longer waits for. The hub learns it as every HTTP server
// does: the request is gone.
func (b *bridge) cancel(m *message) {
	var n struct {
		Params struct {
			RequestID json.RawMessage `json:"requestId"`
		} `json:"params"`
	}
	if json.Unmarshal(m.raw, &n) != nil {
		return
	}
	b.mu.Lock()
	cancel := b.running[string(n.Params.RequestID)]
	b.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// linger lets calls end that the client had begun before it closed its end.
func (b *bridge) linger(ctx context.Context) {
	done := make(chan struct{})
	go func() { b.calls.Wait(); close(done) }()
	for _, step := range []func(){func() { close(b.hurry) }, func() {}} {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-time.After(lingerAfterEOF / 2):
			step()
		}
	}
}

// write sends one line. A client that is gone ends the session.
func (b *bridge) write(line []byte) {
	b.out.Lock()
	defer b.out.Unlock()
	if _, err := b.cfg.Out.Write(append(line, '\n')); err != nil {
		b.stop()
	}
}
