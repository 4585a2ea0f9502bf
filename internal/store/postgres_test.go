package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// onPostgres opens a store on PostgreSQL and a connection beside it.
func onPostgres(t *testing.T) (*fixture, *sql.DB) {
	t.Helper()
	f := open(t, config(t, "postgres"))
	return f, beside(t, f.cfg.URL)
}

func beside(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, statements ...string) {
	t.Helper()
	for _, st := range statements {
		if _, err := db.Exec(st); err != nil {
			t.Fatalf("%s: %v", st, err)
		}
	}
}

// aHandoff is the least that a handoff can be.
func aHandoff(id string) *handoff.Handoff {
	return &handoff.Handoff{ID: id, Door: handoff.DoorTeam, State: handoff.Open, Creator: "creator", Recipient: "recipient", Visibility: handoff.Private}
}

func TestDeadlockIsRunAgainWithFreshReads(t *testing.T) {
	t.Parallel()
	f, _ := onPostgres(t)
	f.write(func(tx *store.Tx) error {
		return errors.Join(tx.InsertHandoff(aHandoff("a")), tx.InsertHandoff(aHandoff("b")))
	})
	var both sync.WaitGroup // both hold their first lock
	both.Add(2)
	var tries atomic.Int64
	count := func(first, second string) func(*store.Tx) error {
		once := sync.Once{}
		return func(tx *store.Tx) error {
			tries.Add(1)
			for i, id := range []string{first, second} {
				h, err := tx.LockHandoff(id)
				if err != nil {
					return err
				}
				if i == 0 {
					once.Do(func() {
						both.Done()
						both.Wait()
					})
				}
				was := h
				h.Messages++
				if err := tx.UpdateHandoff(&was, &h); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var wg sync.WaitGroup
	for _, order := range [][2]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			if err := f.Write(context.Background(), count(order[0], order[1])); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if tries.Load() < 3 {
		t.Errorf("the two functions ran %d times: there was no deadlock", tries.Load())
	}
	f.read(func(tx *store.Tx) error {
		for _, id := range []string{"a", "b"} {
			if h, err := tx.Handoff(id); err != nil || h.Messages != 2 {
				t.Errorf("handoff %s counts %d (%v), want 2", id, h.Messages, err)
			}
		}
		return nil
	})
}

func TestSerializationFailureIsRunAgainAndNotForEver(t *testing.T) {
	t.Parallel()
	f, db := onPostgres(t)
	run(t, db, `CREATE SEQUENCE tried`,
		`CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF NEW.role = 'always' OR nextval('tried') < 4 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;
			RETURN NEW; END $$`,
		`CREATE TRIGGER conflict BEFORE INSERT ON agents FOR EACH ROW EXECUTE FUNCTION conflict()`)
	tries := 0
	f.write(func(tx *store.Tx) error {
		tries++
		if _, err := tx.Agents(); err != nil {
			return err
		}
		return add("persistent")(tx)
	})
	if tries != 4 {
		t.Errorf("it took %d tries, want 4", tries)
	}
	tries = 0
	err := f.Write(context.Background(), func(tx *store.Tx) error {
		tries++
		return tx.InsertAgent(&store.AgentRow{Agent: handoff.Agent{ID: "never", Handle: "never", Role: "always"}}, time.Now())
	})
	wantUnavailable(t, "a write that conflicts for ever", err, nothing)
	if tries < 5 || tries > 20 {
		t.Errorf("it was tried %d times", tries)
	}
	wantThere(t, f.there(), "persistent")
}

func TestSameKeyAtOnceHasOneEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		const callers = 12 // fewer than there are connections
		op := store.Operation{Actor: "actor", Verb: "verb", Key: "key"}
		effects := make([]store.Effect, callers)
		var wg, looked sync.WaitGroup
		looked.Add(callers)
		for i := range callers {
			wg.Go(func() {
				first := true
				err := f.Write(context.Background(), func(tx *store.Tx) error {
					e, found, err := tx.Effect(op)
					if first && f.Kind() == "postgres" { // where transactions overlap, all find nothing
						looked.Done()
						looked.Wait()
					}
					first = false
					effects[i] = e
					if err != nil || found {
						return err
					}
					effects[i] = store.Effect{Fingerprint: "same", HandoffID: fmt.Sprint("effect-", i)}
					return errors.Join(add(effects[i].HandoffID)(tx), tx.InsertEffect(op, effects[i], tx.Now()))
				})
				if err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		there := f.there()
		if len(there) != 1 {
			t.Fatalf("%d effects are there: %v", len(there), there)
		}
		for i, e := range effects {
			if e.HandoffID != there[0] {
				t.Errorf("caller %d was told of %q, there is %q", i, e.HandoffID, there[0])
			}
		}
	})
}

func TestStoreOutlivesACrashOfPostgres(t *testing.T) {
	t.Parallel()
	cluster := ownCluster(t)
	f := open(t, store.Config{URL: cluster.URL("postgres")})
	f.write(add("before"))
	f.there()

	// It crashes under writers. Each is answered; what was acknowledged is there afterwards.
	var mu sync.Mutex
	answers := map[string]error{}
	var wg sync.WaitGroup
	under := make(chan struct{}, 8)
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("w%d-%d", i, n)
				err := f.Write(context.Background(), func(tx *store.Tx) error {
					if n%2 == 0 {
						if _, err := tx.UnreadTotal("nobody"); err != nil {
							return err
						}
					}
					return add(name)(tx)
				})
				mu.Lock()
				answers[name] = err
				mu.Unlock()
				if n == 3 {
					under <- struct{}{}
				}
				if err != nil {
					return
				}
			}
		})
	}
	for range 8 {
		<-under
	}
	must(t, cluster.Stop(syscall.SIGQUIT))
	wg.Wait()
	for range 3 {
		wantUnavailable(t, "a writer without a server", f.Write(context.Background(), add("away")), nothing)
		err := f.Read(context.Background(), func(tx *store.Tx) error { _, err := tx.Agents(); return err })
		if handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Errorf("a reader without a server got %v", err)
		}
		if err := f.Ping(context.Background()); handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Errorf("a ping without a server got %v", err)
		}
	}
	must(t, cluster.Start())
	// No connection of before is good any more, and nobody has to notice.
	f.write(add("after"))
	there := f.there()
	if !slices.Contains(there, "before") || !slices.Contains(there, "after") || slices.Contains(there, "away") {
		t.Errorf("there are %v", there)
	}
	outcomes := map[string]int{}
	for name, err := range answers {
		got, is := says(err), slices.Contains(there, name)
		outcomes[got]++
		// The server of the tests does not sync, but a killed process loses nothing by that.
		if (got == nothing && is) || (got != written && got != nothing && got != unknown) {
			t.Errorf("%s was told %q (%v), in the database: %v", name, got, err, is)
		}
		if got == written && !is {
			t.Errorf("%s was acknowledged and is gone", name)
		}
	}
	t.Log(outcomes)
}

