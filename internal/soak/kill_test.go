//go:build soak

package soak

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"       // registers "pgx"
	_ "github.com/ncruces/go-sqlite3/driver" // registers "sqlite3"

	"handclasp/internal/hubtest"
)

// leastAcked is how many acknowledgements a round must have had before something breaks.
const leastAcked = 100

func setting(t *testing.T, name string, fallback uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %q came; a number is accepted", name, text)
	}
	return n
}

func seed(t *testing.T) uint64 {
	t.Helper()
	s := setting(t, "HANDCLASP_SOAK_SEED", uint64(time.Now().UnixNano()))
	fmt.Printf("seed %d (HANDCLASP_SOAK_SEED repeats what the writers choose)\n", s)
	return s
}

// moment is when in a round something breaks: every other time at the very acknowledgement
// that a writer has just received, else by the clock. The first is the worst moment for a hub
// that acknowledges too early, the second for everything else.
type moment struct {
	onAck int64         // break at this acknowledgement; 0 means by the clock
	delay time.Duration // after leastAcked
}

// pick chooses a moment within so many acknowledgements, or milliseconds, after leastAcked.
func pick(random *rand.Rand, round int, within int64) moment {
	if round%2 == 1 {
		return moment{onAck: leastAcked + random.Int64N(within)}
	}
	return moment{delay: time.Duration(random.Int64N(within * int64(time.Millisecond)))}
}

func (m moment) String() string {
	if m.onAck > 0 {
		return fmt.Sprintf("at ack %d", m.onAck)
	}
	return fmt.Sprintf("%d ms after ack %d", m.delay.Milliseconds(), leastAcked)
}

// arm breaks something once, at the moment, and returns a channel that closes when it is done.
func (tm *team) arm(m moment, breakIt func()) (broken chan struct{}) {
	broken = make(chan struct{})
	var once sync.Once
	now := func() { once.Do(func() { breakIt(); close(broken) }) }
	tm.onAck = func(n int64) {
		switch {
		case m.onAck > 0 && n == m.onAck:
			now()
		case m.onAck == 0 && n == leastAcked:
			time.AfterFunc(m.delay, now)
		}
	}
	return broken
}

// row is what a round printed.
type row struct {
	round    int
	when     moment
	before   int // acknowledged before it broke
	inFlight int // begun before it broke, and not acknowledged at once
	acked    int // acknowledged in all, before the count
	found    int
	lost     []string
	doubled  []string
	gaps     []string
	replayed int // of those in flight: had taken effect
	first    int // of those in flight: had not
	down     time.Duration
}

const header = "round  broken                   acked before  in flight  acked  found  doubled  gaps  lost  retried: had/had not taken effect  back after"

func (r *row) print() {
	fmt.Printf("%5d  %-24s %12d  %9d  %5d  %5d  %7d  %4d  %4d  %17d/%-24d  %7d ms\n", r.round, r.when, r.before, r.inFlight,
		r.acked, r.found, len(r.doubled), len(r.gaps), len(r.lost), r.replayed, r.first, r.down.Milliseconds())
}

// verdict fails the test, and ends it, if the round is not as it must be.
func (r *row) verdict(t *testing.T) {
	t.Helper()
	if len(r.lost) > 0 {
		t.Errorf("round %d: lost acknowledgements: %d of %d\n  %s", r.round, len(r.lost), r.acked, some(r.lost))
	}
	if len(r.doubled) > 0 {
		t.Errorf("round %d: %d effects doubled\n  %s", r.round, len(r.doubled), some(r.doubled))
	}
	if len(r.gaps) > 0 {
		t.Errorf("round %d: %d gaps in numbers\n  %s", r.round, len(r.gaps), some(r.gaps))
	}
	if r.before < leastAcked {
		t.Errorf("round %d proves nothing: %d acknowledgements, at least %d are needed", r.round, r.before, leastAcked)
	}
	if r.inFlight == 0 {
		t.Errorf("round %d proves nothing: no call was in flight", r.round)
	}
	if t.Failed() {
		t.FailNow()
	}
}

// recount looks again with what was learned since; what was lost or doubled stays so.
func (r *row) recount(f *findings, ops []*op) {
	found, lost, doubled := f.count(ops)
	r.found = found
	r.lost = append(r.lost, lost...)
	r.doubled = append(r.doubled, doubled...)
	r.gaps = append(r.gaps, f.gaps...)
}

