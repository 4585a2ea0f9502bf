package poolmodel_test

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/poolmodel"
)

// The words of all programs.
var (
	crew         = []string{"ann@acme", "bob@acme", "cid@acme", "dora@acme", "eve@rim", "fay", "Gil@acme"}
	capabilities = []string{"code", "review", "test"}
	roles        = []string{"", "dev", "qa", "Dev"}
	tagValues    = map[string][]string{"team": {"eng", "eng/backend", "eng/backend/db", "engx", "ops"}, "env": {"prod", "dev"}}
	tagKeys      = []string{"team", "env"}
	rootNames    = []string{"one", "two", "uno"} // the last is another name of the first
)

// late is an agent that registers during a program, if at all.
const late = "late@acme"

// unknown is a word that the catalog lacks.
const unknown = "ghost"

// vocabulary is an agent that has every word, so that the catalog does.
func vocabulary(handle string) poolmodel.Agent {
	return poolmodel.Agent{Handle: handle, Capabilities: capabilities, Tags: tagValues}
}

func catalog() []string {
	list := append([]string{}, capabilities...)
	for key, values := range tagValues {
		list = append(list, key)
		for _, v := range values {
			list = append(list, key+"="+v)
		}
	}
	return list
}

// draw makes programs, one choice after the other.
type draw struct {
	t *rapid.T
	m *poolmodel.Model
	// made are the calls so far that may be repeated, done those that did something under a key.
	made, done []poolmodel.Call
	keys       int
}

func one[T any](d *draw, list []T) T { return rapid.SampledFrom(list).Draw(d.t, "") }

// some is a subset.
func some[T any](d *draw, list []T) []T {
	var got []T
	for _, v := range list {
		if rapid.Bool().Draw(d.t, "") {
			got = append(got, v)
		}
	}
	return got
}

// rarely is true in that many of a hundred cases.
func (d *draw) rarely(percent int) bool { return rapid.IntRange(0, 99).Draw(d.t, "") >= 100-percent }

func (d *draw) agents() []poolmodel.Agent {
	var list []poolmodel.Agent
	on := rapid.IntRange(4, len(crew)).Draw(d.t, "agents")
	for i, handle := range crew {
		a := d.labels()
		a.Handle, a.Disabled = handle, i >= on
		list = append(list, a)
	}
	return list
}

func (d *draw) labels() poolmodel.Agent {
	a := poolmodel.Agent{Role: one(d, roles), Capabilities: some(d, capabilities), Tags: map[string][]string{}}
	for _, key := range tagKeys {
		if values := some(d, tagValues[key]); len(values) > 0 && rapid.Bool().Draw(d.t, "") {
			a.Tags[key] = values
		}
	}
	return a
}

func workspaces() map[string]*poolmodel.Workspace {
	list := map[string]*poolmodel.Workspace{}
	for _, name := range rootNames {
		list[name] = &poolmodel.Workspace{Members: map[string]bool{}}
	}
	return list
}

// setting is what the operator does before a program begins.
func (d *draw) setting() []poolmodel.Call {
	list := []poolmodel.Call{{Verb: poolmodel.Alias, Root: "one", To: "uno"}}
	for _, root := range rootNames[:2] {
		if d.rarely(85) {
			continue
		}
		list = append(list, poolmodel.Call{Verb: poolmodel.Restrict, Root: root})
		for _, who := range crew {
			if d.rarely(25) {
				continue
			}
			list = append(list, poolmodel.Call{Verb: poolmodel.Admit, Root: root, To: who})
		}
	}
	for i := range list {
		list[i].Actor = poolmodel.Operator
	}
	for range 3 * rapid.IntRange(0, 1).Draw(d.t, "blocks") {
		list = append(list, d.block())
	}
	return list
}

