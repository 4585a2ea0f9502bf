package webui

import (
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestAnErasedThreadIsShownWithTheMarkerOnly(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna, key := f.AgentWithKey("anna@acme")
	f.Agent("frank@acme")
	id := send(t, f, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.AskQuestion, Summary: "the SECRET plan", Question: "SECRET?"})
	if _, err := f.Hub.Cancel(t.Context(), anna, hub.CancelInput{ThreadID: id, Reason: "SECRET"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Hub.Erase(t.Context(), hubtest.Operator(), id); err != nil {
		t.Fatal(err)
	}
	page := newBrowser(t, f).signIn(key).page("/inbox/" + id)
	wantIn(t, page, handoff.ErasedText, ">erased<", "cancelled")
	wantNotIn(t, page, "SECRET")
}
