package bridge

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net"
	"net/http"
	"regexp"
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// failure is a try that did not bring an answer of the hub.
type failure struct {
	err   *handoff.Error
	again bool // the same call may succeed a moment later
	sent  bool // the hub may have carried it out
}

// carry brings one message to the hub and its answer back, repeating it while the transport
// fails.
func (b *bridge) carry(ctx context.Context, m *message) {
	began := time.Now()
	var failing time.Time // since when
	sent := false
	pause, patience := b.cfg.Pause, b.cfg.Patience
	if m.method == "initialize" {
		patience = min(patience, startWithin)
	}
	for {
		f := b.try(ctx, m, b.cfg.Longest-time.Since(began))
		if ctx.Err() != nil || f == nil { // the client no longer waits, or has its answer
			return
		}
		if failing.IsZero() {
			failing = time.Now()
		}
		sent = sent || f.sent
		if !f.again || time.Since(failing) > patience || time.Since(began) >= b.cfg.Longest {
			b.giveUp(m, f.err, sent)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-b.hurry:
			b.giveUp(m, f.err, sent)
			return
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, b.cfg.LongestPause)
	}
}

// giveUp tells the client that its message was not answered. A notification has no answer.
func (b *bridge) giveUp(m *message, err *handoff.Error, sent bool) {
	b.cfg.Log.Warn("a message was not answered by the hub", "method", m.method, "reason", err.Message)
	switch {
	case m.method != "tools/call":
	case !sent && err.Code != handoff.CodeUnavailable: // the hub refused it, and says why
	case !sent:
		err.Hint = "Nothing was sent. Call again once the hub answers."
	case m.key != "":
		err.Hint = "Whether the call took effect is not known: look with check_inbox or view_thread before you repeat it."
	default:
		err.Hint = "Whether the call took effect is not known: repeat it with the same idempotency_key."
	}
	if m.id != nil {
		b.answerError(m, err)
	}
}

func (b *bridge) try(ctx context.Context, m *message, limit time.Duration) *failure {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.cfg.Endpoint, bytes.NewReader(m.raw))
	if err != nil {
		return &failure{handoff.Refuse(handoff.CodeInternal, "the request could not be made: "+err.Error(), ""), false, false}
	}
	b.headers(req.Header, m)
	resp, err := b.cfg.Hub.RoundTrip(req)
	if err != nil {
		f := b.unreachable(err)
		var dial *net.OpError
		f.sent = !errors.As(err, &dial) || dial.Op != "dial"
		return f
	}
	defer func() { _ = resp.Body.Close() }()
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	from := http.MaxBytesReader(nil, resp.Body, b.cfg.MaxAnswer)
	switch {
	case m.id == nil && (resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent):
		return nil
	case kind == "text/event-stream" && resp.StatusCode == http.StatusOK:
		return b.stream(m, from)
	}
	body, err := io.ReadAll(from)
	if err != nil {
		return b.brokeOff(err)
	}
	return b.answer(m, resp.StatusCode, body)
}

// brokeOff is an answer that began to come.
func (b *bridge) brokeOff(err error) *failure {
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		return &failure{unavailable(fmt.Sprintf("the hub's answer is longer than the %d bytes that are taken", long.Limit)), false, true}
	}
	return b.unreachable(fmt.Errorf("the answer broke off: %w", err))
}

// headers are what the hub wants to see without opening the body (MCP 2026-07-28, standard
// headers).
func (b *bridge) headers(h http.Header, m *message) {
	h.Set("Content-Type", "application/json")
	h.Set("Accept", "application/json, text/event-stream")
	b.mu.Lock()
	version := b.version
	b.mu.Unlock()
	if m.version != "" {
		version = m.version
	}
	if version != "" && m.method != "initialize" {
		h.Set("MCP-Protocol-Version", headerValue(version))
	}
	h.Set("Mcp-Method", headerValue(m.method))
	if m.name != "" {
		h.Set("Mcp-Name", headerValue(m.name))
	}
	if m.key != "" {
		h.Set("Idempotency-Key", keyOfTry(m.key))
	}
}

