package handoff

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The machine plays random verbs by random actors on one handoff and judges each against the
// words of the domain document, which are written down here a second time: who may do what
// (the want… functions), what may follow what (moves), and what holds in every state
// (holdsAlways). It knows the past by its own records, never by what the handoff remembers.

const (
	creator   = "creator"
	recipient = "recipient"
	coder     = "coder"    // offers "code", as creator and recipient do
	both      = "both"     // offers "code" and "review"
	reviewer  = "reviewer" // offers "review"
	verifier  = "verifier" // named by verify_by
	stranger  = "stranger"
	operator  = "operator"
)

func cast() map[string]*Agent {
	offers := map[string][]string{coder: {"code"}, both: {"code", "review"}, reviewer: {"review"}, creator: {"code"}, recipient: {"code"}}
	agents := map[string]*Agent{}
	for _, id := range []string{creator, recipient, coder, both, reviewer, verifier, stranger} {
		agents[id] = &Agent{ID: id, Handle: id + "@acme", Capabilities: offers[id]}
	}
	return agents
}

func actorOf(id string) Actor {
	if id == operator {
		return Operator()
	}
	return Actor{Kind: KindAgent, ID: id, Handle: id + "@acme"}
}

type machine struct {
	h      Handoff
	now    time.Time
	lim    Limits
	agents map[string]*Agent

	epochs    int             // claims, reassignments and failed verdicts so far
	held      map[string]bool // whoever held it at any time
	delivered string          // who delivered the work that waits or was passed
	length    time.Duration   // of the lease as it was granted last
	waitsFrom time.Time       // when the wait for the fallback pool began; zero while it is blocked
	opened    bool            // the pool was open when the handoff was last OPEN
}

// fallbackAfter is how long the fallback pools of the machine wait.
const fallbackAfter = 10 * time.Minute

var targets = map[string]string{
	"team": "", "direct": `{"strategy":"direct","agent_id":"recipient@acme"}`,
	"capability": `{"strategy":"capability","capability":"code"}`, "broadcast": `{"strategy":"broadcast"}`,
	"self":     `{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"creator@acme"},{"strategy":"capability","capability":"code"}]}`,
	"fallback": `{"strategy":"direct_with_fallback","agent_id":"recipient","fallback_after_seconds":600,"fallback":{"strategy":"capability","capability":"code"}}`,
	// Its recipient has not been resolved yet.
	"awaited": `{"strategy":"direct_with_fallback","agent_id":"Recipient@Acme","fallback_after_seconds":600,"fallback":{"strategy":"capability","capability":"code"}}`,
}

func newMachine(t *rapid.T, kind string) *machine {
	m := &machine{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), lim: DefaultLimits(), agents: cast(), held: map[string]bool{}}
	m.lim.Messages = 6
	m.h = Handoff{ID: "h", Door: DoorPool, State: Open, Creator: creator, Visibility: Private, Messages: 1, Intent: Inform, CreatedAt: m.now, UpdatedAt: m.now}
	if kind == "team" {
		m.h.Door = DoorTeam
	} else {
		target, err := ParseTarget(json.RawMessage(targets[kind]), m.lim)
		if err != nil {
			t.Fatal(err)
		}
		m.h.Target = target
	}
	if kind == "team" || kind == "direct" || kind == "fallback" {
		m.h.Recipient = recipient
	}
	if rapid.Bool().Draw(t, "deadline") {
		m.h.ExpiresAt = m.now.Add(rapid.SampledFrom([]time.Duration{time.Minute, time.Hour}).Draw(t, "expires in"))
	}
	if rapid.Bool().Draw(t, "proposes an action") {
		m.h.Intent = ProposeAction
	}
	if rapid.Bool().Draw(t, "criteria") {
		m.h.Criteria = []string{"it works"}
		m.h.VerifyBy = rapid.SampledFrom([]*VerifyBy{
			{Kind: VerifyByCreator}, {Kind: VerifyByAgent, AgentID: verifier}, {Kind: VerifyByAgent, AgentID: recipient}, {Kind: VerifyByCapability, Capability: "review"},
		}).Draw(t, "verify by")
	}
	m.h.DepsPending = rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "dependencies")
	if m.h.Begin(m.now); m.h.DepsPending == 0 {
		m.waitsFrom = m.now
	}
	return m
}

