package hub_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// race begins to wait and does what ends the waiting, at about the same time. What was missed would be
// found by a poll.
func race(t *testing.T, f *hubtest.Fixture, what string, waits func() (string, error), acts ...func()) string {
	t.Helper()
	ch := make(chan arrival, 1)
	go func() {
		spin(rand.N(300 * time.Microsecond))
		text, err := waits()
		ch <- arrival{text, err}
	}()
	var wg sync.WaitGroup
	for _, act := range acts {
		wg.Go(func() {
			spin(rand.N(2 * time.Millisecond))
			act()
		})
	}
	wg.Wait()
	text := came(t, what, ch)
	if n := looks(f, "poll"); n > 0 {
		t.Fatalf("%s was not woken: a poll found it", what)
	}
	return text
}

// spin lets a little time pass, at a random point of what others do.
func spin(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func TestNoCommitIsMissedByACallThatBeginsToWait(t *testing.T) {
	t.Parallel()
	const rounds = 60
	for name, round := range map[string]func(t *testing.T, s *crowd, i int){
		"a new handoff": func(t *testing.T, s *crowd, _ int) {
			var made string
			if got := race(t, s.f, "a claim", waitsToClaim(s.f, s.cid), func() { made = s.open(s.code) }); got != made {
				t.Fatalf("claimed %q, made %q", got, made)
			}
		},
		"a released one": func(t *testing.T, s *crowd, _ int) {
			id := s.open(s.code)
			claimOf(s.f, s.dora, id)
			if got := race(t, s.f, "a claim", waitsToClaim(s.f, s.cid), func() { released(s.f, s.dora, id) }); got != id {
				t.Fatalf("claimed %q, released %q", got, id)
			}
		},
		"a lapsed one": func(t *testing.T, s *crowd, _ int) {
			id := s.open(s.code)
			claimOf(s.f, s.dora, id)
			if got := race(t, s.f, "a claim", waitsToClaim(s.f, s.cid), func() { swept(s.f, 301*time.Second) }); got != id {
				t.Fatalf("claimed %q, lapsed %q", got, id)
			}
			// Lest it lapses in the next round. The claim's own time may be from before the jump of the clock.
			_, err := s.f.Hub.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "over"})
			noError(t, err)
		},
		"a new capability and a handoff for it": func(t *testing.T, s *crowd, i int) {
			var made string
			capability := fmt.Sprint("skill", i)
			withCapability(s.f, fmt.Sprintf("other%d@acme", i), capability) // the catalog knows it
			if got := race(t, s.f, "a claim", waitsToClaim(s.f, s.cid),
				func() { made = s.open(`{"strategy":"capability","capability":"` + capability + `"}`) },
				func() {
					_, err := s.f.Hub.EditAgent(bg, hubtest.Operator(), s.cid.Actor.Handle, hub.AgentEdit{Capabilities: &[]string{capability}})
					noError(t, err)
				}); got != made {
				t.Fatalf("claimed %q, made %q", got, made)
			}
		},
		"an event of the workspace": func(t *testing.T, s *crowd, _ int) {
			settled(s.f)
			from := follow(s.f, s.cid, hub.EventWaitInput{}).NextCursor
			race(t, s.f, "event_wait", waitsForEvent(s.f, s.cid, hub.EventWaitInput{Cursor: from}), func() { s.open(s.code) })
		},
		"an event of one handoff": func(t *testing.T, s *crowd, _ int) {
			id := s.open(s.code)
			in := hub.EventWaitInput{Stream: hub.StreamHandoff, Filters: hub.EventFilters{HandoffID: id}}
			in.Cursor = follow(s.f, s.anna, in).NextCursor
			race(t, s.f, "event_wait", waitsForEvent(s.f, s.anna, in), func() { claimOf(s.f, s.cid, id) })
		},
		"a status": func(t *testing.T, s *crowd, _ int) {
			id := s.open(s.code)
			race(t, s.f, "handoff_get", waitsForStatus(s.f, s.anna, id, "OPEN"), func() { claimOf(s.f, s.cid, id) })
		},
		"news": func(t *testing.T, s *crowd, _ int) {
			var made string
			if got := race(t, s.f, "check_inbox", waitsForNews(s.f, s.cid), func() { made = s.f.Send(s.anna, s.cid.Actor.Handle) }); got != made {
				t.Fatalf("told of %q, sent %q", got, made)
			}
			view(s.f, s.cid, made)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
				s := newCrowd(f, 0)
				for i := range rounds {
					round(t, s, i)
				}
			})
		})
	}
}

func TestManyThatWaitForTheSameEachGetOne(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		s := newCrowd(f, 0)
		const workers, each = 12, 5
		got := make(chan string, workers*each)
		var wg sync.WaitGroup
		for i := range workers {
			w := withCapability(f, fmt.Sprintf("w%d@acme", i), "code0")
			wg.Go(func() {
				for range each {
					id, err := waitsToClaim(f, w)()
					if err != nil || id == "" {
						t.Errorf("%q %v", id, err)
						return
					}
					got <- id
				}
			})
		}
		var made []string
		for range workers * each {
			made = append(made, s.open(s.code))
			spin(rand.N(time.Millisecond))
		}
		wg.Wait()
		close(got)
		var claimed []string
		for id := range got {
			claimed = append(claimed, id)
		}
		slices.Sort(claimed)
		slices.Sort(made)
		if !slices.Equal(claimed, made) {
			t.Errorf("%d were claimed, of %d", len(claimed), len(made))
		}
	})
}

