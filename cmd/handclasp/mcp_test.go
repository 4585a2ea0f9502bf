package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
	"handclasp/internal/restapi"
)

// client is an MCP client that has started handclasp mcp.
type client struct {
	t      *testing.T
	in     *io.PipeWriter
	lines  chan string
	stderr hubtest.LogBuffer
	code   chan int
	stop   context.CancelFunc
}

func startMCP(t *testing.T, args ...string) *client {
	t.Helper()
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	c := &client{t: t, in: inW, lines: make(chan string, 100), code: make(chan int, 1), stop: stop}
	go func() {
		code := run(ctx, append([]string{"mcp"}, args...), inR, outW, &c.stderr)
		_ = inR.Close()
		_ = outW.Close()
		c.code <- code
	}()
	go func() {
		defer close(c.lines)
		for scan := bufio.NewScanner(outR); scan.Scan(); {
			c.lines <- scan.Text()
		}
	}()
	t.Cleanup(func() { stop(); _ = inW.Close(); _ = outR.Close() })
	return c
}

// send writes one call of check_inbox.
func (c *client) send(arguments string) {
	c.t.Helper()
	line := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_inbox","arguments":` + arguments + `}}` + "\n"
	if _, err := io.WriteString(c.in, line); err != nil {
		c.t.Fatalf("handclasp mcp does not read: %v; %s", err, c.stderr.String())
	}
}

// next is the next line of stdout: its error code, or "ok".
func (c *client) next() (code, line string) {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatalf("handclasp mcp ended: %s", c.stderr.String())
		}
		var m struct {
			JSONRPC string
			Result  struct {
				IsError           bool
				StructuredContent struct{ Error struct{ Code string } }
			}
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.JSONRPC != "2.0" {
			c.t.Fatalf("on stdout came %q", line)
		}
		if m.Result.IsError {
			return m.Result.StructuredContent.Error.Code, line
		}
		return "ok", line
	case <-time.After(30 * time.Second):
		c.t.Fatalf("no answer came: %s", c.stderr.String())
	}
	return "", ""
}

func (c *client) wantOK(what string) {
	c.t.Helper()
	c.send("{}")
	if code, line := c.next(); code != "ok" || !strings.Contains(line, "unread_total") {
		c.t.Fatalf("%s: %s", what, line)
	}
}

// end closes stdin and checks that the process ends well, having said nothing more.
func (c *client) end() {
	c.t.Helper()
	_ = c.in.Close()
	for line := range c.lines {
		c.t.Errorf("on stdout came %q", line)
	}
	if code := <-c.code; code != 0 {
		c.t.Errorf("it ended with %d: %s", code, c.stderr.String())
	}
}

