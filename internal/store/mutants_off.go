//go:build !mutant_ack_before_commit && !mutant_ignore_release && !mutant_event_order && !mutant_no_row_guard

package store

// Mutants are bugs that a test-only build tag plants, one at a time, to prove that the tests
// which must catch them do (scripts/mutants). This is the program without any.

const (
	ignoreFailedRelease = false
	orderEventsByID     = false
	unguarded           = ""
)

func acknowledgeEarly([]answer) {}
