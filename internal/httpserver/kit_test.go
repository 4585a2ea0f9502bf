package httpserver_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
	"handclasp/internal/telemetry"
)

// listener is a hub on a real listener; what it serves is what serve serves.
type listener struct {
	*hubtest.Fixture
	t   *testing.T
	srv *httptest.Server
	key hub.NewKey // of anna@acme
	cfg httpserver.Config
}

func listen(t *testing.T, change ...func(*httpserver.Config)) *listener {
	t.Helper()
	return listenOn(t, hubtest.New(t, "sqlite"), change...)
}

// listenTo is listen for a hub that is made otherwise.
func listenTo(t *testing.T, options ...hubtest.Option) *listener {
	t.Helper()
	return listenOn(t, hubtest.New(t, "sqlite", options...))
}

func listenOn(t *testing.T, f *hubtest.Fixture, change ...func(*httpserver.Config)) *listener {
	t.Helper()
	log := telemetry.NewLogger(f.Log, "text", slog.LevelDebug)
	l := &listener{Fixture: f, t: t, cfg: httpserver.Config{
		Hub: f.Hub, Metrics: f.Metrics, Log: log, PublicURL: "https://hub.example", Hosts: []string{"other.example"},
		MCP: mcpserver.New(f.Hub, mcpserver.Options{Log: log, Observe: func(tool, code string) {
			f.Metrics.ToolCalls.WithLabelValues(tool, code).Inc()
		}}),
	}}
	for _, c := range change {
		c(&l.cfg)
	}
	l.srv = httptest.NewServer(httpserver.New(l.cfg))
	t.Cleanup(l.srv.Close)
	var err error
	if l.key, err = f.Hub.AddAgent(context.Background(), hubtest.Operator(), hub.AgentInput{Handle: "anna@acme"}); err != nil {
		t.Fatal(err)
	}
	return l
}

// answer is one HTTP answer.
type answer struct {
	status int
	header http.Header
	body   string
}

const checkInbox = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_inbox","arguments":{}}}`

// request builds one with anna's key, as an MCP client does.
func (l *listener) request(method, path, body string) *http.Request {
	l.t.Helper()
	r, err := http.NewRequest(method, l.srv.URL+path, strings.NewReader(body))
	if err != nil {
		l.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+l.key.Secret)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	return r
}

func (l *listener) send(r *http.Request) answer {
	l.t.Helper()
	resp, err := l.srv.Client().Do(r)
	if err != nil {
		l.t.Fatalf("%s %s: %v", r.Method, r.URL.Path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		l.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func (l *listener) get(path string) answer {
	l.t.Helper()
	return l.send(l.request(http.MethodGet, path, ""))
}

// want checks the status and, of a refusal, that its body is ours.
func (a answer) want(t *testing.T, what string, status int, code string) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: status %d %s, want %d", what, a.status, a.body, status)
		return
	}
	if code == "" {
		return
	}
	var body struct {
		Code      string
		Message   string
		RequestID string `json:"request_id"`
		Error     struct {
			Message string
			Data    struct {
				Code      string
				RequestID string `json:"request_id"`
			}
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil {
		t.Errorf("%s: no JSON: %q", what, a.body)
		return
	}
	if body.Code+body.Error.Data.Code != code || body.Message+body.Error.Message == "" {
		t.Errorf("%s: %s, want the code %s", what, a.body, code)
	}
	if id := a.header.Get("X-Request-Id"); id == "" || body.RequestID+body.Error.Data.RequestID != id {
		t.Errorf("%s: request id %q in the header, in the body %s", what, id, a.body)
	}
}

func gauge(t testing.TB, g prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func loopback(t *testing.T) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}
