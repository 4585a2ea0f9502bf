package hub

import "handclasp/internal/handoff"

// TextSize is a [Sizer] for doors that show texts as they are. It bounds a page by the text on
// it, because a single message may hold 50 diffs.
type TextSize struct{}

// Budget is how many bytes of text a page takes.
func (TextSize) Budget() int { return 1 << 20 }

// Fixed is what the first page holds besides messages.
func (TextSize) Fixed(t *Thread) int {
	if !t.FirstPage {
		return 0
	}
	n := weight(t.Handoff.CompletionArtifacts) + len(t.Handoff.ResultSummary)
	for i := range t.Drafts {
		n += len(t.Drafts[i].SuggestedDiff)
	}
	return n
}

// Message is one message.
func (TextSize) Message(_ *Thread, m *handoff.Message) int {
	return len(m.Body) + len(m.Payload) + weight(m.Artifacts)
}

func weight(artifacts []handoff.Artifact) int {
	n := 0
	for i := range artifacts {
		n += len(artifacts[i].Raw)
	}
	return n
}
