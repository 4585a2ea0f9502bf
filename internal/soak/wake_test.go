//go:build soak

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"handclasp/internal/owner"
)

// wakeWithin is how soon after the writer's acknowledgement a parked reader has its answer. It is
// asked of 99 in 100: what a reader is shown counts as fetched, which is a commit, and on a machine
// that does other things too now and then one waits for a disk or a processor that others use.
// What the machine itself had its own program wait is printed beside.
const wakeWithin = 50 * time.Millisecond

// TestSoakOwnerWakesParkedReaders parks check_inbox in one process, commits a handoff through
// another, and measures from the writer's acknowledgement to the reader's answer. Nothing else
// goes on.
func TestSoakOwnerWakesParkedReaders(t *testing.T) {
	c := &crew{t: t, where: []string{"--data", t.TempDir()}, stdio: map[string]*process{}}
	samples := 6 * int(min(10, setting(t, "HANDCLASP_SOAK_ROUNDS", 10))) // of each way
	list := members(t, 1, c.where...)
	first, second, reader := list[0], list[1], list[2]
	c.startStdio(first) // and it owns the folder
	c.startStdio(second)
	c.startStdio(reader)
	var all []time.Duration
	machine := watchMachine(t)
	way := func(name string, kind string, from, to agent, w caller) {
		if _, got := c.owner(); got != kind {
			t.Fatalf("%s: the owner is of kind %s", name, got)
		}
		got := make([]time.Duration, samples)
		for i := range got {
			got[i] = c.wake(from, to, w, fmt.Sprintf("%s %d", name, i))
		}
		fmt.Printf("%-66s %s\n", name, spread(got))
		all = append(all, got...)
	}
	fmt.Printf("parked readers, %d samples each; from the writer's acknowledgement to the reader's answer\n", samples)
	way("stdio owner; it writes, another stdio process reads", owner.MCP, first, reader, overStdio{c})
	way("stdio owner; a second stdio process writes, a third reads", owner.MCP, second, reader, overStdio{c})
	way("stdio owner; another stdio process writes, the owner reads", owner.MCP, second, first, overStdio{c})
	c.startHub()
	http := &overHTTP{crew: c}
	defer http.close()
	way("hub owns; it is written to over HTTP, a stdio process reads", owner.Serve, first, reader, http)
	way("hub owns; a stdio process writes, another reads", owner.Serve, second, reader, overStdio{c})
	c.stop()
	slices.Sort(all)
	of99 := all[len(all)*99/100-1]
	fmt.Printf("parked readers: %d samples, %s, 99 in 100 within %s; limit %s\n%s\n", len(all), spread(all), of99.Round(100*time.Microsecond), wakeWithin, machine())
	if of99 > wakeWithin {
		t.Errorf("99 in 100 parked readers woke within %s of the acknowledgement, want %s at most", of99, wakeWithin)
	}
}

// wake is one sample.
func (c *crew) wake(from, to agent, w caller, text string) time.Duration {
	c.t.Helper()
	type page struct {
		Items []struct {
			ID      string `json:"thread_id"`
			Preview string `json:"summary_preview"`
		} `json:"items"`
	}
	var woken page
	answered := make(chan error, 1)
	var at time.Time
	go func() {
		err := overStdio{c}.call(to, "check_inbox", map[string]any{"wait_seconds": 30, "role": "recipient", "limit": 1}, &woken)
		at = time.Now()
		answered <- err
	}()
	// That the call is parked no process tells; a call takes a few milliseconds to get there.
	select {
	case err := <-answered:
		c.t.Fatalf("%s: the reader was answered before anything was written: %v, %+v", text, err, woken)
	case <-time.After(40 * time.Millisecond):
	}
	var sent answer
	if err := w.call(from, "handoff_to_teammate", map[string]any{"to": to.Handle, "intent": "inform", "summary": text}, &sent); err != nil {
		c.t.Fatal(err)
	}
	acked := time.Now()
	if err := <-answered; err != nil {
		c.t.Fatal(err)
	}
	if len(woken.Items) != 1 || woken.Items[0].ID != sent.ThreadID {
		c.t.Fatalf("%s: the reader got %+v, want thread %s", text, woken, sent.ThreadID)
	}
	// What is read wakes nobody again.
	var read view
	if err := (overStdio{c}).call(to, "view_thread", map[string]any{"thread_id": sent.ThreadID}, &read); err != nil {
		c.t.Fatal(err)
	}
	return at.Sub(acked)
}

// watchMachine measures what the machine does to a program that does next to nothing, until the
// returned function says it.
func watchMachine(t *testing.T) (said func() string) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "probe"))
	if err != nil {
		t.Fatal(err)
	}
	const every = 20 * time.Millisecond
	end, ended := make(chan struct{}), make(chan struct{})
	var late, synced []time.Duration
	go func() {
		defer close(ended)
		defer f.Close()
		for {
			began := time.Now()
			select {
			case <-end:
				return
			case <-t.Context().Done():
				return
			case <-time.After(every):
			}
			late = append(late, time.Since(began)-every)
			began = time.Now()
			if _, err := f.WriteAt(make([]byte, 4<<10), 0); err != nil || f.Sync() != nil {
				t.Errorf("the probe of the disk cannot be written: %v", err)
				return
			}
			synced = append(synced, time.Since(began))
		}
	}()
	return func() string {
		close(end)
		<-ended
		return fmt.Sprintf("the machine meanwhile: a timer was late by %s; 4 KiB were on disk after %s", spread(late), spread(synced))
	}
}
