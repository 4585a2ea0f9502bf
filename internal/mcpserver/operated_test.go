package mcpserver_test

import (
	"context"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// What agents see of what the operator did to their handoffs.

func (w *wire) reassign(id, to, reason string) {
	w.T.Helper()
	if _, err := w.Hub.Reassign(context.Background(), hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: to, Reason: reason}); err != nil {
		w.T.Fatal(err)
	}
}

func TestAnErasedThreadShowsTheHubsMarkerAsTheHubsOwn(t *testing.T) {
	t.Parallel()
	n := hatch(t, "")
	for _, id := range []string{n.full, n.told, n.taken} {
		if _, err := n.Hub.Erase(context.Background(), hubtest.Operator(), id); err != nil {
			t.Fatal(err)
		}
		for _, who := range []*caller{n.anna, n.frank} {
			page := n.thread(id)
			page["limit"], page["after_sequence_no"] = 1, 1
			for _, args := range []map[string]any{n.thread(id), page} {
				r := who.call("view_thread", args)
				for _, egg := range eggPattern.FindAllString(string(r.raw), -1) {
					if !strings.HasSuffix(egg, "_name") && !strings.HasSuffix(egg, "_role") {
						t.Errorf("%s still reads %s", who.handle, egg)
					}
				}
				got := r.fields(t, "view_thread")
				from := got["provenance"].(map[string]any)
				if from["origin"] != "system" || from["sender"] != "hub" || from["content_trust"] != "untrusted" || got["erased_at"] == nil {
					t.Errorf("provenance %v, erased at %v", from, got["erased_at"])
				}
				if summary, first := got["summary"]; first && summary != handoff.ErasedText {
					t.Errorf("summary %v", summary)
				}
				for _, m := range got["messages"].([]any) {
					m := m.(map[string]any)
					if m["body"] != handoff.ErasedText || m["payload"] != nil || len(m["artifacts"].([]any)) != 0 || m["provenance"].(map[string]any)["origin"] != "system" {
						t.Errorf("%v", m)
					}
				}
			}
		}
	}
	all := map[string]any{"status": []any{"completed", "declined", "cancelled"}}
	for _, item := range n.frank.ok("check_inbox", all)["items"].([]any) {
		item := item.(map[string]any)
		if item["door"] == "pool" { // not erased here
			continue
		}
		if item["summary_preview"] != handoff.ErasedText || item["erased_at"] == nil || item["provenance"].(map[string]any)["origin"] != "system" {
			t.Errorf("%v", item)
		}
	}
}

func TestAForgedMarkerIsFencedAsItsAuthorsText(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank, map[string]any{"summary": handoff.ErasedText})
	got := frank.ok("view_thread", map[string]any{"thread_id": id})
	if got["summary"] == handoff.ErasedText || got["provenance"].(map[string]any)["origin"] != "teammate" || got["erased_at"] != nil {
		t.Errorf("%v", got)
	}
}

func TestAReassignedHandoffNamesItsHolderAndFencesTheReason(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	grace := w.agent("grace@acme")
	id := anna.hand(frank)
	frank.ok("accept_handoff", map[string]any{"thread_id": id})
	holder := func(c *caller) any {
		t.Helper()
		h, _ := c.ok("view_thread", map[string]any{"thread_id": id})["holder"].(map[string]any)
		return h["handle"]
	}
	if got := holder(anna); got != nil {
		t.Errorf("held by its recipient, it names %v", got)
	}
	w.reassign(id, "grace@acme", "frank is on leave")
	items := grace.ok("check_inbox", map[string]any{})["items"].([]any)
	if len(items) != 1 {
		t.Fatalf("%v", items)
	}
	item := items[0].(map[string]any)
	if item["status"] != "accepted" || item["holder"].(map[string]any)["handle"] != "grace@acme" || item["recipient"].(map[string]any)["handle"] != "frank@acme" {
		t.Errorf("%v", item)
	}
	thread := grace.ok("view_thread", map[string]any{"thread_id": id})
	reason := thread["messages"].([]any)[1].(map[string]any)
	if body := reason["body"].(string); !strings.Contains(body, "frank is on leave") || !strings.HasPrefix(body, "«untrusted ") || reason["from"] != "operator" {
		t.Errorf("%v", reason)
	}
	for _, c := range []*caller{anna, frank, grace} {
		if got := holder(c); got != "grace@acme" {
			t.Errorf("%s reads the holder %v", c.handle, got)
		}
	}
	frank.refused("complete_handoff", map[string]any{"thread_id": id, "result_summary": "r"}, handoff.CodeLeaseLost)
	grace.ok("complete_handoff", map[string]any{"thread_id": id, "result_summary": "r", "claim_epoch": thread["claim_epoch"]})
}
