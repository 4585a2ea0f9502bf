package store_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// told is what one agent of the model was told and has not seen.
type told struct {
	handoffID string
	seq       int
	message   bool
	event     handoff.EventType
}

// wantInbox is the inbox as its contract says it, computed from everything there is.
func wantInbox(q store.InboxQuery, all []handoff.Handoff, notices []told) []store.InboxItem {
	var items []store.InboxItem
	for _, h := range all {
		item := store.InboxItem{Handoff: h}
		for _, n := range notices { // in the order of their numbers
			if n.handoffID != h.ID {
				continue
			}
			if n.message {
				item.Unread++
			}
			if !slices.Contains(item.News, n.event) {
				item.News = append(item.News, n.event)
			}
		}
		states := q.States
		if states == nil {
			states = []handoff.State{handoff.Open, handoff.Claimed, handoff.Verifying}
		}
		current := h.At(noon)
		inState := slices.Contains(states, current.State)
		mine := q.Role != "sender" && h.Recipient == q.AgentID && inState ||
			q.Role != "recipient" && (q.States != nil || q.Role == "sender") && h.Creator == q.AgentID && inState ||
			q.States == nil && len(item.News) > 0 &&
				(q.Role == "" || q.Role == "recipient" && h.Recipient == q.AgentID || q.Role == "sender" && h.Creator == q.AgentID)
		lapsed := h.State == handoff.Claimed && h.LeaseExpiresAt.After(q.Since) && h.LeaseLapsed(noon)
		expired := current.State == handoff.Expired && h.ExpiresAt.After(q.Since)
		changed := q.Since.IsZero() || h.UpdatedAt.After(q.Since) || lapsed || expired
		before := q.BeforeTime.IsZero() || h.CreatedAt.Before(q.BeforeTime) || h.CreatedAt.Equal(q.BeforeTime) && h.ID < q.BeforeID
		if mine && changed && before {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b store.InboxItem) int {
		return -cmp.Or(a.Handoff.CreatedAt.Compare(b.Handoff.CreatedAt), cmp.Compare(a.Handoff.ID, b.Handoff.ID))
	})
	return items[:min(len(items), q.Limit)]
}

func TestInboxShowsWhatItsContractSays(t *testing.T) {
	t.Parallel()
	onEachAtNoon(t, func(t *testing.T, f *fixture) {
		// Few distinct moments around noon, so that they coincide.
		moment := rapid.Custom(func(t *rapid.T) time.Time {
			return noon.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "seconds")) * time.Second)
		})
		moments := rapid.OneOf(moment, rapid.Just(time.Time{}))
		types := rapid.SampledFrom([]handoff.EventType{handoff.EventCreated, handoff.EventMessageCreated, handoff.EventClaimed})
		states := []handoff.State{handoff.Open, handoff.Claimed, handoff.Verifying, handoff.Completed, handoff.Rejected, handoff.Expired}
		rapid.Check(t, func(rt *rapid.T) {
			me, other := newID("me"), newID("other")
			who := rapid.SampledFrom([]string{me, other, ""})
			var all []handoff.Handoff
			var mine []told
			var unread int
			err := f.Write(context.Background(), func(tx *store.Tx) error {
				all, mine, unread = nil, nil, 0
				for range rapid.IntRange(0, 12).Draw(rt, "handoffs") {
					h := *aHandoff(newID("handoff"))
					h.Creator, h.Recipient = who.Draw(rt, "creator"), who.Draw(rt, "recipient")
					h.State = rapid.SampledFrom(states).Draw(rt, "state")
					h.CreatedAt, h.UpdatedAt = moment.Draw(rt, "created"), moment.Draw(rt, "updated")
					h.LeaseExpiresAt, h.ExpiresAt = moments.Draw(rt, "lease"), moments.Draw(rt, "deadline")
					all = append(all, h)
					err := tx.InsertHandoff(&h)
					for seq := range rapid.IntRange(0, 3).Draw(rt, "notices") {
						n := told{h.ID, seq + 1, rapid.Bool().Draw(rt, "message"), types.Draw(rt, "type")}
						to, no := who.Draw(rt, "to"), 0
						if n.message {
							no = n.seq
						}
						err = errors.Join(err, tx.InsertNotice(to, &h, n.seq, no, n.event, noon))
						if to == me {
							mine = append(mine, n)
							if n.message {
								unread++
							}
						}
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			must(rt, err)
			q := store.InboxQuery{AgentID: me, Role: rapid.SampledFrom([]string{"", "recipient", "sender"}).Draw(rt, "role"), Limit: rapid.IntRange(1, 13).Draw(rt, "limit")}
			if rapid.Bool().Draw(rt, "by state") {
				q.States = rapid.SliceOfNDistinct(rapid.SampledFrom(states), 1, 3, rapid.ID[handoff.State]).Draw(rt, "states")
			}
			if rapid.Bool().Draw(rt, "changed only") {
				q.Since = moment.Draw(rt, "since")
			}
			// All pages, each as the contract says, until one is not full.
			for page := 0; ; page++ {
				want := wantInbox(q, all, mine)
				var got []store.InboxItem
				must(rt, f.Read(context.Background(), func(tx *store.Tx) (err error) {
					got, err = tx.Inbox(q)
					return err
				}))
				if len(want)+len(got) > 0 {
					wantSame(rt, "the page", got, want)
				}
				if len(got) < q.Limit {
					break
				}
				last := got[len(got)-1].Handoff
				q.BeforeTime, q.BeforeID = last.CreatedAt, last.ID
			}
			must(rt, f.Read(context.Background(), func(tx *store.Tx) error {
				n, err := tx.UnreadTotal(me)
				if n != unread {
					rt.Fatalf("%d unread, want %d", n, unread)
				}
				return err
			}))
		})
	})
}
