package handoff

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestAnErasureLeavesNoTextAndAllTheRest(t *testing.T) {
	t.Parallel()
	const secret = "SECRET"
	raw := json.RawMessage(`{"a":"SECRET"}`)
	artifacts, err := ParseArtifacts("artifacts", []json.RawMessage{json.RawMessage(`{"type":"link","url":"https://x.io/SECRET"}`)}, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	ended := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	h := Handoff{
		ID: "h", Door: DoorTeam, State: Completed, Creator: creator, Recipient: recipient, Holder: recipient, Epoch: 2, Messages: 3, EventSeq: 7,
		Intent: ProposeAction, Preview: secret, Question: secret, Metadata: raw, Payload: raw, Result: raw, Criteria: []string{secret, secret},
		ProposedAction: &ProposedAction{Description: secret, TargetFiles: []string{secret}, Rationale: secret, SuggestedDiff: secret},
		Verdict:        &Verdict{Pass: true, Feedback: secret, VerifiedBy: creator}, ResultSummary: secret, CompletionArtifacts: artifacts,
		EndedBy: creator, EndedReason: secret, CreatedAt: ended, UpdatedAt: ended, CompletedAt: ended,
	}
	before := h
	now := ended.Add(time.Hour)
	event, err := h.Erase(Operator(), now)
	if event != EventErased || err != nil {
		t.Fatalf("%q %v", event, err)
	}
	after, err := json.Marshal(h)
	if err != nil || strings.Contains(string(after), secret) {
		t.Fatalf("still there: %s %v", after, err)
	}
	if h.Preview != ErasedText || h.Question != ErasedText || h.ResultSummary != ErasedText || h.EndedReason != ErasedText || h.ProposedAction.Description != ErasedText {
		t.Errorf("what stood there does not show that it did: %s", after)
	}
	if before.Verdict.Feedback != secret || before.ProposedAction.Rationale != secret {
		t.Error("the value that it was read from changed with it")
	}
	if h.State != Completed || h.Epoch != 2 || h.Messages != 3 || h.EventSeq != 7 || !h.UpdatedAt.Equal(ended) || !h.CompletedAt.Equal(ended) || !h.ErasedAt.Equal(now) || !h.Verdict.Pass {
		t.Errorf("something else changed: %+v", h)
	}
	again := h
	if event, err := again.Erase(Operator(), now.Add(time.Hour)); event != Repeated || err != nil || !again.ErasedAt.Equal(now) {
		t.Errorf("again: %q %v, erased at %v", event, err, again.ErasedAt)
	}
	if _, err := h.Erase(actorOf(creator), now); CodeOf(err) != CodePermissionDenied {
		t.Errorf("by its creator: %v", err)
	}
}

func TestAnErasureInventsNoTextAndKeepsTheHubsOwn(t *testing.T) {
	t.Parallel()
	h := Handoff{ID: "h", State: Expired, Intent: Inform, Preview: "p", EndedBy: System().ID, EndedReason: "its deadline passed"}
	if _, err := h.Erase(Operator(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if h.Question != "" || h.ResultSummary != "" || h.ProposedAction != nil || h.EndedReason != "its deadline passed" {
		t.Errorf("%+v", h)
	}
}

func TestThePayloadIsForTheCurrentOrCompletingClaimant(t *testing.T) {
	t.Parallel()
	for state, want := range map[State]bool{
		Open: false, Claimed: true, Verifying: true, Completed: true, Rejected: false, Cancelled: false, Expired: false,
	} {
		h := Handoff{State: state, Creator: creator, Recipient: recipient, Holder: coder}
		if h.PayloadFor(coder) != want {
			t.Errorf("%s: the holder", state)
		}
		for _, id := range []string{creator, recipient, stranger, operator} {
			if h.PayloadFor(id) {
				t.Errorf("%s: %s", state, id)
			}
		}
	}
}
