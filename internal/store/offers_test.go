package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// pool is a workspace full of handoffs, and the model of what of them is offered.
func pool(t *testing.T, f *fixture) (all []*handoff.Handoff) {
	t.Helper()
	for i := range 240 {
		capabilities := []string{fmt.Sprint(i % 200), fmt.Sprint(i * 7 % 200), fmt.Sprint(i * 31 % 200)}
		b, err := json.Marshal(slices.Compact(slices.Sorted(slices.Values(capabilities))))
		must(t, err)
		h := aPool(newID("handoff"), []string{"w", "w", "other"}[i%3], `{"strategy":"capability","capability":`+string(b)+`}`)
		h.Priority = i*13%3 - 1
		h.CreatedAt = noon.Add(time.Duration(i*17%8) * time.Second) // many share theirs
		switch i % 10 {
		case 7:
			h.DepsPending = 1
		case 8:
			h.State, h.Holder = handoff.Claimed, "somebody"
		case 9:
			h.State, h.EndedBy = handoff.Rejected, "somebody"
		}
		all = append(all, h)
	}
	f.write(func(tx *store.Tx) error {
		for _, h := range all {
			if err := tx.InsertHandoff(h); err != nil {
				return err
			}
		}
		return nil
	})
	return all
}

// wantOffered are the handoffs under any of the keys behind a place.
func wantOffered(all []*handoff.Handoff, workspace string, keys []string, after store.Place) (want []string) {
	var list []*handoff.Handoff
	for _, h := range all {
		if h.WorkspaceID == workspace && after.Before(store.PlaceOf(h)) && slices.ContainsFunc(h.Offers(), func(o handoff.Offer) bool { return slices.Contains(keys, o.Key) }) {
			list = append(list, h)
		}
	}
	slices.SortFunc(list, func(a, b *handoff.Handoff) int {
		if a.Priority != b.Priority {
			return b.Priority - a.Priority
		}
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	for _, h := range list {
		want = append(want, h.ID)
	}
	return want
}

func TestWhatIsOfferedComesInPagesHighPriorityFirstThenTheOldest(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		all := pool(t, f)
		longest := 0
		rapid.Check(t, func(rt *rapid.T) {
			count := rapid.SampledFrom([]int{1, 2, 99, 100, 101, 150, 200}).Draw(rt, "keys")
			first := rapid.IntRange(0, 199).Draw(rt, "first key")
			keys := []string{"any"}
			for i := range count - 1 {
				keys = append(keys, fmt.Sprint("cap:", (first+i)%200))
			}
			workspace, limit := rapid.SampledFrom([]string{"w", "other", "none"}).Draw(rt, "workspace"), rapid.SampledFrom([]int{1, 7, 20, 40, 40}).Draw(rt, "limit")
			after := store.Start
			want := wantOffered(all, workspace, keys, after)
			if len(want) > 12*limit { // some pages do
				after = store.PlaceOf(all[slices.IndexFunc(all, func(h *handoff.Handoff) bool { return h.ID == want[len(want)-12*limit-1] })])
				want = want[len(want)-12*limit:]
			}
			longest = max(longest, len(want))
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				for {
					page, err := tx.Offered(workspace, keys, after, limit)
					if err != nil {
						return err
					}
					ids := []string{}
					for i := range page {
						if ids = append(ids, page[i].ID); page[i].Payload != nil {
							rt.Fatalf("a list carries the payload %s", page[i].Payload)
						}
					}
					if here := want[:min(limit, len(want))]; !slices.Equal(ids, here) {
						rt.Fatalf("a page of %d under %d keys is %v, want %v", limit, count, ids, here)
					}
					if want = want[len(ids):]; len(want) == 0 {
						return nil
					}
					after = store.PlaceOf(&page[len(page)-1])
				}
			}))
		})
		if longest < 50 {
			t.Errorf("at most %d were offered", longest)
		}
	})
}

func TestAPlaceIsBeforeAnotherByPriorityThenAgeThenID(t *testing.T) {
	t.Parallel()
	places := []store.Place{store.Start, {Rank: -1, CreatedAt: 9, ID: "z"}, {Rank: 0, CreatedAt: 1, ID: "b"}, {Rank: 0, CreatedAt: 2, ID: "a"}, {Rank: 0, CreatedAt: 2, ID: "b"}, {Rank: 1}}
	for i, p := range places {
		for j, q := range places {
			if p.Before(q) != (i < j) {
				t.Errorf("%v before %v: %v", p, q, p.Before(q))
			}
		}
	}
}

