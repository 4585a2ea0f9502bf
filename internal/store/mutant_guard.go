//go:build mutant_no_row_guard

package store

// This mutant neither locks the row that it will change nor looks whether it is still as it was read:
// of two calls at once the second undoes the first.
const (
	ignoreFailedRelease = false
	orderEventsByID     = false
	unguarded           = " OR 1 = 1"
)

func acknowledgeEarly([]answer) {}
