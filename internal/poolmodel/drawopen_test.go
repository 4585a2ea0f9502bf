package poolmodel_test

import (
	"strings"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/poolmodel"
)

// create draws a new open handoff, at times with something wrong in it.
func (d *draw) create() poolmodel.Call {
	c := poolmodel.Call{Verb: poolmodel.Create, Actor: d.actor(), Root: one(d, rootNames), Key: d.key()}
	c.As = c.Actor
	o := &poolmodel.Open{
		Target: d.target(c.Actor, 0), Visibility: one(d, []string{"private", "eligible", "public", "Public"}),
		Payload: one(d, []string{`{"n":1.50,"s":"x"}`, "", "null", `"text"`}), Priority: one(d, []string{"", "", "normal", "high", "low", "High"}),
	}
	if rapid.Bool().Draw(d.t, "criteria") {
		o.Criteria, o.VerifyBy = true, d.verifyBy()
	}
	if rapid.IntRange(0, 3).Draw(d.t, "depends") == 3 {
		for range rapid.IntRange(1, 3).Draw(d.t, "") {
			if len(d.m.Handoffs) > 0 {
				o.DependsOn = append(o.DependsOn, one(d, d.m.Handoffs).Name)
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(d.t, "expires") == 3 {
		o.ExpiresIn = one(d, []int64{60, 200, 600, 3600})
	}
	c.Open = o
	switch rapid.IntRange(0, 50).Draw(d.t, "fault") {
	case 50:
		c.As = one(d, crew)
	case 49:
		c.Root = ""
	case 48:
		o.Visibility = "secret"
	case 47:
		o.ExpiresIn = one(d, []int64{59, 31_536_001, -1})
	case 46:
		o.Criteria, o.VerifyBy = false, &poolmodel.VerifyBy{Kind: "creator"}
	case 45:
		o.Priority = "urgent"
	case 44:
		o.DependsOn = append(o.DependsOn, "nothing")
	case 43:
		o.Target = &poolmodel.Target{Strategy: poolmodel.Capability, Capabilities: []string{"code", unknown}}
	case 42:
		o.Target = &poolmodel.Target{Strategy: poolmodel.Tag, Selector: []poolmodel.Requirement{{Key: "team", Operator: "In", Values: []string{unknown}}}}
	}
	return c
}

func (d *draw) verifyBy() *poolmodel.VerifyBy {
	switch one(d, []string{"", "creator", "agent", "capability"}) {
	case "creator":
		return &poolmodel.VerifyBy{Kind: "creator"}
	case "agent":
		return &poolmodel.VerifyBy{Kind: "agent", Agent: d.handle()}
	case "capability":
		return &poolmodel.VerifyBy{Kind: "capability", Capability: one(d, capabilities)}
	}
	return nil
}

var strategies = []string{
	poolmodel.Broadcast, poolmodel.Capability, poolmodel.Capability, poolmodel.Direct, poolmodel.Direct, poolmodel.Role,
	poolmodel.Tag, poolmodel.Tag, poolmodel.Mixed, poolmodel.Fallback, poolmodel.Fallback, poolmodel.Fallback,
}

// target draws one; inside another there is no broadcast and no fallback.
func (d *draw) target(creator string, depth int) *poolmodel.Target {
	t := &poolmodel.Target{Strategy: one(d, strategies)}
	switch {
	case depth > 0 && t.Strategy == poolmodel.Broadcast, depth > 0 && t.Strategy == poolmodel.Fallback, depth > 1 && t.Strategy == poolmodel.Mixed:
		t.Strategy = poolmodel.Capability
	}
	switch t.Strategy {
	case poolmodel.Direct:
		t.Agent = d.addressee(creator)
	case poolmodel.Capability:
		if t.Capabilities = some(d, capabilities); len(t.Capabilities) == 0 {
			t.Capabilities = []string{"code"}
		}
	case poolmodel.Role:
		t.Role = one(d, roles[1:])
	case poolmodel.Tag:
		d.selector(t)
	case poolmodel.Mixed:
		for range rapid.IntRange(1, 3).Draw(d.t, "rules") {
			t.Rules = append(t.Rules, d.target(creator, depth+1))
		}
	case poolmodel.Fallback:
		t.Agent = d.addressee(creator)
		t.After = time.Duration(one(d, []int{1, 60, 600})) * time.Second
		if rapid.Bool().Draw(d.t, "pool") {
			t.Pool = d.target(creator, depth+1)
		}
	}
	return t
}

// addressee names an agent, at times one that keeps the creator away.
func (d *draw) addressee(creator string) string {
	if d.rarely(10) {
		for _, who := range crew {
			if d.m.Blocks(who, creator) {
				return who
			}
		}
	}
	return d.handle()
}

// handle names an agent of the crew in some case, now and then nobody.
func (d *draw) handle() string {
	switch handle := one(d, crew); rapid.IntRange(0, 19).Draw(d.t, "handle") {
	case 19, 17:
		return late
	case 18:
		return strings.ToUpper(handle)
	default:
		return handle
	}
}

func (d *draw) selector(t *poolmodel.Target) {
	t.Flat = rapid.Bool().Draw(d.t, "flat")
	for _, key := range tagKeys {
		r := poolmodel.Requirement{Key: key, Operator: "In"}
		if !t.Flat {
			r.Operator = one(d, []string{"In", "NotIn", "Exists", "DoesNotExist"})
		}
		if r.Operator == "In" || r.Operator == "NotIn" {
			if r.Values = some(d, tagValues[key]); len(r.Values) == 0 {
				r.Values = tagValues[key][:1]
			}
		}
		if key == "team" || rapid.Bool().Draw(d.t, "both") {
			t.Selector = append(t.Selector, r)
		}
	}
}
