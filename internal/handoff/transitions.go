package handoff

import (
	"fmt"
	"time"
)

// The state machine. Every method takes the actor and the time, checks the rule in the order
// in which refusals are promised (contracts: domain, "Which refusal"), changes h and returns
// the event that reports the change, or changes nothing and returns an [Error]. A method that
// finds its own effect already standing changes nothing and returns [Repeated]. Callers pass
// h as it is now (see [Handoff.At]) and have checked that the actor may see it.

// tools are what the verbs are called at a handoff's own door, for hints.
type tools struct{ look, take, decline, cancel string }

func (h *Handoff) tools() tools {
	if h.Door == DoorPool {
		return tools{look: "handoff_get", take: "handoff_claim", decline: "handoff_reject", cancel: "handoff_cancel"}
	}
	if h.Door == DoorDesk {
		return tools{look: "view_thread", take: "redeem_continuation", decline: "complete_handoff", cancel: "cancel_handoff"}
	}
	return tools{look: "view_thread", take: "accept_handoff", decline: "decline_handoff", cancel: "cancel_handoff"}
}

// Repeated is returned in place of an event by a call whose effect already stands: a success
// with nothing to write.
const Repeated EventType = ""

// ClaimInput is what a claim asks for.
type ClaimInput struct {
	// Agent is the claimant as registered.
	Agent *Agent
	// Lease is the length asked for; 0 takes the default of the handoff's door.
	Lease time.Duration
	// OtherVerifiers is how many agents besides the claimant offer the capability that must
	// verify the work; read only for a capability verifier.
	OtherVerifiers int
	// VerifierDisabled: the one agent that may verify was turned off; not read for a capability verifier.
	VerifierDisabled bool
}

// Claim gives h to the claimant: accept at the team door, claim at the pool. The same actor
// claiming what it holds keeps the epoch and renews the lease.
func (h *Handoff) Claim(actor Actor, in ClaimInput, now time.Time, lim Limits) (EventType, error) {
	if h.State.Terminal() {
		return "", h.terminal()
	}
	lease, err := h.leaseFor(in.Lease, lim)
	if err != nil {
		return "", err
	}
	if h.State != Open && h.Holder == actor.ID {
		if h.State == Claimed && (in.Lease > 0 || h.LeaseLength > 0) {
			if in.Lease == 0 {
				lease = h.LeaseLength
			}
			h.grant(lease, now)
		}
		return Repeated, nil
	}
	may := h.MayClaim(in.Agent, now)
	if h.State != Open && may {
		hint := "Leave it to its holder, or write to the thread with send_message if you take part in it."
		if h.Door == DoorPool {
			hint = "Leave it to its holder; handoff_claim without handoff_id takes the next one that you may."
		}
		return "", Refuse(CodeAlreadyClaimed, "another agent holds this handoff", hint)
	}
	if !may {
		return "", h.notForYou(actor)
	}
	if h.Unverifiable(actor.ID, in) {
		return "", Refuse(CodeNotEligibleToClaim, "if you took this handoff, nobody would be left who may verify it", "Leave it to another agent.")
	}
	if h.Blocked() {
		hint := "Wait until they are completed."
		if h.DepsFailed > 0 {
			hint = "Leave it: what has failed stays failed, and its creator decides what to do instead."
		}
		return "", Refuse(CodeDependencyNotMet, fmt.Sprintf("%d dependencies are pending and %d have failed", h.DepsPending, h.DepsFailed), hint)
	}
	h.Epoch++
	h.FallbackOpened = h.FallbackOpen(now) // its pool waits no more, and does not open meanwhile
	h.State = Claimed
	h.Holder = actor.ID
	h.WaitsForReply = false
	h.grant(lease, now)
	if h.AcceptedAt.IsZero() {
		h.AcceptedAt = now
	}
	h.UpdatedAt = now
	return EventClaimed, nil
}

// Unverifiable reports whether nobody would be left who may verify the work of the claimant.
func (h *Handoff) Unverifiable(claimant string, in ClaimInput) bool {
	if h.VerifyBy == nil {
		return false
	}
	switch h.VerifyBy.Kind {
	case VerifyByCreator:
		return claimant == h.Creator || in.VerifierDisabled
	case VerifyByAgent:
		return claimant == h.VerifyBy.AgentID || in.VerifierDisabled
	}
	return in.OtherVerifiers == 0
}

