package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
	"handclasp/internal/store"
	"handclasp/internal/telemetry"
)

// Over MCP four servers get the same bytes: a bare net/http handler that decodes and encodes
// JSON, a tool that does nothing on the SDK alone, the hub's own door with a tool behind
// it that does nothing, and the hub. The
// load comes from a process of its own.

// keyMark is replaced in every request by a key of the same length.
const keyMark = "00000000-key-000000000000"

func callBody(tool string) string {
	args := map[string]any{
		"to": "recipient@bench", "intent": "ask_question", "summary": summary,
		"question": "Can this be done in the current sprint?", "idempotency_key": keyMark,
	}
	b, _ := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args},
	})
	return string(b)
}

// answer is what every server sends back: the shape and size of the tool's own result.
var answer = json.RawMessage(`{"thread_id":"01a22c7b-8b8d-7653-b7ee-f901601a118f","status":"pending","recipient":"recipient@bench","created_at":"2026-11-30T12:00:00.000Z","inbox_url":"http://127.0.0.1:7433/inbox/01a22c7b-8b8d-7653-b7ee-f901601a118f"}`)

func (j job) load() (outcome, error) {
	expect := []byte(`"thread_id"`)
	if j.Expect != "" {
		expect = []byte(j.Expect)
	}
	// No two loads of one hub use the same keys, or the later one would measure replays.
	run := rand.Uint32() << 8 //nolint:gosec // no secret
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: j.Callers, MaxConnsPerHost: j.Callers}}
	return work(j.Callers, j.Duration, func(w, i int) error {
		body := strings.Replace(j.Body, keyMark, fmt.Sprintf("%08x-key-%012x", run|uint32(w), i), 1) //nolint:gosec // a few hundred callers
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, j.URL+j.Path, strings.NewReader(body))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Authorization", "Bearer "+j.Key)
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || !bytes.Contains(text, expect) || bytes.Contains(text, []byte(`"isError":true`)) {
			return fmt.Errorf("status %d: %.300s", resp.StatusCode, text)
		}
		return nil
	}), nil
}

// serveChild runs the bare handler or the no-op tool until its standard input closes.
func serveChild(kind string) error {
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(512 << 20)
	var h http.Handler = http.HandlerFunc(bare)
	dir, err := os.MkdirTemp("", "handclasp-bench-")
	if err != nil {
		return err
	}
	if kind == "sdk" {
		h = bareSDK()
	}
	switch kind {
	case "noop":
		h, err = noop(dir)
	case "wake":
		h, err = wakeServer(dir)
	case "sink":
		return sink(dir)
	}
	if err != nil {
		return err
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("listening on", "http://"+l.Addr().String())
	signal.Ignore(syscall.SIGTERM) // the end of standard input is what ends it, tidily
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = os.RemoveAll(dir)
		os.Exit(0)
	}()
	return (&http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}).Serve(l)
}

