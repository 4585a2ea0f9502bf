package handoff

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rivo/uniseg"
)

// Code is the stable, public name of one kind of refusal. Users match on it, so a code is
// never renamed and never given a second meaning.
type Code string

// The codes of every door. Each has exactly one meaning; [Lookup] gives its wire forms.
const (
	CodeParseError             Code = "parse_error"
	CodeInvalidRequest         Code = "invalid_request"
	CodeMethodNotFound         Code = "method_not_found"
	CodeInvalidParams          Code = "invalid_params"
	CodeUnauthenticated        Code = "unauthenticated"
	CodePermissionDenied       Code = "permission_denied"
	CodeSessionRequired        Code = "session_required"
	CodeRateLimited            Code = "rate_limited"
	CodeRecipientNotFound      Code = "recipient_not_found"
	CodeNotAParticipant        Code = "not_a_participant"
	CodeNotFound               Code = "not_found"
	CodeThreadTerminal         Code = "thread_terminal"
	CodeInvalidTransition      Code = "invalid_transition"
	CodeNotOwner               Code = "not_owner"
	CodeLeaseLost              Code = "lease_lost"
	CodeStaleClaimEpoch        Code = "stale_claim_epoch"
	CodeAlreadyClaimed         Code = "handoff_already_claimed"
	CodeDuplicateKey           Code = "duplicate_idempotency_key"
	CodeIdempotencyInProgress  Code = "idempotency_in_progress"
	CodeInvalidIntentPayload   Code = "invalid_intent_payload"
	CodeFeatureDisabled        Code = "feature_disabled"
	CodeTeammateBlocked        Code = "teammate_blocked"
	CodeNotEligibleToClaim     Code = "not_eligible_to_claim"
	CodeVerifierNotEligible    Code = "verifier_not_eligible"
	CodeDependencyNotFound     Code = "dependency_not_found"
	CodeDependencyNotMet       Code = "dependency_not_met"
	CodeContentTooLarge        Code = "content_too_large"
	CodeCursorExpired          Code = "cursor_expired"
	CodeWorkspaceUnresolved    Code = "workspace_unresolved"
	CodeBusinessNotFound       Code = "business_not_found"
	CodeContinuationMalformed  Code = "continuation_malformed"
	CodeContinuationSignature  Code = "continuation_bad_signature"
	CodeContinuationWrongScope Code = "continuation_wrong_scope"
	CodeContinuationExpired    Code = "continuation_expired"
	CodeContinuationRedeemed   Code = "continuation_already_redeemed"
	CodeUnavailable            Code = "unavailable"
	CodeInternal               Code = "internal"
)

// Wire is how one code looks at the doors that do not speak MCP tool errors. A zero Relay or
// A2A means that the code never reaches that door.
type Wire struct {
	// HTTP is the status of the REST doors.
	HTTP int
	// Relay is the JSON-RPC code of the relay dialect, RelayName its symbolic name there.
	Relay     int
	RelayName string
	// A2A is the JSON-RPC code of A2A.
	A2A int
}

var wire = map[Code]Wire{
	CodeParseError:             {HTTP: 400, Relay: -32700, A2A: -32700},
	CodeInvalidRequest:         {HTTP: 400, Relay: -32600, A2A: -32600},
	CodeMethodNotFound:         {HTTP: 404, Relay: -32601, A2A: -32601},
	CodeInvalidParams:          {HTTP: 400, Relay: -32602, A2A: -32602},
	CodeUnauthenticated:        {HTTP: 401},
	CodePermissionDenied:       {HTTP: 403, Relay: -32002, RelayName: "forbidden", A2A: -32001},
	CodeSessionRequired:        {HTTP: 403},
	CodeRateLimited:            {HTTP: 429, Relay: -32003, A2A: -32603},
	CodeRecipientNotFound:      {HTTP: 404, Relay: -32004, A2A: -32001},
	CodeNotAParticipant:        {HTTP: 403, Relay: -32005, A2A: -32001},
	CodeNotFound:               {HTTP: 404, Relay: -32006, RelayName: "thread_not_found", A2A: -32001},
	CodeThreadTerminal:         {HTTP: 409, Relay: -32007, A2A: -32004},
	CodeInvalidTransition:      {HTTP: 409, Relay: -32008, A2A: -32004},
	CodeNotOwner:               {HTTP: 403, Relay: -32009, RelayName: "not_authorized_transition", A2A: -32004},
	CodeLeaseLost:              {HTTP: 409, Relay: -32010, RelayName: "state_changed", A2A: -32004},
	CodeStaleClaimEpoch:        {HTTP: 409, Relay: -32010, RelayName: "state_changed", A2A: -32004},
	CodeAlreadyClaimed:         {HTTP: 409, Relay: -32010, RelayName: "state_changed", A2A: -32004},
	CodeDuplicateKey:           {HTTP: 409, Relay: -32011, A2A: -32602},
	CodeIdempotencyInProgress:  {HTTP: 409, Relay: -32011, A2A: -32603},
	CodeInvalidIntentPayload:   {HTTP: 400, Relay: -32012, A2A: -32602},
	CodeFeatureDisabled:        {HTTP: 400, Relay: -32012, A2A: -32004},
	CodeTeammateBlocked:        {HTTP: 403, Relay: -32013, A2A: -32004},
	CodeNotEligibleToClaim:     {HTTP: 403},
	CodeVerifierNotEligible:    {HTTP: 403},
	CodeDependencyNotFound:     {HTTP: 404},
	CodeDependencyNotMet:       {HTTP: 409},
	CodeContentTooLarge:        {HTTP: 413, Relay: -32602, A2A: -32602},
	CodeCursorExpired:          {HTTP: 410, Relay: -32602, A2A: -32602},
	CodeWorkspaceUnresolved:    {HTTP: 400},
	CodeBusinessNotFound:       {HTTP: 404},
	CodeContinuationMalformed:  {HTTP: 400},
	CodeContinuationSignature:  {HTTP: 401},
	CodeContinuationWrongScope: {HTTP: 401},
	CodeContinuationExpired:    {HTTP: 410},
	CodeContinuationRedeemed:   {HTTP: 409},
	CodeUnavailable:            {HTTP: 503, Relay: -32099, A2A: -32603},
	CodeInternal:               {HTTP: 500, Relay: -32099, A2A: -32603},
}

