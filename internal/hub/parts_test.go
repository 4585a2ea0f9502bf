package hub_test

import (
	"encoding/json"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// Who has which part in an open handoff.

func TestWhomABlockedHandoffNamesIsNotSaidToBeToldYet(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob := able(f, "anna@acme"), f.Agent("bob@acme")
		first := opened(f, anna, hub.OpenInput{}).HandoffID
		direct := json.RawMessage(`{"strategy":"direct","agent_id":"bob@acme"}`)
		if got := opened(f, anna, hub.OpenInput{Target: direct, DependsOn: []string{first}}); len(got.Notified) != 0 {
			t.Fatalf("notified %v", got.Notified)
		}
		if items := inbox(f, bob, hub.InboxInput{}).Items; len(items) != 1 || len(items[0].News) != 0 {
			t.Fatalf("told of %+v", items)
		}
		if got := opened(f, anna, hub.OpenInput{Target: direct}); len(got.Notified) != 1 {
			t.Fatalf("notified %v", got.Notified)
		}
	})
}

func TestTheFirstChoiceReadsNoResultOfThePoolAndHearsWhyItWasTakenBack(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob, cid := able(f, "anna@acme"), f.Agent("bob@acme"), able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme"), Visibility: "private", Criteria: []string{"it is green"}}).HandoffID
		f.Clock.Advance(time.Minute)
		_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 0))
		noError(t, err)
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id), Result: json.RawMessage(`"secret"`)})
		noError(t, err)
		_, err = f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, id), Verdict: "fail", Feedback: "not green"})
		noError(t, err)
		f.Clock.Advance(5 * time.Minute) // cid lost it
		if got := view(f, bob, id).Handoff; got.Result != nil || got.Verdict == nil || got.Verdict.Feedback != "" {
			t.Fatalf("it reads %s and %+v", got.Result, got.Verdict)
		}
		_, err = f.Hub.TakeBack(bg, anna, hub.TakeBackInput{HoldInput: holding(anna, id), Reason: "done elsewhere"})
		noError(t, err)
		w, err := f.Hub.Get(bg, bob, getOf(bob, id))
		noError(t, err)
		if view(f, bob, id).Handoff.EndedReason != "done elsewhere" || w.Handoff.EndedReason != "done elsewhere" {
			t.Fatalf("why: %+v", w.Handoff)
		}
	})
}

func TestACompletionReplacesTheResultOfAnEarlierHolder(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := able(f, "anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		id := opened(f, anna, hub.OpenInput{Criteria: []string{"it is green"}}).HandoffID
		_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 0))
		noError(t, err)
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id), Result: json.RawMessage(`"old"`)})
		noError(t, err)
		out, err := f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: id, To: "dora@acme", Reason: "cid is ill"})
		noError(t, err)
		_, err = f.Hub.Complete(bg, dora, hub.CompleteInput{ThreadID: id, ResultSummary: "new", ClaimEpoch: &out.Epoch})
		noError(t, err)
		if got := look(f, id).Handoff; got.Result != nil || got.ResultSummary != "new" {
			t.Fatalf("result %s, summary %q", got.Result, got.ResultSummary)
		}
	})
}

func TestAContractThatOnlyItsClaimantCouldVerifyIsRefusedHoweverItNamesIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob := able(f, "anna@acme"), f.Agent("bob@acme")
		direct := func(handle string) string { return `{"strategy":"direct","agent_id":"` + handle + `"}` }
		alone := `{"strategy":"direct_with_fallback","agent_id":"bob@acme","fallback_after_seconds":60,"fallback":`
		for target, code := range map[string]handoff.Code{
			direct("bob@acme"): handoff.CodeInvalidParams,
			`{"strategy":"mixed","rules":[` + direct("bob@acme") + `,` + direct(bob.Actor.ID) + `]}`: handoff.CodeInvalidParams,
			alone + direct("BOB@acme") + `}`: handoff.CodeInvalidParams,
			alone + codeTarget + `}`:         "",
			`{"strategy":"mixed","rules":[` + direct("bob@acme") + `,` + direct("anna@acme") + `]}`:                                        "",
			`{"strategy":"direct_with_fallback","agent_id":"late@acme","fallback_after_seconds":60,"fallback":` + direct("bob@acme") + `}`: "",
		} {
			_, err := f.Hub.Open(bg, anna, hub.OpenInput{
				ProjectRoot: project, From: "anna@acme", Target: json.RawMessage(target), Visibility: "public", Criteria: []string{"it is green"},
				VerifyBy: json.RawMessage(`{"kind":"agent","agent_id":"bob@acme"}`),
			})
			if got := handoff.CodeOf(err); got != code {
				t.Errorf("%s gave %q, want %q", target, got, code)
			}
		}
	})
}

func TestACreatorWhoIsAlsoNamedHearsThatWhatItRejectsHasEnded(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := able(f, "anna@acme")
		id := opened(f, anna, hub.OpenInput{Target: json.RawMessage(`{"strategy":"direct","agent_id":"anna@acme"}`)}).HandoffID
		_, err := f.Hub.TakeBack(bg, anna, hub.TakeBackInput{HoldInput: holding(anna, id)})
		noError(t, err)
		_, err = f.Hub.Reject(bg, anna, hub.RejectInput{HoldInput: holding(anna, id), Reason: "no"})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
	})
}

