package bridge_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/bridge"
	"handclasp/internal/hubtest"
)

// hubFunc is a hub that the test plays.
type hubFunc func(*http.Request) (*http.Response, error)

// RoundTrip asks the test.
func (f hubFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// reply is an HTTP answer.
func reply(status int, kind, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func jsonReply(body string) (*http.Response, error) {
	return reply(http.StatusOK, "application/json", body)
}

// refused is a connection that was not made.
func refused() (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
}

// asked is one message as the hub gets it.
type asked struct {
	body   string
	header http.Header
	id     string // as it was written, empty for none
}

func ask(r *http.Request) asked {
	b, _ := io.ReadAll(r.Body)
	m := map[string]json.RawMessage{} // by exact names, as a hub reads them
	_ = json.Unmarshal(b, &m)
	return asked{string(b), r.Header.Clone(), string(m["id"])}
}

// result is the answer of a hub that is content with everything.
func (a asked) result(value string) (*http.Response, error) {
	if a.id == "" {
		return reply(http.StatusAccepted, "", "")
	}
	return jsonReply(`{"jsonrpc":"2.0","id":` + a.id + `,"result":` + value + `}`)
}

// recorder is a hub that notes what it is asked and answers with {}.
type recorder struct {
	mu   sync.Mutex
	came []asked
}

func (h *recorder) RoundTrip(r *http.Request) (*http.Response, error) {
	a := ask(r)
	h.mu.Lock()
	h.came = append(h.came, a)
	h.mu.Unlock()
	return a.result("{}")
}

func (h *recorder) all() []asked {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]asked(nil), h.came...)
}

// session is a client at the other end of the bridge.
type session struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *io.PipeReader
	lines chan string
	ended chan error
	stop  context.CancelFunc
	log   *hubtest.LogBuffer
}

// open starts a bridge in front of a hub. Its waits are short.
func open(t *testing.T, hub http.RoundTripper, change ...func(*bridge.Config)) *session {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	s := &session{t: t, in: inW, out: outR, lines: make(chan string, 4096), ended: make(chan error, 1), stop: stop, log: &hubtest.LogBuffer{}}
	cfg := bridge.Config{
		In: inR, Out: outW, Endpoint: "http://hub.example/mcp", Hub: hub,
		Explain:  func(err error) string { return "the hub cannot be used: " + err.Error() },
		Log:      slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Patience: 20 * time.Millisecond, Pause: time.Millisecond, Linger: time.Minute,
	}
	for _, c := range change {
		c(&cfg)
	}
	go func() {
		s.ended <- bridge.Run(ctx, cfg)
		_ = outW.Close()
	}()
	go func() {
		defer close(s.lines)
		r := bufio.NewReader(outR)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				s.lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		stop()
		_ = inW.Close()
		for line := range s.lines {
			wantMessage(t, line)
		}
	})
	return s
}

// send writes one line. It does not wait for the bridge to read it.
func (s *session) send(lines ...string) {
	s.t.Helper()
	for _, l := range lines {
		if _, err := io.WriteString(s.in, l+"\n"); err != nil {
			s.t.Fatalf("the bridge does not read: %v", err)
		}
	}
}

// message is one line of the bridge.
type message struct {
	line    string
	JSONRPC string
	ID      json.RawMessage
	Method  string
	Result  *struct {
		ResultType string
		IsError    bool
		Content    []struct{ Type, Text string }
		Structured struct {
			Error struct {
				Code, Message, Hint string
				Retryable           bool
			}
		} `json:"structuredContent"`
	}
	Error *struct {
		Code    int
		Message string
		Data    struct{ Code string }
	}
}

// wantMessage checks that a line is one JSON-RPC message.
func wantMessage(t testing.TB, line string) message {
	t.Helper()
	m := message{line: strings.TrimSuffix(line, "\n")}
	if !strings.HasSuffix(line, "\n") || strings.ContainsAny(m.line, "\r\n") || !bytes.Equal([]byte(line), bytes.ToValidUTF8([]byte(line), nil)) {
		t.Fatalf("no single line of UTF-8: %q", line)
	}
	var members map[string]json.RawMessage
	if json.Unmarshal([]byte(m.line), &members) != nil || string(members["jsonrpc"]) != `"2.0"` {
		t.Fatalf("no JSON-RPC message: %q", line)
	}
	_, asks := members["method"]
	_, result := members["result"]
	_, fault := members["error"]
	if n := btoi(asks) + btoi(result) + btoi(fault); n != 1 {
		t.Fatalf("a message of %d kinds: %q", n, line)
	}
	id := string(members["id"])
	if !asks && (id == "" || !strings.ContainsRune(`"-0123456789n`, rune(id[0]))) {
		t.Fatalf("an answer to %q: %q", id, line)
	}
	_ = json.Unmarshal([]byte(m.line), &m) // results have many shapes
	return m
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// next is the next line of the bridge.
func (s *session) next() message {
	s.t.Helper()
	select {
	case line, ok := <-s.lines:
		if !ok {
			s.t.Fatalf("the session ended; its log:\n%s", s.log)
		}
		return wantMessage(s.t, line)
	case <-time.After(time.Minute):
		s.t.Fatalf("no line came within a minute; the log:\n%s", s.log)
	}
	return message{}
}

// end waits until the session is over, and gives what it still wrote.
func (s *session) end() (rest []message) {
	s.t.Helper()
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Fatalf("the session ended with %v", err)
		}
	case <-time.After(time.Minute):
		s.t.Fatalf("the session did not end within a minute; the log:\n%s", s.log)
	}
	for line := range s.lines {
		rest = append(rest, wantMessage(s.t, line))
	}
	return rest
}

const (
	ping      = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	inboxCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_inbox","arguments":{}}}`
)

// tool is a call of a tool with these arguments.
func tool(id, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"send_message","arguments":` + arguments + `}}`
}

// wantToolError checks a refusal that a model reads.
func (m message) wantToolError(t testing.TB, id, code, hint string) {
	t.Helper()
	if string(m.ID) != id || m.Result == nil || !m.Result.IsError || m.Result.Structured.Error.Code != code {
		t.Errorf("got %s, want the tool error %s for %s", m.line, code, id)
		return
	}
	if e := m.Result.Structured.Error; e.Message == "" || !strings.Contains(e.Hint, hint) || len(m.Result.Content) != 1 || !strings.Contains(m.Result.Content[0].Text, code) {
		t.Errorf("got %s, want the hint %q", m.line, hint)
	}
}

// wantError checks a refusal of the protocol.
func (m message) wantError(t testing.TB, id, code string) {
	t.Helper()
	if string(m.ID) != id || m.Error == nil || m.Error.Data.Code != code || m.Error.Code >= 0 || m.Error.Message == "" {
		t.Errorf("got %s, want the error %s for %s", m.line, code, id)
	}
}
