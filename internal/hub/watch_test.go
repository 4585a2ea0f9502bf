package hub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func follow(f *hubtest.Fixture, call hub.Call, in hub.EventWaitInput) hub.EventPage {
	f.T.Helper()
	if in.ProjectRoot == "" {
		in.ProjectRoot = project
	}
	in.AgentID = call.Actor.Handle
	out, err := f.Hub.EventWait(bg, call, in)
	noError(f.T, err)
	return out
}

// allOf reads a stream from its beginning, page by page, and gives the events as "type id actor" once
// the log shows everything that was committed.
func allOf(f *hubtest.Fixture, call hub.Call, in hub.EventWaitInput) []string {
	f.T.Helper()
	settled(f)
	in.Cursor = "0"
	var list []string
	for more := true; more; {
		page := follow(f, call, in)
		for _, e := range page.Events {
			list = append(list, fmt.Sprint(e.Type, " ", e.HandoffID, " ", e.Actor))
		}
		in.Cursor, more = page.NextCursor, page.HasMore
	}
	return list
}

// settled waits until readers of the log see everything that was committed.
func settled(f *hubtest.Fixture) {
	f.T.Helper()
	hubtest.Eventually(f.T, func() bool {
		unsettled := true
		noError(f.T, f.Store.Read(bg, func(tx *store.Tx) error {
			st, err := tx.Stats()
			unsettled = st.Unsettled > 0
			return err
		}))
		return !unsettled
	})
}

func lines(list ...string) []string { return list }

func wantLines(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s:\n  %s\nwant\n  %s", what, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func TestAWorkspaceIsFollowedByWhoeverMaySeeItsHandoffs(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora, eve := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme"), f.Agent("eve@acme")
		public := opened(f, anna, hub.OpenInput{}).HandoffID
		eligible := opened(f, anna, hub.OpenInput{Visibility: "eligible"}).HandoffID
		private := opened(f, anna, hub.OpenInput{Visibility: "private"}).HandoffID
		f.Send(anna, "cid@acme") // a handoff of another door has no workspace
		elsewhere, err := f.Hub.Open(bg, anna, hub.OpenInput{ProjectRoot: "/srv/other", From: "anna@acme", Visibility: "public", Target: json.RawMessage(codeTarget)})
		noError(t, err)
		created := func(id string) string { return "handoff.created " + id + " anna@acme" }
		claimed := func(id string) string { return "handoff.claimed " + id + " cid@acme" }

		wantLines(t, "one who could claim, while all are open", allOf(f, dora, hub.EventWaitInput{}), lines(created(public), created(eligible), created(private)))
		wantLines(t, "one who could not", allOf(f, eve, hub.EventWaitInput{}), lines(created(public)))
		for _, id := range []string{public, eligible, private} {
			_, err := f.Hub.Claim(bg, cid, hub.ClaimInput{ProjectRoot: project, AgentID: "cid@acme", ThreadID: id})
			noError(t, err)
		}
		all := lines(created(public), created(eligible), created(private), claimed(public), claimed(eligible), claimed(private))
		wantLines(t, "its creator", allOf(f, anna, hub.EventWaitInput{}), all)
		wantLines(t, "its holder", allOf(f, cid, hub.EventWaitInput{Limit: 1}), all)
		wantLines(t, "one who came too late", allOf(f, dora, hub.EventWaitInput{}), lines(created(public), created(eligible), claimed(public), claimed(eligible)))
		wantLines(t, "one who could not claim", allOf(f, eve, hub.EventWaitInput{}), lines(created(public), claimed(public)))
		wantLines(t, "another workspace", allOf(f, eve, hub.EventWaitInput{ProjectRoot: "/srv/other"}), lines(created(elsewhere.HandoffID)))

		// The holder loses it to another: of a private one it sees nothing any more.
		f.Clock.Advance(time.Hour)
		_, err = f.Hub.Claim(bg, dora, hub.ClaimInput{ProjectRoot: project, AgentID: "dora@acme", ThreadID: private})
		noError(t, err)
		if list := allOf(f, cid, hub.EventWaitInput{Filters: hub.EventFilters{HandoffID: private}}); len(list) != 0 {
			t.Fatalf("a past holder sees %v", list)
		}
		_, err = f.Hub.EventWait(bg, cid, hub.EventWaitInput{ProjectRoot: project, AgentID: "cid@acme", Stream: hub.StreamHandoff, Filters: hub.EventFilters{HandoffID: private}})
		hubtest.WantCode(t, err, handoff.CodeNotFound)
	})
}

