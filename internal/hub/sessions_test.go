package hub_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func openSession(f *hubtest.Fixture, call hub.Call) hub.Session {
	f.T.Helper()
	s, err := f.Hub.OpenSession(bg, call, project, call.Actor.Handle)
	noError(f.T, err)
	return hub.Session{ID: s.ID, Secret: s.Secret}
}

func closeSession(f *hubtest.Fixture, call hub.Call, s hub.Session) {
	f.T.Helper()
	got, err := f.Hub.CloseSession(bg, call, s, "")
	if err != nil || !got.Closed || got.Replay {
		f.T.Fatalf("closed: %+v %v", got, err)
	}
}

// sessionEvents waits until the log tells of so many events of sessions and gives them.
func sessionEvents(f *hubtest.Fixture, n int) (list []handoff.Event) {
	f.T.Helper()
	eventually(f.T, "the events of sessions can be read", func() bool {
		all, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0"})
		noError(f.T, err)
		list = slices.DeleteFunc(all, func(e handoff.Event) bool { return !strings.HasPrefix(string(e.Type), "session.") })
		return len(list) >= n
	})
	if len(list) != n {
		f.T.Fatalf("%d events of sessions, want %d: %+v", len(list), n, list)
	}
	return list
}

func TestASessionIsOpenedKeptAndClosedAndItsSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		got, err := f.Hub.OpenSession(bg, anna, project+"/../shop/", "ANNA@acme")
		noError(t, err)
		if !strings.HasPrefix(got.Secret, auth.SessionPrefix) || got.WorkspaceID == "" || got.ExpiresAt.Sub(got.OpenedAt) != hub.SessionIdle {
			t.Fatalf("%+v", got)
		}
		if again, err := f.Hub.OpenSession(bg, anna, project, "anna@acme"); err != nil || again.ID == got.ID || again.Secret == got.Secret || again.WorkspaceID != got.WorkspaceID {
			t.Fatalf("another: %+v %v", again, err)
		}
		s := hub.Session{ID: got.ID, Secret: got.Secret}
		for range 3 {
			f.Clock.Advance(29 * time.Minute)
			beat, err := f.Hub.HeartbeatSession(bg, anna, s, "")
			if err != nil || beat.Closed || beat.Replay || !beat.ExpiresAt.After(got.ExpiresAt) {
				t.Fatalf("%+v %v", beat, err)
			}
			got.ExpiresAt = beat.ExpiresAt
		}
		closeSession(f, anna, s)
		for range 2 {
			if again, err := f.Hub.CloseSession(bg, anna, s, ""); err != nil || !again.Closed || !again.Replay {
				t.Fatalf("closed again: %+v %v", again, err)
			}
		}
		_, err = f.Hub.HeartbeatSession(bg, anna, s, "")
		hubtest.WantCode(t, err, handoff.CodeSessionRequired)
		events := sessionEvents(f, 3)
		for i, want := range []handoff.EventType{handoff.EventSessionOpened, handoff.EventSessionOpened, handoff.EventSessionClosed} {
			if e := events[i]; e.Type != want || e.ActorID != anna.Actor.ID || e.HandoffID != "" || i != 1 && e.SubjectID != got.ID {
				t.Errorf("event %d: %+v", i, e)
			}
		}
	})
}

func TestOpeningASessionNeedsOneselfAndAWorkspaceThatOneMayUse(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("bob@acme")
		_, err := f.Hub.OpenSession(bg, anna, project, "bob@acme")
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
		_, err = f.Hub.OpenSession(bg, anna, "relative", "anna@acme")
		hubtest.WantCode(t, err, handoff.CodeWorkspaceUnresolved)
		disable(f, "anna@acme")
		_, err = f.Hub.OpenSession(bg, anna, project, "anna@acme")
		hubtest.WantCode(t, err, handoff.CodeUnauthenticated)
		sessionEvents(f, 0)
	})
}