func TestTheNextOneIsTakenInTheOrderOfThePages(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		all := pool(t, f)
		var keys []string
		for i := range 130 {
			keys = append(keys, fmt.Sprint("cap:", i))
		}
		for _, some := range [][]string{keys[:5], keys} {
			want, after := wantOffered(all, "w", some, store.Start), store.Start
			f.write(func(tx *store.Tx) error {
				for _, id := range want {
					h, found, err := tx.TakeOffered("w", some, after)
					if err != nil || !found || h.ID != id || string(h.Payload) != `{"for":"the holder"}` {
						t.Fatalf("%s comes with %s: %v (%v), want %s", h.ID, h.Payload, found, err, id)
					}
					after = store.PlaceOf(&h)
				}
				h, found, err := tx.TakeOffered("w", some, after)
				if found {
					t.Errorf("behind the last comes %s", h.ID)
				}
				return err
			})
		}
	})
}

// On PostgreSQL two transactions are open at the same time.
func TestOpenTransactionsTakeDifferentOnesAndAreToldWhenAllAreTaken(t *testing.T) {
	t.Parallel()
	f, _ := onPostgres(t)
	for _, id := range []string{"a", "b"} {
		f.write(func(tx *store.Tx) error { return tx.InsertHandoff(aPool(id, "w", `{"strategy":"broadcast"}`)) })
	}
	take := func(tx *store.Tx) string {
		h, found, err := tx.TakeOffered("w", []string{"any"}, store.Start)
		must(t, err)
		if found == (h.ID == "") {
			t.Errorf("found %v, %q", found, h.ID)
		}
		return h.ID
	}
	claim := func(tx *store.Tx, id string) error {
		was, err := tx.LockHandoff(id)
		must(t, err)
		is := was
		is.State, is.Holder, is.Epoch = handoff.Claimed, "somebody", 1
		return tx.UpdateHandoff(&was, &is)
	}
	gaveUp := errors.New("the first gives up")
	first := f.Write(context.Background(), func(one *store.Tx) error {
		if id := take(one); id != "a" {
			t.Errorf("the first takes %q", id)
		}
		f.write(func(two *store.Tx) error {
			if id := take(two); id != "b" {
				t.Errorf("the second takes %q", id)
			}
			f.write(func(three *store.Tx) error {
				if id := take(three); id != "" {
					t.Errorf("the third takes %q", id)
				}
				return nil
			})
			return claim(two, "b")
		})
		f.write(func(four *store.Tx) error { // what is left is still being changed
			if id := take(four); id != "" {
				t.Errorf("the fourth takes %q", id)
			}
			return nil
		})
		return gaveUp
	})
	if !errors.Is(first, gaveUp) {
		t.Fatal(first)
	}
	f.write(func(five *store.Tx) error {
		id := take(five)
		if id != "a" {
			t.Errorf("what was given up is not taken, but %q", id)
		}
		return claim(five, id)
	})
	f.write(func(six *store.Tx) error {
		if id := take(six); id != "" {
			t.Errorf("of nothing %q is taken", id)
		}
		return nil
	})
}

func TestManyTakersTakeEveryOneOnce(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		const many = 120
		for i := range many {
			f.write(func(tx *store.Tx) error {
				return tx.InsertHandoff(aPool(fmt.Sprintf("h%03d", i), "w", `{"strategy":"capability","capability":["go","sql"]}`))
			})
		}
		var mu sync.Mutex
		taken := map[string]int{}
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for {
					var id string
					again := false
					if err := f.Write(context.Background(), func(tx *store.Tx) error {
						keys := []string{[]string{"cap:go", "cap:sql"}[w%2], "any"}
						was, found, err := tx.TakeOffered("w", keys, store.Start)
						if id, again = was.ID, false; err != nil {
							return err
						}
						if !found { // others may be at all that is left
							left, err := tx.Offered("w", keys, store.Start, 1)
							again = len(left) > 0
							return err
						}
						is := was
						is.State, is.Holder, is.Epoch = handoff.Claimed, fmt.Sprint("worker", w), was.Epoch+1
						return tx.UpdateHandoff(&was, &is)
					}); err != nil {
						t.Error(err)
						return
					}
					if id == "" && !again {
						return
					}
					mu.Lock()
					if id != "" {
						taken[id]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(taken) != many {
			t.Errorf("%d of %d were taken", len(taken), many)
		}
		for id, n := range taken {
			if n != 1 {
				t.Errorf("%s was taken %d times", id, n)
			}
		}
	})
}
