package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/restapi"
)

func TestTailAtAnAddressShowsWhatTheKeysAgentMaySee(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			place := where(t, kind)
			keys := aHub(t, place, "anna@acme", "frank@acme", "eve@acme")
			url := startServe(t, place...)
			at := func(handle string) []string {
				return []string{"--url", url, "--key-file", writeFile(t, filepath.Join(t.TempDir(), "key"), keys[handle]+"\n")}
			}
			ok(t, append([]string{"send", "frank@acme", "a summary"}, at("anna@acme")...)...)
			tail := func(handle string, more ...string) string {
				return mustRun(t, append(append([]string{"tail", "--after", "0", "--no-follow"}, more...), at(handle)...)...)
			}
			hubtest.Eventually(t, func() bool { return strings.Contains(tail("frank@acme"), "handoff.created") })
			line := ""
			for l := range strings.Lines(tail("frank@acme")) {
				if strings.Contains(l, "handoff.created") {
					line = l
				}
			}
			if !strings.Contains(line, "anna@acme") || !strings.Contains(line, "#1 open") {
				t.Errorf("a line for a person: %q", line)
			}
			if out := tail("eve@acme"); strings.Contains(out, "handoff.created") || !strings.Contains(out, "agent.added") {
				t.Errorf("one whom it does not concern sees\n%s", out)
			}
			cursor := ""
			for l := range strings.Lines(tail("anna@acme", "--json")) {
				var e restapi.HandoffEvent
				if err := json.Unmarshal([]byte(l), &e); err != nil || e.Cursor == "" || e.Type == "" || e.Actor == "" || strings.Contains(l, "a summary") {
					t.Fatalf("%v %s", err, l)
				}
				cursor = e.Cursor
			}
			if out := mustRun(t, append([]string{"tail", "--after", cursor, "--no-follow"}, at("anna@acme")...)...); out != "" {
				t.Errorf("behind the last cursor: %s", out)
			}
		})
	}
}

func TestTailAtAnAddressGoesOnAfterAHubThatWasAway(t *testing.T) {
	t.Parallel()
	data, keys := withAgents(t, "anna@acme", "frank@acme")
	hub, err := url.Parse(startServe(t, "--data", data))
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	proxy := httputil.NewSingleHostReverseProxy(hub)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Host = hub.Host
		switch calls.Add(1) {
		case 2: // it breaks off
			panic(http.ErrAbortHandler)
		case 3: // another program, for a moment
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"unavailable","message":"m","details":{}}`)
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(front.Close)
	key := writeFile(t, filepath.Join(t.TempDir(), "key"), keys["frank@acme"])
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"tail", "--url", front.URL, "--key-file", key, "--after", "0", "--json"}, strings.NewReader(""), w, io.Discard)
		_ = w.Close()
	}()
	seen := map[string]int{}
	lines := bufio.NewScanner(r)
	next := func(want string) {
		t.Helper()
		for lines.Scan() {
			var e restapi.HandoffEvent
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatalf("%v: %s", err, lines.Text())
			}
			if seen[e.Cursor]++; seen[e.Cursor] > 1 {
				t.Fatalf("it came twice: %s", lines.Text())
			}
			if e.Type == want {
				return
			}
		}
		t.Fatalf("it ended before %s", want)
	}
	next("key.created")
	ok(t, "send", "frank@acme", "a summary", "--as", "anna@acme", "--data", data)
	next("handoff.created")
	if n := calls.Load(); n < 4 {
		t.Errorf("the hub was asked %d times only", n)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("Ctrl-C ends it with %d", code)
	}
}

func TestTailAtAnAddressExplainsMistakes(t *testing.T) {
	t.Parallel()
	data, keys := withAgents(t, "anna@acme")
	url := startServe(t, "--data", data)
	dir := t.TempDir()
	key, other := writeFile(t, filepath.Join(dir, "key"), keys["anna@acme"]), writeFile(t, filepath.Join(dir, "other"), "hc_live_nobody")
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"code":"not_found","message":"nothing is served at this address","details":{}}`)
	}))
	t.Cleanup(old.Close)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	t.Cleanup(page.Close)
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{1, "the API key is unknown", []string{"--url", url, "--key-file", other}},
		{1, "--after:", []string{"--url", url, "--key-file", key, "--after", "x"}},
		{1, "older version", []string{"--url", old.URL, "--key-file", key}},
		{1, "cannot be used", []string{"--url", page.URL, "--key-file", key}},
		{1, "cannot be used", []string{"--url", "http://127.0.0.1:1", "--key-file", key}},
	} {
		refused(t, c.code, c.says, append([]string{"tail"}, c.args...)...)
	}
	for says, args := range map[string][]string{
		"exclude each other":   {"--url", url, "--key-file", key, "--as", "anna@acme"},
		"--url excludes":       {"--url", url, "--key-file", key, "--data", data},
		"HANDCLASP_KEY":        {"--url", url},
		"--key-file goes with": {"--key-file", key, "--as", "anna@acme", "--data", data},
	} {
		if p := runProgram(t.Context(), append([]string{"tail"}, args...)...); p.code != 2 || !strings.Contains(p.stderr.String(), says) {
			t.Errorf("%v: exit %d, %s", args, p.code, p.stderr.String())
		}
	}
}