// Lookup returns the wire forms of c; an unknown code is treated as [CodeInternal].
func Lookup(c Code) Wire {
	w, ok := wire[c]
	if !ok {
		w = wire[CodeInternal]
	}
	if w.RelayName == "" {
		w.RelayName = string(c)
	}
	return w
}

// Codes are all there are, in alphabetical order.
func Codes() []Code { return slices.Sorted(maps.Keys(wire)) }

// Error is the one error type that crosses package borders on purpose. Anything else that
// reaches a door is shown as [CodeInternal] and logged there once.
type Error struct {
	Code Code
	// Message is one sentence that is safe to show: it names the field, what came and what
	// is accepted. It never holds secrets, SQL, paths of this machine or another's data.
	Message string
	// Hint says what to do next, naming the tool where there is one.
	Hint string
	// Details are machine-readable facts (field, accepted values, near matches).
	Details map[string]any
	// Err is the cause, for the log only.
	Err error
}

// Error gives the code and the message, and the cause when there is one.
func (e *Error) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s: %s: %v", e.Code, e.Message, e.Err)
	}
	return string(e.Code) + ": " + e.Message
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the same call may succeed later unchanged.
func (e *Error) Retryable() bool {
	switch e.Code {
	case CodeRateLimited, CodeIdempotencyInProgress, CodeUnavailable:
		return true
	}
	return false
}

// CodeOf returns the code of err, or [CodeInternal] when err is not an [Error]. A nil error
// has the empty code.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return CodeInternal
}

// Refuse makes an [Error] from a code, a sentence and a hint (which may be empty).
func Refuse(code Code, message, hint string) *Error {
	return &Error{Code: code, Message: message, Hint: hint}
}

// Invalid is an [CodeInvalidParams] about one field. what says what came and what is
// accepted, without the field's name in front.
func Invalid(field, what string) *Error {
	return &Error{
		Code:    CodeInvalidParams,
		Message: field + ": " + what,
		Details: map[string]any{"field": field},
	}
}

// TooLarge is a [CodeContentTooLarge] about one field; sizes are in unit (for example
// "bytes" or "artifacts").
func TooLarge(field string, got, limit int, unit string) *Error {
	return &Error{
		Code:    CodeContentTooLarge,
		Message: fmt.Sprintf("%s: %d %s came, at most %d are accepted", field, got, unit, limit),
		Hint:    "Nothing was written. Shorten it, or put the content somewhere both sides can read and send a link to it.",
		Details: map[string]any{"field": field, "got": got, "limit": limit, "unit": unit},
	}
}

// NotFound is the answer for what does not exist and for what the caller may not see, the
// same to the letter. The id is quoted, because the caller sent it.
func NotFound(noun, id string) *Error {
	return &Error{
		Code:    CodeNotFound,
		Message: fmt.Sprintf("no %s %s that you may see", noun, Quote(id)),
		Hint:    "Check the id: it must be as it came to you, and what it names must concern you.",
	}
}

// Unavailable is a passing fault of the hub itself. Nothing of the call was written, unless
// message says that the outcome is unknown.
func Unavailable(message string, cause error) *Error {
	return &Error{
		Code:    CodeUnavailable,
		Message: message,
		Hint:    "Repeat the call with the same idempotency_key in a moment.",
		Err:     cause,
	}
}

// With returns e with one detail added.
func (e *Error) With(key string, value any) *Error {
	if e.Details == nil {
		e.Details = map[string]any{}
	}
	e.Details[key] = value
	return e
}

// quoteGraphemes is how much of a value an error repeats (contracts: errors).
const quoteGraphemes = 80

// Quote renders a value that came from a caller for an error sentence: in quotes, control
// and format characters made visible, cut at 80 graphemes.
func Quote(s string) string {
	const most = 2048 // bytes: one grapheme can be as long as the whole text
	whole := len(s)
	s = strings.ToValidUTF8(s[:min(most, whole)], "\uFFFD")
	cut := CutGraphemes(s, quoteGraphemes)
	quoted := fmt.Sprintf("%+q", cut)
	if isPrintable(cut) {
		quoted = `"` + strings.ReplaceAll(cut, `"`, `\"`) + `"`
	}
	if len(cut) < len(s) || whole > most {
		quoted += "…"
	}
	return quoted
}

// CutGraphemes returns the longest prefix of s that holds at most n grapheme clusters
// (Unicode UAX #29), so that no emoji or combining sequence is split.
func CutGraphemes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	end, state := 0, -1
	rest := s
	for i := 0; i < n && rest != ""; i++ {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		end += len(cluster)
	}
	return s[:end]
}
