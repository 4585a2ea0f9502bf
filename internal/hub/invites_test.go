package hub_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func invite(f *hubtest.Fixture, in hub.InviteInput) (link hub.InviteLink, token string) {
	f.T.Helper()
	link, err := f.Hub.Invite(bg, hubtest.Operator(), in)
	noError(f.T, err)
	_, token, _ = strings.Cut(link.URL, "#")
	return link, token
}

func invites(f *hubtest.Fixture) []hub.InviteInfo {
	f.T.Helper()
	list, err := f.Hub.Invites(bg, hubtest.Operator())
	noError(f.T, err)
	return list
}

func TestAJoinLinkMakesTheAgentItIsForOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		link, token := invite(f, hub.InviteInput{Handle: "Frank@acme", Name: "Frank", Role: "backend", Inviter: "ANNA@acme", ExpiresIn: 3600})
		if !strings.HasPrefix(link.URL, "https://hub.example/join#") || strings.Count(token, ".") != 2 || link.Inviter != "anna@acme" || link.Handle != "Frank@acme" {
			t.Fatalf("%+v", link)
		}
		if left := link.ExpiresAt.Sub(f.Clock.Now()); left > time.Hour || left < time.Hour-2*time.Second {
			t.Errorf("it is good for %v", left)
		}
		k, err := f.Hub.Redeem(bg, link.ID, token)
		noError(t, err)
		actor, err := f.Hub.Authenticate(bg, k.Secret)
		if err != nil || actor.Handle != "Frank@acme" || actor.ID != k.AgentID {
			t.Fatalf("%+v %v", actor, err)
		}
		if a := show(f, "frank@acme"); a.Name != "Frank" || a.Role != "backend" || len(a.Keys) != 1 {
			t.Errorf("%+v", a)
		}
		for range 2 {
			if out, err := f.Hub.Redeem(bg, link.ID, token); !errors.Is(err, hub.ErrInviteUsed) || out != (hub.NewKey{}) {
				t.Fatalf("again: %+v %v", out, err)
			}
		}
		f.Clock.Advance(48 * time.Hour)
		if _, err := f.Hub.Redeem(bg, link.ID, token); !errors.Is(err, hub.ErrInviteUsed) {
			t.Fatalf("used and over is used: %v", err)
		}
		list := invites(f)
		if len(list) != 1 || list[0].Status != hub.InviteUsed || list[0].AgentID != k.AgentID || list[0].Inviter != "anna@acme" {
			t.Errorf("%+v", list)
		}
		events := hubEvents(f, 1+2, handoff.EventAgentAdded, handoff.EventAgentInvited)
		if made, joined := events[1], events[2]; made.SubjectID != link.ID || made.ActorID != "operator" || joined.SubjectID != k.AgentID || joined.ActorID != link.ID {
			t.Errorf("%+v %+v", made, joined)
		}
		if strings.Contains(f.Log.String(), token) || strings.Contains(f.Log.String(), k.Secret) {
			t.Error("the log holds a secret")
		}
	})
}

func TestOfManyRedemptionsAtOnceOneSucceeds(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		link, token := invite(f, hub.InviteInput{Handle: "frank@acme"})
		rival, rivalToken := invite(f, hub.InviteInput{Handle: "FRANK@acme"}) // for the same handle
		const callers = 32
		errs := make([]error, callers)
		keys := make([]hub.NewKey, callers)
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				id, with := link.ID, token
				if i%8 == 0 {
					id, with = rival.ID, rivalToken
				}
				keys[i], errs[i] = f.Hub.Redeem(bg, id, with)
			})
		}
		wg.Wait()
		won := 0
		for i, err := range errs {
			switch {
			case err == nil:
				won++
				_, err := f.Hub.Authenticate(bg, keys[i].Secret)
				noError(t, err)
			case !errors.Is(err, hub.ErrInviteUsed) && !errors.Is(err, hub.ErrInviteTaken):
				t.Errorf("caller %d: %v", i, err)
			}
		}
		agents, err := f.Hub.Agents(bg, hubtest.Operator())
		if won != 1 || err != nil || len(agents) != 1 || len(show(f, "frank@acme").Keys) != 1 {
			t.Fatalf("%d succeeded and made %+v, %v", won, agents, err)
		}
		hubEvents(f, 2, handoff.EventAgentAdded, handoff.EventKeyCreated)
	})
}