var everyone = []string{creator, recipient, coder, both, reviewer, verifier, stranger, operator}

// actor is one of those whom the rule is likely to let, mostly, else anybody.
func (m *machine) actor(t *rapid.T, likely func(id string) bool) string {
	some := slices.DeleteFunc(slices.Clone(everyone), func(id string) bool { return !likely(id) })
	if len(some) > 0 && rapid.IntRange(0, 3).Draw(t, "likely") > 0 {
		return rapid.SampledFrom(some).Draw(t, "actor")
	}
	return rapid.SampledFrom(everyone).Draw(t, "actor")
}

func (m *machine) holds(id string) bool  { return id == m.h.Holder }
func (m *machine) claims(id string) bool { return m.may(id, &m.h) }

// epoch is what the actor names: nothing, the current one, or another.
func (m *machine) epoch(t *rapid.T) *int {
	return rapid.SampledFrom([]*int{nil, new(m.h.Epoch), new(m.h.Epoch), new(m.h.Epoch), new(m.h.Epoch), new(m.h.Epoch - 1), new(m.h.Epoch + 1)}).Draw(t, "epoch")
}

func (m *machine) agent(id string) *Agent { return m.agents[id] }

// copyOf shares nothing with h that a verb could change in place.
func copyOf(h *Handoff) Handoff {
	c := *h
	c.PastHolders = slices.Clone(h.PastHolders)
	c.Criteria = slices.Clone(h.Criteria)
	if h.Verdict != nil {
		c.Verdict = new(*h.Verdict)
	}
	if h.VerifyBy != nil {
		c.VerifyBy = new(*h.VerifyBy)
	}
	return c
}

func diffOf(a, b *Handoff) string {
	if reflect.DeepEqual(a, b) {
		return "" // cmp is slow
	}
	return cmp.Diff(*a, *b, cmp.Comparer(func(a, b *Target) bool { return a == b }))
}

// settle writes down what the clock did, as every verb of the hub does first, and holds it
// against what reading alone says.
func (m *machine) settle(t *rapid.T) {
	read := m.h.At(m.now)
	steps := []func(time.Time) (EventType, bool){m.h.Lapse, m.h.Expire}
	if rapid.Bool().Draw(t, "the fallback is written down") {
		steps = append(steps, m.h.OpenFallback)
	}
	for _, step := range steps {
		before := copyOf(&m.h)
		event, did := step(m.now)
		m.judge(t, "clock", System().ID, &before, event, nil)
		if did == (diffOf(&before, &m.h) == "") {
			t.Fatalf("the clock reports %v, and the handoff changed so: %s", did, diffOf(&before, &m.h))
		}
	}
	if m.h.State == Open {
		m.opened = m.poolOpen()
	}
	if len(steps) == 3 && read.State == Open && read.Target.HasFallback() && !read.RecipientDeclined {
		read.FallbackOpened = m.poolOpen()
	}
	read.UpdatedAt = m.h.UpdatedAt // when it was written down
	if d := diffOf(&read, &m.h); d != "" {
		t.Fatalf("read and written down differ: %s", d)
	}
}

// play runs one verb, holds its outcome against want ("" = it succeeds) and judges what it did.
func (m *machine) play(t *rapid.T, verb, who string, want func(*Handoff) Code, do func() (EventType, error)) (EventType, bool) {
	m.settle(t)
	before := copyOf(&m.h)
	expected := want(&before)
	event, err := do()
	if got := CodeOf(err); got != expected {
		t.Fatalf("%s by %s on %s gave %q (%v), want %q\n%+v", verb, who, before.State, got, err, expected, before)
	}
	if err != nil {
		if d := diffOf(&before, &m.h); d != "" || event != "" {
			t.Fatalf("%s by %s was refused with %v and changed something (event %q): %s", verb, who, err, event, d)
		}
		return "", false
	}
	off := m.agent(who) != nil && m.agent(who).Disabled // then it does not get here
	if who != System().ID && !off && !before.VisibleTo(actorOf(who), m.agent(who), m.now) {
		t.Fatalf("%s by %s succeeded on a handoff that it may not see", verb, who)
	}
	m.judge(t, verb, who, &before, event, err)
	return event, true
}

