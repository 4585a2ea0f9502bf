package webui

import (
	"bytes"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// threadID is what an id can look like. Anything else need not bother the database.
var threadID = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)

func (s *site) inbox(w http.ResponseWriter, r *http.Request) {
	call, ok := s.signedIn(w, r)
	if !ok {
		return
	}
	s.show(w, r, http.StatusOK, inboxPage, page{Title: "Inbox", Viewer: call.Actor.Handle})
}

// thread shows a page of one thread to a person who looks on: nothing counts as read or as
// fetched afterwards.
func (s *site) thread(w http.ResponseWriter, r *http.Request) {
	call, ok := s.signedIn(w, r)
	if !ok {
		return
	}
	viewer := call.Actor.Handle
	id := r.PathValue("thread_id")
	if !threadID.MatchString(id) {
		s.fail(w, r, viewer, handoff.NotFound("handoff", id))
		return
	}
	after := 0
	if text := r.URL.Query().Get("after"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			s.fail(w, r, viewer, handoff.Invalid("after", handoff.Quote(text)+" came; 0 or a message's number is accepted"))
			return
		}
		after = int(n)
	}
	t, err := s.hub.View(r.Context(), call, hub.ViewInput{ThreadID: id, After: after, Peek: true, ForPerson: true, Size: hub.TextSize{}})
	if err != nil {
		s.fail(w, r, viewer, err)
		return
	}
	v := &threadView{Thread: &t}
	s.show(w, r, http.StatusOK, threadPage, page{Title: v.Heading(), Viewer: viewer, Body: v})
}

// threadView words a thread for the template. The payload of the handoff itself is not shown:
// it belongs to the claimant alone.
type threadView struct{ *hub.Thread }

// Heading names what came, and from whom.
func (v *threadView) Heading() string {
	what := "Handoff"
	if v.Pool() {
		what = "Open handoff"
	}
	switch v.Handoff.Intent {
	case handoff.Inform:
		what = "Information"
	case handoff.AskQuestion:
		what = "Question"
	case handoff.ProposeAction:
		what = "Proposed action"
	}
	return what + " from " + v.Party(v.Handoff.Creator).Handle
}

// Notes say what the state alone does not.
func (v *threadView) Notes() []string {
	var notes []string
	h := &v.Handoff
	if h.State == handoff.Verifying && !v.Pool() {
		notes = append(notes, "being verified")
	}
	if h.State == handoff.Claimed && h.WaitsForReply {
		notes = append(notes, "waiting for a reply")
	}
	if !h.ErasedAt.IsZero() {
		notes = append(notes, "erased")
	}
	return notes
}

// Pool reports whether the handoff was made at the pool: it names no recipient, and its thread
// begins without a summary.
func (v *threadView) Pool() bool { return v.Handoff.Door == handoff.DoorPool }

// For says who may claim.
func (v *threadView) For() string { return v.Handoff.Target.Words() }

// Priority is its word.
func (v *threadView) Priority() string {
	return map[int]string{-1: "low", 0: "normal", 1: "high"}[v.Handoff.Priority]
}

// Verifier is the one agent that verifies; nil where that is anyone with a capability.
func (v *threadView) Verifier() *who {
	by := v.Handoff.VerifyBy
	if by == nil {
		return nil
	}
	w := v.Who(v.Handoff.Creator)
	switch by.Kind {
	case handoff.VerifyByAgent:
		w = v.Who(by.AgentID)
	case handoff.VerifyByCapability:
		return nil
	}
	return &w
}

// HeldBy labels the holder.
func (v *threadView) HeldBy() string {
	if v.Handoff.State.Terminal() {
		return "Last held by"
	}
	return "Held by"
}

// who is an agent as the page shows it.
type who struct {
	Handle string
	Name   string // empty when it just repeats the handle
	Role   string
	You    bool
}

// Who is the actor with this id.
func (v *threadView) Who(id string) who {
	p := v.Party(id)
	w := who{Handle: p.Handle, Name: p.Name, Role: p.Role, You: id == v.Viewer.ID}
	if w.Name == w.Handle {
		w.Name = ""
	}
	return w
}

// Replies are the messages of this page without the summary, which is the first one of all.
func (v *threadView) Replies() []handoff.Message {
	if !v.Pool() && len(v.Messages) > 0 && v.Messages[0].SequenceNo == 1 {
		return v.Messages[1:]
	}
	return v.Messages
}

// Metadata is what the sender added; empty when that is no more than the question, which the
// page shows anyway.
func (v *threadView) Metadata() json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(v.Handoff.Metadata, &members) != nil {
		return nil
	}
	if v.Handoff.Question != "" {
		delete(members, "question")
	}
	if len(members) == 0 {
		return nil
	}
	return v.Handoff.Metadata
}

// draftView is a draft with who has to do with it.
type draftView struct {
	*handoff.Draft
	Author, Decider who
	// Shown: the diff stands on the page. One that was replaced need not.
	Shown bool
}

// AllDrafts gives the newest first: that is the one that counts.
func (v *threadView) AllDrafts() []draftView {
	out := make([]draftView, 0, len(v.Drafts))
	for i := len(v.Drafts) - 1; i >= 0; i-- {
		d := &v.Drafts[i]
		out = append(out, draftView{d, v.Who(d.Author), v.Who(d.DecidedBy), d.Status != handoff.DraftSuperseded})
	}
	return out
}

// artifactView is an artifact with what its type does not name.
type artifactView struct {
	handoff.Artifact
	Label string
	// Extra is the whole artifact as it was sent, where it has fields that its type does not.
	Extra json.RawMessage
}

var artifactLabels = map[string]string{
	handoff.ArtifactFileDiff:    "Diff",
	handoff.ArtifactFileRef:     "File",
	handoff.ArtifactTestCommand: "Test command",
	handoff.ArtifactAPIContract: "API contract",
	handoff.ArtifactLink:        "Link",
}

// shownFields are those that the page shows by themselves.
var shownFields = []string{"type", "path", "diff", "git_sha", "lines", "command", "cwd", "schema_url", "inline", "url", "title"}

func newArtifact(a handoff.Artifact) artifactView {
	v := artifactView{Artifact: a, Label: artifactLabels[a.Type]}
	if v.Label == "" {
		v.Label = a.Type
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(a.Raw, &members) != nil {
		return v
	}
	for _, f := range shownFields {
		delete(members, f)
	}
	if len(members) > 0 {
		v.Extra = a.Raw
	}
	return v
}

// maxIndented is the deepest JSON that is laid out: indentation grows with the square of it.
const maxIndented = 16

// jsonText lays JSON out for reading; every literal stays as it came.
func jsonText(raw json.RawMessage) []piece {
	var b bytes.Buffer
	if depth(raw) <= maxIndented && json.Indent(&b, raw, "", "  ") == nil {
		return code(b.String())
	}
	return code(string(raw))
}

func depth(raw []byte) int {
	level, deepest, inString := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			level++
			deepest = max(deepest, level)
		case c == '}' || c == ']':
			level--
		}
	}
	return deepest
}
