package main

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/restapi"
)

type handoffShowCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	handoffID    `embed:""`
	After        int `help:"Go on behind this message."`
	Limit        int `help:"At most so many messages, 1 to 200 (default 50)."`
}

// Help is printed by --help.
func (handoffShowCmd) Help() string {
	return `Shows who takes part, state, times, texts, drafts, messages, deliveries and events; of an open handoff also target,
workspace, criteria, the latest verdict and what it waits for. Payload, structured result and feedback are
for those who order, do or judge the work and are not shown.

Examples:

  handclasp handoff show 019ad5c2-4f60
  handclasp handoff show 019ad5c2-4f60 --json`
}

// Run shows.
func (c *handoffShowCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		q := url.Values{"after_sequence_no": {strconv.Itoa(c.After)}, "limit": {strconv.Itoa(c.Limit)}}
		var t restapi.HandoffThread
		if err := o.get(c.path("?"+q.Encode()), &t); err != nil {
			return err
		}
		if c.After == 0 {
			if err := o.history(&t); err != nil {
				return err
			}
		}
		if c.JSON {
			return printJSON(e, t)
		}
		_, err := fmt.Fprint(e.stdout, threadText(&t, time.Now()))
		return err
	})
}

// history reads all events of a handoff.
func (c *operatorClient) history(t *restapi.HandoffThread) error {
	for after := 0; ; {
		var page restapi.HandoffEvents
		if err := c.get("/operator/handoffs/"+escape(t.ThreadID)+"/events?after_event_seq="+strconv.Itoa(after), &page); err != nil {
			return err
		}
		t.Events = append(t.Events, page.Events...)
		if after = page.NextSeq; after == 0 {
			return nil
		}
	}
}

// sheet is a page of text. Headings stand at the margin; whatever agents wrote is indented and
// plain, so that it cannot pass for one.
type sheet struct{ strings.Builder }

func (s *sheet) line(format string, args ...any) { fmt.Fprintf(s, format+"\n", args...) }

func (s *sheet) fact(name, value string) {
	if value != "" {
		s.line("%-11s %s", name, value)
	}
}

// text writes what an agent wrote; nothing for an empty one.
func (s *sheet) text(heading, text string) {
	if text == "" {
		return
	}
	if heading != "" {
		s.line("\n%s", heading)
	}
	for line := range strings.SplitSeq(plain(text), "\n") {
		s.line("    %s", line)
	}
}

func (s *sheet) artifacts(list []json.RawMessage) {
	for _, raw := range list {
		var a handoff.Artifact
		if json.Unmarshal(raw, &a) == nil && a.Type == handoff.ArtifactFileDiff {
			s.text("", "diff of "+a.Path+"\n"+a.Diff)
			continue
		}
		s.text("", string(raw))
	}
}

func threadText(t *restapi.HandoffThread, now time.Time) string {
	s := &sheet{}
	s.facts(t, now)
	if t.Contract != nil {
		s.contract(t)
	}
	if t.Summary != "" {
		s.beginning(t)
	}
	s.messages(t)
	s.text("Result", t.ResultSummary)
	s.artifacts(t.CompletionArtifacts)
	s.deliveries(t.Deliveries)
	if len(t.Events) > 0 {
		s.line("\nEvents")
	}
	for _, v := range t.Events {
		s.line("%4d  %s  %-30s  %s, %s, epoch %d", v.Seq, v.At, v.Type, v.Actor, v.State, v.Epoch)
	}
	return s.String()
}

func (s *sheet) facts(t *restapi.HandoffThread, now time.Time) {
	state := t.Status
	if t.State == string(handoff.Verifying) && t.Pool == nil {
		state += ", being verified"
	}
	if t.WaitsForReply {
		state += ", waiting for a reply"
	}
	s.fact("Thread", t.ThreadID)
	s.fact("Status", state)
	s.fact("Intent", t.Intent)
	s.fact("From", partyOf(t, t.From))
	if p := t.Pool; p != nil {
		s.fact("For", oneLine(p.Target.Words(), maxWords))
		s.fact("Workspace", oneLine(p.ProjectRoot, maxWords))
		s.fact("Visibility", p.Visibility)
		s.fact("Priority", p.Priority)
		s.fact("Trace", oneLine(p.TraceID, maxWords))
	}
	if t.Desk != nil && t.Mode == string(handoff.AgentMode) {
		s.fact("To", "next agent of "+t.Slug)
	} else {
		s.fact("To", partyOf(t, t.To))
	}
	name, held := "Holder", "nobody"
	if handoff.State(t.State).Terminal() {
		name = "Last holder"
	}
	if t.Holder != nil {
		held = partyOf(t, *t.Holder)
	}
	s.fact(name, fmt.Sprintf("%s, claim epoch %d", held, t.ClaimEpoch))
	s.fact("Lease until", orNothing(t.LeaseExpiresAt))
	s.fact("Created", t.CreatedAt+", "+ageOf(t.CreatedAt, now)+" ago")
	if t.To != "" {
		s.fact("Fetched", orDash(t.FetchedAt))
	}
	s.fact("Accepted", orNothing(t.AcceptedAt))
	s.fact("Completed", orNothing(t.CompletedAt))
	s.fact("Expires", orNothing(t.ExpiresAt))
	s.fact("Updated", t.UpdatedAt)
	s.fact("Erased", orNothing(t.ErasedAt))
	s.fact("Ended by", t.EndedBy)
	s.text("Why it ended", t.EndedReason)
}

