package hub

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// What a holder does at the pool. Each verb is one that other doors have under another name.

// HoldInput is what these verbs share. The handoff is named as at the team door, so that one key sent
// through both is one effect.
type HoldInput struct {
	ProjectRoot    string  `json:"-"`
	AgentID        string  `json:"-"`
	ThreadID       string  `json:"thread_id"`
	ClaimEpoch     *int    `json:"claim_epoch,omitempty"`
	IdempotencyKey string  `json:"idempotency_key,omitempty"`
	Session        Session `json:"-"`
}

// ExtendInput asks for more time. Lease is in seconds; 0 is the length of the claim again.
type ExtendInput struct {
	HoldInput
	Lease int64 `json:"lease_seconds,omitempty"`
}

// Extended is the answer to it.
type Extended struct {
	HandoffID      string
	LeaseExpiresAt time.Time
	Epoch          int
	Replay         bool
}

// Extend renews the holder's lease.
func (h *Hub) Extend(ctx context.Context, call Call, in ExtendInput) (Extended, error) {
	var out Extended
	err := h.hold(ctx, call, "extend", &in.HoldInput, &in, func(c *change, was, row *handoff.Handoff, _ *handoff.Agent, found bool) error {
		defer func() {
			out = Extended{HandoffID: row.ID, LeaseExpiresAt: row.LeaseExpiresAt, Epoch: row.Epoch, Replay: found}
		}()
		if found {
			if row.State != handoff.Claimed || row.Holder != call.Actor.ID {
				return row.AsHolder(call.Actor, in.ClaimEpoch)
			}
			return nil
		}
		event, err := row.Extend(call.Actor, time.Duration(in.Lease)*time.Second, in.ClaimEpoch, c.Now(), h.lim)
		if err != nil {
			return err
		}
		return first(
			func() error { return c.record(row, event, call.Actor, "", 0) },
			func() error { return c.update(was, row) })
	})
	return out, err
}

// ReleaseInput gives a handoff back.
type ReleaseInput struct {
	HoldInput
	Reason string `json:"reason,omitempty"`
}

// Release gives the handoff back to whoever may claim it. The reason goes into the thread, where
// its creator reads it.
func (h *Hub) Release(ctx context.Context, call Call, in ReleaseInput) (Work, error) {
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return Work{}, err
	}
	var out Work
	err := h.hold(ctx, call, "release", &in.HoldInput, &in, func(c *change, was, row *handoff.Handoff, a *handoff.Agent, found bool) error {
		if !found {
			event, err := row.Release(call.Actor, in.ClaimEpoch, c.Now())
			if err != nil {
				return err
			}
			if err := c.saying(row, in.Reason, "Released: "); err != nil {
				return err
			}
			if err := c.record(row, event, call.Actor, "", 0); err != nil {
				return err
			}
			if err := c.update(was, row); err != nil {
				return err
			}
		}
		return c.show(&out, a, row, found)
	})
	return out, err
}

// saying puts what the holder gives as a reason into the thread; nothing where there is no reason,
// or where the thread is full.
func (c *change) saying(row *handoff.Handoff, reason, before string) error {
	if reason == "" || row.Messages >= c.hub.lim.Messages {
		return nil
	}
	row.Messages++
	m := handoff.Message{ID: newID(), HandoffID: row.ID, SequenceNo: row.Messages, Author: c.call.Actor.ID, Body: before + reason, CreatedAt: c.Now()}
	return first(
		func() error { return c.InsertMessage(&m) },
		func() error {
			return c.record(row, handoff.EventMessageCreated, c.call.Actor, m.ID, m.SequenceNo, row.Creator)
		})
}

// show gives the row as the caller sees it now: what was given back past its deadline has expired. a
// may be without its labels.
func (c *change) show(out *Work, a *handoff.Agent, row *handoff.Handoff, replay bool) error {
	w, err := c.hub.work(c.Tx, c.call.Actor, a, row.At(c.Now()))
	w.Replay = replay
	*out = w
	return err
}

// DeliverInput ends the work on a held handoff. Result is any JSON value.
type DeliverInput struct {
	HoldInput
	Result json.RawMessage `json:"result,omitempty"`
}

