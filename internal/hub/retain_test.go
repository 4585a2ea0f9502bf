package hub_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

const aDay = 24 * time.Hour

func retaining(r hub.Retention) hubtest.Option {
	return hubtest.WithHub(func(c *hub.Config) { c.Retain = r })
}

// retain runs one pass, when all events can be read that there are: those that cannot are not removed.
func retain(f *hubtest.Fixture) hub.Retained {
	f.T.Helper()
	settled(f)
	out, err := f.Hub.Retain(bg)
	noError(f.T, err)
	return out
}

func TestTextsGoOnceTheirHandoffHasEndedLongEnoughAgo(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		w := write(f)
		open := send(f, w.anna, hub.CreateInput{To: "frank@acme", Summary: "kept"}).ThreadID
		ended := look(f, w.id).Handoff.CompletedAt
		for before, want := range map[time.Time]int{ended.Add(-time.Microsecond): 0, ended: 1} {
			noError(t, f.Store.Read(bg, func(tx *store.Tx) error {
				list, err := tx.Erasable(before, 10)
				if len(list) != want {
					t.Errorf("%v after the end %v are due", before.Sub(ended), list)
				}
				return err
			}))
		}
		f.Clock.Advance(aDay - time.Minute)
		if n := retain(f); n != (hub.Retained{}) || found(f, w.id, secret) == 0 {
			t.Fatalf("too early: %+v", n)
		}
		f.Clock.Advance(time.Minute)
		if n := retain(f); n != (hub.Retained{Handoffs: 1}) {
			t.Fatalf("%+v", n)
		}
		if n := found(f, w.id, secret); n != 0 {
			t.Errorf("the secret still stands there %d times", n)
		}
		got, err := f.Hub.History(bg, hubtest.Operator(), w.id, 0)
		noError(t, err)
		if last := got.Events[len(got.Events)-1]; last.Type != handoff.EventErased || last.ActorID != handoff.System().ID {
			t.Errorf("%+v", last)
		}
		if look(f, open).Summary.Body != "kept" || retain(f) != (hub.Retained{}) {
			t.Error("more was erased")
		}
	}, retaining(hub.Retention{Handoffs: aDay}))
}

func TestADeskHandoffAnswersWhenAllElseOfItIsGone(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		_, err := f.Hub.SetNotify(bg, hubtest.Operator(), "bot@shop", hub.NotifyInput{Webhook: "https://bot.example/hook"})
		noError(t, err)
		box := f.Post(f.Hub, nil)
		still := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "still", Reason: "open"})
		in := hub.InitiateInput{IdempotencyKey: "k", Reason: secret, ContactName: secret, ContactEmail: "secret@example.com"}
		made := initiate(f, bot, in)
		token := box.Token()
		reply := hub.ReplyInput{HandoffID: made.HandoffID, Body: secret, IdempotencyKey: "r"}
		replied, err := f.Hub.Reply(bg, bot, reply)
		noError(t, err)
		does(f, token, hub.PersonCompletes, secret)
		// An open one has a reply too.
		_, err = f.Hub.Reply(bg, bot, hub.ReplyInput{HandoffID: still.HandoffID, Body: "more"})
		noError(t, err)
		eventually(t, "all is sent", func() bool {
			list, err := f.Hub.Deliveries(bg, hubtest.Operator(), hub.DeliveryQuery{States: []string{"queued", "sending"}})
			return err == nil && len(list) == 0
		})
		deliveries := func() map[string]int {
			list, err := f.Hub.Deliveries(bg, hubtest.Operator(), hub.DeliveryQuery{})
			noError(t, err)
			kinds := map[string]int{}
			for i := range list {
				of := "ended "
				if list[i].HandoffID == still.HandoffID {
					of = "open "
				}
				kinds[of+string(list[i].Kind)]++
			}
			return kinds
		}
		if k := deliveries(); k["ended news"] == 0 || k["ended reply"] != 1 {
			t.Fatalf("%v", k)
		}
		f.Clock.Advance(8 * aDay)
		n := retain(f)
		if k := deliveries(); n.Handoffs != 1 || n.Deliveries == 0 || n.Events == 0 || k["ended news"] != 0 || k["ended reply"] != 1 || k["ended handoff"] != 1 || k["open handoff"] != 1 || k["open reply"] != 1 {
			t.Errorf("after 8 days %+v went, and what is left is %v", n, k)
		}
		if again, err := f.Hub.Reply(bg, bot, reply); err != nil || !again.Replay || again.MessageID != replied.MessageID || again.Delivery.ID != replied.Delivery.ID {
			t.Errorf("the reply again: %+v %v", again, err)
		}
		f.Clock.Advance(23 * aDay)
		retain(f)
		if k := deliveries(); k["ended reply"] != 0 || k["ended handoff"] != 1 || k["open handoff"] != 1 || k["open reply"] != 1 {
			t.Errorf("after 31 days what is left is %v", k)
		}
		_, err = f.Hub.Reply(bg, bot, reply)
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		f.Clock.Advance(8 * aDay)
		retain(f)

		again := initiate(f, bot, in)
		if again.HandoffID != made.HandoffID || !again.Replay || again.Delivery == nil || again.Delivery.ID != made.Delivery.ID || again.Delivery.State != handoff.DeliverySent {
			t.Errorf("%+v", again)
		}
		if s := deskStatus(f, bot, made.HandoffID); s.Handoff.State != handoff.Completed || len(s.Deliveries) != 1 {
			t.Errorf("%+v", s)
		}
		if look(f, made.HandoffID).Summary.Body != handoff.ErasedText {
			t.Error("its text is there")
		}
		for id, gone := range map[string]bool{made.HandoffID: true, still.HandoffID: false} {
			past, err := f.Hub.History(bg, hubtest.Operator(), id, 0)
			noError(t, err)
			if row := look(f, id).Handoff; gone && len(past.Events) >= row.EventSeq || !gone && len(past.Events) != row.EventSeq {
				t.Errorf("%d of %d events of %s are left", len(past.Events), row.EventSeq, row.Status())
			}
		}
	}, hubtest.WithMail(), retaining(hub.Retention{Handoffs: aDay, Deliveries: 7 * aDay, Events: 7 * aDay}))
}

