package main

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

func TestHandoffListFindsAndPages(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	ids := w.send(1, "the first \x1b[31mred\x07 one\nwith a second line", strings.Repeat("long ", 60), "taken")
	out := w.ok("handoff", "list")
	rows := strings.Split(strings.TrimSpace(out), "\n")
	if len(rows) != 4 || !strings.HasPrefix(rows[0], "ID ") || !strings.HasPrefix(rows[1], ids[2]) || !strings.HasPrefix(rows[3], ids[0]) {
		t.Fatalf("%s", out)
	}
	for _, part := range []string{"accepted", "pending", "anna@acme", "frank@acme", "ask_question", "red", "…"} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	if strings.ContainsAny(out, "\x1b\x07") || len(rows[2]) > 170 {
		t.Errorf("unsafe or too wide:\n%q", out)
	}
	for args, want := range map[string][]string{
		"--status pending": {ids[1], ids[0]}, "--status accepted,pending": {ids[2], ids[1], ids[0]}, "--agent grace@acme": {}, "--agent FRANK@acme": {ids[2], ids[1], ids[0]},
		"--from anna@acme --to frank@acme --limit 1": {ids[2]}, "--unfetched": {ids[1], ids[0]}, "--held-longer-than 1h": {}, "--since 1h": {ids[2], ids[1], ids[0]},
		"--since 2999-01-01T00:00:00Z": {}, "--all": {ids[2], ids[1], ids[0]}, "--limit 1 --all": {ids[2], ids[1], ids[0]},
	} {
		var list restapi.Handoffs
		w.json(&list, append([]string{"handoff", "list"}, strings.Fields(args)...)...)
		got := []string{}
		for _, h := range list.Handoffs {
			got = append(got, h.ThreadID)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") || (list.NextCursor != nil) != strings.HasSuffix(args, "--limit 1") {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
	}
	first := w.ok("handoff", "list", "--limit", "2")
	_, cursor, found := strings.Cut(strings.TrimSpace(first), "--cursor ")
	if rest := w.ok("handoff", "list", "--cursor", cursor); !found || !strings.Contains(rest, ids[0]) || strings.Contains(rest, ids[1]) {
		t.Errorf("the second page:\n%s", rest)
	}

	w.refused(2, "exclude each other", "handoff", "list", "--unfetched", "--held-longer-than", "2h")
	w.refused(2, "such as 2h or 3d", "handoff", "list", "--since", "yesterday")
	w.refused(2, "90m", "handoff", "list", "--held-longer-than=-2h")
	w.refused(1, "pending, accepted", "handoff", "list", "--status", "opened")
	w.refused(1, "handclasp agent list", "handoff", "list", "--agent", "nobody@acme")
	w.refused(1, "1 to 200", "handoff", "list", "--limit", "500")
	w.refused(1, "next_cursor", "handoff", "list", "--cursor", "junk")
}

func TestHandoffShowTellsAllThatItsOperatorMaySee(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id := w.send(1, "a summary\x1b[2J\nEvents\n   1 forged")[0]
	w.within(func(h *hub.Hub, as func(string) hub.Call) {
		for range 3 {
			if _, err := h.Send(context.Background(), as("frank@acme"), hub.SendInput{
				ThreadID: id, Body: "a message", Payload: json.RawMessage(`{"n":1}`), Artifacts: []json.RawMessage{json.RawMessage(`{"type":"file_diff","path":"a.go","diff":"-x\n+y"}`)},
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
	out := w.ok("handoff", "show", id)
	for _, part := range []string{
		"Status      accepted", "From        anna@acme", "Holder      frank@acme, claim epoch 1", "\nSummary\n    a summary", "\n    Events\n       1 forged",
		"\nQuestion\n    which?", "\nMessage 2, frank@acme, ", `{"n":1}`, "diff of a.go\n    -x\n    +y", "\nEvents\n   1  ", "handoff.claimed", "frank@acme, claimed, epoch 1",
	} {
		if !strings.Contains(out, part) {
			t.Errorf("%q is missing in\n%s", part, out)
		}
	}
	if strings.Contains(out, "\x1b") || strings.Count(out, "\nEvents\n") != 1 {
		t.Errorf("an agent's text acts on the terminal, or passes for ours:\n%q", out)
	}
	var got restapi.HandoffThread
	w.json(&got, "handoff", "show", id[:len(id)-1])
	if got.ThreadID != id || got.State != "claimed" || len(got.Messages) != 4 || len(got.Events) != 5 || got.Events[1].Actor != "frank@acme" || len(got.Parties) != 2 || got.Question != "which?" {
		t.Errorf("%+v", got)
	}
	if page := w.ok("handoff", "show", id, "--limit", "2"); !strings.Contains(page, "More messages: handclasp handoff show "+id+" --after 2") {
		t.Errorf("%s", page)
	}
	if page := w.ok("handoff", "show", id, "--after", "2"); !strings.Contains(page, "Message 4") || strings.Contains(page, "Summary") {
		t.Errorf("%s", page)
	}
	two := w.send(0, "b")[0]
	if id[:8] == two[:8] { // made within the same minute, as nearly always
		w.refused(1, "the ids of 2 handoffs begin with", "handoff", "show", id[:8])
	}
	w.refused(1, "first 8 characters", "handoff", "show", "abc")
	w.refused(1, "handclasp handoff list", "handoff", "show", "ffffffff")
	w.refused(2, "expected", "handoff", "show")
}

func TestHandoffCancelAndReassignTakeAReason(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	ids := w.send(2, "one", "two")
	w.refused(2, "--reason", "handoff", "cancel", ids[0])
	w.refused(1, "reason", "handoff", "cancel", ids[0], "--reason", "")
	if out := w.ok("handoff", "cancel", ids[0], "--reason", "called off"); out != "cancelled "+ids[0]+"\n" {
		t.Errorf("%s", out)
	}
	if out := w.ok("handoff", "cancel", ids[0], "--reason", "called off"); !strings.Contains(out, "nothing was changed") {
		t.Errorf("%s", out)
	}
	w.refused(1, "has ended", "handoff", "reassign", ids[0], "grace@acme", "--reason", "r")

	w.refused(2, "--reason", "handoff", "reassign", ids[1], "grace@acme")
	w.refused(1, "did you mean grace@acme?", "handoff", "reassign", ids[1], "grcae@acme", "--reason", "r")
	w.refused(1, "sent the handoff", "handoff", "reassign", ids[1], "anna@acme", "--reason", "r")
	if out := w.ok("handoff", "reassign", ids[1], "grace@acme", "--reason", "on leave"); out != ids[1]+" is held by grace@acme, claim epoch 2\n" {
		t.Errorf("%s", out)
	}
	var again restapi.Reassigned
	w.json(&again, "handoff", "reassign", ids[1], "grace@acme", "--reason", "on leave")
	if !again.Replay || again.ClaimEpoch != 2 {
		t.Errorf("%+v", again)
	}
	if out := w.ok("handoff", "list", "--agent", "grace@acme"); !strings.Contains(out, "frank@acme (held by grace@acme)") {
		t.Errorf("%s", out)
	}
	if out := w.ok("handoff", "show", ids[1]); !strings.Contains(out, "Reassigned to grace@acme: on leave") || !strings.Contains(out, "handoff.reassigned") {
		t.Errorf("%s", out)
	}
}

func TestHandoffEraseAsksBeforeItErases(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id := w.send(0, "a secret")[0]
	w.refused(1, "handclasp handoff cancel "+id, "handoff", "erase", id, "--yes")
	w.ok("handoff", "cancel", id, "--reason", "a secret too")
	w.refused(2, "Add --yes", "handoff", "erase", id)
	if out := w.ok("handoff", "show", id); !strings.Contains(out, "a secret") {
		t.Fatalf("%s", out)
	}
	if out := w.ok("handoff", "erase", id, "--yes"); out != "erased "+id+"\n" {
		t.Errorf("%s", out)
	}
	if out := w.ok("handoff", "erase", id, "--yes"); !strings.Contains(out, "already") {
		t.Errorf("%s", out)
	}
	out := w.ok("handoff", "show", id) + w.ok("handoff", "list") + w.ok("handoff", "show", id, "--json")
	if strings.Contains(out, "secret") || strings.Count(out, handoff.ErasedText) < 5 || !strings.Contains(out, "handoff.erased") {
		t.Errorf("%s", out)
	}
}

func TestOnlyAYesErases(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	id := w.send(0, "a \x1b[31msecret")[0]
	for word, want := range map[string]bool{"yes\n": true, " yes ": true, "y\n": false, "\n": false, "": false, "no\nyes\n": false} {
		var stderr strings.Builder
		asked := handoffID{id[:len(id)-2]}
		err := askToErase(&env{ctx: context.Background(), stdout: io.Discard, stderr: &stderr}, &w.where, &asked, strings.NewReader(word))
		if (err == nil) != want || (asked.ID == id) != want {
			t.Errorf("%q: %v", word, err)
		}
		if text := stderr.String(); !strings.Contains(text, id+", pending, from anna@acme to frank@acme: a ") || strings.Contains(text, "\x1b") {
			t.Errorf("it asks %q", text)
		}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	if isTerminal(null) {
		t.Error("the null device is taken for a person")
	}
}
