package handoff

import (
	"slices"
	"strings"
)

// HasFallback reports whether t is for one agent first and for a pool later.
func (t *Target) HasFallback() bool {
	return t != nil && t.Strategy == StrategyDirectWithFallback
}

// Matches reports whether the target lets a claim the handoff. fallbackOpen says whether the
// fallback of a direct_with_fallback target has opened. Capabilities, roles and tags compare
// exactly; agents are named by handle or by UUID, both without case. State, disabling and
// who declined are not its business.
func (t *Target) Matches(a *Agent, fallbackOpen bool) bool {
	if t == nil || a == nil {
		return false
	}
	switch t.Strategy {
	case StrategyDirect:
		return t.names(a)
	case StrategyCapability:
		return slices.ContainsFunc(t.Capabilities, a.HasCapability)
	case StrategyRole:
		return a.Role == t.Role
	case StrategyTag:
		return !slices.ContainsFunc(t.Selector, func(r Requirement) bool { return !r.holds(a) })
	case StrategyBroadcast:
		return true
	case StrategyMixed:
		return slices.ContainsFunc(t.Rules, func(rule *Target) bool { return rule.Matches(a, fallbackOpen) })
	case StrategyDirectWithFallback:
		return t.names(a) || (fallbackOpen && t.Fallback.Matches(a, fallbackOpen))
	}
	return false
}

// NamesDirectly reports whether the target names a itself, not only its kind: as a direct
// target, as the first of a direct_with_fallback, or as a direct rule anywhere inside. It
// does not ask whether the fallback is open; [Target.Matches] does.
func (t *Target) NamesDirectly(a *Agent) bool {
	if t == nil || a == nil {
		return false
	}
	return t.names(a) || t.Fallback.NamesDirectly(a) ||
		slices.ContainsFunc(t.Rules, func(rule *Target) bool { return rule.NamesDirectly(a) })
}

// names compares t's own agent with a.
func (t *Target) names(a *Agent) bool {
	return t.AgentID != "" && (sameHandle(t.AgentID, a.Handle) || sameHandle(t.AgentID, a.ID))
}

func (r Requirement) holds(a *Agent) bool {
	tags, exists := a.Tags[r.Key]
	switch r.Operator {
	case OpIn:
		return r.coversAny(tags)
	case OpNotIn:
		return !r.coversAny(tags)
	case OpExists:
		return exists
	case OpDoesNotExist:
		return !exists
	}
	return false
}

func (r Requirement) coversAny(tags []string) bool {
	return slices.ContainsFunc(tags, func(tag string) bool {
		return slices.ContainsFunc(r.Values, func(value string) bool { return covers(value, tag) })
	})
}

// covers: a value stands for itself and for what lies below it by whole segments, ENG for
// ENG/BACKEND and never for ENGX.
func covers(value, tag string) bool {
	below, ok := strings.CutPrefix(tag, value)
	return ok && (below == "" || below[0] == '/')
}

// The keys of the claimability index (architecture: "Claimability index").
const (
	keyAny = "any"
	// keyScan marks targets that no property of an agent can find, such as NotIn.
	keyScan = "scan"
)