func TestCursorsBeforeWhatIsGoneAreRefusedAndNoOthers(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		able(f, "cid@acme")
		held := opened(f, anna, hub.OpenInput{}).HandoffID
		early := map[string]string{}
		ended := opened(f, anna, hub.OpenInput{}).HandoffID
		ask := func(call hub.Call, on *hubtest.Fixture, stream, cursor string) (hub.EventPage, error) {
			return on.Hub.EventWait(bg, call, hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Stream: stream, Cursor: cursor, Limit: 1, Filters: hub.EventFilters{HandoffID: ended}})
		}
		streams := append(hub.Streams(), hub.StreamAll)
		for _, stream := range streams {
			eventually(t, "the creation can be read", func() bool {
				page, err := ask(anna, f, stream, "0")
				early[stream] = page.NextCursor
				return err == nil && len(page.Events) == 1
			})
		}
		_, first, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", Limit: 1})
		noError(t, err)
		_, err = f.Hub.TakeBack(bg, anna, hub.TakeBackInput{HoldInput: holding(anna, ended)})
		noError(t, err)
		f.Clock.Advance(8 * aDay)
		last := opened(f, anna, hub.OpenInput{}).HandoffID
		eventually(t, "all of that can be read", func() bool { // a cursor of now stands before what cannot
			list, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", Limit: 100})
			return err == nil && list[len(list)-1].HandoffID == last
		})
		late := map[string]string{}
		for _, stream := range streams {
			page, err := ask(anna, f, stream, "")
			noError(t, err)
			late[stream] = page.NextCursor
		}
		opened(f, anna, hub.OpenInput{})
		if n := retain(f); n.Events == 0 {
			t.Fatal("nothing was removed")
		}
		for _, stream := range streams {
			_, err := ask(anna, f, stream, early[stream])
			hubtest.WantCode(t, err, handoff.CodeCursorExpired)
			for _, cursor := range []string{late[stream], "0", ""} {
				if _, err := ask(anna, f, stream, cursor); err != nil {
					t.Errorf("%s with %q: %v", stream, cursor, err)
				}
			}
		}
		_, _, err = f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: first, Limit: 1})
		hubtest.WantCode(t, err, handoff.CodeCursorExpired)

		// Whoever begins anew gets through what is kept in front of what is gone, one event at a time.
		var seen []string
		for cursor := "0"; ; {
			list, next, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: cursor, Limit: 1})
			noError(t, err)
			if len(list) == 0 {
				break
			}
			cursor = next
			seen = append(seen, list[0].HandoffID)
		}
		if len(seen) != 3 || seen[0] != held {
			t.Errorf("left are the events of %v, held is %s", seen, held)
		}
		// Until more goes.
		list, anew, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", Limit: 1})
		noError(t, err)
		_, err = f.Hub.TakeBack(bg, anna, hub.TakeBackInput{HoldInput: holding(anna, list[0].HandoffID)})
		noError(t, err)
		f.Clock.Advance(8 * aDay)
		retain(f)
		_, _, err = f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: anew, Limit: 1})
		hubtest.WantCode(t, err, handoff.CodeCursorExpired)

		var backup bytes.Buffer
		noError(t, f.Hub.Backup(bg, hubtest.Operator(), &backup))
		g := elsewhere(t, f.Store.Kind(), backup.Bytes())
		got, next, err := g.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", Limit: 1})
		noError(t, err)
		if len(got) != 1 {
			t.Fatal("the restored hub has no event")
		}
		_, _, err = g.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: next})
		noError(t, err)
		_, _, err = g.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: anew})
		hubtest.WantCode(t, err, handoff.CodeCursorExpired)
	}, retaining(hub.Retention{Events: 7 * aDay}))
}

