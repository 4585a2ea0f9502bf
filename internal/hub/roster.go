package hub

import (
	"context"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// rosterCache remembers the active agents with their labels. It answers who could take something as
// things stand; who does is always judged in the transaction.
type rosterCache struct {
	mu         sync.Mutex
	list       []store.AgentRow
	read       time.Time
	generation uint64
}

func (r *rosterCache) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	r.read = time.Time{}
}

// roster gives the active agents. The list is shared: it must not be changed.
func (h *Hub) roster(ctx context.Context) ([]store.AgentRow, error) {
	r := &h.agents
	r.mu.Lock()
	list, read, generation := r.list, r.read, r.generation
	r.mu.Unlock()
	if !read.IsZero() && (!h.st.Shared() || time.Since(read) < cacheFor) {
		return list, nil
	}
	now := time.Now()
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		list, err = tx.ActiveAgents()
		return err
	})
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if generation == r.generation {
		r.list, r.read = list, now
	}
	return list, nil
}

// handleCache remembers the handles of agents by their ids: an agent keeps its handle for ever.
type handleCache struct{ byID sync.Map }

// of gives the handles of agents; what is none is left out.
func (c *handleCache) of(tx *store.Tx, ids map[string]bool) (map[string]string, error) {
	out := make(map[string]string, len(ids))
	var unknown []string
	for id := range ids {
		switch handle, known := c.byID.Load(id); {
		case known:
			out[id], _ = handle.(string)
		case id != "" && id != handoff.Operator().ID && id != handoff.System().ID:
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return out, nil
	}
	agents, err := tx.Names(unknown)
	for id, a := range agents {
		out[id] = a.Handle
		c.byID.Store(id, a.Handle)
	}
	return out, err
}
