package hub_test

import (
	"encoding/json"
	"slices"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestOnlyTheHolderCompletes(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, eve := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("eve@acme")
		id := f.Send(anna, "frank@acme")
		try := func(call hub.Call, in hub.CompleteInput) error {
			in.ThreadID = id
			_, err := f.Hub.Complete(bg, call, in)
			return err
		}
		done := hub.CompleteInput{ResultSummary: "done"}
		hubtest.WantCode(t, try(frank, hub.CompleteInput{}), handoff.CodeInvalidParams)
		hubtest.WantCode(t, try(frank, done), handoff.CodeInvalidTransition) // accept first
		accept(f, frank, id)
		hubtest.WantCode(t, try(eve, done), handoff.CodeNotFound)
		hubtest.WantCode(t, try(anna, done), handoff.CodeNotOwner)
		hubtest.WantCode(t, try(frank, hub.CompleteInput{ResultSummary: "done", ClaimEpoch: new(2)}), handoff.CodeStaleClaimEpoch)
		noError(t, try(frank, hub.CompleteInput{ResultSummary: "done", ClaimEpoch: new(1)}))
		hubtest.WantCode(t, try(anna, done), handoff.CodeNotOwner)
		if got := inbox(f, anna, hub.InboxInput{}).Items; len(got) != 1 || !slices.Equal(got[0].News, []handoff.EventType{handoff.EventClaimed, handoff.EventCompleted}) {
			t.Fatalf("the sender is told: %+v", got)
		}
	})
}

func TestAResultIsKeptAsItCameAndRepeatedWithoutAKeyWhileItStands(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		accept(f, frank, id)
		in := hub.CompleteInput{ThreadID: id, ResultSummary: "done <b> &", Artifacts: []json.RawMessage{
			json.RawMessage(`{ "type": "file_diff", "path": "a<b>.go", "diff": "+ a && b < c", "n": 1.50 }`),
		}}
		first, err := f.Hub.Complete(bg, frank, in)
		noError(t, err)
		again, err := f.Hub.Complete(bg, frank, in)
		noError(t, err)
		if first.Replay || !again.Replay || again.Status != "completed" || !again.CompletedAt.Equal(first.CompletedAt) {
			t.Fatalf("first %+v, again %+v", first, again)
		}
		got := view(f, anna, id).Handoff
		if want := `{"type":"file_diff","path":"a<b>.go","diff":"+ a && b < c","n":1.50}`; got.ResultSummary != in.ResultSummary || string(got.CompletionArtifacts[0].Raw) != want {
			t.Fatalf("kept as %q and %s", got.ResultSummary, got.CompletionArtifacts[0].Raw)
		}
		in.ResultSummary = "done otherwise"
		_, err = f.Hub.Complete(bg, frank, in)
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		if got := eventsOf(f, id); len(got) != 3 {
			t.Fatalf("events %v", got)
		}
	})
}

func TestTheSenderIsToldWhyItsHandoffWasDeclined(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, eve := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("eve@acme")
		decline := func(call hub.Call, id, reason string) (hub.Ended, error) {
			return f.Hub.Decline(bg, call, hub.DeclineInput{ThreadID: id, Reason: reason})
		}
		for _, accepted := range []bool{false, true} {
			id := f.Send(anna, "frank@acme")
			if accepted {
				accept(f, frank, id)
			}
			_, err := decline(frank, id, "")
			hubtest.WantCode(t, err, handoff.CodeInvalidParams)
			_, err = decline(eve, id, "no")
			hubtest.WantCode(t, err, handoff.CodeNotFound)
			_, err = decline(anna, id, "no")
			hubtest.WantCode(t, err, handoff.CodeNotOwner)
			out, err := decline(frank, id, "no time <sorry>")
			noError(t, err)
			if out.Status != "declined" || out.Replay {
				t.Fatalf("%+v", out)
			}
			items := inbox(f, anna, hub.InboxInput{}).Items
			if len(items) != 1 || items[0].News[len(items[0].News)-1] != handoff.EventRejected {
				t.Fatalf("the sender's inbox: %+v", items)
			}
			thread := view(f, anna, id)
			if thread.Handoff.EndedReason != "no time <sorry>" || thread.Party(thread.Handoff.EndedBy).Handle != "frank@acme" {
				t.Fatalf("the reason: %+v", thread.Handoff)
			}
			again, err := decline(frank, id, "no time <sorry>")
			if err != nil || !again.Replay {
				t.Fatalf("again: %+v %v", again, err)
			}
			_, err = decline(frank, id, "another reason")
			hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		}
	})
}

func TestASenderCancelsOnlyWhileItIsPending(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, eve := f.Agent("anna@acme"), f.Agent("frank@acme"), f.Agent("eve@acme")
		cancel := func(call hub.Call, id, reason string) (hub.Ended, error) {
			return f.Hub.Cancel(bg, call, hub.CancelInput{ThreadID: id, Reason: reason})
		}
		id := f.Send(anna, "frank@acme")
		_, err := cancel(eve, id, "")
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		_, err = cancel(frank, id, "")
		hubtest.WantCode(t, err, handoff.CodeNotOwner)
		out, err := cancel(anna, id, "changed my mind")
		if err != nil || out.Status != "cancelled" {
			t.Fatalf("%+v %v", out, err)
		}
		if again, err := cancel(anna, id, "changed my mind"); err != nil || !again.Replay {
			t.Fatalf("again: %+v %v", again, err)
		}
		_, err = cancel(anna, id, "another reason")
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		_, err = cancel(frank, id, "")
		hubtest.WantCode(t, err, handoff.CodeNotOwner)
		if got := inbox(f, frank, hub.InboxInput{}).Items; len(got) != 1 || got[0].News[1] != handoff.EventCancelled || got[0].Unread != 1 {
			t.Fatalf("the recipient is told: %+v", got)
		}
		_, err = f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)

		id = f.Send(anna, "frank@acme")
		accept(f, frank, id)
		_, err = cancel(anna, id, "")
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		complete(f, frank, id)
		_, err = cancel(anna, id, "")
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
	})
}

func TestASenderCancelsWhatADisabledAgentHoldsOrWasSent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		held, pending := f.Send(anna, "frank@acme"), f.Send(anna, "frank@acme")
		accept(f, frank, held)
		disable(f, "Frank@ACME")
		if got := look(f, held).Handoff; got.State != handoff.Claimed || got.Epoch != 1 {
			t.Fatalf("a claim of the team door is not released: %+v", got)
		}
		for _, id := range []string{held, pending} {
			out, err := f.Hub.Cancel(bg, anna, hub.CancelInput{ThreadID: id})
			if err != nil || out.Status != "cancelled" {
				t.Fatalf("%+v %v", out, err)
			}
		}
	})
}

func TestTheOperatorCancelsWithAReason(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		accept(f, frank, id)
		_, err := f.Hub.Cancel(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id})
		hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		_, err = f.Hub.Cancel(bg, hubtest.Operator(), hub.CancelInput{ThreadID: id, Reason: "stuck"})
		noError(t, err)
		for _, call := range []hub.Call{anna, frank} {
			items := inbox(f, call, hub.InboxInput{Statuses: []string{"cancelled"}}).Items
			if len(items) != 1 || items[0].News[len(items[0].News)-1] != handoff.EventCancelled {
				t.Errorf("%s is told: %+v", call.Actor.Handle, items)
			}
		}
		_, err = f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done"})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
	})
}
