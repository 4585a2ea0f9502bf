package handoff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Strategy is the kind of a [Target].
type Strategy string

// The strategies (contracts: open-handoffs, "Target grammar").
const (
	StrategyDirect             Strategy = "direct"
	StrategyCapability         Strategy = "capability"
	StrategyRole               Strategy = "role"
	StrategyTag                Strategy = "tag"
	StrategyBroadcast          Strategy = "broadcast"
	StrategyMixed              Strategy = "mixed"
	StrategyDirectWithFallback Strategy = "direct_with_fallback"
)

// strategyFields lists what each strategy takes besides "strategy".
var strategyFields = map[Strategy][]string{
	StrategyDirect:             {"agent_id"},
	StrategyCapability:         {"capability"},
	StrategyRole:               {"role"},
	StrategyTag:                {"selector"},
	StrategyBroadcast:          {},
	StrategyMixed:              {"rules"},
	StrategyDirectWithFallback: {"agent_id", "fallback_after_seconds", "fallback"},
}

// Strategies lists the strategies in the order they are documented.
func Strategies() []string {
	return []string{
		string(StrategyDirect), string(StrategyCapability), string(StrategyRole), string(StrategyTag),
		string(StrategyBroadcast), string(StrategyMixed), string(StrategyDirectWithFallback),
	}
}

// maxFallbackSeconds is 30 days.
const maxFallbackSeconds = 2_592_000

// TagOperator is how a [Requirement] judges a tag.
type TagOperator string

// The operators of a rich selector.
const (
	OpIn           TagOperator = "In"
	OpNotIn        TagOperator = "NotIn"
	OpExists       TagOperator = "Exists"
	OpDoesNotExist TagOperator = "DoesNotExist"
)

var operators = []string{string(OpIn), string(OpNotIn), string(OpExists), string(OpDoesNotExist)}

// Requirement is one line of a selector; all lines must hold.
type Requirement struct {
	Key      string      `json:"key"`
	Operator TagOperator `json:"operator"`
	Values   []string    `json:"values,omitempty"` // In and NotIn only
}

// Target says who may claim a handoff. Which fields are set depends on the strategy. Its
// JSON is the grammar in one spelling: keys in fixed order, flat selectors sorted by key, a
// fallback that was left out written down; lists stay lists and the selector stays flat or
// rich as it came.
type Target struct {
	Strategy     Strategy
	AgentID      string        // direct, direct_with_fallback: a handle or UUID, as it came
	Capabilities []string      // capability: any of them
	Role         string        // role
	Selector     []Requirement // tag: all of them
	Rules        []*Target     // mixed: any of them
	// FallbackAfterSeconds and Fallback (never nil) belong to direct_with_fallback.
	FallbackAfterSeconds int
	Fallback             *Target

	list bool // the capability came as a list
	rich bool // the selector came as a list of requirements
}

// ParseTarget reads a target (contracts: open-handoffs, "Target grammar"). Whatever does not
// fit the grammar or its limits is invalid_params naming the place, such as
// target.rules[1].selector.team, with a near match for unknown strategies, operators and
// fields. A zero lim applies no limits: so stored targets stay readable.
//
// TargetRules counts all rules of all mixed targets together, TargetDepth how many mixed
// targets stand inside each other. Whether agents are registered and names in the catalog is
// the hub's to check, see [Target.Names].
func ParseTarget(raw json.RawMessage, lim Limits) (*Target, error) {
	if err := CheckRawJSON("target", raw, 0, 0); err != nil {
		return nil, err
	}
	p := targetParser{lim: lim}
	return p.parse("target", raw, 0)
}

// UnmarshalJSON reads back a stored target, without limits.
func (t *Target) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil // what encoding/json asks of every Unmarshaler
	}
	read, err := ParseTarget(b, Limits{})
	if err != nil {
		return err
	}
	*t = *read
	return nil
}

type targetParser struct {
	lim   Limits
	rules int // so far, in the whole target
}

