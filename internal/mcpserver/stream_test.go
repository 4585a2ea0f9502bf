package mcpserver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/mcpserver"
)

func TestAParkedCallTellsWhoAsksThatItStillWaits(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWireWith(t, "sqlite", func(o *mcpserver.Options) { o.ProgressEvery = time.Millisecond })
			anna, frank := w.pair()
			told := make(chan *mcp.ProgressNotificationParams, 1000)
			client := mcp.NewClient(&mcp.Implementation{Name: "t", Version: "1"}, &mcp.ClientOptions{
				ProgressNotificationHandler: func(_ context.Context, req *mcp.ProgressNotificationClientRequest) { told <- req.Params },
			})
			cs := frank.connect(client, version)
			params := &mcp.CallToolParams{Name: "check_inbox", Arguments: map[string]any{"wait_seconds": 50}}
			params.SetProgressToken("mine")
			got := make(chan *mcp.CallToolResult, 1)
			go func() {
				r, err := cs.CallTool(t.Context(), params)
				if err != nil {
					t.Error(err)
				}
				got <- r
			}()
			var last float64
			for range 3 {
				p := <-told
				if p.ProgressToken != "mine" || p.Progress <= last {
					t.Errorf("%+v after %v", p, last)
				}
				last = p.Progress
			}
			id := anna.hand(frank)
			if r := <-got; r == nil || r.IsError || !strings.Contains(rawJSON(t, r.StructuredContent), id) {
				t.Errorf("%+v", r)
			}
			w.parked(0)
		})
	}
}

func TestOnlyACallThatHasSomethingToTellIsAnsweredByAStream(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, _ := w.pair()
	for name, c := range map[string]struct{ params, want string }{
		"nobody asks":             {`{"name":"check_inbox","arguments":{}}`, "application/json"},
		"who asks":                {`{"name":"check_inbox","arguments":{},"_meta":{"progressToken":1}}`, "text/event-stream"},
		"a tool that never waits": {`{"name":"list_teammates","arguments":{},"_meta":{"progressToken":1}}`, "application/json"},
		"the word as an argument": {`{"name":"check_inbox","arguments":{"cursor":"\"progressToken\""}}`, "application/json"},
	} {
		status, got, header := anna.post(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":` + c.params + `}`)
		if status != http.StatusOK || header.Get("Content-Type") != c.want {
			t.Errorf("%s: %d %s, want %s: %s", name, status, header.Get("Content-Type"), c.want, got)
		}
	}
}

func TestAStreamDoesNotRepeatTheBodyEither(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, _ := w.pair()
	status, got, _ := anna.post(`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"check_inbox","inputResponses":"SECRET_MARK","arguments":{},"_meta":{"progressToken":1}}}`)
	if status != http.StatusOK || !strings.HasPrefix(got, "event: message\ndata: {") || !strings.HasSuffix(got, "}\n\n") ||
		!strings.Contains(got, `"code":-32602`) || strings.Contains(got, "SECRET_MARK") {
		t.Errorf("%d %q", status, got)
	}
}
