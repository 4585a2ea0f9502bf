package hub_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// Whatever happens to handoffs, an inbox shows only what its reader may open, opening it all
// leaves nothing unread, and who holds something finds it there.
func TestAnInboxAgreesWithWhoMayReadWhateverTheOperatorMoves(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		const steps = 150
		rnd := rand.New(rand.NewPCG(7, 11)) //nolint:gosec // repeatable, not secret
		handles := []string{"anna@acme", "frank@acme", "grace@acme", "henry@acme"}
		calls := make([]hub.Call, len(handles))
		for i, h := range handles {
			calls[i] = f.Agent(h)
		}
		var made []string
		for range steps {
			who, other := rnd.IntN(4), rnd.IntN(4)
			if len(made) < 3 {
				if who != other {
					made = append(made, f.Send(calls[who], handles[other]))
				}
				continue
			}
			i := rnd.IntN(len(made))
			id := made[i]
			row := look(f, id).Handoff
			// Refusals are other tests' business.
			switch rnd.IntN(8) {
			case 0, 1, 2:
				_, _ = f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: handles[other], Reason: "r"})
			case 3:
				_, _ = f.Hub.Accept(bg, calls[who], hub.AcceptInput{ThreadID: id, Lease: int64(rnd.IntN(2) * 60)})
			case 4, 5:
				_, _ = f.Hub.Send(bg, calls[who], hub.SendInput{ThreadID: id, Body: "b"})
			case 6:
				f.Clock.Advance(time.Duration(rnd.IntN(90)) * time.Second)
			case 7:
				if completeAs(f, calls[who], id, new(row.Epoch)) == nil {
					erase(f, id)
					eventsOf(f, id)
					made = slices.Delete(made, i, i+1)
				}
			}
			agree(f, calls, made)
		}
	})
}

func agree(f *hubtest.Fixture, calls []hub.Call, made []string) {
	f.T.Helper()
	for _, call := range calls {
		page := inbox(f, call, hub.InboxInput{Statuses: handoff.TeamStatuses(), Limit: 200})
		for _, item := range slices.Concat(page.Items, inbox(f, call, hub.InboxInput{Limit: 200}).Items) {
			if _, err := f.Hub.View(bg, call, hub.ViewInput{ThreadID: item.Handoff.ID, Peek: true}); err != nil {
				f.T.Fatalf("%s is shown what it may not open: %v, %+v", call.Actor.Handle, err, item)
			}
		}
		unread := 0
		for i := range page.Items {
			unread += page.Items[i].Unread
		}
		if unread != page.UnreadTotal {
			f.T.Fatalf("%s has %d unread in all, and %d in what it may open", call.Actor.Handle, page.UnreadTotal, unread)
		}
		for _, id := range made {
			if row := look(f, id).Handoff; row.State == handoff.Claimed && row.Holder == call.Actor.ID && !slices.Contains(ids(inbox(f, call, hub.InboxInput{})), id) {
				f.T.Fatalf("%s does not find what it holds: %+v", call.Actor.Handle, row)
			}
		}
	}
}
