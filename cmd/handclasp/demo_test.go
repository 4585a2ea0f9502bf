package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestTheDemoTellsItsStoryAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	p := runProgram(context.Background(), "demo", "--exit")
	if p.code != 0 || !strings.HasSuffix(p.stdout.String(), "\nEach handoff had exactly one known holder at every moment, and what was acknowledged is on disk.\n") {
		t.Fatalf("%d %s %s", p.code, p.stdout.String(), p.stderr.String())
	}
	for _, part := range []string{
		"its own count: 1)", "«untrusted ", "idempotent_replay: true", "duplicate_idempotency_key", "not_found and not_found",
		"claim epoch 1", "invalid_transition", "drafted", "approved", "thread_terminal",
		"1 handoff.created, 2 handoff.claimed, 3 draft.created, 4 draft.decided, 5 handoff.completed",
		`payload {"budget":1.5,"pull_request":41}`, "handoff_already_claimed", "stale_claim_epoch",
		"delivered_via email", "www[.]evil[.]example", "it is still OPEN", "CLAIMED by person:corner-shop", "200 Book the test ride", "409 this continuation was redeemed",
		"1 handoff.created, 2 handoff.claimed, 3 handoff.verification_requested,\n   4 handoff.verification_failed,",
	} {
		if !strings.Contains(p.stdout.String(), part) {
			t.Errorf("the story has no %q:\n%s", part, p.stdout.String())
		}
	}
	if n := strings.Count(p.stdout.String(), "\n"); n > 98 {
		t.Errorf("the story has %d lines", n)
	}
	for line := range strings.Lines(p.stdout.String()) {
		if utf8.RuneCountInString(line) > 101 {
			t.Errorf("a line is too wide for a terminal: %s", line)
		}
	}
	wantOnly(t, dir)
}

func TestTheDemoStaysOpenForClientsUntilItIsEnded(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r, w := io.Pipe()
	ended := make(chan int, 1)
	var stderr bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"demo"}, strings.NewReader(""), w, &stderr)
		_ = w.Close()
	}()
	var told strings.Builder
	for lines := bufio.NewScanner(r); lines.Scan() && !strings.HasPrefix(lines.Text(), "Ctrl-C"); {
		told.WriteString(lines.Text() + "\n")
	}
	_, open, found := strings.Cut(told.String(), "The hub stays open.")
	if !found {
		t.Fatalf("%s %s", told.String(), stderr.String())
	}
	for _, part := range []string{
		"\nclaude mcp add ", "\n[mcp_servers.handclasp]\n", "\n{\"mcpServers\":{", "\n{\"servers\":{", "/inbox/", " agent list --data " + dir,
	} {
		if !strings.Contains(open, part) {
			t.Errorf("no %q in\n%s", part, open)
		}
	}
	if n := strings.Count(open, "\n"); n > 25 {
		t.Errorf("what to do with the open hub has %d lines", n)
	}
	address := regexp.MustCompile(`http://[0-9.:]+/mcp\b`).FindString(open)
	s := &story{ctx: ctx, url: strings.TrimSuffix(address, "/mcp"), keys: map[string]string{frank: regexp.MustCompile(`hc_live_\w+`).FindString(open)}, sessions: map[string]*mcp.ClientSession{}}
	defer s.disconnect()
	if err := s.connect(frank); err != nil {
		t.Fatal(err)
	}
	if _, err := s.call(frank, "check_inbox", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	s.disconnect()
	cancel()
	if code := <-ended; code != 0 {
		t.Fatalf("ended with %d: %s", code, stderr.String())
	}
	wantOnly(t, dir)
}
