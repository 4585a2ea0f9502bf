package hub_test

import (
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// A process without a mail server, such as `handclasp mcp` or a command, shares the database with the hub
// that has one.
func TestANodeWithoutMailLeavesItToOthersUntilItIsGivenUp(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		without := hub.New(hub.Config{Store: f.Store, PublicURL: "https://hub.example"})
		out := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "k"})
		if out.Delivery.State != handoff.DeliveryQueued {
			t.Fatalf("%+v", out.Delivery)
		}
		f.Clock.Advance(time.Hour)
		list, err := without.TakeDeliveries(bg, hub.Lane{Channel: handoff.ChannelEmail}, 10)
		noError(t, err)
		wait, err := without.UntilDelivery(bg, hub.Lane{Channel: handoff.ChannelEmail}, time.Minute)
		noError(t, err)
		if len(list) != 0 || wait != time.Minute {
			t.Errorf("the node without mail takes %+v, and looks again in %v", list, wait)
		}
		if wait, err := f.Hub.UntilDelivery(bg, hub.Lane{Channel: handoff.ChannelEmail}, time.Minute); wait != 0 || err != nil {
			t.Errorf("the node with mail looks in %v (%v)", wait, err)
		}
		f.Clock.Advance(handoff.GiveUpAfter)
		list, err = without.TakeDeliveries(bg, hub.Lane{Channel: handoff.ChannelEmail}, 10)
		noError(t, err)
		if len(list) != 1 || list[0].ID != out.Delivery.ID {
			t.Errorf("after a day it takes %+v", list)
		}
	}, hubtest.WithMail(), hubtest.WithHub(func(c *hub.Config) { c.ParkedCalls = -1 })) // nobody waits for the first outcome
}

func TestACommandBesideTheNodesSendsAgainWhatTheySend(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		refuse := true
		f.Post(f.Hub, func(handoff.Notification) handoff.Outcome {
			if refuse {
				return handoff.Outcome{Kind: handoff.OutcomeRefused, Reason: "provider_550"}
			}
			return handoff.Outcome{Kind: handoff.OutcomeSent}
		})
		out := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "k"})
		refuse = false
		alone := hub.New(hub.Config{Store: f.Store, PublicURL: "https://hub.example"})
		_, err := alone.Resend(bg, hubtest.Operator(), out.Delivery.ID, false)
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		command := hub.New(hub.Config{Store: f.Store, PublicURL: "https://hub.example", MailElsewhere: true})
		_, err = command.Resend(bg, hubtest.Operator(), out.Delivery.ID, false)
		noError(t, err)
		eventually(t, "it goes out", func() bool {
			return deskStatus(f, bot, out.HandoffID).Deliveries[0].State == handoff.DeliverySent
		})
	}, hubtest.WithMail())
}

func TestALinkThatCountsNoMoreIsNotGivenOutAgain(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		for key, end := range map[string]func(id string){
			"revoked": func(id string) {
				_, err := f.Hub.RevokeContinuation(bg, hubtest.Operator(), id)
				noError(t, err)
			},
			"cancelled": func(id string) {
				_, err := f.Hub.Cancel(bg, bot, hub.CancelInput{ThreadID: id})
				noError(t, err)
			},
			"its key ended": func(string) {
				_, err := f.Hub.RotateSigningKey(bg, hubtest.Operator(), true)
				noError(t, err)
			},
		} {
			end(handOn(f, bot, key).HandoffID)
			if c := handOn(f, bot, key).Continuation; !c.Expired || c.URL != "" || c.Token != "" || c.ExpiresAt.IsZero() {
				t.Errorf("%s: %+v", key, c)
			}
		}
		redeemed := handOn(f, bot, "redeemed").Continuation
		_, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: redeemed.Token})
		noError(t, err)
		if c := handOn(f, bot, "redeemed").Continuation; c.Expired || c.URL != "" {
			t.Errorf("redeemed: %+v", c)
		}
	})
}

