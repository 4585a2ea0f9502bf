//go:build !mutant_no_epoch

package handoff

// Mutants are bugs that a test-only build tag plants to prove that the tests which must catch them do
// (scripts/mutants). This is the program without any.

const ignoreEpoch = false
