package handoff

import (
	"encoding/json"
	"time"
)

// Message is one entry of a handoff's thread. SequenceNo counts from 1 without gaps; message 1
// is the summary.
type Message struct {
	ID           string
	HandoffID    string
	SequenceNo   int
	Author       string
	Body         string
	Payload      json.RawMessage
	Artifacts    []Artifact
	ExpectsReply bool
	CreatedAt    time.Time
}

// DraftStatus is where a draft stands.
type DraftStatus string

// A draft waits for a person, was decided by one, or was replaced by a later draft.
const (
	Drafted         DraftStatus = "drafted"
	DraftApproved   DraftStatus = "approved"
	DraftDeclined   DraftStatus = "declined"
	DraftSuperseded DraftStatus = "superseded"
)

// Draft is a diff that the holder offers for a proposed action. The hub never applies it.
type Draft struct {
	ID            string
	HandoffID     string
	No            int // counts the handoff's drafts from 1
	Author        string
	Epoch         int
	SuggestedDiff string
	Description   string
	TargetFiles   []string
	Rationale     string
	Status        DraftStatus
	DecidedBy     string
	Reason        string
	CreatedAt     time.Time
	DecidedAt     time.Time
}

// Decide approves or declines the draft. Repeating the same decision is a success that
// changes nothing; decided reports whether anything changed.
func (d *Draft) Decide(by Actor, approve bool, reason string, now time.Time) (decided bool, err error) {
	status := DraftDeclined
	if approve {
		status = DraftApproved
	}
	if d.Status == status && d.DecidedBy == by.ID && d.Reason == reason {
		return false, nil
	}
	if d.Status != Drafted {
		return false, Refuse(CodeInvalidTransition, "this draft is "+string(d.Status)+": it can no longer be decided", "Look at the thread for a newer draft.")
	}
	d.Status, d.DecidedBy, d.Reason, d.DecidedAt = status, by.ID, reason, now
	return true, nil
}
