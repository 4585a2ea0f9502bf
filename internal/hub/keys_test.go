package hub_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestAKeyIsItsAgentUntilItIsRevoked(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, secret := f.AgentWithKey("anna@acme")
		valid := func(key string) bool {
			t.Helper()
			actor, err := f.Hub.Authenticate(bg, key)
			if err != nil {
				hubtest.WantCode(t, err, handoff.CodeUnauthenticated)
			} else if actor.ID != anna.Actor.ID || actor.Handle != "anna@acme" {
				t.Fatalf("it is %+v", actor)
			}
			return err == nil
		}
		for _, key := range []string{"", "hc_live_", secret + "x", secret[:len(secret)-1], strings.ToUpper(secret), "Bearer " + secret} {
			if valid(key) {
				t.Errorf("%.12q… was taken", key)
			}
		}
		second, err := f.Hub.AddKey(bg, hubtest.Operator(), "ANNA@acme", "laptop")
		noError(t, err)
		if !strings.HasPrefix(second.Secret, "hc_live_") || second.Secret == secret || !valid(secret) || !valid(second.Secret) {
			t.Fatal("both keys count")
		}
		noError(t, f.Hub.RevokeKey(bg, hubtest.Operator(), anna.Actor.KeyID))
		noError(t, f.Hub.RevokeKey(bg, hubtest.Operator(), anna.Actor.KeyID)) // again changes nothing
		if valid(secret) || !valid(second.Secret) {
			t.Fatal("the revoked key ends at once, and it alone")
		}
		third, err := f.Hub.RotateKey(bg, hubtest.Operator(), "anna@acme", "")
		noError(t, err)
		if valid(second.Secret) || !valid(third.Secret) {
			t.Fatal("rotating revokes the others")
		}
		keys, err := f.Hub.Keys(bg, hubtest.Operator(), "anna@acme")
		noError(t, err)
		if len(keys) != 3 || keys[1].Label != "laptop" || keys[0].RevokedAt.IsZero() || keys[1].RevokedAt.IsZero() || !keys[2].RevokedAt.IsZero() {
			t.Fatalf("keys: %+v", keys)
		}
		for _, k := range keys {
			if strings.Contains(secret+second.Secret+third.Secret, k.Hash) || len(k.Hint) > 16 {
				t.Errorf("more than a hash and a hint is kept: %+v", k)
			}
		}
		hubtest.WantCode(t, f.Hub.RevokeKey(bg, hubtest.Operator(), "none"), handoff.CodeNotFound)
	})
}

func TestADisabledAgentIsNobodyUntilItIsEnabled(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		_, secret := f.AgentWithKey("anna@acme")
		disable(f, "Anna@Acme")
		_, err := f.Hub.Authenticate(bg, secret)
		hubtest.WantCode(t, err, handoff.CodeUnauthenticated)
		_, err = f.Hub.AddKey(bg, hubtest.Operator(), "anna@acme", "")
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		noError(t, f.Hub.SetDisabled(bg, hubtest.Operator(), "anna@acme", false))
		if _, err := f.Hub.Authenticate(bg, secret); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnotherNodeForgetsARevokedKey(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres")
	_, other := f.Node(f.HubCfg)
	anna, secret := f.AgentWithKey("anna@acme")
	if _, err := other.Authenticate(bg, secret); err != nil {
		t.Fatal(err)
	}
	noError(t, f.Hub.RevokeKey(bg, hubtest.Operator(), anna.Actor.KeyID))
	eventually(t, "the other node refuses the key", func() bool {
		_, err := other.Authenticate(bg, secret)
		return handoff.CodeOf(err) == handoff.CodeUnauthenticated
	})
}

func TestOnlyTheOperatorAdministers(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	calls := map[string]func() error{
		"add":     func() error { _, err := f.Hub.AddAgent(bg, anna, hub.AgentInput{Handle: "x@y"}); return err },
		"agents":  func() error { _, err := f.Hub.Agents(bg, anna); return err },
		"disable": func() error { return f.Hub.SetDisabled(bg, anna, "anna@acme", true) },
		"key":     func() error { _, err := f.Hub.AddKey(bg, anna, "anna@acme", ""); return err },
		"rotate":  func() error { _, err := f.Hub.RotateKey(bg, anna, "anna@acme", ""); return err },
		"revoke":  func() error { return f.Hub.RevokeKey(bg, anna, anna.Actor.KeyID) },
		"keys":    func() error { _, err := f.Hub.Keys(bg, anna, "anna@acme"); return err },
		"events":  func() error { _, _, err := f.Hub.Events(bg, anna, hub.EventsInput{Cursor: "0"}); return err },
		"decide":  func() error { _, err := f.Hub.DecideDraft(bg, anna, hub.DecideInput{}); return err },
	}
	for name, call := range calls {
		if err := call(); handoff.CodeOf(err) != handoff.CodePermissionDenied {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestASessionOfABrowserEndsWithItsKey(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, secret := f.AgentWithKey("anna@acme")
		token, actor, err := f.Hub.SignIn(bg, secret)
		if err != nil || actor.ID != anna.Actor.ID || strings.Contains(token, secret) {
			t.Fatalf("%+v %v", actor, err)
		}
		if actor, err := f.Hub.Session(bg, token); err != nil || actor.ID != anna.Actor.ID {
			t.Fatalf("%+v %v", actor, err)
		}
		for _, forged := range []string{"", "x", token + "x", token[:len(token)-2]} {
			_, err := f.Hub.Session(bg, forged)
			hubtest.WantCode(t, err, handoff.CodeUnauthenticated)
		}
		noError(t, f.Hub.RevokeKey(bg, hubtest.Operator(), anna.Actor.KeyID))
		_, err = f.Hub.Session(bg, token)
		hubtest.WantCode(t, err, handoff.CodeUnauthenticated)
	})
}

func TestCallsOfOneActorAreLimited(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite", hubtest.WithHub(func(c *hub.Config) { c.CallsPerMinute = 5 }))
	anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
	for range 5 {
		noError(t, f.Hub.Allow(anna.Actor))
	}
	e := hubtest.WantCode(t, f.Hub.Allow(anna.Actor), handoff.CodeRateLimited)
	if seconds, ok := e.Details["retry_after_seconds"].(int); !ok || seconds < 1 || seconds > 12 || !e.Retryable() {
		t.Errorf("%+v", e)
	}
	noError(t, f.Hub.Allow(frank.Actor))
}

func TestAKeyThatWasUsedSaysSo(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		cfg := f.HubCfg
		cfg.Store = f.Store
		h := hub.New(cfg)
		_, secret := f.AgentWithKey("anna@acme")
		before := time.Now().Add(-time.Second)
		_, err := h.Authenticate(bg, secret)
		noError(t, err)
		ctx, cancel := context.WithCancel(bg)
		cancel() // Run writes the last uses down as it ends
		noError(t, h.Run(ctx))
		keys, err := h.Keys(bg, hubtest.Operator(), "anna@acme")
		noError(t, err)
		agents, err := h.Agents(bg, hubtest.Operator())
		noError(t, err)
		if keys[0].LastUsedAt.Before(before) || agents[0].LastSeenAt.Before(before) {
			t.Fatalf("last used %v, seen %v", keys[0].LastUsedAt, agents[0].LastSeenAt)
		}
	})
}
