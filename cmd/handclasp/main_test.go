package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
)

// asProgram in the environment makes this test binary the program itself, for tests that need
// processes; with the value tied, one that ends with its stdin, that is, with the tests.
const (
	asProgram = "RUN_AS_HANDCLASP"
	tied      = "tied"
)

func TestMain(m *testing.M) {
	as := os.Getenv(asProgram)
	if as == "" {
		os.Exit(hubtest.Main(m))
	}
	if as == tied && os.Args[1] == "serve" { // stdio processes end with their stdin anyway
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
	main()
}

// program is one run of the command line.
type program struct {
	stdout, stderr bytes.Buffer
	code           int
}

func runProgram(ctx context.Context, args ...string) *program {
	p := &program{}
	p.code = run(ctx, args, strings.NewReader(""), &p.stdout, &p.stderr)
	return p
}

// startServe runs serve until the test ends and gives its address.
func startServe(t *testing.T, args ...string) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), strings.NewReader(""), io.Discard, w)
		_ = w.Close()
		done <- code
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("serve ended with %d", code)
		}
	})
	line := make([]byte, 256)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	url, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "listening on ")
	if !ok {
		t.Fatalf("serve said %q", line[:n])
	}
	return url
}

func TestOperatorCommandsReachTheRunningHubAndTakeEffectAtOnce(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	url := startServe(t, "--data", data)
	add := runProgram(context.Background(), "agent", "add", "frank@acme", "--data", data, "--json")
	var key struct {
		KeyID  string `json:"key_id"`
		APIKey string `json:"api_key"`
	}
	if err := json.Unmarshal(add.stdout.Bytes(), &key); err != nil || add.code != 0 {
		t.Fatalf("agent add: %d %v %s", add.code, err, add.stderr.String())
	}
	call := func() int {
		body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_inbox","arguments":{}}}`
		req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+"/mcp/team", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key.APIKey)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := call(); status != http.StatusOK {
		t.Fatalf("with the key: %d", status)
	}
	if p := runProgram(context.Background(), "agent", "key", "revoke", key.KeyID, "--data", data); p.code != 0 {
		t.Fatalf("revoke: %s", p.stderr.String())
	}
	if status := call(); status != http.StatusUnauthorized {
		t.Fatalf("with the revoked key: %d", status)
	}
	info, err := os.Stat(filepath.Join(data, "owner.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("owner.sock: %v %v", info, err)
	}
	if p := runProgram(context.Background(), "serve", "--data", data, "--listen", "127.0.0.1:0"); p.code != 1 || !strings.Contains(p.stderr.String(), "in use by process") {
		t.Fatalf("a second hub: %d %s", p.code, p.stderr.String())
	}
}

func TestCommandsOwnTheFolderForTheMomentWhenNobodyDoes(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	for _, handle := range []string{"anna@acme", "frank@acme"} {
		if p := runProgram(context.Background(), "agent", "add", handle, "--data", data); p.code != 0 || !strings.Contains(p.stdout.String(), "hc_live_") {
			t.Fatalf("%d %s", p.code, p.stderr.String())
		}
	}
	list := runProgram(context.Background(), "agent", "list", "--data", data)
	if out := list.stdout.String(); !strings.Contains(out, "anna@acme") || !strings.Contains(out, "frank@acme") || strings.Contains(out, "hc_live_") {
		t.Fatalf("%s", out)
	}
}

func TestImpossibleCommandLinesSayWhatToTypeInstead(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"serve", "--bogus"}, 2, "handclasp serve --help"},
		{[]string{"serve", "--listen", "nowhere"}, 2, "127.0.0.1:7433"},
		{[]string{"serve", "--public-url", "https://u:secret@h"}, 2, "without"},
		{[]string{"serve", "--public-url", "https://h/base"}, 2, "root of its host"},
		{[]string{"serve", "--allowed-host", "http://h"}, 2, "hub.internal"},
		{[]string{"serve", "--data", folder, "--database-url", "postgres://h/d"}, 2, "exclude each other"},
		{[]string{"serve", "--limit-payload-bytes", "99999999"}, 2, "1048576"},
		{[]string{"agent", "list", "--data", filepath.Join(folder, "typo")}, 1, "there is no hub in"},
		{[]string{"agent", "add", "admin", "--data", folder}, 1, "reserved"},
		{[]string{"agent", "add", "a..b", "--data", folder}, 1, "handle"},
		{[]string{"agent", "add", "a@b", "--tag", "x", "--data", folder}, 2, "key=value"},
		{[]string{"agent", "key", "list", "nobody@acme", "--data", folder}, 1, "handclasp agent list"},
		{[]string{"handoff", "draft", "show", "none", "--data", folder}, 1, "handclasp handoff draft list"},
	} {
		p := runProgram(context.Background(), c.args...)
		if p.code != c.code || !strings.Contains(p.stderr.String(), c.want) || strings.Contains(p.stderr.String(), "secret") {
			t.Errorf("%v: exit %d, %s", c.args, p.code, p.stderr.String())
		}
	}
	if p := runProgram(context.Background(), "agent", "list", "--data", filepath.Join(folder, "typo")); p.code == 0 {
		t.Error("a mistyped folder became a hub")
	}
	if _, err := os.Stat(filepath.Join(folder, "typo")); !os.IsNotExist(err) {
		t.Errorf("a mistyped folder was made: %v", err)
	}
}

func TestEveryCommandExplainsItselfWithAnExampleThatIsOne(t *testing.T) {
	t.Parallel()
	parser, err := newParser(&cli{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range parser.Model.Leaves(true) {
		words := strings.Fields(leaf.FullPath())
		p := runProgram(context.Background(), append(words[1:], "--help")...)
		example := regexp.MustCompile(`Examples?:\n\n(?s:.*)\b` + strings.TrimSuffix(strings.Join(words, " "), " create") + `\b`)
		if p.code != 0 || !example.MatchString(p.stdout.String()) {
			t.Errorf("%v: %d\n%s", words, p.code, p.stdout.String())
		}
	}
}