func (h *Handoff) leaseFor(asked time.Duration, lim Limits) (time.Duration, error) {
	if asked == 0 {
		if h.Door == DoorPool {
			return lim.PoolLease, nil
		}
		return 0, nil
	}
	return asked, CheckLease(asked, lim)
}

// CheckLease refuses a lease of another length than is granted; 0 asks for none.
func CheckLease(asked time.Duration, lim Limits) error {
	if asked == 0 || asked >= lim.MinLease && asked <= lim.MaxLease {
		return nil
	}
	return Invalid("lease_seconds", fmt.Sprintf("%d came, %d to %d seconds are accepted",
		int64(asked/time.Second), int64(lim.MinLease/time.Second), int64(lim.MaxLease/time.Second)))
}

func (h *Handoff) grant(lease time.Duration, now time.Time) {
	h.LeaseLength = lease
	h.LeaseExpiresAt = time.Time{}
	if lease > 0 {
		h.LeaseExpiresAt = now.Add(lease)
	}
}

// AsHolder checks that the actor holds h at the given epoch; it guards complete, reject after
// the claim, extend, release and draft. epoch nil means that the caller named none, which is
// enough only while there has been a single claim.
func (h *Handoff) AsHolder(actor Actor, epoch *int) error {
	holds := h.Holder == actor.ID && h.State != Open
	switch {
	case !holds && h.HeldBefore(actor.ID):
		return Refuse(CodeLeaseLost, "you held this handoff once and do not hold it now", "Look at it with "+h.tools().look+"; if it is open again and you may take it, "+h.tools().take+" takes it anew.")
	case !holds && h.State == Open && h.isRecipient(actor.ID, actor.Handle) && h.RecipientDeclined:
		return declinedBefore()
	case !holds && h.State == Open && h.isRecipient(actor.ID, actor.Handle):
		return Refuse(CodeInvalidTransition, "this handoff is pending: you have not accepted it", "Call "+h.tools().take+" first.")
	case !holds && h.State.Terminal() && h.isRecipient(actor.ID, actor.Handle):
		return h.terminal()
	case !holds:
		return Refuse(CodeNotOwner, "only the holder of this handoff may do that", "Who may have it takes it with "+h.tools().take+"; the creator can "+h.tools().cancel+" while nobody has it.")
	case h.State.Terminal():
		return h.terminal()
	}
	if err := h.checkEpoch(epoch); err != nil {
		return err
	}
	if h.State != Claimed {
		return Refuse(CodeInvalidTransition, "the work was delivered and waits for its verdict", "Wait for the verifier; a fail gives it back to you.")
	}
	return nil
}

func (h *Handoff) checkEpoch(epoch *int) error {
	if ignoreEpoch || epoch == nil && h.Epoch <= 1 {
		return nil
	}
	if epoch != nil && *epoch == h.Epoch {
		return nil
	}
	came := "none came"
	if epoch != nil {
		came = fmt.Sprintf("%d came", *epoch)
	}
	return Refuse(CodeStaleClaimEpoch, fmt.Sprintf("claim_epoch: %s, the current one is %d", came, h.Epoch),
		"Look at it again with "+h.tools().look+": the work may have been claimed again, reassigned or sent back. Repeat with the current claim_epoch if it is still yours.").With("claim_epoch", h.Epoch)
}

// terminal words the refusal for a handoff that has ended.
func (h *Handoff) terminal() *Error {
	create := "handoff_to_teammate"
	switch h.Door {
	case DoorPool:
		create = "handoff_create"
	case DoorDesk:
		create = "initiate_handoff"
	}
	return Refuse(CodeThreadTerminal, "this handoff has ended: it is "+h.Status(),
		"Nothing can change it any more. Start a new handoff with "+create+".").With("status", h.Status())
}

// Complete delivers the work. With acceptance criteria h waits for its verdict in VERIFYING,
// the lease suspended; without, it is COMPLETED.
func (h *Handoff) Complete(actor Actor, epoch *int, now time.Time) (EventType, error) {
	if err := h.AsHolder(actor, epoch); err != nil {
		return "", err
	}
	h.UpdatedAt = now
	h.WaitsForReply = false
	h.LeaseExpiresAt = time.Time{}
	if len(h.Criteria) > 0 {
		h.State = Verifying
		return EventVerificationRequested, nil
	}
	h.end(Completed, actor, "", now)
	return EventCompleted, nil
}

