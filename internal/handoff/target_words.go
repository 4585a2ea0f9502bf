package handoff

import (
	"fmt"
	"strings"
)

// Words says in a line, for a person, who may claim: "capability review or deploy". Names stand
// there as they came, so whoever shows the line makes them harmless.
func (t *Target) Words() string {
	if t == nil {
		return ""
	}
	switch t.Strategy {
	case StrategyDirect:
		return t.AgentID
	case StrategyCapability:
		return "capability " + strings.Join(t.Capabilities, " or ")
	case StrategyRole:
		return "role " + t.Role
	case StrategyTag:
		lines := make([]string, len(t.Selector))
		for i, r := range t.Selector {
			lines[i] = r.words()
		}
		return "tag " + strings.Join(lines, " and ")
	case StrategyBroadcast:
		return "any agent"
	case StrategyMixed:
		rules := make([]string, len(t.Rules))
		for i, r := range t.Rules {
			rules[i] = r.Words()
		}
		return "(" + strings.Join(rules, ") or (") + ")"
	case StrategyDirectWithFallback:
		return fmt.Sprintf("%s, after %d s also %s", t.AgentID, t.FallbackAfterSeconds, t.Fallback.Words())
	}
	return string(t.Strategy)
}

func (r Requirement) words() string {
	values := strings.Join(r.Values, "|")
	switch r.Operator {
	case OpIn:
		return r.Key + "=" + values
	case OpNotIn:
		return r.Key + "≠" + values
	case OpDoesNotExist:
		return "no " + r.Key
	}
	return r.Key
}
