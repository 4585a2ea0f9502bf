package hub_test

import (
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func proposed(f *hubtest.Fixture, files ...string) (anna, frank hub.Call, id string) {
	f.T.Helper()
	anna, frank = f.Agent("anna@acme"), f.Agent("frank@acme")
	a := action()
	a.TargetFiles = append([]string{}, files...)
	id = send(f, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.ProposeAction, ProposedAction: a}).ThreadID
	return anna, frank, id
}

func TestADraftParsesAndTouchesOnlyTheNamedFiles(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		_, frank, id := proposed(f, "main.go", "lib/x.go")
		accept(f, frank, id)
		try := func(in hub.DraftInput) (hub.DraftMade, error) {
			in.ThreadID = id
			return f.Hub.Draft(bg, frank, in)
		}
		tests := map[string]struct {
			in   hub.DraftInput
			want handoff.Code
		}{
			"nothing":           {hub.DraftInput{}, handoff.CodeInvalidParams},
			"prose":             {hub.DraftInput{SuggestedDiff: "change the name in main.go"}, handoff.CodeInvalidParams},
			"broken":            {hub.DraftInput{SuggestedDiff: "--- a/main.go\n+++ b/main.go\n@@ -1,9 +1 @@\n-x\n"}, handoff.CodeInvalidParams},
			"outside":           {hub.DraftInput{SuggestedDiff: diffOf("main.go", "secret.go")}, handoff.CodeInvalidParams},
			"upwards":           {hub.DraftInput{SuggestedDiff: diffOf("../main.go")}, handoff.CodeInvalidParams},
			"outside its own":   {hub.DraftInput{SuggestedDiff: diffOf("main.go"), TargetFiles: []string{"lib/x.go"}}, handoff.CodeInvalidParams},
			"named upwards":     {hub.DraftInput{SuggestedDiff: diffOf("main.go"), TargetFiles: []string{"../main.go"}}, handoff.CodeInvalidParams},
			"too long":          {hub.DraftInput{SuggestedDiff: diffOf("main.go") + strings.Repeat("\n", 512<<10)}, handoff.CodeContentTooLarge},
			"of another epoch":  {hub.DraftInput{SuggestedDiff: diffOf("main.go"), ClaimEpoch: new(7)}, handoff.CodeStaleClaimEpoch},
			"of all the files":  {hub.DraftInput{SuggestedDiff: diffOf("main.go", "lib/x.go"), ClaimEpoch: new(1)}, ""},
			"of one, plainly":   {hub.DraftInput{SuggestedDiff: "--- a/main.go\n+++ b/main.go\n@@ -1 +1 @@\n-x\n+y\n"}, ""},
			"of one, named too": {hub.DraftInput{SuggestedDiff: diffOf("lib/x.go"), TargetFiles: []string{"./lib/x.go"}}, ""},
		}
		for name, test := range tests {
			out, err := try(test.in)
			if handoff.CodeOf(err) != test.want || (err == nil) != (out.Status == handoff.Drafted) {
				t.Errorf("%s: %+v %v", name, out, err)
			}
		}
		if got := len(look(f, id).Drafts); got != 3 {
			t.Errorf("%d drafts were stored", got)
		}
	})
}

func TestOnlyTheHolderDraftsAndOnlyForAnAction(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, id := proposed(f, "main.go")
		in := hub.DraftInput{ThreadID: id, SuggestedDiff: diffOf("main.go")}
		_, err := f.Hub.Draft(bg, frank, in)
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		accept(f, frank, id)
		_, err = f.Hub.Draft(bg, anna, in)
		hubtest.WantCode(t, err, handoff.CodeNotOwner)
		_, err = f.Hub.Draft(bg, f.Agent("eve@acme"), in)
		hubtest.WantCode(t, err, handoff.CodeNotFound)
		plain := f.Send(anna, "frank@acme")
		accept(f, frank, plain)
		_, err = f.Hub.Draft(bg, frank, hub.DraftInput{ThreadID: plain, SuggestedDiff: diffOf("main.go")})
		hubtest.WantCode(t, err, handoff.CodeInvalidIntentPayload)
		complete(f, frank, id)
		_, err = f.Hub.Draft(bg, frank, in)
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
	})
}

func TestANewDraftSupersedesTheLastAndTheSenderIsTold(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, id := proposed(f)
		accept(f, frank, id)
		view(f, anna, id)
		draft := func(diff, key string) hub.DraftMade {
			t.Helper()
			out, err := f.Hub.Draft(bg, frank, hub.DraftInput{ThreadID: id, SuggestedDiff: diff, IdempotencyKey: key})
			noError(t, err)
			return out
		}
		one := draft(diffOf("a.go"), "")
		if again := draft(diffOf("a.go"), "k"); again.DraftID != one.DraftID || !again.Replay {
			t.Fatalf("the same content is the same draft: %+v", again)
		}
		two := draft(diffOf("b.go"), "")
		if again := draft(diffOf("a.go"), "k"); again.DraftID != one.DraftID || !again.Replay || again.Status != handoff.DraftSuperseded {
			t.Fatalf("a key stands for what it made: %+v", again)
		}
		drafts := view(f, frank, id).Drafts
		if len(drafts) != 2 || drafts[0].Status != handoff.DraftSuperseded || drafts[1].Status != handoff.Drafted || drafts[1].ID != two.DraftID || drafts[1].Description != "rename it" {
			t.Fatalf("drafts: %+v", drafts)
		}
		if got := inbox(f, anna, hub.InboxInput{}).Items; len(got) != 1 || !slices.Equal(got[0].News, []handoff.EventType{handoff.EventDraftCreated}) {
			t.Fatalf("the sender is told: %+v", got)
		}
	})
}

