package poolmodel_test

import (
	"slices"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/poolmodel"
)

// note remembers a call that may be repeated.
func (d *draw) note(c poolmodel.Call, r poolmodel.Reply) {
	switch c.Verb {
	case poolmodel.List, poolmodel.Get, poolmodel.View, poolmodel.Block:
		return
	}
	if c.Actor == poolmodel.Operator {
		return
	}
	d.made = append(d.made, c)
	if c.Key != "" && r.Code == "" && !r.Replay {
		d.done = append(d.done, c)
	}
}

// call draws the next one.
func (d *draw) call() poolmodel.Call {
	kind := d.possible(one(d, kinds))
	if kind == poolmodel.Create {
		return d.create()
	}
	switch kind {
	case repeat:
		if len(d.made) > 0 {
			return d.repeated()
		}
		return d.create()
	case poolmodel.Claim, poolmodel.Accept:
		return d.claim(kind)
	case claimNext:
		c := poolmodel.Call{Verb: poolmodel.Claim, Actor: d.actor(), Root: one(d, rootNames), Key: d.key(), Lease: d.lease()}
		c.As = c.Actor
		return c
	case poolmodel.List:
		c := poolmodel.Call{Verb: kind, Actor: d.actor(), Root: one(d, rootNames), Limit: one(d, []int{0, 1, 2, 500}), Scope: one(d, []string{"available", "", "mine_created", "mine_claimed", "to_verify", "all"})}
		c.As = c.Actor
		return c
	case poolmodel.Extend, poolmodel.Release, poolmodel.Deliver, poolmodel.Complete, poolmodel.Reject, poolmodel.Decline:
		return d.hold(kind)
	case poolmodel.Verify:
		h := d.handoff(func(h *poolmodel.Handoff) bool { return h.State == handoff.Verifying })
		c := d.on(kind, h, d.actor(d.verifiers(h)...))
		c.Epoch, c.Pass = d.epoch(h), rapid.Bool().Draw(d.t, "pass")
		if !c.Pass || d.rarely(5) {
			c.Text = d.text()
		}
		return c
	case poolmodel.TakeBack, poolmodel.Cancel:
		h := d.handoff(func(h *poolmodel.Handoff) bool { return h.State == handoff.Open })
		c := d.on(kind, h, d.actor(h.Creator))
		c.Text = d.text()
		return c
	case poolmodel.Get, poolmodel.View:
		h := one(d, d.m.Handoffs)
		c := d.on(kind, h, d.actor(h.Creator, h.Holder, h.Recipient, one(d, d.active())))
		c.Key = ""
		return c
	case poolmodel.Send:
		h := d.handoff(func(h *poolmodel.Handoff) bool { return !h.State.Terminal() })
		c := d.on(kind, h, d.actor(h.Creator, h.Holder, h.Recipient))
		c.Text, c.Asks = one(d, []string{"hello", "hello", "bye", ""}), d.rarely(30)
		return c
	}
	if kind == operator {
		kind = one(d, []string{poolmodel.Admit, poolmodel.Admit, poolmodel.Restrict, poolmodel.Register, poolmodel.Alias})
	}
	return d.operators(kind)
}

// possible leads towards a verb that nothing is there for: without delivered work something is
// completed, without a holder something is claimed, without anything open something is created.
func (d *draw) possible(kind string) string {
	if len(d.m.Handoffs) == 0 {
		return poolmodel.Create
	}
	if d.rarely(15) {
		return kind
	}
	in := func(s handoff.State) bool {
		return slices.ContainsFunc(d.m.Handoffs, func(h *poolmodel.Handoff) bool { return h.State == s })
	}
	if kind == poolmodel.Verify && !in(handoff.Verifying) {
		kind = poolmodel.Deliver
	}
	switch kind {
	case poolmodel.Extend, poolmodel.Release, poolmodel.Deliver, poolmodel.Complete, poolmodel.Reject:
		if !in(handoff.Claimed) {
			kind = poolmodel.Claim
		}
	}
	switch kind {
	case poolmodel.Claim, poolmodel.Accept, claimNext, poolmodel.TakeBack, poolmodel.Cancel, poolmodel.Decline:
		if !in(handoff.Open) {
			kind = poolmodel.Create
		}
	}
	return kind
}