// moves are the transitions of the state diagram: from, to and what reports them.
var moves = map[[2]State][]EventType{
	{Open, Claimed}:        {EventClaimed, EventReassigned},
	{Claimed, Claimed}:     {Repeated, EventExtended, EventReassigned, EventMessageCreated, EventInputRequired, EventDraftCreated, EventUnblocked, EventDependencyFailed},
	{Claimed, Open}:        {EventLeaseLapsed, EventReleased},
	{Claimed, Completed}:   {EventCompleted},
	{Claimed, Verifying}:   {EventVerificationRequested},
	{Claimed, Rejected}:    {EventRejected},
	{Claimed, Cancelled}:   {EventCancelled},
	{Verifying, Verifying}: {Repeated, EventMessageCreated, EventUnblocked, EventDependencyFailed},
	{Verifying, Completed}: {EventCompleted},
	{Verifying, Claimed}:   {EventVerificationFailed, EventReassigned},
	{Verifying, Cancelled}: {EventCancelled},
	{Open, Open}:           {Repeated, EventFallbackOpened, EventMessageCreated, EventUnblocked, EventDependencyFailed},
	{Open, Rejected}:       {EventRejected},
	{Open, Cancelled}:      {EventCancelled},
	{Open, Expired}:        {EventExpired},
}

func (m *machine) judge(t *rapid.T, verb, who string, before *Handoff, event EventType, err error) {
	after := &m.h
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s by %s (event %q, %v): %s\nbefore %+v\nafter  %+v", verb, who, event, err, fmt.Sprintf(format, args...), *before, *after)
	}
	if before.State.Terminal() {
		if d := diffOf(before, after); d != "" {
			fail("what had ended changed: %s", d)
		}
		return
	}
	if !slices.Contains(moves[[2]State{before.State, after.State}], event) {
		fail("no such move from %s to %s", before.State, after.State)
	}
	switch event {
	case EventClaimed, EventReassigned, EventVerificationFailed:
		m.epochs++
	}
	if after.Epoch != m.epochs {
		fail("the epoch is %d, want %d", after.Epoch, m.epochs)
	}
	if event == Repeated { // only a claim's lease may be renewed by a repetition
		same := copyOf(after)
		same.LeaseExpiresAt, same.LeaseLength = before.LeaseExpiresAt, before.LeaseLength
		same.DepsPending = before.DepsPending
		if d := diffOf(before, &same); d != "" {
			fail("a repetition changed something: %s", d)
		}
	}
	if after.Holder != before.Holder && event != EventClaimed && event != EventReassigned && after.Holder != "" {
		fail("the holder changed")
	}
	switch event {
	case EventClaimed:
		if before.Blocked() || after.Holder != who {
			fail("claimed wrongly")
		}
	case EventVerificationRequested:
		m.delivered = who
	case EventVerificationFailed:
		if after.LeaseLength != m.length || (m.length > 0) != after.LeaseExpiresAt.Equal(m.now.Add(m.length)) {
			fail("a fail grants the lease anew with its length of %v", m.length)
		}
	case EventReassigned:
		if after.LeaseLength != 0 {
			fail("a reassigned claim has no lease")
		}
	case EventFallbackOpened:
		if !before.Target.HasFallback() || before.RecipientDeclined || !after.RecipientDeclined && !m.poolOpen() {
			fail("there was no fallback to open")
		}
	}
	m.keepsWaiting(before, event)
	if verb == "verify" && (who == m.delivered || after.Verdict.VerifiedBy != who) {
		fail("the one who delivered verified")
	}
	if after.State == Completed && len(after.Criteria) > 0 && (before.State != Verifying || after.Verdict == nil || !after.Verdict.Pass) {
		fail("completed without the pass that its criteria ask for")
	}
	if after.Holder != "" {
		m.held[after.Holder] = true
		m.length = after.LeaseLength
	}
	m.holdsAlways(fail)
}