func TestAnAgentThatIsTurnedOffLosesTheSessionOfItsContinuation(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot, next := f.Agent("bot@shop"), f.Agent("next@shop")
		got, err := f.Hub.RedeemContinuation(bg, next, hub.RedeemInput{Token: handOn(f, bot, "k").Continuation.Token})
		noError(t, err)
		call, err := f.Hub.SessionCall(bg, got.SessionToken, got.HandoffID, false)
		if err != nil || call.Actor.ID != next.Actor.ID {
			t.Fatalf("%+v %v", call, err)
		}
		for _, off := range []bool{true, false} {
			noError(t, f.Hub.SetDisabled(bg, hubtest.Operator(), "next@shop", off))
			for _, completes := range []bool{true, false} {
				_, err := f.Hub.SessionCall(bg, got.SessionToken, got.HandoffID, completes)
				if refused := handoff.CodeOf(err) == handoff.CodeUnauthenticated; refused != off {
					t.Errorf("turned off %v: %v", off, err)
				}
			}
		}
	})
}

func TestWhoCompletedByASessionMayRepeatItAndNothingElse(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		got, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: handOn(f, f.Agent("bot@shop"), "k").Continuation.Token})
		noError(t, err)
		complete := func(summary string) error {
			call, err := f.Hub.SessionCall(bg, got.SessionToken, got.HandoffID, true)
			noError(t, err)
			_, err = f.Hub.Complete(bg, call, hub.CompleteInput{ThreadID: got.HandoffID, ResultSummary: summary})
			return err
		}
		noError(t, complete("booked"))
		noError(t, complete("booked"))
		hubtest.WantCode(t, complete("something else"), handoff.CodeThreadTerminal)
		_, err = f.Hub.SessionCall(bg, got.SessionToken, got.HandoffID, false)
		hubtest.WantCode(t, err, handoff.CodeUnauthenticated)
		_, err = f.Hub.RevokeContinuation(bg, hubtest.Operator(), got.HandoffID)
		noError(t, err)
		_, err = f.Hub.SessionCall(bg, got.SessionToken, got.HandoffID, true)
		hubtest.WantCode(t, err, handoff.CodeUnauthenticated)
	})
}

func TestABusinessIsFoundInAnyCaseAndScript(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		for slug, name := range map[string]string{"doc": "Ärzte Zentrum", "road": "Große STRASSE ÜBER", "percent": "100% Wolle_", "cafe": "Cafe\u0301 Σίσυφος"} {
			business(f, hub.BusinessInput{Slug: slug, Name: ptr(name)})
		}
		for query, want := range map[string][]string{
			"ÄRZTE": {"doc"}, "ärzte": {"doc"}, "grosse strasse": {"road"}, "über": {"road"}, "0%": {"percent"}, "_": {"percent"},
			"café": {"cafe"}, "ΣΊΣΥΦΟΣ": {"cafe"}, "CAF": {"cafe"}, "zz": nil, "a\nb": nil,
		} {
			list, _, err := f.Hub.FindBusinesses(bg, hub.FindInput{Query: query})
			noError(t, err)
			var got []string
			for i := range list {
				got = append(got, list[i].Slug)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q finds %q, want %q", query, got, want)
			}
		}
		_, err := f.Hub.EditBusiness(bg, hubtest.Operator(), hub.BusinessInput{Slug: "doc", Name: ptr("Žižkov")})
		noError(t, err)
		if list, _, err := f.Hub.FindBusinesses(bg, hub.FindInput{Query: "žiž"}); err != nil || len(list) != 1 {
			t.Errorf("after an edit: %+v %v", list, err)
		}
	})
}

func TestWhoComesBesideTheNodesKnowsHowTheyAreReached(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		if got, err := hub.ReadServed(bg, f.Store); err != nil || got != (hub.Served{}) {
			t.Errorf("before anybody serves: %+v %v", got, err)
		}
		for _, s := range []hub.Served{{PublicURL: "https://hub.example", Mail: true}, {PublicURL: "https://other.example"}} {
			noError(t, hub.TellServed(bg, f.Store, s))
			want := s
			if !f.Store.Shared() {
				want = hub.Served{} // there is one process at a time
			}
			if got, err := hub.ReadServed(bg, f.Store); err != nil || got != want {
				t.Errorf("%+v is read as %+v (%v)", s, got, err)
			}
		}
	})
}
