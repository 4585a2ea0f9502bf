package hubtest

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

	"handclasp/internal/store"
)

// Crossing makes writes meet inside their transactions: each is held right before its commit until
// the others are as far as they can get. Where there is one writer the others then stand in its
// queue; on PostgreSQL they wait for the rows of the first, or for their own commit.
type Crossing struct {
	mu      sync.Mutex
	changed chan struct{}
	gate    chan struct{} // closed to let commits pass; nil while nothing is held
	inside  int           // writes that have begun and are not over
	held    int
	ended   int     // calls
	db      *sql.DB // PostgreSQL
}

// NewCrossing holds nothing yet.
func NewCrossing() *Crossing { return &Crossing{changed: make(chan struct{}, 1)} }

// Watch is an option for the fixture whose writes are to cross.
func (c *Crossing) Watch() Option {
	return WithStore(func(cfg *store.Config) {
		cfg.Pause = c.pause
		if cfg.URL != "" {
			cfg.MaxConns = 32 // so that as many calls can wait for one row
			cfg.Lanes = -1    // each in a transaction of its own
		}
	})
}

func (c *Crossing) pause(at store.Point) {
	c.mu.Lock()
	gate := c.gate
	switch at {
	case store.Begins:
		c.inside++
	case store.Commits:
		if gate != nil {
			c.held++
		}
	case store.Ends:
		c.inside--
	}
	c.mu.Unlock()
	signal(c.changed)
	if at != store.Commits || gate == nil {
		return
	}
	<-gate
	c.mu.Lock()
	c.held--
	c.mu.Unlock()
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Run makes the first call, and when it is about to commit, or has ended, what happens meanwhile, if
// anything, and the other calls. When these are as far as they get, all go on; Run returns when all
// have ended.
func (c *Crossing) Run(f *Fixture, first, meanwhile func(), others ...func()) {
	f.T.Helper()
	gate := make(chan struct{})
	Eventually(f.T, func() bool { // a sweep that is still at it would be taken for one of the calls
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.inside > 0 {
			return false
		}
		c.gate, c.held, c.ended = gate, 0, 0
		return true
	})
	var wg sync.WaitGroup
	start := func(call func()) {
		wg.Go(func() {
			call()
			c.mu.Lock()
			c.ended++
			c.mu.Unlock()
			signal(c.changed)
		})
	}
	defer wg.Wait()
	defer func() {
		c.mu.Lock()
		c.gate = nil
		c.mu.Unlock()
		close(gate)
	}()
	start(first)
	c.stuck(f, 1)
	if meanwhile != nil {
		meanwhile()
	}
	for _, call := range others {
		start(call)
	}
	c.stuck(f, 1+len(others))
}

// stuck waits until so many calls have ended or get no further.
func (c *Crossing) stuck(f *Fixture, calls int) {
	f.T.Helper()
	late := time.NewTimer(20 * time.Second)
	defer late.Stop()
	look := time.NewTicker(500 * time.Microsecond)
	defer look.Stop()
	for {
		c.mu.Lock()
		inside, held, ended := c.inside, c.held, c.ended
		c.mu.Unlock()
		if f.Config.URL == "" {
			if ended == calls || held > 0 && ended+inside >= calls {
				return
			}
		} else if ended+held >= calls || ended+held > 0 && ended+held+c.waiting(f.T, f.Config) >= calls {
			return
		}
		select {
		case <-c.changed:
		case <-look.C:
		case <-late.C:
			f.T.Fatalf("of %d calls %d write, %d are held and %d ended after twenty seconds", calls, inside, held, ended)
		}
	}
}

// waiting is how many sessions of the database wait for a lock.
func (c *Crossing) waiting(t testing.TB, cfg store.Config) int {
	if c.db == nil {
		c.db = Beside(t, cfg)
	}
	n := 0
	if err := c.db.QueryRowContext(context.Background(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
