//go:build mutant_ack_before_commit

package store

const (
	ignoreFailedRelease = false
	orderEventsByID     = false
)

// acknowledgeEarly answers before the commit: a kill in between loses what was acknowledged.
func acknowledgeEarly(answers []answer) {
	for i, a := range answers {
		a.j.done <- a.err
		answers[i].j = &job{done: make(chan error, 1)}
	}
}