// notForYou is the refusal of a claim by an agent that may not take h, with the reason if it is the agent's own doing.
func (h *Handoff) notForYou(actor Actor) error {
	switch {
	case h.RecipientDeclined && h.isRecipient(actor.ID, actor.Handle):
		return Refuse(CodeNotEligibleToClaim, "you refused this handoff: it is for the others now", "Leave it to another agent.")
	case h.Target != nil && h.Creator == actor.ID:
		return Refuse(CodeNotEligibleToClaim, "you offered this handoff, and its target does not name you", "Whoever offers work takes it only if the target is direct to it; handoff_cancel takes it back.")
	}
	return Refuse(CodeNotEligibleToClaim, "this handoff is not addressed to you", "Only its named recipient, or an agent that its target matches, can take it.")
}

// Verify judges delivered work. The one who delivered never verifies.
func (h *Handoff) Verify(actor Actor, a *Agent, pass bool, feedback string, epoch *int, now time.Time) (EventType, error) {
	if !h.mayVerify(actor, a) {
		return "", Refuse(CodeVerifierNotEligible, "you may not verify this handoff", "Its creator chose who verifies; the one who delivered never does.")
	}
	if h.State.Terminal() {
		return "", h.terminal()
	}
	if h.State != Verifying {
		return "", Refuse(CodeInvalidTransition, "nothing waits for a verdict: it is not delivered yet, or was sent back to be done anew", "Wait until the holder has completed it: handoff_list_available with scope to_verify can.")
	}
	if err := h.checkEpoch(epoch); err != nil {
		return "", err
	}
	if !pass {
		h.Epoch++
	}
	h.Verdict = &Verdict{Pass: pass, Feedback: feedback, VerifiedBy: actor.ID, At: now, Epoch: h.Epoch}
	h.UpdatedAt = now
	if pass {
		h.end(Completed, actor, "", now)
		return EventCompleted, nil
	}
	h.State = Claimed
	h.grant(h.LeaseLength, now)
	return EventVerificationFailed, nil
}

// Reject refuses the work: the named recipient before the claim, the holder after it. The
// recipient of a direct_with_fallback target that says no before the claim leaves h OPEN for
// the pool and cannot claim it any more.
func (h *Handoff) Reject(actor Actor, reason string, epoch *int, now time.Time) (EventType, error) {
	if h.State != Open || !h.isRecipient(actor.ID, actor.Handle) {
		if actor.ID == h.Creator && actor.ID != h.Holder && !h.isRecipient(actor.ID, actor.Handle) {
			if h.Door == DoorPool {
				return "", Refuse(CodeNotOwner, "the creator of a handoff cannot reject it", "While it is OPEN, handoff_cancel takes it back; once it is claimed, its holder or the operator can end it.")
			}
			return "", Refuse(CodeNotOwner, "the sender of a handoff cannot decline it", "Take it back with "+h.tools().cancel+" while it is pending.")
		}
		if err := h.AsHolder(actor, epoch); err != nil {
			return "", err
		}
		h.end(Rejected, actor, reason, now)
		return EventRejected, nil
	}
	if h.RecipientDeclined {
		return "", declinedBefore()
	}
	if h.Target != nil && h.Target.HasFallback() {
		h.Recipient = actor.ID // it may have registered later
		h.RecipientDeclined = true
		h.FallbackAt = time.Time{} // there is nothing to wait for any more
		h.UpdatedAt = now
		return EventFallbackOpened, nil
	}
	h.end(Rejected, actor, reason, now)
	return EventRejected, nil
}

func declinedBefore() *Error {
	return Refuse(CodeInvalidTransition, "you declined this handoff already; it is open to its fallback pool", "Nothing is left for you to do.")
}

