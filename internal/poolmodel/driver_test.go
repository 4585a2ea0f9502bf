package poolmodel_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/poolmodel"
	"handclasp/internal/store"
)

var bg = context.Background()

// clock stands still during a call, so that the model knows the time of its transaction.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// bench is a hub that many programs run on, one after the other. The agents stay and are edited;
// workspaces and keys are new for each program.
type bench struct {
	f        *hubtest.Fixture
	clock    *clock
	calls    map[string]hub.Call        // by handle
	handles  map[string]string          // by id
	crew     map[string]poolmodel.Agent // as the hub knows them
	blocks   map[[2]string]bool
	programs int
}

func newBench(t testing.TB, kind string) *bench {
	b := &bench{
		clock: &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)},
		calls: map[string]hub.Call{poolmodel.Operator: hubtest.Operator()}, handles: map[string]string{},
		crew: map[string]poolmodel.Agent{}, blocks: map[[2]string]bool{},
	}
	b.f = hubtest.New(t, kind, hubtest.WithStore(func(c *store.Config) { c.Clock = b.clock.Now }))
	for _, handle := range crew {
		b.register(handle, handle, vocabulary(handle))
	}
	return b
}

// register adds an agent that programs call by another name.
func (b *bench) register(handle, name string, a poolmodel.Agent) {
	k, err := b.f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: handle, Role: a.Role, Capabilities: a.Capabilities, Tags: a.Tags})
	if err != nil {
		b.f.T.Fatal(err)
	}
	b.calls[name] = hub.Call{Actor: handoff.Actor{Kind: handoff.KindAgent, ID: k.AgentID, Handle: handle, KeyID: k.KeyID}}
	b.handles[k.AgentID] = name
	b.crew[handle] = a
}

// driver runs one program on the hub.
type driver struct {
	*bench
	t       testing.TB
	program int
	ids     map[string]string // of handoffs, by name
	names   map[string]string // of handoffs, by id
}

// begin prepares the hub for another program.
func (b *bench) begin(t testing.TB, agents []poolmodel.Agent) *driver {
	b.programs++
	b.clock.set(b.clock.Now().Add(time.Second)) // nothing of an earlier program is as new as this one
	d := &driver{bench: b, t: t, program: b.programs, ids: map[string]string{}, names: map[string]string{}}
	for pair := range b.blocks {
		d.do(poolmodel.Call{Verb: poolmodel.Block, Actor: pair[0], To: pair[1]})
	}
	for handle, a := range b.crew {
		if !a.Disabled && !slices.Contains(crew, handle) { // one of an earlier program
			d.must(b.f.Hub.SetDisabled(bg, hubtest.Operator(), handle, true))
			delete(b.crew, handle)
		}
	}
	for _, a := range agents {
		if a.Disabled != b.crew[a.Handle].Disabled {
			d.do(poolmodel.Call{Verb: poolmodel.Disable, To: a.Handle, Disabled: a.Disabled})
		}
		if !sameLabels(a, b.crew[a.Handle]) {
			d.do(poolmodel.Call{Verb: poolmodel.Edit, To: a.Handle, Edit: &a})
		}
	}
	return d
}

func (d *driver) must(err error) {
	if err != nil {
		d.t.Fatal(err)
	}
}

// real is the handle of an agent: a program's own, for the one that registers during it.
func (d *driver) real(handle string) string {
	if strings.EqualFold(handle, late) {
		return fmt.Sprintf("late%d@acme", d.program)
	}
	return handle
}

func sameLabels(a, b poolmodel.Agent) bool {
	return a.Role == b.Role && fmt.Sprint(a.Capabilities, a.Tags) == fmt.Sprint(b.Capabilities, b.Tags)
}

// root is a path of this program's own. An empty one stays: it is no path.
func (d *driver) root(name string) string {
	if name == "" {
		return "not/absolute"
	}
	return fmt.Sprintf("/programs/%d/%s", d.program, name)
}

func (d *driver) key(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%d-%s", d.program, name)
}

// id is that of a handoff; a name that nothing has is an id that nothing has.
func (d *driver) id(name string) string {
	if id, ok := d.ids[name]; ok {
		return id
	}
	return "019ad000-0000-7000-8000-000000000000"
}

// do makes the call and says what came back in the words of the model.
func (d *driver) do(c poolmodel.Call) poolmodel.Reply {
	r, err := d.answer(c)
	if err != nil {
		r = poolmodel.Reply{Code: handoff.CodeOf(err)}
		if r.Code == handoff.CodeInternal {
			d.t.Fatalf("%v: %v", c, err)
		}
		var e *handoff.Error
		if errors.As(err, &e) {
			r.HeldBy, _ = e.Details["claimed_by"].(string)
			r.HeldBy = d.called([]string{r.HeldBy})[0]
		}
	}
	return r
}

