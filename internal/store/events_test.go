package store_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// happened is a write of one event of that name.
func happened(name string) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		return tx.InsertEvent(&handoff.Event{Type: handoff.EventAgentAdded, SubjectID: name, At: tx.Now()})
	}
}

// follower pages through the log as a reader of the stream does.
type follower struct {
	f      *fixture
	name   string
	cursor string
	limit  int
	seen   []string
}

func (f *fixture) follower(name string, limit int) *follower {
	return &follower{f: f, name: name, cursor: store.Beginning, limit: limit}
}

// look reads page after page until there is nothing more to see.
func (r *follower) look() error {
	for {
		var page []handoff.Event
		var next string
		if err := r.f.Read(context.Background(), func(tx *store.Tx) (err error) {
			page, next, err = tx.Events(r.cursor, r.limit)
			return err
		}); err != nil {
			return err
		}
		if len(page) == 0 {
			if next != r.cursor {
				return fmt.Errorf("an empty page moved the cursor from %s to %s", r.cursor, next)
			}
			return nil
		}
		if page[len(page)-1].Cursor != next || len(page) > r.limit {
			return fmt.Errorf("a page of %d events ends at %s and goes on at %s", len(page), page[len(page)-1].Cursor, next)
		}
		for _, e := range page {
			r.seen = append(r.seen, e.SubjectID)
		}
		r.cursor = next
	}
}

func (r *follower) mustLook(t testing.TB) {
	t.Helper()
	if err := r.look(); err != nil {
		t.Fatalf("reader %s: %v", r.name, err)
	}
}

// settle waits until a fresh reader sees all the events that were committed, lets the readers
// look a last time, and demands that each saw exactly those, once, in that order. Waiting is
// for transactions of other databases on the same server, which hold back events too.
func settle(t testing.TB, f *fixture, committed []string, readers []*follower) {
	t.Helper()
	var fresh *follower
	eventually(t, "a fresh reader sees every committed event", func() bool {
		fresh = f.follower("fresh", 1000)
		fresh.mustLook(t)
		return len(fresh.seen) >= len(committed)
	})
	sorted := slices.Sorted(slices.Values(fresh.seen))
	slices.Sort(committed)
	if !slices.Equal(sorted, committed) {
		t.Fatalf("a fresh reader sees\n%v, committed were\n%v", sorted, committed)
	}
	for _, r := range readers {
		r.mustLook(t)
		if !slices.Equal(r.seen, fresh.seen) {
			missed, twice := difference(fresh.seen, r.seen)
			t.Errorf("reader %s missed %v and saw too often %v, or saw them in another order", r.name, missed, twice)
		}
	}
}

func difference(want, got []string) (missed, extra []string) {
	count := map[string]int{}
	for _, w := range want {
		count[w]++
	}
	for _, g := range got {
		if count[g]--; count[g] < 0 {
			extra = append(extra, g)
		}
	}
	for w, n := range count {
		if n > 0 {
			missed = append(missed, w)
		}
	}
	return missed, extra
}

// slowTx is a transaction that a test takes through its steps.
type slowTx struct {
	steps chan func(*store.Tx) error
	acked chan error
	done  chan error
}

func (f *fixture) begin() *slowTx {
	s := &slowTx{make(chan func(*store.Tx) error), make(chan error), make(chan error, 1)}
	go func() {
		s.done <- f.Write(context.Background(), func(tx *store.Tx) error {
			for step := range s.steps {
				err := step(tx)
				s.acked <- err
				if err != nil {
					return err
				}
			}
			return nil
		})
	}()
	return s
}

func (s *slowTx) step(fn func(*store.Tx) error) error {
	s.steps <- fn
	return <-s.acked
}

func (s *slowTx) commit() error {
	close(s.steps)
	return <-s.done
}

