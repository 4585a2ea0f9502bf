package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

func TestMain(m *testing.M) { os.Exit(hubtest.Main(m)) }

// wire is a hub behind real HTTP, as serve puts it together.
type wire struct {
	*hubtest.Fixture
	t   testing.TB
	srv *httptest.Server
}

func newWire(t testing.TB, kind string, options ...hubtest.Option) *wire {
	t.Helper()
	return newWireWith(t, kind, func(*mcpserver.Options) {}, options...)
}

func newWireWith(t testing.TB, kind string, change func(*mcpserver.Options), options ...hubtest.Option) *wire {
	t.Helper()
	f := hubtest.New(t, kind, options...)
	log := telemetry.NewLogger(f.Log, "text", slog.LevelDebug)
	opts := mcpserver.Options{
		Version: "test", Log: log,
		Observe: func(tool, code string) { f.Metrics.ToolCalls.WithLabelValues(tool, code).Inc() },
	}
	change(&opts)
	server := mcpserver.New(f.Hub, opts)
	mcpserver.AddBroken(server)
	w := &wire{Fixture: f, t: t}
	w.srv = httptest.NewServer(httpserver.New(httpserver.Config{Hub: f.Hub, MCP: server, Metrics: f.Metrics, Log: log, PublicURL: "https://hub.example"}))
	t.Cleanup(w.srv.Close)
	return w
}

// agent registers an agent; change may say more about it.
func (w *wire) agent(handle string, change ...func(*hub.AgentInput)) *caller {
	w.t.Helper()
	in := hub.AgentInput{Handle: handle}
	for _, c := range change {
		c(&in)
	}
	k, err := w.Hub.AddAgent(context.Background(), hubtest.Operator(), in)
	if err != nil {
		w.t.Fatalf("add agent %s: %v", handle, err)
	}
	return &caller{wire: w, t: w.t, handle: handle, key: k, path: "/mcp/team"}
}

// pair is the two agents that most tests need.
func (w *wire) pair() (anna, frank *caller) { return w.agent("anna@acme"), w.agent("frank@acme") }