func TestFiltersLeaveOnlyWhatFitsAllOfThem(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		one := opened(f, anna, hub.OpenInput{TraceID: "a trace"}).HandoffID
		two := opened(f, anna, hub.OpenInput{}).HandoffID
		claimNext(f, cid)
		_, err := f.Hub.Release(bg, cid, hub.ReleaseInput{HoldInput: holding(cid, one), Reason: "no time"})
		noError(t, err)
		madeOne, madeTwo := "handoff.created "+one+" anna@acme", "handoff.created "+two+" anna@acme"
		took, said, gave := "handoff.claimed "+one+" cid@acme", "message.created "+one+" cid@acme", "handoff.released "+one+" cid@acme"
		for _, c := range []struct {
			name    string
			filters hub.EventFilters
			want    []string
		}{
			{"none", hub.EventFilters{}, lines(madeOne, madeTwo, took, said, gave)},
			{"a name", hub.EventFilters{Types: []string{"handoff.claimed"}}, lines(took)},
			{"names in any case", hub.EventFilters{Types: []string{"Handoff.Claimed", "handoff.released"}}, lines(took, gave)},
			{"a beginning", hub.EventFilters{Types: []string{"message."}}, lines(said)},
			{"a beginning with a star", hub.EventFilters{Types: []string{"handoff.*"}}, lines(madeOne, madeTwo, took, gave)},
			{"who did it", hub.EventFilters{AgentID: "CID@acme"}, lines(took, said, gave)},
			{"who did it by its id", hub.EventFilters{AgentID: cid.Actor.ID}, lines(took, said, gave)},
			{"the hub", hub.EventFilters{AgentID: "hub"}, nil},
			{"a handoff", hub.EventFilters{HandoffID: two}, lines(madeTwo)},
			{"a handoff that is none", hub.EventFilters{HandoffID: "x"}, nil},
			{"a trace", hub.EventFilters{TraceID: "a trace"}, lines(madeOne, took, said, gave)},
			{"a trace and a name", hub.EventFilters{TraceID: "a trace", Types: []string{"handoff.created"}}, lines(madeOne)},
		} {
			wantLines(t, c.name, allOf(f, anna, hub.EventWaitInput{Filters: c.filters}), c.want)
			wantLines(t, c.name+", what concerns the agent", allOf(f, anna, hub.EventWaitInput{Stream: hub.StreamAgent, Filters: withHandoffs(c.filters)}), c.want)
		}
		for _, c := range []struct {
			field string
			in    hub.EventFilters
			says  string
		}{
			{"filters.type", hub.EventFilters{Types: []string{"handof.claimed"}}, "did you mean handoff.claimed"},
			{"filters.type", hub.EventFilters{Types: []string{"*"}}, "handoff.claimed"},
			{"filters.type", hub.EventFilters{Types: []string{"handoff"}}, "handoff."},
			{"filters.agent_id", hub.EventFilters{AgentID: "cidd@acme"}, "did you mean cid@acme?"},
		} {
			_, err := f.Hub.EventWait(bg, anna, hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Filters: c.in})
			if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); e.Details["field"] != c.field || !strings.Contains(e.Message, c.says) {
				t.Errorf("%+v: %v", c.in, e)
			}
		}
	})
}

// withHandoffs leaves out what happens to agents, unless the filter says more.
func withHandoffs(in hub.EventFilters) hub.EventFilters {
	if len(in.Types) == 0 && in.HandoffID == "" && in.TraceID == "" {
		in.Types = []string{"handoff.", "message."}
	}
	return in
}

