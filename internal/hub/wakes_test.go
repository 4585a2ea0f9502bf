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

const reviewTarget = `{"strategy":"capability","capability":"review"}`

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
	anna, cid, dora, rex hub.Call
}

func newCrowd(f *hubtest.Fixture) *crowd {
	return &crowd{f, f.Agent("anna@acme"), withCapability(f, "cid@acme", "code"), withCapability(f, "dora@acme", "code"), withCapability(f, "rex@acme", "review")}
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
		id := s.open(reviewTarget)
		claimOf(s.f, s.rex, id)
		_, err := s.f.Hub.Extend(bg, s.rex, hub.ExtendInput{HoldInput: holding(s.rex, id), Lease: 600})
		noError(s.f.T, err)
		released(s.f, s.rex, id)
		other := s.open(reviewTarget)
		claimOf(s.f, s.rex, other)
		completed(s.f, s.rex, other)
		_, err = s.f.Hub.Open(bg, s.anna, hub.OpenInput{ProjectRoot: "/srv/other", From: "anna@acme", Visibility: "public", Target: json.RawMessage(codeTarget)})
		noError(s.f.T, err)
		_, err = s.f.Hub.EditAgent(bg, hubtest.Operator(), "rex@acme", hub.AgentEdit{Role: new(fmt.Sprint("role ", i))})
		noError(s.f.T, err)
		s.f.Send(s.anna, "rex@acme")
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
	{"a claim by a new handoff", none, claimsCode, nil, func(s *crowd, _ string) string { return s.open(codeTarget) }},
	{"a list by a new handoff", none, func(s *crowd, _ string) func() (string, error) { return waitsForList(s.f, s.cid, "") }, nil, func(s *crowd, _ string) string { return s.open(codeTarget) }},
	{"a claim by a released handoff", func(s *crowd) string {
		id := s.open(codeTarget)
		claimOf(s.f, s.dora, id)
		return id
	}, claimsCode, nil, func(s *crowd, id string) string { released(s.f, s.dora, id); return id }},
	{"a claim by a lapsed lease", func(s *crowd) string {
		id := s.open(codeTarget)
		claimOf(s.f, s.dora, id)
		return id
	}, claimsCode, nil, func(s *crowd, id string) string { swept(s.f, 301*time.Second); return id }},
	{"a claim by an opening fallback", func(s *crowd) string {
		return s.open(`{"strategy":"direct_with_fallback","agent_id":"rex@acme","fallback_after_seconds":3600,"fallback":` + codeTarget + `}`)
	}, claimsCode, nil, func(s *crowd, id string) string { swept(s.f, time.Hour+time.Second); return id }},
	{"a claim by the first agent's refusal", func(s *crowd) string {
		return s.open(`{"strategy":"direct_with_fallback","agent_id":"rex@acme","fallback_after_seconds":3600,"fallback":` + codeTarget + `}`)
	}, claimsCode, nil, func(s *crowd, id string) string {
		_, err := s.f.Hub.Reject(bg, s.rex, hub.RejectInput{HoldInput: holding(s.rex, id)})
		noError(s.f.T, err)
		return id
	}},
	{"a claim by the end of what it depends on", func(s *crowd) string {
		first := s.open(reviewTarget)
		s.open(codeTarget, func(in *hub.OpenInput) { in.DependsOn = []string{first} })
		claimOf(s.f, s.rex, first)
		return first
	}, claimsCode, nil, func(s *crowd, first string) string {
		completed(s.f, s.rex, first)
		list, err := s.f.Hub.Available(bg, s.anna, hub.AvailableInput{ProjectRoot: project, AgentID: "anna@acme", Scope: hub.ScopeMineCreated, Limit: 500})
		noError(s.f.T, err)
		for i := range list.Works {
			if len(list.Works[i].DependsOn) > 0 {
				return list.Works[i].Handoff.ID
			}
		}
		return ""
	}},
	{"a claim by the operator's cancellation of nothing, then by a disabled holder", func(s *crowd) string {
		id := s.open(codeTarget)
		claimOf(s.f, s.dora, id)
		return id
	}, claimsCode, nil, func(s *crowd, id string) string { disable(s.f, "dora@acme"); return id }},
	{"a claim by the caller's new capability", func(s *crowd) string {
		return s.open(`{"strategy":"role","role":"tester"}`)
	}, claimsCode, nil, func(s *crowd, id string) string {
		_, err := s.f.Hub.EditAgent(bg, hubtest.Operator(), "cid@acme", hub.AgentEdit{Role: new("tester")})
		noError(s.f.T, err)
		return id
	}},
	{"a claim by somebody who can verify the work", func(s *crowd) string {
		withCapability(s.f, "vera@acme", "audit")
		disable(s.f, "vera@acme")
		return s.open(codeTarget, func(in *hub.OpenInput) {
			in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(`{"kind":"capability","capability":"audit"}`)
		})
	}, claimsCode, func(s *crowd, _ string) { s.f.Send(s.anna, "rex@acme") }, func(s *crowd, id string) string {
		noError(s.f.T, s.f.Hub.SetDisabled(bg, hubtest.Operator(), "vera@acme", false))
		return id
	}},
	{"a list of what to verify by delivered work", func(s *crowd) string {
		id := s.open(reviewTarget, func(in *hub.OpenInput) {
			in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(`{"kind":"capability","capability":"code"}`)
		})
		claimOf(s.f, s.rex, id)
		return id
	}, func(s *crowd, _ string) func() (string, error) { return waitsForList(s.f, s.cid, hub.ScopeToVerify) }, nil, func(s *crowd, id string) string {
		completed(s.f, s.rex, id)
		return id
	}},
	{
		"a status by a claim", func(s *crowd) string { return s.open(codeTarget) },
		func(s *crowd, id string) func() (string, error) { return waitsForStatus(s.f, s.anna, id, "OPEN") }, nil,
		func(s *crowd, id string) string { claimOf(s.f, s.cid, id); return string(handoff.Claimed) },
	},
	{
		"a status by a lapse", func(s *crowd) string {
			id := s.open(codeTarget)
			claimOf(s.f, s.cid, id)
			return id
		}, func(s *crowd, id string) func() (string, error) { return waitsForStatus(s.f, s.anna, id, "claimed") }, nil,
		func(s *crowd, _ string) string { swept(s.f, 301*time.Second); return string(handoff.Open) },
	},
	{
		"a status by a deadline", func(s *crowd) string {
			return s.open(codeTarget, func(in *hub.OpenInput) { in.ExpiresIn = 60 })
		}, func(s *crowd, id string) func() (string, error) { return waitsForStatus(s.f, s.anna, id, "OPEN") }, nil,
		func(s *crowd, _ string) string { swept(s.f, time.Minute); return string(handoff.Expired) },
	},
	{
		"a workspace by what the caller could claim", none,
		func(s *crowd, _ string) func() (string, error) {
			return waitsForEvent(s.f, s.cid, hub.EventWaitInput{})
		}, nil,
		func(s *crowd, _ string) string { s.open(codeTarget); return "handoff.created" },
	},
	{
		"a workspace by what is public", none,
		func(s *crowd, _ string) func() (string, error) {
			return waitsForEvent(s.f, s.cid, hub.EventWaitInput{})
		}, nil,
		func(s *crowd, _ string) string {
			s.open(reviewTarget, func(in *hub.OpenInput) { in.Visibility = "public" })
			return "handoff.created"
		},
	},
	{
		"a workspace by work to verify", func(s *crowd) string {
			id := s.open(reviewTarget, func(in *hub.OpenInput) {
				in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(`{"kind":"capability","capability":"code"}`)
			})
			claimOf(s.f, s.rex, id)
			return id
		}, func(s *crowd, _ string) func() (string, error) {
			return waitsForEvent(s.f, s.cid, hub.EventWaitInput{})
		}, nil,
		func(s *crowd, id string) string { completed(s.f, s.rex, id); return "handoff.verification_requested" },
	},
	{"an agent by work to verify", func(s *crowd) string {
		id := s.open(reviewTarget, func(in *hub.OpenInput) {
			in.Criteria, in.VerifyBy = []string{"c"}, json.RawMessage(`{"kind":"agent","agent_id":"cid@acme"}`)
		})
		claimOf(s.f, s.rex, id)
		return id
	}, func(s *crowd, _ string) func() (string, error) {
		return waitsForEvent(s.f, s.cid, hub.EventWaitInput{Stream: hub.StreamAgent})
	}, nil, func(s *crowd, id string) string { completed(s.f, s.rex, id); return "handoff.verification_requested" }},
	{"an agent by a key of its own", none, func(s *crowd, _ string) func() (string, error) {
		return waitsForEvent(s.f, s.cid, hub.EventWaitInput{Stream: hub.StreamAgent})
	}, nil, func(s *crowd, _ string) string {
		_, err := s.f.Hub.AddKey(bg, hubtest.Operator(), "cid@acme", "another")
		noError(s.f.T, err)
		return "key.created"
	}},
	{"an agent by a block of its own", none, func(s *crowd, _ string) func() (string, error) {
		return waitsForEvent(s.f, s.cid, hub.EventWaitInput{Stream: hub.StreamAgent})
	}, nil, func(s *crowd, _ string) string { block(s.f, s.cid, "rex@acme", true); return "block.added" }},
	{"a handoff by its own event", func(s *crowd) string { return s.open(codeTarget) }, func(s *crowd, id string) func() (string, error) {
		return waitsForEvent(s.f, s.anna, hub.EventWaitInput{Stream: hub.StreamHandoff, Filters: hub.EventFilters{HandoffID: id}})
	}, nil, func(s *crowd, id string) string { claimOf(s.f, s.cid, id); return "handoff.claimed" }},
	{
		"an inbox by a handoff to it", none, func(s *crowd, _ string) func() (string, error) { return waitsForNews(s.f, s.cid) }, nil,
		func(s *crowd, _ string) string { return s.f.Send(s.anna, "cid@acme") },
	},
	{
		"a creator's inbox by the end, and not by the claim", func(s *crowd) string { return s.open(codeTarget) },
		func(s *crowd, _ string) func() (string, error) { return waitsForNews(s.f, s.anna) },
		func(s *crowd, id string) { claimOf(s.f, s.cid, id) },
		func(s *crowd, id string) string { completed(s.f, s.cid, id); return id },
	},
}

func TestACallIsWokenByWhatConcernsItAndByNothingElse(t *testing.T) {
	t.Parallel()
	for _, c := range wakeCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
				s := newCrowd(f)
				id := c.before(s)
				settled(f)
				ch := asleep(f, c.waits(s, id))
				if c.noise != nil {
					c.noise(s, id)
				} else {
					s.elsewhere()
				}
				if n := looks(f, "woken"); n != 0 || asleepNow(f) != 1 {
					t.Fatalf("it looked %d times at what does not concern it", n)
				}
				began := time.Now()
				want := c.wakes(s, id)
				got := came(t, c.name, ch)
				if late := time.Since(began); got != want || late > 2*time.Second {
					t.Fatalf("it came back with %q after %v, want %q", got, late, want)
				}
				if n := looks(f, "woken"); n != 1 && f.Store.Kind() == "sqlite" {
					t.Fatalf("it looked %d times", n)
				}
			})
		})
	}
}