// Deliver delivers the work: it waits for its verdict where there are acceptance criteria, else the
// handoff is completed.
func (h *Hub) Deliver(ctx context.Context, call Call, in DeliverInput) (Work, error) {
	if len(in.Result) > 0 {
		if err := handoff.CheckRawJSON("result", in.Result, h.lim.Payload, 0); err != nil {
			return Work{}, err
		}
	}
	var out Work
	err := h.hold(ctx, call, "complete", &in.HoldInput, &in, func(c *change, was, row *handoff.Handoff, a *handoff.Agent, found bool) error {
		stands := (row.State == handoff.Completed || row.State == handoff.Verifying) && row.Holder == call.Actor.ID && row.ErasedAt.IsZero() &&
			sameJSON(row.Result, in.Result) && row.ResultSummary == "" && epochStands(in.ClaimEpoch, row)
		if !found && !stands {
			event, err := row.Complete(call.Actor, in.ClaimEpoch, c.Now())
			if err != nil {
				return err
			}
			row.Result, row.ResultSummary, row.CompletionArtifacts = in.Result, "", nil
			if err := c.ended(was, row, event); err != nil {
				return err
			}
		}
		return c.show(&out, a, row, found || stands)
	})
	return out, err
}

func sameJSON(a, b json.RawMessage) bool { return string(canonical(a)) == string(canonical(b)) }

// ended writes down a verb that ended the work on a handoff, or handed it to who verifies.
func (c *change) ended(was, row *handoff.Handoff, event handoff.EventType) error {
	whom := others(row)
	if event == handoff.EventVerificationRequested {
		verifiers, err := c.verifiers(row)
		if err != nil {
			return err
		}
		whom = verifiers
	}
	return first(
		func() error { return c.judged(was) },
		func() error { return c.record(row, event, c.call.Actor, "", 0, whom...) },
		func() error { return c.update(was, row) })
}

// judged takes work that waited for its verdict from the inboxes of those who were to judge it.
func (c *change) judged(was *handoff.Handoff) error {
	if was.State != handoff.Verifying {
		return nil
	}
	return c.forgetVerifiers(was)
}

// mostTold is how many agents of a capability find delivered work in their inbox; the others see it
// in the list of what waits for a verdict.
const mostTold = 100

// verifiers are those who are told that work waits for its verdict.
func (c *change) verifiers(row *handoff.Handoff) ([]string, error) {
	switch {
	case row.VerifyBy == nil || row.VerifyBy.Kind == handoff.VerifyByCreator:
		return []string{row.Creator}, nil
	case row.VerifyBy.Kind == handoff.VerifyByAgent:
		return []string{row.VerifyBy.AgentID}, nil
	}
	list, err := c.Offering(row.VerifyBy.Capability, row.WorkspaceID, mostTold+1)
	for i, id := range list {
		if id == row.Holder {
			return append(list[:i:i], list[i+1:]...), err
		}
	}
	return list, err
}

// RejectInput refuses a handoff: its holder, or the agent that its target names while it is open.
type RejectInput struct {
	HoldInput
	Reason string `json:"reason,omitempty"`
}

// Reject refuses the work for good, except that the first agent of a direct_with_fallback target
// leaves it to the pool.
func (h *Hub) Reject(ctx context.Context, call Call, in RejectInput) (Work, error) {
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return Work{}, err
	}
	var out Work
	err := h.hold(ctx, call, "reject", &in.HoldInput, &in, func(c *change, was, row *handoff.Handoff, a *handoff.Agent, found bool) error {
		stands := rejectionStands(row, call.Actor, in.Reason, in.ClaimEpoch)
		if !found && !stands {
			if err := c.reject(was, row, in.Reason, in.ClaimEpoch); err != nil {
				return err
			}
		}
		return c.show(&out, a, row, found || stands)
	})
	return out, err
}

func rejectionStands(row *handoff.Handoff, actor handoff.Actor, reason string, epoch *int) bool {
	return row.State == handoff.Rejected && row.EndedBy == actor.ID && row.EndedReason == reason && row.ErasedAt.IsZero() && epochStands(epoch, row)
}

// reject applies the rule and writes it down. A reason that ends nothing goes into the thread.
func (c *change) reject(was, row *handoff.Handoff, reason string, epoch *int) error {
	event, err := row.Reject(c.call.Actor, reason, epoch, c.Now())
	if err != nil {
		return err
	}
	return first(
		func() error { return c.declined(row, event, reason) },
		func() error { return c.record(row, event, c.call.Actor, "", 0, others(row)...) },
		func() error { return c.update(was, row) })
}

// declined keeps the reason of a refusal that ended nothing in the thread, and takes the handoff from
// the inbox of the one who is done with it.
func (c *change) declined(row *handoff.Handoff, event handoff.EventType, reason string) error {
	if event != handoff.EventFallbackOpened {
		return nil
	}
	if err := c.ClearNotices(c.call.Actor.ID, row); err != nil {
		return err
	}
	return c.saying(row, reason, "Declined: ")
}

