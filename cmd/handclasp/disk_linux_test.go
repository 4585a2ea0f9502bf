package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
)

// handOver makes the stdio owner give the folder up for a process that never comes. The folder is
// free once the lock file is emptied.
func handOver(t *testing.T, data string) (lock string) {
	t.Helper()
	pid := hubtest.OtherProcess(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, owner.Base+"/owner/handover", strings.NewReader(fmt.Sprintf(`{"pid":%d}`, pid)))
	if err != nil {
		t.Fatal(err)
	}
	tr := owner.Transport(data)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	lock = filepath.Join(data, "owner.lock")
	hubtest.Eventually(t, func() bool {
		note, err := os.ReadFile(lock)
		return err == nil && string(note) == fmt.Sprintf("for %d\n", pid)
	})
	return lock
}

func TestATakeOverOnAFullDiskSaysSoLeavesTheLockAndRecovers(t *testing.T) {
	t.Parallel()
	disk := hubtest.SmallDisk(t, 32<<20)
	data := filepath.Join(disk, "hub")
	aHub(t, []string{"--data", data}, "anna@acme")
	c := startMCP(t, "--as", "anna@acme", "--data", data)
	c.wantOK("with room")
	lock := handOver(t, data)
	empty := hubtest.FillDisk(t, disk)
	if err := os.Truncate(lock, 0); err != nil {
		t.Fatal(err)
	}
	hubtest.Eventually(t, func() bool { return strings.Contains(c.stderr.String(), "cannot own the data folder") })
	if !strings.Contains(c.stderr.String(), "is full") {
		t.Errorf("it says %s", c.stderr.String())
	}
	// The lock is free between its tries, and others are told the same.
	if p := runProgram(context.Background(), "mcp", "--as", "anna@acme", "--data", data); p.code != 1 || !strings.Contains(p.stderr.String(), "is full") {
		t.Errorf("another process: %d %s", p.code, p.stderr.String())
	}
	own, err := owner.WaitFor(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	own.Release()
	c.send("{}") // its answer waits for room
	empty()
	if code, line := c.next(); code != "ok" {
		t.Errorf("with room again: %s", line)
	}
	c.end()
}

func TestAFolderThatCannotBeWrittenIsRefusedWithASentence(t *testing.T) {
	t.Parallel()
	disk := hubtest.SmallDisk(t, 32<<20)
	data := filepath.Join(disk, "hub")
	aHub(t, []string{"--data", data}, "anna@acme")
	hubtest.LockDisk(t, disk)
	for _, args := range [][]string{
		{"mcp", "--as", "anna@acme", "--data", data},
		{"agent", "list", "--data", data},
		{"agent", "add", "frank@acme", "--data", data},
		{"serve", "--listen", "127.0.0.1:0", "--data", data},
		{"agent", "add", "frank@acme", "--data", filepath.Join(disk, "new")},
	} {
		p := runProgram(context.Background(), args...)
		if p.code != 1 || !strings.Contains(p.stderr.String(), "--data") || !strings.Contains(p.stderr.String(), "read-only file system") || p.stdout.Len() > 0 {
			t.Errorf("%v: %d %s", args, p.code, p.stderr.String())
		}
	}
}
