package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
)

// child is the program in a process of its own.
type child struct {
	*hubtest.Stdio // of handclasp mcp
	cmd            *exec.Cmd
	log            *hubtest.LogBuffer
}

// startChild starts a command that runs until the test ends it.
func startChild(t *testing.T, args ...string) *child {
	t.Helper()
	c := &child{cmd: exec.Command(os.Args[0], args...), log: &hubtest.LogBuffer{}}
	c.cmd.Env = append(os.Environ(), asProgram+"="+tied)
	c.cmd.Stderr = c.log
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	c.Stdio = hubtest.NewStdio(stdin, stdout)
	return c
}

// startMCP starts a stdio process on the folder and goes through the handshake with it.
func startMCP(t *testing.T, data, as string) *child {
	t.Helper()
	c := startChild(t, "mcp", "--data", data, "--as", as)
	if err := c.Initialize(); err != nil {
		t.Fatalf("mcp --as %s: %v\n%s", as, err, c.log)
	}
	return c
}

// kill is kill -9; it returns once the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.Ended()
	_ = c.cmd.Wait()
}

// end waits for a process that was asked to end.
func (c *child) end(t *testing.T) {
	t.Helper()
	<-c.Ended()
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("%v ended with %v\n%s", c.cmd.Args[1:], err, c.log)
	}
	if strays := c.Strays(); len(strays) > 0 {
		t.Errorf("%v: answers to nothing that was open: %q", c.cmd.Args[1:], strays)
	}
}

// call calls a tool, which must succeed.
func (c *child) call(t *testing.T, tool string, args map[string]any, out any) {
	t.Helper()
	c.answered(t, c.Call(tool, args), out)
}

// answered waits for the answer to a call that has begun.
func (c *child) answered(t *testing.T, answer <-chan []byte, out any) {
	t.Helper()
	select {
	case line, ok := <-answer:
		var got struct {
			Result struct {
				IsError    bool            `json:"isError"`
				Structured json.RawMessage `json:"structuredContent"`
			} `json:"result"`
		}
		if err := json.Unmarshal(line, &got); !ok || err != nil || got.Result.IsError || json.Unmarshal(got.Result.Structured, out) != nil {
			t.Fatalf("%v answered %q\n%s", c.cmd.Args[1:], line, c.log)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("%v did not answer\n%s", c.cmd.Args[1:], c.log)
	}
}

// ownedBy waits until the process owns the folder.
func ownedBy(t *testing.T, data, kind string, c *child) {
	t.Helper()
	hubtest.Eventually(t, func() bool {
		info, err := owner.Ask(t.Context(), data)
		return err == nil && info.PID == c.cmd.Process.Pid && info.Kind == kind
	})
}

type inboxPage struct {
	Items []struct {
		ID string `json:"thread_id"`
	} `json:"items"`
}

func (p inboxPage) only(t *testing.T, thread string) {
	t.Helper()
	if len(p.Items) != 1 || p.Items[0].ID != thread {
		t.Fatalf("the inbox shows %+v, want thread %s alone", p, thread)
	}
}

type sentThread struct {
	ID string `json:"thread_id"`
}

func summary(to, text string) map[string]any {
	return map[string]any{"to": to, "intent": "inform", "summary": text}
}

// TestStdioProcessesShareAFolderAcrossTheDeathOfItsOwnerAndAHandOver tells the whole story of a
// folder with real processes. Nobody gives an idempotency key.
func TestStdioProcessesShareAFolderAcrossTheDeathOfItsOwnerAndAHandOver(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	for _, handle := range []string{"anna@acme", "frank@acme"} {
		if p := runProgram(context.Background(), "agent", "add", handle, "--data", data); p.code != 0 {
			t.Fatal(p.stderr.String())
		}
	}
	anna := startMCP(t, data, "anna@acme")
	ownedBy(t, data, owner.MCP, anna)
	frank := startMCP(t, data, "frank@acme")

	var sent sentThread
	var page inboxPage
	// park begins a call that waits for what comes to frank next.
	park := func() <-chan []byte {
		return frank.Call("check_inbox", map[string]any{"wait_seconds": 50, "role": "recipient", "limit": 1})
	}
	// wakes has anna hand something to frank, and wants the parked call answered with it.
	wakes := func(parked <-chan []byte, anna *child) {
		t.Helper()
		select {
		case line := <-parked:
			t.Fatalf("the parked call was answered with %q before anything came", line)
		default:
		}
		anna.call(t, "handoff_to_teammate", summary("frank@acme", "wake up"), &sent)
		frank.answered(t, parked, &page)
		page.only(t, sent.ID)
		frank.call(t, "view_thread", map[string]any{"thread_id": sent.ID}, &struct{}{})
	}
	wakes(park(), anna)

	// The owner is killed when one of frank's calls has been answered; the others are on their way,
	// or have taken effect without his knowing.
	parked := park()
	const calls = 16
	var begun []<-chan []byte
	for i := range calls {
		begun = append(begun, frank.Call("handoff_to_teammate", summary("anna@acme", fmt.Sprint("call ", i))))
	}
	threads := map[string]bool{}
	for i, answer := range begun {
		frank.answered(t, answer, &sent)
		threads[sent.ID] = true
		if i == 0 {
			anna.kill()
		}
	}
	ownedBy(t, data, owner.MCP, frank)
	anna = startMCP(t, data, "anna@acme")
	anna.call(t, "check_inbox", map[string]any{"role": "recipient", "limit": 200}, &page)
	for _, item := range page.Items {
		if !threads[item.ID] {
			t.Errorf("thread %s is there and was never acknowledged", item.ID)
		}
	}
	if len(threads) != calls || len(page.Items) != calls {
		t.Fatalf("%d calls were acknowledged as %d threads, and %d are there", calls, len(threads), len(page.Items))
	}
	wakes(parked, anna)

	// A hub takes the folder over while frank, who owns it, has a call parked.
	parked = park()
	hub := startChild(t, "serve", "--data", data, "--listen", "127.0.0.1:0")
	ownedBy(t, data, owner.Serve, hub)
	wakes(parked, anna)
	frank.call(t, "handoff_to_teammate", summary("anna@acme", "through the hub"), &sent)
	anna.call(t, "check_inbox", map[string]any{"role": "recipient", "limit": 1}, &page)
	page.only(t, sent.ID)

	for _, c := range []*child{frank, anna} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		c.end(t)
	}
	if err := hub.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	hub.end(t)
}