// events counts what was ever written down: every effect has an event.
func (w *wire) events() int {
	w.t.Helper()
	n := 0
	err := w.Store.Read(context.Background(), func(tx *store.Tx) error {
		list, _, err := tx.Events(store.Beginning, 1000)
		if err != nil {
			return err
		}
		// On PostgreSQL readers of the log stay behind transactions that run, of other tests too.
		st, err := tx.Stats()
		n = len(list) + int(st.Unsettled)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// stored reads a handoff and its messages as they are written down.
func (w *wire) stored(id string) (h handoff.Handoff, messages []handoff.Message) {
	w.t.Helper()
	err := w.Store.Read(context.Background(), func(tx *store.Tx) (err error) {
		if h, err = tx.Handoff(id); err == nil {
			messages, err = tx.Messages(id, 0, 1000)
		}
		return err
	})
	if err != nil {
		w.t.Fatalf("read %s: %v", id, err)
	}
	return h, messages
}

// caller is one agent on the wire. It speaks JSON-RPC by hand, so a test sees every byte.
type caller struct {
	*wire
	t      testing.TB
	handle string
	key    hub.NewKey
	path   string
	// dress changes the request before it is sent.
	dress func(*http.Request)
}

func (c caller) with(dress func(*http.Request)) *caller { c.dress = dress; return &c }

// reply is the answer to one tool call.
type reply struct {
	status     int
	raw        []byte // the whole HTTP body
	rpcError   string
	isError    bool
	structured json.RawMessage
	text       string
	fault      struct {
		Code, Message, Hint string
		Details             map[string]any
		Retryable           bool
	}
}

// arguments of a call: a string is JSON as it stands, anything else is marshalled.
func rawJSON(t testing.TB, v any) string {
	t.Helper()
	if s, ok := v.(string); ok {
		return s
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func (c *caller) call(tool string, args any) reply {
	c.t.Helper()
	return c.callContext(context.Background(), tool, args)
}

func (c *caller) callContext(ctx context.Context, tool string, args any) reply {
	c.t.Helper()
	r, err := c.try(ctx, `{"name":"`+tool+`","arguments":`+rawJSON(c.t, args)+`}`)
	if err != nil {
		c.t.Fatalf("%s: %v", tool, err)
	}
	return r
}

// try posts tools/call with these params.
func (c *caller) try(ctx context.Context, params string) (reply, error) {
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":` + params + `}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.srv.URL+c.path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Authorization", "Bearer "+c.key.Secret)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	if c.dress != nil {
		c.dress(req)
	}
	resp, err := c.srv.Client().Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode}
	if r.raw, err = io.ReadAll(resp.Body); err != nil {
		return r, err
	}
	var msg struct {
		Error *struct {
			Code    int
			Message string
		}
		Result struct {
			IsError           bool
			StructuredContent json.RawMessage
			Content           []struct{ Type, Text string }
		}
	}
	if err := json.Unmarshal(r.raw, &msg); err != nil {
		return r, fmt.Errorf("status %d, no JSON: %q", r.status, r.raw)
	}
	if msg.Error != nil {
		r.rpcError = fmt.Sprintf("%d %s", msg.Error.Code, msg.Error.Message)
		return r, nil
	}
	r.isError, r.structured = msg.Result.IsError, msg.Result.StructuredContent
	for _, block := range msg.Result.Content {
		r.text += block.Text
	}
	return r, r.readFault()
}

func (r *reply) readFault() error {
	if !r.isError {
		return nil
	}
	if len(r.structured) == 0 { // the output schema is closed: the text has all
		code, _, _ := strings.Cut(strings.TrimPrefix(r.text, "code: "), "\n")
		r.fault.Code = code
		return nil
	}
	var body struct{ Error json.RawMessage }
	if err := json.Unmarshal(r.structured, &body); err != nil {
		return err
	}
	return json.Unmarshal(body.Error, &r.fault)
}

// ok calls a tool that must succeed, holds the result against the published schema and decodes it.
func (c *caller) ok(tool string, args any) map[string]any {
	c.t.Helper()
	return c.call(tool, args).fields(c.t, tool)
}

// fields checks a success against the tool's output schema and decodes it.
func (r reply) fields(t testing.TB, tool string) map[string]any {
	t.Helper()
	if r.status != http.StatusOK || r.isError || r.rpcError != "" {
		t.Fatalf("%s failed: status %d %s %s", tool, r.status, r.rpcError, r.text)
	}
	var m map[string]any
	if err := json.Unmarshal(r.structured, &m); err != nil {
		t.Fatalf("%s: %v: %s", tool, err, r.structured)
	}
	schema, err := outputSchemas()
	if err != nil {
		t.Fatal(err)
	}
	if err := schema[tool].Validate(m); err != nil {
		t.Fatalf("the result of %s is not what its schema says: %v\n%s", tool, err, r.structured)
	}
	return m
}

// outputSchemas are the published output schemas by tool.
var outputSchemas = sync.OnceValues(func() (map[string]*jsonschema.Resolved, error) {
	out := map[string]*jsonschema.Resolved{}
	for _, d := range mcpserver.Definitions("") {
		var s jsonschema.Schema
		b, err := json.Marshal(d.OutputSchema)
		if err == nil {
			err = json.Unmarshal(b, &s)
		}
		if err != nil {
			return nil, err
		}
		if out[d.Name], err = s.Resolve(nil); err != nil {
			return nil, fmt.Errorf("%s: %w", d.Name, err)
		}
	}
	return out, nil
})

// refused calls a tool that must be refused with the code, and checks the form of the refusal.
func (c *caller) refused(tool string, args any, code handoff.Code) reply {
	c.t.Helper()
	r := c.call(tool, args)
	r.mustRefuse(c.t, tool, code)
	return r
}

func (r reply) mustRefuse(t testing.TB, tool string, code handoff.Code) {
	t.Helper()
	if !r.isError || r.fault.Code != string(code) {
		t.Fatalf("%s: want %s, got status %d %s %s", tool, code, r.status, r.rpcError, r.text)
	}
	if first, _, _ := strings.Cut(r.text, "\n"); first != "code: "+string(code) {
		t.Errorf("%s: the text begins with %q", tool, first)
	}
	want := "code: " + r.fault.Code + "\n" + r.fault.Message
	if r.fault.Hint != "" {
		want += "\n" + r.fault.Hint
	}
	if r.text != want {
		t.Errorf("%s: the text %q says something else than the fields %+v", tool, r.text, r.fault)
	}
	var keys map[string]map[string]json.RawMessage
	if err := json.Unmarshal(r.structured, &keys); err != nil || len(keys) != 1 || len(keys["error"]) != 5 {
		t.Errorf("%s: error fields %s", tool, r.structured)
	}
	if r.fault.Message == "" || r.fault.Details == nil {
		t.Errorf("%s: no message or details: %s", tool, r.structured)
	}
}

// hand makes a handoff from c and returns its id; more are further arguments.
func (c *caller) hand(to *caller, more ...map[string]any) string {
	c.t.Helper()
	args := map[string]any{"to": to.handle, "intent": "inform", "summary": "a summary"}
	for _, m := range more {
		for k, v := range m {
			args[k] = v
		}
	}
	id, _ := c.ok("handoff_to_teammate", args)["thread_id"].(string)
	return id
}

// session is a client of the official SDK. An empty version takes the newest.
func (c *caller) session(version string) *mcp.ClientSession {
	c.t.Helper()
	return c.connect(mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil), version)
}

func (c *caller) connect(client *mcp.Client, version string) *mcp.ClientSession {
	c.t.Helper()
	cs, err := client.Connect(c.t.(*testing.T).Context(), &mcp.StreamableClientTransport{
		Endpoint: c.srv.URL + c.path, HTTPClient: &http.Client{Transport: keyed{c.key.Secret, c.srv.Client().Transport}}, DisableStandaloneSSE: true,
	}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		c.t.Fatalf("connect: %v", err)
	}
	c.t.Cleanup(func() { _ = cs.Close() })
	return cs
}

type keyed struct {
	key  string
	next http.RoundTripper
}

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+k.key)
	return k.next.RoundTrip(r)
}
