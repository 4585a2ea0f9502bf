package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// joined is a store on PostgreSQL with one lane.
func joined(t *testing.T) *fixture {
	t.Helper()
	cfg := config(t, "postgres")
	cfg.Lanes = 1
	return open(t, cfg)
}

// jointly runs the functions in one shared transaction.
func (f *fixture) jointly(fns ...func(*store.Tx) error) []error {
	f.t.Helper()
	calls := make([]call, len(fns))
	for i, fn := range fns {
		calls[i].fn = fn
	}
	return f.behindOne(f.WriteTogether, f.Waiting, calls)
}

var errRefused = errors.New("refused")

func TestCallsThatShareATransactionAreCommittedAtOnce(t *testing.T) {
	t.Parallel()
	f := joined(t)
	var xacts []string
	fns := make([]func(*store.Tx) error, 5)
	for i := range fns {
		fns[i] = func(tx *store.Tx) error {
			if tx.MayWait() {
				t.Error("it may wait for others")
			}
			id, err := tx.Xact()
			xacts = append(xacts, id)
			return errors.Join(err, add(fmt.Sprint("n", i))(tx))
		}
	}
	for _, err := range f.jointly(fns...) {
		must(t, err)
	}
	if slices.Sort(xacts); len(xacts) != 5 || len(slices.Compact(xacts)) != 1 {
		t.Errorf("transactions: %v", xacts)
	}
	wantThere(t, f.there(), "n0", "n1", "n2", "n3", "n4")
}

func TestARefusalInASharedTransactionIsItsOwn(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]func(*store.Tx) error{
		"before it wrote": func(*store.Tx) error { return errRefused },
		"after it wrote":  func(tx *store.Tx) error { return errors.Join(add("refused")(tx), errRefused) },
		"after a read of what it wrote": func(tx *store.Tx) error {
			err := add("refused")(tx)
			_, readErr := tx.UnreadTotal("nobody")
			return errors.Join(err, readErr, errRefused)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := joined(t)
			errs := f.jointly(add("a"), refuse, add("b"))
			if errs[0] != nil || !errors.Is(errs[1], errRefused) || errs[2] != nil {
				t.Errorf("answers: %v", errs)
			}
			wantThere(t, f.there(), "a", "b")
			if err := f.WriteTogether(context.Background(), refuse); !errors.Is(err, errRefused) {
				t.Errorf("alone: %v", err)
			}
			wantThere(t, f.there(), "a", "b")
		})
	}
}

func TestAFaultInASharedTransactionIsTheOneCallsAlone(t *testing.T) {
	t.Parallel()
	f := joined(t)
	errs := f.jointly(add("a"), func(*store.Tx) error { panic("boom") }, func(tx *store.Tx) error {
		_, err := tx.UnreadTotal("a\x00b") // no text for PostgreSQL
		return err
	}, add("b"))
	if errs[0] != nil || errs[1] == nil || errs[2] == nil || errs[3] != nil {
		t.Errorf("answers: %v", errs)
	}
	for _, err := range errs[1:3] {
		if handoff.CodeOf(err) == "" {
			t.Errorf("no refusal of ours: %v", err)
		}
	}
	wantThere(t, f.there(), "a", "b")
}

func TestWhoHasToWaitGetsATransactionOfItsOwn(t *testing.T) {
	t.Parallel()
	f := joined(t)
	tries := 0
	errs := f.jointly(add("a"), func(tx *store.Tx) error {
		if tries++; !tx.MayWait() {
			return store.ErrWaits
		}
		return add("waited")(tx)
	}, add("b"))
	must(t, errors.Join(errs...))
	if tries != 2 {
		t.Errorf("it ran %d times", tries)
	}
	wantThere(t, f.there(), "a", "b", "waited")
}

func TestACallThatIsCancelledBeforeItsSharedTransactionWritesNothing(t *testing.T) {
	t.Parallel()
	f := joined(t)
	ctx, cancel := context.WithCancel(context.Background())
	queued := func() int {
		n := f.Waiting()
		if n == 2 { // before the lane is free
			cancel()
		}
		return n
	}
	errs := f.behindOne(f.WriteTogether, queued, []call{{fn: add("a")}, {ctx: ctx, fn: add("cancelled")}})
	must(t, errs[0])
	if handoff.CodeOf(errs[1]) != handoff.CodeUnavailable || !strings.Contains(errs[1].Error(), "cancelled") {
		t.Errorf("the cancelled call: %v", errs[1])
	}
	wantThere(t, f.there(), "a")
}

