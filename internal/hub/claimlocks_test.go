package hub_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// What claims lock, in which order, and which time they have after they waited. All of it is
// PostgreSQL's: on SQLite there is one writer.

// deadlocks counts those of the fixture's database, which PostgreSQL solved by failing one side. It ends
// the fixture: a connection tells what it met when it is closed.
func deadlocks(f *hubtest.Fixture) (n int) {
	f.T.Helper()
	db := hubtest.Beside(f.T, f.Config)
	f.Hub.Drain()
	noError(f.T, f.Store.Close())
	hubtest.Eventually(f.T, func() bool {
		open := 0
		err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'handclasp'`).Scan(&open)
		return err == nil && open <= 2 // those that speak with other nodes claim nothing
	})
	noError(f.T, db.QueryRow(`SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&n))
	return n
}

// Each looks at what is for the other first. Had one kept that locked while it waits for its own, the
// two would wait for each other.
func TestClaimsThatLookAtEachOthersHandoffsDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres", hubtest.RealClock())
	anna := f.Agent("anna@acme")
	agents := make([]hub.Call, 2)
	for i := range agents {
		k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: fmt.Sprintf("w%d@acme", i), Tags: map[string][]string{"team": {fmt.Sprint("t", i)}}})
		noError(t, err)
		actor, err := f.Hub.Authenticate(bg, k.Secret)
		noError(t, err)
		agents[i] = hub.Call{Actor: actor}
	}
	for round := range 150 {
		for i := range agents { // what fits the second agent stands first
			target, _ := json.Marshal(map[string]any{"strategy": "tag", "selector": []any{map[string]any{"key": "team", "operator": "NotIn", "values": []string{fmt.Sprint("t", i)}}}})
			opened(f, anna, hub.OpenInput{Target: target})
		}
		var wg sync.WaitGroup
		for _, a := range agents {
			wg.Go(func() {
				out, err := f.Hub.Claim(bg, a, hub.ClaimInput{ProjectRoot: project, AgentID: a.Actor.Handle})
				if err != nil || out.Work == nil {
					t.Errorf("round %d: %+v, %v", round, out, err)
				}
			})
		}
		wg.Wait()
	}
	if n := deadlocks(f); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// Agents are turned off and on while they claim, renew and give back: the one needs an agent and then what
// it holds, the others a handoff and the agent that is to hold it.
func TestClaimsAndTheirAgentsDisablingDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres", hubtest.RealClock())
	anna := f.Agent("anna@acme")
	var wg sync.WaitGroup
	for i := range 4 {
		a := able(f, fmt.Sprintf("w%d@acme", i))
		opened(f, anna, hub.OpenInput{})
		wg.Go(func() {
			for range 60 {
				out, err := f.Hub.Claim(bg, a, hub.ClaimInput{ProjectRoot: project, AgentID: a.Actor.Handle})
				if err != nil || out.Work == nil {
					continue
				}
				id := out.Work.Handoff.ID
				_, _ = f.Hub.Claim(bg, a, hub.ClaimInput{ProjectRoot: project, AgentID: a.Actor.Handle, ThreadID: id})
				_, _ = f.Hub.Release(bg, a, hub.ReleaseInput{HoldInput: holding(a, id)})
				if _, err := f.Hub.Accept(bg, a, hub.AcceptInput{ThreadID: id}); err == nil {
					_, _ = f.Hub.Release(bg, a, hub.ReleaseInput{HoldInput: holding(a, id)})
				}
			}
		})
		wg.Go(func() {
			for n := range 60 {
				noErrorBut(t, f.Hub.SetDisabled(bg, hubtest.Operator(), a.Actor.Handle, n%2 == 0))
			}
		})
	}
	wg.Wait()
	if n := deadlocks(f); n > 0 {
		t.Errorf("%d deadlocks", n)
	}
}

func noErrorBut(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err) // not fatal: it is no goroutine of the test
	}
}