func TestAFirstChoiceThatWasTurnedOffAtFirstTakesPartLater(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob := able(f, "anna@acme"), f.Agent("bob@acme")
		disable(f, "bob@acme")
		id := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme"), Visibility: "private", ExpiresIn: 60}).HandoffID
		noError(t, f.Hub.SetDisabled(bg, hubtest.Operator(), "bob@acme", false))
		say(f, bob, id, "what is it?")
		f.Clock.Advance(time.Hour)
		if got := view(f, bob, id).Handoff.State; got != handoff.Expired {
			t.Fatalf("it reads %s", got)
		}
	})
}

func TestWhoMayNotUseAWorkspaceVerifiesNothingInIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		members(f, hub.MembersInput{Root: project, Add: []string{"anna@acme", "cid@acme"}, Strict: new(true)})
		id := opened(f, anna, hub.OpenInput{Criteria: []string{"it is green"}, VerifyBy: json.RawMessage(`{"kind":"capability","capability":"code"}`)}).HandoffID
		_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 0)) // nobody would be left who may verify
		hubtest.WantCode(t, err, handoff.CodeNotEligibleToClaim)
		members(f, hub.MembersInput{Root: project, Add: []string{"dora@acme"}})
		_, err = f.Hub.Claim(bg, cid, claiming(cid, id, 0))
		noError(t, err)
		members(f, hub.MembersInput{Root: project, Remove: []string{"dora@acme"}})
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id)})
		noError(t, err)
		if items := inbox(f, dora, hub.InboxInput{}).Items; len(items) != 0 {
			t.Fatalf("told of %+v", items)
		}
		_, err = f.Hub.Verify(bg, dora, hub.VerifyInput{HoldInput: holding(dora, id), Verdict: "pass"})
		hubtest.WantCode(t, err, handoff.CodeNotFound)
	})
}

func TestAnImpossibleLeaseIsRefusedWhereThereIsNothingToClaim(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := able(f, "anna@acme")
		for lease, code := range map[int64]handoff.Code{9: handoff.CodeInvalidParams, 86_401: handoff.CodeInvalidParams, -1: handoff.CodeInvalidParams, 10: ""} {
			_, err := f.Hub.Claim(bg, anna, hub.ClaimInput{ProjectRoot: project, AgentID: "anna@acme", Lease: lease})
			if got := handoff.CodeOf(err); got != code {
				t.Errorf("%d gave %q, want %q", lease, got, code)
			}
		}
	})
}

func TestAVerdictIsRepeatedAlsoByWhoSeesNoMoreOfTheHandoff(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		eve := able(f, "eve@acme") // offers the capability too, and said nothing
		id := opened(f, anna, hub.OpenInput{
			Target: json.RawMessage(`{"strategy":"direct","agent_id":"cid@acme"}`), Visibility: "private",
			Criteria: []string{"it is green"}, VerifyBy: json.RawMessage(`{"kind":"capability","capability":"code"}`),
		}).HandoffID
		_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 0))
		noError(t, err)
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id)})
		noError(t, err)
		in := hub.VerifyInput{HoldInput: holding(dora, id), Verdict: "fail", Feedback: "not green"}
		in.IdempotencyKey = "k"
		for _, replay := range []bool{false, true} {
			w, err := f.Hub.Verify(bg, dora, in)
			if err != nil || w.Replay != replay || w.Handoff.State != handoff.Claimed || w.Handoff.Verdict.Feedback != "not green" {
				t.Fatalf("%+v %v", w, err)
			}
		}
		_, err = f.Hub.Get(bg, eve, getOf(eve, id))
		hubtest.WantCode(t, err, handoff.CodeNotFound)
	})
}

func TestARepeatedReleaseDoesNotTellWhoHasItNow(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		id := opened(f, anna, hub.OpenInput{Visibility: "private"}).HandoffID
		_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 0))
		noError(t, err)
		in := hub.ReleaseInput{HoldInput: holding(cid, id)}
		in.IdempotencyKey = "k"
		_, err = f.Hub.Release(bg, cid, in)
		noError(t, err)
		_, err = f.Hub.Claim(bg, dora, claiming(dora, id, 0))
		noError(t, err)
		w, err := f.Hub.Release(bg, cid, in)
		noError(t, err)
		if got := w.Handoff; !w.Replay || got.State != handoff.Claimed || got.Holder != "" || !got.LeaseExpiresAt.IsZero() {
			t.Fatalf("%+v", got)
		}
	})
}

func TestABlockCountsInAThreadAsLongAsItsAgentHasAPartInIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob, cid := f.Agent("anna@acme"), f.Agent("bob@acme"), able(f, "cid@acme")
		disable(f, "bob@acme")
		later := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme")}).HandoffID
		noError(t, f.Hub.SetDisabled(bg, hubtest.Operator(), "bob@acme", false))
		id := opened(f, anna, hub.OpenInput{Target: firstChoice("bob@acme")}).HandoffID
		block(f, bob, "anna@acme", true)
		for _, id := range []string{id, later} {
			_, err := f.Hub.Send(bg, anna, hub.SendInput{ThreadID: id, Body: "well?"})
			hubtest.WantCode(t, err, handoff.CodeTeammateBlocked)
		}
		f.Clock.Advance(time.Minute)
		for _, id := range []string{id, later} {
			_, err := f.Hub.Claim(bg, cid, claiming(cid, id, 0))
			noError(t, err)
			say(f, anna, id, "well?")
		}
	})
}
