package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// spill is more than SQLite's page cache holds: so much goes to the disk while the batch is
// still open.
const spill = 12 << 20

// onFaultyDisk opens a SQLite store on a file system whose faults the test orders.
func onFaultyDisk(t *testing.T) (*fixture, *faultVFS) {
	t.Helper()
	disk := newFaultVFS(t)
	cfg := config(t, "sqlite")
	cfg.VFS = disk.name
	f := open(t, cfg)
	t.Cleanup(func() { disk.lift() }) // before the store closes
	return f, disk
}

// diskErrors are the ways in which a full disk shows: as the driver's own code, and as the
// system's error inside an I/O error.
var diskErrors = map[string]error{"full": sqlite3.FULL, "enospc": syscall.ENOSPC}

func TestPoisonedBatchByAFullDiskInItsMiddleAnswersEveryoneTruly(t *testing.T) {
	t.Parallel()
	for name, fault := range diskErrors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, disk := onFaultyDisk(t)
			f.write(add("earlier"))
			disk.order(diskFault{file: "wal", op: "write", after: 3, times: 1, err: fault})
			answers := f.together(
				call{fn: add("before")},
				call{fn: func(tx *store.Tx) error {
					err := addLarge("large", spill)(tx)
					if err == nil {
						t.Error("the disk was not full in the middle of the batch: SQLite's cache holds more than the test writes")
					}
					return err
				}},
				call{fn: add("after")},
			)
			if disk.lift() != 1 {
				t.Error("the disk was never full")
			}
			// Whoever was in the batch is told so for certain. Whoever waited behind is not
			// drawn in: it runs in a batch of its own, where there is room again.
			wantUnavailable(t, "the function before", answers[0], nothing)
			wantUnavailable(t, "the function that met the full disk", answers[1], nothing)
			wantSays(t, "the function after", answers[2], written)
			for _, err := range answers[:2] {
				if !strings.Contains(fmt.Sprint(err), "disk is full") {
					t.Errorf("%v does not say that the disk is full", err)
				}
			}
			wantThere(t, f.there(), "earlier", "after")
			wantThere(t, f.thereOnDisk(), "earlier", "after")
		})
	}
}

func TestPoisonedBatchByAFullDiskAtTheCommitWritesNothing(t *testing.T) {
	t.Parallel()
	for name, fault := range diskErrors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, disk := onFaultyDisk(t)
			f.write(add("earlier"))
			disk.order(diskFault{file: "wal", op: "write", err: fault})
			claimed := false
			answers := f.together(
				call{fn: add("first")},
				call{fn: func(tx *store.Tx) error {
					if _, err := tx.Agent("first"); err != nil {
						return err
					}
					claimed = true
					return handoff.Refuse(handoff.CodeAlreadyClaimed, "first was faster", "")
				}},
				call{fn: add("third")},
			)
			for i, err := range answers {
				wantUnavailable(t, fmt.Sprintf("function %d", i+1), err, nothing)
			}
			if !claimed {
				t.Error("the refusal did not rest on the first function: the test shows nothing")
			}
			wantThere(t, f.there(), "earlier")

			// While the disk is full every write is refused, reads go on, and there is service
			// again without a restart as soon as there is room.
			for range 3 {
				wantUnavailable(t, "a write on a full disk", f.Write(context.Background(), add("later")), nothing)
				wantThere(t, f.there(), "earlier")
			}
			disk.lift()
			f.write(add("later"))
			wantThere(t, f.there(), "earlier", "later")
			wantThere(t, f.thereOnDisk(), "earlier", "later")
		})
	}
}

func TestFailedSyncAtTheCommitSaysTheOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]error{"io error": sqlite3.IOERR_FSYNC, "eio": syscall.EIO, "enospc": syscall.ENOSPC} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, disk := onFaultyDisk(t)
			f.write(add("earlier"))
			disk.order(diskFault{op: "sync", times: 1, err: fault})
			answers := f.together(call{fn: add("first")}, call{fn: add("second")})
			if disk.lift() != 1 {
				t.Fatal("nothing was synced")
			}
			for i, err := range answers {
				wantUnavailable(t, fmt.Sprintf("function %d", i+1), err, unknown)
			}
			f.write(add("later"))
			there := f.thereOnDisk()
			if slices.Contains(there, "first") != slices.Contains(there, "second") {
				t.Errorf("half of the batch is there: %v", there)
			}
			if !slices.Contains(there, "earlier") || !slices.Contains(there, "later") {
				t.Errorf("what was acknowledged is gone: %v", there)
			}
		})
	}
}

func TestPoisonedFunctionThatGoesOnAfterItsFaultLeavesNothing(t *testing.T) {
	t.Parallel()
	f, disk := onFaultyDisk(t)
	disk.order(diskFault{file: "wal", op: "write", after: 3, times: 1, err: sqlite3.FULL})
	answers := f.together(
		call{fn: add("before")},
		call{fn: func(tx *store.Tx) error {
			// SQLite has rolled back everything after this and would run the rest on its own.
			if err := addLarge("large", spill)(tx); err == nil {
				t.Error("the large row did not meet the full disk")
			}
			_ = add("half")(tx)
			return nil
		}},
	)
	disk.lift()
	wantUnavailable(t, "the function before", answers[0], nothing)
	wantUnavailable(t, "the function that swallowed the fault", answers[1], nothing)
	wantThere(t, f.thereOnDisk())
}