func (d *driver) answer(c poolmodel.Call) (poolmodel.Reply, error) {
	h, call := d.f.Hub, d.calls[c.Actor]
	as := d.real(c.As)
	hold := hub.HoldInput{ProjectRoot: d.root(c.Root), AgentID: as, ThreadID: d.id(c.Handoff), ClaimEpoch: c.Epoch, IdempotencyKey: d.key(c.Key)}
	switch c.Verb {
	case poolmodel.Create:
		return d.create(call, c)
	case poolmodel.List:
		return d.list(call, c)
	case poolmodel.Claim:
		in := hub.ClaimInput{ProjectRoot: hold.ProjectRoot, AgentID: as, Lease: c.Lease, IdempotencyKey: hold.IdempotencyKey}
		if c.Handoff != "" {
			in.ThreadID = hold.ThreadID
		}
		got, err := h.Claim(bg, call, in)
		if err != nil || got.Work == nil {
			return poolmodel.Reply{}, err
		}
		return d.work(*got.Work, err)
	case poolmodel.Extend:
		got, err := h.Extend(bg, call, hub.ExtendInput{HoldInput: hold, Lease: c.Lease})
		return poolmodel.Reply{Epoch: got.Epoch, LeaseEnds: got.LeaseExpiresAt, Replay: got.Replay}, err
	case poolmodel.Release:
		return d.work(h.Release(bg, call, hub.ReleaseInput{HoldInput: hold, Reason: c.Text}))
	case poolmodel.Deliver:
		return d.work(h.Deliver(bg, call, hub.DeliverInput{HoldInput: hold, Result: json.RawMessage(c.Result)}))
	case poolmodel.Verify:
		verdict := map[bool]string{true: "pass", false: "fail"}[c.Pass]
		return d.work(h.Verify(bg, call, hub.VerifyInput{HoldInput: hold, Verdict: verdict, Feedback: c.Text}))
	case poolmodel.Reject:
		return d.work(h.Reject(bg, call, hub.RejectInput{HoldInput: hold, Reason: c.Text}))
	case poolmodel.TakeBack:
		return d.work(h.TakeBack(bg, call, hub.TakeBackInput{HoldInput: hold, Reason: c.Text}))
	case poolmodel.Get:
		return d.work(h.Get(bg, call, hub.GetInput{ProjectRoot: hold.ProjectRoot, HandoffID: hold.ThreadID, AgentID: as}))
	}
	return d.answerOther(c, call, hold.ThreadID, hold.IdempotencyKey)
}

// answerOther makes the calls of the team door and of the operator.
func (d *driver) answerOther(c poolmodel.Call, call hub.Call, id, key string) (poolmodel.Reply, error) {
	h, op := d.f.Hub, hubtest.Operator()
	switch c.Verb {
	case poolmodel.Accept:
		return d.thread(h.Accept(bg, call, hub.AcceptInput{ThreadID: id, Lease: c.Lease, IdempotencyKey: key}))
	case poolmodel.View:
		return d.thread(h.View(bg, call, hub.ViewInput{ThreadID: id, Limit: hub.PageLimit}))
	case poolmodel.Inspect:
		return d.thread(h.Inspect(bg, op, hub.ViewInput{ThreadID: id, Limit: hub.PageLimit}))
	case poolmodel.Complete:
		return ended(h.Complete(bg, call, hub.CompleteInput{ThreadID: id, ResultSummary: c.Text, ClaimEpoch: c.Epoch, IdempotencyKey: key}))
	case poolmodel.Decline:
		return ended(h.Decline(bg, call, hub.DeclineInput{ThreadID: id, Reason: c.Text, ClaimEpoch: c.Epoch, IdempotencyKey: key}))
	case poolmodel.Cancel:
		return ended(h.Cancel(bg, call, hub.CancelInput{ThreadID: id, Reason: c.Text, IdempotencyKey: key}))
	case poolmodel.CancelAny:
		return ended(h.CancelAny(bg, op, hub.CancelInput{ThreadID: id, Reason: c.Text}))
	case poolmodel.Send:
		got, err := h.Send(bg, call, hub.SendInput{ThreadID: id, Body: c.Text, ExpectsReply: c.Asks, IdempotencyKey: key})
		return poolmodel.Reply{SequenceNo: got.SequenceNo, Replay: got.Replay}, err
	case poolmodel.Reassign:
		got, err := h.Reassign(bg, op, hub.ReassignInput{ThreadID: id, To: d.real(c.To), Reason: c.Text})
		return poolmodel.Reply{Epoch: got.Epoch, Replay: got.Replay}, err
	}
	return poolmodel.Reply{}, d.administer(c)
}