// now sends what is queued, so that it takes effect on the server at once.
func now(fn func(*store.Tx) error) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		_, err := tx.UnreadTotal("nobody")
		return err
	}
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for at := 0; at <= len(p); at++ {
			all = append(all, slices.Insert(slices.Clone(p), at, n-1))
		}
	}
	return all
}

// Three transactions take their transaction ids in the order 0, 1, 2, their event ids in every
// order, and commit in every order; one in six gives up instead. After each step all readers
// page through what they can see.
func TestEventsAreReadOnceWhateverOrderTransactionsTake(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		readers := []*follower{f.follower("one by one", 1), f.follower("two by two", 2), f.follower("all at once", 100)}
		look := func() {
			for _, r := range readers {
				r.mustLook(t)
			}
		}
		var committed []string
		disordered, held, round := 0, 0, 0
		for _, ids := range permutations(3) {
			for _, commits := range permutations(3) {
				round++
				name := func(i, n int) string { return fmt.Sprintf("r%02d-t%d-e%d", round, i, n) }
				gaveUp := -1
				if round%6 == 0 {
					gaveUp = commits[0]
				}
				if f.Kind() == "sqlite" { // one writer: the transactions follow each other
					for _, i := range commits {
						err := f.Write(context.Background(), func(tx *store.Tx) error {
							err := errors.Join(happened(name(i, 0))(tx), happened(name(i, 1))(tx))
							look() // nothing of it is to be seen yet
							if i == gaveUp {
								return errors.New("gave up")
							}
							return err
						})
						if err == nil {
							committed = append(committed, name(i, 0), name(i, 1))
						}
						look()
					}
					continue
				}
				txs := []*slowTx{f.begin(), f.begin(), f.begin()}
				for i, tx := range txs {
					must(t, tx.step(func(tx *store.Tx) error {
						_, err := tx.SettingOrNew(name(i, 0), "takes a transaction id")
						return err
					}))
				}
				look()
				for n := range 2 {
					for _, i := range ids {
						must(t, txs[i].step(now(happened(name(i, n)))))
						look()
					}
				}
				for _, i := range commits {
					if i == gaveUp {
						_ = txs[i].step(func(*store.Tx) error { return errors.New("gave up") })
						<-txs[i].done
					} else {
						must(t, txs[i].commit())
						committed = append(committed, name(i, 0), name(i, 1))
					}
					look()
					f.read(func(tx *store.Tx) error {
						st, err := tx.Stats()
						held += int(st.Unsettled)
						return err
					})
				}
				if !slices.IsSorted(ids) && !slices.IsSorted(commits) && !slices.Equal(ids, commits) {
					disordered++
				}
			}
		}
		settle(t, f, committed, readers)
		if f.Kind() == "postgres" {
			if held == 0 {
				t.Error("no event was ever held back: the readers were not put to the test")
			}
			wantDisorder(t, f, disordered)
		}
	})
}

// wantDisorder fails the test unless so many pairs of events at least have ids in the other
// order than their transactions.
func wantDisorder(t testing.TB, f *fixture, least int) {
	t.Helper()
	db, err := sql.Open("pgx", f.cfg.URL)
	must(t, err)
	defer db.Close()
	var pairs int
	must(t, db.QueryRow(`SELECT count(*) FROM events a JOIN events b ON a.id < b.id AND a.xact > b.xact`).Scan(&pairs))
	if pairs < least || least == 0 {
		t.Errorf("%d pairs of events have ids in the other order than their transactions, want at least %d", pairs, least)
	}
}

