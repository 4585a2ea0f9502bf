package hub_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func whoami(f *hubtest.Fixture, h *hub.Hub, call hub.Call) hub.Whoami {
	f.T.Helper()
	w, err := h.Whoami(bg, call)
	noError(f.T, err)
	return w
}

func TestAnAgentThatWasRestartedLearnsWhatItHolds(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: "cid@acme", Name: "Cid", Role: "worker", Capabilities: []string{"code", "art"}, Tags: map[string][]string{"team": {"b", "a"}}})
		noError(t, err)
		actor, err := f.Hub.Authenticate(bg, k.Secret)
		noError(t, err)
		cid := hub.Call{Actor: actor}
		if w := whoami(f, f.Hub, cid); len(w.Claims)+len(w.News)+w.UnreadTotal != 0 || w.Agent.Name != "Cid" || w.Agent.Role != "worker" ||
			!slices.Equal(w.Agent.Capabilities, []string{"art", "code"}) || !slices.Equal(w.Agent.Tags["team"], []string{"a", "b"}) {
			t.Fatalf("new: %+v", w)
		}
		team := f.Send(anna, "cid@acme")
		accept(f, cid, team)
		ids := map[string]string{"team": team}
		for _, name := range []string{"long", "short", "delivered", "done", "released"} {
			ids[name] = opened(f, anna, hub.OpenInput{Criteria: []string{"it is green"}[:map[string]int{"delivered": 1}[name]]}).HandoffID
			_, err := f.Hub.Claim(bg, cid, hub.ClaimInput{ProjectRoot: project, AgentID: "cid@acme", ThreadID: ids[name], Lease: map[string]int64{"long": 600}[name]})
			noError(t, err)
		}
		for _, name := range []string{"delivered", "done"} {
			_, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, ids[name]), Result: json.RawMessage(`1`)})
			noError(t, err)
		}
		_, err = f.Hub.Release(bg, cid, hub.ReleaseInput{HoldInput: holding(cid, ids["released"])})
		noError(t, err)

		cfg := f.HubCfg
		cfg.Store = f.Store
		again := hub.New(cfg)
		held := func(names ...string) {
			t.Helper()
			got := whoami(f, again, cid)
			var list []string
			for i := range got.Claims {
				c := &got.Claims[i]
				for name, id := range ids {
					if c.ID == id {
						list = append(list, name)
					}
				}
				if c.Payload != nil || c.Epoch != 1 || c.Holder != cid.Actor.ID {
					t.Errorf("a claim: %+v", c)
				}
			}
			if !slices.Equal(list, names) || got.MoreClaims {
				t.Errorf("it holds %v, want %v", list, names)
			}
		}
		held("short", "long", "team", "delivered")
		f.Clock.Advance(301 * time.Second)
		held("long", "team", "delivered")
		_, err = f.Hub.Verify(bg, anna, hub.VerifyInput{HoldInput: holding(anna, ids["delivered"]), Verdict: "fail"})
		noError(t, err)
		f.Clock.Advance(300 * time.Second)
		held("team")
		complete(f, cid, team)
		held()
	})
}

func TestWhatAnAgentWasToldIsNewsUntilItHasSeenItAtAnyDoor(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		team := f.Send(anna, "cid@acme")
		pool := opened(f, anna, hub.OpenInput{Target: json.RawMessage(`{"strategy":"direct","agent_id":"cid@acme"}`)}).HandoffID
		say(f, anna, team, "by the way")
		type told struct {
			Type     handoff.EventType
			ID, Door string
			No       int
		}
		news := func(call hub.Call, unread int, want ...told) {
			t.Helper()
			w := whoami(f, f.Hub, call)
			var got []told
			for i, n := range w.News {
				got = append(got, told{n.Type, n.HandoffID, string(n.Door), n.SequenceNo})
				if n.At.IsZero() || i > 0 && n.At.After(w.News[i-1].At) {
					t.Errorf("news of %v behind others", n.At)
				}
			}
			if !slices.Equal(got, want) || w.UnreadTotal != unread || w.MoreNews {
				t.Errorf("%+v, %d unread\nwant %+v, %d", got, w.UnreadTotal, want, unread)
			}
		}
		first, second, open := told{handoff.EventCreated, team, "team", 1}, told{handoff.EventMessageCreated, team, "team", 2}, told{handoff.EventCreated, pool, "pool", 0}
		for range 2 { // looking marks nothing
			news(cid, 2, second, open, first)
		}
		_, err := f.Hub.Get(bg, cid, hub.GetInput{ProjectRoot: project, AgentID: "cid@acme", HandoffID: pool})
		noError(t, err)
		news(cid, 2, second, first)
		_, err = f.Hub.View(bg, cid, hub.ViewInput{ThreadID: team, Limit: 1})
		noError(t, err)
		news(cid, 1, second)
		view(f, cid, team)
		news(cid, 0)
		accept(f, cid, team)
		complete(f, cid, team)
		news(anna, 0, told{handoff.EventCompleted, team, "team", 0}, told{handoff.EventClaimed, team, "team", 0})
		view(f, anna, team)
		news(anna, 0)
	})
}