// ownCluster starts a server that only this test uses, durable as one in production.
func ownCluster(t *testing.T) *hubtest.Cluster {
	t.Helper()
	hubtest.PostgresURL(t) // skips where there is no PostgreSQL
	cluster, err := hubtest.StartCluster(true)
	must(t, err)
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Errorf("remove the cluster: %v", err)
		}
	})
	return cluster
}

// Two ways to write: in one round trip, and after a read.
func twoWays(name string) map[string]func(*store.Tx) error {
	plain := func(tx *store.Tx) error {
		return tx.InsertAgent(&store.AgentRow{Agent: handoff.Agent{ID: name, Handle: name}}, time.Now())
	}
	return map[string]func(*store.Tx) error{
		"write only": plain,
		"after a read": func(tx *store.Tx) error {
			_, err := tx.UnreadTotal("nobody")
			return errors.Join(err, plain(tx))
		},
	}
}

func TestBackendKilledWhileItCommitsLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	for name, fn := range twoWays("killed") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, db := onPostgres(t)
			holdCommits(t, db)
			for kill, want := range map[string]string{"pg_terminate_backend": unknown, "pg_cancel_backend": nothing} {
				lock, err := db.Conn(context.Background())
				must(t, err)
				if _, err := lock.ExecContext(context.Background(), "SELECT pg_advisory_lock(7)"); err != nil {
					t.Fatal(err)
				}
				answer := make(chan error, 1)
				go func() { answer <- f.Write(context.Background(), fn) }()
				var pid int
				eventually(t, "the server commits", func() bool {
					return db.QueryRow(`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`).Scan(&pid) == nil
				})
				run(t, db, fmt.Sprintf("SELECT %s(%d)", kill, pid))
				err = <-answer
				wantUnavailable(t, kill, err, want)
				must(t, lock.Raw(func(any) error { return nil }))
				_, _ = lock.ExecContext(context.Background(), "SELECT pg_advisory_unlock(7)")
				must(t, lock.Close())
				wantThere(t, f.there())
			}
			f.write(fn)
			wantThere(t, f.there(), "killed")
		})
	}
}

