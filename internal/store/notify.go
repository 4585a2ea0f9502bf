package store

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
)

// Nodes that share a PostgreSQL database tell each other what changed after the commit, each
// on a connection of its own: NOTIFY inside the write transaction would serialise commits.
// What is lost on the way costs time only, because whoever waits also looks again by itself.
const (
	channel = "handclasp"
	// notifyBytes keeps a notification under PostgreSQL's 8,000 bytes.
	notifyBytes = 7000
)

// outgoing collects what was announced since the last notification was sent.
type outgoing struct {
	// node tells what this node said from what the others did: PostgreSQL sends it back.
	node string
	mu   sync.Mutex
	keys map[string]bool
	kick chan struct{}
}

func newOutgoing() *outgoing {
	return &outgoing{node: "@" + newEpoch(), keys: map[string]bool{}, kick: make(chan struct{}, 1)}
}

// Publish tells the other nodes that something changed about these keys. It never waits and
// does nothing where no other node can be.
func (s *Store) Publish(keys []string) {
	if s.out == nil {
		return
	}
	s.out.mu.Lock()
	for _, k := range keys {
		s.out.keys[k] = true
	}
	s.out.mu.Unlock()
	select {
	case s.out.kick <- struct{}{}:
	default:
	}
}

func (o *outgoing) take() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var messages []string
	var b strings.Builder
	for k := range o.keys {
		if b.Len()+len(k)+1 > notifyBytes {
			messages = append(messages, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(o.node)
		}
		b.WriteByte(' ')
		b.WriteString(k)
	}
	if b.Len() > 0 {
		messages = append(messages, b.String())
	}
	clear(o.keys)
	return messages
}

// Listen sends what this node published and hands what the others published to heard, until
// ctx ends. It reconnects by itself; lost is called after each reconnection, because what was
// said meanwhile is not known. On SQLite it just waits for ctx.
func (s *Store) Listen(ctx context.Context, heard func(keys []string), lost func()) error {
	if s.out == nil {
		<-ctx.Done()
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.again(ctx, s.speak) })
	wg.Go(func() {
		s.again(ctx, func(ctx context.Context) error {
			return s.hear(ctx, heard, lost)
		})
	})
	wg.Wait()
	return nil
}

// again runs f until ctx ends, a second apart when it fails.
func (s *Store) again(ctx context.Context, f func(context.Context) error) {
	for ctx.Err() == nil {
		if err := f(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("lost touch with the other nodes; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (s *Store) speak(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.out.kick:
		}
		messages := s.out.take()
		for i, m := range messages {
			if _, err := conn.ExecContext(ctx, "SELECT pg_notify($1, $2)", channel, m); err != nil {
				for _, unsaid := range messages[i:] { // it is said on the next connection
					s.Publish(strings.Fields(unsaid)[1:])
				}
				return err
			}
		}
	}
}

func (s *Store) hear(ctx context.Context, heard func([]string), lost func()) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	return conn.Raw(func(dc any) error {
		pg := dc.(*stdlib.Conn).Conn()
		// A connection that listened is not given back to the pool.
		defer func() { _ = pg.Close(context.WithoutCancel(ctx)) }()
		if _, err := pg.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
		lost()
		for {
			n, err := pg.WaitForNotification(ctx)
			if err != nil {
				return err
			}
			if node, keys, _ := strings.Cut(n.Payload, " "); node != s.out.node {
				heard(strings.Fields(keys))
			}
		}
	})
}

// Flush sends at once what was published and not yet sent, on a connection of the pool. Whoever
// tells others that a key has ended does not wait for the next round.
func (s *Store) Flush() {
	if s.out == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	for _, m := range s.out.take() {
		if _, err := s.db.ExecContext(ctx, "SELECT pg_notify($1, $2)", channel, m); err != nil {
			return // the others look again by themselves
		}
	}
}
