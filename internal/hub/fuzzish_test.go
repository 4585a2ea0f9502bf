package hub_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// The model keeps in memory who holds what and who has not seen what. Random verbs by four
// agents are played against it and against the hub; after each step both must agree.

type notice struct {
	event    handoff.EventType
	sequence int // of the message it carries, 0 = none
}

type modelHandoff struct {
	id                 string
	creator, recipient int
	state              handoff.State
	epoch              int
	held               bool // by the recipient, now or when it ended
	lost               bool // the recipient held it once and lost it
	lease, ends        int  // seconds: length, and when it is over; 0 = none
	deadline           int
	waits              bool
	messages, events   int
	result, reason     string
	endedBy            int // -1 is the hub
	unseen             [4][]notice
}

type model struct {
	t        *testing.T
	f        *hubtest.Fixture
	rnd      *rand.Rand
	calls    []hub.Call
	now      int
	handoffs []*modelHandoff
	blocked  [4][4]bool
	keys     map[string]effect // by actor, verb and key
	retries  []func()          // the last calls that had a key
}

type effect struct {
	content string
	of      *modelHandoff
	ref     string // the message
	epoch   int
}

const hubItself = -1

func (m *model) pick(n int) int { return m.rnd.IntN(n) }

func (m *model) any() *modelHandoff {
	if len(m.handoffs) == 0 {
		return nil
	}
	return m.handoffs[max(0, len(m.handoffs)-1-m.pick(min(6, len(m.handoffs))))] // a late one: much happens to few
}

// now is h as the clock makes it, without writing it down.
func (m *model) at(h *modelHandoff) modelHandoff {
	c := *h
	for i := range c.unseen {
		c.unseen[i] = slices.Clone(h.unseen[i])
	}
	c.settle(m.now)
	return c
}

// settle writes down what the clock did, as every verb that succeeds does first.
func (h *modelHandoff) settle(now int) {
	if h.state == handoff.Claimed && h.ends > 0 && now >= h.ends {
		h.state, h.held, h.lost, h.lease, h.ends, h.waits = handoff.Open, false, true, 0, 0, false
		h.tell(hubItself, handoff.EventLeaseLapsed, 0)
	}
	if h.state == handoff.Open && h.deadline > 0 && now >= h.deadline {
		h.end(handoff.Expired, hubItself, "its deadline passed before anyone took it")
	}
}

func (h *modelHandoff) tell(by int, event handoff.EventType, sequence int) {
	h.events++
	for _, i := range []int{h.creator, h.recipient} {
		if i != by {
			h.unseen[i] = append(h.unseen[i], notice{event, sequence})
		}
	}
}

func (h *modelHandoff) end(s handoff.State, by int, reason string) {
	h.state, h.endedBy, h.reason, h.ends, h.waits = s, by, reason, 0, false
	h.tell(by, s.EventOf(), 0)
}

func (h *modelHandoff) see(who, after, limit int) {
	h.unseen[who] = slices.DeleteFunc(h.unseen[who], func(n notice) bool {
		return n.sequence == 0 || n.sequence > after && n.sequence <= after+limit
	})
}

func (h *modelHandoff) takesPart(who int) bool { return who == h.creator || who == h.recipient }

// asHolder is the refusal of a holder's verb, "" for none.
func (h *modelHandoff) asHolder(who int, epoch *int) handoff.Code {
	holds := who == h.recipient && h.held
	switch {
	case holds && h.state.Terminal():
		return handoff.CodeThreadTerminal
	case !holds && who == h.recipient && h.lost:
		return handoff.CodeLeaseLost
	case !holds && who == h.recipient && h.state == handoff.Open:
		return handoff.CodeInvalidTransition
	case !holds && who == h.recipient:
		return handoff.CodeThreadTerminal
	case !holds:
		return handoff.CodeNotOwner
	case epoch == nil && h.epoch > 1, epoch != nil && *epoch != h.epoch:
		return handoff.CodeStaleClaimEpoch
	}
	return ""
}

// want fails unless err is what the model expects, and tells whether the verb went through.
func (m *model) want(what string, code handoff.Code, err error) bool {
	m.t.Helper()
	if got := handoff.CodeOf(err); got != code {
		m.t.Fatalf("%s: got %q (%v), want %q", what, got, err, code)
	}
	return code == ""
}

// keyed looks a key up: what was done under it, and whether the content differs.
func (m *model) keyed(who int, verb, key, content string) (e effect, found bool, refused handoff.Code) {
	e, found = m.keys[fmt.Sprint(who, verb, key)]
	if key == "" {
		return effect{}, false, ""
	}
	if found && e.content != content {
		return e, true, handoff.CodeDuplicateKey
	}
	return e, found, ""
}

func (m *model) keep(who int, verb, key string, e effect) {
	if key != "" {
		m.keys[fmt.Sprint(who, verb, key)] = e
	}
}

// key is none, a new one, or one of few, so that they are used again.
func (m *model) key() string {
	return []string{"", "", "k", "l", fmt.Sprint("new ", m.rnd.Uint64())}[m.pick(5)]
}

func (m *model) epoch(h *modelHandoff) *int {
	return []*int{nil, new(h.epoch), new(h.epoch), new(max(0, h.epoch-1))}[m.pick(4)]
}

