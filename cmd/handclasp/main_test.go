package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"handclasp/internal/restapi"
)

func TestOperatorCommandsReachTheRunningHubAndTakeEffectAtOnce(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	url := startServe(t, "--data", data)
	key := runJSON[restapi.NewKey](t, "agent", "add", "frank@acme", "--data", data)
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
		{[]string{"serve", "--trust-mode", "none"}, 2, `"open","strict"`},
		{[]string{"serve", "--public-url", "https://u:secret@h"}, 2, "without"},
		{[]string{"serve", "--public-url", "https://h/base"}, 2, "root of its host"},
		{[]string{"serve", "--allowed-host", "http://h"}, 2, "hub.internal"},
		{[]string{"serve", "--data", folder, "--database-url", "postgres://h/d"}, 2, "exclude each other"},
		{[]string{"serve", "--limit-payload-bytes", "99999999"}, 2, "1048576"},
		{[]string{"serve", "--retain-events", "6d"}, 2, "at least 7d"},
		{[]string{"serve", "--retain-handoffs", "soon"}, 2, "30d"},
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

func TestAReaderThatLeftIsNoFaultAndAHubThatLeftIsOne(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{
		&fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.EPIPE}:       true,
		unreachableError{&net.OpError{Op: "write", Net: "unix", Err: syscall.EPIPE}}: false,
		&fs.PathError{Op: "write", Path: os.Stdout.Name(), Err: syscall.ENOSPC}:      false,
	} {
		if hadEnough(fmt.Errorf("print: %w", err)) != want {
			t.Errorf("%v: want %v", err, want)
		}
	}
}
