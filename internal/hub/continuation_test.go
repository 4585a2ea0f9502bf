package hub_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func handOn(f *hubtest.Fixture, call hub.Call, key string) hub.Initiated {
	f.T.Helper()
	return initiate(f, call, hub.InitiateInput{Mode: "agent", IdempotencyKey: key, Purpose: "book the table", ReservationID: "r-9", ContactName: "Carl", AgentLabel: "shop-bot"})
}

func TestAContinuationGivesItsHandoffToOneBearerOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		out := handOn(f, bot, "k")
		c := out.Continuation
		if !strings.HasPrefix(c.URL, "https://hub.example/a2a/continue/") || !strings.HasSuffix(c.URL, c.Token) || c.ExpiresAt.Sub(f.Clock.Now()) > time.Hour {
			t.Fatalf("%+v", c)
		}
		for range 3 {
			info, err := f.Hub.DescribeContinuation(bg, c.Token)
			noError(t, err)
			if info.State != "OPEN" || info.Redeemed || info.Purpose != "book the table" || info.Business != "The Shop" {
				t.Errorf("it is described as %+v", info)
			}
		}
		const n = 64
		won := make(chan hub.Redeemed, n)
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				got, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: c.Token})
				switch {
				case err == nil:
					won <- got
				case handoff.CodeOf(err) != handoff.CodeContinuationRedeemed:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d redeemed it", len(won))
		}
		got := <-won
		if got.HandoffID != out.HandoffID || got.Desk.Purpose != "book the table" || got.Contact.Name != "Carl" || got.Desk.ReservationID != "r-9" || len(got.Messages) != 1 ||
			!strings.HasPrefix(got.Viewer.ID, "anonymous:") {
			t.Errorf("the bearer gets %+v", got)
		}
		if s := deskStatus(f, bot, out.HandoffID); s.Handoff.Status() != "CLAIMED" || s.Handoff.Holder != got.Viewer.ID {
			t.Errorf("its creator sees %+v", s.Handoff)
		}

		call, err := f.Hub.SessionCall(bg, got.SessionToken, out.HandoffID, false)
		noError(t, err)
		say(f, call, out.HandoffID, "Which day?")
		if s := deskStatus(f, bot, out.HandoffID); len(s.Messages) != 1 || s.Messages[0].Body != "Which day?" {
			t.Errorf("its creator reads %+v", s.Messages)
		}
		complete(f, call, out.HandoffID)
		if _, err := f.Hub.SessionCall(bg, got.SessionToken, out.HandoffID, false); handoff.CodeOf(err) != handoff.CodeUnauthenticated {
			t.Errorf("after the end: %v", err)
		}
		_, err = f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: c.Token})
		hubtest.WantCode(t, err, handoff.CodeContinuationExpired)
		again := handOn(f, bot, "k")
		if !again.Replay || again.Continuation.URL != "" || again.Continuation.Expired {
			t.Errorf("a replay gives %+v", again)
		}
	})
}

func TestOnlyTheSameRedeemerGetsTheSameAnswerAgainForAMinute(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot, next := f.Agent("bot@shop"), f.Agent("next@shop")
		token := handOn(f, bot, "k").Continuation.Token
		redeem := func(call hub.Call, key string) (hub.Redeemed, error) {
			return f.Hub.RedeemContinuation(bg, call, hub.RedeemInput{Token: token, IdempotencyKey: key})
		}
		got, err := redeem(next, "once")
		noError(t, err)
		again, err := redeem(next, "once")
		noError(t, err)
		if !again.Replay || again.SessionToken != got.SessionToken || again.Viewer.ID != next.Actor.ID || again.Epoch != 1 {
			t.Errorf("the first answer was %+v, the second %+v", got, again)
		}
		for _, other := range []struct {
			call hub.Call
			key  string
		}{{next, "other"}, {next, ""}, {bot, "once"}, {hub.Call{}, "once"}} {
			_, err := redeem(other.call, other.key)
			hubtest.WantCode(t, err, handoff.CodeContinuationRedeemed)
		}
		view(f, next, got.HandoffID) // by its own key
		f.Clock.Advance(time.Minute)
		_, err = redeem(next, "once")
		hubtest.WantCode(t, err, handoff.CodeContinuationRedeemed)
	})
}

func TestAContinuationExpiresInItsExactSecond(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		late, just := handOn(f, bot, "late").Continuation, handOn(f, bot, "just").Continuation
		f.Clock.Advance(late.ExpiresAt.Sub(f.Clock.Now()) - 50*time.Microsecond)
		if _, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{URL: just.URL}); err != nil {
			t.Errorf("right before: %v", err)
		}
		f.Clock.Advance(late.ExpiresAt.Sub(f.Clock.Now()))
		_, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{URL: late.URL})
		hubtest.WantCode(t, err, handoff.CodeContinuationExpired)
		if again := handOn(f, bot, "late"); !again.Replay || !again.Continuation.Expired || again.Continuation.URL != "" {
			t.Errorf("a replay gives %+v", again.Continuation)
		}
		_, err = f.Hub.Sweep(bg)
		noError(t, err)
		if s := deskStatus(f, bot, handOn(f, bot, "late").HandoffID); s.Handoff.Status() != "EXPIRED" {
			t.Errorf("it is %s", s.Handoff.Status())
		}
	})
}

