//go:build mutant_no_horizon

package store

// This mutant removes events and does not say so: who has not read them yet is not told.
const keepHorizon = true
