package handoff

import "time"

// ErasedText stands where the operator removed a text. It is stored in its place, so every door
// shows it.
const ErasedText = "[erased by the operator]"

// Erase removes what people and agents wrote from a handoff that has ended, by the operator's
// hand, or by the hub's where the operator set how long texts are kept; its messages, drafts and contacts are the caller's to erase in the same way. Ids, states,
// times and counts stay, and so do the target and the trace id, which stand in what keeps the log
// whole. Erasing again changes nothing.
func (h *Handoff) Erase(actor Actor, now time.Time) (EventType, error) {
	switch {
	case !actor.IsOperator() && actor != System():
		return "", Refuse(CodePermissionDenied, "only the operator erases a handoff", "")
	case !h.State.Terminal():
		return "", Refuse(CodeInvalidTransition, "this handoff is "+h.Status()+": only one that has ended can be erased",
			"Nothing was erased. Cancel it first: handclasp handoff cancel "+h.ID+` --reason "why"`)
	case !h.ErasedAt.IsZero():
		return Repeated, nil
	}
	h.Preview, h.Question, h.ResultSummary = erased(h.Preview), erased(h.Question), erased(h.ResultSummary)
	if h.EndedBy != System().ID { // the hub's own reasons are nobody's text
		h.EndedReason = erased(h.EndedReason)
	}
	if h.ProposedAction != nil {
		h.ProposedAction = &ProposedAction{Description: ErasedText, TargetFiles: []string{}, Rationale: ErasedText}
	}
	if len(h.Criteria) > 0 {
		h.Criteria = []string{ErasedText}
	}
	if h.Verdict != nil {
		verdict := *h.Verdict
		verdict.Feedback = erased(verdict.Feedback)
		h.Verdict = &verdict
	}
	h.Metadata, h.Payload, h.Result, h.CompletionArtifacts = nil, nil, nil, nil
	h.ErasedAt = now
	return EventErased, nil
}

// erased is what stands for a text afterwards; where there was none there is none.
func erased(text string) string {
	if text == "" {
		return ""
	}
	return ErasedText
}
