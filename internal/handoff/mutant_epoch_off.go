//go:build !mutant_no_epoch

package handoff

// ignoreEpoch plants a bug that a test must catch (scripts/mutants); this is the program without it.
const ignoreEpoch = false
