//go:build mutant_ignore_release

package store

// This mutant goes on as if the savepoint of a function had been closed when it was not.
const (
	ignoreFailedRelease = true
	orderEventsByID     = false
	unguarded           = ""
)

func acknowledgeEarly([]answer) {}