const (
	repeat    = "repeat"
	operator  = "operator"
	claimNext = "claim next"
)

// weights says how often a kind of call comes. What comes first comes a little more often than that.
var weights = []struct {
	kind   string
	weight int
}{
	{poolmodel.Verify, 9},
	{poolmodel.Deliver, 8},
	{repeat, 14},
	{poolmodel.Claim, 10},
	{poolmodel.Create, 10},
	{claimNext, 6},
	{poolmodel.List, 8},
	{poolmodel.Get, 5},
	{poolmodel.Reassign, 4},
	{poolmodel.Accept, 4},
	{poolmodel.Complete, 4},
	{poolmodel.Decline, 4},
	{poolmodel.Reject, 4},
	{poolmodel.Release, 4},
	{poolmodel.Extend, 4},
	{poolmodel.TakeBack, 3},
	{poolmodel.Cancel, 2},
	{poolmodel.View, 4},
	{poolmodel.Send, 4},
	{poolmodel.CancelAny, 2},
	{poolmodel.Disable, 3},
	{poolmodel.Edit, 2},
	{poolmodel.Block, 2},
	{operator, 2},
}

// kinds holds each kind of call as often as it is to come, all of them at the beginning and at the end.
var kinds = spread()

func spread() []string {
	var list []string
	for turn, more := 0, true; more; turn++ {
		more = false
		for _, w := range weights {
			if turn < w.weight {
				list, more = append(list, w.kind), true
			}
		}
	}
	return list
}

func (d *draw) claim(verb string) poolmodel.Call {
	want := handoff.Open
	if d.rarely(25) {
		want = handoff.Claimed
	}
	h := d.handoff(func(h *poolmodel.Handoff) bool { return h.State == want })
	var right, meant []string
	for _, who := range d.active() {
		if d.m.Claimable(h, who) {
			right = append(right, who)
		}
		if h.Target.Means(d.m.Agents[who]) {
			meant = append(meant, who)
		}
	}
	if len(right) == 0 || want == handoff.Claimed {
		right = meant
	}
	c := d.on(verb, h, d.actor(right...))
	c.Lease = d.lease()
	return c
}

func (d *draw) hold(verb string) poolmodel.Call {
	h := d.handoff(func(h *poolmodel.Handoff) bool { return h.State == handoff.Claimed })
	if verb == poolmodel.Decline {
		h = d.handoff(func(h *poolmodel.Handoff) bool { return h.State == handoff.Open && h.Recipient != "" })
	}
	right := []string{h.Holder}
	if h.State == handoff.Open {
		right = []string{h.Recipient}
	}
	c := d.on(verb, h, d.actor(right...))
	c.Epoch = d.epoch(h)
	switch verb {
	case poolmodel.Extend:
		c.Lease = d.lease()
	case poolmodel.Deliver:
		c.Result = one(d, []string{"", `{"done":true}`, `null`})
	default:
		c.Text = d.text()
	}
	if c.Text == "" && (verb == poolmodel.Complete || verb == poolmodel.Decline) && !d.rarely(10) {
		c.Text = "a text"
	}
	return c
}

func (d *draw) verifiers(h *poolmodel.Handoff) []string {
	if h.VerifyBy == nil {
		return []string{h.Creator}
	}
	switch h.VerifyBy.Kind {
	case "creator":
		return []string{h.Creator, h.Holder}
	case "agent":
		return []string{h.VerifyBy.Agent, h.Holder}
	}
	var list []string
	for _, who := range d.active() {
		for _, c := range d.m.Agents[who].Capabilities {
			if c == h.VerifyBy.Capability {
				list = append(list, who)
			}
		}
	}
	return list
}

