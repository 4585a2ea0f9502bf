//go:build !mutant_lapse_by_sweep

package handoff

// lapseBySweep plants a bug that a test must catch (scripts/mutants); this is the program without it.
const lapseBySweep = false
