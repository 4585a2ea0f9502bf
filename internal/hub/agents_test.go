package hub_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func ptr[T any](v T) *T { return &v }

func edit(f *hubtest.Fixture, handle string, e hub.AgentEdit) hub.AgentInfo {
	f.T.Helper()
	info, err := f.Hub.EditAgent(bg, hubtest.Operator(), handle, e)
	noError(f.T, err)
	return info
}

func show(f *hubtest.Fixture, handle string) hub.AgentInfo {
	f.T.Helper()
	info, err := f.Hub.Agent(bg, hubtest.Operator(), handle)
	noError(f.T, err)
	return info
}

// hubEvents waits until the log shows want events of the types, all those of no handoff.
func hubEvents(f *hubtest.Fixture, want int, types ...handoff.EventType) []handoff.Event {
	f.T.Helper()
	var list []handoff.Event
	eventually(f.T, fmt.Sprintf("the log shows %d events %v", want, types), func() bool {
		all, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0"})
		noError(f.T, err)
		list = slices.DeleteFunc(all, func(e handoff.Event) bool { return !slices.Contains(types, e.Type) })
		return len(list) >= want
	})
	if len(list) != want {
		f.T.Fatalf("%d events: %+v", len(list), list)
	}
	return list
}

func TestTheOperatorSeesAllOfAnAgentButItsSecrets(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		k, err := f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{
			Handle: "Frank@acme", Name: "Frank", Email: "frank@acme.example", Role: "backend", Skills: []string{"go", "sql"}, Repos: []string{"acme/api"},
			Capabilities: []string{"review", "deploy"}, Tags: map[string][]string{"team": {"platform", "data"}}, Unlisted: true,
		})
		noError(t, err)
		actor, err := f.Hub.Authenticate(bg, k.Secret)
		noError(t, err)
		frank := hub.Call{Actor: actor}
		accept(f, frank, f.Send(anna, "frank@acme"))
		complete(f, frank, accept(f, frank, f.Send(anna, "frank@acme")).Handoff.ID)
		f.Send(anna, "frank@acme")
		f.Send(anna, "frank@acme")
		f.Send(frank, "anna@acme")
		lapsed := f.Send(anna, "frank@acme")
		acceptFor(f, frank, lapsed, 60)
		f.Clock.Advance(61e9)
		block(f, frank, "anna@acme", true)
		_, err = f.Hub.SetBlock(bg, anna, hub.BlockInput{Handle: "frank@acme", Reason: "floods"}, true)
		noError(t, err)

		got := show(f, "FRANK@ACME")
		if got.Handle != "Frank@acme" || got.ID != k.AgentID || got.Name != "Frank" || got.Email != "frank@acme.example" || got.Role != "backend" || !got.Unlisted || got.Disabled || got.CreatedAt.IsZero() {
			t.Errorf("%+v", got.AgentRow)
		}
		if !reflect.DeepEqual([][]string{got.Skills, got.Repos, got.Capabilities, got.Tags["team"]}, [][]string{{"go", "sql"}, {"acme/api"}, {"deploy", "review"}, {"data", "platform"}}) {
			t.Errorf("%+v", got.AgentRow)
		}
		if len(got.Keys) != 1 || got.Keys[0].ID != k.KeyID || strings.Contains(k.Secret, got.Keys[0].Hash) {
			t.Errorf("keys %+v", got.Keys)
		}
		if got.Open != 3 || got.Held != 1 { // the lapsed one is open again, written down or not
			t.Errorf("%d open, %d held", got.Open, got.Held)
		}
		if len(got.Blocks) != 1 || got.Blocks[0].Handle != "anna@acme" || len(got.BlockedBy) != 1 || got.BlockedBy[0].Reason != "floods" || got.BlockedBy[0].Since.IsZero() {
			t.Errorf("blocks %+v, blocked by %+v", got.Blocks, got.BlockedBy)
		}
		if empty := show(f, "anna@acme"); empty.Email != "" || empty.Capabilities != nil || empty.Tags != nil {
			t.Errorf("%+v", empty.AgentRow)
		}
	})
}

func TestAnEditReplacesWhatItNamesAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		before := show(f, "anna@acme")
		full := hub.AgentEdit{
			Name: ptr("Anna"), Email: ptr("anna@acme.example"), Role: ptr("lead"), Skills: ptr([]string{"go"}), Repos: ptr([]string{"acme/api"}),
			Capabilities: ptr([]string{"review"}), Tags: ptr(map[string][]string{"team": {"platform"}}), Unlisted: ptr(true),
		}
		want := edit(f, "ANNA@acme", full)
		if want.ID != before.ID || want.Handle != "anna@acme" || want.Name != "Anna" || want.Email != "anna@acme.example" || want.Role != "lead" || !want.Unlisted {
			t.Fatalf("%+v", want.AgentRow)
		}
		for name, c := range map[string]struct {
			edit   hub.AgentEdit
			change func(*store.AgentRow)
		}{
			"a new list":        {hub.AgentEdit{Skills: ptr([]string{"sql", "c++, c"})}, func(a *store.AgentRow) { a.Skills = []string{"sql", "c++, c"} }},
			"no repositories":   {hub.AgentEdit{Repos: ptr([]string{})}, func(a *store.AgentRow) { a.Repos = nil }},
			"a null list":       {hub.AgentEdit{Repos: ptr([]string(nil))}, func(a *store.AgentRow) { a.Repos = nil }},
			"no capabilities":   {hub.AgentEdit{Capabilities: ptr([]string{})}, func(a *store.AgentRow) { a.Capabilities = nil }},
			"more capabilities": {hub.AgentEdit{Capabilities: ptr([]string{"x", "review", "x"})}, func(a *store.AgentRow) { a.Capabilities = []string{"review", "x"} }},
			"no tags":           {hub.AgentEdit{Tags: ptr(map[string][]string{})}, func(a *store.AgentRow) { a.Tags = nil }},
			"no e-mail":         {hub.AgentEdit{Email: ptr("")}, func(a *store.AgentRow) { a.Email = "" }},
			"no name":           {hub.AgentEdit{Name: ptr("")}, func(a *store.AgentRow) { a.Name = "anna@acme" }},
			"listed":            {hub.AgentEdit{Unlisted: ptr(false)}, func(a *store.AgentRow) { a.Unlisted = false }},
		} {
			edit(f, "anna@acme", full)
			expected := want.AgentRow
			c.change(&expected)
			edit(f, "anna@acme", c.edit)
			if got := show(f, "anna@acme").AgentRow; !reflect.DeepEqual(got, expected) {
				t.Errorf("%s: %+v\nwant %+v", name, got, expected)
			}
		}
		events := hubEvents(f, 19, handoff.EventAgentEdited)
		if e := events[0]; e.ActorID != "operator" || e.SubjectID != before.ID {
			t.Errorf("%+v", e)
		}
	})
}

func TestTwoEditsAtOnceBothCount(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		edits := map[string]hub.AgentEdit{
			"name": {Name: ptr("Anna")}, "role": {Role: ptr("lead")}, "email": {Email: ptr("a@b")}, "skills": {Skills: ptr([]string{"go"})},
			"repos": {Repos: ptr([]string{"r"})}, "capabilities": {Capabilities: ptr([]string{"c"})}, "tags": {Tags: ptr(map[string][]string{"k": {"v"}})}, "unlisted": {Unlisted: ptr(true)},
		}
		var wg sync.WaitGroup
		for _, name := range slices.Collect(maps.Keys(edits)) {
			wg.Go(func() {
				if _, err := f.Hub.EditAgent(bg, hubtest.Operator(), "anna@acme", edits[name]); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		wg.Wait()
		a := show(f, "anna@acme")
		if a.Name != "Anna" || a.Role != "lead" || a.Email != "a@b" || len(a.Skills)+len(a.Repos)+len(a.Capabilities)+len(a.Tags) != 4 || !a.Unlisted {
			t.Errorf("%+v", a.AgentRow)
		}
	})
}

func TestAnEditTakesEffectAtOnceForLists(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("frank@acme")
		edit(f, "frank@acme", hub.AgentEdit{Role: ptr("backend")})
		mates, err := f.Hub.Teammates(bg, anna, hub.TeammatesInput{Role: "backend"})
		if err != nil || len(mates) != 1 || mates[0].Handle != "frank@acme" {
			t.Fatalf("%+v %v", mates, err)
		}
	})
}

