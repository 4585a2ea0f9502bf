package hub_test

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// held is what was acknowledged about one handoff.
type held struct {
	mu      sync.Mutex
	holders map[int]string // by epoch
	ended   []string       // by whom it was completed or cancelled
}

func (h *held) claimed(t *testing.T, epoch int, holder string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if was, ok := h.holders[epoch]; ok && was != holder {
		t.Errorf("epoch %d was acknowledged to %s and to %s", epoch, was, holder)
	}
	h.holders[epoch] = holder
}

// Agents and the operator race for the same handoffs. What each was told must fit one order of
// events: an epoch has one holder, only the holder of the last one completes, and one end is told.
func TestAnEpochHasOneHolderWhoeverRacesTheOperator(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		const threads, racers, steps = 12, 8, 40
		handles := []string{"anna@acme", "frank@acme", "grace@acme", "henry@acme"}
		calls := map[string]hub.Call{}
		for _, h := range handles {
			calls[h] = f.Agent(h)
		}
		var made []string
		said := map[string]*held{}
		for range threads {
			id := f.Send(calls[handles[0]], handles[1])
			made, said[id] = append(made, id), &held{holders: map[int]string{}}
		}
		var wg sync.WaitGroup
		for r := range racers {
			wg.Go(func() {
				rnd := rand.New(rand.NewPCG(uint64(r), 3)) //nolint:gosec // repeatable, not secret
				for range steps {
					id, who := made[rnd.IntN(threads)], handles[rnd.IntN(len(handles))]
					h := said[id]
					switch rnd.IntN(10) {
					case 0, 1:
						if t0, err := f.Hub.Accept(bg, calls[who], hub.AcceptInput{ThreadID: id}); err == nil && t0.Handoff.State == handoff.Claimed {
							h.claimed(t, t0.Handoff.Epoch, who)
						}
					case 2, 3, 4, 5:
						if out, err := f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: who, Reason: "r"}); err == nil {
							h.claimed(t, out.Epoch, out.Holder)
						}
					case 6:
						_, _ = f.Hub.Send(bg, calls[who], hub.SendInput{ThreadID: id, Body: "b"})
					case 7, 8:
						seen, err := f.Hub.View(bg, hubtest.Operator(), hub.ViewInput{ThreadID: id})
						if err == nil && completeAs(f, calls[who], id, new(seen.Handoff.Epoch)) == nil {
							h.mu.Lock()
							h.ended = append(h.ended, who)
							h.mu.Unlock()
						}
					case 9:
						if _, err := f.Hub.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "r"}); err == nil {
							h.mu.Lock()
							h.ended = append(h.ended, "operator")
							h.mu.Unlock()
							if _, err := f.Hub.Erase(bg, hubtest.Operator(), id); err != nil {
								t.Error(err)
							}
						}
					}
				}
			})
		}
		wg.Wait()
		for _, id := range made {
			row, h := look(f, id).Handoff, said[id]
			eventsOf(f, id) // dense
			slices.Sort(h.ended)
			if ended := slices.Compact(h.ended); len(ended) > 1 || row.State.Terminal() != (len(ended) == 1) {
				t.Errorf("%s ended as %s, and these were told so: %v", id, row.State, ended)
			} else if row.State == handoff.Completed && h.holders[row.Epoch] != ended[0] {
				t.Errorf("%s was completed by %s, and epoch %d is that of %s", id, ended[0], row.Epoch, h.holders[row.Epoch])
			}
			if row.Holder != "" && row.Holder != calls[h.holders[row.Epoch]].Actor.ID {
				t.Errorf("%s is held by %s, and epoch %d was told to %s", id, row.Holder, row.Epoch, h.holders[row.Epoch])
			}
		}
	})
}