func TestStdioCommandLinesThatAreImpossibleSayWhatToTypeInstead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "hub")
	aHub(t, []string{"--data", data}, "anna@acme", "off@acme")
	mustRun(t, "agent", "disable", "off@acme", "--data", data)
	key := writeFile(t, filepath.Join(dir, "key"), "hc_live_SECRET")
	empty := writeFile(t, filepath.Join(dir, "empty.json"), "{}")
	file := writeFile(t, filepath.Join(dir, "file"), "")
	local := []string{"--as", "anna@acme", "--data", data}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--config", empty}, 2, "--as is missing"},
		{[]string{"--as"}, 2, "mcp --help"},
		{[]string{"--as", "a@b", "--url", "http://h", "--key-file", key}, 2, "exclude each other"},
		{[]string{"--key-file", key, "--as", "a@b"}, 2, "goes with --url"},
		{[]string{"--url", "http://h", "--key-file", key, "--data", data}, 2, "--url excludes"},
		{[]string{"--url", "hub.example.com", "--key-file", key}, 2, "https://hub.example.com"},
		{[]string{"--url", "http://h", "--key-file", filepath.Join(dir, "none")}, 2, "--key-file"},
		{append([]string{"--database-url", "postgres://h/d"}, local...), 2, "exclude each other"},
		{append([]string{"--toolset", "bogus"}, local...), 2, "team, pool, desk are accepted"},
		{append([]string{"--toolset", "team,bogus"}, local...), 2, "team, pool, desk are accepted"},
		{append([]string{"--transport", "bogus"}, local...), 2, "transport"},
		{append([]string{"--log-level", "loud"}, local...), 2, "log-level"},
		{append([]string{"--bogus"}, local...), 2, "mcp --help"},
		{append([]string{"more"}, local...), 2, "mcp --help"},
		{[]string{"--as", "ana@acme", "--data", data}, 1, "did you mean anna@acme?"},
		{[]string{"--as", "zzz", "--data", data}, 1, "handclasp agent add"},
		{[]string{"--as", "off@acme", "--data", data}, 1, "handclasp agent enable off@acme"},
		{[]string{"--as", "anna@acme", "--data", filepath.Join(dir, "typo")}, 1, "there is no hub in"},
		{[]string{"--as", "anna@acme", "--data", dir}, 1, "there is no hub in"},
		{[]string{"--as", "anna@acme", "--data", file}, 1, "file"},
	} {
		p := runProgram(context.Background(), append([]string{"mcp"}, c.args...)...)
		if p.code != c.code || !strings.Contains(p.stderr.String(), c.want) || strings.Contains(p.stderr.String(), "SECRET") || p.stdout.Len() > 0 {
			t.Errorf("%v: exit %d, stdout %q, %s", c.args, p.code, p.stdout.String(), p.stderr.String())
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "typo")); !os.IsNotExist(err) {
		t.Errorf("a mistyped folder was made: %v", err)
	}
}

func TestSeveralStdioProcessesOfOneAgentWorkOnOneFolder(t *testing.T) {
	t.Parallel()
	data, _ := withAgents(t, "anna@acme")
	first := startMCP(t, "--as", "anna@acme", "--data", data, "--log-level", "debug")
	first.wantOK("the first")
	second := startMCP(t, "--as", "ANNA@acme", "--data", data, "--toolset", "team")
	second.wantOK("the second")
	first.wantOK("the first again")
	first.end()
	second.wantOK("the second, alone")
	mustRun(t, "agent", "add", "frank@acme", "--data", data) // through its socket
	second.stop()
	if code := <-second.code; code != 0 {
		t.Errorf("a signal ended it with %d: %s", code, second.stderr.String())
	}
	if !strings.Contains(first.stderr.String(), "level=DEBUG") {
		t.Errorf("the log: %s", first.stderr.String())
	}
}

func TestStdioWorksOnPostgreSQLToo(t *testing.T) {
	t.Parallel()
	url := hubtest.PostgresURL(t)
	aHub(t, []string{"--database-url", url}, "anna@acme")
	if p := runProgram(context.Background(), "mcp", "--as", "ana@acme", "--database-url", url); p.code != 1 || !strings.Contains(p.stderr.String(), "did you mean anna@acme?") {
		t.Errorf("an unknown agent: %d %s", p.code, p.stderr.String())
	}
	first, second := startMCP(t, "--as", "anna@acme", "--database-url", url), startMCP(t, "--as", "anna@acme", "--database-url", url)
	first.wantOK("the first")
	second.wantOK("the second")
	first.end()
	second.wantOK("the second, alone")
	second.end()
	p := runProgram(context.Background(), "mcp", "--as", "a@b", "--database-url", "postgres://u:SECRET@127.0.0.1:1/none")
	if p.code != 1 || strings.Contains(p.stderr.String(), "SECRET") {
		t.Errorf("no database: %d %s", p.code, p.stderr.String())
	}
}