func TestAnImpossibleEditChangesNothingAndSaysWhy(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		before := show(f, "anna@acme")
		long := strings.Repeat("x", 300)
		for name, c := range map[string]struct {
			edit hub.AgentEdit
			says string
		}{
			"nothing":         {hub.AgentEdit{}, "unlisted"},
			"a long name":     {hub.AgentEdit{Name: &long, Role: ptr("x")}, "name"},
			"a NUL":           {hub.AgentEdit{Role: ptr("a\x00")}, "role"},
			"an empty skill":  {hub.AgentEdit{Skills: ptr([]string{"go", ""})}, "skills[1]"},
			"a long tag":      {hub.AgentEdit{Tags: ptr(map[string][]string{"k": {long}})}, "tags.k"},
			"a long address":  {hub.AgentEdit{Email: &long}, "email"},
			"no UTF-8":        {hub.AgentEdit{Repos: ptr([]string{"\xff"})}, "repos[0]"},
			"empty ability":   {hub.AgentEdit{Capabilities: ptr([]string{""})}, "capabilities[0]"},
			"a bad name, too": {hub.AgentEdit{Name: ptr("\x00"), Unlisted: ptr(true)}, "name"},
		} {
			_, err := f.Hub.EditAgent(bg, hubtest.Operator(), "anna@acme", c.edit)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if after := show(f, "anna@acme"); !reflect.DeepEqual(before, after) {
			t.Errorf("%+v", after)
		}
	})
}

func TestAMistypedHandleIsAnsweredWithThoseThatAreNear(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Agent("anna@acme")
		f.Agent("frank@acme")
		disable(f, "frank@acme") // the operator may know it all the same
		op := hubtest.Operator()
		for name, call := range map[string]func(handle string) error{
			"show": func(s string) error { _, err := f.Hub.Agent(bg, op, s); return err },
			"edit": func(s string) error { _, err := f.Hub.EditAgent(bg, op, s, hub.AgentEdit{Role: ptr("x")}); return err },
			"block": func(s string) error {
				_, err := f.Hub.SetBlockFor(bg, op, s, hub.BlockInput{Handle: "anna@acme"}, true)
				return err
			},
			"block him": func(s string) error {
				_, err := f.Hub.SetBlockFor(bg, op, "anna@acme", hub.BlockInput{Handle: s}, true)
				return err
			},
			"disable": func(s string) error { return f.Hub.SetDisabled(bg, op, s, true) },
			"rotate":  func(s string) error { _, err := f.Hub.RotateKey(bg, op, s, ""); return err },
			"invite": func(s string) error {
				_, err := f.Hub.Invite(bg, op, hub.InviteInput{Handle: "new@acme", Inviter: s})
				return err
			},
		} {
			e := hubtest.WantCode(t, call("frnak@acme"), handoff.CodeNotFound)
			if near, _ := e.Details["near_matches"].([]string); !slices.Contains(near, "frank@acme") || !strings.Contains(e.Hint, "Did you mean frank@acme") {
				t.Errorf("%s: %+v", name, e)
			}
			for _, far := range []string{"zzzzzz", "x\x00", "\xff"} {
				if e := hubtest.WantCode(t, call(far), handoff.CodeNotFound); e.Details["near_matches"] != nil || !strings.Contains(e.Hint, "handclasp agent list") {
					t.Errorf("%s %q: %+v", name, far, e)
				}
			}
		}
	})
}

