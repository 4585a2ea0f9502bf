package handoff

// ToolText is the text of a tool error (contracts: errors): the code, what was wrong, what to do.
func (e *Error) ToolText() string {
	text := "code: " + string(e.Code) + "\n" + e.Message
	if e.Hint != "" {
		text += "\n" + e.Hint
	}
	return text
}

// ToolValue is the structured content of a tool error.
func (e *Error) ToolValue() map[string]any {
	details := e.Details
	if details == nil {
		details = map[string]any{}
	}
	return map[string]any{"error": map[string]any{
		"code": e.Code, "message": e.Message, "hint": e.Hint, "details": details, "retryable": e.Retryable(),
	}}
}
