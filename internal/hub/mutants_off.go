//go:build !mutant_send_early

package hub

import "handclasp/internal/handoff"

// Mutants are bugs that a test-only build tag plants, one at a time, to prove that the tests
// which must catch them do (scripts/mutants). This is the program without any.

func sendEarly(*change, *handoff.Delivery) error { return nil }

func sentEarly(*Hub) []Outgoing { return nil }