func TestOfTwoThousandThatWaitOnlyTheOneThatMayClaimLooks(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		const many, atOnce = 2000, 100
		waiting := make([]hub.Call, many)
		noError(t, f.Store.Write(bg, func(tx *store.Tx) error {
			for i := range waiting {
				a := store.AgentRow{Agent: handoff.Agent{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", i), Handle: fmt.Sprintf("a%d@acme", i), Capabilities: []string{fmt.Sprint("skill", i)}}}
				if err := tx.InsertAgent(&a, tx.Now()); err != nil {
					return err
				}
				waiting[i] = hub.Call{Actor: handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle}}
			}
			return nil
		}))
		got := make(chan arrival, many)
		for some := range slices.Chunk(waiting, atOnce) {
			before := asleepNow(f)
			for _, call := range some {
				go func() {
					id, err := waitsToClaim(f, call)()
					got <- arrival{call.Actor.Handle + " " + id, err}
				}()
			}
			parked(f, before+len(some))
		}
		for _, i := range []int{7, 1234, 1999} {
			made := opened(f, anna, hub.OpenInput{Target: json.RawMessage(fmt.Sprintf(`{"strategy":"capability","capability":"skill%d"}`, i))})
			if text := came(t, "the one that may", got); text != fmt.Sprintf("a%d@acme %s", i, made.HandoffID) {
				t.Errorf("%s came back", text)
			}
		}
		if n := looks(f, "woken"); n != 3 {
			t.Errorf("%d looked, for three handoffs that one each may claim", n)
		}
		began := time.Now()
		f.Hub.Drain()
		for range many - 3 {
			if o := <-got; o.err != nil {
				t.Fatal(o.err)
			}
		}
		t.Logf("all came back %v after the drain began", time.Since(began))
	})
}

func TestACallOnAnotherNodeIsWokenByNotification(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres")
	_, other := f.Node(f.HubCfg)
	s := newCrowd(f, 0)
	claims := func() (string, error) {
		out, err := other.Claim(bg, s.cid, hub.ClaimInput{ProjectRoot: project, AgentID: s.cid.Actor.Handle, Wait: hub.MaxWait})
		if out.Work == nil {
			return "", err
		}
		return out.Work.Handoff.ID, err
	}
	s.open(s.code) // the first may come before the other node listens, and then a poll finds it
	came(t, "the first", asleepOr(f, claims))
	var took []time.Duration
	for range 12 {
		ch := asleep(f, claims)
		began := time.Now()
		id := s.open(s.code)
		if got := came(t, "a claim on another node", ch); got != id {
			t.Fatalf("claimed %q, made %q", got, id)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	if took[len(took)/2] > 250*time.Millisecond {
		t.Errorf("woken after %v", took)
	}
	t.Logf("created to claimed on the other node: %v in the middle, %v at most", took[len(took)/2], took[len(took)-1])
}

// asleepOr starts a call that may find what it wants at once.
func asleepOr(f *hubtest.Fixture, call func() (string, error)) <-chan arrival {
	f.T.Helper()
	ch := make(chan arrival, 1)
	go func() {
		text, err := call()
		ch <- arrival{text, err}
	}()
	return ch
}

func TestSweepsThatRaceWriteDownEachEffectOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		hubs := []*hub.Hub{f.Hub, f.Hub, f.Hub}
		if f.Store.Kind() == "postgres" {
			_, second := f.Node(f.HubCfg)
			_, third := f.Node(f.HubCfg)
			hubs = []*hub.Hub{f.Hub, second, third}
		}
		s := newCrowd(f, 0)
		const each = 30
		want := map[string]handoff.EventType{}
		for range each {
			lapses := s.open(s.code)
			claimOf(f, s.cid, lapses)
			want[lapses] = handoff.EventLeaseLapsed
			want[s.open(s.code, func(in *hub.OpenInput) { in.ExpiresIn = 60 })] = handoff.EventExpired
			want[s.open(s.fallingBack(60))] = handoff.EventFallbackOpened
		}
		f.Clock.Advance(10 * time.Minute)
		var wg sync.WaitGroup
		var mu sync.Mutex
		swept := 0
		for _, h := range hubs {
			wg.Go(func() {
				n, err := h.Sweep(bg)
				noError(t, err)
				mu.Lock()
				defer mu.Unlock()
				swept += n
			})
		}
		wg.Wait()
		more, err := f.Hub.Sweep(bg) // one that met the others may have left it to them
		noError(t, err)
		if swept += more; swept != 3*each {
			t.Errorf("%d effects in all, %d are due", swept, 3*each)
		}
		for id, effect := range want {
			n := 0
			for _, e := range eventsOf(f, id) {
				if e == effect {
					n++
				}
			}
			if n != 1 {
				t.Errorf("%s of %s was written down %d times", effect, id, n)
			}
		}
	})
}
