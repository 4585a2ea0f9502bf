package outbox_test

import (
	"fmt"
	"testing"

	"handclasp/internal/hubtest"
)

func TestOfTwoNodesThatSendOneIsKilledAndNoIntentIsLost(t *testing.T) {
	t.Parallel()
	const (
		each   = 48 // handoffs that either node makes
		atOnce = 16 // sends of a node under way (outbox)
		freely = 12 // mails before the server begins to hold sessions
	)
	d := newDesk(t, "postgres")
	const one, two = "one.example", "two.example"
	nodes := map[string]*process{one: d.starts(one, ""), two: d.starts(two, "")}
	n := d.later()
	sessions, unanswered := 0, 0 // of the first node
	d.mail.hold(func(helo string, _, moment int) bool {
		switch {
		case len(d.mail.mail) < freely: // the server asks under its lock
			return false
		case helo == one && moment == atData: // every other mail gets as far as its final dot
			sessions++
			return sessions%2 == 0
		case helo == one && moment == atDot:
			unanswered++
			return true
		}
		return helo == two && moment == atData
	})
	for i := range each {
		nodes[one].says(fmt.Sprint("initiate one-", i))
		nodes[two].says(fmt.Sprint("initiate two-", i))
	}
	hubtest.Eventually(t, func() bool {
		return d.mail.standing(one) == atOnce && d.mail.standing(two) == atOnce && len(d.deliveries(n)) == 2*each
	})
	before := len(d.mail.all())
	if unanswered == 0 || unanswered == atOnce {
		t.Errorf("%d of %d held mails had arrived", unanswered, atOnce)
	}
	nodes[one].kill()
	d.mail.letGo()
	// The other sends all but those that the dead one had taken.
	hubtest.Eventually(t, func() bool {
		return len(d.deliveries(n, "sent")) == 2*each-atOnce && len(d.deliveries(n, "sending")) == atOnce
	})
	nodes[two].says("later 4m")
	nodes[two].says("initiate last") // it looks for due ones at once
	const all = 2*each + 1
	hubtest.Eventually(t, func() bool { return len(d.deliveries(n, "sent")) == all })
	nodes[two].end()
	for range nodes[two].lines {
	}

	arrivals, link := map[string]int{}, map[string]string{}
	duplicates := 0
	for _, m := range d.mail.all() {
		if arrivals[m.id]++; arrivals[m.id] > 1 {
			duplicates++
			if personLink(t, m) != link[m.id] {
				t.Errorf("the mails of %s have different links", m.id)
			}
		}
		link[m.id] = personLink(t, m)
	}
	handoffs, unknown := map[string]bool{}, 0
	list := d.deliveries(n)
	for i := range list {
		handoffs[list[i].HandoffID] = true
		if arrivals[list[i].ID] == 0 {
			t.Errorf("no mail of %+v arrived", list[i])
		}
		if arrivals[list[i].ID] > 1 && !list[i].Unknown {
			t.Errorf("two mails of %+v arrived, and it does not say that an outcome was unknown", list[i])
		}
		unknown += count(list[i].Unknown)
	}
	if len(list) != all || len(handoffs) != all || len(arrivals) != all {
		t.Errorf("%d deliveries of %d handoffs, and mails of %d; want %d", len(list), len(handoffs), len(arrivals), all)
	}
	if unknown != atOnce || duplicates != unanswered {
		t.Errorf("%d outcomes unknown and %d mails twice, want %d and %d", unknown, duplicates, atOnce, unanswered)
	}
	for key, id := range nodes[one].acknowledged {
		if !handoffs[id] {
			t.Errorf("%s was acknowledged as %s, and there is none", key, id)
		}
	}
	t.Logf("%d handoffs, %d mails when a node was killed with %d under way, %d acknowledged by it; all arrived, %d twice", all, before, atOnce, len(nodes[one].acknowledged), duplicates)
}
