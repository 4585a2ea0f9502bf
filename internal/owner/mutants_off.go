//go:build !mutant_ignore_reservation

package owner

// Mutants are bugs that a test-only build tag plants, one at a time, to prove that the tests
// which must catch them do (scripts/mutants). This is the program without any.

const ignoreReservation = false
