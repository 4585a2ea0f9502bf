// Package notify tells people and agents outside of the hub what waits for them. It words a
// [handoff.Notification] for a channel, sends it, and says for certain what became of it, as far as
// anybody can: see [handoff.Outcome].
//
// What callers of the hub wrote reaches a reader only through [Inert] and [MultiLine].
package notify

import (
	"context"
	"strconv"

	"handclasp/internal/handoff"
)

// Sender tries once to deliver a notification. It returns when ctx ends at the latest.
type Sender interface {
	Send(ctx context.Context, n handoff.Notification) handoff.Outcome
}

// Set is the senders that the operator has configured, by channel.
type Set map[handoff.Channel]Sender

// Send hands n to the sender of its channel. Where there is none, it is refused.
func (s Set) Send(ctx context.Context, n handoff.Notification) handoff.Outcome {
	sender := s[n.Channel]
	if sender == nil {
		return refused(handoff.ReasonNotConfigured, nil)
	}
	return sender.Send(ctx, n)
}

// Reasons of outcomes besides those of package handoff; contracts: desk, "provider_<code>".
const (
	// ReasonUnreachable: no connection, or it broke before anything was handed over.
	ReasonUnreachable = "provider_unreachable"
	// ReasonAuth: the other side does not accept our credentials.
	ReasonAuth = "provider_auth"
	// ReasonTLS: no connection that we may trust.
	ReasonTLS = "provider_tls"
	// ReasonNoAnswer: all was handed over and nothing said what became of it.
	ReasonNoAnswer = "provider_no_answer"
	// ReasonMessage: the notification cannot be worded, which is a fault of ours.
	ReasonMessage = "provider_message"
)

func reasonCode(code int) string { return "provider_" + strconv.Itoa(code) }

func refused(reason string, err error) handoff.Outcome {
	return handoff.Outcome{Kind: handoff.OutcomeRefused, Reason: reason, Err: err}
}

func failed(reason string, err error) handoff.Outcome {
	return handoff.Outcome{Kind: handoff.OutcomeFailed, Reason: reason, Err: err}
}

func unknown(err error) handoff.Outcome {
	return handoff.Outcome{Kind: handoff.OutcomeUnknown, Reason: ReasonNoAnswer, Err: err}
}
