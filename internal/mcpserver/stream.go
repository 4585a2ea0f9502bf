package mcpserver

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// transports puts a server behind HTTP, and returns what picks the handler of a request. Most
// calls are answered with one JSON document. A call that sends something before its result needs
// a stream, because in JSON what comes before the result is lost.
func (s *Server) transports(server *mcp.Server) func(*requestNote) http.Handler {
	get := func(*http.Request) *mcp.Server { return server }
	opts := mcp.StreamableHTTPOptions{
		Stateless:           true,
		MaxRequestBodyBytes: s.opts.MaxBody,
		// The listener checks Host for every route.
		DisableLocalhostProtection: true,
	}
	if s.opts.Extension.Sessions {
		opts.Stateless, opts.EventStore = false, mcp.NewMemoryEventStore(nil)
		kept := mcp.NewStreamableHTTPHandler(get, &opts) // a session lives in one handler
		return func(*requestNote) http.Handler { return kept }
	}
	stream := unbuffered(mcp.NewStreamableHTTPHandler(get, &opts))
	opts.JSONResponse = true
	plain := mcp.NewStreamableHTTPHandler(get, &opts)
	parks := map[string]bool{}
	for i := range s.tools {
		parks[s.tools[i].name] = s.tools[i].parks
	}
	return func(note *requestNote) http.Handler {
		if note.progress && parks[note.tool] || s.opts.Extension.streams(note.tool) {
			return stream
		}
		return plain
	}
}

// unbuffered asks a proxy in front, nginx for one, to pass on each event as it comes.
func unbuffered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Accel-Buffering", "no")
		next.ServeHTTP(w, r)
	})
}

// learn notes what decides how a tool call is answered.
func (n *requestNote) learn(method string, name *string, meta json.RawMessage) {
	if method == "tools/call" && name != nil {
		n.tool, n.progress = *name, bytes.Contains(meta, []byte(`"progressToken"`))
	}
}

// splitEvent parts an event of a stream into what stands before its data, and the data; of
// anything else all is data.
func splitEvent(b []byte) (head, data []byte) {
	const field = "\ndata: "
	if at := bytes.Index(b, []byte(field+"{")); at >= 0 {
		return b[:at+len(field)], b[at+len(field):]
	}
	return nil, b
}

// beat tells the client of a call that it still waits, every so often until stop is called: a
// client or a proxy that gives up on silence then stays. It does nothing unless the client gave
// a progress token.
func (s *Server) beat(ctx context.Context, req *mcp.CallToolRequest) (stop func()) {
	token := req.Params.GetProgressToken()
	if token == nil {
		return func() {}
	}
	var mu sync.Mutex // held while sending, so that nothing follows the result
	var stopped bool
	var timer *time.Timer
	began := time.Now()
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(s.opts.ProgressEvery, func() {
		mu.Lock()
		defer mu.Unlock()
		if stopped {
			return
		}
		// A client that is gone ends the call by its request.
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token, Progress: time.Since(began).Seconds(), Message: "still waiting",
		})
		timer.Reset(s.opts.ProgressEvery)
	})
	return func() {
		mu.Lock()
		defer mu.Unlock()
		stopped = true
		timer.Stop()
	}
}
