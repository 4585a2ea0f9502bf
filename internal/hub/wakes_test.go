package hub_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// looks counts how often calls looked for a cause.
func looks(f *hubtest.Fixture, cause string) int {
	f.T.Helper()
	families, err := f.Metrics.Registry.Gather()
	noError(f.T, err)
	n := 0
	for _, family := range families {
		if family.GetName() != "handclasp_parked_looks_total" {
			continue
		}
		for _, m := range family.GetMetric() {
			if m.GetLabel()[0].GetValue() == cause {
				n += int(m.GetCounter().GetValue())
			}
		}
	}
	return n
}

// arrival is what a parked call came back with, in words.
type arrival struct {
	text string
	err  error
}

// asleep starts a call and returns once it waits.
func asleep(f *hubtest.Fixture, call func() (string, error)) <-chan arrival {
	f.T.Helper()
	before := asleepNow(f)
	ch := make(chan arrival, 1)
	go func() {
		text, err := call()
		ch <- arrival{text, err}
	}()
	parked(f, before+1)
	return ch
}

func asleepNow(f *hubtest.Fixture) int {
	f.T.Helper()
	families, err := f.Metrics.Registry.Gather()
	noError(f.T, err)
	for _, family := range families {
		if family.GetName() == "handclasp_parked_calls" {
			return int(family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	return 0
}

func came(t *testing.T, what string, ch <-chan arrival) string {
	t.Helper()
	select {
	case o := <-ch:
		if o.err != nil {
			t.Fatalf("%s: %v", what, o.err)
		}
		return o.text
	case <-time.After(10 * time.Second):
		t.Fatalf("%s slept on", what)
		return ""
	}
}

// The calls that wait, and what they come back with.

func waitsToClaim(f *hubtest.Fixture, call hub.Call) func() (string, error) {
	return func() (string, error) {
		out, err := f.Hub.Claim(bg, call, hub.ClaimInput{ProjectRoot: project, AgentID: call.Actor.Handle, Wait: hub.MaxWait})
		if out.Work == nil {
			return "", err
		}
		return out.Work.Handoff.ID, err
	}
}

func waitsForList(f *hubtest.Fixture, call hub.Call, scope string) func() (string, error) {
	return func() (string, error) {
		out, err := f.Hub.Available(bg, call, hub.AvailableInput{ProjectRoot: project, AgentID: call.Actor.Handle, Scope: scope, Wait: hub.MaxWait})
		if len(out.Works) == 0 {
			return "", err
		}
		return out.Works[0].Handoff.ID, err
	}
}

func waitsForStatus(f *hubtest.Fixture, call hub.Call, id, known string) func() (string, error) {
	return func() (string, error) {
		out, err := f.Hub.Get(bg, call, hub.GetInput{ProjectRoot: project, AgentID: call.Actor.Handle, HandoffID: id, KnownStatus: known, Wait: hub.MaxWait})
		return string(out.Handoff.State), err
	}
}

func waitsForEvent(f *hubtest.Fixture, call hub.Call, in hub.EventWaitInput) func() (string, error) {
	in.ProjectRoot, in.AgentID, in.Wait = project, call.Actor.Handle, hub.MaxWait
	return func() (string, error) {
		out, err := f.Hub.EventWait(bg, call, in)
		if len(out.Events) == 0 {
			return "", err
		}
		return string(out.Events[0].Type), err
	}
}

func waitsForNews(f *hubtest.Fixture, call hub.Call) func() (string, error) {
	return func() (string, error) {
		out, err := f.Hub.Inbox(bg, call, hub.InboxInput{Wait: hub.MaxWait})
		if len(out.Items) == 0 {
			return "", err
		}
		return out.Items[0].Handoff.ID, err
	}
}

func withCapability(f *hubtest.Fixture, handle string, capabilities ...string) hub.Call {
	f.T.Helper()
	k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: handle, Capabilities: capabilities})
	noError(f.T, err)
	actor, err := f.Hub.Authenticate(bg, k.Secret)
	noError(f.T, err)
	return hub.Call{Actor: actor}
}

func swept(f *hubtest.Fixture, after time.Duration) {
	f.T.Helper()
	f.Clock.Advance(after)
	_, err := f.Hub.Sweep(bg)
	noError(f.T, err)
}

func completed(f *hubtest.Fixture, call hub.Call, id string) {
	f.T.Helper()
	_, err := f.Hub.Deliver(bg, call, hub.DeliverInput{HoldInput: holding(call, id)})
	noError(f.T, err)
}

func claimOf(f *hubtest.Fixture, call hub.Call, id string) {
	f.T.Helper()
	_, err := f.Hub.Claim(bg, call, hub.ClaimInput{ProjectRoot: project, AgentID: call.Actor.Handle, ThreadID: id})
	noError(f.T, err)
}

func released(f *hubtest.Fixture, call hub.Call, id string) {
	f.T.Helper()
	_, err := f.Hub.Release(bg, call, hub.ReleaseInput{HoldInput: holding(call, id)})
	noError(f.T, err)
}

// crowd are agents that could claim two kinds of work, and one that makes it.
type crowd struct {
	f                    *hubtest.Fixture
	n                    int
	anna, cid, dora, rex hub.Call
	code, review         string // targets
}

// newCrowd makes the n-th crowd of a hub, whose kinds of work are its own.
func newCrowd(f *hubtest.Fixture, n int) *crowd {
	kind := func(name string) string { return fmt.Sprint(name, n) }
	target := func(name string) string { return `{"strategy":"capability","capability":"` + kind(name) + `"}` }
	agent := func(name string, capabilities ...string) hub.Call {
		return withCapability(f, kind(name)+"@acme", capabilities...)
	}
	return &crowd{f, n, agent("anna"), agent("cid", kind("code")), agent("dora", kind("code")), agent("rex", kind("review")), target("code"), target("review")}
}

// fallingBack is a target that is for rex first and for code later.
func (s *crowd) fallingBack(seconds int) string {
	return fmt.Sprintf(`{"strategy":"direct_with_fallback","agent_id":%q,"fallback_after_seconds":%d,"fallback":%s}`, s.rex.Actor.Handle, seconds, s.code)
}

func (s *crowd) open(target string, more ...func(*hub.OpenInput)) string {
	s.f.T.Helper()
	in := hub.OpenInput{Target: json.RawMessage(target), Visibility: "private"}
	for _, m := range more {
		m(&in)
	}
	return opened(s.f, s.anna, in).HandoffID
}

// elsewhere does much that does not concern those who wait for work of the kind code.
func (s *crowd) elsewhere() {
	s.f.T.Helper()
	for i := range 3 {
		id := s.open(s.review)
		claimOf(s.f, s.rex, id)
		_, err := s.f.Hub.Extend(bg, s.rex, hub.ExtendInput{HoldInput: holding(s.rex, id), Lease: 600})
		noError(s.f.T, err)
		released(s.f, s.rex, id)
		other := s.open(s.review)
		claimOf(s.f, s.rex, other)
		completed(s.f, s.rex, other)
		_, err = s.f.Hub.Open(bg, s.anna, hub.OpenInput{ProjectRoot: "/srv/other", From: s.anna.Actor.Handle, Visibility: "public", Target: json.RawMessage(s.code)})
		noError(s.f.T, err)
		_, err = s.f.Hub.EditAgent(bg, hubtest.Operator(), s.rex.Actor.Handle, hub.AgentEdit{Role: new(fmt.Sprint("role ", i))})
		noError(s.f.T, err)
		s.f.Send(s.anna, s.rex.Actor.Handle)
	}
}

// wakeCase is a call that waits, and what wakes it.
type wakeCase struct {
	name string
	// before makes what is there when the call begins to wait; it gives the handoff that matters.
	before func(s *crowd) string
	waits  func(s *crowd, id string) func() (string, error)
	// noise does what does not concern the call; nil is what does not concern cid.
	noise func(s *crowd, id string)
	wakes func(s *crowd, id string) string // gives what the call must come back with
}

func none(*crowd) string { return "" }

func claimsCode(s *crowd, _ string) func() (string, error) { return waitsToClaim(s.f, s.cid) }

var wakeCases = []wakeCase{
	{"a claim by a new handoff", none, claimsCode, nil, func(s *crowd, _ string) string { return s.open(s.code) }},
	{"a list by a new handoff", none, func(s *crowd, _ string) func() (string, error) { return waitsForList(s.f, s.cid, "") }, nil, func(s *crowd, _ string) string { return s.open(s.code) }},
	{"a claim by a released handoff", func(s *crowd) string {
		id := s.open(s.code)
		claimOf(s.f, s.dora, id)
		return id
	}, claimsCode, nil, func(s *crowd, id string) string { released(s.f, s.dora, id); return id }},
	{"a claim by a lapsed lease", func(s *crowd) string {
		id := s.open(s.code)
		claimOf(s.f, s.dora, id)
		return id
	}, claimsCode, nil, func(s *crowd, id string) string { swept(s.f, 301*time.Second); return id }},
	{"a claim by an opening fallback", func(s *crowd) string {
		return s.open(s.fallingBack(3600))
	}, claimsCode, nil, func(s *crowd, id string) string { swept(s.f, time.Hour+time.Second); return id }},
	{"a claim by the first agent's refusal", func(s *crowd) string {
		return s.open(s.fallingBack(3600))
	}, claimsCode, nil, func(s *crowd, id string) string {
		_, err := s.f.Hub.Reject(bg, s.rex, hub.RejectInput{HoldInput: holding(s.rex, id)})
		noError(s.f.T, err)
		return id
	}},
	{"a claim by the end of what it depends on", func(s *crowd) string {
		first := s.open(s.review)
		s.open(s.code, func(in *hub.OpenInput) { in.DependsOn = []string{first} })
		claimOf(s.f, s.rex, first)
		return first
	}, claimsCode, nil, func(s *crowd, first string) string {
		completed(s.f, s.rex, first)
		list, err := s.f.Hub.Available(bg, s.anna, hub.AvailableInput{ProjectRoot: project, AgentID: s.anna.Actor.Handle, Scope: hub.ScopeMineCreated, Limit: 500})
		noError(s.f.T, err)
		for i := range list.Works {
			if len(list.Works[i].DependsOn) > 0 {
				return list.Works[i].Handoff.ID
			}
		}
		return ""
	}},
	{"a claim by the operator's cancellation of nothing, then by a disabled holder", func(s *crowd) string {
		id := s.open(s.code)
		claimOf(s.f, s.dora, id)
		return id
	}, claimsCode, nil, func(s *crowd, id string) string { disable(s.f, s.dora.Actor.Handle); return id }},
	{"a claim by the caller's new capability", func(s *crowd) string {
		return s.open(fmt.Sprintf(`{"strategy":"role","role":"tester %d"}`, s.n))
	}, claimsCode, nil, func(s *crowd, id string) string {
		_, err := s.f.Hub.EditAgent(bg, hubtest.Operator(), s.cid.Actor.Handle, hub.AgentEdit{Role: new(fmt.Sprint("tester ", s.n))})
		noError(s.f.T, err)
		return id
	}},
	{"a claim by somebody who can verify the work", func(s *crowd) string {
		withCapability(s.f, "vera@acme", "audit")
		disable(s.f, "vera@acme")
		return s.open(s.code, func(in *hub.OpenInput) {
			in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(`{"kind":"capability","capability":"audit"}`)
		})
	}, claimsCode, func(s *crowd, _ string) { s.f.Send(s.anna, s.rex.Actor.Handle) }, func(s *crowd, id string) string {
		noError(s.f.T, s.f.Hub.SetDisabled(bg, hubtest.Operator(), "vera@acme", false))
		return id
	}},
	{"a list of what to verify by delivered work", func(s *crowd) string {
		id := s.open(s.review, func(in *hub.OpenInput) {
			in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(fmt.Sprintf(`{"kind":"capability","capability":"code%d"}`, s.n))
		})
		claimOf(s.f, s.rex, id)
		return id
	}, func(s *crowd, _ string) func() (string, error) { return waitsForList(s.f, s.cid, hub.ScopeToVerify) }, nil, func(s *crowd, id string) string {
		completed(s.f, s.rex, id)
		return id
	}},
	{
		"a status by a claim", func(s *crowd) string { return s.open(s.code) },
		func(s *crowd, id string) func() (string, error) { return waitsForStatus(s.f, s.anna, id, "OPEN") }, nil,
		func(s *crowd, id string) string { claimOf(s.f, s.cid, id); return string(handoff.Claimed) },
	},
	{
		"a status by a lapse", func(s *crowd) string {
			id := s.open(s.code)
			claimOf(s.f, s.cid, id)
			return id
		}, func(s *crowd, id string) func() (string, error) { return waitsForStatus(s.f, s.anna, id, "claimed") }, nil,
		func(s *crowd, _ string) string { swept(s.f, 301*time.Second); return string(handoff.Open) },
	},
	{
		"a status by a deadline", func(s *crowd) string {
			return s.open(s.code, func(in *hub.OpenInput) { in.ExpiresIn = 60 })
		}, func(s *crowd, id string) func() (string, error) { return waitsForStatus(s.f, s.anna, id, "OPEN") }, nil,
		func(s *crowd, _ string) string { swept(s.f, time.Minute); return string(handoff.Expired) },
	},
	{
		"a workspace by what the caller could claim", none,
		func(s *crowd, _ string) func() (string, error) {
			return waitsForEvent(s.f, s.cid, hub.EventWaitInput{})
		}, nil,
		func(s *crowd, _ string) string { s.open(s.code); return "handoff.created" },
	},
	{
		"a workspace by what is public", none,
		func(s *crowd, _ string) func() (string, error) {
			return waitsForEvent(s.f, s.cid, hub.EventWaitInput{})
		}, nil,
		func(s *crowd, _ string) string {
			s.open(s.review, func(in *hub.OpenInput) { in.Visibility = "public" })
			return "handoff.created"
		},
	},
	{
		"a workspace by work to verify", func(s *crowd) string {
			id := s.open(s.review, func(in *hub.OpenInput) {
				in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(fmt.Sprintf(`{"kind":"capability","capability":"code%d"}`, s.n))
			})
			claimOf(s.f, s.rex, id)
			return id
		}, func(s *crowd, _ string) func() (string, error) {
			return waitsForEvent(s.f, s.cid, hub.EventWaitInput{})
		}, nil,
		func(s *crowd, id string) string { completed(s.f, s.rex, id); return "handoff.verification_requested" },
	},
	{"an agent by work to verify", func(s *crowd) string {
		id := s.open(s.review, func(in *hub.OpenInput) {
			in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(fmt.Sprintf(`{"kind":"agent","agent_id":%q}`, s.cid.Actor.Handle))
		})
		claimOf(s.f, s.rex, id)
		return id
	}, func(s *crowd, _ string) func() (string, error) {
		return waitsForEvent(s.f, s.cid, hub.EventWaitInput{Stream: hub.StreamAgent})
	}, nil, func(s *crowd, id string) string { completed(s.f, s.rex, id); return "handoff.verification_requested" }},
	{"an agent by a key of its own", none, func(s *crowd, _ string) func() (string, error) {
		return waitsForEvent(s.f, s.cid, hub.EventWaitInput{Stream: hub.StreamAgent})
	}, nil, func(s *crowd, _ string) string {
		_, err := s.f.Hub.AddKey(bg, hubtest.Operator(), s.cid.Actor.Handle, "another")
		noError(s.f.T, err)
		return "key.created"
	}},
	{"an agent by a block of its own", none, func(s *crowd, _ string) func() (string, error) {
		return waitsForEvent(s.f, s.cid, hub.EventWaitInput{Stream: hub.StreamAgent})
	}, nil, func(s *crowd, _ string) string { block(s.f, s.cid, s.rex.Actor.Handle, true); return "block.added" }},
	{"a handoff by its own event", func(s *crowd) string { return s.open(s.code) }, func(s *crowd, id string) func() (string, error) {
		return waitsForEvent(s.f, s.anna, hub.EventWaitInput{Stream: hub.StreamHandoff, Filters: hub.EventFilters{HandoffID: id}})
	}, nil, func(s *crowd, id string) string { claimOf(s.f, s.cid, id); return "handoff.claimed" }},
	{
		"an inbox by a handoff to it", none, func(s *crowd, _ string) func() (string, error) { return waitsForNews(s.f, s.cid) }, nil,
		func(s *crowd, _ string) string { return s.f.Send(s.anna, s.cid.Actor.Handle) },
	},
	{
		"a creator's inbox by the end, and not by the claim", func(s *crowd) string { return s.open(s.code) },
		func(s *crowd, _ string) func() (string, error) { return waitsForNews(s.f, s.anna) },
		func(s *crowd, id string) { claimOf(s.f, s.cid, id) },
		func(s *crowd, id string) string { completed(s.f, s.cid, id); return id },
	},
}

func TestACallIsWokenByWhatConcernsItAndByNothingElse(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		for n, c := range wakeCases {
			t.Run(c.name, func(t *testing.T) {
				f.T = t
				s := newCrowd(f, n)
				id := c.before(s)
				settled(f)
				ch := asleep(f, c.waits(s, id))
				woken := looks(f, "woken")
				if c.noise != nil {
					c.noise(s, id)
				} else {
					s.elsewhere()
				}
				if n := looks(f, "woken") - woken; n != 0 || asleepNow(f) != 1 {
					t.Fatalf("it looked %d times at what does not concern it", n)
				}
				want := c.wakes(s, id)
				if got := came(t, c.name, ch); got != want {
					t.Fatalf("it came back with %q, want %q", got, want)
				}
				// PostgreSQL may show an event a little later, and then it looks again.
				if n := looks(f, "woken") - woken; n < 1 || n > 1 && f.Store.Kind() == "sqlite" {
					t.Fatalf("it was woken %d times", n)
				}
			})
		}
	})
}