// holdCommits makes each commit that added an agent wait for an advisory lock.
func holdCommits(t *testing.T, db *sql.DB) {
	t.Helper()
	run(t, db, `CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NULL; END $$`,
		`CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON agents DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hold()`)
}

func TestCommitThatTheServerRefusesWritesNothing(t *testing.T) {
	t.Parallel()
	for name, fn := range twoWays("refused") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, db := onPostgres(t)
			run(t, db, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$`,
				`CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON agents DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION refuse()`)
			wantUnavailable(t, "the writer", f.Write(context.Background(), fn), nothing)
			wantThere(t, f.there())
			run(t, db, `DROP TRIGGER refuse ON agents`)
			f.write(fn)
		})
	}
}

func TestLostAnswerToACommitSaysTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for name := range twoWays("") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, "postgres")
			p := throughProxy(t, cfg.URL)
			f := open(t, store.Config{URL: p.url})
			// The server commits, and its answer never arrives.
			p.cutWhen(func(fromServer bool, kind byte, body []byte) bool {
				return fromServer && kind == 'C' && (strings.HasPrefix(string(body), "COMMIT") || strings.HasPrefix(string(body), "INSERT"))
			})
			tries := 0
			err := f.Write(context.Background(), func(tx *store.Tx) error {
				tries++
				return twoWays("there")[name](tx)
			})
			p.cutWhen(nil)
			wantUnavailable(t, "the writer whose answer was lost", err, unknown)
			if tries != 1 {
				t.Errorf("it was run %d times, want once: it may have taken effect", tries)
			}
			wantThere(t, f.there(), "there")
			// The same answer when the commit never arrived: nobody can tell the two apart.
			f.write(twoWays("warm")[name])
			var armed atomic.Bool
			p.cutWhen(func(fromServer bool, _ byte, _ []byte) bool { return armed.Load() && !fromServer })
			err = f.Write(context.Background(), func(tx *store.Tx) error {
				err := twoWays("not there")[name](tx)
				armed.Store(true)
				return err
			})
			p.cutWhen(nil)
			wantUnavailable(t, "the writer whose commit was lost", err, unknown)
			wantThere(t, f.there(), "there", "warm")
		})
	}
}

func TestConnectionLostBeforeTheCommitIsReplacedUnnoticed(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]func(*store.Tx) error{
		// What was queued before must not get lost on the way to the new connection.
		"at the clock": func(tx *store.Tx) error { tx.Now(); return nil },
		"at a read":    func(tx *store.Tx) error { _, err := tx.UnreadTotal("nobody"); return err },
		"at a read whose fault is swallowed": func(tx *store.Tx) error {
			_, _ = tx.UnreadTotal("nobody")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, db := onPostgres(t)
			f.write(add("before")) // the pool has a connection
			tries := 0
			f.write(func(tx *store.Tx) error {
				tries++
				if err := tx.InsertAgent(&store.AgentRow{Agent: handoff.Agent{ID: "queued", Handle: "queued"}}, time.Now()); err != nil {
					return err
				}
				if tries == 1 {
					killBackends(t, db)
				}
				return first(tx)
			})
			if tries < 2 {
				t.Error("the connection was not lost")
			}
			wantThere(t, f.there(), "before", "queued")
		})
	}
}

// killBackends ends every connection of the store and waits until the server has.
func killBackends(t *testing.T, db *sql.DB) {
	t.Helper()
	const mine = ` FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'handclasp'`
	if _, err := db.Exec(`SELECT pg_terminate_backend(pid)` + mine); err != nil {
		t.Error(err)
	}
	n := 1
	for deadline := time.Now().Add(20 * time.Second); n > 0 && time.Now().Before(deadline); {
		if err := db.QueryRow(`SELECT count(*)` + mine).Scan(&n); err != nil {
			t.Error(err)
			return
		}
	}
}

func TestCancelledCallerIsWrittenWhollyOnceItRuns(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		for name, fn := range twoWays("all") {
			ctx, cancel := context.WithCancel(context.Background())
			err := f.Write(ctx, func(tx *store.Tx) error {
				cancel()
				if name == "after a read" {
					_, err := tx.Agents()
					return errors.Join(err, add("the rest")(tx))
				}
				return fn(tx)
			})
			wantSays(t, name, err, written)
		}
		wantThere(t, f.there(), "all", "the rest")
	})
}

func TestWriteCostsAsFewRoundTripsAsItHasReads(t *testing.T) {
	t.Parallel()
	cfg := config(t, "postgres")
	p := throughProxy(t, cfg.URL)
	f := open(t, store.Config{URL: p.url, MaxConns: 1})
	n := 0
	insert := func(tx *store.Tx) error {
		n++
		at, name := time.Unix(1, 0), fmt.Sprint("a", n)
		return errors.Join(
			tx.InsertAgent(&store.AgentRow{Agent: handoff.Agent{ID: name, Handle: name}}, at),
			tx.InsertEvent(&handoff.Event{Type: handoff.EventAgentAdded, SubjectID: name, At: at}),
			tx.SetDisabled(name, true, at))
	}
	read := func(tx *store.Tx) error { _, err := tx.UnreadTotal("nobody"); return err }
	for _, c := range []struct {
		what  string
		trips int64
		call  func(context.Context, func(*store.Tx) error) error
		fn    func(*store.Tx) error
	}{
		{"nothing", 0, f.Write, func(*store.Tx) error { return nil }},
		{"three writes", 1, f.Write, insert},
		{"the clock and three writes", 2, f.Write, func(tx *store.Tx) error { tx.Now(); return insert(tx) }},
		{"a read and three writes", 2, f.Write, func(tx *store.Tx) error { return errors.Join(read(tx), insert(tx)) }},
		{"a read, the clock and three writes", 2, f.Write, func(tx *store.Tx) error { return errors.Join(read(tx), insert(tx), insert(tx)) }},
		{"three writes, a read, three writes", 2, f.Write, func(tx *store.Tx) error { return errors.Join(insert(tx), read(tx), insert(tx)) }},
		{"two reads and three writes", 3, f.Write, func(tx *store.Tx) error { return errors.Join(read(tx), read(tx), insert(tx)) }},
		{"a read", 2, f.Write, read},
		{"a reader's read", 2, f.Read, read},
	} {
		// The first round prepares statements; a connection that was idle for a second is
		// pinged. So the least of some rounds counts.
		least := int64(1 << 30)
		for range 5 {
			before := p.trips.Load()
			must(t, c.call(context.Background(), c.fn))
			least = min(least, p.trips.Load()-before)
		}
		if least != c.trips {
			t.Errorf("%s cost %d round trips, want %d", c.what, least, c.trips)
		}
	}
}

func TestPostgresCallerThatLeftDoesNotStandInTheQueueForAConnection(t *testing.T) {
	t.Parallel()
	cfg := config(t, "postgres")
	cfg.MaxConns = 2
	f := open(t, cfg)
	release, held := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for range 4 { // two, and the two that talk to other nodes
		wg.Go(func() {
			_ = f.Read(context.Background(), func(*store.Tx) error {
				held <- struct{}{}
				<-release
				return nil
			})
		})
	}
	for range 4 {
		<-held
	}
	for what, call := range map[string]func(context.Context) error{
		"a read":  func(ctx context.Context) error { return f.Read(ctx, func(*store.Tx) error { return nil }) },
		"a write": func(ctx context.Context) error { return f.Write(ctx, func(*store.Tx) error { return nil }) },
	} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- call(ctx) }()
		cancel()
		if err := <-done; handoff.CodeOf(err) != handoff.CodeUnavailable || !errors.Is(err, context.Canceled) {
			t.Errorf("%s whose caller left: %v", what, err)
		}
	}
	close(release)
	wg.Wait()
}