func TestPoisonedBatchAtEveryWriteOfTheDiskAnswersTruly(t *testing.T) {
	t.Parallel()
	// Each round has one fault at a later operation of the batch than the round before, until a
	// round ends without meeting it.
	for name, fault := range map[string]error{"full": sqlite3.FULL, "enospc": syscall.ENOSPC, "eio": syscall.EIO} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, disk := onFaultyDisk(t)
			refusal := handoff.Refuse(handoff.CodeNotOwner, "no", "")
			var want []string
			round, outcomes := 0, map[string]int{}
			for after := 0; ; after += 1 + after/2 {
				round++
				name := func(n int) string { return fmt.Sprintf("r%d-%d", round, n) }
				disk.order(diskFault{after: after, times: 1, err: fault})
				answers := f.together(
					call{fn: add(name(0))},
					call{fn: func(tx *store.Tx) error { return errors.Join(add(name(1))(tx), refusal) }},
					call{fn: addLarge(name(2), spill)},
					call{fn: add(name(3))},
				)
				struck := disk.lift()
				there := f.there()
				for i, err := range answers {
					got := says(err)
					outcomes[got]++
					is := slices.Contains(there, name(i))
					switch {
					case got == written && !is, got == nothing && is, got != written && got != nothing && got != unknown:
						t.Errorf("fault at operation %d: function %d was told %q (%v), in the database: %v", after, i, got, err, is)
					case i == 1 && is:
						t.Errorf("fault at operation %d: what was refused is there", after)
					}
					if is {
						want = append(want, name(i))
					}
				}
				if slices.Contains(there, name(0)) != slices.Contains(there, name(2)) && says(answers[0]) != written {
					t.Errorf("fault at operation %d: half of the batch is there", after)
				}
				if struck == 0 {
					break
				}
			}
			if outcomes[written] == 0 || outcomes[nothing] == 0 {
				t.Errorf("the rounds did not go both ways: %v", outcomes)
			}
			t.Log(round, "rounds", outcomes)
			wantThere(t, f.thereOnDisk(), want...)
		})
	}
}

func TestCheckpointThatFindsNoRoomCostsNoWrite(t *testing.T) {
	t.Parallel()
	f, disk := onFaultyDisk(t)
	disk.order(diskFault{file: "db", op: "write", err: sqlite3.FULL})
	f.write(addLarge("large", 2*spill)) // enough for SQLite to move the WAL into the file
	if disk.lift() == 0 {
		t.Fatal("there was no checkpoint: SQLite lets its log grow to more than the test writes")
	}
	f.write(add("later"))
	wantThere(t, f.thereOnDisk(), "large", "later")
}

func TestCancelledCallerDoesNotHarmItsBatch(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	early, cancelEarly := context.WithCancel(context.Background())
	late, cancelLate := context.WithCancel(context.Background())
	answers := f.together(
		call{fn: func(tx *store.Tx) error {
			cancelEarly() // it is taken, and its function has not begun
			return add("first")(tx)
		}},
		call{ctx: early, fn: add("cancelled early")},
		call{ctx: late, fn: func(tx *store.Tx) error {
			if err := add("cancelled late")(tx); err != nil {
				return err
			}
			cancelLate()
			_, err := tx.Agents()
			return errors.Join(err, add("cancelled late too")(tx))
		}},
		call{fn: add("last")},
	)
	wantSays(t, "the first", answers[0], written)
	wantUnavailable(t, "the one that was cancelled before it ran", answers[1], nothing)
	wantSays(t, "the one that was cancelled while it ran", answers[2], written)
	wantSays(t, "the last", answers[3], written)
	wantThere(t, f.thereOnDisk(), "first", "cancelled late", "cancelled late too", "last")
}

func TestCancelledBeforeItIsTakenWritesNothing(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		wantUnavailable(t, "a cancelled writer", f.Write(ctx, add("never")), nothing)
		if err := f.Read(ctx, func(*store.Tx) error { return nil }); handoff.CodeOf(err) != handoff.CodeUnavailable {
			t.Errorf("a cancelled reader got %v", err)
		}
		wantThere(t, f.there())
	})
}

func TestPanicInABatchStaysWithItsFunction(t *testing.T) {
	t.Parallel()
	f := open(t, config(t, "sqlite"))
	answers := f.together(
		call{fn: add("first")},
		call{fn: func(tx *store.Tx) error {
			if err := add("half")(tx); err != nil {
				return err
			}
			panic("a bug of ours")
		}},
		call{fn: add("last")},
	)
	wantSays(t, "the first", answers[0], written)
	wantSays(t, "the one that panicked", answers[1], nothing)
	wantSays(t, "the last", answers[2], written)
	if handoff.CodeOf(answers[1]) != handoff.CodeInternal || !strings.Contains(answers[1].Error(), "a bug of ours") {
		t.Errorf("the panic came back as %v, want an internal error that holds it for the log", answers[1])
	}
	if count, writes := f.batches(); count > 2 || writes < 4 { // opening made one
		t.Errorf("%d batches of %d writes: they did not share one", count, writes)
	}
	wantThere(t, f.thereOnDisk(), "first", "last")
}
