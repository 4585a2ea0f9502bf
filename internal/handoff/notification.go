package handoff

import "time"

// Channel is a way to reach somebody outside.
type Channel string

// The channels. A business has one of the first three, an agent's own inbox one of the others or
// e-mail.
const (
	ChannelSMS     Channel = "sms"
	ChannelEmail   Channel = "email"
	ChannelForm    Channel = "form"
	ChannelWebhook Channel = "webhook"
	ChannelSlack   Channel = "slack"
)

// Urgency leads the first line of what a person gets, and sorts the desk. It bypasses nothing.
type Urgency string

// The urgencies.
const (
	UrgencyLow       Urgency = "low"
	UrgencyNormal    Urgency = "normal"
	UrgencyHigh      Urgency = "high"
	UrgencyEmergency Urgency = "emergency"
)

// Urgencies lists them, the least first.
func Urgencies() []Urgency {
	return []Urgency{UrgencyLow, UrgencyNormal, UrgencyHigh, UrgencyEmergency}
}

// NotificationKind is what a notification is about.
type NotificationKind string

// The kinds: a handoff that waits for a person, a message to that person in its thread, and news
// for an agent's own inbox.
const (
	NotifyHandoff NotificationKind = "handoff"
	NotifyReply   NotificationKind = "reply"
	NotifyNews    NotificationKind = "news"
)

// Notification is what somebody is to be told, before it is worded for a channel. What others wrote
// stands in it as it came.
type Notification struct {
	// ID is that of the delivery: the same at each attempt, so that a duplicate is recognised.
	ID        string
	HandoffID string
	Kind      NotificationKind
	Channel   Channel
	// To is an e-mail address, an E.164 number or a URL.
	To string
	// Secret signs a webhook.
	Secret string
	// First is the ID of the first notification of the thread, which a reply answers.
	First string
	// Business is its name; for news, the name of the agent.
	Business string
	// Link is where the recipient reads and acts.
	Link string
	// ReplyToken stands in the address that an e-mail is answered to.
	ReplyToken string

	Urgency       Urgency
	Reason        string
	ContactName   string
	ContactEmail  string
	ContactPhone  string
	ReservationID string
	// AgentLabel is what the caller calls itself, unverified.
	AgentLabel string
	// Body is the message of a reply.
	Body string

	// Event, Status and Sender describe news.
	Event  EventType
	Status string
	Sender string

	CreatedAt time.Time
	// Attempt counts from 1.
	Attempt int
}

// OutcomeKind is what became of one attempt to send.
type OutcomeKind string

// The outcomes. After a failure nothing went out for certain, and another attempt may help; after
// an unknown outcome it may have gone out.
const (
	OutcomeSent    OutcomeKind = "sent"
	OutcomeRefused OutcomeKind = "refused"
	OutcomeFailed  OutcomeKind = "failed"
	OutcomeUnknown OutcomeKind = "unknown"
)

// Outcome is what a sender reports of one attempt.
type Outcome struct {
	Kind OutcomeKind
	// Reason is a short word such as provider_550; empty when it was sent.
	Reason string
	// ProviderID is what the provider calls the message; empty where it gives no name.
	ProviderID string
	// RetryAfter is the least wait before another attempt that the other side asked for.
	RetryAfter time.Duration
	// Err is for the log only.
	Err error
}
