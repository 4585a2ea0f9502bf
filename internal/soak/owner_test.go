//go:build soak

package soak

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"handclasp/internal/owner"
)

const (
	// sharers write through one folder: one of four over HTTP, the others through the stdio
	// process of the agent that they call as.
	sharers = 16
	// takeOverWithin is how soon after a kill a write must be acknowledged again.
	takeOverWithin = time.Second
	// afterKill, afterReturn and afterHandOver are how many acknowledgements each part of a round
	// has: with the survivors alone, with the killed client back, and with the hub back. The
	// first is small, for soon every writer has a call for the agent whose process was killed.
	afterKill, afterReturn, afterHandOver = 20, 300, 300
)

// ownerRow is what a round about the owner printed.
type ownerRow struct {
	row
	killed   string        // the kind of the owner
	takeOver time.Duration // from the kill to the first acknowledgement of a call made after it
	longest  time.Duration // that a writer of a surviving process waited across the kill
	handOver time.Duration // and across the hand-over to the hub
	bridged  int           // calls that a bridge repeated and that had taken effect
	unknown  int           // calls without a key whose process was killed: they are not repeated
}

const ownerHeader = "round  owner  killed                   acked before  in flight  acked  found  doubled  gaps  lost  retried: by client had/had not, by bridge had  never answered  take-over  longest call: kill, hand-over"

func (r *ownerRow) print() {
	fmt.Printf("%5d  %-5s  %-24s %12d  %9d  %5d  %5d  %7d  %4d  %4d  %23d/%-7d  %13d  %14d  %6d ms  %18d ms, %6d ms\n", r.round, r.killed, r.when,
		r.before, r.inFlight, r.acked, r.found, len(r.doubled), len(r.gaps), len(r.lost), r.replayed, r.first, r.bridged, r.unknown,
		r.takeOver.Milliseconds(), r.longest.Milliseconds(), r.handOver.Milliseconds())
}

// verdict fails the test, and ends it, if the round is not as it must be.
func (r *ownerRow) verdict(t *testing.T) {
	t.Helper()
	if r.takeOver > takeOverWithin {
		t.Errorf("round %d: the first write was acknowledged %s after the kill, want %s at most", r.round, r.takeOver, takeOverWithin)
	}
	r.row.verdict(t)
}

// TestSoakOwner has 16 writers work on one folder through four stdio processes and a hub, kills
// with SIGKILL whichever process owns the folder, has the killed client come back, starts a hub
// that takes the folder over, all under load, and counts. In turn the owner is the hub and a
// stdio process.
func TestSoakOwner(t *testing.T) {
	rounds, seed := int(setting(t, "HANDCLASP_SOAK_ROUNDS", 10)), seed(t)
	random := rand.New(rand.NewPCG(seed, 2))
	data := t.TempDir()
	events := &eventLog{cursor: "0", last: map[string]int{}}
	c := &crew{t: t, where: []string{"--data", data}, stdio: map[string]*process{}}
	var all []*op
	var takeOvers, handOvers []time.Duration

	fmt.Printf("SQLite, kill -9 of the owner of the folder under %d writers on %d stdio processes and a hub\n%s\n", sharers, agents, ownerHeader)
	for round := 1; round <= rounds; round++ {
		r := &ownerRow{row: row{round: round, when: pick(random, round/2, 500)}}
		tm := ownerRound(t, c, r, seed)
		ops := tm.ops()
		look(t, &r.row, c.hub.url, tm, ops)
		list, cursor := eventsAfter(t, data, events.cursor)
		events.cursor = cursor
		r.gaps = append(r.gaps, events.read(list)...)
		c.stop()
		all = append(all, ops...)
		checkSQLite(t, &r.row, filepath.Join(data, "handclasp.db"), all)
		r.print()
		r.verdict(t)
		takeOvers, handOvers = append(takeOvers, r.takeOver), append(handOvers, r.handOver)
	}
	fmt.Printf("take-over after a kill: %s, limit %s; longest call across a hand-over: %s\n", spread(takeOvers), takeOverWithin, spread(handOvers))
	report("One folder", rounds, all)
}