// administer changes agents and workspaces.
func (d *driver) administer(c poolmodel.Call) (err error) {
	h, op, to := d.f.Hub, hubtest.Operator(), d.real(c.To)
	switch c.Verb {
	case poolmodel.Disable:
		a := d.crew[to]
		a.Disabled = c.Disabled
		d.crew[to] = a
		err = h.SetDisabled(bg, op, to, c.Disabled)
	case poolmodel.Edit:
		a := *c.Edit
		a.Handle, a.Disabled = to, d.crew[to].Disabled
		d.crew[to] = a
		_, err = h.EditAgent(bg, op, to, hub.AgentEdit{Role: &a.Role, Capabilities: &a.Capabilities, Tags: &a.Tags})
	case poolmodel.Register:
		d.register(to, c.To, *c.Edit)
	case poolmodel.Admit:
		in := hub.MembersInput{Root: d.root(c.Root), Add: []string{to}}
		if c.Disabled {
			in.Add, in.Remove = nil, in.Add
		}
		_, err = h.Members(bg, op, in)
	case poolmodel.Restrict:
		_, err = h.Members(bg, op, hub.MembersInput{Root: d.root(c.Root), Strict: new(!c.Disabled)})
	case poolmodel.Alias:
		_, err = h.Alias(bg, op, hub.AliasInput{Root: d.root(c.To), Of: d.root(c.Root)})
	case poolmodel.Block:
		if d.blocks[[2]string{c.Actor, c.To}] = c.Disabled; !c.Disabled {
			delete(d.blocks, [2]string{c.Actor, c.To})
		}
		_, err = h.SetBlock(bg, d.calls[c.Actor], hub.BlockInput{Handle: to}, c.Disabled)
	default:
		panic(c.Verb)
	}
	return err
}

func (d *driver) create(call hub.Call, c poolmodel.Call) (poolmodel.Reply, error) {
	o := c.Open
	in := hub.OpenInput{
		ProjectRoot: d.root(c.Root), From: d.real(c.As), Target: d.target(o.Target), Visibility: o.Visibility, Payload: json.RawMessage(o.Payload),
		ExpiresIn: o.ExpiresIn, Priority: o.Priority, IdempotencyKey: d.key(c.Key),
	}
	if o.Criteria {
		in.Criteria = []string{"it builds", "it is tested"}
	}
	if v := o.VerifyBy; v != nil {
		in.VerifyBy = json.RawMessage(map[string]string{
			"creator": `{"kind":"creator"}`, "agent": `{"kind":"agent","agent_id":"` + d.real(v.Agent) + `"}`, "capability": `{"kind":"capability","capability":"` + v.Capability + `"}`,
		}[v.Kind])
	}
	for _, name := range o.DependsOn {
		in.DependsOn = append(in.DependsOn, d.id(name))
	}
	got, err := d.f.Hub.Open(bg, call, in)
	if err != nil {
		return poolmodel.Reply{}, err
	}
	if !got.Replay {
		name := poolmodel.NameOf(len(d.ids))
		d.ids[name], d.names[got.HandoffID] = got.HandoffID, name
	} else {
		got.EligibleCount = 0
	}
	s := poolmodel.Seen{Name: d.names[got.HandoffID], State: stateOf(got.Status), CreatedAt: got.CreatedAt, DependsOn: d.named(got.DependsOn), Dependencies: counts(got.Dependencies)}
	return poolmodel.Reply{Seen: []poolmodel.Seen{s}, Eligible: got.EligibleCount, Notified: d.called(got.Notified), Warned: got.Warning != "", Replay: got.Replay}, nil
}

// target is the JSON of a target that may name the agent that registers late.
func (d *driver) target(t *poolmodel.Target) json.RawMessage {
	return json.RawMessage(strings.ReplaceAll(string(t.JSON()), `"`+late+`"`, `"`+d.real(late)+`"`))
}

func stateOf(status string) handoff.State {
	for _, s := range handoff.States() {
		if s.PoolStatus() == status {
			return s
		}
	}
	return handoff.State(status)
}

// list reads all pages.
func (d *driver) list(call hub.Call, c poolmodel.Call) (poolmodel.Reply, error) {
	in := hub.AvailableInput{ProjectRoot: d.root(c.Root), AgentID: d.real(c.As), Scope: c.Scope, Limit: c.Limit}
	var r poolmodel.Reply
	for {
		page, err := d.f.Hub.Available(bg, call, in)
		if err != nil {
			return poolmodel.Reply{}, err
		}
		if c.Limit > 0 && len(page.Works) > c.Limit {
			d.t.Fatalf("%v: a page of %d", c, len(page.Works))
		}
		for i := range page.Works {
			r.Seen = append(r.Seen, d.seen(&page.Works[i]))
		}
		if in.Cursor = page.NextCursor; in.Cursor == "" {
			return r, nil
		}
	}
}