func TestAnAgentFollowsWhatItTakesPartInAndItself(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora, eve := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme"), f.Agent("eve@acme")
		team := f.Send(anna, "dora@acme")
		pool := opened(f, anna, hub.OpenInput{Criteria: []string{"c"}, VerifyBy: json.RawMessage(`{"kind":"capability","capability":"code"}`)}).HandoffID
		f.Send(anna, "cid@acme")
		if list := allOf(f, dora, hub.EventWaitInput{Stream: hub.StreamAgent, Filters: hub.EventFilters{Types: []string{"handoff."}}}); len(list) != 1 {
			t.Fatalf("what it could claim is none of its business yet: %v", list)
		}
		claimNext(f, cid)
		_, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, pool)})
		noError(t, err)
		block(f, dora, "eve@acme", true)
		_, err = f.Hub.SetBlockFor(bg, hubtest.Operator(), "dora@acme", hub.BlockInput{Handle: "anna@acme"}, true)
		noError(t, err)
		_, err = f.Hub.EditAgent(bg, hubtest.Operator(), "dora@acme", hub.AgentEdit{Role: new("r")})
		noError(t, err)
		_, err = f.Hub.AddKey(bg, hubtest.Operator(), "dora@acme", "another")
		noError(t, err)
		for _, stream := range []string{hub.StreamAgent, hub.StreamAll} {
			wantLines(t, "a recipient who verifies too, "+stream, allOf(f, dora, hub.EventWaitInput{Stream: stream}), lines(
				"agent.added  operator", "key.created  operator", "handoff.created "+team+" anna@acme", "handoff.created "+pool+" anna@acme",
				"handoff.claimed "+pool+" cid@acme", "handoff.verification_requested "+pool+" cid@acme",
				"block.added  dora@acme", "block.added  operator", "agent.edited  operator", "key.created  operator"))
		}
		wantLines(t, "one who was blocked", allOf(f, eve, hub.EventWaitInput{Stream: hub.StreamAgent}), lines("agent.added  operator", "key.created  operator", "block.added  dora@acme"))
	})
}

func TestOneHandoffIsFollowedByItsOwnCount(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{}).HandoffID
		in := hub.EventWaitInput{Stream: hub.StreamHandoff, Filters: hub.EventFilters{HandoffID: id}}
		end := follow(f, anna, in)
		if len(end.Events) != 0 || end.HasMore || end.NextCursor == "" {
			t.Fatalf("from now on: %+v", end)
		}
		hide := olderTransaction(t, f) // on PostgreSQL it keeps the log from its readers
		claimNext(f, cid)
		_, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, id)})
		noError(t, err)
		in.Cursor, in.Limit = "0", 2
		first := follow(f, anna, in)
		in.Cursor = first.NextCursor
		second := follow(f, anna, in)
		hide()
		if len(first.Events) != 2 || !first.HasMore || len(second.Events) != 1 || second.HasMore {
			t.Fatalf("%+v, %+v", first, second)
		}
		for i, e := range append(first.Events, second.Events...) {
			if e.Seq != i+1 || e.HandoffID != id {
				t.Fatalf("event %d: %+v", i, e)
			}
		}
		in.Cursor = end.NextCursor
		if page := follow(f, anna, in); len(page.Events) != 2 || page.Events[0].Type != handoff.EventClaimed {
			t.Fatalf("behind the end as it was: %+v", page)
		}
		team := f.Send(anna, "cid@acme")
		in = hub.EventWaitInput{ProjectRoot: "/srv/any", Stream: hub.StreamHandoff, Cursor: "0", Filters: hub.EventFilters{HandoffID: team}}
		if page := follow(f, cid, in); len(page.Events) != 1 {
			t.Fatalf("of another door, in any workspace: %+v", page)
		}
	})
}