// finish repeats every call of the round that has a key and was not acknowledged: it must succeed,
// once. Then it repeats some that were: each must be answered as the first time.
func (r *row) finish(t *testing.T, hub string, ops []*op) {
	t.Helper()
	c := newClient(hub)
	defer c.close()
	repeated := 0
	for _, o := range ops {
		if !o.keyed() {
			continue
		}
		if !o.acked {
			if err := o.try(c); err != nil {
				t.Errorf("round %d: %s %s was in flight (%v); repeated with its key it is refused: %v", r.round, o.tool, o.id, o.failed, err)
				continue
			}
			r.settled(o)
			continue
		}
		if repeated++; repeated%50 != 0 {
			continue
		}
		first := o.answer
		if err := o.try(c); err != nil {
			t.Errorf("round %d: %s %s was acknowledged; repeated with its key it is refused: %v", r.round, o.tool, o.id, err)
			continue
		}
		if a := o.answer; !a.Replay || a.ThreadID != first.ThreadID || a.MessageID != first.MessageID || a.SequenceNo != first.SequenceNo {
			r.doubled = append(r.doubled, fmt.Sprintf("%s %s: acknowledged as %+v, repeated with its key as %+v", o.tool, o.id, first, a))
		}
	}
}

// settled notes how a repeated call came out. One that was told each time that nothing was
// written must not have taken effect.
func (r *row) settled(o *op) {
	if !o.answer.Replay {
		r.first++
		return
	}
	r.replayed++
	if o.wroteNothing {
		r.doubled = append(r.doubled, fmt.Sprintf("%s %s: the hub said that nothing was written (%v), and it was", o.tool, o.id, o.failed))
	}
}

// members registers the agents of a round.
func members(t *testing.T, round int, where ...string) []agent {
	t.Helper()
	list := make([]agent, agents)
	for i := range list {
		list[i] = addAgent(t, fmt.Sprintf("agent%d@round%d", i, round), where...)
	}
	return list
}

// TestSoakKillSQLite kills the hub with SIGKILL under 64 writers, starts it again on the same
// folder, and counts.
func TestSoakKillSQLite(t *testing.T) {
	rounds, seed := int(setting(t, "HANDCLASP_SOAK_ROUNDS", 20)), seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	data := t.TempDir()
	where := []string{"--data", data}
	events := &eventLog{cursor: "0", last: map[string]int{}}
	var all []*op

	fmt.Printf("SQLite, kill -9 of the hub under %d writers\n%s\n", writers, header)
	for round := 1; round <= rounds; round++ {
		p := serve(t, where...)
		tm, err := newTeam(round, seed, members(t, round, where...), writers, p.dial)
		if err != nil {
			t.Fatal(err)
		}
		r := &row{round: round, when: pick(random, round, 1500)}
		var killed atomic.Pointer[time.Time]
		broken := tm.arm(r.when, func() {
			now := time.Now()
			killed.Store(&now)
			r.before = int(tm.acked.Load())
			p.kill()
			tm.ended.Store(true)
		})
		wait := tm.run(func(o *op, err error) after {
			if killed.Load() == nil {
				t.Errorf("round %d: %s %s: %v\n%s", round, o.tool, o.id, err, p.log)
				tm.ended.Store(true)
			}
			return stop
		})
		wait()
		tm.close()
		if t.Failed() {
			t.FailNow()
		}
		<-broken
		ops := tm.ops()
		for _, o := range ops {
			if o.acked {
				r.acked++
			} else if o.began.Before(*killed.Load()) {
				r.inFlight++
			}
		}

		p = serve(t, where...)
		r.down = time.Since(*killed.Load())
		look(t, r, p.url, tm, ops)

		list, cursor := eventsAfter(t, data, events.cursor)
		events.cursor = cursor
		r.gaps = append(r.gaps, events.read(list)...)
		p.stop(t)
		all = append(all, ops...)
		checkSQLite(t, r, filepath.Join(data, "handclasp.db"), all)
		r.print()
		r.verdict(t)
	}
	report("SQLite", rounds, all)
}

// look compares what was acknowledged with what the hub shows, settles what was in flight,
// and looks again.
func look(t *testing.T, r *row, hub string, tm *team, ops []*op) {
	t.Helper()
	f, err := throughMCP(hub, tm.agents)
	if err != nil {
		t.Fatal(err)
	}
	r.recount(f, ops)
	if len(r.lost) > 0 {
		r.print()
		r.verdict(t)
	}
	settled := r.first + r.replayed
	r.finish(t, hub, ops)
	if f, err = throughMCP(hub, tm.agents); err != nil {
		t.Fatal(err)
	}
	before := r.found
	r.recount(f, ops)
	if want := before + r.first + r.replayed - settled; r.found != want {
		t.Errorf("round %d: %d effects after the repetitions, want %d", r.round, r.found, want)
	}
	r.found = before
}

// checkSQLite is the second look, at the tables of all rounds so far, once the hub has ended.
func checkSQLite(t *testing.T, r *row, path string, all []*op) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for pragma, want := range map[string]string{"integrity_check": "ok", "foreign_key_check": ""} {
		got := ""
		if err := db.QueryRow("SELECT coalesce(group_concat(p.\"" + column(pragma) + "\", '; '), '') FROM pragma_" + pragma + " p").Scan(&got); err != nil {
			t.Fatalf("round %d: PRAGMA %s: %v", r.round, pragma, err)
		}
		if got != want {
			t.Errorf("round %d: PRAGMA %s says %q", r.round, pragma, got)
		}
	}
	checkTables(t, r, db, all)
}

