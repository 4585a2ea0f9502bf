package hub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// What the clients of a history do.

// client calls as an agent, one call after the other.
type client struct {
	*history
	number int
	rnd    *rand.Rand
	holds  map[int]int // the epochs of what it thinks it holds
	mine   []int       // what it created
	used   int
}

func (c *client) actor() int { return c.number % linearActors }

// verbs are what the two kinds of clients do, as often as they stand here.
var (
	ofCreators = strings.Fields("create create verify verify verify verify verify verify verify verify cancel get get get claim next")
	ofWorkers  = strings.Fields("claim claim claim next next next next extend extend release release complete complete complete complete complete get get reject verify cancel")
)

// creators are the first clients.
const creators = 4

// step makes one call, or lets time pass.
func (c *client) step() {
	if c.rnd.IntN(4) == 0 {
		c.timePasses(time.Duration(c.rnd.IntN(5000)) * time.Millisecond)
	}
	verbs := ofWorkers
	if c.number < creators {
		verbs = ofCreators
	}
	in := asked{verb: verbs[c.rnd.IntN(len(verbs))], on: c.any()}
	if len(c.holds) == 0 && c.rnd.IntN(4) > 0 && slices.Contains([]string{"extend", "release", "complete", "reject"}, in.verb) {
		in.verb = "next" // there is nothing to do that with
	}
	switch in.verb {
	case "create":
		c.create()
		return
	case "claim":
		in.lease = c.pick(0, 10e6, 10e6, 20e6)
	case "next":
		in.on, in.lease = -1, c.pick(0, 10e6, 10e6)
	case "extend":
		in.lease = c.pick(0, 10e6, 15e6)
		c.asHolder(&in)
	case "release":
		c.asHolder(&in)
	case "complete":
		in.text = fmt.Sprint(`"`, c.rnd.IntN(2), `"`)
		c.asHolder(&in)
	case "reject":
		in.text = "reason"
		c.asHolder(&in)
	case "verify":
		if in.pass = c.rnd.IntN(3) == 0; !in.pass {
			in.text = fmt.Sprint("feedback ", c.rnd.IntN(2))
		}
		c.own(&in)
		c.guess(&in)
	case "cancel":
		in.text = "reason"
		c.own(&in)
	}
	if in.verb != "get" && c.rnd.IntN(10) < 6 {
		in.key = c.newKey()
	}
	c.insist(in)
}

// own names what the client created, mostly.
func (c *client) own(in *asked) {
	if len(c.mine) > 0 && c.rnd.IntN(10) > 0 {
		in.on = c.mine[c.rnd.IntN(len(c.mine))]
	}
}

func (c *client) pick(of ...int64) int64 { return of[c.rnd.IntN(len(of))] }

func (c *client) newKey() string {
	c.used++
	return fmt.Sprintf("%s-%d-%d", c.root, c.number, c.used)
}

// any is a handoff that somebody knows of.
func (c *client) any() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if on := c.rnd.IntN(c.created); c.ids[on] != "" {
			return on
		}
	}
}

// asHolder names what the client thinks it holds, mostly, and the epoch, mostly.
func (c *client) asHolder(in *asked) {
	if on := in.on; len(c.holds) > 0 && c.rnd.IntN(10) < 8 {
		for on = range c.holds { // any
		}
		in.on = on
	}
	in.epoch = c.holds[in.on]
	if c.rnd.IntN(10) < 3 || in.epoch == 0 {
		c.guess(in)
	}
}

// guess names an epoch that may be right, or none.
func (c *client) guess(in *asked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	in.epoch = max(0, c.epochs[in.on]-c.rnd.IntN(8)/7)
	if c.rnd.IntN(4) == 0 {
		in.epoch = 0
	}
}

func (c *client) create() {
	c.mu.Lock()
	on := c.created
	if on == mostHandoffs {
		c.mu.Unlock()
		return
	}
	c.created++
	c.mu.Unlock()
	defer func() { c.mine = append(c.mine, on) }()
	c.insist(asked{verb: "create", on: on, key: c.newKey(), made: made{review: c.rnd.IntN(3) == 0, criteria: c.rnd.IntN(4) > 0, priority: c.rnd.IntN(3) - 1}})
}

// insist makes a call, and with its key often repeats what was cut off, and sometimes what was not. A
// creation has to be answered, or nobody knows what was made.
func (c *client) insist(in asked) {
	for {
		out := c.do(in)
		again := c.rnd.IntN(5) == 0
		if out.unknown {
			again = in.verb == "create" || c.rnd.IntN(4) > 0
		}
		if in.key == "" || !again {
			return
		}
	}
}

// do makes a call and writes down what the client saw of it.
func (c *client) do(in asked) told {
	in.client, in.actor = c.number, c.actor()
	for {
		h, next := c.nodes[c.number%len(c.nodes)].now()
		c.begin(&in)
		s := seen{call: c.seq.Add(1)}
		ctx, cancel := context.WithCancel(bg)
		answered := make(chan told, 1)
		unheard := &told{unknown: true}
		c.left.Go(func() {
			out := c.call(ctx, h, &in)
			c.end(&in)
			*unheard = out
			answered <- out
		})
		leaves := c.rnd.IntN(16) == 0
		if leaves {
			loiter(40)
			s.out = told{unknown: true, on: in.on, by: nobody}
		} else {
			s.out = <-answered
		}
		cancel()
		if s.out.code == handoff.CodeUnavailable { // nothing was done, the hub says
			select {
			case <-next:
			case <-time.After(20 * time.Second):
				c.t.Errorf("%+v: the hub is not there: %+v", in, s.out)
				return s.out
			}
			continue
		}
		in.till = c.f.Clock.Now().UnixMicro()
		s.in, s.unheard, s.ret = in, unheard, c.seq.Add(1)
		if s.out.unknown {
			c.cutOff.Add(1)
		}
		c.add(s)
		c.remember(&in, &s.out)
		return s.out
	}
}