func TestATokenIsRefusedForTheFirstThingThatIsWrongWithIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		out := handOn(f, bot, "k")
		token := out.Continuation.Token
		parts := strings.Split(token, ".")
		session := func() string {
			got, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: handOn(f, bot, "other").Continuation.Token})
			noError(t, err)
			return got.SessionToken
		}()
		foreign := auth.SignToken("nobody", []byte("secret"), auth.Token{HandoffID: out.HandoffID, Scope: auth.ScopeContinue, IssuedAt: f.Clock.Now(), Expires: f.Clock.Now().Add(time.Hour)})
		for name, test := range map[string]struct {
			in   hub.RedeemInput
			code handoff.Code
		}{
			"nothing":         {hub.RedeemInput{}, handoff.CodeInvalidParams},
			"no token":        {hub.RedeemInput{Token: "abc"}, handoff.CodeContinuationMalformed},
			"cut":             {hub.RedeemInput{Token: token[:len(token)-len(parts[2])]}, handoff.CodeContinuationSignature},
			"two parts":       {hub.RedeemInput{Token: parts[0] + "." + parts[1]}, handoff.CodeContinuationMalformed},
			"no JSON":         {hub.RedeemInput{Token: "e30.e" + "." + parts[2]}, handoff.CodeContinuationMalformed},
			"line break":      {hub.RedeemInput{Token: token + "\n"}, handoff.CodeContinuationMalformed},
			"tampered":        {hub.RedeemInput{Token: parts[0] + "." + parts[1] + "." + strings.Repeat("A", len(parts[2]))}, handoff.CodeContinuationSignature},
			"unknown key":     {hub.RedeemInput{Token: foreign}, handoff.CodeContinuationSignature},
			"a session":       {hub.RedeemInput{Token: session}, handoff.CodeContinuationWrongScope},
			"another origin":  {hub.RedeemInput{URL: "https://evil.example/a2a/continue/" + token}, handoff.CodeContinuationMalformed},
			"another path":    {hub.RedeemInput{URL: "https://hub.example/h/" + token}, handoff.CodeContinuationMalformed},
			"with a query":    {hub.RedeemInput{URL: out.Continuation.URL + "?a=b"}, handoff.CodeContinuationMalformed},
			"two that differ": {hub.RedeemInput{URL: out.Continuation.URL, Token: "abc"}, handoff.CodeContinuationMalformed},
		} {
			if _, err := f.Hub.RedeemContinuation(bg, hub.Call{}, test.in); handoff.CodeOf(err) != test.code {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := f.Hub.SessionCall(bg, token, out.HandoffID, false); handoff.CodeOf(err) != handoff.CodeUnauthenticated {
			t.Errorf("a continuation as a session: %v", err)
		}
		if _, err := f.Hub.SessionCall(bg, session, out.HandoffID, false); handoff.CodeOf(err) != handoff.CodeUnauthenticated {
			t.Errorf("a session for another handoff: %v", err)
		}
		_, err := f.Hub.RevokeContinuation(bg, hubtest.Operator(), out.HandoffID)
		noError(t, err)
		_, err = f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: token})
		hubtest.WantCode(t, err, handoff.CodeContinuationExpired)
	})
}

func TestSigningKeysRotateWithAnOverlap(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		before := handOn(f, bot, "before").Continuation
		_, err := f.Hub.RotateSigningKey(bg, hubtest.Operator(), false)
		noError(t, err)
		if again := handOn(f, bot, "before").Continuation; again.Token != before.Token {
			t.Error("a replay after a rotation gives another token")
		}
		got, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: before.Token})
		noError(t, err)
		after := handOn(f, bot, "after").Continuation
		_, err = f.Hub.RotateSigningKey(bg, hubtest.Operator(), true)
		noError(t, err)
		_, err = f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: after.Token})
		hubtest.WantCode(t, err, handoff.CodeContinuationSignature)
		if _, err := f.Hub.SessionCall(bg, got.SessionToken, got.HandoffID, false); handoff.CodeOf(err) != handoff.CodeUnauthenticated {
			t.Errorf("a session of a key that ended: %v", err)
		}
	})
}

func TestAHandoffWhoseBearerLostItsSessionWithTheKeyShowsAsStalled(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		out := handOn(f, bot, "k")
		_, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: out.Continuation.Token})
		noError(t, err)
		for _, atOnce := range []bool{false, true} {
			_, err := f.Hub.RotateSigningKey(bg, hubtest.Operator(), atOnce)
			noError(t, err)
			if s := deskStatus(f, bot, out.HandoffID); s.Stalled != atOnce {
				t.Errorf("at once %v: stalled is %v", atOnce, s.Stalled)
			}
		}
	})
}

func TestABearersSessionEndsWhenItIsNotUsedAndTheHandoffShowsAsStalled(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		out := handOn(f, bot, "k")
		got, err := f.Hub.RedeemContinuation(bg, hub.Call{}, hub.RedeemInput{Token: out.Continuation.Token})
		noError(t, err)
		for range 6 {
			f.Clock.Advance(23 * time.Hour)
			_, err := f.Hub.SessionCall(bg, got.SessionToken, out.HandoffID, false)
			noError(t, err)
		}
		f.Clock.Advance(24 * time.Hour)
		if _, err := f.Hub.SessionCall(bg, got.SessionToken, out.HandoffID, false); handoff.CodeOf(err) != handoff.CodeUnauthenticated {
			t.Errorf("after a day without use: %v", err)
		}
		if s := deskStatus(f, bot, out.HandoffID); !s.Stalled || s.Handoff.Status() != "CLAIMED" {
			t.Errorf("it shows as %+v", s)
		}
		next := f.Agent("next@shop")
		_, err = f.Hub.Reassign(bg, hubtest.Operator(), hub.ReassignInput{ThreadID: out.HandoffID, To: "next@shop", Reason: "the bearer left"})
		noError(t, err)
		_, err = f.Hub.Complete(bg, next, hub.CompleteInput{ThreadID: out.HandoffID, ResultSummary: "done", ClaimEpoch: ptr(2)})
		noError(t, err)
	})
}
