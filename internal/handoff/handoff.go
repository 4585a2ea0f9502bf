package handoff

import (
	"encoding/json"
	"strings"
	"time"
)

// Door is the front door a handoff was made at.
type Door string

// The three doors.
const (
	DoorTeam Door = "team"
	DoorPool Door = "pool"
	DoorDesk Door = "desk"
)

// State is where a handoff stands. See transitions.go for who moves it.
type State string

// The states. The last four are terminal: nothing leaves them.
const (
	Open      State = "open"
	Claimed   State = "claimed"
	Verifying State = "verifying"
	Completed State = "completed"
	Rejected  State = "rejected"
	Cancelled State = "cancelled"
	Expired   State = "expired"
)

// Terminal reports whether nothing can leave s.
func (s State) Terminal() bool {
	switch s {
	case Completed, Rejected, Cancelled, Expired:
		return true
	}
	return false
}

// States lists all states.
func States() []State {
	return []State{Open, Claimed, Verifying, Completed, Rejected, Cancelled, Expired}
}

// TeamStatus is the word the team door uses for s.
func (s State) TeamStatus() string {
	switch s {
	case Open:
		return "pending"
	case Claimed, Verifying:
		return "accepted"
	case Rejected:
		return "declined"
	}
	return string(s)
}

// PoolStatus is the word the other doors use for s: OPEN, CLAIMED and so on.
func (s State) PoolStatus() string { return strings.ToUpper(string(s)) }

// Status is the word that the door of h uses for its state.
func (h *Handoff) Status() string {
	if h.Door == DoorTeam || h.Door == "" {
		return h.State.TeamStatus()
	}
	return h.State.PoolStatus()
}

// TeamStatuses lists the words of the team door, in the order they are documented.
func TeamStatuses() []string {
	return []string{"pending", "accepted", "completed", "declined", "cancelled", "expired"}
}

// StatesOf turns a word of the team door into the states it stands for; an unknown word
// gives none.
func StatesOf(teamStatus string) []State {
	var states []State
	for _, s := range States() {
		if s.TeamStatus() == teamStatus {
			states = append(states, s)
		}
	}
	return states
}

// Intent is what the sender of a team handoff expects.
type Intent string

// The intents.
const (
	Inform        Intent = "inform"
	AskQuestion   Intent = "ask_question"
	ProposeAction Intent = "propose_action"
)

// Visibility says who may see a pool handoff besides those who may claim it.
type Visibility string

// The visibilities. Handoffs of the other doors are private.
const (
	Public   Visibility = "public"
	Eligible Visibility = "eligible"
	Private  Visibility = "private"
)

// Verdict is the latest judgement on delivered work.
type Verdict struct {
	// Pass is true for a pass, false for a fail.
	Pass       bool      `json:"pass"`
	Feedback   string    `json:"feedback,omitempty"`
	VerifiedBy string    `json:"verified_by"`
	At         time.Time `json:"at"`
	// Epoch is that of the claim as the verdict left it.
	Epoch int `json:"epoch"`
}

// Handoff is one unit of work or context on its way from one holder to the next. It is the
// row of the one table that all doors share; its methods are the only code that changes its
// state. Actors are agent UUIDs, or "operator" and "hub". Zero times mean "not yet" or
// "none".
type Handoff struct {
	ID        string
	Door      Door
	State     State
	Creator   string // the originator, never the owner
	Recipient string // the named direct recipient, if there is one
	Holder    string // who holds the claim, or held it when the handoff ended
	// PastHolders held it once and lost or gave it back; they are told lease_lost, strangers
	// are told not_owner.
	PastHolders []string
	// Epoch is the fencing token: 0 before the first claim, +1 at each claim, reassignment
	// and failed verdict, and at nothing else.
	Epoch          int
	LeaseLength    time.Duration // as granted; 0 = the claim has no lease
	LeaseExpiresAt time.Time     // zero while VERIFYING and without a lease

	Intent         Intent
	Preview        string // the first 240 characters of the summary
	Question       string
	ProposedAction *ProposedAction
	Metadata       json.RawMessage // an object, as it came; nil = none

	WorkspaceID string
	Target      *Target // who may claim; nil = the recipient only
	Visibility  Visibility
	Priority    int // -1 low, 0 normal, 1 high
	Payload     json.RawMessage
	Result      json.RawMessage
	Criteria    []string
	VerifyBy    *VerifyBy
	Verdict     *Verdict
	DepsTotal   int // dependencies in all
	DepsPending int
	DepsFailed  int
	// FallbackAt opens the fallback pool of a direct_with_fallback target.
	FallbackAt time.Time
	// FallbackOpened: that moment came and was written down.
	FallbackOpened bool
	// RecipientDeclined: the direct target said no before the claim and cannot claim any more.
	RecipientDeclined bool

	// WaitsForReply: the holder asked and the creator has not answered yet.
	WaitsForReply bool
	Messages      int // messages so far = the last sequence_no
	EventSeq      int // events so far = the last event_seq
	TraceID       string
	TraceParent   string // W3C trace context of the call that created it

	CreatedAt           time.Time
	UpdatedAt           time.Time
	ExpiresAt           time.Time // the deadline while OPEN
	FetchedAt           time.Time // first handed to its recipient
	AcceptedAt          time.Time
	CompletedAt         time.Time
	EndedBy             string
	EndedReason         string
	ResultSummary       string
	CompletionArtifacts []Artifact
	// ErasedAt is when the operator removed the texts; see [Handoff.Erase].
	ErasedAt time.Time
}

