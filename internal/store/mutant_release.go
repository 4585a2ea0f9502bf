//go:build mutant_ignore_release

package store

const (
	ignoreFailedRelease = true
	orderEventsByID     = false
)

func acknowledgeEarly([]answer) {}