func bare(w http.ResponseWriter, r *http.Request) {
	var req struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Params struct {
			Name      string         `json:"name"`
			Arguments map[string]any `json:"arguments"`
		} `json:"params"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": req.ID, "result": map[string]any{
		"content": []any{map[string]any{"type": "text", "text": string(answer)}}, "structuredContent": answer,
	}})
}

// bareSDK serves a tool that does nothing on the SDK alone: no credential, no limits, no arguments
// decoded, no metrics. No door on this SDK can be faster.
func bareSDK() http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "noop", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "noop", InputSchema: json.RawMessage(`{"type":"object"}`)}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{StructuredContent: answer, Content: []mcp.Content{&mcp.TextContent{Text: string(answer)}}}, nil
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
}

// noop serves the door as the hub does, credential, limits, arguments and metrics included, with
// a tool behind it that does nothing. It prints the key to call it with.
func noop(dir string) (http.Handler, error) {
	ctx := context.Background()
	metrics := telemetry.New()
	st, err := store.Open(ctx, store.Config{Path: filepath.Join(dir, "handclasp.db"), Metrics: metrics})
	if err != nil {
		return nil, err
	}
	h := hub.New(hub.Config{Store: st, Metrics: metrics})
	k, err := h.AddAgent(ctx, hub.Call{Actor: handoff.Operator()}, hub.AgentInput{Handle: "sender@bench"})
	if err != nil {
		return nil, err
	}
	fmt.Println("key", k.Secret)
	return httpserver.New(httpserver.Config{Hub: h, Metrics: metrics, MCP: mcpserver.New(h, mcpserver.Options{
		Version: "bench", Probe: true,
		Observe: func(tool, code string) { metrics.ToolCalls.WithLabelValues(tool, code).Inc() },
	})}), nil
}

// process is a server in a process of its own.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	url   string
	key   string
	ready time.Duration
	dir   string
}

func start(cmd *exec.Cmd, announce func() (io.ReadCloser, error)) (*process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := announce()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	key := ""
	for lines.Scan() {
		if k, ok := strings.CutPrefix(lines.Text(), "key "); ok {
			key = k
			continue
		}
		if url, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			p := &process{cmd: cmd, stdin: stdin, url: url, key: key, ready: time.Since(began)}
			go func() { _, _ = io.Copy(os.Stderr, out) }()
			return p, nil
		}
		fmt.Fprintln(os.Stderr, lines.Text())
	}
	return nil, errors.Join(errors.New("the server ended before it was ready"), cmd.Wait())
}

func (p *process) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Wait()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

func startChild(kind string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.Background(), self, "-serve", kind)
	return start(cmd, cmd.StdoutPipe)
}

// startHub builds the program and serves on a fresh folder, with one sender, one recipient and a shop.
func startHub(flags ...string) (*process, string, error) {
	dir, err := os.MkdirTemp("", "handclasp-bench-")
	if err != nil {
		return nil, "", err
	}
	bin := filepath.Join(dir, "handclasp")
	build := exec.CommandContext(context.Background(), "go", "build", "-o", bin, "./cmd/handclasp")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, "", fmt.Errorf("%w\n%s", err, out)
	}
	data := filepath.Join(dir, "data")
	cmd := exec.CommandContext(context.Background(), bin, "serve", "--data", data, "--listen", "127.0.0.1:0", "--limit-calls-per-minute", "0")
	cmd.Args = append(cmd.Args, flags...)
	p, err := start(cmd, cmd.StderrPipe)
	if err != nil {
		return nil, "", err
	}
	p.dir = dir
	key := ""
	for _, handle := range []string{"recipient@bench", "sender@bench"} {
		out, err := exec.CommandContext(context.Background(), bin, "agent", "add", handle, "--data", data, "--json").Output()
		if err != nil {
			p.stop()
			return nil, "", err
		}
		var k struct {
			APIKey string `json:"api_key"`
		}
		if err := json.Unmarshal(out, &k); err != nil {
			p.stop()
			return nil, "", err
		}
		key = k.APIKey
	}
	if out, err := exec.CommandContext(context.Background(), bin, "business", "add", "shop", "--channel", "email", "--email", "ann@shop.example", "--data", data).CombinedOutput(); err != nil {
		p.stop()
		return nil, "", fmt.Errorf("%w\n%s", err, out)
	}
	return p, key, nil
}

func (b *bench) mcp() error {
	bareServer, err := startChild("bare")
	if err != nil {
		return err
	}
	defer bareServer.stop()
	sdkServer, err := startChild("sdk")
	if err != nil {
		return err
	}
	defer sdkServer.stop()
	noopServer, err := startChild("noop")
	if err != nil {
		return err
	}
	defer noopServer.stop()
	hubServer, key, err := startHub()
	if err != nil {
		return err
	}
	defer hubServer.stop()
	fmt.Printf("\nMCP over HTTP, requests per second (median of %d)\n\n", b.rounds)
	fmt.Println("| callers | bare handler | no-op, SDK alone | of the bare | no-op, our door | of the bare | handoff_to_teammate | of the door's no-op | of the SDK's no-op | p50 | p99 |")
	fmt.Println("|---|---|---|---|---|---|---|---|---|---|---|")
	for _, n := range callers {
		out, err := b.measure(
			job{Kind: "load", URL: bareServer.url, Path: "/", Key: key, Body: callBody("noop"), Callers: n},
			job{Kind: "load", URL: sdkServer.url, Path: "/", Key: key, Body: callBody("noop"), Callers: n},
			job{Kind: "load", URL: noopServer.url, Path: "/mcp/team", Key: noopServer.key, Body: callBody("noop"), Callers: n},
			job{Kind: "load", URL: hubServer.url, Path: "/mcp/team", Key: key, Body: callBody("handoff_to_teammate"), Callers: n},
		)
		if err != nil {
			return err
		}
		bare, sdk, door, hub := out[0].PerSecond, out[1].PerSecond, out[2].PerSecond, out[3].PerSecond
		fmt.Printf("| %d | %.0f | %.0f | %.2f | %.0f | %.2f | %.0f | %.2f | %.2f | %s | %s |\n",
			n, bare, sdk, sdk/bare, door, door/bare, hub, hub/door, hub/sdk, ms(out[3].P50), ms(out[3].P99))
	}
	return nil
}

// quiet is how long after the load the memory is read.
const quiet = 60 * time.Second

// resident measures the time to readiness and the memory a hub keeps after a burst.
func (b *bench) resident() error {
	p, key, err := startHub()
	if err != nil {
		return err
	}
	defer p.stop()
	before := rss(p.cmd.Process.Pid)
	out, err := job{Kind: "load", URL: p.url, Path: "/mcp/team", Key: key, Body: callBody("handoff_to_teammate"), Callers: 64, Duration: 10 * time.Second}.inChild()
	if err != nil {
		return err
	}
	peak := rss(p.cmd.Process.Pid)
	time.Sleep(quiet)
	fmt.Printf("\nStart to ready: %d ms. Resident: %s at start, %s at the end of a load of %.0f calls a second, %s a minute later.\n",
		p.ready.Milliseconds(), before, peak, out.PerSecond, rss(p.cmd.Process.Pid))
	return nil
}

func rss(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			var n int
			if _, err := fmt.Sscan(kb, &n); err == nil {
				return fmt.Sprintf("%d MB", n/1024)
			}
		}
	}
	return "unknown"
}