// TakeBackInput cancels an open handoff that the caller created.
type TakeBackInput struct {
	HoldInput
	Reason string `json:"reason,omitempty"`
}

// TakeBack cancels a handoff while nobody holds it.
func (h *Hub) TakeBack(ctx context.Context, call Call, in TakeBackInput) (Work, error) {
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return Work{}, err
	}
	var out Work
	err := h.hold(ctx, call, "cancel", &in.HoldInput, &in, func(c *change, was, row *handoff.Handoff, a *handoff.Agent, found bool) error {
		stands := row.State == handoff.Cancelled && row.EndedBy == call.Actor.ID && row.EndedReason == in.Reason && row.ErasedAt.IsZero()
		if !found && !stands {
			event, err := c.cancel(row, in.Reason)
			if err != nil {
				return err
			}
			if err := c.ended(was, row, event); err != nil {
				return err
			}
		}
		return c.show(&out, a, row, found || stands)
	})
	return out, err
}

// VerifyInput judges delivered work.
type VerifyInput struct {
	HoldInput
	Verdict  string `json:"verdict"`
	Feedback string `json:"feedback,omitempty"`
}

// maxFeedback is how long a feedback may be, in bytes.
const maxFeedback = 2000

// Verify completes delivered work, or sends it back to the one who delivered it.
func (h *Hub) Verify(ctx context.Context, call Call, in VerifyInput) (Work, error) {
	pass := strings.EqualFold(in.Verdict, "pass")
	switch {
	case !pass && !strings.EqualFold(in.Verdict, "fail"):
		return Work{}, handoff.Invalid("verdict", handoff.Quote(in.Verdict)+" came; pass and fail are accepted")
	case pass && in.Feedback != "":
		return Work{}, handoff.Invalid("feedback", "it came with the verdict pass; feedback goes with fail only, so leave it out")
	}
	if err := handoff.CheckText("feedback", in.Feedback, maxFeedback); err != nil {
		return Work{}, err
	}
	in.Verdict = map[bool]string{true: "pass", false: "fail"}[pass]
	var out Work
	err := h.hold(ctx, call, "verify", &in.HoldInput, &in, func(c *change, was, row *handoff.Handoff, a *handoff.Agent, found bool) error {
		stands := verdictStands(row, call.Actor, pass, in.Feedback, in.ClaimEpoch)
		if !found && !stands {
			labels, err := labelled(c.Tx, call.Actor, row.WorkspaceID)
			if err != nil {
				return err
			}
			event, err := row.Verify(call.Actor, labels, pass, in.Feedback, in.ClaimEpoch, c.Now())
			if err != nil {
				return err
			}
			if err := c.forgetVerifiers(row); err != nil {
				return err
			}
			if err := c.record(row, event, call.Actor, "", 0, row.Creator, row.Holder); err != nil {
				return err
			}
			if err := c.notToDisabled(row); err != nil {
				return err
			}
			if err := c.update(was, row); err != nil {
				return err
			}
		}
		return c.show(&out, a, row, found || stands)
	})
	return out, err
}

// takeToJudge is take for a verdict, which may give the work back to the agent that delivered it: that
// one is kept first, as its disabling does, or the two could wait for each other. Who it is was read before
// the transaction; another since is [errOtherHolder].
func (c *change) takeToJudge(id, holder string) (was, now handoff.Handoff, err error) {
	if holder == "" {
		was, now, err = c.take(id)
		if err == nil && now.State == handoff.Verifying {
			err = errOtherHolder
		}
		return was, now, err
	}
	c.ExpectKeep(holder)
	c.ExpectLockHandoff(id)
	if err := c.Keep(holder); err != nil {
		return was, now, err
	}
	was, now, err = c.take(id)
	if err == nil && now.State == handoff.Verifying && now.Holder != holder {
		err = errOtherHolder
	}
	return was, now, err
}

// errOtherHolder: the work was delivered by another than it was before.
var errOtherHolder = errors.New("the handoff has another holder than a moment ago")

// deliverer is the agent that a handoff waits for a verdict on; empty where there is none.
func (h *Hub) deliverer(ctx context.Context, id string) (holder string, err error) {
	err = h.st.Glance(ctx, func(tx *store.Tx) error {
		row, err := tx.Handoff(id)
		if err == nil && row.State == handoff.Verifying {
			holder = row.Holder
		}
		return err
	})
	if isCode(err, handoff.CodeNotFound) {
		err = nil // the verb says so
	}
	return holder, err
}

