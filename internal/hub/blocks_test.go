package hub_test

import (
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestABlockedTeammateCannotHandOverOrAppendButCanFinish(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		mine := f.Send(anna, "frank@acme")
		action := send(f, anna, hub.CreateInput{To: "frank@acme", Intent: handoff.ProposeAction, ProposedAction: action()}).ThreadID
		his := f.Send(frank, "anna@acme")
		accept(f, frank, mine)
		accept(f, frank, action)
		block(f, anna, "FRANK@acme", true)
		before := stored(f)

		create := hub.CreateInput{To: "anna@acme", Intent: handoff.Inform, Summary: "s"}
		_, err := f.Hub.Create(bg, frank, create)
		hubtest.WantCode(t, err, handoff.CodeTeammateBlocked)
		for _, id := range []string{mine, his} {
			_, err := f.Hub.Send(bg, frank, hub.SendInput{ThreadID: id, Body: "please"})
			hubtest.WantCode(t, err, handoff.CodeTeammateBlocked)
		}
		_, err = f.Hub.Draft(bg, frank, hub.DraftInput{ThreadID: action, SuggestedDiff: diffOf("main.go")})
		hubtest.WantCode(t, err, handoff.CodeTeammateBlocked)
		if stored(f) != before || len(look(f, mine).Messages) != 1 || len(look(f, action).Drafts) != 0 {
			t.Fatal("something of it was stored")
		}

		say(f, anna, mine, "the one who blocks may still write")
		f.Send(anna, "frank@acme")
		complete(f, frank, mine)
		_, err = f.Hub.Decline(bg, frank, hub.DeclineInput{ThreadID: action, Reason: "no"})
		noError(t, err)
		_, err = f.Hub.Cancel(bg, frank, hub.CancelInput{ThreadID: his})
		noError(t, err)

		block(f, anna, "frank@acme", false)
		_, err = f.Hub.Create(bg, frank, create)
		noError(t, err)
	})
}

func TestAReplayedSendSucceedsAlthoughTheSenderWasBlockedSince(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		create := hub.CreateInput{To: "anna@acme", IdempotencyKey: "k"}
		id := send(f, frank, create).ThreadID
		message := hub.SendInput{ThreadID: id, Body: "b", IdempotencyKey: "k"}
		first, err := f.Hub.Send(bg, frank, message)
		noError(t, err)
		block(f, anna, "frank@acme", true)
		if again := send(f, frank, create); !again.Replay || again.ThreadID != id {
			t.Fatalf("%+v", again)
		}
		if again, err := f.Hub.Send(bg, frank, message); err != nil || !again.Replay || again.MessageID != first.MessageID {
			t.Fatalf("%+v %v", again, err)
		}
	})
}

func TestBlockingIsIdempotentAndNamesAnotherAgent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("Frank@acme")
		set := func(handle, key string, blocked bool) (hub.BlockState, error) {
			return f.Hub.SetBlock(bg, anna, hub.BlockInput{Handle: handle, IdempotencyKey: key}, blocked)
		}
		for _, blocked := range []bool{false, true, true, false, false, true} {
			out, err := set("frank@ACME", "", blocked)
			if err != nil || out.Blocked != blocked || out.Handle != "Frank@acme" {
				t.Fatalf("%+v %v", out, err)
			}
		}
		if out, err := set("frank@acme", "k", true); err != nil || out.Replay {
			t.Fatalf("%+v %v", out, err)
		}
		if _, err := set("frank@acme", "", false); err != nil {
			t.Fatal(err)
		}
		if out, err := set("frank@acme", "k", true); err != nil || !out.Replay || out.Blocked {
			t.Fatalf("a replay does nothing again and tells how it is now: %+v %v", out, err)
		}
		_, err := set("nobody@acme", "", true)
		hubtest.WantCode(t, err, handoff.CodeRecipientNotFound)
		for _, handle := range []string{"", "ANNA@acme"} {
			_, err := set(handle, "", true)
			hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		}
	})
}

func TestTeammatesAreActiveNamedOthersAndFiltersApplyTogether(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		for _, in := range []hub.AgentInput{
			{Handle: "bob@acme", Role: "Reviewer", Skills: []string{"Go", "SQL"}, Repos: []string{"acme/hub"}},
			{Handle: "cid@acme", Role: "reviewer", Skills: []string{"go"}},
			{Handle: "off@acme", Role: "reviewer"},
			{Handle: "bare"},
		} {
			_, err := f.Hub.AddAgent(bg, hubtest.Operator(), in)
			noError(t, err)
		}
		disable(f, "off@acme")
		for want, in := range map[string]hub.TeammatesInput{
			"[bob@acme cid@acme]": {}, "[bob@acme cid@acme] ": {Role: "REVIEWER", Skill: "GO"},
			"[bob@acme]": {Role: "reviewer", Skill: "sql"}, "[bob@acme] ": {Repo: "ACME/hub"}, "[]": {Role: "reviewer", Skill: "rust"}, "[] ": {Role: "review"},
		} {
			list, err := f.Hub.Teammates(bg, anna, in)
			noError(t, err)
			got := "["
			for i, m := range list {
				if i > 0 {
					got += " "
				}
				got += m.Handle
			}
			if got += "]"; got != want && got+" " != want {
				t.Errorf("%+v: %s, want %s", in, got, want)
			}
		}
	})
}