func TestAQuietLogKeepsItsLastEventAndThePlaceOfItsReaders(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		foreign(f, 40)
		var cursor string
		eventually(t, "all can be read", func() bool {
			list, next, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0"})
			cursor = next
			return err == nil && len(list) == 40
		})
		f.Clock.Advance(8 * aDay)
		if n := retain(f); n.Events != 39 {
			t.Errorf("%+v", n)
		}
		foreign(f, 3)
		eventually(t, "the reader goes on", func() bool {
			list, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: cursor})
			noError(t, err)
			return len(list) == 3
		})
	}, retaining(hub.Retention{Events: 7 * aDay}))
}

func TestAReaderIsToldOfWhatAnotherNodeRemovesWhileItReads(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		other := f.Hub
		if f.Store.Kind() == "postgres" {
			_, other = f.Node(f.HubCfg)
		}
		other.RetainChunk(7)
		for round := range 4 {
			for i := range 30 {
				id := f.Send(anna, "frank@acme")
				accept(f, frank, id)
				if i%5 > 0 { // the others stay open
					complete(f, frank, id)
				}
			}
			f.Clock.Advance(8 * aDay)
			f.Send(anna, "frank@acme")
			settled(f)
			removed := make(chan error, 1)
			begin := func() {
				go func() { _, err := other.Retain(bg); removed <- err }()
				if round == 0 { // so that it surely is in between
					noError(t, <-removed)
					removed <- nil
				}
			}
			told := readWhile(t, f, begin)
			noError(t, <-removed)
			if round == 0 && told == 0 {
				t.Error("the reader was not told at all")
			}
		}
	}, retaining(hub.Retention{Events: 7 * aDay}))
}

// readWhile reads the log to its end in small pages, anew whenever it is told to, and begins something
// after two pages. What was there when a reading began must be read, or the reader be told.
func readWhile(t *testing.T, f *hubtest.Fixture, begin func()) (told int) {
	t.Helper()
	name := func(e *handoff.Event) string { return fmt.Sprint(e.HandoffID, " ", e.Seq, " ", e.SubjectID) }
	pages, begun := 0, false
	for {
		cursor, seen, there := "0", map[string]bool{}, map[string]bool{}
		for page := 0; ; page++ {
			list, next, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: cursor, Limit: 5})
			if handoff.CodeOf(err) == handoff.CodeCursorExpired && page > 0 {
				told++
				break
			}
			noError(t, err)
			for i := range list {
				seen[name(&list[i])] = true
			}
			if page == 0 {
				all, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0"})
				noError(t, err)
				for i := range all {
					there[name(&all[i])] = true
				}
			}
			if len(list) == 0 {
				for e := range there {
					if !seen[e] {
						t.Errorf("the reader was not told that %s is gone", e)
						return told
					}
				}
				return told
			}
			cursor = next
			if pages++; pages > 1 && !begun {
				begun = true
				begin()
			}
		}
	}
}

