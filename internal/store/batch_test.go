package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func TestConcurrentWritersShareOneCommit(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	var calls []call
	var want []string
	for i := range 64 {
		name := fmt.Sprintf("writer-%02d", i)
		want = append(want, name)
		calls = append(calls, call{fn: add(name)})
	}
	before, _ := f.batches()
	for i, err := range f.together(calls...) {
		wantSays(t, fmt.Sprintf("writer %d", i), err, written)
	}
	if count, _ := f.batches(); count-before != 1 {
		t.Errorf("64 waiting writers cost %d commits, want 1", count-before)
	}
	wantThere(t, f.thereOnDisk(), want...)
}

func TestBatchEndsAt128Functions(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	var wg sync.WaitGroup
	f.LongBatches()
	var batch, size, most int // touched by the one writer only
	for i := range 400 {
		wg.Go(func() {
			if err := f.Write(context.Background(), func(tx *store.Tx) error {
				n, _ := f.batches()
				if n != batch {
					batch, size = n, 0
				}
				size++
				most = max(most, size)
				return add(fmt.Sprintf("w%03d", i))(tx)
			}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most > 128 || most < 2 {
		t.Errorf("the largest batch had %d functions, want 2 to 128", most)
	}
	if n := len(f.there()); n != 400 {
		t.Errorf("%d of 400 writes are there", n)
	}
}

func TestRefusalsAreAnsweredAfterTheCommit(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	refusal := handoff.Refuse(handoff.CodeAlreadyClaimed, "somebody was faster", "")
	refuse := func(tx *store.Tx) error {
		if _, err := tx.Agent("claim"); err != nil {
			return err
		}
		return refusal
	}
	// The claim of the same batch is committed: the refusal stands.
	answers := f.together(call{fn: add("claim")}, call{fn: refuse})
	wantSays(t, "the claim", answers[0], written)
	if !errors.Is(answers[1], refusal) {
		t.Errorf("the refusal came back as %v", answers[1])
	}
	// The claim is not committed: nobody is told that it stands.
	f2, disk := onFaultyDisk(t)
	disk.order(diskFault{file: "wal", op: "write", err: sqlite3.FULL})
	answers = f2.together(call{fn: add("claim")}, call{fn: refuse})
	disk.lift()
	wantUnavailable(t, "the claim", answers[0], nothing)
	wantUnavailable(t, "the one refused because of it", answers[1], nothing)
}

func TestFunctionThatSwallowsItsFaultDoesNotCommitHalf(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("twice"))
		err := f.Write(context.Background(), func(tx *store.Tx) error {
			if err := add("half")(tx); err != nil {
				return err
			}
			_ = add("twice")(tx)   // hits the unique key, at once or at the next read
			_, _ = tx.Agents()     // nothing more is run
			return add("rest")(tx) // not even asked for
		})
		wantSays(t, "the function", err, nothing)
		// Drawing one's own conclusion from a fault does not make it a refusal.
		err = f.Write(context.Background(), func(tx *store.Tx) error {
			_ = add("twice")(tx)
			if _, err := tx.Agents(); err != nil {
				return handoff.NotFound("agent", "twice")
			}
			return nil
		})
		wantUnavailable(t, "the function that drew its own conclusion", err, nothing)
		f.write(add("later"))
		wantThere(t, f.there(), "later", "twice")
	})
}

func TestGuardedWriteThatMissesUndoesItsFunction(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("disabled"))
		// Without a read before it, the guarded write travels with COMMIT on PostgreSQL.
		for name, fn := range map[string]func(*store.Tx) error{
			"write only": func(tx *store.Tx) error {
				return errors.Join(add("half")(tx), tx.SetDisabled("nobody", true, tx.Now()))
			},
			"after a read": func(tx *store.Tx) error {
				_, err := tx.Agents()
				return errors.Join(err, add("half")(tx), tx.SetDisabled("nobody", true, tx.Now()))
			},
			"behind one that hits": func(tx *store.Tx) error {
				return errors.Join(tx.SetDisabled("disabled", true, tx.Now()), tx.SetDisabled("nobody", true, tx.Now()))
			},
		} {
			wantUnavailable(t, name, f.Write(context.Background(), fn), nothing)
		}
		wantThere(t, f.there(), "disabled")
		f.read(func(tx *store.Tx) error {
			a, err := tx.Agent("disabled")
			if a.Disabled {
				t.Error("half of a function was committed")
			}
			return err
		})
	})
}