func TestWhenTheServerDiesUnderASharedTransactionAllAreToldSo(t *testing.T) {
	t.Parallel()
	f := joined(t)
	db := beside(t, f.cfg.URL)
	holdCommits(t, db)
	lock, err := db.Conn(context.Background())
	must(t, err)
	if _, err := lock.ExecContext(context.Background(), "SELECT pg_advisory_lock(7)"); err != nil {
		t.Fatal(err)
	}
	done := make(chan []error, 1)
	go func() { done <- f.jointly(add("a"), add("b")) }()
	var pid int
	eventually(t, "the server commits", func() bool {
		return db.QueryRow(`SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'advisory'`).Scan(&pid) == nil
	})
	run(t, db, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
	for _, err := range <-done {
		wantUnavailable(t, "a call", err, unknown)
	}
	_, _ = lock.ExecContext(context.Background(), "SELECT pg_advisory_unlock(7)")
	must(t, lock.Close())
	wantThere(t, f.there())
}

// What was read ahead is used only as long as it is surely still so.
func TestWhatWasAnnouncedIsReadAnewAfterAWriteOrAnotherQuestion(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("a"))
		for name, between := range map[string]func(*store.Tx) error{
			"nothing":     func(*store.Tx) error { return nil },
			"a question":  func(tx *store.Tx) error { _, err := tx.UnreadTotal("nobody"); return err },
			"its own row": func(tx *store.Tx) error { _, err := tx.LockAgent("a"); return err },
		} {
			f.write(func(tx *store.Tx) error {
				tx.ExpectKeepAgentIn("a", "w")
				tx.ExpectKeepAgentIn("a", "w")
				_, err := tx.UnreadTotal("a")
				must(t, errors.Join(err, between(tx)))
				for _, read := range []func(string, string) (handoff.Agent, error){tx.KeepAgentIn, tx.KeepAgentIn, tx.AgentIn} {
					if a, err := read("a", "w"); err != nil || a.ID != "a" {
						t.Errorf("after %s: %+v, %v", name, a, err)
					}
				}
				return nil
			})
		}
		f.write(func(tx *store.Tx) error {
			tx.ExpectKeepAgentIn("b", "w")
			_, err := tx.UnreadTotal("a")
			must(t, errors.Join(err, add("b")(tx)))
			if a, err := tx.KeepAgentIn("b", "w"); err != nil || a.ID != "b" {
				t.Errorf("after it was written: %+v, %v", a, err)
			}
			return nil
		})
	})
}

// A lease must not begin before the moment at which its handoff was free.
func TestTheTimeOfAWriteIsFromAfterItsWaitForARow(t *testing.T) {
	t.Parallel()
	f, db := onPostgres(t)
	f.write(add("a"))
	held, goOn, first := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		first <- f.Write(context.Background(), func(tx *store.Tx) error {
			_, err := tx.LockAgent("a")
			close(held)
			<-goOn
			return err
		})
	}()
	<-held
	var now time.Time
	second := make(chan error, 1)
	go func() {
		second <- f.Write(context.Background(), func(tx *store.Tx) error {
			_, err := tx.LockAgent("a")
			now = tx.Now()
			return err
		})
	}()
	waits := 0
	eventually(t, "the second waits", func() bool {
		return db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits) == nil && waits > 0
	})
	var then time.Time
	must(t, db.QueryRow("SELECT clock_timestamp()").Scan(&then))
	close(goOn)
	must(t, errors.Join(<-first, <-second))
	if now.Before(then.Truncate(time.Microsecond)) {
		t.Errorf("its time is %v before the row was free", then.Sub(now))
	}
}

// One lane serves everybody, so nothing in it waits for what another transaction keeps.
func TestALaneDoesNotWaitForAnAgentOrAKey(t *testing.T) {
	t.Parallel()
	op := store.Operation{Actor: "a", Verb: "claim", Key: "k"}
	for name, keep := range map[string]struct{ first, second func(*store.Tx) error }{
		"an agent": {
			func(tx *store.Tx) error { _, err := tx.LockAgent("a"); return err },
			func(tx *store.Tx) error { _, err := tx.KeepAgentIn("a", "w"); return err },
		},
		"a claimant": {
			func(tx *store.Tx) error { _, err := tx.LockAgent("a"); return err },
			func(tx *store.Tx) error { _, _, err := tx.KeepClaimant("a", "w"); return err },
		},
		"a key": {
			func(tx *store.Tx) error { return tx.HoldKey(op) },
			func(tx *store.Tx) error { return tx.HoldKey(op) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := joined(t)
			db := beside(t, f.cfg.URL)
			f.write(add("a"))
			held, goOn := make(chan struct{}), make(chan struct{})
			first, second := make(chan error, 1), make(chan error, 1)
			go func() {
				first <- f.Write(context.Background(), func(tx *store.Tx) error {
					err := keep.first(tx)
					close(held)
					<-goOn
					return err
				})
			}()
			<-held
			go func() { second <- f.WriteTogether(context.Background(), keep.second) }()
			waits := 0
			eventually(t, "the second waits", func() bool {
				return db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits) == nil && waits > 0
			})
			must(t, f.WriteTogether(context.Background(), add("b")))
			close(goOn)
			must(t, errors.Join(<-first, <-second))
			wantThere(t, f.there(), "a", "b")
		})
	}
}
