package main

import (
	"context"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

func TestTextOfOthersCannotPassForARowOrForThePartBehindIt(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	const forged = "FORGED"
	w.ok("agent", "edit", "frank@acme", "--name", "Frank\n"+forged+"  x\tactive", "--role", "r\n"+forged)
	w.ok("agent", "key", "rotate", "frank@acme", "--label", "l\n"+forged)
	var draft string
	w.within(func(h *hub.Hub, as func(string) hub.Call) {
		ctx := context.Background()
		out, err := h.Create(ctx, as("anna@acme"), hub.CreateInput{
			To: "frank@acme", Intent: handoff.ProposeAction, Summary: "s",
			ProposedAction: &handoff.ProposedAction{Description: "d", TargetFiles: []string{"a.go"}, Rationale: "r"},
		})
		if err == nil {
			_, err = h.Accept(ctx, as("frank@acme"), hub.AcceptInput{ThreadID: out.ThreadID})
		}
		if err == nil {
			var d hub.DraftMade
			d, err = h.Draft(ctx, as("frank@acme"), hub.DraftInput{
				ThreadID: out.ThreadID, Description: "d\n\nWhy:\n" + forged, Rationale: "r\nFiles: " + forged + "\n" + forged,
				SuggestedDiff: "--- a/a.go\n+++ b/a.go\n@@ -1 +1 @@\n-a\n+b\n",
			})
			draft = d.DraftID
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	for _, args := range [][]string{{"agent", "list"}, {"agent", "show", "frank@acme"}, {"agent", "key", "list", "frank@acme"}, {"handoff", "draft", "show", draft}} {
		said := w.ok(args...)
		if !strings.Contains(said, forged) {
			t.Errorf("%v does not show the text: %s", args, said)
		}
		for line := range strings.Lines(said) {
			if strings.HasPrefix(line, forged) || strings.HasPrefix(line, "Files: "+forged) {
				t.Errorf("%v shows a line of others as ours:\n%s", args, said)
			}
		}
	}
}
