package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"handclasp/internal/handoff"
)

// On PostgreSQL many small transactions at once cost more than their statements: each begins and
// commits, and where all of them want the next row of one queue, each looks past those that the others
// have locked. So calls that only take what nobody else is at share one: some lanes at a time, each with
// the calls that came while it was busy. It must not wait for the row of another, or two lanes could
// wait for each other; who has to wait says [ErrWaits] and gets a transaction of its own.
const (
	lanes   = 4
	perLane = 6 // calls: what a lane has locked, the others have to look past
)

// ErrWaits is returned by a function of [Store.WriteTogether] that would have to wait for another
// transaction. It must not have written anything.
var ErrWaits = errors.New("this call waits for another transaction")

// together runs functions in shared transactions.
type together struct {
	s       *Store
	mu      sync.Mutex
	waiting []*job
	running int // lanes
	lanes   int // at most
}

// WriteTogether is [Store.Write] for a function that takes something nobody else is at. On
// PostgreSQL others may share its transaction, so where tx.MayWait is false it must not wait for the
// lock of a row, but return [ErrWaits]; it then runs again, alone.
func (s *Store) WriteTogether(ctx context.Context, fn func(*Tx) error) error {
	if s.group != nil || s.joint.lanes < 0 {
		return s.Write(ctx, fn)
	}
	if err := s.mayWrite(ctx); err != nil {
		return err
	}
	s.pause(Begins)
	err := s.joint.do(ctx, fn)
	s.pause(Ends)
	if errors.Is(err, ErrWaits) {
		return s.Write(ctx, fn)
	}
	return s.translate(err)
}

func (g *together) do(ctx context.Context, fn func(*Tx) error) error {
	j := &job{ctx: ctx, fn: fn, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, j)
	if g.running < g.lanes {
		g.running++
		go g.lane()
	}
	g.mu.Unlock()
	late := time.NewTimer(poolWait)
	defer late.Stop()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		if g.leave(j) {
			return handoff.Unavailable("the call was cancelled before anything was written", ctx.Err())
		}
	case <-late.C:
		if g.leave(j) {
			return handoff.Unavailable("more calls came than the hub's database connections can serve; nothing was written", nil)
		}
	}
	return <-j.done // a lane has it already
}

// leave takes a call out of the queue, if it still waits there.
func (g *together) leave(j *job) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, j)
	if i < 0 {
		return false
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	return true
}

// lane runs what waits until nothing does.
func (g *together) lane() {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), perLane)
		if n == 0 {
			g.running--
			g.mu.Unlock()
			return
		}
		some := slices.Clone(g.waiting[:n])
		g.waiting = g.waiting[n:]
		g.mu.Unlock()
		g.s.jointly(some)
	}
}

// jointly runs the functions in one transaction and answers each. Where one of them fails in a
// way that takes the others with it, each gets a transaction of its own.
func (s *Store) jointly(jobs []*job) {
	jobs = stillThere(jobs)
	if len(jobs) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeDeadline)
	defer cancel()
	answers := make([]error, len(jobs))
	failed := errors.New("a call of this transaction failed")
	began := false
	unknown, err := s.attempt(ctx, ctx, beginWrite, func(tx *Tx) error {
		began = true
		clear(answers)
		tx.joint = true
		for i, j := range jobs {
			wrote := tx.wrote
			tx.retime() // each has a time of its own: what it takes may have been made since
			answers[i] = call(j.fn, tx)
			if tx.broken != nil || answers[i] != nil && tx.wrote != wrote {
				return failed
			}
		}
		return nil
	})
	for i, j := range jobs {
		switch {
		case err == nil:
			j.done <- answers[i]
		case unknown:
			j.done <- unknownOutcome(err)
		case !began: // there was no connection, and each would wait for one as long again
			j.done <- err
		case len(jobs) == 1 && errors.Is(err, failed) && !isFault(answers[i]): // a refusal, and what it wrote is gone
			j.done <- answers[i]
		default:
			go func() { j.done <- s.writePostgres(j.ctx, j.fn) }()
		}
	}
}

// stillThere answers the calls that were cancelled while they waited.
func stillThere(jobs []*job) []*job {
	list := jobs[:0]
	for _, j := range jobs {
		if err := j.ctx.Err(); err != nil {
			j.done <- handoff.Unavailable("the call was cancelled before anything was written", err)
			continue
		}
		list = append(list, j)
	}
	return list
}
