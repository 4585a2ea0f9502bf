//go:build soak

package soak

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"handclasp/internal/hubtest"
)

// program builds the hub as people run it, without the race detector, once for this test binary.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "handclasp-soak-")
	if err != nil {
		return "", err
	}
	programDir = dir
	path := filepath.Join(dir, "handclasp")
	build := exec.Command("go", "build", "-buildvcs=false", "-tags", tags(), "-o", path, "./cmd/handclasp")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the hub: %w\n%s", err, out)
	}
	return path, nil
})

// tags are those of the hub: the ones that these tests were built with, so that a mutant among
// them is planted in the hub too, and what the environment adds.
func tags() string {
	list := strings.FieldsFunc(os.Getenv("HANDCLASP_SOAK_TAGS"), func(r rune) bool { return r == ' ' || r == ',' })
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "-tags" {
				list = append(list, s.Value)
			}
		}
	}
	return strings.Join(list, ",")
}

// programDir is where the hub was built; empty as long as it was not.
var programDir string

func TestMain(m *testing.M) {
	code := m.Run()
	if programDir != "" {
		_ = os.RemoveAll(programDir)
	}
	os.Exit(code)
}

// process is the program while it runs: a hub (`handclasp serve`) or a stdio process.
type process struct {
	url    string         // of a hub
	mcp    *hubtest.Stdio // of a stdio process
	cmd    *exec.Cmd
	killed atomic.Bool // by kill
	exited chan struct{}
	state  error // of the exit, once exited is closed
	log    *tail
}

// serve starts a hub on the database that the flags name, and waits until it listens.
func serve(t *testing.T, where ...string) *process {
	t.Helper()
	listening := make(chan string, 1)
	p := launch(t, func(line string) {
		if url, ok := strings.CutPrefix(line, "listening on "); ok {
			listening <- url
		}
	}, append([]string{"serve", "--listen", "127.0.0.1:0", "--limit-calls-per-minute", "0", "--log-level", "warn"}, where...)...)
	select {
	case p.url = <-listening:
	case <-p.exited:
		t.Fatalf("the hub ended at its start: %v\n%s", p.state, p.log)
	case <-time.After(30 * time.Second):
		t.Fatalf("the hub did not listen within 30 s\n%s", p.log)
	}
	return p
}

// launch starts the program, speaks MCP to what is a stdio process, and passes on what it says
// on stderr.
func launch(t *testing.T, said func(line string), args ...string) *process {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(bin, args...), exited: make(chan struct{}), log: &tail{}}
	// A signal to the tests is not for the hub; if the tests die without ending it, it dies too.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if args[0] == "mcp" {
		stdin, inErr := p.cmd.StdinPipe()
		stdout, outErr := p.cmd.StdoutPipe()
		if err := errors.Join(inErr, outErr); err != nil {
			t.Fatal(err)
		}
		p.mcp = hubtest.NewStdio(stdin, stdout)
	}
	started := make(chan error, 1)
	go func() {
		// Pdeathsig follows the thread that started the process, so keep that thread.
		runtime.LockOSThread()
		err := p.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			p.log.add(lines.Text())
			said(lines.Text())
		}
		if p.mcp != nil {
			<-p.mcp.Ended() // Wait closes what is not read yet
		}
		p.state = p.cmd.Wait()
		close(p.exited)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// kill is kill -9. It returns once the process is gone.
func (p *process) kill() {
	p.killed.Store(true)
	_ = p.cmd.Process.Kill()
	<-p.exited
}

// stop asks the program to end: a hub as a service manager does, a stdio process as a client.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if p.mcp != nil {
		_ = p.mcp.Close()
	} else {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	select {
	case <-p.exited:
		if p.state != nil {
			t.Errorf("%s ended with %v when it was asked to, want exit 0\n%s", p.cmd.Args[1], p.state, p.log)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("%s did not end within 10 s of being asked to\n%s", p.cmd.Args[1], p.log)
	}
}

func (p *process) alive() bool {
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// agent is one that was registered, with its key.
type agent struct {
	ID     string `json:"agent_id"`
	Handle string `json:"handle"`
	Key    string `json:"api_key"`
}

// addAgent registers an agent by the command line, while the hub serves.
func addAgent(t *testing.T, handle string, where ...string) agent {
	t.Helper()
	bin, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, append([]string{"agent", "add", handle, "--json"}, where...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var a agent
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil {
		t.Fatalf("agent add %s: %v\n%s%s", handle, err, out, stderr.String())
	}
	return a
}

// event is a row of the log as the operator reads it.
type event struct {
	Type      string `json:"type"`
	HandoffID string `json:"handoff_id"`
	Seq       int    `json:"event_seq"`
}

// eventsAfter reads the log from a cursor to its end through the owner's socket.
func eventsAfter(t *testing.T, data, cursor string) (list []event, next string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(data, "owner.sock"))
	}}}
	defer client.CloseIdleConnections()
	for {
		resp, err := client.Get("http://owner/operator/events?cursor=" + url.QueryEscape(cursor))
		if err != nil {
			t.Fatalf("read events: %v", err)
		}
		var page struct {
			Events []event `json:"events"`
			Next   string  `json:"next_cursor"`
		}
		err = json.NewDecoder(resp.Body).Decode(&page)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("read events: status %d, %v", resp.StatusCode, err)
		}
		list = append(list, page.Events...)
		if len(page.Events) == 0 {
			return list, cursor
		}
		cursor = page.Next
	}
}

// tail keeps the last lines of a log.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (l *tail) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	if len(l.lines) > 20 {
		l.lines = l.lines[1:]
	}
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}
