package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"handclasp/internal/conformance/fixture"
	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

// target is something that the suite can talk to.
type target struct {
	name, title, about string
	url                string
	stop               func()
}

// startHub runs the program on a fresh folder with one registered agent, whose key a proxy adds.
// Its process id is left beside the folder, for a script that has to end it if this process dies.
func startHub(ctx context.Context, binary, dir string) (*target, error) {
	cmd := exec.CommandContext(ctx, binary, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--limit-calls-per-minute", "0")
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	_ = os.WriteFile(dir+".pid", []byte(strconv.Itoa(cmd.Process.Pid)), 0o600) // only for the script
	end := func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }
	served, err := announced(stderr)
	if err != nil {
		end()
		return nil, err
	}
	out, err := exec.CommandContext(ctx, binary, "agent", "add", "suite@conformance", "--data", dir, "--json").Output()
	if err != nil {
		end()
		return nil, fmt.Errorf("register an agent: %w", err)
	}
	var key struct {
		APIKey string `json:"api_key"`
	}
	if err := json.Unmarshal(out, &key); err != nil {
		end()
		return nil, fmt.Errorf("register an agent: %w", err)
	}
	proxy, err := withKey(served, key.APIKey)
	if err != nil {
		end()
		return nil, err
	}
	return &target{
		name: "hub", title: "The hub", url: proxy.URL + "/mcp/team",
		about: "`handclasp serve` as people run it. Between it and the suite stands a proxy that adds the key of an agent, which the\n" +
			"suite cannot send, and passes everything else as it came. Many scenarios ask for tools, resources and prompts of a\n" +
			"test server by name. The hub has none of them: for those see below.",
		stop: func() { proxy.Close(); end() },
	}, nil
}

// announced reads the program's log up to its address, and lets the rest go.
func announced(log io.Reader) (string, error) {
	lines, seen := bufio.NewScanner(log), bytes.Buffer{}
	for lines.Scan() {
		if address, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			go func() { _, _ = io.Copy(io.Discard, log) }()
			return address, nil
		}
		fmt.Fprintln(&seen, lines.Text())
	}
	return "", fmt.Errorf("the hub did not start:\n%s", &seen)
}

// withKey forwards to served what comes in, and adds the key, which the suite cannot send. Host
// and Origin pass as they came, because the suite looks at what the hub makes of them.
func withKey(served, key string) (*httptest.Server, error) {
	to, err := url.Parse(served)
	if err != nil {
		return nil, err
	}
	proxy := &httputil.ReverseProxy{
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), // the suite leaves streams
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
			r.Out.Header.Set("Authorization", "Bearer "+key)
		},
	}
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A ReverseProxy that still looks for the end of a body when the answer begins breaks off
		// a long answer; so it gets the body whole.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the suite is gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		proxy.ServeHTTP(w, r)
	})), nil
}

// startFixture serves the hub's door in this process, with the fixtures added.
func startFixture(ctx context.Context, dir string, sessions bool, without string) (*target, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	metrics := telemetry.New()
	st, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, "handclasp.db"), Metrics: metrics})
	if err != nil {
		return nil, err
	}
	h := hub.New(hub.Config{Store: st, Metrics: metrics})
	key, err := h.AddAgent(ctx, hub.Call{Actor: handoff.Operator()}, hub.AgentInput{Handle: "suite@conformance"})
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	door := httpserver.New(httpserver.Config{Hub: h, Metrics: metrics, MCP: mcpserver.New(h, mcpserver.Options{
		Version: "fixture", Extension: fixture.Extension(sessions, without),
	})})
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	proxy, err := withKey("http://"+listener.Addr().String(), key.Secret)
	if err != nil {
		return nil, errors.Join(err, listener.Close(), st.Close())
	}
	server := &http.Server{Handler: door, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	t := &target{name: "fixture", title: "The hub's door with fixtures", url: proxy.URL + "/mcp/team", stop: func() {
		h.Drain()
		_ = server.Close()
		proxy.Close()
		_ = st.Close()
	}}
	t.about = "The hub's listener, credential check, handler and tool wrapper, with the tools, resources and prompts added that the suite\n" +
		"asks for (`internal/conformance/fixture`)."
	if sessions {
		t.name, t.title = "fixture-sessions", "The same with sessions"
		t.about = "The hub never runs in this mode. Before 2026-07-28 a server could ask its client in the middle of a call, and streams could\n" +
			"be resumed; both need a session, and the hub keeps none, so that any node may answer any call. With the SDK's sessions\n" +
			"switched on, the same door passes these scenarios too."
	}
	return t, nil
}
