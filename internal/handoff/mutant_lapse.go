//go:build mutant_lapse_by_sweep

package handoff

// This mutant keeps a handoff with its holder until a sweep has written down that the lease is over.
const lapseBySweep = true
