//go:build mutant_event_order

package store

const (
	ignoreFailedRelease = false
	orderEventsByID     = true
	unguarded           = ""
)

func acknowledgeEarly([]answer) {}
