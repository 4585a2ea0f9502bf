package poolmodel

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// The strategies of a target.
const (
	Direct     = "direct"
	Capability = "capability"
	Role       = "role"
	Tag        = "tag"
	Broadcast  = "broadcast"
	Mixed      = "mixed"
	Fallback   = "direct_with_fallback"
)

// Target says who may claim.
type Target struct {
	Strategy     string
	Agent        string
	Capabilities []string
	Role         string
	Selector     []Requirement
	Flat         bool // written as {key: [values]}: all of them In
	Rules        []*Target
	After        time.Duration
	Pool         *Target // the fallback; nil is a broadcast
}

// Requirement is one condition on the tags.
type Requirement struct {
	Key      string   `json:"key"`
	Operator string   `json:"operator"`
	Values   []string `json:"values,omitempty"`
}

// JSON is the target as a caller writes it.
func (t *Target) JSON() json.RawMessage {
	b, err := json.Marshal(t.wire())
	if err != nil {
		panic(err)
	}
	return b
}

func (t *Target) wire() map[string]any {
	w := map[string]any{"strategy": t.Strategy}
	switch t.Strategy {
	case Direct:
		w["agent_id"] = t.Agent
	case Capability:
		w["capability"] = t.Capabilities
		if len(t.Capabilities) == 1 {
			w["capability"] = t.Capabilities[0]
		}
	case Role:
		w["role"] = t.Role
	case Tag:
		w["selector"] = t.Selector
		if t.Flat {
			flat := map[string][]string{}
			for _, r := range t.Selector {
				flat[r.Key] = r.Values
			}
			w["selector"] = flat
		}
	case Mixed:
		var rules []any
		for _, r := range t.Rules {
			rules = append(rules, r.wire())
		}
		w["rules"] = rules
	case Fallback:
		w["agent_id"] = t.Agent
		w["fallback_after_seconds"] = int64(t.After / time.Second)
		if t.Pool != nil {
			w["fallback"] = t.Pool.wire()
		}
	}
	return w
}

// all are t and every target within it.
func (t *Target) all() []*Target {
	list := []*Target{t}
	for _, r := range t.Rules {
		list = append(list, r.all()...)
	}
	if t.Pool != nil {
		list = append(list, t.Pool.all()...)
	}
	return list
}

// words are what t names of the catalog.
func (t *Target) words() []string {
	var list []string
	for _, s := range t.all() {
		list = append(list, s.Capabilities...)
		for _, r := range s.Selector {
			list = append(list, r.Key)
			for _, v := range r.Values {
				list = append(list, r.Key+"="+v)
			}
		}
	}
	return list
}

// only is the one agent that can ever claim; empty when there may be others.
func (t *Target) only() string {
	one := ""
	for _, s := range t.all() {
		switch {
		case s.Strategy == Mixed:
			continue
		case s.Strategy == Fallback && s.Pool == nil, s.Strategy != Fallback && s.Strategy != Direct:
			return ""
		case one == "":
			one = s.Agent
		case !strings.EqualFold(one, s.Agent):
			return ""
		}
	}
	return one
}

// names reports whether the target names the agent directly.
func (t *Target) names(a *Agent, pool bool) bool {
	switch t.Strategy {
	case Direct:
		return strings.EqualFold(t.Agent, a.Handle)
	case Mixed:
		return slices.ContainsFunc(t.Rules, func(r *Target) bool { return r.names(a, pool) })
	case Fallback:
		return strings.EqualFold(t.Agent, a.Handle) || pool && t.Pool != nil && t.Pool.names(a, pool)
	}
	return false
}

// matches reports whether the agent is one of those the target means. pool says whether the
// fallback counts.
func (t *Target) matches(a *Agent, pool bool) bool {
	switch t.Strategy {
	case Direct:
		return strings.EqualFold(t.Agent, a.Handle)
	case Capability:
		return slices.ContainsFunc(t.Capabilities, a.offers)
	case Role:
		return t.Role == a.Role
	case Tag:
		return !slices.ContainsFunc(t.Selector, func(r Requirement) bool { return !r.holds(a.Tags) })
	case Broadcast:
		return true
	case Mixed:
		return slices.ContainsFunc(t.Rules, func(r *Target) bool { return r.matches(a, pool) })
	case Fallback:
		return strings.EqualFold(t.Agent, a.Handle) || pool && (t.Pool == nil || t.Pool.matches(a, pool))
	}
	panic(t.Strategy)
}

func (r Requirement) holds(tags map[string][]string) bool {
	values, has := tags[r.Key]
	in := slices.ContainsFunc(values, func(v string) bool {
		return slices.ContainsFunc(r.Values, func(want string) bool { return covers(want, v) })
	})
	switch r.Operator {
	case "In":
		return in
	case "NotIn":
		return !in
	case "Exists":
		return has
	case "DoesNotExist":
		return !has
	}
	panic(r.Operator)
}

// covers: ENG covers ENG and ENG/BACKEND, never ENGX.
func covers(want, value string) bool {
	return value == want || strings.HasPrefix(value, want+"/")
}

// Means reports whether the agent is one of those the target means, sooner or later.
func (t *Target) Means(a *Agent) bool { return t.matches(a, true) }
