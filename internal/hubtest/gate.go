package hubtest

import (
	"bytes"
	"sync"
)

// Gate is a writer that stops at its first byte until the test closes Opened. The snapshot of a
// backup that is written to it exists once Reached is closed, for a header comes first.
type Gate struct {
	bytes.Buffer
	Reached, Opened chan struct{}
	once            sync.Once
}

// NewGate makes a closed gate.
func NewGate() *Gate { return &Gate{Reached: make(chan struct{}), Opened: make(chan struct{})} }

// Pass waits for the gate the first time, and not again.
func (g *Gate) Pass() {
	g.once.Do(func() {
		close(g.Reached)
		<-g.Opened
	})
}

// Write keeps what is written.
func (g *Gate) Write(p []byte) (int, error) {
	g.Pass()
	return g.Buffer.Write(p)
}
