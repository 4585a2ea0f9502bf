package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"handclasp/internal/handoff"
)

// Group commit. One goroutine owns the writing connection. It takes the write functions that
// wait, runs each under a savepoint in one immediate transaction, commits once and then
// answers all. One fsync serves up to maxBatch callers.
//
// What keeps it sound, each learned from a way in which it was not:
//   - A full disk or an interrupt makes SQLite roll back the WHOLE transaction, and what
//     follows runs in autocommit. Any ROLLBACK TO or RELEASE that fails therefore poisons the
//     batch: nothing more runs, everyone in it is told that nothing was written, and the
//     connection is dropped.
//   - A caller's context never reaches the driver.
//   - Refusals are answered after the commit too: "already claimed" may rest on a claim of
//     the same batch that never commits.
//   - A panic belongs to the function that raised it.
const (
	maxBatch     = 128
	maxBatchWork = 5 * time.Millisecond
)

type job struct {
	ctx  context.Context
	fn   func(*Tx) error
	done chan error
}

type committer struct {
	s       *Store
	open    func(context.Context) (*sqliteConn, error)
	jobs    chan *job
	stopped chan struct{}
	quit    chan struct{}
	once    sync.Once
	work    time.Duration // maxBatchWork; tests take their time
}

func newCommitter(s *Store, open func(context.Context) (*sqliteConn, error)) *committer {
	c := &committer{s: s, open: open, jobs: make(chan *job, maxBatch), stopped: make(chan struct{}), quit: make(chan struct{}), work: maxBatchWork}
	go c.run()
	return c
}

var errClosed = handoff.Unavailable("the hub is shutting down; nothing was written", nil)

// do hands fn to the writer and waits for the commit. Once taken, a function runs to its end
// even if its caller left: the caller is told "cancelled" only when nothing ran.
func (c *committer) do(ctx context.Context, fn func(*Tx) error) error {
	j := &job{ctx: ctx, fn: fn, done: make(chan error, 1)}
	select {
	case c.jobs <- j:
	case <-c.quit:
		return errClosed
	case <-ctx.Done():
		return handoff.Unavailable("the call was cancelled before anything was written", ctx.Err())
	}
	select {
	case err := <-j.done:
		return err
	case <-c.stopped:
		// The writer is gone; it answered j or never saw it.
		select {
		case err := <-j.done:
			return err
		default:
			return errClosed
		}
	}
}

func (c *committer) stop() {
	c.once.Do(func() { close(c.quit) })
	<-c.stopped
}

func (c *committer) run() {
	defer close(c.stopped)
	var conn *sqliteConn
	defer func() {
		if conn != nil {
			conn.close()
		}
	}()
	for {
		var first *job
		select {
		case first = <-c.jobs:
		case <-c.quit:
			// What was taken is finished; nobody can add more once quit is closed and the
			// channel has been emptied.
			select {
			case first = <-c.jobs:
			default:
				return
			}
		}
		if conn == nil {
			var err error
			if conn, err = c.open(context.Background()); err != nil {
				c.refuse(first, databaseError{err})
				continue
			}
		}
		if !c.batch(conn, first) {
			conn.drop()
			conn = nil
		}
	}
}

// refuse answers a call for which no transaction could be begun, and all that wait behind it:
// each would wait for the same as long again, one after the other.
func (c *committer) refuse(first *job, err error) {
	first.done <- err
	for range len(c.jobs) { // nobody else takes from it; who comes later tries anew
		(<-c.jobs).done <- err
	}
}

type answer struct {
	j   *job
	err error
}

// batch runs one transaction and answers everyone in it. It returns false when the
// connection cannot be trusted any more.
func (c *committer) batch(conn *sqliteConn, first *job) bool {
	ctx, cancel := context.WithTimeout(context.Background(), writeDeadline)
	defer cancel()
	if err := conn.control(ctx, "BEGIN IMMEDIATE"); err != nil {
		c.refuse(first, databaseError{err})
		return false
	}
	began, yielded := time.Now(), false
	var answers []answer
	var poison error
	for j := first; j != nil && poison == nil; {
		var err error
		err, poison = c.runOne(ctx, conn, j)
		answers = append(answers, answer{j, err})
		j = nil
		if poison == nil && len(answers) < maxBatch && time.Since(began) < c.work {
			j = c.next(&yielded)
		}
	}
	outcome := "nothing was written"
	if poison == nil {
		acknowledgeEarly(answers)
		if poison = conn.control(ctx, "COMMIT"); poison != nil && !commitRefused(poison) {
			outcome = "it is not known whether the call took effect"
		}
	}
	if poison != nil {
		_ = conn.control(ctx, "ROLLBACK")
	}
	c.s.cfg.Metrics.BatchSize.Observe(float64(len(answers)))
	for _, a := range answers {
		if poison != nil {
			a.err = c.s.lost(outcome, fmt.Errorf("batch of %d: %w", len(answers), poison))
		}
		a.j.done <- a.err
	}
	return poison == nil
}

// next is the next function that waits, or nil. Once in a batch it lets others that are ready to
// run have the processor first: under load they are calls about to write, and each that joins
// saves a commit; at rest nobody is ready and nothing is lost.
func (c *committer) next(yielded *bool) *job {
	for {
		select {
		case j := <-c.jobs:
			return j
		default:
		}
		if *yielded {
			return nil
		}
		*yielded = true
		runtime.Gosched()
	}
}

// runOne runs one function under a savepoint. err is its own outcome, poison is set when the
// transaction around it cannot be relied on.
func (c *committer) runOne(ctx context.Context, conn *sqliteConn, j *job) (err, poison error) {
	if cancelled := j.ctx.Err(); cancelled != nil {
		return handoff.Unavailable("the call was cancelled before anything was written", cancelled), nil
	}
	if err := conn.control(ctx, "SAVEPOINT f"); err != nil {
		return nil, err
	}
	err = call(j.fn, &Tx{ctx: ctx, now: c.s.clock(), d: c.s.d, e: conn, s: c.s})
	if err != nil {
		poison = conn.control(ctx, "ROLLBACK TO f")
	} else {
		c.s.pause(Commits)
	}
	if poison == nil {
		poison = conn.control(ctx, "RELEASE f")
	}
	if poison == nil || ignoreFailedRelease {
		return err, nil
	}
	return err, errors.Join(poison, err)
}

// call runs fn and turns its panic into an error, so that one caller's fault stays its own. A
// fault of the database is the outcome even where fn swallowed it or drew its own conclusion.
func call(fn func(*Tx) error, tx *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in a write: %v\n%s", p, debug.Stack())
		}
	}()
	err = fn(tx)
	if tx.broken != nil && !isFault(err) {
		return tx.broken
	}
	return err
}

func (s *Store) clock() time.Time {
	if s.cfg.Clock != nil {
		return tick(s.cfg.Clock())
	}
	return tick(time.Now())
}

var errNotOne = errors.New("a guarded write did not change exactly one row")

// badConn makes database/sql close the connection instead of keeping it.
func badConn(any) error { return driver.ErrBadConn }