func TestEventsAreReadOnceUnderManyWriters(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		const writers, each = 16, 30
		var committed []string
		var mu sync.Mutex
		var writing, reading sync.WaitGroup
		over := make(chan struct{})
		readers := make([]*follower, 4)
		for i := range readers {
			readers[i] = f.follower(fmt.Sprint(i), []int{1, 3, 10, 1000}[i])
			reading.Go(func() {
				for {
					if err := readers[i].look(); err != nil {
						t.Errorf("reader %d: %v", i, err)
						return
					}
					select {
					case <-over:
						return
					default:
					}
				}
			})
		}
		for w := range writers {
			writing.Go(func() {
				random := rand.New(rand.NewPCG(uint64(w), 1))
				for n := range each {
					var names []string
					err := f.Write(context.Background(), func(tx *store.Tx) error {
						names = nil
						for k := range 1 + random.IntN(3) {
							name := fmt.Sprintf("w%02d-%02d-%d", w, n, k)
							names = append(names, name)
							step := happened(name)
							if random.IntN(2) == 0 {
								step = now(step)
							}
							if err := step(tx); err != nil {
								return err
							}
						}
						if random.IntN(8) == 0 {
							return errors.New("gave up")
						}
						return nil
					})
					if err == nil {
						mu.Lock()
						committed = append(committed, names...)
						mu.Unlock()
					} else if err.Error() != "gave up" {
						t.Error(err)
					}
				}
			})
		}
		writing.Wait()
		close(over)
		reading.Wait()
		settle(t, f, committed, readers)
	})
}

func TestEveryEventCarriesTheCursorBehindIt(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		var all []string
		for i := range 7 {
			all = append(all, fmt.Sprint(i))
			f.write(happened(fmt.Sprint(i)))
		}
		settle(t, f, slices.Clone(all), nil)
		var list []handoff.Event
		f.read(func(tx *store.Tx) (err error) {
			list, _, err = tx.Events(store.Beginning, 100)
			return err
		})
		for i, e := range list {
			rest := f.follower(e.SubjectID, 2)
			rest.cursor = e.Cursor
			rest.mustLook(t)
			if !slices.Equal(rest.seen, all[i+1:]) {
				t.Errorf("behind the cursor of event %d come %v, want %v", i, rest.seen, all[i+1:])
			}
		}
	})
}

func TestCursorOfAnotherEpochIsExpiredAndGarbageIsRefused(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		f.write(happened("something"))
		settle(t, f, []string{"something"}, nil)
		own := f.follower("own", 1)
		own.mustLook(t)
		other := open(t, config(t, f.Kind()))
		ask := func(f *fixture, cursor string) error {
			return f.Read(context.Background(), func(tx *store.Tx) error {
				list, _, err := tx.Events(cursor, 10)
				if err != nil && len(list) > 0 {
					t.Errorf("cursor %q is refused and gives events", cursor)
				}
				return err
			})
		}
		if err := ask(f, own.cursor); err != nil {
			t.Errorf("its own cursor is refused: %v", err)
		}
		if err := ask(other, own.cursor); handoff.CodeOf(err) != handoff.CodeCursorExpired {
			t.Errorf("the cursor of another database gives %v, want cursor_expired", err)
		}
		epoch, _, _ := strings.Cut(own.cursor, ".")
		for _, garbage := range []string{
			"", "00", "1", "x", ".", "..", "...", "a.b.c", epoch, epoch + ".1", epoch + ".1.2.3", epoch + ".-1.2", epoch + ".1.-2", epoch + ".1.x",
			epoch + ".99999999999999999999.1", epoch + ". 1.2", own.cursor + " ", strings.Repeat("9", 10000), "🤝.1.x", "'; DROP TABLE events; --",
		} {
			err := ask(f, garbage)
			if handoff.CodeOf(err) != handoff.CodeInvalidParams || !strings.Contains(err.Error(), "cursor") {
				t.Errorf("cursor %q gives %v, want invalid_params naming cursor", garbage, err)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("cursor of %d bytes gives an answer of %d", len(garbage), len(err.Error()))
			}
		}
		if err := ask(f, "ffff."+"1.2"); handoff.CodeOf(err) != handoff.CodeCursorExpired {
			t.Errorf("a cursor of an unknown epoch gives %v, want cursor_expired", err)
		}
	})
}
