//go:build mutant_send_early

package hub

import (
	"context"
	"sync"

	"handclasp/internal/handoff"
)

// This mutant hands a notification to the sender while the transaction that makes it is still open.

var (
	earlyMu sync.Mutex
	early   = map[*Hub][]Outgoing{}
)

func sendEarly(c *change, d *handoff.Delivery) error {
	secret, err := c.hub.linkSecret(context.Background())
	if err != nil {
		return err
	}
	out, err := c.hub.outgoing(c.Tx, d, secret)
	if err != nil {
		return err
	}
	earlyMu.Lock()
	early[c.hub] = append(early[c.hub], out)
	earlyMu.Unlock()
	c.hub.kick()
	return nil
}

func sentEarly(h *Hub) []Outgoing {
	earlyMu.Lock()
	defer earlyMu.Unlock()
	list := early[h]
	delete(early, h)
	return list
}