func TestTheOperatorDecidesOnADraftAndBothSidesAreTold(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank, id := proposed(f, "main.go")
		accept(f, frank, id)
		out, err := f.Hub.Draft(bg, frank, hub.DraftInput{ThreadID: id, SuggestedDiff: diffOf("main.go")})
		noError(t, err)
		list, err := f.Hub.UndecidedDrafts(bg, hubtest.Operator())
		if err != nil || len(list) != 1 || list[0].ID != out.DraftID {
			t.Fatalf("undecided: %+v %v", list, err)
		}
		_, err = f.Hub.UndecidedDrafts(bg, frank)
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
		decide := func(call hub.Call, approve bool, reason string) error {
			_, err := f.Hub.DecideDraft(bg, call, hub.DecideInput{DraftID: out.DraftID, Approve: approve, Reason: reason})
			return err
		}
		view(f, anna, id)
		view(f, frank, id)
		hubtest.WantCode(t, decide(frank, true, ""), handoff.CodePermissionDenied)
		hubtest.WantCode(t, decide(hubtest.Operator(), false, ""), handoff.CodeInvalidParams)
		noError(t, decide(hubtest.Operator(), false, "too bold"))
		noError(t, decide(hubtest.Operator(), false, "too bold")) // the same word again
		hubtest.WantCode(t, decide(hubtest.Operator(), true, ""), handoff.CodeInvalidTransition)
		for _, call := range []hub.Call{anna, frank} {
			if got := inbox(f, call, hub.InboxInput{}).Items; len(got) != 1 || !slices.Equal(got[0].News, []handoff.EventType{handoff.EventDraftDecided}) {
				t.Errorf("%s is told: %+v", call.Actor.Handle, got)
			}
			if d := view(f, call, id).Drafts[0]; d.Status != handoff.DraftDeclined || d.Reason != "too bold" {
				t.Errorf("%+v", d)
			}
		}
		if list, err := f.Hub.UndecidedDrafts(bg, hubtest.Operator()); err != nil || len(list) != 0 {
			t.Errorf("still undecided: %+v %v", list, err)
		}
		next, err := f.Hub.Draft(bg, frank, hub.DraftInput{ThreadID: id, SuggestedDiff: diffOf("main.go") + "\n"})
		noError(t, err)
		complete(f, frank, id)
		_, err = f.Hub.DecideDraft(bg, hubtest.Operator(), hub.DecideInput{DraftID: next.DraftID, Approve: true})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		if got := eventsOf(f, id); len(got) != 6 { // created, claimed, drafted, decided, drafted, completed
			t.Errorf("events %v", got)
		}
	})
}

func TestAThreadTakesAHundredDraftsAndOnlyTheLastKeepsItsTextInTheThread(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite", hubtest.WithHub(func(c *hub.Config) {
		c.Limits = handoff.DefaultLimits()
		c.Limits.Drafts = 3
	}))
	anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
	created, err := f.Hub.Create(bg, anna, hub.CreateInput{
		To: "frank@acme", Intent: handoff.ProposeAction, Summary: "change it",
		ProposedAction: &handoff.ProposedAction{Description: "d", TargetFiles: []string{"a.txt"}, Rationale: "r"},
	})
	noError(t, err)
	_, err = f.Hub.Accept(bg, frank, hub.AcceptInput{ThreadID: created.ThreadID})
	noError(t, err)
	draft := func(line string) error {
		_, err := f.Hub.Draft(bg, frank, hub.DraftInput{ThreadID: created.ThreadID, SuggestedDiff: "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+" + line + "\n"})
		return err
	}
	for _, line := range []string{"b", "c", "d"} {
		noError(t, draft(line))
	}
	hubtest.WantCode(t, draft("e"), handoff.CodeContentTooLarge)
	thread, err := f.Hub.View(bg, anna, hub.ViewInput{ThreadID: created.ThreadID})
	noError(t, err)
	if n := len(thread.Drafts); n != 3 || thread.Drafts[0].SuggestedDiff != "" || thread.Drafts[2].SuggestedDiff == "" {
		t.Fatalf("%d drafts: %+v", n, thread.Drafts)
	}
	waiting, err := f.Hub.UndecidedDrafts(bg, hubtest.Operator())
	noError(t, err)
	if len(waiting) != 1 || waiting[0].From != "frank@acme" || waiting[0].Sender != "anna@acme" {
		t.Fatalf("%+v", waiting)
	}
	_, err = f.Hub.Complete(bg, frank, hub.CompleteInput{ThreadID: created.ThreadID, ResultSummary: "done"})
	noError(t, err)
	if waiting, err = f.Hub.UndecidedDrafts(bg, hubtest.Operator()); err != nil || len(waiting) != 0 {
		t.Fatalf("a draft of an ended handoff waits: %+v %v", waiting, err)
	}
}