func TestAKeyedVerbOnASessionTakesEffectOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		s, other := openSession(f, anna), openSession(f, anna)
		_, err := f.Hub.HeartbeatSession(bg, anna, s, "k")
		noError(t, err)
		_, err = f.Hub.HeartbeatSession(bg, anna, other, "k")
		hubtest.WantCode(t, err, handoff.CodeDuplicateKey)
		closeSession(f, anna, s)
		// The heartbeat was made once; its repetition tells what the session is now.
		if got, err := f.Hub.HeartbeatSession(bg, anna, s, "k"); err != nil || !got.Replay || !got.Closed {
			t.Fatalf("%+v %v", got, err)
		}
		wrong := hub.Session{ID: s.ID, Secret: other.Secret}
		_, err = f.Hub.HeartbeatSession(bg, anna, wrong, "k")
		hubtest.WantCode(t, err, handoff.CodeSessionRequired)
	})
}

// uses are the calls that name a session, each as something that a good one does not fail.
var uses = map[string]func(f *hubtest.Fixture, call hub.Call, s hub.Session) error{
	"heartbeat": func(f *hubtest.Fixture, call hub.Call, s hub.Session) error {
		_, err := f.Hub.HeartbeatSession(bg, call, s, "")
		return err
	},
	"create": func(f *hubtest.Fixture, call hub.Call, s hub.Session) error {
		if s.Secret == "" || s.ID == "" { // it takes the id alone
			return handoff.Refuse(handoff.CodeSessionRequired, "not tried", "")
		}
		_, err := f.Hub.Open(bg, call, hub.OpenInput{ProjectRoot: project, From: call.Actor.Handle, Visibility: "public", Target: json.RawMessage(`{"strategy":"broadcast"}`), SessionID: s.ID})
		return err
	},
	"claim the next": func(f *hubtest.Fixture, call hub.Call, s hub.Session) error {
		_, err := f.Hub.Claim(bg, call, hub.ClaimInput{ProjectRoot: "/nothing/here", AgentID: call.Actor.Handle, Session: s})
		return err
	},
	"claim one": func(f *hubtest.Fixture, call hub.Call, s hub.Session) error {
		_, err := f.Hub.Claim(bg, call, hub.ClaimInput{ProjectRoot: project, AgentID: call.Actor.Handle, ThreadID: forAll(f), Session: s})
		return err
	},
}