func TestTheOperatorBlocksOnBehalfOfAnAgent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		set := func(blocked, changes bool) {
			t.Helper()
			out, err := f.Hub.SetBlockFor(bg, hubtest.Operator(), "ANNA@acme", hub.BlockInput{Handle: "FRANK@acme", Reason: "floods"}, blocked)
			if err != nil || out != (hub.BlockFor{Handle: "anna@acme", Other: "frank@acme", Blocked: blocked, Changed: changes}) {
				t.Fatalf("%+v %v", out, err)
			}
		}
		send := func(from hub.Call, to string) error {
			_, err := f.Hub.Create(bg, from, hub.CreateInput{To: to, Intent: handoff.Inform, Summary: "s"})
			return err
		}
		set(false, false)
		set(true, true)
		set(true, false)
		hubtest.WantCode(t, send(frank, "anna@acme"), handoff.CodeTeammateBlocked)
		noError(t, send(anna, "frank@acme"))
		if b := show(f, "anna@acme").Blocks; len(b) != 1 || b[0].Reason != "floods" {
			t.Fatalf("%+v", b)
		}
		block(f, anna, "frank@acme", false) // the agent itself may lift it
		noError(t, send(frank, "anna@acme"))
		block(f, anna, "frank@acme", true)
		set(false, true) // and the operator what the agent set
		noError(t, send(frank, "anna@acme"))

		both := anna.Actor.ID + "/" + frank.Actor.ID
		for i, e := range hubEvents(f, 4, handoff.EventBlockAdded, handoff.EventBlockRemoved) {
			want := handoff.Event{Type: handoff.EventBlockAdded, ActorID: "operator", SubjectID: both}
			if i%2 == 1 {
				want.Type = handoff.EventBlockRemoved
			}
			if i == 1 || i == 2 {
				want.ActorID, want.SubjectID = anna.Actor.ID, frank.Actor.ID
			}
			if e.Type != want.Type || e.ActorID != want.ActorID || e.SubjectID != want.SubjectID {
				t.Errorf("event %d: %+v", i, e)
			}
		}
		for _, handle := range []string{"anna@acme", "frank@acme"} {
			seen, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", As: handle})
			if n := len(slices.DeleteFunc(seen, func(e handoff.Event) bool { return !strings.HasPrefix(string(e.Type), "block.") })); err != nil || n != 4 {
				t.Errorf("%s sees %d of 4 blocks, %v", handle, n, err)
			}
		}
		_, err := f.Hub.SetBlockFor(bg, hubtest.Operator(), "anna@acme", hub.BlockInput{Handle: "anna@ACME"}, true)
		hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		_, err = f.Hub.SetBlockFor(bg, hubtest.Operator(), "anna@acme", hub.BlockInput{Handle: "frank@acme", Reason: "\x00"}, true)
		hubtest.WantCode(t, err, handoff.CodeInvalidParams)
	})
}

func TestOnlyTheOperatorSeesEditsBlocksForAndInvites(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	_, show := f.Hub.Agent(bg, anna, "anna@acme")
	_, edit := f.Hub.EditAgent(bg, anna, "anna@acme", hub.AgentEdit{Role: ptr("x")})
	_, block := f.Hub.SetBlockFor(bg, anna, "anna@acme", hub.BlockInput{Handle: "anna@acme"}, true)
	_, invite := f.Hub.Invite(bg, anna, hub.InviteInput{Handle: "x@y"})
	_, invites := f.Hub.Invites(bg, anna)
	for i, err := range []error{show, edit, block, invite, invites, f.Hub.RevokeInvite(bg, anna, "x")} {
		var e *handoff.Error
		if !errors.As(err, &e) || e.Code != handoff.CodePermissionDenied {
			t.Errorf("call %d: %v", i, err)
		}
	}
}