// Keys are the keys under which the target is found: agent:<handle or UUID, folded>,
// cap:<name>, role:<name>, tag:<key> or tag:<key>=<value>, any, scan. Every agent that
// matches, now or once the fallback is open, has at least one of them among its [AgentKeys];
// an agent that has one need not match. Sorted, each once.
func (t *Target) Keys() []string {
	if t == nil {
		return nil
	}
	var keys []string
	switch t.Strategy {
	case StrategyDirect:
		keys = []string{agentKey(t.AgentID)}
	case StrategyCapability:
		for _, name := range t.Capabilities {
			keys = append(keys, "cap:"+name)
		}
	case StrategyRole:
		keys = []string{"role:" + t.Role}
	case StrategyTag:
		keys = selectorKeys(t.Selector)
	case StrategyBroadcast:
		keys = []string{keyAny}
	case StrategyMixed:
		for _, rule := range t.Rules {
			keys = append(keys, rule.Keys()...)
		}
	case StrategyDirectWithFallback:
		keys = append(t.Fallback.Keys(), agentKey(t.AgentID))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// selectorKeys takes one requirement only, since all must hold: the In with the fewest
// values, else an Exists.
func selectorKeys(selector []Requirement) []string {
	var in, exists []string
	for _, r := range selector {
		switch r.Operator {
		case OpIn:
			if in == nil || len(r.Values) < len(in) {
				in = nil
				for _, value := range r.Values {
					in = append(in, tagKey(r.Key, value))
				}
			}
		case OpExists:
			exists = []string{"tag:" + r.Key}
		}
	}
	switch {
	case in != nil:
		return in
	case exists != nil:
		return exists
	}
	return []string{keyScan}
}

// AgentKeys are the index keys that can stand for a; see [Target.Keys]. Sorted, each once.
func AgentKeys(a *Agent) []string {
	keys := []string{keyAny, keyScan, agentKey(a.Handle), agentKey(a.ID)}
	if a.Role != "" {
		keys = append(keys, "role:"+a.Role)
	}
	for _, name := range a.Capabilities {
		keys = append(keys, "cap:"+name)
	}
	for key, values := range a.Tags {
		keys = append(keys, "tag:"+key)
		for _, value := range values {
			keys = append(keys, tagKey(key, value))
			for i := range len(value) {
				if value[i] == '/' { // what covers it by whole segments
					keys = append(keys, tagKey(key, value[:i]))
				}
			}
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// SplitScan parts index keys into those that find little besides what matches, and those of targets
// that only exclude, under which anything may stand.
func SplitScan(keys []string) (indexed, scan []string) {
	for _, k := range keys {
		if k == keyScan {
			scan = append(scan, k)
			continue
		}
		indexed = append(indexed, k)
	}
	return indexed, scan
}

func agentKey(id string) string { return "agent:" + FoldHandle(id) }

func tagKey(key, value string) string { return "tag:" + key + "=" + value }

// TargetNames are the names in a target that must be known for it to be accepted. Each list
// is in order of appearance, without repetition.
type TargetNames struct {
	// Agents are the handles or UUIDs of direct targets, wherever they stand. The first
	// agent of a direct_with_fallback is not among them: it need not be registered yet.
	Agents       []string
	Capabilities []string
	TagKeys      []string
	// TagValues holds the values named per key; a key of Exists or DoesNotExist has none. A
	// value may stand for the segments below it, so ENG is known where ENG/BACKEND is.
	TagValues map[string][]string
}

// NamedOnly reports whether nobody but agents that the target names directly can ever claim.
func (t *Target) NamedOnly() bool {
	switch t.Strategy {
	case StrategyDirect:
		return true
	case StrategyMixed:
		return !slices.ContainsFunc(t.Rules, func(r *Target) bool { return !r.NamedOnly() })
	case StrategyDirectWithFallback:
		return t.Fallback.NamedOnly()
	}
	return false
}

// Names collects the names of the whole target, those under NotIn and DoesNotExist too: a
// misspelt exclusion would exclude nobody.
func (t *Target) Names() TargetNames {
	n := TargetNames{TagValues: map[string][]string{}}
	n.collect(t)
	return n
}

func (n *TargetNames) collect(t *Target) {
	if t == nil {
		return
	}
	if t.Strategy == StrategyDirect {
		n.Agents = addOnce(n.Agents, t.AgentID)
	}
	n.Capabilities = addOnce(n.Capabilities, t.Capabilities...)
	for _, r := range t.Selector {
		n.TagKeys = addOnce(n.TagKeys, r.Key)
		if len(r.Values) > 0 {
			n.TagValues[r.Key] = addOnce(n.TagValues[r.Key], r.Values...)
		}
	}
	for _, rule := range t.Rules {
		n.collect(rule)
	}
	n.collect(t.Fallback)
}

func addOnce(list []string, names ...string) []string {
	for _, name := range names {
		if !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}