func column(pragma string) string {
	if pragma == "integrity_check" {
		return pragma
	}
	return "table"
}

func checkTables(t *testing.T, r *row, db *sql.DB, all []*op) {
	t.Helper()
	f, err := throughSQL(db)
	if err != nil {
		t.Fatalf("round %d: read the tables: %v", r.round, err)
	}
	found := r.found
	r.recount(f, all)
	r.found = found
}

func report(kind string, rounds int, all []*op) {
	replays, tools := 0, map[string]int{}
	for _, o := range all {
		tools[o.tool]++
		if o.answer.Replay {
			replays++
		}
	}
	fmt.Printf("%s: %d rounds, %d calls (%d handoffs, %d messages, %d accepted, %d completed), %d replays; nothing lost, nothing doubled, no gaps\n\n", kind, rounds, len(all),
		tools["handoff_to_teammate"], tools["send_message"], tools["accept_handoff"], tools["complete_handoff"], replays)
}

// TestSoakKillPostgres stops PostgreSQL as a crash does (pg_ctl -m immediate) under 64
// writers and starts it again. The hub stays up; what failed as unavailable is repeated.
func TestSoakKillPostgres(t *testing.T) {
	rounds := int(min(setting(t, "HANDCLASP_SOAK_PG_ROUNDS", 10), setting(t, "HANDCLASP_SOAK_ROUNDS", 1<<30)))
	_, err := hubtest.PostgresBin()
	hubtest.Require(t, "postgres", err)
	seed := seed(t)
	random := rand.New(rand.NewPCG(seed, 1))
	cluster, err := hubtest.StartCluster(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := cluster.CreateDatabase(t.Context(), "soak", ""); err != nil {
		t.Fatal(err)
	}
	where := []string{"--database-url", cluster.URL("soak")}
	p := serve(t, where...)
	var all []*op

	fmt.Printf("PostgreSQL, immediate stop of the server under %d writers; the hub is process %d\n%s\n", writers, p.cmd.Process.Pid, header)
	for round := 1; round <= rounds; round++ {
		tm, err := newTeam(round, seed, members(t, round, where...), writers, p.dial)
		if err != nil {
			t.Fatal(err)
		}
		r := &row{round: round, when: pick(random, round, 1500)}
		var stopped atomic.Pointer[time.Time]
		broken := tm.arm(r.when, func() {
			now := time.Now()
			stopped.Store(&now)
			r.before = int(tm.acked.Load())
			if err := cluster.Stop(syscall.SIGQUIT); err != nil {
				t.Errorf("stop PostgreSQL: %v", err)
			}
		})
		wait := tm.run(func(o *op, err error) after {
			at := stopped.Load()
			switch {
			case at != nil && unavailable(err) && time.Since(*at) < time.Minute:
				time.Sleep(50 * time.Millisecond)
				return repeat
			case at == nil:
				t.Errorf("round %d: %s %s, before anything broke: %v\n%s", round, o.tool, o.id, err, p.log)
			default:
				t.Errorf("round %d: %s %s, %s after the stop: %v\n%s", round, o.tool, o.id, time.Since(*at), err, p.log)
			}
			tm.ended.Store(true)
			return stop
		})
		select {
		case <-broken:
		case <-time.After(2 * time.Minute):
			t.Fatalf("round %d: fewer than %d acknowledgements in two minutes", round, leastAcked)
		}
		if err := cluster.Start(); err != nil {
			t.Fatalf("start PostgreSQL again: %v", err)
		}
		// Everyone finishes the call it is at, and that alone shows that the hub serves again.
		tm.ended.Store(true)
		wait()
		r.down = time.Since(*stopped.Load())
		tm.close()
		if t.Failed() {
			t.FailNow()
		}
		ops := tm.ops()
		for _, o := range ops {
			r.acked++ // or its writer would have failed the test
			if o.attempts > 1 && o.began.Before(*stopped.Load()) {
				r.inFlight++
			}
			if o.attempts > 1 {
				r.settled(o)
			}
		}
		look(t, r, p.url, tm, ops)
		all = append(all, ops...)
		db, err := sql.Open("pgx", cluster.URL("soak"))
		if err != nil {
			t.Fatal(err)
		}
		checkTables(t, r, db, all)
		db.Close()
		r.print()
		r.verdict(t)
		if !p.alive() {
			t.Fatalf("the hub ended: %v\n%s", p.state, p.log)
		}
	}
	fmt.Printf("the hub was process %d all along\n", p.cmd.Process.Pid)
	p.stop(t)
	report("PostgreSQL", rounds, all)
}
