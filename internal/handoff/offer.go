package handoff

import (
	"slices"
	"time"
)

// Offer is one entry of the claimability index (architecture: "Claimability index"): a key under
// which a handoff that waits for somebody is found, and its place among the others of that key.
type Offer struct {
	// Key is one of [Target.Keys], or of [VerifierKeys] while the work waits for its verdict. With
	// [Later] in front it counts from Position on, which is then a time to come.
	Key string
	// Rank orders before Position: -1 for high priority, 0 normal, 1 low.
	Rank     int
	Position time.Time
}

// Later starts a key that opens at the offer's position.
const Later = "later:"

// Offers are the entries of h as it is written down: what may be claimed stands under the keys of
// its target, delivered work under those of its verifier, and everything else nowhere. A lease that
// lapsed and a deadline that passed are not looked at. Sorted by key, each once.
func (h *Handoff) Offers() []Offer {
	if h.Door != DoorPool {
		return nil
	}
	switch h.State {
	case Open:
		if h.Blocked() {
			return nil
		}
		return h.claimOffers()
	case Verifying:
		return []Offer{{Key: h.VerifierKey(), Rank: -h.Priority, Position: h.CreatedAt}}
	}
	return nil
}

func (h *Handoff) claimOffers() []Offer {
	place := func(key string) Offer { return Offer{Key: key, Rank: -h.Priority, Position: h.CreatedAt} }
	var list []Offer
	keys := h.Target.Keys()
	if h.Target.HasFallback() {
		keys = h.Target.Fallback.Keys()
		own := agentKey(h.Target.AgentID)
		if !h.RecipientDeclined {
			list = append(list, place(own))
			keys = slices.DeleteFunc(keys, func(k string) bool { return k == own })
		}
		if !h.RecipientDeclined && !h.FallbackOpened {
			for _, k := range keys {
				list = append(list, Offer{Key: Later + k, Position: h.FallbackAt})
			}
			keys = nil
		}
	}
	for _, k := range keys {
		list = append(list, place(k))
	}
	slices.SortFunc(list, func(a, b Offer) int {
		if a.Key < b.Key {
			return -1
		}
		return 1
	})
	return list
}

// The keys of delivered work.
const (
	verifyAgent = "verify:agent:"
	verifyCap   = "verify:cap:"
)

// VerifierKey is the key of [VerifierKeys] that whoever verifies the delivered work of h has; empty
// while nothing is delivered.
func (h *Handoff) VerifierKey() string {
	switch {
	case h.Door != DoorPool || h.State != Verifying && (h.State != Completed || h.VerifyBy == nil):
		return ""
	case h.VerifyBy == nil || h.VerifyBy.Kind == VerifyByCreator:
		return verifyAgent + h.Creator
	case h.VerifyBy.Kind == VerifyByAgent:
		return verifyAgent + h.VerifyBy.AgentID
	}
	return verifyCap + h.VerifyBy.Capability
}

// ReaderKeys are index keys of those who may read the pool handoff h: each of them has one of these
// among its [AgentKeys] or [VerifierKeys]. Who has one need not be able to read it.
func (h *Handoff) ReaderKeys(now time.Time) []string {
	if h.Door != DoorPool {
		return nil
	}
	if h.Visibility == Public {
		return []string{keyAny}
	}
	var keys []string
	switch {
	case h.Visibility != Eligible && h.At(now).State != Open:
	case h.Visibility != Eligible && h.Target.HasFallback() && !h.FallbackOpen(now):
		keys = append(keys, agentKey(h.Target.AgentID))
	default:
		keys = h.Target.Keys()
	}
	for _, id := range h.Named() {
		keys = append(keys, agentKey(id))
	}
	if key := h.VerifierKey(); key != "" {
		keys = append(keys, key)
	}
	return keys
}

// Named are the actors that h names in one part or another, some of them perhaps twice.
func (h *Handoff) Named() []string {
	ids := []string{h.Creator, h.Recipient, h.Holder, h.EndedBy}
	if h.VerifyBy != nil {
		ids = append(ids, h.VerifyBy.AgentID)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return id == "" })
}

// VerifierKeys are the index keys of work that a may have to verify.
func VerifierKeys(a *Agent) []string {
	keys := []string{verifyAgent + a.ID}
	for _, name := range a.Capabilities {
		keys = append(keys, verifyCap+name)
	}
	return keys
}