// maxWords bounds a line of facts that agents chose the words of.
const maxWords = 400

// contract is what must be proved of an open handoff, and what it waits for.
func (s *sheet) contract(t *restapi.HandoffThread) {
	if v := t.VerifyBy; v != nil {
		by := "the creator"
		switch v.Kind {
		case handoff.VerifyByAgent:
			by = v.AgentID
		case handoff.VerifyByCapability:
			by = "an agent with the capability " + oneLine(v.Capability, maxWords)
		}
		s.fact("Verified by", by)
	}
	if v := t.Verification; v != nil {
		s.fact("Verdict", v.Verdict+" by "+v.VerifiedBy+", "+v.At)
	}
	if t.HasResult {
		s.fact("Result", "there is one; its creator, its claimant and its verifier read it")
	}
	if d := t.Dependencies; d != nil {
		s.fact("Waits for", fmt.Sprintf("%d of %d: %d completed, %d failed", d.Pending, d.Total, d.Satisfied, d.Failed))
		for _, d := range t.DependsOn {
			s.line("    %s  %s", d.HandoffID, d.Status)
		}
	}
	for i, c := range t.Criteria {
		heading := ""
		if i == 0 {
			heading = "Acceptance criteria"
		}
		s.text(heading, c)
	}
}

// partyOf is a handle with the name and role that belong to it.
func partyOf(t *restapi.HandoffThread, handle string) string {
	for _, p := range t.Parties {
		if p.Handle != handle {
			continue
		}
		for _, more := range []string{p.Name, p.Role} {
			if more != "" && more != p.Handle {
				handle += ", " + oneLine(more, previewWidth)
			}
		}
		break
	}
	return handle
}

// beginning is what stands on the first page only.
func (s *sheet) beginning(t *restapi.HandoffThread) {
	s.text("Summary", t.Summary)
	s.artifacts(t.Artifacts)
	s.text("Question", t.Question)
	if a := t.ProposedAction; a != nil {
		s.text("Proposed action", a.Description)
		s.text("Rationale", a.Rationale)
		s.text("Files", strings.Join(a.TargetFiles, "\n"))
		s.text("Suggested diff", a.SuggestedDiff)
	}
	s.text("Metadata", string(t.Metadata))
	for i := range t.Drafts {
		d := &t.Drafts[i]
		s.line("\nDraft %s, %s, by %s, %s", d.DraftID, d.Status, d.From, d.CreatedAt)
		s.text("", d.Description)
		s.text("", d.Rationale)
		s.text("", d.SuggestedDiff)
		s.text("", d.Reason)
	}
}

// deliveries are what went out of it to people, and to agents outside.
func (s *sheet) deliveries(list []restapi.Delivery) {
	if len(list) > 0 {
		s.line("\nDeliveries")
	}
	for i := range list {
		d := &list[i]
		tries := "tries"
		if d.Attempts == 1 {
			tries = "try"
		}
		line := fmt.Sprintf("    %s  %s to %s by %s, %s, %d %s", d.DeliveryID, d.Kind, d.Recipient, lineOrDash(d.Channel), d.State, d.Attempts, tries)
		if d.Reason != "" {
			line += ": " + d.Reason
		}
		if at := nextTry(d); at != nil {
			line += ", next at " + *at
		}
		s.line("%s", line)
	}
}

func (s *sheet) messages(t *restapi.HandoffThread) {
	for i := range t.Messages {
		m := &t.Messages[i]
		if m.SequenceNo == 1 && t.Pool == nil {
			continue // the summary
		}
		asks := ""
		if m.ExpectsReply {
			asks = ", expects a reply"
		}
		s.line("\nMessage %d, %s, %s%s", m.SequenceNo, m.From, m.CreatedAt, asks)
		s.text("", m.Body)
		s.text("", string(m.Payload))
		s.artifacts(m.Artifacts)
	}
	if t.HasMore {
		s.line("\nMore messages: handclasp handoff show %s --after %d", t.ThreadID, t.NextSequenceNo)
	}
}
