package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"handclasp/internal/handoff"
)

var errTooLong = errors.New("the line is too long")

// lines reads messages that end with a newline; what is longer than max is skipped.
type lines struct {
	in  *bufio.Reader
	max int
}

func newLines(in io.Reader, limit int) *lines { return &lines{bufio.NewReaderSize(in, 64<<10), limit} }

func (l *lines) next() ([]byte, error) {
	var line []byte
	skipped := false
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line)+len(part) > l.max+1 {
			skipped, line = true, nil
		}
		if !skipped {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case skipped && (err == nil || errors.Is(err, io.EOF)):
			return nil, errTooLong
		case errors.Is(err, io.EOF) && len(line) > 0: // the last one may lack its newline
			return line, nil
		}
		return line, err
	}
}

// parse looks at a line without changing it. What is no JSON-RPC message is refused here; what is
// wrong inside one is for the hub to say.
func parse(line []byte) (*message, *handoff.Error) {
	m := &message{raw: bytes.TrimSpace(line)}
	if m.raw[0] == '[' && json.Valid(m.raw) {
		return m, handoff.Refuse(handoff.CodeInvalidRequest, "a batch came; send one JSON-RPC message in a line", "")
	}
	var in struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(m.raw, &in); err != nil {
		if !json.Valid(m.raw) {
			return m, handoff.Refuse(handoff.CodeParseError, "the line is not one valid JSON document", "")
		}
		return m, handoff.Refuse(handoff.CodeInvalidRequest, "the line is not a JSON-RPC 2.0 message", "")
	}
	m.method = in.Method
	if string(in.ID) != "null" {
		m.id = in.ID
	}
	m.look(in.Params)
	return m, nil
}

// look finds what the hub wants to see outside the body too, and gives a tool call its key.
func (m *message) look(params json.RawMessage) {
	var p struct {
		Name      string          `json:"name"`
		URI       string          `json:"uri"`
		Arguments json.RawMessage `json:"arguments"`
		Meta      struct {
			Version string `json:"io.modelcontextprotocol/protocolVersion"`
		} `json:"_meta"`
	}
	// Params of other shapes are the hub's to refuse.
	_ = json.Unmarshal(params, &p)
	m.version = p.Meta.Version
	switch m.method {
	case "tools/call":
		m.name = p.Name
		if !bringsKey(p.Arguments) {
			m.key = uuid.NewString()
		}
	case "prompts/get":
		m.name = p.Name
	case "resources/read":
		m.name = p.URI
	}
}

// bringsKey reports whether the arguments of a call name an idempotency key of their own, in one
// of the places where the hub looks for it. A value that the hub takes for none is none here.
func bringsKey(arguments json.RawMessage) bool {
	var args struct {
		Key  json.RawMessage `json:"idempotency_key"`
		Meta json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(unquoted(arguments), &args) != nil {
		return false
	}
	var meta struct {
		Key json.RawMessage `json:"client_idempotency_key"`
	}
	_ = json.Unmarshal(unquoted(args.Meta), &meta) // its shape is checked by the hub
	return given(args.Key) || given(meta.Key)
}

// unquoted is JSON that some clients send as a string of JSON.
func unquoted(raw json.RawMessage) json.RawMessage {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return json.RawMessage(text)
	}
	return raw
}

// given reports whether a parameter is there as the hub sees it: null, "null" and "" are not.
func given(raw json.RawMessage) bool {
	switch string(raw) {
	case "", "null", `"null"`, `["null"]`, `""`, "[]":
		return false
	}
	return true
}

func tooLong(limit int) *handoff.Error {
	return handoff.Refuse(handoff.CodeContentTooLarge, fmt.Sprintf("the line is longer than the %d bytes that are accepted; it was skipped", limit), "")
}