// Cancel takes h back: the creator while it is OPEN, or CLAIMED by an agent that was disabled
// since; the operator in OPEN, CLAIMED and VERIFYING, with a reason.
func (h *Handoff) Cancel(actor Actor, reason string, holderDisabled bool, now time.Time) (EventType, error) {
	switch {
	case !actor.IsOperator() && actor.ID != h.Creator:
		return "", Refuse(CodeNotOwner, "only the sender can cancel a handoff", "If it was sent to you, use "+h.tools().decline+".")
	case h.State.Terminal():
		return "", h.terminal()
	case actor.IsOperator() && reason == "":
		return "", Invalid("reason", "nothing came; the operator gives a reason when cancelling")
	case !actor.IsOperator() && h.State != Open && (h.State != Claimed || !holderDisabled):
		hint := "Ask its holder with send_message to " + h.tools().decline + " it, or the operator, who can cancel it."
		switch h.Door {
		case DoorDesk:
			hint = "Tell its holder with reply_to_person or send_message, or ask the operator, who can cancel it."
		case DoorPool:
			hint = "Its holder can end it with handoff_reject, and the operator can cancel it; handoff_get with known_status waits for what comes."
		}
		return "", Refuse(CodeInvalidTransition, "it is "+h.Status()+", so somebody has taken it: it can no longer be cancelled", hint)
	}
	h.end(Cancelled, actor, reason, now)
	return EventCancelled, nil
}

// Extend renews the holder's lease for another length; 0 keeps the length of the claim.
func (h *Handoff) Extend(actor Actor, lease time.Duration, epoch *int, now time.Time, lim Limits) (EventType, error) {
	if err := h.AsHolder(actor, epoch); err != nil {
		return "", err
	}
	length := h.LeaseLength // none stays none
	if lease != 0 {
		var err error
		if length, err = h.leaseFor(lease, lim); err != nil {
			return "", err
		}
	}
	h.grant(length, now)
	h.UpdatedAt = now
	return EventExtended, nil
}

// Release gives h back: it is OPEN again for whoever may claim it.
func (h *Handoff) Release(actor Actor, epoch *int, now time.Time) (EventType, error) {
	if err := h.AsHolder(actor, epoch); err != nil {
		return "", err
	}
	h.reopen(now)
	return EventReleased, nil
}

// ReleaseDisabled opens a pool claim whose holder was disabled.
func (h *Handoff) ReleaseDisabled(now time.Time) (EventType, bool) {
	if h.State != Claimed || h.Door != DoorPool {
		return "", false
	}
	h.reopen(now)
	return EventReleased, true
}

// Lapse writes down that the lease is over. It changes no epoch.
func (h *Handoff) Lapse(now time.Time) (EventType, bool) {
	if !h.LeaseLapsed(now) {
		return "", false
	}
	h.reopen(h.LeaseExpiresAt)
	h.UpdatedAt = now
	return EventLeaseLapsed, true
}

// reopen makes h OPEN again, as of the given time. Its fallback pool waits its turn anew.
func (h *Handoff) reopen(at time.Time) {
	h.leave()
	h.State = Open
	h.UpdatedAt = at
	h.armFallback(at)
}

// armFallback starts the wait for the fallback pool of a handoff that can be claimed from now on.
func (h *Handoff) armFallback(at time.Time) {
	if !h.Target.HasFallback() || h.RecipientDeclined || h.Blocked() {
		return
	}
	h.FallbackAt = at.Add(time.Duration(h.Target.FallbackAfterSeconds) * time.Second)
	h.FallbackOpened = false
}

// Begin starts what runs from the creation of h.
func (h *Handoff) Begin(now time.Time) { h.armFallback(now) }

// OpenFallback writes down that the wait for the fallback pool is over, unless the deadline came
// first.
func (h *Handoff) OpenFallback(now time.Time) (EventType, bool) {
	if h.State != Open || h.FallbackOpened || h.RecipientDeclined || h.FallbackAt.IsZero() || now.Before(h.FallbackAt) ||
		!h.ExpiresAt.IsZero() && !h.FallbackAt.Before(h.ExpiresAt) {
		return "", false
	}
	h.FallbackOpened = true
	h.UpdatedAt = now
	return EventFallbackOpened, true
}

// Expire writes down that the deadline passed while h was OPEN.
func (h *Handoff) Expire(now time.Time) (EventType, bool) {
	if !h.PastDeadline(now) {
		return "", false
	}
	h.end(Expired, System(), "its deadline passed before anyone took it", now)
	return EventExpired, true
}

// ReassignInput is what the operator says when giving a handoff to another agent.
type ReassignInput struct {
	To     *Agent
	Reason string
	// OtherVerifiers and VerifierDisabled are as in [ClaimInput].
	OtherVerifiers   int
	VerifierDisabled bool
}

