//go:build mutant_ignore_reservation

package owner

// This mutant takes a folder that was handed over to another process.
const ignoreReservation = true
