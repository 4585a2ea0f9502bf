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

func (h *Hub) claimNamed(ctx context.Context, call Call, in ClaimInput, at place, once once) (w *Work, err error) {
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
	defer func() { h.answerLate(ctx, in.ThreadID, err) }()
	return h.claimUnlessLate(ctx, l)
}

// answerLate answers those that came while a call tried that was answered err.
func (h *Hub) answerLate(ctx context.Context, id string, err error) {
	late := h.claiming.leave(id)
	switch {
	case len(late) == 0:
	case isCode(err, handoff.CodeUnavailable) && ctx.Err() == nil: // and so it is for them
		for _, l := range late {
			l.answer <- handoff.Unavailable("another call tried for the same handoff and the hub's database failed; nothing was written", err)
		}
	default:
		go func() {
			for i, refusal := range h.lookForLate(context.Background(), late) {
				late[i].answer <- refusal
			}
		}()
	}
}

// claimUnlessLate claims. Where other nodes claim too, somebody may have been faster long ago; to see that
// costs much less than a transaction that locks the row.
func (h *Hub) claimUnlessLate(ctx context.Context, l *latecomer) (*Work, error) {
	if h.st.Shared() {
		if err := h.lookForLate(ctx, []*latecomer{l})[0]; err != nil {
			return nil, err
		}
	}
	return h.claimOne(ctx, l.call, l.in, l.at, l.once)
}

// lookForLate gives the refusals of those that come too late for a handoff, from one look at it; nil
// for whoever has to try.
func (h *Hub) lookForLate(ctx context.Context, late []*latecomer) []error {
	refusals := make([]error, len(late))
	ids := make([]string, len(late))
	for i, l := range late {
		ids[i] = l.call.Actor.ID
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	err := h.st.Glance(ctx, func(tx *store.Tx) error {
		tx.ExpectAgentsIn(ids, late[0].at.id)
		row, err := tx.Handoff(late[0].in.ThreadID)
		if err != nil {
			return err
		}
		agents, err := tx.AgentsIn(ids, row.WorkspaceID)
		if err != nil {
			return err
		}
		for i, l := range late {
			a := agents[l.call.Actor.ID]
			if refusals[i], err = h.tooLate(tx, l, &row, &a); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil { // each finds out for itself
		clear(refusals)
	}
	return refusals
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