func TestEventsStayWhileSomethingWaitsToBeSentOfThem(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		_, err := f.Hub.SetNotify(bg, hubtest.Operator(), "anna@acme", hub.NotifyInput{Webhook: "https://anna.example/hook"})
		noError(t, err)
		id := f.Send(anna, "frank@acme")
		accept(f, frank, id)
		complete(f, frank, id)
		events := eventsOf(f, id)
		f.Send(frank, "anna@acme")
		f.Clock.Advance(30 * aDay)
		retain(f)
		if got := eventsOf(f, id); len(got) != len(events) {
			t.Fatalf("left are %v of %v", got, events)
		}
		box := f.Post(f.Hub, nil)
		eventually(t, "all is sent", func() bool {
			list, err := f.Hub.Deliveries(bg, hubtest.Operator(), hub.DeliveryQuery{States: []string{"queued", "sending"}})
			return err == nil && len(list) == 0
		})
		for _, n := range box.All() {
			if n.Event == "" {
				t.Errorf("%+v", n)
			}
		}
		retain(f)
		if past, err := f.Hub.History(bg, hubtest.Operator(), id, 0); err != nil || len(past.Events) != 0 {
			t.Errorf("left are %+v %v", past.Events, err)
		}
		list, err := f.Hub.Deliveries(bg, hubtest.Operator(), hub.DeliveryQuery{})
		noError(t, err)
		for i := range list { // none of an ended handoff goes out again
			_, err := f.Hub.Resend(bg, hubtest.Operator(), list[i].ID, false)
			if list[i].HandoffID == id {
				hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
			}
		}
	}, retaining(hub.Retention{Events: 7 * aDay}))
}

func TestNodesThatRemoveAtOnceRemoveEachOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		const many = 40
		_, err := f.Hub.SetNotify(bg, hubtest.Operator(), "anna@acme", hub.NotifyInput{Webhook: "https://anna.example/hook"})
		noError(t, err)
		f.Post(f.Hub, nil)
		var made []string
		for range many {
			id := f.Send(anna, "frank@acme")
			accept(f, frank, id)
			complete(f, frank, id)
			made = append(made, id)
		}
		deliveries := 0
		eventually(t, "all is sent", func() bool {
			list, err := f.Hub.Deliveries(bg, hubtest.Operator(), hub.DeliveryQuery{States: []string{"queued", "sending"}})
			return err == nil && len(list) == 0
		})
		noError(t, f.Store.Read(bg, func(tx *store.Tx) error {
			list, err := tx.Deliveries(nil, "", 1000)
			deliveries = len(list)
			return err
		}))
		f.Clock.Advance(8 * aDay)
		last := f.Send(anna, "frank@acme")
		settled(f)
		before := logLength(f)
		nodes := []*hub.Hub{f.Hub, f.Hub, f.Hub}
		if f.Store.Kind() == "postgres" {
			_, nodes[1] = f.Node(f.HubCfg)
			_, nodes[2] = f.Node(f.HubCfg)
		}
		var all hub.Retained
		results := make(chan hub.Retained)
		for _, h := range nodes {
			h.RetainChunk(7)
		}
		for _, h := range nodes {
			go func() {
				n, err := h.Retain(bg)
				if err != nil {
					t.Error(err)
				}
				results <- n
			}()
		}
		for range nodes {
			n := <-results
			all.Handoffs, all.Deliveries, all.Events = all.Handoffs+n.Handoffs, all.Deliveries+n.Deliveries, all.Events+n.Events
		}
		settled(f)
		left := logLength(f)
		if all.Handoffs != many || all.Deliveries != deliveries || before+many-left != all.Events || all.Events < 3*many {
			t.Errorf("%+v of %d handoffs, %d deliveries, %d events and %d erasures, %d are left", all, many, deliveries, before, many, left)
		}
		for _, id := range made {
			past, err := f.Hub.History(bg, hubtest.Operator(), id, 0)
			noError(t, err)
			if len(past.Events) != 1 || past.Events[0].Type != handoff.EventErased {
				t.Fatalf("left of %s is %+v", id, past.Events)
			}
		}
		if got := eventsOf(f, last); len(got) != 1 {
			t.Errorf("%v", got)
		}
	}, hubtest.WithMail(), retaining(hub.Retention{Handoffs: aDay, Deliveries: 7 * aDay, Events: 7 * aDay}))
}

func logLength(f *hubtest.Fixture) int {
	f.T.Helper()
	n := 0
	noError(f.T, f.Store.Read(bg, func(tx *store.Tx) error {
		list, _, err := tx.Events(store.Beginning, 10_000)
		n = len(list)
		return err
	}))
	return n
}
