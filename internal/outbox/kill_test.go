package outbox_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// killPoint is a step of a send at which the process is killed, and what it leaves.
type killPoint struct {
	name string
	// hold is where the node stands still, and moment where the mail server does.
	hold   string
	moment int
	// left is the state of the delivery; empty where nothing was committed.
	left handoff.DeliveryState
	// arrived: the mail got through before the kill.
	arrived bool
}

const nowhere = -1

func killPoints() []killPoint {
	const queued, sending, sent = handoff.DeliveryQueued, handoff.DeliverySending, handoff.DeliverySent
	return []killPoint{
		{"before the initiate begins", "begins 1", nowhere, "", false},
		{"before the initiate commits", "commits 1", nowhere, "", false},
		{"after the initiate committed", "ends 1", nowhere, queued, false},
		{"before the taking begins", "begins 2", nowhere, queued, false},
		{"before the taking commits", "commits 2", nowhere, queued, false},
		{"after the taking committed", "ends 2", nowhere, sending, false},
		{"when the connection arrives", "", atArrival, sending, false},
		{"after EHLO", "", atEHLO, sending, false},
		{"at MAIL", "", atMail, sending, false},
		{"at RCPT", "", atRcpt, sending, false},
		{"at DATA", "", atData, sending, false},
		{"in the middle of the body", "", inBody, sending, false},
		{"after the final dot", "", atDot, sending, true},
		{"after the answer", "", afterDot, sending, true},
		{"at QUIT", "", atQuit, sending, true},
		{"when the sender knows it", holdWhenAnswered, nowhere, sending, true},
		{"before the report begins", "begins 3", nowhere, sending, true},
		{"before the report commits", "commits 3", nowhere, sending, true},
		{"after the report committed", "ends 3", nowhere, sent, true},
	}
}

func TestAProcessThatIsKilledAtAnyStepOfASendLosesNoIntent(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var killed, twice, once int
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, k := range killPoints() {
				t.Run(k.name, func(t *testing.T) {
					t.Parallel()
					mails := k.run(t, newDesk(t, kind))
					mu.Lock()
					defer mu.Unlock()
					if killed++; mails == 2 {
						twice++
					} else {
						once++
					}
				})
			}
		})
	}
	t.Cleanup(func() {
		t.Logf("%d nodes were killed, and all handoffs told: %d once, %d twice under one Message-ID", killed, once, twice)
	})
}

// run kills a node at the point, and lets another go on. It returns how many mails arrived in all.
func (k killPoint) run(t *testing.T, d *desk) int {
	first := d.starts("first.example", k.hold)
	if k.moment != nowhere {
		d.mail.hold(func(_ string, number, moment int) bool { return number == 1 && moment == k.moment })
	}
	first.says("initiate k")
	if k.moment == nowhere {
		first.hears("at " + k.hold)
	} else {
		hubtest.Eventually(t, func() bool { return d.mail.standing("first.example")+d.mail.standing("") == 1 })
	}
	first.kill()
	d.mail.letGo()
	if n := len(d.mail.all()); n != count(k.arrived) {
		t.Fatalf("%d mails arrived before the kill, want %d", n, count(k.arrived))
	}

	n := d.later()
	list := d.deliveries(n)
	if len(list) != count(k.left != "") {
		t.Fatalf("the kill left %d deliveries: %+v", len(list), list)
	}
	left := k.left
	if len(list) == 1 {
		left = list[0].State
		// A sender that has its answer waits a second for the session's end, which a kill may miss.
		late := left == handoff.DeliverySent && (k.moment == afterDot || k.moment == atQuit)
		if left != k.left && !late {
			t.Fatalf("the kill left a delivery that is %s, want %s", left, k.left)
		}
		k.truthful(t, d, n, list[0].HandoffID)
		// Whoever asks again with the same key gets what was committed, and makes nothing new.
		again, err := n.hub.Initiate(t.Context(), d.anna, toTheShop("k"))
		if err != nil || !again.Replay || again.HandoffID != list[0].HandoffID {
			t.Fatalf("asked again: %+v %v", again, err)
		}
	}
	d.sends(n)
	if len(list) == 0 {
		made, err := n.hub.Initiate(t.Context(), d.anna, toTheShop("k"))
		if err != nil || made.Replay {
			t.Fatalf("asked again: %+v %v", made, err)
		}
	}
	hubtest.Eventually(t, func() bool { return len(d.deliveries(n, "sent")) == 1 })

	end := d.deliveries(n)
	if len(end) != 1 {
		t.Fatalf("%d deliveries of one handoff: %+v", len(end), end)
	}
	k.truthful(t, d, n, end[0].HandoffID)
	attempts := 1 + count(left == handoff.DeliverySending)
	if unknown := left == handoff.DeliverySending; end[0].Attempts != attempts || end[0].Unknown != unknown {
		t.Errorf("after %d attempts, outcome unknown %v; want %d, %v", end[0].Attempts, end[0].Unknown, attempts, unknown)
	}
	mails := d.mail.all()
	if want := 1 + count(k.arrived && left != handoff.DeliverySent); len(mails) != want {
		t.Errorf("%d mails arrived, want %d", len(mails), want)
	}
	for _, m := range mails {
		if m.id != end[0].ID || personLink(t, m) != personLink(t, mails[0]) {
			t.Errorf("a mail has the Message-ID %s of delivery %s, and the link %s", m.id, end[0].ID, personLink(t, m))
		}
	}
	return len(mails)
}