// forAll makes a handoff that everybody may claim.
func forAll(f *hubtest.Fixture) string {
	f.T.Helper()
	maker, err := f.Hub.ActAs(bg, "maker@acme")
	noError(f.T, err)
	return opened(f, hub.Call{Actor: maker}, hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`)}).HandoffID
}

func TestASessionThatDoesNotCountIsRefusedWhereverItIsNamed(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("maker@acme")
		anna, bob := f.Agent("anna@acme"), f.Agent("bob@acme")
		mine, foreign, closed, idle := openSession(f, anna), openSession(f, bob), openSession(f, anna), openSession(f, anna)
		closeSession(f, anna, closed)
		f.Clock.Advance(15 * time.Minute)
		for name, use := range uses {
			if err := use(f, anna, mine); err != nil {
				t.Fatalf("%s with a good session: %v", name, err)
			}
		}
		f.Clock.Advance(15*time.Minute + time.Second)
		for name, use := range uses {
			messages := map[string]string{}
			for what, s := range map[string]hub.Session{
				"unknown": {ID: "0198c7a4-0000-7000-8000-000000000000", Secret: mine.Secret}, "foreign": foreign, "closed": closed, "idle": idle,
				"wrong secret": {ID: mine.ID, Secret: foreign.Secret}, "half a secret": {ID: mine.ID, Secret: mine.Secret[:20]}, "no secret that fits": {ID: mine.ID, Secret: "\x00\xff"},
				"an id that is none": {ID: "\x00\xff'", Secret: mine.Secret}, "the secret as the id": {ID: mine.Secret, Secret: mine.Secret}, "a secret alone": {Secret: mine.Secret},
			} {
				if name == "create" && s.ID == mine.ID {
					continue // it takes no secret
				}
				err := use(f, anna, s)
				e := hubtest.WantCode(t, err, handoff.CodeSessionRequired)
				messages[what] = e.Message + e.Hint
				if strings.Contains(fmt.Sprint(e, e.Hint, e.Details), auth.SessionPrefix) {
					t.Errorf("%s, %s: the refusal repeats a secret: %v", name, what, e)
				}
			}
			if messages["unknown"] != messages["foreign"] {
				t.Errorf("%s tells an unknown session from a foreign one: %q, %q", name, messages["unknown"], messages["foreign"])
			}
			if err := use(f, anna, mine); err != nil {
				t.Errorf("%s with the session that was used meanwhile: %v", name, err)
			}
		}
		// Without its secret a session attributes, as long as the hub is not strict.
		if err := uses["claim one"](f, anna, hub.Session{ID: mine.ID}); err != nil {
			t.Error(err)
		}
		_, err := f.Hub.CloseSession(bg, bob, mine, "")
		hubtest.WantCode(t, err, handoff.CodeSessionRequired)
	})
}

func TestAnIdleSessionIsClosedByTheClockAndTheSweepWritesItDown(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		idle, used := openSession(f, anna), openSession(f, anna)
		f.Clock.Advance(20 * time.Minute)
		noError(t, uses["claim the next"](f, anna, used))
		f.Clock.Advance(11 * time.Minute)
		if n, err := f.Hub.Sweep(bg); n != 0 || err != nil {
			t.Fatalf("swept %d handoffs, %v", n, err)
		}
		events := sessionEvents(f, 3)
		if e := events[2]; e.Type != handoff.EventSessionClosed || e.SubjectID != idle.ID || e.ActorID != anna.Actor.ID {
			t.Fatalf("%+v", e)
		}
		noError(t, uses["claim the next"](f, anna, used))
		if again, err := f.Hub.CloseSession(bg, anna, idle, ""); err != nil || !again.Replay {
			t.Fatalf("closing it again: %+v %v", again, err)
		}
		f.Clock.Advance(time.Minute)
		_, err := f.Hub.Sweep(bg)
		noError(t, err)
		sessionEvents(f, 3)
	})
}

// Uses are written down in bundles, so that calls do not wait for one another at the session's row.
func TestUsesOfASessionAreWrittenDownWhenTheHubEnds(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		s := openSession(f, anna)
		cfg := f.HubCfg
		cfg.Store = f.Store
		first := hub.New(cfg)
		f.Clock.Advance(29 * time.Minute)
		_, err := first.Claim(bg, anna, hub.ClaimInput{ProjectRoot: project, AgentID: "anna@acme", Session: s})
		noError(t, err)
		ctx, cancel := context.WithCancel(bg)
		cancel()
		noError(t, first.Run(ctx))
		f.Clock.Advance(29 * time.Minute)
		noError(t, uses["claim the next"](f, anna, s))
	})
}

func TestAnAgentHasTwentySessionsAtMost(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob := f.Agent("anna@acme"), f.Agent("bob@acme")
		openSession(f, anna)
		f.Clock.Advance(10 * time.Minute)
		var mu sync.Mutex
		var all []hub.Session
		refused := 0
		var wg sync.WaitGroup
		for range 25 {
			wg.Go(func() {
				s, err := f.Hub.OpenSession(bg, anna, project, "anna@acme")
				mu.Lock()
				defer mu.Unlock()
				var e *handoff.Error
				switch {
				case err == nil:
					all = append(all, hub.Session{ID: s.ID, Secret: s.Secret})
				case errors.As(err, &e) && e.Code == handoff.CodeRateLimited && strings.Contains(e.Message, "20 sessions") && e.Details["limit"] == 20 && e.Details["retry_after_seconds"] == 1200:
					refused++
				default:
					t.Errorf("%v %+v", err, e)
				}
			})
		}
		wg.Wait()
		if len(all) != 19 || refused != 6 {
			t.Fatalf("%d opened, %d refused", len(all), refused)
		}
		openSession(f, bob)
		closeSession(f, anna, all[0])
		openSession(f, anna)
		f.Clock.Advance(20*time.Minute + time.Second) // the first one is idle now, and counts no more
		openSession(f, anna)
		_, err := f.Hub.OpenSession(bg, anna, project, "anna@acme")
		hubtest.WantCode(t, err, handoff.CodeRateLimited)
	})
}

func TestTheSessionsOfAnAgentEndWhenItIsDisabled(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, bob := f.Agent("anna@acme"), f.Agent("bob@acme")
		s, other := openSession(f, anna), openSession(f, bob)
		disable(f, "anna@acme")
		noError(t, f.Hub.SetDisabled(bg, hubtest.Operator(), "anna@acme", false))
		_, err := f.Hub.HeartbeatSession(bg, anna, s, "")
		hubtest.WantCode(t, err, handoff.CodeSessionRequired)
		_, err = f.Hub.HeartbeatSession(bg, bob, other, "")
		noError(t, err)
		if e := sessionEvents(f, 3)[2]; e.Type != handoff.EventSessionClosed || e.SubjectID != s.ID || e.ActorID != anna.Actor.ID {
			t.Fatalf("%+v", e)
		}
	})
}

func TestAnEventSaysInWhichSessionItWasCaused(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		from, by := openSession(f, anna), openSession(f, cid)
		id := opened(f, anna, hub.OpenInput{SessionID: from.ID, IdempotencyKey: "k"}).HandoffID
		_, err := f.Hub.Claim(bg, cid, hub.ClaimInput{ProjectRoot: project, AgentID: "cid@acme", Session: by})
		noError(t, err)
		in := holding(cid, id)
		in.Session = hub.Session{ID: by.ID}
		_, err = f.Hub.Extend(bg, cid, hub.ExtendInput{HoldInput: in})
		noError(t, err)
		_, err = f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id)})
		noError(t, err)
		// Sessions are no part of what a key stands for.
		if again := opened(f, anna, hub.OpenInput{IdempotencyKey: "k"}); !again.Replay {
			t.Errorf("%+v", again)
		}
		want := []string{from.ID, by.ID, by.ID, ""}
		eventually(t, "the events can be read", func() bool {
			h, err := f.Hub.History(bg, hubtest.Operator(), id, 0)
			noError(t, err)
			var got []string
			for _, e := range h.Events {
				got = append(got, e.SessionID)
			}
			return slices.Equal(got, want)
		})
	})
}

func TestASecretStandsNowhereButInTheAnswerThatShowedIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("maker@acme")
		anna := f.Agent("anna@acme")
		s := openSession(f, anna)
		for name, use := range uses {
			noError(t, use(f, anna, s))
			if err := use(f, anna, hub.Session{ID: s.Secret, Secret: s.Secret}); err == nil || strings.Contains(err.Error(), s.Secret) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_, err := f.Hub.HeartbeatSession(bg, anna, s, "k")
		noError(t, err)
		closeSession(f, anna, s)
		noError(t, f.Store.Read(bg, func(tx *store.Tx) error {
			row, found, err := tx.Session(s.ID)
			if !found || !auth.IsSecretOf(s.Secret, row.Hash) || auth.IsSecretOf(s.Secret+"0", row.Hash) {
				t.Errorf("kept: %+v, %v", row, found)
			}
			return err
		}))
		var backup bytes.Buffer
		noError(t, f.Hub.Backup(bg, hubtest.Operator(), &backup))
		gz, err := gzip.NewReader(&backup)
		noError(t, err)
		text, err := io.ReadAll(gz)
		noError(t, err)
		bare := strings.TrimPrefix(s.Secret, auth.SessionPrefix)
		if !bytes.Contains(text, []byte(auth.HashKey(s.Secret))) {
			t.Error("the backup lacks the session")
		}
		for what, where := range map[string]string{"backup": string(text), "log": f.Log.String()} {
			if strings.Contains(where, bare) {
				t.Errorf("the %s holds the secret", what)
			}
		}
	})
}