// ownerRound is the part of a round that is under load. It leaves a hub that owns the folder, and
// writers that have ended.
func ownerRound(t *testing.T, c *crew, r *ownerRow, seed uint64) *team {
	t.Helper()
	byHub := r.round%2 == 1
	if byHub {
		c.startHub()
	}
	list := members(t, r.round, c.where...)
	for _, a := range list {
		c.startStdio(a)
	}
	tm, err := newTeam(r.round, seed, list, sharers, func(i int) caller {
		if i%4 == 3 {
			return &overHTTP{crew: c}
		}
		return overStdio{c}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer tm.close()
	for i, w := range tm.writers {
		w.keyless = i%4 == 1 || i%4 == 2
	}
	victim, kind := c.owner()
	if r.killed = kind; byHub != (kind == owner.Serve) {
		t.Fatalf("round %d: the owner is of kind %s", r.round, kind)
	}
	var killed atomic.Pointer[time.Time]
	broken := tm.arm(r.when, func() {
		now := time.Now()
		killed.Store(&now)
		r.before = int(tm.acked.Load())
		victim.kill()
	})
	wait := tm.run(func(o *op, err error) after {
		switch {
		case limited(err):
			time.Sleep(50 * time.Millisecond)
			return repeat
		case errors.Is(err, errGone) && o.keyed():
			return repeat
		case errors.Is(err, errGone):
			return giveUp
		}
		t.Errorf("round %d: %s %s: %v", r.round, o.tool, o.id, err)
		tm.ended.Store(true)
		return stop
	})
	defer func() { tm.ended.Store(true); wait() }() // also where the test fails
	tm.until(t, func() bool {
		select {
		case <-broken:
			return true
		default:
			return false
		}
	})
	survived := tm.acked.Load() + afterKill
	tm.until(t, func() bool { return tm.acked.Load() >= survived || time.Since(*killed.Load()) > 2*takeOverWithin })
	for _, a := range list {
		if c.stdio[a.Handle] == victim {
			c.startStdio(a)
		}
	}
	tm.more(t, afterReturn)
	asked := time.Now()
	c.startHub()
	listening := time.Now()
	tm.more(t, afterHandOver)
	tm.ended.Store(true)
	wait()
	if _, kind := c.owner(); kind != owner.Serve {
		t.Errorf("round %d: the folder was not handed over to the hub", r.round)
	}
	if t.Failed() {
		t.FailNow()
	}
	r.measure(tm, *killed.Load(), asked, listening)
	return tm
}

// until waits for a fact under load; a writer that fails ends the test.
func (tm *team) until(t *testing.T, holds func() bool) {
	t.Helper()
	for give := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if t.Failed() {
			t.FailNow()
		}
		if time.Now().After(give) {
			t.Fatalf("it did not come about in two minutes, with %d acknowledgements so far", tm.acked.Load())
		}
	}
}

// more waits for so many further acknowledgements.
func (tm *team) more(t *testing.T, n int64) {
	t.Helper()
	want := tm.acked.Load() + n
	tm.until(t, func() bool { return tm.acked.Load() >= want })
}

// measure counts calls and takes the times of a round.
func (r *ownerRow) measure(tm *team, killed, asked, listening time.Time) {
	r.takeOver = time.Hour
	for _, o := range tm.ops() {
		if !o.acked {
			r.unknown++
			continue
		}
		r.acked++
		if o.began.After(killed) {
			r.takeOver = min(r.takeOver, o.ended.Sub(killed))
		}
		if o.attempts > 1 {
			r.settled(o)
			continue
		}
		if o.answer.Replay {
			r.bridged++
		}
		if _, ok := o.over.(overStdio); !ok {
			continue // a client of the hub waits for the hub
		}
		if o.began.Before(killed) && o.ended.After(killed) {
			r.longest = max(r.longest, o.ended.Sub(o.began))
		}
		if o.began.Before(listening) && o.ended.After(asked) {
			r.handOver = max(r.handOver, o.ended.Sub(o.began))
		}
	}
	for _, o := range tm.ops() {
		_, http := o.over.(*overHTTP)
		if (!http || r.killed == owner.Serve) && o.began.Before(killed) && (!o.acked || o.ended.After(killed)) {
			r.inFlight++
		}
	}
}

// spread tells the median and the maximum.
func spread(list []time.Duration) string {
	list = slices.Sorted(slices.Values(list))
	return fmt.Sprintf("median %s, max %s", list[len(list)/2].Round(100*time.Microsecond), list[len(list)-1].Round(100*time.Microsecond))
}
