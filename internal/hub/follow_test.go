package hub_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// reader follows a stream from its beginning and notes what it saw.
type reader struct {
	mu   sync.Mutex
	seen map[string]int
}

func (r *reader) follow(ctx context.Context, h *hub.Hub, call hub.Call, stream string, limit int) error {
	in := hub.EventWaitInput{ProjectRoot: project, AgentID: call.Actor.Handle, Stream: stream, Cursor: "0", Limit: limit, Wait: hub.MaxWait}
	for ctx.Err() == nil {
		page, err := h.EventWait(ctx, call, in)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		r.mu.Lock()
		for _, e := range page.Events {
			if e.HandoffID != "" {
				r.seen[fmt.Sprint(e.HandoffID, " ", e.Seq)]++
			}
		}
		r.mu.Unlock()
		in.Cursor = page.NextCursor
	}
	return nil
}

func (r *reader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

func TestReadersMissNothingAndSeeNothingTwiceWhileOthersCommitOutOfOrder(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		nodes := []*hub.Hub{f.Hub}
		if f.Store.Kind() == "postgres" {
			_, other := f.Node(f.HubCfg)
			nodes = append(nodes, other)
		}
		anna := f.Agent("anna@acme")
		const writers, each = 6, 25
		agents := make([]hub.Call, writers)
		for i := range agents {
			agents[i] = able(f, fmt.Sprintf("w%d@acme", i))
		}
		ctx, stop := context.WithCancel(bg)
		defer stop()
		var reading, writing sync.WaitGroup
		readers := map[string]*reader{}
		for i, h := range nodes {
			for _, stream := range []string{hub.StreamWorkspace, hub.StreamAgent, hub.StreamAll} {
				r := &reader{seen: map[string]int{}}
				readers[fmt.Sprint(stream, " on node ", i)] = r
				reading.Go(func() { noError(t, r.follow(ctx, h, anna, stream, 7)) })
			}
		}
		var want, committed atomic.Int64
		for _, w := range agents {
			writing.Go(func() {
				for range each {
					id := opened(f, anna, hub.OpenInput{}).HandoffID
					claimOf(f, w, id)
					completed(f, w, id)
					want.Add(3)
					committed.Add(1)
					if f.Store.Kind() == "postgres" && rand.N(3) == 0 { // it commits later than what began after it
						late(t, f, id, committed.Load()+2, &committed)
						want.Add(1)
					}
				}
			})
		}
		writing.Wait()
		for name, r := range readers {
			eventually(t, name+" has seen everything", func() bool { return r.count() >= int(want.Load()) })
		}
		stop()
		reading.Wait()
		for name, r := range readers {
			for e, n := range r.seen {
				if n != 1 {
					t.Errorf("%s saw %s %d times", name, e, n)
				}
			}
			if r.count() != int(want.Load()) {
				t.Errorf("%s saw %d events, %d were committed", name, r.count(), want.Load())
			}
		}
	})
}

// late writes one more event of a handoff in a transaction that others overtake.
func late(t *testing.T, f *hubtest.Fixture, id string, until int64, committed *atomic.Int64) {
	give := time.Now().Add(20 * time.Millisecond) // the last ones are overtaken by nobody
	if err := f.Store.Write(bg, func(tx *store.Tx) error {
		if err := tx.InsertEvent(&handoff.Event{Type: handoff.EventExtended, HandoffID: id, Seq: 4, ActorID: handoff.System().ID, At: tx.Now()}); err != nil {
			return err
		}
		if _, err := tx.UnreadTotal("nobody"); err != nil { // it is sent now
			return err
		}
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for committed.Load() < until && time.Now().Before(give) {
			<-tick.C
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestACallThatCannotReadYetWhatWasCommittedLooksNowAndThen(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres")
	anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
	id := opened(f, anna, hub.OpenInput{}).HandoffID
	settled(f)
	from := follow(f, cid, hub.EventWaitInput{}).NextCursor
	end := olderTransaction(t, f)
	ch := asleep(f, waitsForEvent(f, cid, hub.EventWaitInput{Cursor: from}))
	tail := asleep(f, func() (string, error) {
		list, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: from[2:], Wait: hub.MaxWait})
		if len(list) == 0 {
			return "", err
		}
		return string(list[0].Type), err
	})
	began := time.Now()
	claimOf(f, cid, id)
	eventually(t, "they have looked some times", func() bool { return looks(f, "unsettled") >= 10 })
	if took := time.Since(began); took < 10*time.Millisecond+20*time.Millisecond+40*time.Millisecond+80*time.Millisecond {
		t.Errorf("two calls looked ten times within %v", took)
	}
	// Whoever commits all the time does not make them look all the time.
	before, began := looks(f, "unsettled")+looks(f, "woken"), time.Now()
	for range 100 {
		_, err := f.Hub.Extend(bg, cid, hub.ExtendInput{HoldInput: holding(cid, id)})
		noError(t, err)
	}
	most := 2*int(time.Since(began)/(10*time.Millisecond)) + 4
	if n := looks(f, "unsettled") + looks(f, "woken") - before; n > most {
		t.Errorf("%d looks in %v, at most %d are due", n, time.Since(began), most)
	}
	began = time.Now()
	end()
	for what, ch := range map[string]<-chan arrival{"the agent's": ch, "the operator's": tail} {
		if got := came(t, what, ch); got != "handoff.claimed" {
			t.Errorf("%s came back with %q", what, got)
		}
	}
	if late := time.Since(began); late > 2*time.Second {
		t.Errorf("they came back %v after they could", late)
	}
	// With nothing to come they sleep.
	settled(f)
	from = follow(f, cid, hub.EventWaitInput{}).NextCursor
	ch = asleep(f, waitsForEvent(f, cid, hub.EventWaitInput{Cursor: from}))
	before = looks(f, "unsettled") + looks(f, "woken")
	for range 20 {
		f.Send(anna, "cid@acme") // no event of the workspace
	}
	if n := looks(f, "unsettled") + looks(f, "woken") - before; n != 0 || asleepNow(f) != 1 {
		t.Errorf("%d looks at what is none of its business", n)
	}
	opened(f, anna, hub.OpenInput{})
	came(t, "the next", ch)
}
