package store_test

import (
	"bytes"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// ears notes what a store hears of other nodes.
type ears struct {
	mu    sync.Mutex
	heard []string
	ready chan struct{}
}

func listens(t *testing.T, f *fixture) *ears {
	t.Helper()
	e := &ears{ready: make(chan struct{})}
	ready := sync.OnceFunc(func() { close(e.ready) })
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = f.Listen(ctx, func(keys []string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.heard = append(e.heard, keys...)
		}, ready)
	})
	t.Cleanup(func() { end(); wg.Wait() })
	<-e.ready
	return e
}

func (e *ears) of(key string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(e.heard), func(k string) bool { return k != key }))
}

func TestANodeHearsTheOthersAndNotItself(t *testing.T) {
	t.Parallel()
	cfg := config(t, "postgres")
	one, other := open(t, cfg), open(t, cfg)
	atOne, atOther := listens(t, one), listens(t, other)
	one.Publish([]string{"a", "b"})
	hubtest.Eventually(t, func() bool { return atOther.of("a") == 1 && atOther.of("b") == 1 })
	other.Publish([]string{"c"}) // PostgreSQL sends notifications in the order of their commits
	hubtest.Eventually(t, func() bool { return atOne.of("c") == 1 })
	if atOne.of("a") != 0 || atOther.of("c") != 0 {
		t.Error("a node hears what it said itself")
	}
}

func TestWhatANodeCouldNotSayItSaysOnTheNextConnection(t *testing.T) {
	t.Parallel()
	cfg := config(t, "postgres")
	p := throughProxy(t, cfg.URL)
	var cut atomic.Bool
	p.cutWhen(func(_ bool, _ byte, body []byte) bool {
		return bytes.Contains(body, []byte("pg_notify")) && cut.CompareAndSwap(false, true)
	})
	talker, listener := open(t, store.Config{URL: p.url}), open(t, cfg)
	listens(t, talker)
	at := listens(t, listener)
	talker.Publish([]string{"a", "b"})
	hubtest.Eventually(t, func() bool { return at.of("a") == 1 && at.of("b") == 1 })
	if !cut.Load() {
		t.Error("its connection was not cut")
	}
}