// keepsWaiting notes when the wait for the fallback pool begins: at the creation or when it was
// unblocked, and anew whenever the handoff is open again; after a lapse as of the lease's end.
func (m *machine) keepsWaiting(before *Handoff, event EventType) {
	switch {
	case m.h.DepsPending > 0 || m.h.DepsFailed > 0:
	case event == EventReleased, event == EventUnblocked:
		m.waitsFrom = m.now
	case event == EventLeaseLapsed:
		m.waitsFrom = before.LeaseExpiresAt
	}
}

// poolOpen reports whether the fallback pool may claim. It does not open while somebody holds it.
func (m *machine) poolOpen() bool {
	if m.h.State != Open {
		return m.opened
	}
	return m.h.RecipientDeclined || !m.waitsFrom.IsZero() && !m.now.Before(m.waitsFrom.Add(fallbackAfter))
}

func (m *machine) holdsAlways(fail func(string, ...any)) {
	h := &m.h
	working := h.State == Claimed || h.State == Verifying
	switch {
	case (h.State == Open || h.State == Expired) && (h.Holder != "" || h.LeaseLength != 0):
		fail("held while %s", h.State)
	case (working || h.State == Completed) && h.Holder == "":
		fail("nobody holds it while %s", h.State)
	case h.State != Claimed && (!h.LeaseExpiresAt.IsZero() || h.WaitsForReply):
		fail("a lease or a question goes on while %s", h.State)
	case h.State == Claimed && h.LeaseExpiresAt.IsZero() != (h.LeaseLength == 0):
		fail("the lease and its length disagree")
	case h.State.Terminal() != (h.EndedBy != ""), (h.State == Completed) == h.CompletedAt.IsZero():
		fail("what tells its end disagrees with %s", h.State)
	case (h.Epoch > 0) == h.AcceptedAt.IsZero():
		fail("accepted_at disagrees with the epoch")
	case len(h.Criteria) == 0 && (h.State == Verifying || h.Verdict != nil):
		fail("a verdict without criteria")
	case h.Target.HasFallback() && !h.State.Terminal() && h.FallbackOpen(m.now) != m.poolOpen():
		fail("the wait for the fallback began at %v, and it is open: %v", m.waitsFrom, !m.poolOpen())
	case h.RecipientDeclined && h.Holder != recipient && !m.judges(recipient, h) && h.ReadableBy(actorOf(recipient), m.agents[recipient], m.now):
		fail("who declined it still reads it")
	}
	for id := range m.held {
		if id != h.Holder && !slices.Contains(h.PastHolders, id) {
			fail("%s held it and is forgotten", id)
		}
		if !h.VisibleTo(actorOf(id), m.agents[id], m.now) {
			fail("%s held it and cannot be told so", id)
		}
	}
	if h.VisibleTo(actorOf(stranger), m.agents[stranger], m.now) && h.Holder != stranger && !m.held[stranger] &&
		(h.Target == nil || h.Target.Strategy != StrategyBroadcast || h.At(m.now).State != Open) {
		fail("a stranger sees it")
	}
	m.readsTheSame(fail)
}

// readsTheSame: reading at a time changes nothing, and reading what was read before gives the
// same as reading at once.
func (m *machine) readsTheSame(fail func(string, ...any)) {
	before := copyOf(&m.h)
	for _, later := range []time.Duration{0, time.Minute, 3 * time.Hour} {
		at := m.now.Add(later)
		read := m.h.At(at)
		again, early := read.At(at), m.h.At(m.now)
		early = early.At(at)
		if d := diffOf(&read, &again) + diffOf(&read, &early) + diffOf(&before, &m.h); d != "" {
			fail("reading at +%v: %s", later, d)
		}
		if read.Epoch != m.h.Epoch || read.LeaseLapsed(at) || read.PastDeadline(at) {
			fail("read at +%v it is %+v", later, read)
		}
	}
}
