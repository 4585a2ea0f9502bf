package handoff

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ParseCriteria checks the acceptance criteria of a handoff (contracts: open-handoffs): 1 to
// 20 unique, non-blank strings of at most 500 characters each. They are returned as they
// came; two that differ in surrounding space only are the same. Every fault is
// invalid_params naming acceptance_criteria[i].
func ParseCriteria(list []string, lim Limits) ([]string, error) {
	const field = "acceptance_criteria"
	if err := checkUniqueList(field, list, lim.Criteria, "non-empty strings", strings.TrimSpace); err != nil {
		return nil, err
	}
	for i, criterion := range list {
		if n := utf8.RuneCountInString(criterion); over(n, lim.Criterion) {
			return nil, Invalid(itemField(field, i), fmt.Sprintf(
				"%d characters came, at most %d are accepted", n, lim.Criterion))
		}
	}
	return list, nil
}

// CheckDependsOn checks the shape of depends_on: 1 to 20 unique ids. Whether an id exists
// and may be seen is the hub's to say, with dependency_not_found for all that is not; so an
// id of an odd form is no fault here.
func CheckDependsOn(ids []string, lim Limits) error {
	return checkUniqueList("depends_on", ids, lim.Dependencies, "ids of handoffs", FoldHandle)
}

// checkUniqueList checks the number of items, and that none is blank or there twice by key.
func checkUniqueList(field string, items []string, limit int, what string, key func(string) string) error {
	if len(items) == 0 || over(len(items), limit) {
		return Invalid(field, fmt.Sprintf("%d came, 1 to %d unique %s are accepted", len(items), limit, what))
	}
	seen := make(map[string]int, len(items))
	for i, item := range items {
		at := itemField(field, i)
		if strings.TrimSpace(item) == "" {
			return Invalid(at, "an empty string came, "+what+" are accepted")
		}
		if err := CheckText(at, item, 0); err != nil {
			return err
		}
		if first, twice := seen[key(item)]; twice {
			return Invalid(at, "repeats "+itemField(field, first)+"; each may stand there once")
		}
		seen[key(item)] = i
	}
	return nil
}

// VerifyByKind says who judges delivered work.
type VerifyByKind string

// The kinds of verifier (contracts: open-handoffs, "verify_by").
const (
	VerifyByCreator    VerifyByKind = "creator"
	VerifyByAgent      VerifyByKind = "agent"
	VerifyByCapability VerifyByKind = "capability"
)

var verifyByKinds = []string{string(VerifyByCreator), string(VerifyByAgent), string(VerifyByCapability)}

// VerifyBy names the verifier of a handoff with acceptance criteria.
type VerifyBy struct {
	Kind VerifyByKind `json:"kind"`
	// AgentID is a handle or UUID as the caller gave it, or the UUID once the hub has
	// resolved it; with [VerifyByAgent] only.
	AgentID string `json:"agent_id,omitempty"`
	// Capability is resolved to agents when somebody verifies; with [VerifyByCapability] only.
	Capability string `json:"capability,omitempty"`
}

// ParseVerifyBy reads verify_by; nothing or null is the default, the creator. Kinds and
// fields it does not know are invalid_params naming them. Whether the agent is registered
// and the capability in the catalog is the hub's to check.
func ParseVerifyBy(raw json.RawMessage, lim Limits) (*VerifyBy, error) {
	const field = "verify_by"
	if kind := jsonKind(raw); kind == kindNothing || kind == kindNull {
		return &VerifyBy{Kind: VerifyByCreator}, nil
	}
	if err := CheckRawJSON(field, raw, 0, 0); err != nil {
		return nil, err
	}
	o, err := parseObject(field, raw, `an object such as {"kind":"creator"}`)
	if err != nil {
		return nil, err
	}
	kind, err := o.text(field, "kind", 0)
	if err != nil {
		return nil, err
	}
	v := &VerifyBy{Kind: VerifyByKind(kind)}
	switch v.Kind {
	case VerifyByCreator:
		return v, o.only(field, "kind")
	case VerifyByAgent:
		if err := o.only(field, "kind", "agent_id"); err != nil {
			return nil, err
		}
		v.AgentID, err = o.text(field, "agent_id", lim.Handle)
	case VerifyByCapability:
		if err := o.only(field, "kind", "capability"); err != nil {
			return nil, err
		}
		v.Capability, err = o.name(field, "capability", lim)
	default:
		return nil, Invalid(field+".kind", Quote(kind)+" came; accepted are "+
			strings.Join(verifyByKinds, ", ")+didYouMean(kind, verifyByKinds)).
			With("accepted", verifyByKinds)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}