// A lease runs from when the claim got what it waited for.
func TestALeaseBeginsAfterWhateverItsClaimWaitedFor(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, held string
		claim      func(f *hubtest.Fixture, bob hub.Call, id string) (hub.Work, error)
	}{
		{"the next one, its row held", `SELECT id FROM handoffs FOR UPDATE`, nextOne},
		{"the next one, its agent held", `SELECT id FROM agents FOR UPDATE`, nextOne},
		{"a named one, its row held", `SELECT id FROM handoffs FOR UPDATE`, namedOne},
		{"a named one, its agent held", `SELECT id FROM agents FOR UPDATE`, namedOne},
		{"sent back, its row held", `SELECT id FROM handoffs FOR UPDATE`, sentBack},
		{"sent back, its agent held", `SELECT id FROM agents FOR UPDATE`, sentBack},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			f := hubtest.New(t, "postgres", hubtest.RealClock())
			anna, bob := f.Agent("anna@acme"), able(f, "bob@acme")
			id := opened(f, anna, hub.OpenInput{Criteria: []string{"good"}}).HandoffID
			if test.name[:4] == "sent" {
				_, err := f.Hub.Claim(bg, bob, hub.ClaimInput{ProjectRoot: project, AgentID: "bob@acme", ThreadID: id, Lease: 60})
				noError(t, err)
				_, err = f.Hub.Deliver(bg, bob, hub.DeliverInput{HoldInput: holding(bob, id)})
				noError(t, err)
			}
			db := hubtest.Beside(t, f.Config)
			tx, err := db.Begin()
			noError(t, err)
			_, err = tx.Exec(test.held)
			noError(t, err)
			done := make(chan hub.Work)
			go func() {
				w, err := test.claim(f, bob, id)
				noErrorBut(t, err)
				done <- w
			}()
			hubtest.Eventually(t, func() bool {
				waits := 0
				err := db.QueryRow(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waits)
				return err == nil && waits > 0
			})
			var free time.Time
			noError(t, tx.QueryRow(`SELECT clock_timestamp()`).Scan(&free))
			noError(t, tx.Rollback())
			w := <-done
			if began := w.Handoff.LeaseExpiresAt.Add(-time.Minute); w.Handoff.State != handoff.Claimed || began.Before(free.Truncate(time.Microsecond)) {
				t.Errorf("it is %s, and its lease began %v before it could", w.Handoff.State, free.Sub(began))
			}
		})
	}
}

func nextOne(f *hubtest.Fixture, bob hub.Call, _ string) (hub.Work, error) {
	return claimed(f.Hub.Claim(bg, bob, hub.ClaimInput{ProjectRoot: project, AgentID: "bob@acme", Lease: 60}))
}

func namedOne(f *hubtest.Fixture, bob hub.Call, id string) (hub.Work, error) {
	return claimed(f.Hub.Claim(bg, bob, hub.ClaimInput{ProjectRoot: project, AgentID: "bob@acme", ThreadID: id, Lease: 60}))
}

func claimed(out hub.ClaimResult, err error) (hub.Work, error) {
	if err != nil || out.Work == nil {
		return hub.Work{}, errors.Join(errors.New("nothing was claimed"), err)
	}
	return *out.Work, nil
}

func sentBack(f *hubtest.Fixture, _ hub.Call, id string) (hub.Work, error) {
	anna, err := f.Hub.ActAs(bg, "anna@acme")
	if err != nil {
		return hub.Work{}, err
	}
	call := hub.Call{Actor: anna}
	return f.Hub.Verify(bg, call, hub.VerifyInput{HoldInput: holding(call, id), Verdict: "fail"})
}

// Nothing is claimed before it was made.
func TestAClaimIsNeverDatedBeforeWhatItClaimsWasMade(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres", hubtest.RealClock())
	anna := f.Agent("anna@acme")
	const all = 300
	left := make(chan struct{}, all)
	var wg sync.WaitGroup
	for i := range 12 {
		a := able(f, fmt.Sprintf("w%d@acme", i))
		wg.Go(func() {
			for len(left) < all {
				out, err := f.Hub.Claim(bg, a, hub.ClaimInput{ProjectRoot: project, AgentID: a.Actor.Handle})
				if err != nil {
					t.Error(err)
					return
				}
				if w := out.Work; w != nil {
					left <- struct{}{}
					if h := &w.Handoff; h.AcceptedAt.Before(h.CreatedAt) {
						t.Errorf("claimed %v before it was made", h.CreatedAt.Sub(h.AcceptedAt))
					}
				}
			}
		})
	}
	for range all {
		opened(f, anna, hub.OpenInput{})
	}
	wg.Wait()
}