// Reassign gives h to another agent by the operator's hand, without a lease. The reason becomes
// the next message of the thread, even of a full one. Giving it to who holds it changes nothing,
// unless the work was delivered: then its holder gets it back.
func (h *Handoff) Reassign(actor Actor, in ReassignInput, now time.Time) (EventType, error) {
	to := in.To
	switch {
	case !actor.IsOperator():
		return "", Refuse(CodePermissionDenied, "only the operator reassigns a handoff", "")
	case h.State.Terminal():
		return "", h.terminal()
	case in.Reason == "":
		return "", Invalid("reason", "nothing came; the operator gives a reason when reassigning")
	case to == nil || to.Disabled:
		return "", Invalid("to", "the agent is disabled; name an active one")
	case to.ID == h.Creator && to.ID != h.Recipient && (h.Target == nil || !h.Target.NamesDirectly(to)):
		return "", Invalid("to", "this agent sent the handoff; name another one, or cancel the handoff instead")
	case h.Unverifiable(to.ID, ClaimInput{OtherVerifiers: in.OtherVerifiers, VerifierDisabled: in.VerifierDisabled}):
		return "", Refuse(CodeNotEligibleToClaim, "to: if this agent held the handoff, nobody would be left who may verify it", "Name another agent.")
	case h.State == Claimed && h.Holder == to.ID:
		return Repeated, nil
	}
	h.leave()
	h.Messages++
	h.FallbackOpened = h.FallbackOpen(now)
	h.State = Claimed
	h.Holder = to.ID
	h.Epoch++
	if h.AcceptedAt.IsZero() {
		h.AcceptedAt = now
	}
	h.UpdatedAt = now
	return EventReassigned, nil
}

// DependencyEnded tells h that one of its dependencies reached a terminal state. The event is
// [EventUnblocked] when that was the last one to wait for, [EventDependencyFailed] when it
// failed, and [Repeated] when others are still pending. One that has ended itself stays as it
// is: that is [Repeated] too.
func (h *Handoff) DependencyEnded(s State, now time.Time) EventType {
	if h.State.Terminal() {
		return Repeated
	}
	h.DepsPending--
	if s != Completed {
		h.DepsFailed++
		h.UpdatedAt = now
		return EventDependencyFailed
	}
	if h.Blocked() {
		return Repeated
	}
	h.UpdatedAt = now
	h.armFallback(now)
	return EventUnblocked
}

func (h *Handoff) end(s State, by Actor, reason string, now time.Time) {
	h.State = s
	h.EndedBy = by.ID
	h.EndedReason = reason
	h.LeaseExpiresAt = time.Time{}
	h.WaitsForReply = false
	h.UpdatedAt = now
	if s == Completed {
		h.CompletedAt = now
	}
}

// Append checks that the actor may add a message to the thread, counts it and returns the
// event. expectsReply is the holder's alone.
func (h *Handoff) Append(actor Actor, a *Agent, expectsReply bool, now time.Time, lim Limits) (EventType, error) {
	switch {
	case !h.Participant(actor, a):
		return "", Refuse(CodeNotAParticipant, "you do not take part in this thread", "Only its sender, its recipient and its holder write to it.")
	case h.State.Terminal():
		return "", h.terminal()
	case expectsReply && (actor.ID != h.Holder || h.State != Claimed):
		return "", Refuse(CodeNotOwner, "expects_reply: only the holder of an accepted handoff may set it", "Accept the handoff first, or leave expects_reply out.")
	case h.Messages >= lim.Messages:
		return "", TooLarge("thread", h.Messages+1, lim.Messages, "messages")
	}
	h.Messages++
	h.UpdatedAt = now
	if expectsReply {
		h.WaitsForReply = true
		return EventInputRequired, nil
	}
	if actor.ID == h.Creator {
		h.WaitsForReply = false
	}
	return EventMessageCreated, nil
}

// Draft checks that the actor may offer a diff for the action that h proposes.
func (h *Handoff) Draft(actor Actor, epoch *int, now time.Time) (EventType, error) {
	if err := h.AsHolder(actor, epoch); err != nil {
		return "", err
	}
	if h.Intent != ProposeAction {
		return "", Refuse(CodeInvalidIntentPayload, fmt.Sprintf("intent: this handoff is %s; only a propose_action handoff takes a draft", h.Intent),
			"Send the diff as a file_diff artifact with send_message.")
	}
	h.UpdatedAt = now
	return EventDraftCreated, nil
}
