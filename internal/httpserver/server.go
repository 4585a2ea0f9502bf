// Package httpserver is the one HTTP listener: it mounts the doors, checks credentials, Host,
// Origin and sizes, counts and logs by route pattern, and shuts down without losing a call.
package httpserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
	"handclasp/internal/restapi"
	"handclasp/internal/telemetry"
)

// Config is what a listener serves.
type Config struct {
	Hub   *hub.Hub
	MCP   *mcpserver.Server
	Inbox http.Handler // the pages for people; serves /inbox, /login, /logout, /join, /h and /assets
	// Operator serves the operator's routes; they are on the owner's socket only.
	Operator http.Handler
	Metrics  *telemetry.Metrics
	Log      *slog.Logger
	// PublicURL is the address the hub is reached by; its origin and host are trusted.
	PublicURL string
	// Hosts are further values of the Host header that are answered, without a port.
	Hosts []string
	// MaxBody bounds request bodies in bytes; 0 means 4 MiB.
	MaxBody int64
}

// New builds the handler of the listener. Its routes read like an index.
func New(cfg Config) http.Handler {
	s := newServer(cfg)
	mux := http.NewServeMux()

	s.mountToolsets(mux, s.bearer)
	if cfg.Inbox != nil {
		for _, p := range []string{"/inbox", "/inbox/{thread_id}", "/login", "/logout", "/join", "/h/{token}", "/assets/"} {
			mux.Handle(p, cfg.Inbox)
		}
	}
	mux.Handle("GET /api/v1/events", s.bearer(restapi.AgentEvents(s.cfg.Hub, s.cfg.Log, callIn)))
	continuations := restapi.Continuations(s.cfg.Hub, s.cfg.Log)
	for _, p := range restapi.ContinuationPaths() {
		mux.Handle(p, continuations)
	}
	mux.Handle("POST /invites/{jti}/redeem", restapi.Redeem(s.cfg.Hub, s.cfg.Log))
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.registry(), promhttp.HandlerOpts{}))
	mux.Handle("GET /{$}", http.RedirectHandler("/inbox", http.StatusSeeOther))
	mux.HandleFunc("/", s.notFound)

	return s.observe(s.recovered(s.trusted(s.limited(mux))))
}

// NewSocket builds the handler of the owner's socket. Whoever can reach that socket is the
// operator, and so may also call as any agent, by naming it in the header [ActAs].
func NewSocket(cfg Config) http.Handler {
	s := newServer(cfg)
	mux := http.NewServeMux()
	s.mountToolsets(mux, s.named)
	mux.Handle("/", cfg.Operator)
	return s.observe(s.recovered(s.limited(mux)))
}

type server struct{ cfg Config }

func newServer(cfg Config) *server {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 4 << 20
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &server{cfg: cfg}
}

// mountToolsets serves each toolset at its path and all at /mcp, behind what says who calls.
func (s *server) mountToolsets(mux *http.ServeMux, identified func(http.Handler) http.Handler) {
	for _, set := range mcpserver.Toolsets() {
		s.mount(mux, "/mcp/"+set, identified(s.cfg.MCP.Handler(set)))
	}
	s.mount(mux, "/mcp", identified(s.cfg.MCP.Handler("")))
}

// mount serves a path with and without a trailing slash: some clients add one.
func (s *server) mount(mux *http.ServeMux, path string, h http.Handler) {
	mux.Handle(path, h)
	mux.Handle(path+"/{$}", h)
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok"})
}

// readyz says whether calls can be served, and how long the oldest handoff has waited for its
// recipient to look: a hub whose clients went deaf shows it here.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	if err := s.cfg.Hub.Ready(ctx); err != nil {
		writeJSON(w, http.StatusServiceUnavailable, map[string]any{"status": "unavailable", "reason": "the database does not answer"})
		return
	}
	body := map[string]any{"status": "ready"}
	if st, err := s.cfg.Hub.Stats(ctx); err == nil && !st.OldestUnfetched.IsZero() {
		body["oldest_unfetched_seconds"] = int64(st.Now.Sub(st.OldestUnfetched).Seconds())
	}
	writeJSON(w, http.StatusOK, body)
}

func (s *server) notFound(w http.ResponseWriter, r *http.Request) {
	problem(w, r, http.StatusNotFound, "not_found", "nothing is served at this address; MCP is at /mcp, /mcp/team, /mcp/pool and /mcp/desk")
}

// shutdownGrace is how long calls in flight may take to finish.
const shutdownGrace = 8 * time.Second

// Serve answers on l until ctx ends, then drains: parked calls return at once, calls in flight
// finish, and the listener closes. It returns nil after a clean shutdown.
func Serve(ctx context.Context, l net.Listener, h http.Handler, drain func(), log *slog.Logger) error {
	srv := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		// Longer than the longest parked call: the deadline also ends the watch for a client
		// that leaves.
		ReadTimeout: 90 * time.Second,
		// Longer than the longest parked call too; a client that never reads is let go.
		WriteTimeout:   2 * time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	drain()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		log.Warn("calls were still running at the end of the shutdown", "error", err)
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