func TestAJoinLinkThatDoesNotCountMakesNothing(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		link, token := invite(f, hub.InviteInput{Handle: "frank@acme"})
		other, otherToken := invite(f, hub.InviteInput{Handle: "bob@acme"})
		revoked, revokedToken := invite(f, hub.InviteInput{Handle: "r@acme"})
		taken, takenToken := invite(f, hub.InviteInput{Handle: "t@acme"})
		noError(t, f.Hub.RevokeInvite(bg, hubtest.Operator(), revoked.ID))
		f.Agent("T@acme")
		stranger := hubtest.New(t, "sqlite")
		_, strange := invite(stranger, hub.InviteInput{Handle: "frank@acme"})
		f.Clock.Advance(time.Minute)
		for name, c := range map[string]struct {
			id, token string
			want      error
		}{
			"of another link": {link.ID, otherToken, hub.ErrInviteUnknown}, "under another id": {other.ID, token, hub.ErrInviteUnknown},
			"of another hub": {link.ID, strange, hub.ErrInviteUnknown}, "nothing": {link.ID, "", hub.ErrInviteUnknown}, "changed": {link.ID, token[:len(token)-3] + "AAA", hub.ErrInviteUnknown},
			"no id": {"", token, hub.ErrInviteUnknown}, "NUL": {"\x00", "\x00", hub.ErrInviteUnknown},
			"revoked": {revoked.ID, revokedToken, hub.ErrInviteUnknown}, "taken": {taken.ID, takenToken, hub.ErrInviteTaken},
		} {
			if out, err := f.Hub.Redeem(bg, c.id, c.token); !errors.Is(err, c.want) || out != (hub.NewKey{}) {
				t.Errorf("%s: %+v %v", name, out, err)
			}
		}
		f.Clock.Advance(24 * time.Hour)
		if _, err := f.Hub.Redeem(bg, link.ID, token); !errors.Is(err, hub.ErrInviteExpired) {
			t.Errorf("expired: %v", err)
		}
		if agents, err := f.Hub.Agents(bg, hubtest.Operator()); err != nil || len(agents) != 1 {
			t.Errorf("%+v %v", agents, err)
		}
		if list := invites(f); len(list) != 3 || list[2].ID != link.ID || list[2].Status != hub.InviteExpired || list[2].Inviter != "operator" {
			t.Errorf("%+v", list)
		}
	})
}

func TestAnInviteThatCannotBeMadeSaysWhatToTypeInstead(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		f.Agent("off@acme")
		disable(f, "off@acme")
		for name, c := range map[string]struct {
			in   hub.InviteInput
			code handoff.Code
			says string
		}{
			"a handle that was given out": {hub.InviteInput{Handle: "ANNA@acme"}, handoff.CodeInvalidParams, "choose another"},
			"a disabled agent's handle":   {hub.InviteInput{Handle: "off@acme"}, handoff.CodeInvalidParams, "choose another"},
			"no handle":                   {hub.InviteInput{}, handoff.CodeInvalidParams, "name@team"},
			"a reserved handle":           {hub.InviteInput{Handle: "operator"}, handoff.CodeInvalidParams, "reserved"},
			"a bad name":                  {hub.InviteInput{Handle: "x@acme", Name: "\x00"}, handoff.CodeInvalidParams, "name"},
			"too short":                   {hub.InviteInput{Handle: "x@acme", ExpiresIn: 59}, handoff.CodeInvalidParams, "60 to 2592000"},
			"too long":                    {hub.InviteInput{Handle: "x@acme", ExpiresIn: 1 << 62}, handoff.CodeInvalidParams, "30 days"},
			"negative":                    {hub.InviteInput{Handle: "x@acme", ExpiresIn: -1}, handoff.CodeInvalidParams, "60"},
			"a disabled inviter":          {hub.InviteInput{Handle: "x@acme", Inviter: "off@acme"}, handoff.CodeInvalidTransition, "disabled"},
		} {
			_, err := f.Hub.Invite(bg, hubtest.Operator(), c.in)
			if e := hubtest.WantCode(t, err, c.code); !strings.Contains(e.Message, c.says) {
				t.Errorf("%s: %s", name, e.Message)
			}
		}
		cfg := f.HubCfg
		cfg.Store, cfg.PublicURL = f.Store, ""
		nowhere := hub.New(cfg)
		_, err := nowhere.Invite(bg, hubtest.Operator(), hub.InviteInput{Handle: "x@acme"})
		if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); !strings.Contains(e.Message, "--url") {
			t.Errorf("%s", e.Message)
		}
		if len(invites(f)) != 0 {
			t.Errorf("%+v", invites(f))
		}
		l, err := nowhere.Invite(bg, hubtest.Operator(), hub.InviteInput{Handle: "x@acme", URL: "https://elsewhere.example"})
		noError(t, err)
		id, token, _ := strings.Cut(l.URL, "#")
		if id != "https://elsewhere.example/join" {
			t.Errorf("%s", l.URL)
		}
		_, err = f.Hub.Redeem(bg, l.ID, token) // another process, the same database
		noError(t, err)
	})
}

func TestAUsedOrUnknownJoinLinkCannotBeRevoked(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		link, token := invite(f, hub.InviteInput{Handle: "frank@acme"})
		_, err := f.Hub.Redeem(bg, link.ID, token)
		noError(t, err)
		e := hubtest.WantCode(t, f.Hub.RevokeInvite(bg, hubtest.Operator(), link.ID), handoff.CodeInvalidTransition)
		if !strings.Contains(e.Hint, "handclasp agent disable frank@acme") {
			t.Errorf("%+v", e)
		}
		e = hubtest.WantCode(t, f.Hub.RevokeInvite(bg, hubtest.Operator(), "none"), handoff.CodeNotFound)
		if !strings.Contains(e.Hint, "handclasp invite list") {
			t.Errorf("%+v", e)
		}
		over, _ := invite(f, hub.InviteInput{Handle: "o@acme"})
		f.Clock.Advance(25 * time.Hour)
		noError(t, f.Hub.RevokeInvite(bg, hubtest.Operator(), over.ID)) // tidies up
		if list := invites(f); len(list) != 1 || list[0].ID != link.ID {
			t.Errorf("%+v", list)
		}
		if e := hubEvents(f, 1, handoff.EventAgentInviteRevoked)[0]; e.SubjectID != over.ID || e.ActorID != "operator" {
			t.Errorf("%+v", e)
		}
	})
}