// At returns h as it is at now: a lapsed lease reads as OPEN and an OPEN handoff past its
// deadline as EXPIRED, whether or not a sweep has written that down yet.
func (h Handoff) At(now time.Time) Handoff {
	if h.LeaseLapsed(now) && !lapseBySweep {
		h.reopen(h.LeaseExpiresAt)
	}
	if h.PastDeadline(now) {
		h.State = Expired
		h.EndedBy = System().ID
		h.EndedReason = "its deadline passed before anyone took it"
		if h.ExpiresAt.After(h.UpdatedAt) {
			h.UpdatedAt = h.ExpiresAt
		}
	}
	return h
}

// LeaseLapsed reports whether h is written down as CLAIMED although its lease is over.
func (h *Handoff) LeaseLapsed(now time.Time) bool {
	return h.State == Claimed && !h.LeaseExpiresAt.IsZero() && !now.Before(h.LeaseExpiresAt)
}

// PastDeadline reports whether h is written down as OPEN although its deadline is over.
func (h *Handoff) PastDeadline(now time.Time) bool {
	return h.State == Open && !h.ExpiresAt.IsZero() && !now.Before(h.ExpiresAt)
}

// Blocked reports whether dependencies keep h from being claimed.
func (h *Handoff) Blocked() bool { return h.DepsPending > 0 || h.DepsFailed > 0 }

// FallbackOpen reports whether a direct_with_fallback target has opened its pool. It opens while h is
// OPEN only: a claim stops the wait.
func (h *Handoff) FallbackOpen(now time.Time) bool {
	if h.RecipientDeclined || h.FallbackOpened {
		return true
	}
	return h.State == Open && !h.FallbackAt.IsZero() && !now.Before(h.FallbackAt)
}

// HeldBefore reports whether the actor held h once and does not hold it now.
func (h *Handoff) HeldBefore(actorID string) bool {
	for _, p := range h.PastHolders {
		if p == actorID {
			return h.Holder != actorID
		}
	}
	return false
}

// MayClaim reports whether the target lets the agent claim h, whatever its state.
func (h *Handoff) MayClaim(a *Agent, now time.Time) bool {
	if a == nil || a.Disabled || a.Outside {
		return false
	}
	named := h.isRecipient(a.ID, a.Handle)
	if named && h.RecipientDeclined {
		return false
	}
	if h.Target == nil {
		return named
	}
	if h.Creator == a.ID && !named && !h.Target.NamesDirectly(a) {
		return false
	}
	return named || h.Target.Matches(a, h.FallbackOpen(now))
}

// isRecipient reports whether the actor is the one that h names: the recipient, or the agent of a
// direct target that registered later.
func (h *Handoff) isRecipient(id, handle string) bool {
	if h.Recipient != "" {
		return id == h.Recipient
	}
	return h.Target != nil && h.Target.names(&Agent{ID: id, Handle: handle})
}

// Participant reports whether the actor takes part in the thread: creator, named recipient,
// holder, verifier while there is something to verify, or the operator. The one that a pool handoff
// names takes part until it has declined or somebody has claimed.
func (h *Handoff) Participant(actor Actor, a *Agent) bool {
	if actor.IsOperator() || actor.ID == h.Creator {
		return true
	}
	if h.isRecipient(actor.ID, actor.Handle) && (h.Door != DoorPool || h.Holder == "" && !h.RecipientDeclined) {
		return true
	}
	if actor.ID == h.Holder && h.State != Open {
		return true
	}
	return (h.State == Verifying || h.State == Completed) && h.mayVerify(actor, a)
}

