package hub_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// Races. Calls meet inside their transactions (hubtest.Crossing), each from a hub of its own, or those
// that try for one handoff would wait for each other before; on PostgreSQL from two nodes. After each
// round the rows, the index of what is offered, the counts of dependencies and the log must fit each other.

// raceRounds is how often a race is run on one database: 200 times on both together, and a crowd
// less often where it costs more. HANDCLASP_RACES is another number for each.
func raceRounds(t *testing.T, kind string, workers int) int {
	text := os.Getenv("HANDCLASP_RACES")
	switch {
	case text == "" && workers == 0:
		return map[string]int{"sqlite": 120, "postgres": 80}[kind]
	case text == "":
		return map[string]int{"sqlite": 150, "postgres": 50}[kind]
	}
	n, err := strconv.Atoi(text)
	noError(t, err)
	return n
}

// stage is what one round of a race plays on: a workspace of its own.
type stage struct {
	*hubtest.Fixture
	t           *testing.T
	cross       *hubtest.Crossing
	hubs        []*hub.Hub // at least two
	round, kind int
	root        string
	made        []string
	// anna creates, bob and cid can claim, and the others too.
	anna, bob, cid hub.Call
	able           []hub.Call
}

// races runs rounds of one race on both databases. There are workers besides bob and cid.
func races(t *testing.T, workers int, round func(s *stage)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := &stage{t: t, cross: hubtest.NewCrossing()}
			s.Fixture = hubtest.New(t, kind, s.cross.Watch())
			stores := []*store.Store{s.Store}
			if kind == "postgres" {
				other, _ := s.Node(s.HubCfg)
				stores = append(stores, other)
			}
			for i := range workers + 2 {
				cfg := s.HubCfg
				cfg.Store = stores[i%len(stores)]
				s.hubs = append(s.hubs, hub.New(cfg))
			}
			s.anna, s.bob, s.cid = s.Agent("anna@acme"), able(s.Fixture, "bob@acme"), able(s.Fixture, "cid@acme")
			s.able = []hub.Call{s.bob, s.cid}
			for i := range workers {
				s.able = append(s.able, able(s.Fixture, fmt.Sprintf("w%d@acme", i)))
			}
			var all []string
			rounds := raceRounds(t, kind, workers)
			for s.round = 0; s.round < rounds && !t.Failed(); s.round++ {
				s.root, s.made = fmt.Sprintf("/srv/r%d", s.round), nil
				round(s)
				s.wantSound()
				all = append(all, s.made...)
			}
			s.wantNoOfferBesides(all)
		})
	}
}

func (s *stage) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("round %d: "+format, append([]any{s.round}, args...)...)
}

// offer makes a handoff that those with the capability can claim.
func (s *stage) offer(in hub.OpenInput) string {
	s.t.Helper()
	id, err := s.offerBy(s.anna, in)(s.Hub)
	noError(s.t, err)
	return id.Handoff.ID
}

func (s *stage) offerBy(call hub.Call, in hub.OpenInput) verb {
	in.ProjectRoot, in.From = s.root, call.Actor.Handle
	if in.Visibility == "" {
		in.Visibility = "public"
	}
	if in.Target == nil {
		in.Target = json.RawMessage(codeTarget)
	}
	return func(h *hub.Hub) (*hub.Work, error) {
		out, err := h.Open(bg, call, in)
		if err != nil {
			return nil, err
		}
		s.made = append(s.made, out.HandoffID) // one at a time
		return &hub.Work{Handoff: handoff.Handoff{ID: out.HandoffID}}, nil
	}
}

// criteria are what makes completed work wait for a verdict.
var criteria = []string{"it is green"}

// delivered makes a handoff that bob holds at epoch 1 and has delivered.
func (s *stage) delivered() string {
	s.t.Helper()
	id := s.offer(hub.OpenInput{Criteria: criteria})
	s.must(s.claim(s.bob, id))
	s.must(s.complete(s.bob, id, 1))
	return id
}

// verb is a call that a stage can play on any hub. What it gives may be nil.
type verb func(h *hub.Hub) (*hub.Work, error)

type outcome struct {
	work *hub.Work
	err  error
}

// code is why it was refused; empty when it was not.
func (o outcome) code() handoff.Code { return handoff.CodeOf(o.err) }

func one(w hub.Work, err error) (*hub.Work, error) { return &w, err }

func (s *stage) claimFor(call hub.Call, id string, lease int64) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		out, err := h.Claim(bg, call, hub.ClaimInput{ProjectRoot: s.root, AgentID: call.Actor.Handle, ThreadID: id, Lease: lease})
		return out.Work, err
	}
}

func (s *stage) claim(call hub.Call, id string) verb { return s.claimFor(call, id, 0) }
func (s *stage) next(call hub.Call) verb             { return s.claim(call, "") }

// hold names the handoff, and the epoch unless it is 0.
func (s *stage) hold(call hub.Call, id string, epoch int) hub.HoldInput {
	in := hub.HoldInput{ProjectRoot: s.root, AgentID: call.Actor.Handle, ThreadID: id}
	if epoch > 0 {
		in.ClaimEpoch = &epoch
	}
	return in
}

func (s *stage) complete(call hub.Call, id string, epoch int) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		return one(h.Deliver(bg, call, hub.DeliverInput{HoldInput: s.hold(call, id, epoch), Result: json.RawMessage(`"done"`)}))
	}
}