func (m *model) step() {
	h, who := m.any(), m.pick(4)
	if h != nil && m.pick(3) > 0 { // mostly somebody who takes part
		who = []int{h.creator, h.recipient, h.recipient}[m.pick(3)]
	}
	var call func()
	key := m.key()
	switch n := m.pick(42); {
	case n < 6 || h == nil:
		to, deadline := m.pick(4), []int{0, 0, 60, 600}[m.pick(4)]
		call = func() { m.create(who, to, deadline, key) }
	case n < 14:
		lease := []int{0, 10, 60}[m.pick(3)]
		call = func() { m.accept(h, who, lease, key) }
	case n < 22:
		asks := m.pick(4) == 0
		call = func() { m.send(h, who, asks, key) }
	case n < 25:
		m.complete(h, who)
	case n < 27:
		m.decline(h, who)
	case n < 29:
		m.cancel(h, who)
	case n < 35:
		m.view(h, who)
	case n < 37:
		other := (who + 1 + m.pick(3)) % 4
		m.blocked[who][other] = !m.blocked[who][other]
		block(m.f, m.calls[who], m.calls[other].Actor.Handle, m.blocked[who][other])
	case n < 39:
		seconds := []int{1, 10, 30, 120}[m.pick(4)]
		m.f.Clock.Advance(time.Duration(seconds) * time.Second)
		m.now += seconds
	case n < 41: // a retry, whatever happened meanwhile
		if len(m.retries) > 0 {
			m.retries[m.pick(len(m.retries))]()
		}
	default:
		_, err := m.f.Hub.Sweep(bg)
		noError(m.t, err)
		for _, h := range m.handoffs {
			h.settle(m.now)
		}
	}
	if call == nil {
		return
	}
	call()
	if key != "" {
		m.retries = append(m.retries[max(0, len(m.retries)-5):], call)
	}
}

// agrees holds the hub against the model: one handoff, and every inbox.
func (m *model) agrees() {
	m.t.Helper()
	if h := m.any(); h != nil {
		m.sameHandoff(h)
	}
	who := m.pick(4)
	got := inbox(m.f, m.calls[who], hub.InboxInput{Limit: 200})
	total, at := 0, 0
	for i := len(m.handoffs) - 1; i >= 0; i-- {
		h := m.handoffs[i]
		unread := 0
		var news []handoff.EventType
		for _, n := range h.unseen[who] {
			if n.sequence > 0 {
				unread++
			}
			if !slices.Contains(news, n.event) {
				news = append(news, n.event)
			}
		}
		total += unread
		if is := m.at(h); len(h.unseen[who]) == 0 && (who != h.recipient || is.state.Terminal()) {
			continue
		}
		if at >= len(got.Items) || got.Items[at].Handoff.ID != h.id || got.Items[at].Unread != unread || !slices.Equal(got.Items[at].News, news) {
			m.t.Fatalf("the inbox of %d at %d: %+v, want %s with %d unread and %v", who, at, got.Items[min(at, len(got.Items)):], h.id, unread, news)
		}
		at++
	}
	if at != len(got.Items) || total != got.UnreadTotal {
		m.t.Fatalf("the inbox of %d has %d items and %d unread, want %d and %d", who, len(got.Items), got.UnreadTotal, at, total)
	}
}

func (m *model) sameHandoff(h *modelHandoff) {
	m.t.Helper()
	is, got := m.at(h), look(m.f, h.id)
	holder := ""
	if is.held {
		holder = m.calls[is.recipient].Actor.ID
	}
	row := got.Handoff
	if row.State != is.state || row.Epoch != is.epoch || row.Messages != is.messages || row.WaitsForReply != is.waits || row.EventSeq != h.events ||
		row.EndedReason != is.reason || row.ResultSummary != is.result || row.Holder != holder {
		m.t.Fatalf("it is %+v\nand should be %+v (events %d)", row, is, h.events)
	}
	for i := range got.Messages {
		if got.Messages[i].SequenceNo != i+1 {
			m.t.Fatalf("message %d stands at %d", got.Messages[i].SequenceNo, i+1)
		}
	}
}

func TestTheHubAgreesWithAModelOfWhoHoldsWhatAndWhatIsUnread(t *testing.T) {
	t.Parallel()
	for _, seed := range []uint64{1, 2, uint64(time.Now().UnixNano())} {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
				m := &model{t: t, f: f, rnd: rand.New(rand.NewPCG(seed, 7)), keys: map[string]effect{}}
				for _, handle := range []string{"anna@acme", "bob@acme", "cid@acme", "dora@acme"} {
					m.calls = append(m.calls, f.Agent(handle))
				}
				for range 400 {
					m.step()
					m.agrees()
				}
				for _, h := range m.handoffs {
					m.sameHandoff(h)
				}
				m.log()
			})
		})
	}
}

// log checks that the events of every handoff are numbered densely.
func (m *model) log() {
	for _, h := range m.handoffs {
		if got := len(eventsOf(m.f, h.id)); got != h.events {
			m.t.Fatalf("%d events of %s, want %d", got, h.id, h.events)
		}
	}
}