func TestStdioReachesAHubByItsAddress(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "hub")
	url := startServe(t, "--data", data)
	key := runJSON[restapi.NewKey](t, "agent", "add", "anna@acme", "--data", data)
	file := writeFile(t, filepath.Join(dir, "anna.key"), key.APIKey+"\n")
	writeFile(t, filepath.Join(dir, "config.json"), `{"url":"`+url+`/mcp/team","key_file":"anna.key"}`)
	for _, args := range [][]string{{"--url", url, "--key-file", file}, {"--url", url + "/mcp/", "--key-file", file}, {"--config", filepath.Join(dir, "config.json")}} {
		c := startMCP(t, args...)
		c.wantOK(strings.Join(args, " "))
		c.end()
	}
	wrong := startMCP(t, "--url", url, "--key-file", writeFile(t, filepath.Join(dir, "wrong"), "hc_live_"+strings.Repeat("0", 48)))
	wrong.send("{}")
	if code, line := wrong.next(); code != "unauthenticated" || !strings.Contains(line, "handclasp agent key rotate") {
		t.Errorf("with a wrong key: %s", line)
	}
	wrong.end()
}

func TestAParkedCallEndsWhenItsAgentIsDisabled(t *testing.T) {
	t.Parallel()
	data, _ := withAgents(t, "anna@acme")
	c := startMCP(t, "--as", "anna@acme", "--data", data)
	c.wantOK("before")
	c.send(`{"wait_seconds":50}`)
	mustRun(t, "agent", "disable", "anna@acme", "--data", data)
	if code, line := c.next(); code != "unauthenticated" {
		t.Errorf("the parked call: %s", line)
	}
	c.send(`{}`)
	if code, line := c.next(); code != "unauthenticated" || !strings.Contains(line, "handclasp agent enable anna@acme") {
		t.Errorf("the next call: %s", line)
	}
	mustRun(t, "agent", "enable", "anna@acme", "--data", data)
	c.wantOK("enabled again")
	c.end()
}

func TestAFolderThatIsRemovedIsNotMadeAgainByThoseWhoUseIt(t *testing.T) {
	t.Parallel()
	data, _ := withAgents(t, "anna@acme")
	c := startMCP(t, "--as", "anna@acme", "--data", data)
	c.wantOK("before")
	if err := os.RemoveAll(data); err != nil {
		t.Fatal(err)
	}
	hubtest.Eventually(t, func() bool { return strings.Contains(c.stderr.String(), "was removed or replaced") })
	hubtest.Eventually(t, func() bool { return strings.Contains(c.stderr.String(), "cannot be opened") })
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is back: %v", err)
	}
	c.end()
}

func TestAStdioProcessDoesNotGoOnWithADatabaseThatWasReplaced(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	aHub(t, []string{"--data", data}, "anna@acme")
	other := filepath.Join(t.TempDir(), "hub")
	aHub(t, []string{"--data", other}, "anna@acme", "frank@acme")
	c := startMCP(t, "--as", "anna@acme", "--data", data)
	c.wantOK("before")
	if err := os.Rename(databaseFile(other), databaseFile(data)); err != nil {
		t.Fatal(err)
	}
	hubtest.Eventually(t, func() bool { return strings.Contains(c.stderr.String(), "was removed or replaced") })
	c.wantOK("with the other")
	if got := mustRun(t, "agent", "list", "--data", data); !strings.Contains(got, "frank@acme") {
		t.Errorf("it goes on with the old one: %s", got)
	}
	c.end()
}

func TestAHubWhoseFolderOrDatabaseIsRemovedEndsAndSaysSo(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(data string) error{
		"the folder":   os.RemoveAll,
		"the database": func(data string) error { return os.Remove(databaseFile(data)) },
		"the database, and another in its place": func(data string) error {
			return errors.Join(os.WriteFile(data+".other", nil, 0o600), os.Rename(data+".other", databaseFile(data)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "hub")
			ready := make(chan struct{})
			var stderr hubtest.LogBuffer
			code := make(chan int, 1)
			r, w := io.Pipe()
			go func() {
				_, _ = bufio.NewReader(r).ReadString('\n')
				close(ready)
				_, _ = io.Copy(io.Discard, r)
			}()
			go func() {
				code <- run(context.Background(), []string{"serve", "--listen", "127.0.0.1:0", "--data", data}, strings.NewReader(""), io.Discard, io.MultiWriter(&stderr, w))
				_ = w.Close()
			}()
			<-ready
			if err := remove(data); err != nil {
				t.Fatal(err)
			}
			if got := <-code; got != 1 || !strings.Contains(stderr.String(), "was removed or replaced") {
				t.Errorf("exit %d: %s", got, stderr.String())
			}
		})
	}
}