func TestPanicWhileReadingRowsLeavesTheConnectionUsable(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(add("one"))
		f.write(add("two"))
		for range 20 { // more than there are connections
			err := f.Write(context.Background(), func(tx *store.Tx) error {
				return tx.EachRow(`SELECT id FROM agents`, func() { panic("a bug of ours") })
			})
			if handoff.CodeOf(err) != handoff.CodeInternal {
				t.Fatalf("got %v, want the panic", err)
			}
			err = f.Read(context.Background(), func(tx *store.Tx) error {
				return tx.EachRow(`SELECT id FROM agents`, func() { panic("a bug of ours") })
			})
			if handoff.CodeOf(err) != handoff.CodeInternal {
				t.Fatalf("got %v, want the panic", err)
			}
		}
		f.write(add("three"))
		wantThere(t, f.there(), "one", "three", "two")
	})
}

func TestClosingDuringWritesAnswersEveryone(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		const writers = 64
		var mu sync.Mutex
		answers := map[string]error{}
		var wg sync.WaitGroup
		under := make(chan struct{}, writers)
		for i := range writers {
			wg.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("w%02d-%d", i, n)
					err := f.Write(context.Background(), add(name))
					mu.Lock()
					answers[name] = err
					mu.Unlock()
					if err != nil {
						return
					}
					if n == 2 {
						under <- struct{}{}
					}
				}
			})
		}
		for range writers {
			<-under
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if err := f.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
		for name, fn := range map[string]func(context.Context, func(*store.Tx) error) error{"write": f.Write, "read": f.Read} {
			if err := fn(context.Background(), add("late")); handoff.CodeOf(err) != handoff.CodeUnavailable {
				t.Errorf("a %s after the end got %v", name, err)
			}
		}
		there := map[string]bool{}
		for _, name := range open(t, f.cfg).there() {
			there[name] = true
		}
		acknowledged := 0
		for name, err := range answers {
			switch says(err) {
			case written:
				acknowledged++
				if !there[name] {
					t.Errorf("%s was acknowledged and is gone", name)
				}
			case nothing:
				if there[name] {
					t.Errorf("%s was refused (%v) and is there", name, err)
				}
			case unknown:
			default:
				t.Errorf("%s: %s", name, says(err))
			}
		}
		if acknowledged < 3*writers {
			t.Errorf("only %d writes were acknowledged", acknowledged)
		}
	})
}

func TestClosingLeavesNoFileOpenAndNoLogBehind(t *testing.T) {
	t.Parallel()
	cfg := config(t, "sqlite")
	f := open(t, cfg)
	f.write(add("one"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { f.there() })
	}
	wg.Wait()
	if len(openFiles(t, cfg.Path)) == 0 {
		t.Fatal("no file of the database is seen open while it is: the check below could not fail")
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if left := openFiles(t, cfg.Path); len(left) > 0 {
		t.Errorf("still open: %v", left)
	}
	if _, err := os.Stat(cfg.Path + "-wal"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the write-ahead log was not folded into the database: %v", err)
	}
}

// openFiles lists what this process holds open of the database.
func openFiles(t *testing.T, path string) []string {
	t.Helper()
	_, err := os.Stat("/proc/self/fd")
	hubtest.Require(t, "procfs", err) // elsewhere a process cannot list its open files
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && strings.HasPrefix(to, path) {
			list = append(list, to)
		}
	}
	return list
}

func TestWritersBehindALockedDatabaseDoNotWaitOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	other, err := sql.Open("sqlite3", "file:"+f.cfg.Path)
	must(t, err)
	defer other.Close()
	lock, err := other.Conn(context.Background())
	must(t, err)
	defer lock.Close()
	_, err = lock.ExecContext(context.Background(), "BEGIN IMMEDIATE")
	must(t, err)
	began := time.Now()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			wantUnavailable(t, "a writer", f.Write(context.Background(), add("never")), nothing)
		})
	}
	wg.Wait()
	if took := time.Since(began); took > 40*time.Second { // five seconds each would be 100
		t.Errorf("the last was answered after %v", took)
	}
	_, err = lock.ExecContext(context.Background(), "ROLLBACK")
	must(t, err)
	f.write(add("later"))
	wantThere(t, f.there(), "later")
}