func (s *stage) extend(call hub.Call, id string, epoch int) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		out, err := h.Extend(bg, call, hub.ExtendInput{HoldInput: s.hold(call, id, epoch)})
		return &hub.Work{Handoff: handoff.Handoff{ID: id, Epoch: out.Epoch}}, err
	}
}

func (s *stage) release(call hub.Call, id string, epoch int) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		return one(h.Release(bg, call, hub.ReleaseInput{HoldInput: s.hold(call, id, epoch)}))
	}
}

func (s *stage) reject(call hub.Call, id string, epoch int) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		return one(h.Reject(bg, call, hub.RejectInput{HoldInput: s.hold(call, id, epoch)}))
	}
}

func (s *stage) takeBack(call hub.Call, id string) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		return one(h.TakeBack(bg, call, hub.TakeBackInput{HoldInput: s.hold(call, id, 0)}))
	}
}

func (s *stage) verify(call hub.Call, id, verdict string, epoch int) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		return one(h.Verify(bg, call, hub.VerifyInput{HoldInput: s.hold(call, id, epoch), Verdict: verdict}))
	}
}

func (s *stage) operatorCancels(id string) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		_, err := h.CancelAny(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "r"})
		return nil, err
	}
}

func (s *stage) reassign(id string, to hub.Call) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		out, err := h.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: to.Actor.Handle, Reason: "r"})
		return &hub.Work{Handoff: handoff.Handoff{ID: id, Epoch: out.Epoch}}, err
	}
}

func (s *stage) disables(call hub.Call, disabled bool) verb {
	return func(h *hub.Hub) (*hub.Work, error) {
		return nil, h.SetDisabled(bg, hubtest.Operator(), call.Actor.Handle, disabled)
	}
}

func sweep(h *hub.Hub) (*hub.Work, error) {
	_, err := h.Sweep(bg)
	return nil, err
}

// must plays a verb that has to succeed.
func (s *stage) must(v verb) *hub.Work {
	s.t.Helper()
	w, err := v(s.Hub)
	if err != nil {
		s.t.Fatalf("round %d: %v", s.round, err)
	}
	return w
}

// The ways in which two calls meet.
const (
	firstHolds  = iota // the first is about to commit when time passes and the second comes
	secondHolds        // the other way round
	timePassed         // time has passed when the second is about to commit and the first comes
	loose              // all at once
	ways
)

// late reports whether the first came when time had passed; either may be when all is loose.
func (s *stage) late() bool { return s.kind == secondHolds || s.kind == timePassed }

// meet plays two verbs against each other in one of the ways, which alternate. What happens
// meanwhile may be nil.
func (s *stage) meet(first, second verb, meanwhile func()) (a, b outcome) {
	s.t.Helper()
	s.kind = s.round % ways
	f := func() { a.work, a.err = first(s.hubs[0]) }
	g := func() { b.work, b.err = second(s.hubs[1]) }
	switch s.kind {
	case firstHolds:
		s.cross.Run(s.Fixture, f, meanwhile, g)
	case secondHolds:
		s.cross.Run(s.Fixture, g, meanwhile, f)
	case timePassed:
		if meanwhile != nil {
			meanwhile()
		}
		s.cross.Run(s.Fixture, g, nil, f)
	default:
		if meanwhile == nil {
			meanwhile = func() {}
		}
		atOnce(f, meanwhile, g)
	}
	return a, b
}

// atOnce runs everything at the same time.
func atOnce(calls ...func()) {
	var ready, wg sync.WaitGroup
	ready.Add(len(calls))
	for _, call := range calls {
		wg.Go(func() {
			ready.Done()
			ready.Wait()
			call()
		})
	}
	wg.Wait()
}

// crowd plays many verbs at once, every other round with the first of them held
// before its commit.
func (s *stage) crowd(verbs []verb) []outcome {
	s.t.Helper()
	out := make([]outcome, len(verbs))
	calls := make([]func(), len(verbs))
	for i, v := range verbs {
		calls[i] = func() { out[i].work, out[i].err = v(s.hubs[i]) }
	}
	if s.round%2 == 0 {
		s.cross.Run(s.Fixture, calls[0], nil, calls[1:]...)
	} else {
		atOnce(calls...)
	}
	return out
}

// want says that the outcome is one of some: an empty code is a success.
func (s *stage) want(what string, o outcome, codes ...handoff.Code) {
	s.t.Helper()
	if !slices.Contains(codes, o.code()) || o.err != nil && o.code() == "" {
		s.errorf("%s (way %d): %v; one of %q should have come", what, s.kind, o.err, codes)
	}
}

// row is a handoff as it is written down.
func (s *stage) row(id string) (h handoff.Handoff) {
	s.t.Helper()
	noError(s.t, s.Store.Read(bg, func(tx *store.Tx) (err error) {
		h, err = tx.Handoff(id)
		return err
	}))
	return h
}

// log is what happened to a handoff.
func (s *stage) log(id string) (list []handoff.Event) {
	s.t.Helper()
	noError(s.t, s.Store.Read(bg, func(tx *store.Tx) (err error) {
		list, err = tx.HandoffEvents(id, 0, 1000)
		return err
	}))
	return list
}

func (s *stage) happened(id string, event handoff.EventType) int {
	n := 0
	for _, e := range s.log(id) {
		if e.Type == event {
			n++
		}
	}
	return n
}

// eitherOr fails unless exactly one of two things happened to the handoff.
func (s *stage) eitherOr(id string, this, that handoff.EventType) {
	s.t.Helper()
	if n, m := s.happened(id, this), s.happened(id, that); n+m != 1 {
		s.errorf("%d times %s and %d times %s", n, this, m, that)
	}
}