func TestWhoamiSaysWhenThereIsMore(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		for i := range 101 {
			id := f.Send(anna, "cid@acme")
			if i == 100 {
				w := whoami(f, f.Hub, cid)
				if len(w.Claims) != 100 || w.MoreClaims || len(w.News) != 1 {
					t.Errorf("%d claims, more %v, %d news", len(w.Claims), w.MoreClaims, len(w.News))
				}
			}
			accept(f, cid, id)
		}
		if w := whoami(f, f.Hub, cid); len(w.Claims) != 100 || !w.MoreClaims || w.MoreNews {
			t.Errorf("%d claims, more %v", len(w.Claims), w.MoreClaims)
		}
		if w := whoami(f, f.Hub, anna); len(w.News) != 100 || !w.MoreNews || w.MoreClaims {
			t.Errorf("%d news, more %v", len(w.News), w.MoreNews)
		}
		_, err := f.Hub.Whoami(bg, hubtest.Operator())
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
	})
}

func TestTheCatalogNamesWhoOffersACapabilityAndWhoIsPresent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		add := func(handle string, change func(*hub.AgentInput), words ...string) hub.NewKey {
			in := hub.AgentInput{Handle: handle, Capabilities: words}
			change(&in)
			k, err := f.Hub.AddAgent(bg, hubtest.Operator(), in)
			noError(t, err)
			return k
		}
		same := func(*hub.AgentInput) {}
		reader := add("reader", same, "review")
		away, here, off := add("away@acme", same, "Code", "review"), add("zoe@acme", same, "Code"), add("off@acme", same, "Code", "gone")
		add("never@acme", same, "Code")
		add("bare", same, "Code")
		hidden := add("hidden@acme", func(in *hub.AgentInput) { in.Unlisted = true }, "Code", "secret")
		disable(f, "off@acme")
		noError(t, f.Store.Write(bg, func(tx *store.Tx) error {
			for id, ago := range map[string]time.Duration{away.AgentID: hub.PresentFor + time.Minute, here.AgentID: hub.PresentFor - time.Minute, off.AgentID: 0, hidden.AgentID: 0} {
				if err := tx.Touch("", id, time.Now().Add(-ago)); err != nil {
					return err
				}
			}
			return nil
		}))
		actor, err := f.Hub.Authenticate(bg, reader.Secret)
		noError(t, err)
		call := hub.Call{Actor: actor}
		read := func() string {
			page, err := f.Hub.Capabilities(bg, call, hub.CapabilitiesInput{})
			noError(t, err)
			return fmt.Sprintf("%+v %q", page.List, page.NextCursor)
		}
		const want = `[{Name:Code Agents:[{Handle:zoe@acme Present:true} {Handle:away@acme Present:false} {Handle:never@acme Present:false}] Total:5} ` +
			`{Name:gone Agents:[] Total:0} {Name:review Agents:[{Handle:reader Present:true} {Handle:away@acme Present:false}] Total:2} {Name:secret Agents:[] Total:1}] ""`
		if got := read(); got != want {
			t.Errorf("\n%s\n%s", got, want)
		}
		// Any call with a credential makes an agent present, within seconds.
		_, err = f.Hub.ActAs(bg, "never@acme")
		noError(t, err)
		hubtest.Eventually(t, func() bool { return read() != want })
	})
}

func TestTheCatalogComesInPagesThatShowEachCapabilityOnce(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		var want []string
		for i := range 230 {
			want = append(want, fmt.Sprintf("c%03d ü", i))
		}
		_, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: "bob@acme", Capabilities: want})
		noError(t, err)
		for _, fit := range []func([]hub.Capability) int{nil, func(list []hub.Capability) int { return min(7, len(list)) }} {
			var got []string
			cursor := ""
			for {
				page, err := f.Hub.Capabilities(bg, anna, hub.CapabilitiesInput{Cursor: cursor, Fit: fit})
				noError(t, err)
				for _, c := range page.List {
					got = append(got, c.Name)
					if c.Total != 1 || len(c.Agents) != 1 {
						t.Fatalf("%+v", c)
					}
				}
				if cursor = page.NextCursor; cursor == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d came: %v", len(got), got)
			}
		}
		_, err = f.Hub.Capabilities(bg, anna, hub.CapabilitiesInput{Cursor: "!"})
		hubtest.WantCode(t, err, handoff.CodeInvalidParams)
	})
}