// block is one agent that keeps another away, or lets it in again.
func (d *draw) block() poolmodel.Call {
	c := poolmodel.Call{Verb: poolmodel.Block, Actor: one(d, d.active()), To: one(d, d.m.Handles()), Disabled: !d.rarely(20)}
	if c.Actor == c.To {
		c.Disabled = false
		c.Actor, c.To = "ann@acme", "bob@acme"
	}
	return c
}

// active are those who can call.
func (d *draw) active() []string {
	var list []string
	for _, handle := range d.m.Handles() {
		if !d.m.Agents[handle].Disabled {
			list = append(list, handle)
		}
	}
	return list
}

// moment is when the next call happens: soon, or just around something that the clock does.
func (d *draw) moment(now time.Time) time.Time {
	soon := now.Add(time.Millisecond)
	switch kind := rapid.IntRange(0, 19).Draw(d.t, "time"); {
	case kind < 14:
		return soon
	case kind < 17:
		var dues []time.Time
		for _, h := range d.m.Handoffs {
			if due := h.Due(); due.After(soon.Add(time.Millisecond)) {
				dues = append(dues, due)
			}
		}
		if len(dues) == 0 {
			return soon
		}
		return one(d, dues).Add(time.Duration(rapid.IntRange(-1, 1).Draw(d.t, "")) * time.Millisecond)
	}
	return now.Add(time.Duration(one(d, []int{5, 30, 5, 30, 120, 300, 1800})) * time.Second)
}

// handoff picks one by preference: those for which fit holds, else any, now and then nothing.
func (d *draw) handoff(fit func(*poolmodel.Handoff) bool) *poolmodel.Handoff {
	var fits []*poolmodel.Handoff
	for _, h := range d.m.Handoffs {
		if fit(h) {
			fits = append(fits, h)
		}
	}
	if len(fits) == 0 || d.rarely(15) {
		fits = d.m.Handoffs
	}
	return one(d, fits)
}

// actor prefers the one who should call.
func (d *draw) actor(right ...string) string {
	active := d.active()
	var list []string
	for _, who := range right {
		if a := d.m.Agents[who]; a != nil && !a.Disabled {
			list = append(list, who)
		}
	}
	if len(list) == 0 || d.rarely(20) {
		return one(d, active)
	}
	return one(d, list)
}

// on is a call about a handoff, sometimes with a fault in who, where or what.
func (d *draw) on(verb string, h *poolmodel.Handoff, actor string) poolmodel.Call {
	c := poolmodel.Call{Verb: verb, Actor: actor, As: actor, Root: d.rootOf(h), Handoff: h.Name, Key: d.key()}
	switch rapid.IntRange(0, 60).Draw(d.t, "fault") {
	case 60:
		c.As = one(d, crew)
	case 59:
		c.Handoff = "nothing"
	case 58:
		c.Root = one(d, rootNames)
	case 57:
		c.Root = ""
	}
	return c
}

// rootOf is one of the names of a workspace.
func (d *draw) rootOf(h *poolmodel.Handoff) string {
	names := []string{h.Workspace}
	for name, of := range d.m.Aliases {
		if of == h.Workspace {
			names = append(names, name)
		}
	}
	slices.Sort(names[1:])
	return one(d, names)
}

// key gives every second call a key.
func (d *draw) key() string {
	if rapid.Bool().Draw(d.t, "key") {
		d.keys++
		return fmt.Sprintf("k%d", d.keys)
	}
	return ""
}

func (d *draw) epoch(h *poolmodel.Handoff) *int {
	switch rapid.IntRange(0, 9).Draw(d.t, "epoch") {
	case 0, 1, 2:
		return nil
	case 8:
		return new(h.Epoch - 1)
	case 9:
		return new(h.Epoch + 1)
	}
	return new(h.Epoch)
}

func (d *draw) lease() int64 {
	if d.rarely(4) {
		return one(d, []int64{9, 86_401})
	}
	return one(d, []int64{0, 300, 10, 60, 120, 30, 86_400})
}

func (d *draw) text() string { return one(d, []string{"", "because", "no time"}) }
