package mcpserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"handclasp/internal/handoff"
)

// What is refused before a tool is reached. The SDK answers such requests in plain text; clients
// of JSON-RPC get a JSON-RPC error instead (contracts: errors), with our code in its data.

// refuseBody answers a request whose body could not be read.
func refuseBody(w http.ResponseWriter, err error) {
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		writeRefusal(w, http.StatusRequestEntityTooLarge, nil, handoff.CodeContentTooLarge,
			fmt.Sprintf("the body is larger than the %d bytes that are accepted", large.Limit))
		return
	}
	writeRefusal(w, http.StatusBadRequest, nil, handoff.CodeInvalidRequest, "the body did not arrive whole")
}

// malformed says what is wrong with a body that is not exactly one JSON-RPC message with the
// parameters of its method in their places; the code is empty when nothing is. The SDK would run
// what it understands of such a body and drop the rest, or repeat the body in its answer; and a
// batch, which the protocol has given up, is one request that asks for thousands of answers.
// What it learns of a tool call it leaves in note, so that nobody reads the body again for it.
func malformed(body []byte, note *requestNote) (id json.RawMessage, code handoff.Code, message string) {
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if body = bytes.TrimSpace(body); len(body) == 0 {
		return m.ID, handoff.CodeInvalidRequest, "the body is empty; one JSON-RPC message is accepted"
	}
	if body[0] == '[' && json.Valid(body) {
		return m.ID, handoff.CodeInvalidRequest, "a batch came; send one JSON-RPC message in a request"
	}
	if err := json.Unmarshal(body, &m); err != nil {
		if !json.Valid(body) {
			return m.ID, handoff.CodeParseError, "the body is not one valid JSON document"
		}
		return m.ID, handoff.CodeInvalidRequest, "the body is not a JSON-RPC 2.0 message"
	}
	if !returnable(m.ID) {
		return m.ID, handoff.CodeInvalidRequest, "id: a string or a whole number of 64 bits is accepted"
	}
	if len(m.Params) == 0 || string(m.Params) == "null" {
		return nil, "", ""
	}
	if m.Params[0] != '{' {
		return m.ID, handoff.CodeInvalidParams, "params: an object is accepted"
	}
	var call struct {
		Name      *string         `json:"name"`
		URI       *string         `json:"uri"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      json.RawMessage `json:"_meta"`
	}
	err := json.Unmarshal(m.Params, &call)
	switch {
	case m.Method == "tools/call" && (err != nil || call.Name == nil):
		return m.ID, handoff.CodeInvalidParams, "params.name: the name of a tool is needed, as a string"
	case m.Method == "tools/call" && len(*call.Name) > maxToolName: // the SDK repeats it whole
		return m.ID, handoff.CodeInvalidParams, "params.name: no tool is named " + handoff.Quote(*call.Name)
	case m.Method == "prompts/get" && (err != nil || call.Name == nil):
		return m.ID, handoff.CodeInvalidParams, "params.name: the name of a prompt is needed, as a string"
	case m.Method == "prompts/get":
		message = malformedArguments(call.Arguments)
	case m.Method == "resources/read" && (err != nil || call.URI == nil):
		return m.ID, handoff.CodeInvalidParams, "params.uri: the URI of a resource is needed, as a string"
	case m.Method != "tools/call" && m.Method != "resources/read":
		return nil, "", ""
	}
	if len(call.Meta) > 0 && call.Meta[0] != '{' && string(call.Meta) != "null" {
		message = "params._meta: an object is accepted"
	}
	if message != "" {
		return m.ID, handoff.CodeInvalidParams, message
	}
	note.learn(m.Method, call.Name, call.Meta)
	return nil, "", ""
}

// maxToolName is what the protocol allows the name of a tool, in bytes.
const maxToolName = 128

// returnable reports whether the answer to a request can bear its id. The SDK keeps numbers as whole
// ones: it would do what was asked, and answer somebody else.
func returnable(id json.RawMessage) bool {
	var n float64
	if json.Unmarshal(id, &n) != nil {
		return true // no number
	}
	return n == math.Trunc(n) && n >= math.MinInt64 && n < math.MaxInt64
}

// malformedArguments says what is wrong with the arguments of a prompt, which the protocol wants
// to be strings; it is empty when nothing is.
func malformedArguments(raw json.RawMessage) string {
	if len(raw) == 0 {
		return ""
	}
	var arguments map[string]json.RawMessage
	if json.Unmarshal(raw, &arguments) != nil {
		return "params.arguments: an object of strings is accepted"
	}
	for _, name := range slices.Sorted(maps.Keys(arguments)) {
		if v := arguments[name]; v[0] != '"' && string(v) != "null" {
			return "params.arguments." + segment(name) + ": " + (&scanner{data: v}).jsonType() + " came; accepted: a string"
		}
	}
	return ""
}

// refusalWriter turns the plain text of the SDK's refusals into JSON-RPC errors.
type refusalWriter struct {
	http.ResponseWriter
	body    []byte // of the request
	refused int    // the status, once the SDK has refused in plain text
}

// WriteHeader holds a refusal back until its text is known.
func (w *refusalWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
		w.refused = status
		return
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write passes on what is no refusal.
func (w *refusalWriter) Write(b []byte) (int, error) {
	if w.refused == 0 {
		if clean, ok := withoutEcho(b); ok {
			_, err := w.ResponseWriter.Write(clean)
			return len(b), err
		}
		return w.ResponseWriter.Write(b)
	}
	code, message := handoff.CodeInvalidRequest, strings.TrimSpace(string(b))
	var request struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
	}
	isObject := json.Unmarshal(w.body, &request) == nil
	switch {
	case w.refused != http.StatusBadRequest:
	case len(w.body) > 0 && !json.Valid(w.body):
		code, message = handoff.CodeParseError, "the body is not valid JSON"
	case strings.HasPrefix(message, "malformed payload"):
		message = "the body is not a JSON-RPC 2.0 message, or nests deeper than 1000 levels" // the SDK's bound
	case isObject && strings.Contains(message, "not handled"):
		code, message = handoff.CodeMethodNotFound, "no method "+handoff.Quote(request.Method)+" is served here"
	}
	writeRefusal(w.ResponseWriter, w.refused, request.ID, code, message)
	return len(b), nil
}

// withoutEcho words anew the SDK's answer to parameters of a wrong type: it repeats them whole, and
// names of our program's types. ok is false for every other answer.
func withoutEcho(b []byte) (clean []byte, ok bool) {
	if !bytes.Contains(b, []byte("unmarshaling")) && !bytes.Contains(b, []byte("handling '")) {
		return nil, false
	}
	event, b := splitEvent(b)
	var answer struct {
		ID    json.RawMessage `json:"id"`
		Error *struct {
			Code    int64  `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &answer) != nil || answer.Error == nil || !strings.HasPrefix(answer.Error.Message, "handling '") {
		return nil, false
	}
	clean = refusal(answer.ID, handoff.CodeInvalidParams, "params: a field has another type than the method takes", "")
	if event != nil {
		clean = slices.Concat(event, clean, []byte("\n\n"))
	}
	return clean, true
}

// Flush sends what was written so far.
func (w *refusalWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the writer below.
func (w *refusalWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func writeRefusal(w http.ResponseWriter, status int, id json.RawMessage, code handoff.Code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	_, _ = w.Write(refusal(id, code, message, w.Header().Get("X-Request-Id"))) // the client may be gone
}

// refusal is a JSON-RPC error with our code in its data.
func refusal(id json.RawMessage, code handoff.Code, message, requestID string) []byte {
	rpc := handoff.Lookup(code).Relay
	if code == handoff.CodeContentTooLarge {
		rpc = handoff.Lookup(handoff.CodeInvalidRequest).Relay
	}
	if len(id) == 0 || id[0] == '{' || id[0] == '[' {
		id = json.RawMessage("null")
	}
	data := map[string]any{"code": code}
	if requestID != "" {
		data["request_id"] = requestID
	}
	b, _ := json.Marshal(map[string]any{ // an id that came as JSON marshals
		"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": rpc, "message": message, "data": data},
	})
	return b
}
