package hub_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// busy are agents that hand work around until they are stopped.
type busy struct {
	f     *hubtest.Fixture
	stop  atomic.Bool
	mu    sync.Mutex
	done  []done
	wg    sync.WaitGroup
	marks atomic.Int64 // the moments that the test has marked so far
}

// done is a handoff that was carried through, every step of it acknowledged.
type done struct {
	id      string
	begunAt int64 // after so many marks
}

func (b *busy) work(from hub.Call, to string, receiver hub.Call) {
	b.wg.Go(func() {
		for i := 0; !b.stop.Load(); i++ {
			begun := b.marks.Load()
			id := send(b.f, from, hub.CreateInput{To: to, Summary: fmt.Sprint("work ", i), IdempotencyKey: fmt.Sprint(to, i)}).ThreadID
			accept(b.f, receiver, id)
			say(b.f, from, id, "how is it going?")
			complete(b.f, receiver, id)
			b.mu.Lock()
			b.done = append(b.done, done{id, begun})
			b.mu.Unlock()
		}
	})
}

func (b *busy) sofar() []done {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.done)
}

// elsewhere is a hub on another database of the kind, filled from a backup.
func elsewhere(t *testing.T, kind string, backup []byte) *hubtest.Fixture {
	t.Helper()
	return hubtest.New(t, kind, hubtest.WithStore(func(c *store.Config) {
		_, err := store.Restore(bg, *c, bytes.NewReader(backup), nil)
		noError(t, err)
	}))
}

// onEachPair runs the test on each database with each as the goal.
func onEachPair(t *testing.T, test func(t *testing.T, f *hubtest.Fixture, to string)) {
	t.Helper()
	for _, to := range hubtest.Kinds() {
		t.Run("to "+to, func(t *testing.T) {
			t.Parallel()
			hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) { test(t, f, to) })
		})
	}
}

func TestABackupWhileAgentsWorkHoldsWhatWasAcknowledgedAndNothingHalf(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, f *hubtest.Fixture, to string) {
		anna, bob, frank := f.Agent("anna@acme"), f.Agent("bob@acme"), f.Agent("frank@acme")
		b := &busy{f: f}
		b.work(anna, "frank@acme", frank)
		b.work(bob, "anna@acme", anna)
		b.work(frank, "bob@acme", bob)
		eventually(t, "they are at it", func() bool { return len(b.sofar()) >= 10 })
		before := b.sofar()
		p, ended := hubtest.NewGate(), make(chan error, 1)
		go func() { ended <- f.Hub.Backup(bg, hubtest.Operator(), p) }()
		<-p.Reached
		b.marks.Add(1) // what begins from now on began after the snapshot
		var late []done
		eventually(t, "they go on while the snapshot is held", func() bool {
			late = slices.DeleteFunc(b.sofar(), func(d done) bool { return d.begunAt == 0 })
			return len(late) >= 5
		})
		close(p.Opened)
		noError(t, <-ended)
		b.stop.Store(true)
		b.wg.Wait()

		g := elsewhere(t, to, p.Bytes())
		for _, d := range before {
			if h := look(g, d.id).Handoff; h.State != handoff.Completed {
				t.Errorf("handoff %s was completed before the backup began, and is %s in it", d.id, h.State)
			}
		}
		for _, d := range late {
			_, err := g.Hub.View(bg, hubtest.Operator(), hub.ViewInput{ThreadID: d.id, Limit: 1})
			if handoff.CodeOf(err) != handoff.CodeNotFound {
				t.Errorf("handoff %s began after the snapshot, and the backup has it (%v)", d.id, err)
			}
		}
		nothingHalf(t, g)
		// At rest all is equal, row by row.
		var whole bytes.Buffer
		var rows []string
		eventually(t, "nothing changes, not even when a key was last used", func() bool {
			whole.Reset()
			rows = hubtest.DumpOf(t, f.Config)
			noError(t, f.Hub.Backup(bg, hubtest.Operator(), &whole))
			return slices.Equal(rows, hubtest.DumpOf(t, f.Config))
		})
		at := elsewhere(t, to, whole.Bytes())
		hubtest.WantSameRows(t, "restored at rest", hubtest.DumpOf(t, at.Config), rows)
	})
}

// nothingHalf wants that the log tells of each handoff, and that each has the messages and events
// that it counts.
func nothingHalf(t *testing.T, g *hubtest.Fixture) {
	t.Helper()
	ids := map[string]bool{}
	eventually(t, "the log tells of every handoff that is there", func() bool {
		for cursor, more := "0", true; more; {
			page, next, err := g.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: cursor})
			noError(t, err)
			for _, e := range page {
				if e.HandoffID != "" {
					ids[e.HandoffID] = true
				}
			}
			cursor, more = next, len(page) > 0
		}
		return len(ids) == stored(g)
	})
	for id := range ids {
		h := look(g, id)
		if len(h.Messages) != h.Handoff.Messages {
			t.Errorf("handoff %s has %d messages and counts %d", id, len(h.Messages), h.Handoff.Messages)
		}
		eventsOf(g, id) // dense, and as many as the handoff counts
	}
}

func TestARestoredHubKnowsKeysSessionsAndRepeatedCalls(t *testing.T) {
	t.Parallel()
	onEachPair(t, func(t *testing.T, f *hubtest.Fixture, to string) {
		anna, secret := f.AgentWithKey("anna@acme")
		frank := f.Agent("frank@acme")
		token, _, err := f.Hub.SignIn(bg, secret)
		noError(t, err)
		in := hub.CreateInput{To: "frank@acme", Summary: "once", IdempotencyKey: "key"}
		made := send(f, anna, in)
		accept(f, frank, made.ThreadID)
		old := lastCursor(t, f)
		var whole bytes.Buffer
		noError(t, f.Hub.Backup(bg, hubtest.Operator(), &whole))

		g := elsewhere(t, to, whole.Bytes())
		actor, err := g.Hub.Authenticate(bg, secret)
		noError(t, err)
		if actor != anna.Actor {
			t.Errorf("the key is that of %+v", actor)
		}
		if actor, err := g.Hub.Session(bg, token); err != nil || actor.ID != anna.Actor.ID {
			t.Errorf("the session is that of %+v (%v)", actor, err)
		}
		if again := send(g, anna, in); again.ThreadID != made.ThreadID || !again.Replay {
			t.Errorf("the repeated call made %+v", again)
		}
		if h := look(g, made.ThreadID).Handoff; h.Holder != frank.Actor.ID || h.Epoch != 1 {
			t.Errorf("the claim is %+v", h)
		}
		_, _, err = g.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: old})
		hubtest.WantCode(t, err, handoff.CodeCursorExpired)
		complete(g, frank, made.ThreadID)
		say(g, anna, send(g, frank, hub.CreateInput{To: "anna@acme"}).ThreadID, "thanks")
		nothingHalf(t, g)
		if types := eventsOf(g, made.ThreadID); !slices.Equal(types, []handoff.EventType{handoff.EventCreated, handoff.EventClaimed, handoff.EventCompleted}) {
			t.Errorf("the thread's events are %v", types)
		}
	})
}

// lastCursor reads the log to its end.
func lastCursor(t *testing.T, f *hubtest.Fixture) (cursor string) {
	t.Helper()
	eventually(t, "the log can be read to its end", func() bool {
		list, next, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0"})
		noError(t, err)
		cursor = next
		return len(list) > 0 && list[len(list)-1].Type == handoff.EventClaimed
	})
	return cursor
}