// Concerns reports whether the actor has a part in h of its own: it takes part in the thread, is
// named to verify the work, gave the last verdict, or ended it.
func (h *Handoff) Concerns(actor Actor, a *Agent) bool {
	return h.Participant(actor, a) || h.mayVerifyAlways(actor) || h.verifiedBy(actor) || actor.ID == h.EndedBy
}

func (h *Handoff) verifiedBy(actor Actor) bool {
	return h.Verdict != nil && h.Verdict.VerifiedBy == actor.ID
}

// VisibleTo reports whether the actor may know that h exists: whoever may read it, whoever held it
// once, because it is told lease_lost, and whoever it names. a is the actor's agent, nil for the
// operator.
func (h *Handoff) VisibleTo(actor Actor, a *Agent, now time.Time) bool {
	return h.HeldBefore(actor.ID) || h.isRecipient(actor.ID, actor.Handle) || h.ReadableBy(actor, a, now)
}

// Lost reports whether the actor asks too late for what it could have claimed while it was OPEN. It
// is told so, even if it may not see who was faster.
func (h *Handoff) Lost(a *Agent, now time.Time) bool {
	return (h.State == Claimed || h.State == Verifying) && h.MayClaim(a, now)
}

// ResultFor reports whether the actor is shown the result and the feedback: creator, claimant,
// verifier and the operator. Having refused it unclaimed is not enough: another may have delivered before.
func (h *Handoff) ResultFor(actor Actor, a *Agent) bool {
	return actor.IsOperator() || actor.ID == h.Creator || actor.ID == h.Holder && h.State != Open ||
		h.mayVerifyAlways(actor) || h.verifiedBy(actor) || (h.State == Verifying || h.State == Completed) && h.mayVerify(actor, a)
}

// ReadableBy reports whether the actor may read h with its thread. Having held it is not enough.
func (h *Handoff) ReadableBy(actor Actor, a *Agent, now time.Time) bool {
	if h.Concerns(actor, a) {
		return true
	}
	if a == nil || a.Disabled || a.Outside || h.Door != DoorPool {
		return false
	}
	if h.At(now).State == Open && h.MayClaim(a, now) {
		return true
	}
	switch h.Visibility {
	case Public:
		return true
	case Eligible:
		return h.Target != nil && h.Target.Matches(a, true)
	}
	return false
}

// PayloadFor reports whether the actor is shown the payload: the current or the completing
// claimant is, and nobody else (domain: "Who sees what").
func (h *Handoff) PayloadFor(actorID string) bool {
	switch h.State {
	case Claimed, Verifying, Completed:
		return h.Holder == actorID || payloadToPastHolders && h.HeldBefore(actorID)
	}
	return false
}

// DeliveredBy reports whether the result of h is surely the actor's own work. A result stays when
// its holder loses the handoff, so whoever holds it next finds the work of another.
func (h *Handoff) DeliveredBy(actorID string) bool {
	return h.Holder == actorID && (h.State == Verifying || h.State == Completed || len(h.PastHolders) == 0)
}

// mayVerifyAlways: a creator or a named agent that is to verify sees h from the start; a
// capability verifier only from VERIFYING on.
func (h *Handoff) mayVerifyAlways(actor Actor) bool {
	return h.VerifyBy != nil && h.VerifyBy.Kind == VerifyByAgent && h.VerifyBy.AgentID == actor.ID
}

// MayVerify reports whether the actor may judge the work of h.
func (h *Handoff) MayVerify(actor Actor, a *Agent) bool { return h.mayVerify(actor, a) }

func (h *Handoff) mayVerify(actor Actor, a *Agent) bool {
	if h.VerifyBy == nil || actor.ID == h.Holder {
		return false
	}
	switch h.VerifyBy.Kind {
	case VerifyByCreator:
		return actor.ID == h.Creator
	case VerifyByAgent:
		return actor.ID == h.VerifyBy.AgentID
	case VerifyByCapability:
		return a != nil && !a.Disabled && !a.Outside && a.HasCapability(h.VerifyBy.Capability)
	}
	return false
}

// leave takes the holder off h and remembers it. A past holder is listed once.
func (h *Handoff) leave() {
	if h.Holder != "" && !contains(h.PastHolders, h.Holder) {
		h.PastHolders = append(h.PastHolders[:len(h.PastHolders):len(h.PastHolders)], h.Holder)
	}
	h.Holder = ""
	h.LeaseLength = 0
	h.LeaseExpiresAt = time.Time{}
	h.WaitsForReply = false
}

func contains(list []string, s string) bool {
	for _, v := range list {
		if v == s {
			return true
		}
	}
	return false
}
