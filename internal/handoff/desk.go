package handoff

import "time"

// DeskMode says who is to take a handoff of the desk.
type DeskMode string

// The modes: the person of a business, or whichever agent holds the signed link.
const (
	HumanMode DeskMode = "human"
	AgentMode DeskMode = "agent"
)

// Desk is what a handoff of the desk has besides what all have.
type Desk struct {
	HandoffID string
	Slug      string
	Mode      DeskMode
	Urgency   Urgency
	// Reason is why the user wants a human, Purpose what the next agent is to go on with.
	Reason  string
	Purpose string
	// ReservationID is an opaque reference of the caller.
	ReservationID string
	// AgentLabel is what the caller calls itself; it is shown as unverified and is no authority.
	AgentLabel string
}

// Contact is the end user that a handoff of the desk is about. It can be erased.
type Contact struct{ Name, Email, Phone string }

// HumanDeadline is how long a person may take, ContinuationLasts how long a continuation can be
// redeemed (contracts: desk).
const (
	HumanDeadline     = 7 * 24 * time.Hour
	ContinuationLasts = time.Hour
)

// DeliveryState is where a delivery stands.
type DeliveryState string

// The states. Queued and sending ones go on by themselves; unconfirmed and dead ones are for the
// operator; a refused one certainly did not go out.
const (
	DeliveryQueued      DeliveryState = "queued"
	DeliverySending     DeliveryState = "sending"
	DeliverySent        DeliveryState = "sent"
	DeliveryRefused     DeliveryState = "refused"
	DeliveryUnconfirmed DeliveryState = "unconfirmed"
	DeliveryDead        DeliveryState = "dead"
)

// DeliveryStates lists them.
func DeliveryStates() []DeliveryState {
	return []DeliveryState{DeliveryQueued, DeliverySending, DeliverySent, DeliveryRefused, DeliveryUnconfirmed, DeliveryDead}
}

// Pending reports whether the delivery goes on by itself.
func (s DeliveryState) Pending() bool { return s == DeliveryQueued || s == DeliverySending }

// Delivery is one notification to somebody outside, with what became of it.
type Delivery struct {
	ID        string
	HandoffID string
	Kind      NotificationKind
	Channel   Channel
	// Recipient is an actor: the person of a business, or an agent.
	Recipient string
	// SequenceNo is the message that it carries, EventSeq the event that it is news of; 0 for none.
	SequenceNo int
	EventSeq   int
	State      DeliveryState
	// Reason is a word for why it was refused, or why the last attempt failed.
	Reason     string
	ProviderID string
	Attempts   int
	// Unknown: some attempt may have gone out although nothing said so.
	Unknown bool
	// DueAt is when it is to be taken; of one that is being sent, when it may be taken anew.
	DueAt     time.Time
	CreatedAt time.Time
	UpdatedAt time.Time
	// SpendDay and Cost are what it reserved of the cap of its business.
	SpendDay string
	Cost     int64
}

const (
	// SendLease outlives any attempt, so that a slow provider is not called twice at once.
	SendLease = 2 * time.Minute
	// GiveUpAfter is how long a delivery is tried.
	GiveUpAfter = 24 * time.Hour
	firstPause  = 15 * time.Second
	longPause   = time.Hour
)

// Take begins an attempt at now. An attempt that never reported back may have gone out.
func (d *Delivery) Take(now time.Time) {
	if d.State == DeliverySending {
		d.Unknown = true
	}
	d.State = DeliverySending
	d.Attempts++
	d.DueAt = now.Add(SendLease)
	d.UpdatedAt = now
}

// Report writes down how an attempt ended. jitter is between 0 and 1. It returns the event to
// record, or [Repeated] when there will be another attempt. E-mail and webhooks are sent again after
// an unknown outcome, because their id makes a duplicate recognisable; a text message never is.
func (d *Delivery) Report(o Outcome, jitter float64, now time.Time) EventType {
	d.Reason, d.UpdatedAt = o.Reason, now
	switch {
	case o.Kind == OutcomeSent:
		d.State, d.Reason, d.ProviderID = DeliverySent, "", o.ProviderID
		return EventDeliverySent
	case o.Kind == OutcomeRefused && !d.Unknown:
		d.State = DeliveryRefused
		return EventDeliveryRefused
	case o.Kind == OutcomeRefused: // an earlier attempt may have gone out
		d.State = DeliveryDead
		return EventDeliveryDead
	case o.Kind == OutcomeUnknown:
		d.Unknown = true
		if d.Channel == ChannelSMS {
			d.State = DeliveryUnconfirmed
			return EventDeliveryUnconfirmed
		}
	}
	pause := max(d.pause(jitter), min(o.RetryAfter, longPause))
	if !now.Add(pause).Before(d.CreatedAt.Add(GiveUpAfter)) {
		d.State = DeliveryDead
		return EventDeliveryDead
	}
	d.State, d.DueAt = DeliveryQueued, now.Add(pause)
	return Repeated
}

// pause doubles with each attempt up to an hour, spread by a quarter either way.
func (d *Delivery) pause(jitter float64) time.Duration {
	pause := longPause
	if d.Attempts < 10 {
		pause = min(firstPause<<max(d.Attempts-1, 0), longPause)
	}
	return time.Duration(float64(pause) * (0.75 + jitter/2))
}

// Resend queues a delivery anew by the operator's hand; one that waits for its next attempt is due now. Of
// one that was sent it makes another with the id anew, where the operator says so: with its own id the
// other side might take it for the first.
func (d *Delivery) Resend(anew string, again bool, now time.Time) error {
	switch {
	case d.State == DeliverySending:
		return Refuse(CodeInvalidTransition, "this delivery is being sent at this moment", "Nothing was changed. handclasp delivery list shows what becomes of it.")
	case d.State == DeliverySent && !again:
		return Refuse(CodeInvalidTransition, "this delivery was sent", "Nothing was changed. --again sends another like it.")
	case d.State == DeliverySent:
		*d = Delivery{ID: anew, HandoffID: d.HandoffID, Kind: d.Kind, Channel: d.Channel, Recipient: d.Recipient, SequenceNo: d.SequenceNo, EventSeq: d.EventSeq, CreatedAt: now}
	case d.State != DeliveryQueued:
		d.CreatedAt = now
	}
	d.State, d.DueAt, d.UpdatedAt, d.Reason = DeliveryQueued, now, now, ""
	return nil
}

// Refusal reports whether it is certain that nothing went out, and why. A dead delivery is that only
// if no attempt had an unknown outcome.
func (d *Delivery) Refusal() (reason string, certain bool) {
	switch d.State {
	case DeliveryRefused:
		return d.Reason, true
	case DeliveryDead:
		return d.Reason, !d.Unknown
	}
	return "", false
}

// Redeem gives a handoff of the desk to the bearer of its continuation. Callers have checked the
// token and that nobody redeemed it before.
func (h *Handoff) Redeem(actor Actor, now time.Time) (EventType, error) {
	if h.State.Terminal() {
		return "", h.terminal()
	}
	if h.State != Open {
		return "", Refuse(CodeContinuationRedeemed, "this continuation was redeemed already", "Ask whoever gave it to you for a new one.")
	}
	h.Epoch++
	h.State = Claimed
	h.Holder = actor.ID
	h.grant(0, now)
	h.AcceptedAt, h.UpdatedAt = now, now
	return EventClaimed, nil
}
