package bridge

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"

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

// next gives a line, or what is left to know of one that is too long: the id, if it can be told.
func (l *lines) next() ([]byte, error) {
	var line, id, tail []byte
	skipped := false
	for {
		part, err := l.in.ReadSlice('\n')
		if !skipped && len(line)+len(bytes.TrimSuffix(part, []byte("\n"))) > l.max {
			line = append(line, part...)
			id, tail, skipped = firstMatch(idInFront, line), last(line), true
			line = nil
		} else if skipped {
			tail = last(append(tail, part...))
		} else {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case skipped && (err == nil || errors.Is(err, io.EOF)):
			if id == nil {
				id = firstMatch(idAtEnd, tail)
			}
			return id, errTooLong
		case errors.Is(err, io.EOF) && len(line) > 0: // the last one may lack its newline
			return line, nil
		}
		return line, err
	}
}

// A message that is too long to be read still tells its id where clients write it: before params,
// or at the very end. In valid JSON neither pattern matches anything else.
var (
	idInFront = regexp.MustCompile(`^\s*\{(?:\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,)*\s*"id"\s*:\s*("[^"\\]{0,100}"|-?\d{1,20})\s*,`)
	idAtEnd   = regexp.MustCompile(`[,{]\s*"id"\s*:\s*("[^"\\]{0,100}"|-?\d{1,20})\s*\}\s*$`)
)

func firstMatch(pattern *regexp.Regexp, text []byte) []byte {
	if m := pattern.FindSubmatch(text); m != nil && json.Valid(m[1]) && utf8.Valid(m[1]) {
		return bytes.Clone(m[1])
	}
	return nil
}

// last is the end of a text, long enough for an id.
func last(text []byte) []byte { return bytes.Clone(text[max(0, len(text)-256):]) }

// byteOrderMark begins what some programs of Windows write.
var byteOrderMark = []byte("\xef\xbb\xbf")

// parse looks at a line without changing it. What is no JSON-RPC message is refused here, and what
// an answer of ours could not be matched with; what else is wrong inside one is for the hub to
// say. An answer of the client is a message without a method.
func parse(line []byte) (*message, *handoff.Error) {
	m := &message{raw: line}
	in, err := members(line)
	switch {
	case err == nil:
	case !json.Valid(line):
		return m, handoff.Refuse(handoff.CodeParseError, "the line is not one valid JSON document", "")
	case line[0] == '[':
		return m, handoff.Refuse(handoff.CodeInvalidRequest, "a batch came; send one JSON-RPC message in a line", "")
	default:
		return m, handoff.Refuse(handoff.CodeInvalidRequest, "the line is not a JSON-RPC 2.0 message, which is an object", "")
	}
	if _, asks := in["method"]; !asks && (in["result"] != nil || in["error"] != nil) {
		return m, nil
	}
	if id, asks := in["id"]; asks {
		if id[0] != '"' && id[0] != '-' && (id[0] < '0' || id[0] > '9') || !utf8.Valid(id) {
			return m, handoff.Refuse(handoff.CodeInvalidRequest, "id: a string or a number is accepted; a notification has none", "")
		}
		m.id = id
	}
	if !utf8.Valid(line) {
		return m, handoff.Refuse(handoff.CodeParseError, "the line is not valid UTF-8", "")
	}
	if json.Unmarshal(in["method"], &m.method) != nil || m.method == "" {
		return m, handoff.Refuse(handoff.CodeInvalidRequest, "method: the name of a method is accepted, such as tools/call", "")
	}
	m.look(in["params"])
	return m, nil
}

// members are those of a JSON object, by their exact names: a struct would match them in any case,
// and a hub does not.
func members(raw []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	if err == nil && m == nil {
		err = errors.New("null is no object")
	}
	return m, err
}

// text is the string that raw holds, or empty.
func text(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s) // another type is the hub's to refuse
	return s
}

// sameID reports whether two ids are one. Between a client and a hub they may be written in two
// ways: 1 and 1.0.
func sameID(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	switch x := x.(type) {
	case string:
		return x == y
	case float64:
		return x == y
	}
	return false
}

// look finds what the hub wants to see outside the body too, and gives a tool call its key.
// Params of other shapes are the hub's to refuse.
func (m *message) look(params json.RawMessage) {
	p, _ := members(params)
	meta, _ := members(p["_meta"])
	m.version = text(meta["io.modelcontextprotocol/protocolVersion"])
	switch m.method {
	case "tools/call":
		m.name = text(p["name"])
		if !bringsKey(p["arguments"]) {
			m.key = uuid.NewString()
		}
	case "prompts/get":
		m.name = text(p["name"])
	case "resources/read":
		m.name = text(p["uri"])
	}
}

// bringsKey reports whether the arguments of a call name an idempotency key of their own, in one
// of the places where the hub looks for it. A value that the hub takes for none is none here: it
// would refuse a second key beside the first, and a call without one must not be repeated.
func bringsKey(arguments json.RawMessage) bool {
	args, _ := members(unquoted(arguments))
	meta, _ := members(unquoted(args["metadata"]))
	// Metadata is kept as it came: there, "null" is a key like any other.
	own := meta["client_idempotency_key"]
	return !absent(args["idempotency_key"]) || own != nil && string(own) != "null" && string(own) != `""`
}

// unquoted is JSON that some clients send as a string of JSON.
func unquoted(raw json.RawMessage) json.RawMessage {
	if s := text(raw); s != "" {
		return json.RawMessage(s)
	}
	return raw
}

// absent reports whether the hub takes an optional parameter for one that did not come: null,
// "null", "", or a list that holds only one of the first two.
func absent(raw json.RawMessage) bool {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil && len(list) == 1 && string(list[0]) != `""` {
		raw = list[0]
	}
	switch string(raw) {
	case "", "null", `"null"`, `""`:
		return true
	}
	return false
}

func tooLong(limit int) *handoff.Error {
	return handoff.Refuse(handoff.CodeContentTooLarge, fmt.Sprintf("the line is longer than the %d bytes that are accepted; it was skipped", limit), "")
}
