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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
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
	// Longest is how long a call may take in all; 0 means 58 seconds. The longest parked call takes
	// 50, and many clients wait a minute and no more.
	Longest time.Duration
	// MaxLine bounds a message in bytes; 0 means 4 MiB, which is what a hub takes.
	MaxLine int
	// MaxAnswer bounds an answer of the hub in bytes; 0 means 64 MiB.
	MaxAnswer int64
	// Pause is the first one between two tries, doubled from try to try; 0 means 20 milliseconds.
	Pause time.Duration
	// LongestPause ends the doubling; 0 means a second.
	LongestPause time.Duration
	// Linger is how long calls may go on after In has ended; 0 means 2 seconds.
	Linger time.Duration
}

const (
	defaultPatience = 15 * time.Second
	defaultLongest  = 58 * time.Second
	defaultMaxLine  = 4 << 20
	// maxRunning bounds the requests of the client that are answered at the same time.
	maxRunning = 256
	// maxWaiting bounds the memory of those that wait for their turn, in bytes. They are read all the
	// same, so that a cancellation behind them is seen, and the end of In. Only when this is used up
	// nothing more is read.
	maxWaiting = 64 << 20
	// costOfWaiting is what a message takes beside its text.
	costOfWaiting = 8 << 10
	// defaultLinger is short: a client that has closed its end waits for the process to end.
	defaultLinger    = 2 * time.Second
	defaultMaxAnswer = 64 << 20
	defaultPause     = 20 * time.Millisecond
	// defaultLongestPause spares a hub that is far away and has trouble.
	defaultLongestPause = time.Second
	// startWithin is shorter than clients wait for a server to start, which is 10 seconds with some:
	// they shall show what is wrong instead of their own time-out.
	startWithin = 8 * time.Second
	// settleFor is how long calls that were ended may take for it: one may be writing to a client
	// that no longer reads.
	settleFor = 500 * time.Millisecond
)

func (cfg Config) withDefaults() Config {
	cfg.Patience = cmp.Or(cfg.Patience, defaultPatience)
	cfg.Longest = cmp.Or(cfg.Longest, defaultLongest)
	cfg.MaxLine = cmp.Or(cfg.MaxLine, defaultMaxLine)
	cfg.MaxAnswer = cmp.Or(cfg.MaxAnswer, defaultMaxAnswer)
	cfg.Pause = cmp.Or(cfg.Pause, defaultPause)
	cfg.LongestPause = cmp.Or(cfg.LongestPause, defaultLongestPause)
	cfg.Linger = cmp.Or(cfg.Linger, defaultLinger)
	return cfg
}

// Run answers until In ends, ctx ends or Out is closed. It returns nil in each of these cases.
func Run(ctx context.Context, cfg Config) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	b := &bridge{
		cfg: cfg.withDefaults(), stop: stop, running: map[*message]context.CancelFunc{},
		slots: make(chan struct{}, maxRunning), hurry: make(chan struct{}), turns: make(chan struct{}, 1),
	}
	b.room = semaphore.NewWeighted(max(maxWaiting, b.cost(b.cfg.MaxLine)))
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
	b.close()
	return err
}

type bridge struct {
	cfg  Config
	stop context.CancelFunc

	out   sync.Mutex
	calls sync.WaitGroup
	room  *semaphore.Weighted // for messages that wait for their turn
	slots chan struct{}
	turns chan struct{} // one had to wait, and it is its turn
	hurry chan struct{} // closed when nothing is to be repeated any more
	// handshake is closed when the last one that came is over. Only read knows it.
	handshake chan struct{}

	mu      sync.Mutex
	version string // the protocol revision that initialize agreed on
	running map[*message]context.CancelFunc
	ended   bool
}

// message is a line of the client as far as it matters on the way.
type message struct {
	raw    []byte
	id     json.RawMessage // none in a notification
	method string          // none in an answer
	// Of the params: the name or uri that the hub wants in a header too, and the revision.
	name, version string
	key           string // the idempotency key that this call gets, or none
}

func (b *bridge) read(ctx context.Context) error {
	lines := newLines(b.cfg.In, b.cfg.MaxLine)
	for ctx.Err() == nil {
		line, err := lines.next()
		line = bytes.TrimSpace(bytes.TrimPrefix(line, byteOrderMark))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errTooLong):
			b.writeError(line, tooLong(b.cfg.MaxLine))
		case err != nil:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case len(line) > 0:
			b.take(ctx, line)
		}
	}
	return nil
}

// take starts what a line asks for.
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
	default:
		b.start(ctx, m)
	}
}

// cost is the room that a message of n bytes takes while it waits.
func (b *bridge) cost(n int) int64 { return int64(n) + costOfWaiting }

// start carries a message beside the others, as soon as it is its turn. The handshake goes first:
// the revision that it agrees on is needed for what follows.
func (b *bridge) start(ctx context.Context, m *message) {
	room := b.cost(len(m.raw))
	if b.room.Acquire(ctx, room) != nil {
		return
	}
	before, over := b.handshake, func() {}
	if m.method == "initialize" {
		b.handshake = make(chan struct{})
		over = func(done chan struct{}) func() { return func() { close(done) } }(b.handshake)
	}
	session := ctx
	ctx, cancel := context.WithCancel(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended { // nobody waits for further calls
		cancel()
		return
	}
	b.running[m] = cancel
	b.calls.Go(func() {
		defer func() {
			over()
			cancel()
			b.mu.Lock()
			delete(b.running, m)
			b.mu.Unlock()
		}()
		mine := b.turn(ctx, before)
		b.room.Release(room)
		if mine {
			defer func() { <-b.slots }()
			// The slot may be free because all were ended, and the session knows that before each of
			// its calls does.
			if session.Err() == nil && ctx.Err() == nil {
				b.carry(ctx, m)
			}
		}
	})
}

// turn waits for the handshake and then for a slot, in this order: a handshake needs one too. It
// reports whether the message has one.
func (b *bridge) turn(ctx context.Context, handshake <-chan struct{}) bool {
	if handshake != nil {
		select {
		case <-handshake:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case b.slots <- struct{}{}:
		return true
	default:
	}
	select {
	case b.slots <- struct{}{}:
		select {
		case b.turns <- struct{}{}:
		default:
		}
		return true
	case <-ctx.Done():
		return false
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
	defer b.mu.Unlock()
	for call, cancel := range b.running {
		if call.id != nil && sameID(call.id, n.Params.RequestID) {
			cancel()
		}
	}
}

// linger lets calls end that the client had begun before it closed its end. As long as it is the
// turn of one after the other they all get theirs: a client may write many lines and leave.
func (b *bridge) linger(ctx context.Context) {
	done := b.idle()
	for hurried := false; ; {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-b.turns:
		case <-time.After(b.cfg.Linger / 2):
			if hurried {
				return
			}
			hurried = true
			close(b.hurry)
		}
	}
}

// idle is closed when no call runs; none may be started any more.
func (b *bridge) idle() <-chan struct{} {
	done := make(chan struct{})
	go func() { b.calls.Wait(); close(done) }()
	return done
}

// close waits for the calls that were ended.
func (b *bridge) close() {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	select {
	case <-b.idle():
	case <-time.After(settleFor):
		b.cfg.Log.Warn("the client does not read; the session ends without it")
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