// truthful checks that the status does not say of a mail that arrived that it did not go out.
func (k killPoint) truthful(t *testing.T, d *desk, n *node, id string) {
	t.Helper()
	s, err := n.hub.DeskStatus(t.Context(), d.anna, hub.StatusInput{HandoffID: id})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Deliveries {
		if why, certain := s.Deliveries[i].Refusal(); certain {
			t.Errorf("the status says that it was not delivered: %q", why)
		}
	}
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// personLink is the link in a mail.
func personLink(t *testing.T, m arrived) string {
	t.Helper()
	text := strings.ReplaceAll(m.text, "=\r\n", "") // quoted-printable breaks lines
	_, rest, ok := strings.Cut(text, "https://hub.example/h/")
	if !ok {
		t.Fatalf("no link in the mail:\n%s", text)
	}
	return strings.FieldsFunc(rest, func(r rune) bool { return !strings.ContainsRune("_-.", r) && (r < '0' || r > 'z') })[0]
}

func TestWhatWasAcknowledgedAsOnItsWayGoesOutAfterAKill(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, kind)
			d.mail.refuses(451) // for now
			first := d.starts("first.example", "")
			first.says("initiate k")
			first.hears("acknowledged k")
			first.kill()
			d.mail.refuses(0)
			n := d.later()
			d.sends(n)
			hubtest.Eventually(t, func() bool { return len(d.deliveries(n, "sent")) == 1 })
			sent := d.deliveries(n)[0]
			if sent.HandoffID != first.acknowledged["k"] || sent.Unknown || sent.Attempts != 2 || len(d.mail.all()) != 1 {
				t.Errorf("%+v, %d mails", sent, len(d.mail.all()))
			}
		})
	}
}

func TestAMailThatArrivedBeforeAKillIsNeverCalledUndeliveredThoughTheNextAttemptIsRefused(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		for _, arrives := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/%v", kind, arrives), func(t *testing.T) {
				t.Parallel()
				d := newDesk(t, kind)
				hold, state := "begins 3", handoff.DeliveryDead
				if !arrives {
					hold, state = "commits 2", handoff.DeliveryRefused
				}
				first := d.starts("first.example", hold)
				first.says("initiate k")
				first.hears("at " + hold)
				first.kill()
				d.mail.refuses(550)
				n := d.later()
				d.sends(n)
				hubtest.Eventually(t, func() bool { return len(d.deliveries(n, "dead", "refused")) == 1 })
				got := d.deliveries(n)[0]
				_, certain := got.Refusal()
				if got.State != state || got.Unknown != arrives || certain == arrives || len(d.mail.all()) != count(arrives) {
					t.Errorf("%+v, certainly not delivered: %v, with %d mails there", got, certain, len(d.mail.all()))
				}
				if reserved := got.SpendDay != ""; reserved != arrives {
					t.Errorf("its part of the day's cap is kept: %v", reserved)
				}
			})
		}
	}
}