func TestACursorCountsForItsStreamOnly(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		able(f, "cid@acme")
		one, two := opened(f, anna, hub.OpenInput{}).HandoffID, opened(f, anna, hub.OpenInput{}).HandoffID
		ask := func(stream, id, cursor string) error {
			_, err := f.Hub.EventWait(bg, anna, hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Stream: stream, Cursor: cursor, Filters: hub.EventFilters{HandoffID: id}})
			return err
		}
		cursors := map[string]string{}
		for _, stream := range append(hub.Streams(), hub.StreamAll) {
			page := follow(f, anna, hub.EventWaitInput{Stream: stream, Filters: hub.EventFilters{HandoffID: one}})
			cursors[stream] = page.NextCursor
			noError(t, ask(stream, one, page.NextCursor))
		}
		for stream := range cursors {
			for other, cursor := range cursors {
				if stream != other {
					hubtest.WantCode(t, ask(stream, one, cursor), handoff.CodeInvalidParams)
				}
			}
			for _, garbage := range []string{"x", "1", "-1", "w.", "a.", "h.", "00", "w.0", "h.0.0", "w.a.b.c", cursors[stream] + "x", "h.." + one, strings.Repeat("9", 400)} {
				if garbage != cursors[stream] {
					hubtest.WantCode(t, ask(stream, one, garbage), handoff.CodeInvalidParams)
				}
			}
		}
		hubtest.WantCode(t, ask(hub.StreamHandoff, two, cursors[hub.StreamHandoff]), handoff.CodeInvalidParams)
		hubtest.WantCode(t, ask(hub.StreamHandoff, "", ""), handoff.CodeInvalidParams)
		hubtest.WantCode(t, ask("workspaces", "", ""), handoff.CodeInvalidParams)

		// A restored hub may count the same numbers again.
		pool := cursors
		var backup bytes.Buffer
		noError(t, f.Hub.Backup(bg, hubtest.Operator(), &backup))
		g := elsewhere(t, f.Store.Kind(), backup.Bytes())
		key, err := g.Hub.AddKey(bg, hubtest.Operator(), "anna@acme", "")
		noError(t, err)
		actor, err := g.Hub.Authenticate(bg, key.Secret)
		noError(t, err)
		for stream, cursor := range pool {
			_, err := g.Hub.EventWait(bg, hub.Call{Actor: actor}, hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Stream: stream, Cursor: cursor, Filters: hub.EventFilters{HandoffID: one}})
			hubtest.WantCode(t, err, handoff.CodeCursorExpired)
		}
	})
}

func TestWhatADependentWaitsForIsNamedToThoseWhoMaySeeIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, eve := f.Agent("anna@acme"), f.Agent("eve@acme")
		able(f, "cid@acme")
		hidden := opened(f, anna, hub.OpenInput{Visibility: "private"}).HandoffID
		opened(f, anna, hub.OpenInput{DependsOn: []string{hidden}})
		_, err := f.Hub.TakeBack(bg, anna, hub.TakeBackInput{HoldInput: holding(anna, hidden)})
		noError(t, err)
		settled(f)
		for call, want := range map[*hub.Call]string{&anna: hidden, &eve: ""} {
			page := follow(f, *call, hub.EventWaitInput{Cursor: "0", Filters: hub.EventFilters{Types: []string{"handoff.dependency_failed"}}})
			if len(page.Events) != 1 || page.Events[0].SubjectID != want {
				t.Errorf("%s sees %+v", call.Actor.Handle, page.Events)
			}
		}
		list, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: "0", As: "eve@acme"})
		noError(t, err)
		if text := fmt.Sprint(list); strings.Contains(text, hidden) {
			t.Errorf("the operator's view of what it sees: %s", text)
		}
	})
}

func TestAStrictWorkspaceIsFollowedByItsMembersOnly(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, eve := f.Agent("anna@acme"), f.Agent("eve@acme")
		able(f, "cid@acme")
		opened(f, anna, hub.OpenInput{})
		yes := true
		_, err := f.Hub.Members(bg, hubtest.Operator(), hub.MembersInput{Root: project, Add: []string{"anna@acme"}, Strict: &yes})
		noError(t, err)
		if list := allOf(f, anna, hub.EventWaitInput{}); len(list) != 1 {
			t.Fatalf("a member: %v", list)
		}
		_, err = f.Hub.EventWait(bg, eve, hub.EventWaitInput{ProjectRoot: project, AgentID: "eve@acme"})
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
		for _, stream := range []string{hub.StreamAgent, hub.StreamAll} {
			if list := allOf(f, eve, hub.EventWaitInput{Stream: stream, Filters: hub.EventFilters{Types: []string{"handoff."}}}); len(list) != 0 {
				t.Fatalf("one who is none, %s: %v", stream, list)
			}
		}
	})
}

func TestAWorkspaceIsFollowedByItsOtherNameToo(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		before := opened(f, anna, hub.OpenInput{}).HandoffID
		settled(f)
		ch := asleep(f, waitsForEvent(f, cid, hub.EventWaitInput{}))
		_, err := f.Hub.Alias(bg, hubtest.Operator(), hub.AliasInput{Root: project, Of: "/srv/main"})
		noError(t, err)
		opened(f, anna, hub.OpenInput{})
		if got := came(t, "one who waited under the name that became another", ch); got != "handoff.created" {
			t.Fatalf("it came back with %q", got)
		}
		for _, root := range []string{project, "/srv/main"} {
			if list := allOf(f, cid, hub.EventWaitInput{ProjectRoot: root}); len(list) != 2 || !strings.Contains(list[0], before) {
				t.Errorf("%s: %v", root, list)
			}
		}
	})
}