func TestAFolderInsideARepositoryOrOpenToOthersIsWarnedOf(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, dir := range []string{"repo/.git", "repo/a/hub", "worktree/hub", "plain/hub"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	writeFile(t, filepath.Join(root, "worktree", ".git"), "gitdir: elsewhere")
	if err := os.Chmod(filepath.Join(root, "plain", "hub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"repo/a/hub": "git repository", "worktree/hub": "git repository", "plain/hub": "chmod 700", "plain": ""} {
		var log hubtest.LogBuffer
		warnOfFolder(filepath.Join(root, dir), slog.New(slog.NewTextHandler(&log, nil)))
		if got := log.String(); want == "" && got != "" || !strings.Contains(got, want) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %q, want %q", dir, got, want)
		}
	}
	data := filepath.Join(root, "repo", "a", "new")
	aHub(t, []string{"--data", data}, "anna@acme")
	c := startMCP(t, "--as", "anna@acme", "--data", data)
	c.wantOK("inside a repository")
	c.end()
	if !strings.Contains(c.stderr.String(), "git repository") {
		t.Errorf("no warning: %s", c.stderr.String())
	}
}

func TestAnOwnerThatIsFrozenHoldsNoCommandUpForever(t *testing.T) {
	t.Parallel()
	data, _ := withAgents(t, "anna@acme")
	own, err := owner.Take(data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Release)
	l, err := net.Listen("unix", owner.SocketPath(data)) // takes connections, and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	p := runProgram(ctx, "agent", "list", "--data", data)
	if p.code != 1 || !strings.Contains(p.stderr.String(), "in use by process") || !strings.Contains(p.stderr.String(), "does not answer") {
		t.Errorf("agent list: %d %s", p.code, p.stderr.String())
	}
	k := &keeper{cfg: config.Embedded(config.Where{Data: data}), log: slog.New(slog.DiscardHandler), patience: time.Nanosecond}
	if err := k.wait(t.Context()); err == nil || !strings.Contains(err.Error(), "in use by process") || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("mcp: %v", err)
	}
	c := startMCP(t, "--as", "anna@acme", "--data", data)
	c.stop()
	if code := <-c.code; code != 0 {
		t.Errorf("a signal ended mcp with %d: %s", code, c.stderr.String())
	}
}

// replaced is an owner that ends just before so many calls, and its heir.
type replaced struct {
	ends  int
	calls int
}

func (o *replaced) RoundTrip(*http.Request) (*http.Response, error) {
	if o.calls++; o.calls <= o.ends {
		return nil, io.EOF
	}
	return &http.Response{StatusCode: http.StatusMethodNotAllowed, Body: http.NoBody}, nil
}

func TestAnOwnerThatEndsWhileAProcessStartsIsFollowedByItsHeir(t *testing.T) {
	t.Parallel()
	owners := &replaced{ends: 2}
	c := &connection{base: owner.Base, RoundTripper: owners, explain: func(err error) string { return "unusable: " + err.Error() }, pause: time.Nanosecond}
	if err := c.check(t.Context()); err != nil || owners.calls != 3 {
		t.Errorf("after %d calls: %v", owners.calls, err)
	}
	owners = &replaced{ends: 1}
	c.RoundTripper, c.pause = owners, 0 // a hub has no heir
	if err := c.check(t.Context()); err == nil || err.Error() != "unusable: EOF" || owners.calls != 1 {
		t.Errorf("a hub, after %d calls: %v", owners.calls, err)
	}
}
