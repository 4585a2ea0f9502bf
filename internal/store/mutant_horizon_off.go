//go:build !mutant_no_horizon

package store

// keepHorizon plants a bug that a test must catch (scripts/mutants); this is the program without it.
const keepHorizon = false
