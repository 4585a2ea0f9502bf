package hub_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func wantIDs(t *testing.T, what string, got hub.Inbox, want ...string) {
	t.Helper()
	if !slices.Equal(ids(got), want) {
		t.Fatalf("%s: %v, want %v", what, ids(got), want)
	}
}

func TestAnInboxShowsWhatWaitsForTheCallerAndWhatIsNew(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		pending := f.Send(anna, "frank@acme")
		accepted := f.Send(anna, "frank@acme")
		done := f.Send(anna, "frank@acme")
		cancelled := f.Send(anna, "frank@acme")
		back := f.Send(frank, "anna@acme")
		accept(f, frank, accepted)
		accept(f, frank, done)
		complete(f, frank, done)
		_, err := f.Hub.Cancel(bg, anna, hub.CancelInput{ThreadID: cancelled})
		noError(t, err)

		got := inbox(f, frank, hub.InboxInput{})
		wantIDs(t, "frank's, newest first", got, cancelled, accepted, pending)
		if got.UnreadTotal != 2 || got.Items[0].Unread != 1 || got.Items[1].Unread != 0 || got.Items[2].Unread != 1 || got.NextCursor != "" {
			t.Fatalf("unread %d: %+v", got.UnreadTotal, got.Items)
		}
		if p := got.Parties[anna.Actor.ID]; p.Handle != "anna@acme" {
			t.Fatalf("parties %+v", got.Parties)
		}
		view(f, frank, cancelled)
		view(f, frank, pending)
		wantIDs(t, "frank's, all seen", inbox(f, frank, hub.InboxInput{}), accepted, pending)
		wantIDs(t, "anna's", inbox(f, anna, hub.InboxInput{}), back, done, accepted)
		view(f, anna, done)
		view(f, anna, accepted)
		wantIDs(t, "anna's, all seen", inbox(f, anna, hub.InboxInput{}), back)
		say(f, frank, pending, "when?")
		wantIDs(t, "anna's, with an answer", inbox(f, anna, hub.InboxInput{}), back, pending)

		wantIDs(t, "anna as sender", inbox(f, anna, hub.InboxInput{Role: "sender"}), accepted, pending)
		wantIDs(t, "anna as recipient", inbox(f, anna, hub.InboxInput{Role: "recipient"}), back)
		for status, want := range map[string][]string{
			"pending": {back, pending}, "accepted": {accepted}, "completed": {done}, "cancelled": {cancelled}, "declined": {}, "expired": {},
		} {
			wantIDs(t, status, inbox(f, anna, hub.InboxInput{Statuses: []string{status}}), want...)
		}
		wantIDs(t, "two statuses of one role", inbox(f, anna, hub.InboxInput{Statuses: []string{"pending", "completed"}, Role: "sender"}), done, pending)
	})
}

func TestUnreadIsExactlyWhatOthersWroteAndTheReaderHasNotSeen(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		one, two := f.Send(anna, "frank@acme"), f.Send(anna, "frank@acme")
		say(f, anna, one, "b")
		say(f, frank, one, "c")
		_, err := f.Hub.Send(bg, hubtest.Operator(), hub.SendInput{ThreadID: one, Body: "a word from the operator"})
		noError(t, err)
		want := func(call hub.Call, total int) {
			t.Helper()
			if got := inbox(f, call, hub.InboxInput{}); got.UnreadTotal != total {
				t.Fatalf("%s: %d unread, want %d", call.Actor.Handle, got.UnreadTotal, total)
			}
		}
		want(frank, 4) // two of message 1, b, and the operator's
		want(anna, 2)  // c and the operator's
		for range 2 {  // listing marks nothing
			want(frank, 4)
		}
		accept(f, frank, two)
		want(frank, 3)
		view(f, frank, one)
		want(frank, 0)
		complete(f, frank, two) // news, but no message
		want(anna, 2)
		view(f, anna, one)
		want(anna, 0)
		if got := inbox(f, anna, hub.InboxInput{}); len(got.Items) != 1 || got.Items[0].Unread != 0 || len(got.Items[0].News) != 2 {
			t.Fatalf("%+v", got.Items)
		}
	})
}

func TestSinceKeepsWhatChangedAfterIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		old := f.Send(anna, "frank@acme")
		quiet := f.Send(anna, "frank@acme")
		expiring := send(f, anna, hub.CreateInput{To: "frank@acme", ExpiresIn: 60}).ThreadID
		for _, id := range []string{old, quiet, expiring} {
			view(f, frank, id) // no change
		}
		f.Clock.Advance(time.Second)
		since := f.Clock.Now()
		wantIDs(t, "nothing yet", inbox(f, frank, hub.InboxInput{Since: since}))
		say(f, anna, old, "a word more")
		fresh := f.Send(anna, "frank@acme")
		got := inbox(f, frank, hub.InboxInput{Since: since})
		wantIDs(t, "what changed", got, fresh, old)
		wantIDs(t, "after the last change", inbox(f, frank, hub.InboxInput{Since: got.Items[0].Handoff.UpdatedAt}))
		wantIDs(t, "of the accepted", inbox(f, frank, hub.InboxInput{Since: since, Statuses: []string{"accepted"}}))

		f.Clock.Advance(time.Minute)
		wantIDs(t, "a deadline that passed is a change", inbox(f, frank, hub.InboxInput{Since: since, Statuses: []string{"expired"}}), expiring)
		lapsing := f.Send(anna, "frank@acme")
		acceptFor(f, frank, lapsing, 10)
		f.Clock.Advance(time.Second)
		since = f.Clock.Now()
		wantIDs(t, "no lapse yet", inbox(f, frank, hub.InboxInput{Since: since}))
		f.Clock.Advance(time.Minute)
		wantIDs(t, "so is a lease that lapsed", inbox(f, frank, hub.InboxInput{Since: since}), lapsing)
		wantIDs(t, "seen after it", inbox(f, frank, hub.InboxInput{Since: f.Clock.Now(), Statuses: []string{"expired", "pending"}}))
	})
}

