package handoff

import "time"

// EventType names what happened. The names are public: readers filter on them.
type EventType string

// Events of a handoff and its thread.
const (
	EventCreated               EventType = "handoff.created"
	EventClaimed               EventType = "handoff.claimed"
	EventExtended              EventType = "handoff.extended"
	EventReleased              EventType = "handoff.released"
	EventLeaseLapsed           EventType = "handoff.lease_lapsed"
	EventFallbackOpened        EventType = "handoff.fallback_opened"
	EventInputRequired         EventType = "handoff.input_required"
	EventVerificationRequested EventType = "handoff.verification_requested"
	EventVerificationFailed    EventType = "handoff.verification_failed"
	EventCompleted             EventType = "handoff.completed"
	EventRejected              EventType = "handoff.rejected"
	EventCancelled             EventType = "handoff.cancelled"
	EventExpired               EventType = "handoff.expired"
	EventReassigned            EventType = "handoff.reassigned"
	EventErased                EventType = "handoff.erased"
	EventUnblocked             EventType = "handoff.unblocked"
	EventDependencyFailed      EventType = "handoff.dependency_failed"
	EventMessageCreated        EventType = "message.created"
	EventDraftCreated          EventType = "draft.created"
	EventDraftDecided          EventType = "draft.decided"
	EventAgentAdded            EventType = "agent.added"
	EventAgentEdited           EventType = "agent.edited"
	EventAgentDisabled         EventType = "agent.disabled"
	EventAgentEnabled          EventType = "agent.enabled"
	EventAgentInvited          EventType = "agent.invited"
	EventAgentInviteRevoked    EventType = "agent.invite_revoked"
	EventKeyCreated            EventType = "key.created"
	EventKeyRevoked            EventType = "key.revoked"
	EventSessionOpened         EventType = "session.opened"
	EventSessionClosed         EventType = "session.closed"
	EventBlockAdded            EventType = "block.added"
	EventBlockRemoved          EventType = "block.removed"
	EventDeliverySent          EventType = "delivery.sent"
	EventDeliveryRefused       EventType = "delivery.refused"
	EventDeliveryUnconfirmed   EventType = "delivery.unconfirmed"
	EventDeliveryDead          EventType = "delivery.dead"
	EventContinuationRedeemed  EventType = "continuation.redeemed"
	EventContinuationRevoked   EventType = "continuation.revoked"
	EventContinuationExpired   EventType = "continuation.expired"
	EventBusinessAdded         EventType = "business.added"
	EventBusinessEdited        EventType = "business.edited"
)

// EventTypes lists what agents may meet in the log, in no order that means anything.
func EventTypes() []EventType {
	return []EventType{
		EventCreated, EventClaimed, EventExtended, EventReleased, EventLeaseLapsed, EventFallbackOpened, EventInputRequired,
		EventVerificationRequested, EventVerificationFailed, EventCompleted, EventRejected, EventCancelled, EventExpired,
		EventReassigned, EventErased, EventUnblocked, EventDependencyFailed, EventMessageCreated, EventDraftCreated, EventDraftDecided,
		EventAgentAdded, EventAgentEdited, EventAgentDisabled, EventAgentEnabled, EventAgentInvited, EventAgentInviteRevoked,
		EventKeyCreated, EventKeyRevoked, EventSessionOpened, EventSessionClosed, EventBlockAdded, EventBlockRemoved,
		EventDeliverySent, EventDeliveryRefused, EventDeliveryUnconfirmed, EventDeliveryDead,
		EventContinuationRedeemed, EventContinuationRevoked, EventContinuationExpired, EventBusinessAdded, EventBusinessEdited,
	}
}

// EventOf is the event that reports the arrival in a terminal state.
func (s State) EventOf() EventType {
	return map[State]EventType{
		Completed: EventCompleted, Rejected: EventRejected, Cancelled: EventCancelled, Expired: EventExpired,
	}[s]
}

// Event is one immutable row of the log. It carries ids, states and actors, never payloads,
// prose or contact details, so that erasing those leaves the log whole.
type Event struct {
	// Cursor is the position in the hub's log, an opaque string.
	Cursor string
	Type   EventType
	// HandoffID and Seq are empty for events of agents, keys and blocks. Seq counts the
	// handoff's own events densely from 1.
	HandoffID string
	Seq       int
	// ActorID is who caused it.
	ActorID string
	// SubjectID is what else it is about: a message, a draft, an agent, a key, an invite.
	// A block that the operator sets or lifts names both agents: who blocks, a slash, who is blocked.
	SubjectID string
	State     State
	Epoch     int
	TraceID   string
	// SessionID is the session that the caller attributed the act to; empty for most.
	SessionID string
	At        time.Time
}
