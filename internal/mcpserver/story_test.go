package mcpserver_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// do calls one tool as one agent.
type do func(tool string, args map[string]any) reply

const oneFileDiff = "--- a/main.go\n+++ b/main.go\n@@ -1 +1 @@\n-a\n+b\n"

func TestAHandoffTravelsOverMCPFromSenderToCompletion(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		for _, how := range []struct{ path, client string }{{"/mcp/team", "by hand"}, {"/mcp", "by hand"}, {"/mcp/team", "sdk 2025-11-25"}, {"/mcp", "sdk 2026-07-28"}} {
			t.Run(kind+how.path+" "+how.client, func(t *testing.T) {
				t.Parallel()
				w := newWire(t, kind)
				anna, frank := w.pair()
				anna.path, frank.path = how.path, how.path
				version, bySDK := strings.CutPrefix(how.client, "sdk ")
				as := func(c *caller) do {
					if !bySDK {
						return func(tool string, args map[string]any) reply { return c.call(tool, args) }
					}
					return sdkCalls(t, c.session(version), version)
				}
				story(t, w, as(anna), as(frank))
			})
		}
	}
}

// sdkCalls makes calls with the official client.
func sdkCalls(t *testing.T, cs *mcp.ClientSession, version string) do {
	t.Helper()
	if got := cs.InitializeResult().ProtocolVersion; got != "" && got != version {
		t.Fatalf("the revision %s was agreed on, want %s", got, version)
	}
	return func(tool string, args map[string]any) reply {
		t.Helper()
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		r := reply{status: 200, isError: res.IsError}
		if r.structured, err = json.Marshal(res.StructuredContent); err != nil {
			t.Fatal(err)
		}
		for _, c := range res.Content {
			r.text += c.(*mcp.TextContent).Text
		}
		if err := r.readFault(); err != nil {
			t.Fatal(err)
		}
		return r
	}
}

func story(t *testing.T, w *wire, anna, frank do) {
	ok := func(who do, tool string, args map[string]any) map[string]any {
		t.Helper()
		return who(tool, args).fields(t, tool)
	}
	made := ok(anna, "handoff_to_teammate", map[string]any{
		"to": "Frank@ACME", "intent": "propose_action", "summary": "Rename a to b.", "question": "Today?",
		"artifacts": []any{map[string]any{"type": "link", "url": "https://example.com/x", "title": "Ticket", "extra": 1}},
		"proposed_action": map[string]any{
			"description": "Rename", "target_files": []any{"main.go"}, "rationale": "Clearer",
		},
		"metadata": map[string]any{"ticket": "T-1"},
	})
	id := made["thread_id"].(string)
	if made["status"] != "pending" || made["recipient"] != "Frank@ACME" || made["inbox_url"] != "https://hub.example/inbox/"+id {
		t.Fatalf("made: %v", made)
	}
	inbox := ok(frank, "check_inbox", nil)
	item := inbox["items"].([]any)[0].(map[string]any)
	if inbox["unread_total"] != 1.0 || item["unread_messages"] != 1.0 || item["thread_id"] != id || inbox["next_cursor"] != nil {
		t.Fatalf("inbox: %v", inbox)
	}
	thread := ok(frank, "accept_handoff", map[string]any{"thread_id": id})
	if thread["status"] != "accepted" || thread["claim_epoch"] != 1.0 || thread["metadata"].(map[string]any)["question"] != "Today?" {
		t.Fatalf("thread: %v", thread)
	}
	sent := ok(frank, "send_message", map[string]any{"thread_id": id, "body": "Both places?", "expects_reply": true, "payload": map[string]any{"places": 2}})
	if sent["sequence_no"] != 2.0 {
		t.Fatalf("sent: %v", sent)
	}
	ok(anna, "send_message", map[string]any{"thread_id": id, "body": "Yes."})
	seen := ok(anna, "view_thread", map[string]any{"thread_id": id})
	if n := len(seen["messages"].([]any)); n != 3 || seen["has_more"] != false {
		t.Fatalf("seen: %v", seen)
	}
	draft := ok(frank, "draft_proposed_action", map[string]any{"thread_id": id, "suggested_diff": oneFileDiff})
	if draft["status"] != "drafted" {
		t.Fatalf("draft: %v", draft)
	}
	done := ok(frank, "complete_handoff", map[string]any{"thread_id": id, "result_summary": "Renamed.", "claim_epoch": 1})
	if done["status"] != "completed" || done["completed_at"] == nil {
		t.Fatalf("done: %v", done)
	}
	frank("accept_handoff", map[string]any{"thread_id": id}).mustRefuse(t, "accept_handoff", handoff.CodeThreadTerminal)
	last := ok(anna, "view_thread", map[string]any{"thread_id": id})
	if last["status"] != "completed" || !strings.Contains(last["result_summary"].(string), "Renamed.") || len(last["drafts"].([]any)) != 1 {
		t.Fatalf("last: %v", last)
	}
	if after := ok(anna, "check_inbox", nil); len(after["items"].([]any)) != 0 || after["unread_total"] != 0.0 {
		t.Fatalf("something is still news: %v", after)
	}
	want := []string{"handoff.created", "handoff.claimed", "handoff.input_required", "message.created", "draft.created", "handoff.completed"}
	// On PostgreSQL an event shows once no older transaction of the server is open.
	var told []string
	hubtest.Eventually(t, func() bool {
		told = nil
		list, _, err := w.Hub.Events(context.Background(), hubtest.Operator(), hub.EventsInput{Cursor: store.Beginning})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if e.HandoffID == id {
				told = append(told, string(e.Type))
			}
		}
		return len(told) >= len(want)
	})
	if !slices.Equal(told, want) {
		t.Errorf("events %v, want %v", told, want)
	}
}
