package hub_test

import (
	"context"
	"os"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestMain(m *testing.M) { os.Exit(hubtest.Main(m)) }

func TestAHandoffTravelsFromSenderToCompletion(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		ctx := context.Background()
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		created, err := f.Hub.Create(ctx, anna, hub.CreateInput{To: "Frank@ACME", Intent: handoff.AskQuestion, Summary: "Look at this", Question: "Is it right?"})
		if err != nil {
			t.Fatal(err)
		}
		if created.Status != "pending" || created.Recipient != "Frank@ACME" || created.InboxURL != "https://hub.example/inbox/"+created.ThreadID {
			t.Fatalf("created: %+v", created)
		}
		inbox, err := f.Hub.Inbox(ctx, frank, hub.InboxInput{})
		if err != nil {
			t.Fatal(err)
		}
		if len(inbox.Items) != 1 || inbox.Items[0].Unread != 1 || inbox.UnreadTotal != 1 {
			t.Fatalf("inbox: %+v", inbox)
		}
		thread, err := f.Hub.Accept(ctx, frank, hub.AcceptInput{ThreadID: created.ThreadID})
		if err != nil {
			t.Fatal(err)
		}
		if thread.Handoff.State != handoff.Claimed || thread.Handoff.Epoch != 1 || len(thread.Messages) != 1 || thread.Summary.Body != "Look at this" {
			t.Fatalf("thread: %+v", thread)
		}
		if _, err := f.Hub.Send(ctx, frank, hub.SendInput{ThreadID: created.ThreadID, Body: "Which commit?", ExpectsReply: true}); err != nil {
			t.Fatal(err)
		}
		back, err := f.Hub.Inbox(ctx, anna, hub.InboxInput{})
		if err != nil {
			t.Fatal(err)
		}
		if len(back.Items) != 1 || back.Items[0].Unread != 1 || len(back.Items[0].News) != 2 {
			t.Fatalf("the sender's inbox: %+v", back.Items)
		}
		if _, err := f.Hub.View(ctx, anna, hub.ViewInput{ThreadID: created.ThreadID}); err != nil {
			t.Fatal(err)
		}
		if back, err = f.Hub.Inbox(ctx, anna, hub.InboxInput{}); err != nil || len(back.Items) != 0 || back.UnreadTotal != 0 {
			t.Fatalf("after viewing: %+v %v", back.Items, err)
		}
		done, err := f.Hub.Complete(ctx, frank, hub.CompleteInput{ThreadID: created.ThreadID, ResultSummary: "It is right"})
		if err != nil {
			t.Fatal(err)
		}
		if done.Status != "completed" || done.CompletedAt.IsZero() {
			t.Fatalf("done: %+v", done)
		}
		_, err = f.Hub.Accept(ctx, frank, hub.AcceptInput{ThreadID: created.ThreadID})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
	})
}