func TestALongLogIsReadInBoundedSteps(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, eve := f.Agent("anna@acme"), f.Agent("eve@acme")
		able(f, "cid@acme")
		foreign(f, 6000)
		id := opened(f, anna, hub.OpenInput{}).HandoffID
		settled(f)
		first := follow(f, eve, hub.EventWaitInput{Cursor: "0", Wait: hub.MaxWait})
		if len(first.Events) != 0 || !first.HasMore || first.TimedOut || first.NextCursor == "0" {
			t.Fatalf("after so many rows it answers: %+v", first)
		}
		second := follow(f, eve, hub.EventWaitInput{Cursor: first.NextCursor})
		if len(second.Events) != 1 || second.Events[0].HandoffID != id || second.HasMore {
			t.Fatalf("and goes on from there: %+v", second)
		}
		// The operator's look at what it sees goes on by itself.
		list, _, err := f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: second.NextCursor[2:], As: "eve@acme"})
		if err != nil || len(list) != 0 {
			t.Fatalf("behind the end: %v %v", list, err)
		}
		foreign(f, 6000)
		last := opened(f, anna, hub.OpenInput{}).HandoffID
		settled(f)
		list, _, err = f.Hub.Events(bg, hubtest.Operator(), hub.EventsInput{Cursor: second.NextCursor[2:], As: "eve@acme"})
		if err != nil || len(list) != 1 || list[0].HandoffID != last {
			t.Fatalf("far behind: %v %v", list, err)
		}
	})
}

func TestWhoActedByWhichSessionIsItsOwnBusiness(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, eve := f.Agent("anna@acme"), f.Agent("eve@acme")
		able(f, "cid@acme")
		id := opened(f, anna, hub.OpenInput{}).HandoffID
		noError(t, f.Store.Write(bg, func(tx *store.Tx) error {
			return tx.InsertEvent(&handoff.Event{Type: handoff.EventExtended, HandoffID: id, Seq: 2, ActorID: anna.Actor.ID, SessionID: "s", At: tx.Now()})
		}))
		for call, want := range map[*hub.Call]string{&anna: "s", &eve: ""} {
			page := follow(f, *call, hub.EventWaitInput{Stream: hub.StreamHandoff, Cursor: "0", Filters: hub.EventFilters{HandoffID: id, Types: []string{"handoff.extended"}}})
			if len(page.Events) != 1 || page.Events[0].SessionID != want {
				t.Errorf("%s sees %+v", call.Actor.Handle, page.Events)
			}
		}
	})
}

func TestNobodyFollowsAsAnother(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		f.Agent("eve@acme")
		for what, c := range map[string]struct {
			in   hub.EventWaitInput
			code handoff.Code
		}{
			"another agent":     {hub.EventWaitInput{ProjectRoot: project, AgentID: "eve@acme"}, handoff.CodePermissionDenied},
			"a relative root":   {hub.EventWaitInput{ProjectRoot: "shop", AgentID: "anna@acme"}, handoff.CodeWorkspaceUnresolved},
			"no root":           {hub.EventWaitInput{AgentID: "anna@acme"}, handoff.CodeWorkspaceUnresolved},
			"too long a wait":   {hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Wait: time.Minute}, handoff.CodeInvalidParams},
			"too large a limit": {hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Limit: 501}, handoff.CodeInvalidParams},
			"an unknown id":     {hub.EventWaitInput{ProjectRoot: project, AgentID: "anna@acme", Stream: hub.StreamHandoff, Filters: hub.EventFilters{HandoffID: "x"}}, handoff.CodeNotFound},
		} {
			if _, err := f.Hub.EventWait(bg, anna, c.in); handoff.CodeOf(err) != c.code {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := f.Hub.EventWait(bg, hubtest.Operator(), hub.EventWaitInput{ProjectRoot: project, AgentID: "operator"})
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
	})
}