func TestPeekingIntoTheInboxLeavesNoTrace(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		got := inbox(f, frank, hub.InboxInput{Peek: true})
		wantIDs(t, "peeked", got, id)
		if got.UnreadTotal != 1 || got.Items[0].Unread != 1 {
			t.Errorf("unread %d, %+v", got.UnreadTotal, got.Items[0])
		}
		if at := inbox(f, anna, hub.InboxInput{Role: "sender"}).Items[0].Handoff.FetchedAt; !at.IsZero() {
			t.Errorf("the sender is told that it was fetched at %v", at)
		}
		inbox(f, frank, hub.InboxInput{})
		if at := inbox(f, anna, hub.InboxInput{Role: "sender"}).Items[0].Handoff.FetchedAt; at.IsZero() {
			t.Error("a look that is no peek was not noted")
		}
	})
}

func TestTheSenderSeesWhetherItsHandoffWasFetched(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		f.Send(anna, "frank@acme")
		fetched := func() time.Time {
			return inbox(f, anna, hub.InboxInput{Role: "sender"}).Items[0].Handoff.FetchedAt
		}
		for range 2 { // the first look could itself have been taken for the fetch
			if !fetched().IsZero() {
				t.Fatal("the sender's own look counts as fetched")
			}
		}
		inbox(f, frank, hub.InboxInput{})
		first := fetched()
		if first.IsZero() {
			t.Fatal("it was listed to its recipient and does not count as fetched")
		}
		f.Clock.Advance(time.Minute)
		inbox(f, frank, hub.InboxInput{})
		if got := fetched(); !got.Equal(first) {
			t.Fatalf("fetched again at %v", got)
		}
		if got := inbox(f, frank, hub.InboxInput{}); got.UnreadTotal != 1 {
			t.Fatalf("listing marked something read: %+v", got)
		}
	})
}

func TestAnInboxRefusesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	for field, in := range map[string]hub.InboxInput{
		"limit": {Limit: 201}, "limit ": {Limit: -1}, "role": {Role: "owner"}, "status": {Statuses: []string{"pending", "open"}},
		"wait_seconds": {Wait: 51 * time.Second}, "wait_seconds ": {Wait: -1}, "cursor": {Cursor: "junk"}, "cursor ": {Cursor: "MC5h"},
	} {
		_, err := f.Hub.Inbox(bg, anna, in)
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); fmt.Sprintf("%-13v", e.Details["field"])[:6] != fmt.Sprintf("%-13s", field)[:6] {
			t.Errorf("%s: %v", field, e.Details)
		}
	}
}

func TestAPageIsCutToItsBudgetAndGoesOnBehindIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		var want []string
		for range 5 {
			want = append([]string{f.Send(anna, "frank@acme")}, want...)
		}
		var got []string
		in := hub.InboxInput{Limit: 4, Fit: func(p *hub.Inbox) int { return min(2, len(p.Items)) }}
		for {
			page := inbox(f, frank, in)
			got = append(got, ids(page)...)
			if in.Cursor = page.NextCursor; in.Cursor == "" || len(got) > len(want) {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// pass pages through the whole inbox; no handoff may come twice.
func pass(f *hubtest.Fixture, call hub.Call, limit int) (map[string]int, error) {
	seen := map[string]int{}
	for in := (hub.InboxInput{Limit: limit}); ; {
		page, err := f.Hub.Inbox(bg, call, in)
		if err != nil {
			return nil, err
		}
		for _, id := range ids(page) {
			if seen[id]++; seen[id] > 1 {
				return nil, fmt.Errorf("%s came twice", id)
			}
		}
		if in.Cursor = page.NextCursor; in.Cursor == "" {
			return seen, nil
		}
	}
}

func TestPagingReachesTheOldestWithEachSeenOnceWhileAThousandArrive(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		const before, writers, each = 104, 16, 56
		var mu sync.Mutex
		all := map[string]bool{}
		write := func(n int) {
			for range n {
				out, err := f.Hub.Create(bg, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.Inform, Summary: "s"})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				all[out.ThreadID] = true
				mu.Unlock()
			}
		}
		var first sync.WaitGroup
		for range 8 {
			first.Go(func() { write(before / 8) })
		}
		first.Wait()
		old := maps.Clone(all)

		var wg sync.WaitGroup
		t.Cleanup(wg.Wait) // before the hub closes, also when this fails
		var arrived atomic.Bool
		for range writers {
			wg.Go(func() { write(each) })
		}
		go func() { wg.Wait(); arrived.Store(true) }()
		passes := 0
		for last := false; ; passes++ {
			seen, err := pass(f, frank, 17)
			noError(t, err)
			for id := range old {
				if seen[id] != 1 {
					t.Fatalf("pass %d did not reach %s, which was there before it began", passes, id)
				}
			}
			if last {
				if len(seen) != before+writers*each || len(all) != len(seen) {
					t.Fatalf("%d seen of %d", len(seen), len(all))
				}
				break
			}
			mu.Lock()
			old = maps.Clone(all) // what was answered by now must be in the next pass
			mu.Unlock()
			last = arrived.Load()
		}
		if got := inbox(f, frank, hub.InboxInput{Limit: 1}); got.UnreadTotal != before+writers*each {
			t.Fatalf("%d unread", got.UnreadTotal)
		}
		t.Logf("%d passes", passes)
	})
}