// notToDisabled opens work that was sent back to an agent which was turned off since it delivered.
func (c *change) notToDisabled(row *handoff.Handoff) error {
	if row.State != handoff.Claimed {
		return nil
	}
	executor, err := c.KeepAgentIn(row.Holder, row.WorkspaceID)
	if err != nil || !executor.Disabled {
		return err
	}
	if event, released := row.ReleaseDisabled(c.Now()); released {
		return c.record(row, event, handoff.System(), "", 0, row.Creator)
	}
	return nil
}

// verdictStands: the row is as an identical verdict of this actor left it.
func verdictStands(row *handoff.Handoff, actor handoff.Actor, pass bool, feedback string, epoch *int) bool {
	v := row.Verdict
	if v == nil || v.Pass != pass || v.Feedback != feedback || v.VerifiedBy != actor.ID || !row.ErasedAt.IsZero() {
		return false
	}
	if pass {
		return row.State == handoff.Completed && epochStands(epoch, row)
	}
	return row.State == handoff.Claimed && v.Epoch == row.Epoch && (epoch == nil || *epoch == row.Epoch-1)
}

// forgetVerifiers takes delivered work from the inboxes of those who need not judge it any more.
func (c *change) forgetVerifiers(row *handoff.Handoff) error {
	list, err := c.verifiers(row)
	if err != nil {
		return err
	}
	for _, id := range list {
		if id == row.Creator && id != c.call.Actor.ID { // its other news stay
			continue
		}
		if err := c.ClearNotices(id, row); err != nil {
			return err
		}
	}
	return nil
}

// beginAt is begin for a call at the pool, which names a project and perhaps a session.
func (c *change) beginAt(take func(string) (was, now handoff.Handoff, err error), id string, at place, s Session, o once) (was, row handoff.Handoff, effect store.Effect, found bool, err error) {
	was, row, err = take(id)
	if isCode(err, handoff.CodeNotFound) {
		err = poolNotFound(id)
	}
	if err == nil {
		err = first(
			func() error { return inPlace(c.Tx, &row, at) },
			func() error { return c.admit(s, &row) },
			func() (err error) { effect, found, err = c.done(o.op, o.print); return err })
	}
	return was, row, effect, found, err
}

// hold is the common path of the pool's verbs on a handoff: who calls, visibility, session, exact
// replay, then the verb, then the key.
func (h *Hub) hold(ctx context.Context, call Call, name string, in *HoldInput, full any, apply verb) error {
	at, err := h.poolCall(call, in.AgentID, in.ProjectRoot)
	if err != nil {
		return err
	}
	once, err := h.keyed(call, name, &in.IdempotencyKey, full)
	if err != nil {
		return err
	}
	if name == "verify" {
		return h.holdToJudge(ctx, call, in, at, once, apply)
	}
	return h.holdIn(ctx, call, name, in, at, once, (*change).take, apply)
}

// holdToJudge is hold for a verdict. Who delivered the work is read first, and again where that has changed.
func (h *Hub) holdToJudge(ctx context.Context, call Call, in *HoldInput, at place, once once, apply verb) error {
	for {
		holder, err := h.deliverer(ctx, in.ThreadID)
		if err != nil {
			return err
		}
		err = h.holdIn(ctx, call, "verify", in, at, once, func(c *change, id string) (was, now handoff.Handoff, err error) {
			return c.takeToJudge(id, holder)
		}, apply)
		if !errors.Is(err, errOtherHolder) {
			return err
		}
	}
}

// verb is what a verb does to a handoff that was taken; found tells that it did so before under the same key.
type verb func(c *change, was, row *handoff.Handoff, a *handoff.Agent, found bool) error

func (h *Hub) holdIn(ctx context.Context, call Call, name string, in *HoldInput, at place, once once, take func(*change, string) (was, now handoff.Handoff, err error), apply verb) error {
	return h.change(ctx, name, call, func(c *change) error {
		was, row, _, found, err := c.beginAt(func(id string) (was, now handoff.Handoff, err error) { return take(c, id) }, in.ThreadID, at, in.Session, once)
		if err != nil {
			return err
		}
		a, err := agentFor(c.Tx, call.Actor, &row)
		if err != nil {
			return err
		}
		if err := apply(c, &was, &row, a, found); err != nil || found {
			return err
		}
		return c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch})
	})
}
