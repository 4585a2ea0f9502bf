//go:build soak

package soak

import (
	"strings"
	"testing"
)

// The counting itself must notice what it is there for.
func TestTheCountNoticesWhatIsLostDoubledOrMissingInBetween(t *testing.T) {
	create := &op{id: "soak-1-0-0", tool: "handoff_to_teammate", acked: true, answer: answer{ThreadID: "t1"}}
	send := &op{id: "soak-1-0-1", tool: "send_message", acked: true, answer: answer{ThreadID: "t1", MessageID: "m2", SequenceNo: 2}}
	accept := &op{id: "soak-1-0-2", tool: "accept_handoff", acked: true, answer: answer{ThreadID: "t1", ClaimEpoch: 1}}
	complete := &op{id: "soak-1-0-3", tool: "complete_handoff", acked: true, answer: answer{ThreadID: "t1"}}
	inFlight := &op{id: "soak-1-0-4", tool: "send_message"}
	all := []*op{create, send, accept, complete, inFlight}
	whole := func() *findings {
		f := newFindings()
		f.thread("t1", &status{"completed", true, 1, complete.id})
		f.message("t1", "m1", 1, 1, create.id+" text")
		f.message("t1", "m2", 2, 2, "«untrusted x» "+send.id+" text")
		return f
	}
	tests := []struct {
		name                       string
		change                     func(*findings)
		found, lost, doubled, gaps int
	}{
		{"everything once", func(*findings) {}, 4, 0, 0, 0},
		{"a call in flight that took effect", func(f *findings) { f.message("t1", "m3", 3, 3, inFlight.id) }, 4, 0, 0, 0},
		{"a call in flight that took effect twice", func(f *findings) { f.found[inFlight.id] = 2 }, 4, 0, 1, 0},
		{"a thread lost", func(f *findings) { delete(f.threads, "t1") }, 0, 4, 0, 0},
		{"a message lost", func(f *findings) { delete(f.at, send.id); delete(f.found, send.id) }, 3, 1, 0, 0},
		{"a message renumbered", func(f *findings) { f.at[send.id] = place{"t1", "m2", 3} }, 3, 1, 0, 0},
		{"a claim lost", func(f *findings) { f.threads["t1"].epoch = 0 }, 3, 1, 0, 0},
		{"a completion lost", func(f *findings) { f.threads["t1"].state = "accepted" }, 3, 1, 0, 0},
		{"a message doubled", func(f *findings) { f.found[send.id]++ }, 4, 0, 1, 0},
		{"a thread doubled", func(f *findings) { f.thread("t1", f.threads["t1"]) }, 4, 0, 2, 0},
		{"something never sent", func(f *findings) { f.found["soak-9-9-9"] = 1 }, 4, 0, 1, 0},
		{"a gap", func(f *findings) { f.message("t1", "m4", 4, 3, inFlight.id) }, 4, 0, 0, 1},
	}
	for _, tt := range tests {
		f := whole()
		tt.change(f)
		found, lost, doubled := f.count(all)
		if found != tt.found || len(lost) != tt.lost || len(doubled) != tt.doubled || len(f.gaps) != tt.gaps {
			t.Errorf("%s: found %d, lost %d, doubled %d, gaps %d; want %d, %d, %d, %d\n%s", tt.name, found, len(lost), len(doubled), len(f.gaps),
				tt.found, tt.lost, tt.doubled, tt.gaps, strings.Join(append(append(lost, doubled...), f.gaps...), "\n"))
		}
	}
	log := &eventLog{last: map[string]int{}}
	if gaps := log.read([]event{{HandoffID: "a", Seq: 1}, {HandoffID: "b", Seq: 1}, {HandoffID: "a", Seq: 3}, {Type: "agent.added"}}); len(gaps) != 1 {
		t.Errorf("the event log has one gap, %d were noticed: %v", len(gaps), gaps)
	}
}
