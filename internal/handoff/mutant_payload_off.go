//go:build !mutant_payload_to_past_holders

package handoff

// Faults that are planted behind build tags, which no release knows, to see that the tests
// which must catch them do (scripts/mutants). This is the program without any.
const payloadToPastHolders = false