// parse reads one target; mixed is how many mixed targets it stands in.
func (p *targetParser) parse(field string, raw json.RawMessage, mixed int) (*Target, error) {
	o, err := parseObject(field, raw, `an object such as {"strategy":"broadcast"}`)
	if err != nil {
		return nil, err
	}
	strategy, err := o.text(field, "strategy", 0)
	if err != nil {
		return nil, err
	}
	t := &Target{Strategy: Strategy(strategy)}
	fields, known := strategyFields[t.Strategy]
	if !known {
		return nil, Invalid(field+".strategy", Quote(strategy)+" came; accepted are "+
			strings.Join(Strategies(), ", ")+didYouMean(strategy, Strategies())).
			With("accepted", Strategies())
	}
	if err := o.only(field, append([]string{"strategy"}, fields...)...); err != nil {
		return nil, err
	}
	switch t.Strategy {
	case StrategyDirect:
		t.AgentID, err = o.text(field, "agent_id", p.lim.Handle)
	case StrategyCapability:
		t.list = jsonKind(o["capability"]) == kindList
		t.Capabilities, err = o.names(field, "capability", p.lim)
	case StrategyRole:
		t.Role, err = o.name(field, "role", p.lim)
	case StrategyTag:
		err = p.selector(t, field+".selector", o["selector"])
	case StrategyBroadcast:
		if mixed > 0 {
			err = Invalid(field+".strategy", "broadcast is not accepted inside mixed: it would make every other rule idle")
		}
	case StrategyMixed:
		t.Rules, err = p.mixed(field, o["rules"], mixed+1)
	case StrategyDirectWithFallback:
		err = p.directWithFallback(t, field, o)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (p *targetParser) mixed(field string, raw json.RawMessage, mixed int) ([]*Target, error) {
	at := field + ".rules"
	if over(mixed, p.lim.TargetDepth) {
		return nil, Invalid(field, fmt.Sprintf("mixed stands inside mixed more than %d deep; put the rules into one list", p.lim.TargetDepth))
	}
	items, err := parseList(at, raw, "targets")
	if err != nil {
		return nil, err
	}
	p.rules += len(items)
	if over(p.rules, p.lim.TargetRules) {
		return nil, Invalid(at, fmt.Sprintf("more than %d rules came in the whole target: %d so far", p.lim.TargetRules, p.rules))
	}
	var rules []*Target
	for i, item := range items {
		rule, err := p.parse(itemField(at, i), item, mixed)
		if err != nil {
			return nil, err
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

func (p *targetParser) directWithFallback(t *Target, field string, o jsonObject) (err error) {
	if field != "target" {
		return Invalid(field+".strategy", "direct_with_fallback is accepted only at the top of the target")
	}
	if t.AgentID, err = o.text(field, "agent_id", p.lim.Handle); err != nil {
		return err
	}
	// The agent may register later, but only under a handle that can be registered.
	if _, err := ParseHandle(t.AgentID); err != nil && !uuidPattern.MatchString(t.AgentID) {
		return Invalid(field+".agent_id", Quote(t.AgentID)+" came; accepted is a handle, registered now or later, or an agent's UUID")
	}
	seconds, ok := parseInteger(o["fallback_after_seconds"])
	if !ok || seconds < 1 || seconds > maxFallbackSeconds {
		came := "nothing"
		if raw := o["fallback_after_seconds"]; len(raw) > 0 {
			came = Quote(string(raw))
		}
		return Invalid(field+".fallback_after_seconds", came+" came, an integer from 1 to 2592000 is accepted")
	}
	t.FallbackAfterSeconds = int(seconds)
	if o.absent("fallback") {
		t.Fallback = &Target{Strategy: StrategyBroadcast}
		return nil
	}
	t.Fallback, err = p.parse(field+".fallback", o["fallback"], 0)
	return err
}

// selector reads both forms. A flat one is the rich one with In for every key.
func (p *targetParser) selector(t *Target, field string, raw json.RawMessage) error {
	var err error
	switch jsonKind(raw) {
	case kindObject:
		t.Selector, err = p.flatSelector(field, raw)
	case kindList:
		t.rich = true
		t.Selector, err = p.richSelector(field, raw)
	default:
		return Invalid(field, jsonKind(raw)+` came, an object such as {"team":["platform"]} or a list such as [{"key":"team","operator":"Exists"}] is accepted`)
	}
	if err != nil {
		return err
	}
	if len(t.Selector) == 0 {
		return Invalid(field, "an empty selector came; name at least one tag, or use broadcast")
	}
	return nil
}

// checkKeys comes before the keys are looked at: there may be very many.
func (p *targetParser) checkKeys(field string, n int) error {
	if over(n, p.lim.SelectorKeys) {
		return Invalid(field, fmt.Sprintf("%d keys came, at most %d are accepted", n, p.lim.SelectorKeys))
	}
	return nil
}

func (p *targetParser) flatSelector(field string, raw json.RawMessage) ([]Requirement, error) {
	o, err := parseObject(field, raw, "an object")
	if err == nil {
		err = p.checkKeys(field, len(o))
	}
	if err != nil {
		return nil, err
	}
	var selector []Requirement
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if err := checkName(joinField(field, key), key, p.lim); err != nil {
			return nil, err
		}
		values, err := o.names(field, key, p.lim)
		if err != nil {
			return nil, err
		}
		selector = append(selector, Requirement{Key: key, Operator: OpIn, Values: values})
	}
	return selector, nil
}

func (p *targetParser) richSelector(field string, raw json.RawMessage) ([]Requirement, error) {
	var items []json.RawMessage
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, Invalid(field, "is not valid JSON")
	}
	if err := p.checkKeys(field, len(items)); err != nil {
		return nil, err
	}
	var selector []Requirement
	for i, item := range items {
		r, err := p.requirement(itemField(field, i), item)
		if err != nil {
			return nil, err
		}
		selector = append(selector, r)
	}
	return selector, nil
}

func (p *targetParser) requirement(field string, raw json.RawMessage) (r Requirement, err error) {
	o, err := parseObject(field, raw, `an object such as {"key":"team","operator":"In","values":["platform"]}`)
	if err != nil {
		return r, err
	}
	if err := o.only(field, "key", "operator", "values"); err != nil {
		return r, err
	}
	if r.Key, err = o.name(field, "key", p.lim); err != nil {
		return r, err
	}
	operator, err := o.text(field, "operator", 0)
	if err != nil {
		return r, err
	}
	r.Operator = TagOperator(operator)
	switch r.Operator {
	case OpIn, OpNotIn:
		r.Values, err = o.names(field, "values", p.lim)
	case OpExists, OpDoesNotExist:
		if !o.absent("values") {
			err = Invalid(field+".values", operator+" takes no values; leave the field out")
		}
	default:
		err = Invalid(field+".operator", Quote(operator)+" came; accepted are "+
			strings.Join(operators, ", ")+didYouMean(operator, operators)).With("accepted", operators)
	}
	return r, err
}

// name reads one name of the catalog's kind: capability, role, tag key or value.
func (o jsonObject) name(field, key string, lim Limits) (string, error) {
	s, err := o.text(field, key, 0)
	if err != nil {
		return "", err
	}
	return s, checkName(joinField(field, key), s, lim)
}

// names reads one name or a non-empty list of them.
func (o jsonObject) names(field, key string, lim Limits) ([]string, error) {
	at := joinField(field, key)
	if jsonKind(o[key]) == kindString {
		s, err := o.name(field, key, lim)
		return []string{s}, err
	}
	items, err := parseList(at, o[key], "strings")
	if err != nil {
		return nil, err
	}
	if over(len(items), lim.SelectorVals) {
		return nil, Invalid(at, fmt.Sprintf("%d values came, at most %d are accepted", len(items), lim.SelectorVals))
	}
	var names []string
	for i, item := range items {
		s, err := parseString(itemField(at, i), item, 0)
		if err == nil {
			err = checkName(itemField(at, i), s, lim)
		}
		if err != nil {
			return nil, err
		}
		names = append(names, s)
	}
	return names, nil
}

func checkName(field, s string, lim Limits) error {
	if strings.TrimSpace(s) == "" {
		return Invalid(field, "an empty name came, a non-empty one is accepted")
	}
	if n := utf8.RuneCountInString(s); over(n, lim.SelectorValue) {
		return Invalid(field, fmt.Sprintf("%d characters came, at most %d are accepted", n, lim.SelectorValue))
	}
	return nil
}

// parseList reads a non-empty list.
func parseList(field string, raw json.RawMessage, of string) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if jsonKind(raw) != kindList || json.Unmarshal(raw, &items) != nil {
		return nil, Invalid(field, jsonKind(raw)+" came, a list of "+of+" is accepted")
	}
	if len(items) == 0 {
		return nil, Invalid(field, "an empty list came; at least one of the "+of+" is needed")
	}
	return items, nil
}

// MarshalJSON gives the canonical rendering, which [ParseTarget] reads as the same target.
func (t Target) MarshalJSON() ([]byte, error) {
	wire := struct {
		Strategy             Strategy  `json:"strategy"`
		AgentID              string    `json:"agent_id,omitempty"`
		Capability           any       `json:"capability,omitempty"`
		Role                 string    `json:"role,omitempty"`
		Selector             any       `json:"selector,omitempty"`
		Rules                []*Target `json:"rules,omitempty"`
		FallbackAfterSeconds int       `json:"fallback_after_seconds,omitempty"`
		Fallback             *Target   `json:"fallback,omitempty"`
	}{
		t.Strategy, t.AgentID, nil, t.Role, nil, t.Rules, t.FallbackAfterSeconds, t.Fallback,
	}
	switch {
	case t.list || len(t.Capabilities) > 1:
		wire.Capability = t.Capabilities
	case len(t.Capabilities) == 1:
		wire.Capability = t.Capabilities[0]
	}
	switch {
	case t.rich:
		wire.Selector = t.Selector
	case len(t.Selector) > 0:
		flat := make(map[string][]string, len(t.Selector))
		for _, r := range t.Selector {
			flat[r.Key] = r.Values
		}
		wire.Selector = flat
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the names are for reading, and doors escape for themselves
	err := enc.Encode(wire)
	return bytes.TrimSpace(b.Bytes()), err
}
