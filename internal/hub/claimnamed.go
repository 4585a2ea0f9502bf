package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// claiming lets one call of this process at a time try for a handoff. Those that come meanwhile wait
// until it is known who has it, and are answered together: where many try the same one, nearly all
// of them end here and do not stand in the way of those who write.
type claiming struct {
	mu   sync.Mutex
	late map[string][]*latecomer // by handoff, while one tries
}

type latecomer struct {
	call Call
	in   ClaimInput
	at   place
	once once
	// answer is what there is to say, or nil where the claim itself has to say it.
	answer chan error
}

// enter reports whether the call may try; otherwise it is answered after the one that tries.
func (c *claiming) enter(l *latecomer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if late, busy := c.late[l.in.ThreadID]; busy {
		c.late[l.in.ThreadID] = append(late, l)
		return false
	}
	if c.late == nil {
		c.late = map[string][]*latecomer{}
	}
	c.late[l.in.ThreadID] = nil
	return true
}

// leave gives those that came meanwhile.
func (c *claiming) leave(id string) []*latecomer {
	c.mu.Lock()
	defer c.mu.Unlock()
	late := c.late[id]
	delete(c.late, id)
	return late
}

func (h *Hub) claimNamed(ctx context.Context, call Call, in ClaimInput, at place, once once) (*Work, error) {
	if h.cfg.StrictTrust || in.Session != (Session{}) || call.Actor.Kind != handoff.KindAgent {
		return h.claimOne(ctx, call, in, at, once)
	}
	l := &latecomer{call: call, in: in, at: at, once: once, answer: make(chan error, 1)}
	if !h.claiming.enter(l) {
		select {
		case err := <-l.answer:
			if err != nil {
				return nil, err
			}
			return h.claimOne(ctx, call, in, at, once)
		case <-ctx.Done():
			return nil, handoff.Unavailable("the call was cancelled before anything was written", ctx.Err())
		}
	}
	var err error
	defer func() {
		late := h.claiming.leave(in.ThreadID)
		if isCode(err, handoff.CodeUnavailable) && ctx.Err() == nil { // and so it is for them
			for _, l := range late {
				l.answer <- err
			}
			return
		}
		if len(late) > 0 {
			go h.tellLate(in.ThreadID, late)
		}
	}()
	var w *Work
	w, err = h.claimOne(ctx, call, in, at, once)
	return w, err
}

// tellLate answers those that came while another tried for a handoff, from one look at it.
func (h *Hub) tellLate(id string, late []*latecomer) {
	answers := make([]error, len(late))
	err := h.st.Read(context.Background(), func(tx *store.Tx) error {
		clear(answers)
		row, err := tx.Handoff(id)
		if err != nil {
			return err
		}
		var ids []string
		for _, l := range late {
			ids = append(ids, l.call.Actor.ID)
		}
		slices.Sort(ids)
		agents, err := tx.AgentsIn(slices.Compact(ids), row.WorkspaceID)
		if err != nil {
			return err
		}
		for i, l := range late {
			a := agents[l.call.Actor.ID]
			if answers[i], err = h.tooLate(tx, l, &row, &a); err != nil {
				return err
			}
		}
		return nil
	})
	for i, l := range late {
		if err != nil { // each finds out for itself
			answers[i] = nil
		}
		l.answer <- answers[i]
	}
}

// tooLate is the refusal of a claim of what another holds; nil where anything else is to be said.
func (h *Hub) tooLate(tx *store.Tx, l *latecomer, row *handoff.Handoff, a *handoff.Agent) (refusal, err error) {
	actor := l.call.Actor
	if row.Door != handoff.DoorPool || row.WorkspaceID != l.at.id {
		return nil, nil
	}
	now := row.At(tx.Now())
	if !now.VisibleTo(actor, a, tx.Now()) && !now.Lost(a, tx.Now()) {
		return nil, nil
	}
	_, late := now.Claim(actor, handoff.ClaimInput{Agent: a, Lease: time.Duration(l.in.Lease) * time.Second}, tx.Now(), h.lim)
	if !isCode(late, handoff.CodeAlreadyClaimed) {
		return nil, nil
	}
	if l.once.op.Key != "" {
		if _, found, err := tx.Effect(l.once.op); err != nil || found {
			return nil, err
		}
	}
	return h.namingHolder(tx, actor, late, row, a), nil
}
