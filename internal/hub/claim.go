package hub

import (
	"context"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// ClaimInput takes an open handoff: the named one, or the next that the caller may claim.
type ClaimInput struct {
	ProjectRoot string `json:"-"`
	AgentID     string `json:"-"`
	// ThreadID is empty for the next one. The names are those of [AcceptInput]: one key sent
	// through both doors is one effect.
	ThreadID       string        `json:"thread_id"`
	Workspace      string        `json:"workspace_id,omitempty"` // filled in for the next one
	Lease          int64         `json:"lease_seconds,omitempty"`
	IdempotencyKey string        `json:"idempotency_key,omitempty"`
	Session        Session       `json:"-"`
	Wait           time.Duration `json:"-"`
}

// ClaimResult is the answer to a claim. There was nothing to take when Work is nil.
type ClaimResult struct {
	Work     *Work
	TimedOut bool
}

// Claim takes one handoff, single winner. Without an id it takes the next one that the caller may
// claim, higher priority then oldest first, and no two callers the same; it waits for one as long
// as it is told to. It takes none only if at one moment there was none. On PostgreSQL the order is
// kept as far as nobody has to wait for it: one that another call is at is passed over while there are
// others, also if that call then changes nothing.
func (h *Hub) Claim(ctx context.Context, call Call, in ClaimInput) (ClaimResult, error) {
	at, err := h.poolCall(call, in.AgentID, in.ProjectRoot)
	if err != nil {
		return ClaimResult{}, err
	}
	if err := checkWait(in.Wait); err != nil {
		return ClaimResult{}, err
	}
	// Also where there is nothing to claim yet.
	if err := handoff.CheckLease(time.Duration(in.Lease)*time.Second, h.lim); err != nil {
		return ClaimResult{}, err
	}
	if in.ThreadID == "" {
		in.Workspace = at.id
	}
	once, err := h.keyed(call, "claim", &in.IdempotencyKey, &in)
	if err != nil {
		return ClaimResult{}, err
	}
	if in.ThreadID != "" {
		w, err := h.claimNamed(ctx, call, in, at, once)
		return ClaimResult{Work: w}, err
	}
	return h.claimNext(ctx, call, in, at, once)
}

func (h *Hub) claimOne(ctx context.Context, call Call, in ClaimInput, at place, once once) (*Work, error) {
	var out Work
	err := h.change(ctx, "claim", call, func(c *change) error {
		// The agent first, as its disabling does, or the two could wait for each other.
		c.ExpectKeepAgentIn(call.Actor.ID, at.id)
		c.ExpectLockHandoff(in.ThreadID)
		if _, err := c.keptLabelled(at.id); err != nil {
			return err
		}
		was, row, effect, found, err := c.beginAt(c.takeToClaim, in.ThreadID, at, in.Session, once)
		if err != nil {
			return err
		}
		out, err = c.claimed(&was, &row, effect, found, in, once)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// claimed makes the claim, or finds the one that was made under the same key.
func (c *change) claimed(was, row *handoff.Handoff, effect store.Effect, found bool, in ClaimInput, once once) (Work, error) {
	if found && !claimStands(row, c.call.Actor, effect.Epoch) {
		return Work{}, claimGone(row)
	}
	a, err := c.keptLabelled(row.WorkspaceID)
	if err != nil {
		return Work{}, err
	}
	if !found {
		if err := c.claimAs(was, row, a, time.Duration(in.Lease)*time.Second); err != nil {
			return Work{}, err
		}
		if err := c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch}); err != nil {
			return Work{}, err
		}
	}
	w, err := c.hub.work(c.Tx, c.call.Actor, a, *row)
	w.Replay = found
	return w, err
}

// takeToClaim is take for a claim: whoever could have claimed the handoff while it was open is told
// that it came too late, even if it may not see who was faster.
func (c *change) takeToClaim(id string) (was, now handoff.Handoff, err error) {
	return c.takeIf(id, func(h *handoff.Handoff, a *handoff.Agent) bool {
		return h.VisibleTo(c.call.Actor, a, c.Now()) || h.Lost(a, c.Now())
	}, func(h *handoff.Handoff) (*handoff.Agent, error) {
		return c.keptLabelled(h.WorkspaceID)
	})
}

// claimable reports whether the agent may claim the row as it is now. judged is false when it might,
// if only somebody were left to verify the work.
func claimable(tx *store.Tx, row *handoff.Handoff, a *handoff.Agent) (fits, judged bool, err error) {
	now := row.At(tx.Now())
	if now.State != handoff.Open || now.Blocked() || !now.MayClaim(a, tx.Now()) {
		return false, true, nil
	}
	in, err := verifiersOf(tx, &now, a.ID)
	fits = !now.Unverifiable(a.ID, in)
	return fits, fits, err
}

// verifiersOf says who would be left to verify the work of a claimant.
func verifiersOf(tx *store.Tx, row *handoff.Handoff, claimant string) (in handoff.ClaimInput, err error) {
	if row.VerifyBy == nil {
		return in, nil
	}
	verifier := row.Creator
	switch row.VerifyBy.Kind {
	case handoff.VerifyByCapability:
		in.OtherVerifiers, err = tx.OtherVerifiers(row.VerifyBy.Capability, row.WorkspaceID, claimant)
		return in, err
	case handoff.VerifyByAgent:
		verifier = row.VerifyBy.AgentID
	}
	if verifier == handoff.Operator().ID {
		return in, nil
	}
	a, err := tx.Agent(verifier)
	if isCode(err, handoff.CodeNotFound) {
		in.VerifierDisabled, err = true, nil
		return in, err
	}
	in.VerifierDisabled = a.Disabled
	return in, err
}

// claimGone refuses to repeat a claim that stands no more: its payload is another's business now.
func claimGone(row *handoff.Handoff) error {
	if row.Door == handoff.DoorPool {
		return handoff.Refuse(handoff.CodeLeaseLost, "the claim that this call made before no longer stands", "Look at it with handoff_get; if it is OPEN again, handoff_claim with a new key takes it anew.")
	}
	return handoff.Refuse(handoff.CodeLeaseLost, "the claim that this call made before no longer stands", "Look at the thread with view_thread; if it is pending again, accept_handoff with a new key takes it anew.")
}

// claimAs gives the row to the agent and writes that down.
func (c *change) claimAs(was, row *handoff.Handoff, a *handoff.Agent, lease time.Duration) error {
	in, err := verifiersOf(c.Tx, row, c.call.Actor.ID)
	if err != nil {
		return err
	}
	in.Agent, in.Lease = a, lease
	event, err := row.Claim(c.call.Actor, in, c.Now(), c.hub.lim)
	if err != nil {
		return c.hub.namingHolder(c.Tx, c.call.Actor, err, row, a)
	}
	if c.call.Actor.ID == row.Recipient {
		if row.FetchedAt.IsZero() {
			row.FetchedAt = c.Now()
		}
		if row.Door == handoff.DoorPool {
			if err := c.ClearNotices(c.call.Actor.ID, row); err != nil {
				return err
			}
		}
	}
	if event != handoff.Repeated {
		if err := c.record(row, event, c.call.Actor, "", 0, toldOfClaim(row)...); err != nil {
			return err
		}
	}
	return c.update(was, row)
}

// toldOfClaim are those whose inbox shows a claim. At the pool nobody's does: many handoffs go
// through it, and who waits for one follows it.
func toldOfClaim(row *handoff.Handoff) []string {
	if row.Door == handoff.DoorPool {
		return nil
	}
	return others(row)
}

// namingHolder adds who was faster, for those who may see it.
func (h *Hub) namingHolder(tx *store.Tx, actor handoff.Actor, err error, row *handoff.Handoff, a *handoff.Agent) error {
	e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
	if !ok || e.Code != handoff.CodeAlreadyClaimed || row.Door != handoff.DoorPool || !row.ReadableBy(actor, a, tx.Now()) {
		return err
	}
	names, readErr := h.handles.of(tx, map[string]bool{row.Holder: true})
	if readErr != nil {
		return readErr
	}
	e.Message = names[row.Holder] + " holds this handoff"
	return e.With("claimed_by", names[row.Holder])
}