// repeated is a call that was made before: exactly, without its key, or with another input.
func (d *draw) repeated() poolmodel.Call {
	from := d.made
	if len(d.done) > 0 && !d.rarely(30) {
		from = d.done
	}
	c := from[len(from)-1-min(len(from)-1, rapid.IntRange(0, 20).Draw(d.t, "back"))]
	if a := d.m.Agents[c.Actor]; a != nil && a.Disabled {
		return d.create()
	}
	switch rapid.IntRange(0, 5).Draw(d.t, "how") {
	case 3:
		c.Key = ""
	case 4: // the other door
		twin := map[string]string{
			poolmodel.Claim: poolmodel.Accept, poolmodel.Accept: poolmodel.Claim, poolmodel.Reject: poolmodel.Decline, poolmodel.Decline: poolmodel.Reject,
			poolmodel.TakeBack: poolmodel.Cancel, poolmodel.Cancel: poolmodel.TakeBack, poolmodel.Deliver: poolmodel.Complete, poolmodel.Complete: poolmodel.Deliver,
		}[c.Verb]
		if twin != "" && c.Handoff != "" {
			c.Verb = twin
		}
		if c.Verb == poolmodel.Complete && c.Text == "" {
			c.Result, c.Text = "", "done"
		}
		if c.Verb == poolmodel.Deliver {
			c.Text = ""
		}
		if c.Verb == poolmodel.Decline && c.Text == "" {
			c.Verb = poolmodel.Reject
		}
		if c.Verb == poolmodel.Cancel {
			c.Epoch = nil
		}
	case 5:
		switch {
		case c.Open != nil:
			o := *c.Open
			o.Payload = `"another"`
			c.Open = &o
		case c.Verb == poolmodel.Claim || c.Verb == poolmodel.Accept || c.Verb == poolmodel.Extend:
			c.Lease = 77
		case c.Verb == poolmodel.Deliver:
			c.Result = `"another"`
		case !c.Pass:
			c.Text = "another"
		}
	}
	return c
}

// operators are the calls of the operator, and blocks.
func (d *draw) operators(verb string) poolmodel.Call {
	c := poolmodel.Call{Verb: verb, Actor: poolmodel.Operator}
	switch verb {
	case poolmodel.CancelAny:
		h := d.handoff(func(h *poolmodel.Handoff) bool { return !h.State.Terminal() })
		c.Handoff, c.Text = h.Name, one(d, []string{"because", "no time", ""})
	case poolmodel.Reassign:
		h := d.handoff(func(h *poolmodel.Handoff) bool { return h.State == handoff.Claimed || h.State == handoff.Verifying })
		c.Handoff, c.Text, c.To = h.Name, one(d, []string{"because", "no time", ""}), one(d, append([]string{"nobody@acme"}, d.m.Handles()...))
	case poolmodel.Disable:
		c.To, c.Disabled = one(d, d.m.Handles()), rapid.Bool().Draw(d.t, "off")
		if len(d.active()) < 3 {
			c.Disabled = false
		}
	case poolmodel.Edit:
		a := d.labels()
		c.To, c.Edit = one(d, d.m.Handles()), &a
	case poolmodel.Register:
		a := d.labels()
		c.To, c.Edit = late, &a
		if d.m.Agents[late] != nil {
			c.Verb = poolmodel.Edit
		}
	case poolmodel.Admit:
		c.Root, c.To, c.Disabled = one(d, rootNames), one(d, d.m.Handles()), rapid.Bool().Draw(d.t, "out")
	case poolmodel.Restrict:
		c.Root, c.Disabled = one(d, rootNames), rapid.Bool().Draw(d.t, "free")
	case poolmodel.Alias:
		c.Root, c.To = "one", "two"
	case poolmodel.Block:
		return d.block()
	}
	return c
}