func (c *client) remember(in *asked, out *told) {
	switch {
	case out.unknown || out.none:
	case out.code != "" || out.state.Terminal() || out.state == handoff.Open:
		delete(c.holds, in.on)
	case out.holder == c.actor() && out.epoch > 0:
		c.holds[out.on] = out.epoch
	}
}

// call is the call itself. In and out are told apart here and nowhere else.
func (c *client) call(ctx context.Context, h *hub.Hub, in *asked) told {
	call := c.calls[in.actor]
	hold := hub.HoldInput{ProjectRoot: c.root, AgentID: call.Actor.Handle, IdempotencyKey: in.key}
	if in.on >= 0 {
		hold.ThreadID = c.id(in.on)
	}
	if in.epoch > 0 {
		hold.ClaimEpoch = &in.epoch
	}
	var work *hub.Work
	var err error
	switch in.verb {
	case "create":
		return c.open(ctx, h, call, in)
	case "claim", "next":
		var out hub.ClaimResult
		out, err = h.Claim(ctx, call, hub.ClaimInput{ProjectRoot: c.root, AgentID: hold.AgentID, ThreadID: hold.ThreadID, Lease: in.lease / 1e6, IdempotencyKey: in.key})
		if work = out.Work; work == nil && err == nil {
			return told{none: true, on: -1, by: nobody}
		}
	case "extend":
		var out hub.Extended
		out, err = h.Extend(ctx, call, hub.ExtendInput{HoldInput: hold, Lease: in.lease / 1e6})
		if err == nil {
			return told{on: in.on, by: nobody, replay: out.Replay, epoch: out.Epoch, holder: in.actor, ends: micros(out.LeaseExpiresAt), state: handoff.Claimed}
		}
	case "release":
		work, err = one(h.Release(ctx, call, hub.ReleaseInput{HoldInput: hold}))
	case "complete":
		work, err = one(h.Deliver(ctx, call, hub.DeliverInput{HoldInput: hold, Result: json.RawMessage(in.text)}))
	case "verify":
		work, err = one(h.Verify(ctx, call, hub.VerifyInput{HoldInput: hold, Verdict: map[bool]string{true: "pass", false: "fail"}[in.pass], Feedback: in.text}))
	case "reject":
		work, err = one(h.Reject(ctx, call, hub.RejectInput{HoldInput: hold, Reason: in.text}))
	case "cancel":
		work, err = one(h.TakeBack(ctx, call, hub.TakeBackInput{HoldInput: hold, Reason: in.text}))
	case "get":
		work, err = one(h.Get(ctx, call, hub.GetInput{ProjectRoot: c.root, AgentID: hold.AgentID, HandoffID: hold.ThreadID}))
	}
	if err != nil {
		return c.refused(in, err)
	}
	row := &work.Handoff
	out := told{on: c.history.number(row.ID, row.Payload), by: nobody, replay: work.Replay, state: row.State, epoch: row.Epoch, holder: nobody, ends: micros(row.LeaseExpiresAt)}
	if row.Holder != "" {
		out.holder = c.who[row.Holder]
	}
	return out
}

func (c *client) open(ctx context.Context, h *hub.Hub, call hub.Call, in *asked) told {
	open := hub.OpenInput{
		ProjectRoot: c.root, From: call.Actor.Handle, Visibility: "public", Target: json.RawMessage(codeTarget), IdempotencyKey: in.key,
		Payload: json.RawMessage(fmt.Sprint(in.on)), Priority: map[int]string{-1: "low", 0: "normal", 1: "high"}[in.made.priority],
	}
	if in.made.review {
		open.Target = json.RawMessage(`{"strategy":"capability","capability":"review"}`)
	}
	if in.made.criteria {
		open.Criteria = criteria
	}
	made, err := h.Open(ctx, call, open)
	if err != nil {
		return c.refused(in, err)
	}
	c.history.number(made.HandoffID, open.Payload)
	state := handoff.State(strings.ToLower(made.Status))
	return told{on: in.on, by: nobody, replay: made.Replay, state: state, place: fmt.Sprintf("%d %020d %s", 1-in.made.priority, made.CreatedAt.UnixMicro(), made.HandoffID)}
}

// refused tells a refusal from an answer that leaves open what was done.
func (c *client) refused(in *asked, err error) told {
	out := told{on: in.on, by: nobody, code: handoff.CodeOf(err)}
	var e *handoff.Error
	switch {
	case !errors.As(err, &e):
		c.t.Errorf("%+v: %v", in, err)
	case e.Code == handoff.CodeUnavailable && !strings.Contains(e.Message, "nothing was written") && !strings.Contains(e.Message, "before anything was written") && in.verb != "get":
		return told{unknown: true, on: in.on, by: nobody}
	case e.Details["claimed_by"] != nil:
		out.by = c.who[e.Details["claimed_by"].(string)]
	}
	return out
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}
