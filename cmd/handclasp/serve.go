package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
	"handclasp/internal/outbox"
	"handclasp/internal/restapi"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
	"handclasp/internal/webui"
)

type serveCmd struct {
	config.Serve `embed:""`
}

func (c *serveCmd) Run(e *env) error {
	if err := c.Serve.Validate(); err != nil {
		return usageError{err}
	}
	tuneMemory()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return usageError{err}
	}
	log := telemetry.NewLogger(e.stderr, c.LogFormat, level)
	return serve(e.ctx, &c.Serve, log, func(url string) { fmt.Fprintln(e.stderr, "listening on", url) })
}

// serve runs a hub until ctx ends. ready is told the address once calls can be answered.
func serve(ctx context.Context, cfg *config.Serve, log *slog.Logger, ready func(url string)) error {
	var own *owner
	if cfg.DatabaseURL == "" {
		var err error
		if own, err = waitForFolder(ctx, cfg.Data); err != nil {
			return err
		}
		defer own.release()
		if info, err := os.Stat(cfg.Data); err == nil && info.Mode().Perm()&0o077 != 0 {
			log.Warn("others of this machine can enter the data folder; whoever can write there can act as the operator: chmod 700", "data", cfg.Data)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w. Stop what uses the address, or choose another with --listen", cfg.Listen, err)
	}
	defer func() { _ = listener.Close() }()
	url := "http://" + listener.Addr().String()
	public := cfg.PublicURL
	if public == "" {
		public = url
	}
	metrics := telemetry.New()
	st, h, err := openHub(ctx, cfg, public, log, metrics)
	if err != nil {
		return err
	}
	defer func() {
		if err := st.Close(); err != nil {
			log.Error("close the database", "error", err)
		}
	}()
	handler := httpserver.New(httpserver.Config{
		Hub: h, Metrics: metrics, Log: log, PublicURL: public, MaxBody: int64(cfg.LimitBodyBytes),
		Hosts: append(cfg.AllowedHosts, hostOf(cfg.Listen)),
		MCP: mcpserver.New(h, mcpserver.Options{
			Version: version(), Log: log, MaxBody: int64(cfg.LimitBodyBytes),
			Observe: func(tool, code string) { metrics.ToolCalls.WithLabelValues(tool, code).Inc() },
		}),
		Inbox: webui.New(h, webui.Options{PublicURL: public, Log: log}),
	})

	// Background work outlives the listener: what calls in flight commit must still be told.
	back, stopBack := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { logged(log, "hub", h.Run(back)) })
	wg.Go(func() { logged(log, "outbox", outbox.Run(back, h, log)) })
	wg.Go(func() { trimMemory(back, metrics) })
	defer func() { stopBack(); wg.Wait() }()
	if own != nil {
		stopSocket, err := own.serveOperator(restapi.Operator(h, log), log)
		if err != nil {
			return err
		}
		defer stopSocket()
	}
	ready(url)
	return httpserver.Serve(ctx, listener, handler, h.Drain, log)
}

func openHub(ctx context.Context, cfg *config.Serve, public string, log *slog.Logger, metrics *telemetry.Metrics) (*store.Store, *hub.Hub, error) {
	sc := store.Config{URL: cfg.DatabaseURL, Log: log, Metrics: metrics, MaxConns: cfg.MaxDatabaseConns, Program: version()}
	if cfg.DatabaseURL == "" {
		sc.Path = databaseFile(cfg.Data)
	}
	st, err := store.Open(ctx, sc)
	if err != nil {
		return nil, nil, err
	}
	limits := handoff.DefaultLimits()
	if cfg.LimitPayloadBytes > 0 {
		limits.Payload = cfg.LimitPayloadBytes
	}
	return st, hub.New(hub.Config{
		Store: st, Log: log, Metrics: metrics, PublicURL: public, Limits: limits,
		CallsPerMinute: cfg.LimitCallsPerMinute, ParkedCalls: cfg.LimitParkedCalls,
		NoProposedActions: !cfg.FeatureProposedActions,
	}), nil
}

func databaseFile(data string) string { return filepath.Join(data, "handclasp.db") }

func hostOf(listen string) string {
	host, _, _ := net.SplitHostPort(listen)
	return host
}

func logged(log *slog.Logger, what string, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Error("background work ended", "what", what, "error", err)
	}
}

// The MCP SDK allocates some 400 KB per call, all of it short-lived: with the collector's
// default pace it spends more time collecting than serving. See docs/benchmarks.md.
const (
	gcPercent   = 800
	memoryLimit = 512 << 20
	// idleAfter is how long the hub must be quiet before memory goes back to the system.
	idleAfter = 15 * time.Second
)

func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}

// trimMemory gives memory back once a burst is over.
func trimMemory(ctx context.Context, m *telemetry.Metrics) {
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	last, trimmed := m.Served(), true
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		served := m.Served()
		switch {
		case served-last > 100:
			trimmed = false
		case !trimmed:
			debug.FreeOSMemory()
			trimmed = true
		}
		last = served
	}
}