// headerValue writes a text that no header can carry in the form that the protocol gives it.
func headerValue(s string) string {
	plain := strings.TrimSpace(s) == s && !strings.HasPrefix(s, "=?base64?")
	for _, r := range s {
		plain = plain && r >= ' ' && r < 0x7f
	}
	if plain {
		return s
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?="
}

func (b *bridge) unreachable(err error) *failure {
	return &failure{unavailable(b.cfg.Explain(err)), true, true}
}

// unavailable is a refusal whose hint depends on what became of the call; see giveUp.
func unavailable(message string) *handoff.Error {
	return handoff.Refuse(handoff.CodeUnavailable, message, "")
}

// rpc is the part of a hub's JSON-RPC message that matters on the way.
type rpc struct {
	id, result, fault json.RawMessage
	asks              bool // a request or a notification of the hub
	padded            bool // with a member that says nothing, which strict clients refuse
}

// read reads a message, and reports whether it is one.
func read(body []byte) (*rpc, bool) {
	in, _ := members(body)
	got := &rpc{id: in["id"], result: in["result"], fault: in["error"]}
	if string(got.fault) == "null" {
		got.fault, got.padded = nil, true
	}
	_, named := in["method"]
	got.asks = text(in["method"]) != ""
	fits := !named && (got.result == nil) != (got.fault == nil) || got.asks && got.result == nil && got.fault == nil
	return got, text(in["jsonrpc"]) == "2.0" && fits
}

// answers reports whether got is the answer to m. A hub that could not read the id refuses the
// message without it.
func (got *rpc) answers(m *message) bool {
	if got.asks {
		return false
	}
	if len(got.id) == 0 || string(got.id) == "null" {
		return got.fault != nil || m.id == nil
	}
	return m.id != nil && sameID(m.id, got.id)
}

// answer passes a JSON answer on, or says why it is none.
func (b *bridge) answer(m *message, status int, body []byte) *failure {
	got, ok := read(body)
	if !ok || !got.answers(m) {
		return b.noAnswer(status, body)
	}
	return b.deliver(m, got, body)
}

// deliver gives the client the hub's answer, unless it is one to try again.
func (b *bridge) deliver(m *message, got *rpc, body []byte) *failure {
	if m.id == nil {
		b.cfg.Log.Warn("the hub refused a notification", "method", m.method)
		return nil
	}
	if reason := notJustNow(got); reason != "" {
		// It may come back: the answer to the same key is then the answer to this call.
		return &failure{unavailable(told(reason)), true, true}
	}
	if m.method == "initialize" {
		b.agree(got.result)
	}
	if got.padded || !bytes.Equal(got.id, m.id) { // the client looks for the id that it wrote
		body = got.as(m.id)
	}
	b.pass(body)
	return nil
}

// as is the answer under another id.
func (got *rpc) as(id json.RawMessage) []byte {
	name, value := "result", got.result
	if got.fault != nil {
		name, value = "error", got.fault
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"%s":%s}`, id, name, value)
}

// pass writes a message as one line. It is valid JSON.
func (b *bridge) pass(body []byte) {
	var line bytes.Buffer
	if err := json.Compact(&line, body); err != nil {
		b.cfg.Log.Error("a message of the hub is no JSON", "error", err)
		return
	}
	b.write(bytes.ToValidUTF8(line.Bytes(), []byte("\uFFFD")))
}

func (b *bridge) agree(result json.RawMessage) {
	var r struct {
		Version string `json:"protocolVersion"`
	}
	if json.Unmarshal(result, &r) == nil {
		b.mu.Lock()
		b.version = r.Version
		b.mu.Unlock()
	}
}

// notJustNow is what the hub says when it cannot just now, and empty otherwise.
func notJustNow(got *rpc) string {
	if !bytes.Contains(got.result, []byte(`"unavailable"`)) {
		return ""
	}
	var r struct {
		IsError    bool `json:"isError"`
		Structured struct {
			Error struct {
				Code    handoff.Code `json:"code"`
				Message string       `json:"message"`
			} `json:"error"`
		} `json:"structuredContent"`
	}
	if json.Unmarshal(got.result, &r) != nil || !r.IsError || r.Structured.Error.Code != handoff.CodeUnavailable {
		return ""
	}
	return r.Structured.Error.Message
}

// noAnswer is a refusal before MCP, or something that is no hub.
func (b *bridge) noAnswer(status int, body []byte) *failure {
	var p struct {
		Code    handoff.Code `json:"code"`
		Message string       `json:"message"`
	}
	if json.Unmarshal(body, &p) != nil || !codes.MatchString(string(p.Code)) {
		switch {
		case status >= http.StatusInternalServerError:
			return b.unreachable(fmt.Errorf("status %d came", status))
		default:
			// Something may have carried the call out and answered it in a way that is none.
			f := &failure{handoff.Refuse(handoff.CodeInvalidRequest, b.cfg.Explain(fmt.Errorf("no hub answers there (status %d, %s)", status, shape(body))), ""), false, false}
			f.sent = status < http.StatusMultipleChoices && json.Valid(body)
			return f
		}
	}
	if p.Code == handoff.CodeUnavailable || status >= http.StatusInternalServerError {
		return &failure{unavailable(told(p.Message)), true, true}
	}
	return &failure{handoff.Refuse(p.Code, told(p.Message), ""), false, false}
}

// maxTold is how much is repeated of what a hub says for a refusal, in graphemes.
const maxTold = 1000

// keys is what an API key looks like. Something between here and the hub may repeat what it was
// sent, and what the bridge says is read by a model and kept in logs.
var keys = regexp.MustCompile(`hc_live_[0-9A-Za-z]+`)

// codes is what one looks like; a hub that is newer may have others than ours.
var codes = regexp.MustCompile(`^[a-z_]{1,64}$`)

// told is a sentence of a hub as it may be repeated.
func told(message string) string {
	return handoff.CutGraphemes(keys.ReplaceAllString(message, "hc_live_…"), maxTold)
}

// shape says what a body looks like, without repeating it.
func shape(body []byte) string {
	switch body = bytes.TrimSpace(body); {
	case len(body) == 0:
		return "an empty body"
	case body[0] == '<':
		return "a page of HTML"
	case json.Valid(body):
		return "another JSON document"
	}
	return "text that is no JSON"
}

// stream passes on the events of an answer that comes in parts. It is complete once the answer
// to the message itself has come.
func (b *bridge) stream(m *message, body io.Reader) *failure {
	events := bufio.NewReader(body)
	var data []byte
	for {
		line, err := events.ReadBytes('\n')
		if err != nil {
			if m.id == nil && errors.Is(err, io.EOF) {
				return nil
			}
			return b.brokeOff(err)
		}
		line = bytes.TrimRight(line, "\r\n")
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data = append(append(data, bytes.TrimPrefix(text, []byte(" "))...), '\n')
			continue
		}
		if len(line) > 0 || len(data) == 0 {
			continue
		}
		event := data
		data = nil
		switch got, ok := read(event); {
		case !ok:
			b.cfg.Log.Debug("an event of the hub is no JSON-RPC message", "bytes", len(event))
		case got.answers(m):
			return b.deliver(m, got, event)
		case got.asks:
			b.pass(event)
		}
	}
}

// answerError answers a request in place of the hub: as a tool's error where a model will read
// it, else as the protocol's.
func (b *bridge) answerError(m *message, err *handoff.Error) {
	if m.method != "tools/call" {
		b.writeError(m.id, err)
		return
	}
	result := map[string]any{
		"content": []any{map[string]string{"type": "text", "text": err.ToolText()}}, "structuredContent": err.ToolValue(), "isError": true,
	}
	if m.version != "" { // the revisions without a handshake name the kind of every result
		result["resultType"] = "complete"
	}
	b.writeJSON(map[string]any{"jsonrpc": "2.0", "id": m.id, "result": result})
}

func (b *bridge) writeError(id json.RawMessage, err *handoff.Error) {
	code := handoff.Lookup(err.Code).Relay
	if code == 0 || err.Code == handoff.CodeContentTooLarge {
		code = handoff.Lookup(handoff.CodeInvalidRequest).Relay
	}
	b.writeJSON(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{
		"code": code, "message": handoff.Sentences(err.Message, err.Hint), "data": map[string]any{"code": err.Code},
	}})
}

func (b *bridge) writeJSON(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		b.cfg.Log.Error("an answer could not be written as JSON", "error", err)
		return
	}
	b.write(line)
}
