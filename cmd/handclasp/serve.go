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
	"time"

	"handclasp/internal/config"
	"handclasp/internal/httpserver"
	"handclasp/internal/owner"
	"handclasp/internal/telemetry"
)

type serveCmd struct {
	config.Serve `embed:""`
}

// Help is printed by --help.
func (*serveCmd) Help() string {
	return `Serves MCP and the pages for people over HTTP, on SQLite in a data folder or on PostgreSQL, until SIGTERM. What stdio processes do on the folder at that time goes on through the hub.

Examples:

  handclasp serve
  handclasp serve --data /srv/handclasp --public-url https://hub.example.com
  handclasp serve --database-url 'postgres://handclasp@db.example.com/handclasp?sslmode=verify-full'`
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
	for _, name := range meaninglessVariables(e.variables) {
		log.Warn("a variable is set and means nothing; handclasp doctor says which was meant", "name", name)
	}
	return serve(e.ctx, &c.Serve, log, func(url string) { fmt.Fprintln(e.stderr, "listening on", url) })
}

// serve runs a hub until ctx ends. ready is told the address once calls can be answered.
func serve(ctx context.Context, cfg *config.Serve, log *slog.Logger, ready func(url string)) (err error) {
	var own *owner.Owner
	if cfg.DatabaseURL == "" {
		if own, err = owner.WaitFor(ctx, cfg.Data); err != nil {
			return err
		}
		defer own.Release()
		warnOfFolder(cfg.Data, log)
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
	if host, _, _ := net.SplitHostPort(listener.Addr().String()); cfg.PublicURL == "" && !loopback(host) {
		log.Warn("other machines can reach this hub, and nothing says by which address: set --public-url, or links are made from the one below")
	}
	n, err := openNode(ctx, cfg, public, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.close()) }()
	n.run(ctx, true)
	if !cfg.Mail.Configured() {
		if by, err := n.hub.BusinessesByMail(ctx); err == nil && by > 0 {
			log.Warn("businesses are reached by e-mail, and no mail server is configured: nobody there is told of a customer. Set --smtp-url and --mail-from", "businesses", by)
		}
	}
	if own != nil {
		if err := own.Guard(databaseFile(cfg.Data)); err != nil {
			return err
		}
		info := owner.Info{Kind: owner.Serve, URL: public, Version: version()}
		if err := own.Serve(info, n.socket(), 2*time.Second, log); err != nil {
			return err
		}
		defer own.CloseSocket()
		var stop context.CancelCauseFunc
		ctx, stop = context.WithCancelCause(ctx)
		defer stop(nil)
		go endWithFolder(ctx, own, cfg.Data, stop)
	}
	ready(url)
	err = httpserver.Serve(ctx, listener, httpserver.New(n.doors), n.hub.Drain, log)
	var lost folderLostError
	if errors.As(context.Cause(ctx), &lost) {
		err = errors.Join(lost, err)
	}
	return err
}

// folderLostError says that the folder of a running hub is gone, or what it works on in there.
type folderLostError struct{ data string }

func (e folderLostError) Error() string {
	return fmt.Sprintf("the data folder %s was removed or replaced while the hub ran, or its database or owner.lock. What was written meanwhile may be lost. Put it back or restore a backup, and start the hub again", e.data)
}

// endWithFolder ends a hub whose folder is gone: it must not go on acknowledging what is lost.
func endWithFolder(ctx context.Context, own *owner.Owner, data string, stop context.CancelCauseFunc) {
	select {
	case <-own.Lost():
		stop(folderLostError{data})
	case <-ctx.Done():
	}
}

// warnOfFolder says what is unwise about a data folder that can be used all the same.
func warnOfFolder(data string, log *slog.Logger) {
	if info, err := os.Stat(data); err == nil && info.Mode().Perm()&0o077 != 0 {
		log.Warn("others of this machine can enter the data folder; whoever can write there can act as the operator: chmod 700", "data", data)
	}
	if repo := repositoryOf(data); repo != "" {
		log.Warn("the data folder lies inside a git repository, where its database and keys may be committed by mistake: choose another with --data, or ignore it in git", "data", data, "repository", repo)
	}
}

// repositoryOf is the git repository around a folder, or "".
func repositoryOf(data string) string {
	for dir := data; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

func hostOf(listen string) string {
	host, _, _ := net.SplitHostPort(listen)
	return host
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
