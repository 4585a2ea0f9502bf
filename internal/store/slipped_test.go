package store_test

import (
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

func idsOf(list []handoff.Handoff) (ids []string) {
	for i := range list {
		ids = append(ids, list[i].ID)
	}
	return ids
}

func TestWhatTheClockOpenedIsFoundBeforeItIsWrittenDown(t *testing.T) {
	t.Parallel()
	const fallback = `{"strategy":"direct_with_fallback","agent_id":"frank","fallback_after_seconds":60}`
	past, now, future := noon.Add(-time.Second), noon, noon.Add(time.Microsecond)
	claimedUntil := func(at time.Time) func(*handoff.Handoff) {
		return func(h *handoff.Handoff) {
			h.State, h.Holder, h.Epoch, h.LeaseExpiresAt = handoff.Claimed, "somebody", 1, at
		}
	}
	opensAt := func(at time.Time) func(*handoff.Handoff) { return func(h *handoff.Handoff) { h.FallbackAt = at } }
	slipped, due := []string{"lapsed", "lapsed now", "opened", "opened now"}, []string{"expired", "lapsed", "lapsed elsewhere", "lapsed now", "lapsed of a team", "opened", "opened now"}
	onEachAtNoon(t, func(t *testing.T, f *fixture) {
		for i, test := range []struct {
			id     string
			change []func(*handoff.Handoff)
		}{
			{"opened", []func(*handoff.Handoff){opensAt(past)}},
			{"lapsed", []func(*handoff.Handoff){claimedUntil(past)}},
			{"lapsed now", []func(*handoff.Handoff){claimedUntil(now)}},
			{"opened now", []func(*handoff.Handoff){opensAt(now)}},
			{"still held", []func(*handoff.Handoff){claimedUntil(future)}},
			{"held without a lease", []func(*handoff.Handoff){claimedUntil(time.Time{})}},
			{"still kept", []func(*handoff.Handoff){opensAt(future)}},
			{"opened and written down", []func(*handoff.Handoff){opensAt(past), func(h *handoff.Handoff) { h.FallbackOpened = true }}},
			// It is on offer since it was declined, and nothing will be written down about it.
			{"declined", []func(*handoff.Handoff){opensAt(past), func(h *handoff.Handoff) { h.RecipientDeclined = true }}},
			{"blocked", []func(*handoff.Handoff){opensAt(past), func(h *handoff.Handoff) { h.DepsPending = 1 }}},
			{"claimed by who came first", []func(*handoff.Handoff){opensAt(past), claimedUntil(future)}},
			{"ended", []func(*handoff.Handoff){claimedUntil(past), func(h *handoff.Handoff) { h.State = handoff.Completed }}},
			{"lapsed elsewhere", []func(*handoff.Handoff){claimedUntil(past), func(h *handoff.Handoff) { h.WorkspaceID = "other" }}},
			{"lapsed of a team", []func(*handoff.Handoff){claimedUntil(past), func(h *handoff.Handoff) { h.Door, h.Target = handoff.DoorTeam, nil }}},
			{"expired", []func(*handoff.Handoff){opensAt(future), func(h *handoff.Handoff) { h.ExpiresAt = past }}},
		} {
			h := aPool(test.id, "w", fallback)
			h.FallbackAt, h.CreatedAt = time.Time{}, noon.Add(time.Duration(i)*time.Second)
			for _, change := range test.change {
				change(h)
			}
			f.write(func(tx *store.Tx) error { return tx.InsertHandoff(h) })
		}
		f.read(func(tx *store.Tx) error {
			list, err := tx.Slipped("w", 100)
			must(t, err)
			for i := range list {
				if list[i].Payload != nil {
					t.Errorf("%s comes with its payload", list[i].ID)
				}
			}
			if got := idsOf(list); !slices.Equal(slices.Sorted(slices.Values(got)), slipped) {
				t.Errorf("slipped are %q", got)
			}
			two, err := tx.Slipped("w", 2)
			must(t, err)
			if got := idsOf(two); !slices.Equal(got, []string{"opened", "lapsed"}) {
				t.Errorf("the two oldest are %q", got)
			}
			all, err := tx.Due(noon, 100)
			if !slices.Equal(slices.Sorted(slices.Values(all)), due) {
				t.Errorf("due are %q", all)
			}
			return err
		})
	})
}

func TestWhatAnAgentCreatedAndHoldsComesInPagesNewestFirst(t *testing.T) {
	t.Parallel()
	onEachAtNoon(t, func(t *testing.T, f *fixture) {
		put := func(id string, second int, change func(*handoff.Handoff)) {
			h := aPool(id, "w", `{"strategy":"broadcast"}`)
			h.Creator, h.CreatedAt = "anna", noon.Add(time.Duration(second)*time.Second)
			if change != nil {
				change(h)
			}
			f.write(func(tx *store.Tx) error { return tx.InsertHandoff(h) })
		}
		held := func(s handoff.State) func(*handoff.Handoff) {
			return func(h *handoff.Handoff) { h.State, h.Holder, h.Epoch = s, "frank", 1 }
		}
		put("open", 1, nil)
		put("claimed", 2, held(handoff.Claimed))
		put("delivered", 3, held(handoff.Verifying))
		put("twin a", 3, held(handoff.Claimed))
		put("done", 4, held(handoff.Completed))
		put("elsewhere", 5, func(h *handoff.Handoff) { held(handoff.Claimed)(h); h.WorkspaceID = "other" })
		put("of a team", 6, func(h *handoff.Handoff) { held(handoff.Claimed)(h); h.Door, h.Target = handoff.DoorTeam, nil })
		put("another's", 7, func(h *handoff.Handoff) { held(handoff.Claimed)(h); h.Creator, h.Holder = "grace", "grace" })
		f.read(func(tx *store.Tx) error {
			for _, test := range []struct {
				what string
				read func(string, string, store.Place, int) ([]handoff.Handoff, error)
				who  string
				want []string
			}{
				{"created", tx.PoolOf, "anna", []string{"done", "twin a", "delivered", "claimed", "open"}},
				{"held", tx.PoolHeld, "frank", []string{"twin a", "delivered", "claimed"}},
				{"created by nobody", tx.PoolOf, "frank", nil},
				{"held by nobody", tx.PoolHeld, "anna", nil},
			} {
				for size := 1; size <= len(test.want)+1; size++ {
					var got []string
					for before := (store.Place{}); ; {
						page, err := test.read("w", test.who, before, size)
						must(t, err)
						got = append(got, idsOf(page)...)
						if len(page) < size {
							break
						}
						before = store.PlaceOf(&page[size-1])
						if page[0].Payload != nil {
							t.Errorf("%s comes with its payload", page[0].ID)
						}
					}
					if !slices.Equal(got, test.want) {
						t.Errorf("%s in pages of %d: %q", test.what, size, got)
					}
				}
			}
			return nil
		})
	})
}
