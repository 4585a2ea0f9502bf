package hub_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// otherRoot is another root, which the tests make a name of [project].
const otherRoot = "/home/anna/shop"

func openedIn(f *hubtest.Fixture, root string, from hub.Call, in hub.OpenInput) string {
	f.T.Helper()
	in.ProjectRoot, in.From, in.Visibility = root, from.Actor.Handle, "public"
	if in.Target == nil {
		in.Target = json.RawMessage(codeTarget)
	}
	out, err := f.Hub.Open(bg, from, in)
	noError(f.T, err)
	return out.HandoffID
}

func claimIn(root string, call hub.Call) hub.ClaimInput {
	return hub.ClaimInput{ProjectRoot: root, AgentID: call.Actor.Handle}
}

// drained claims until there is nothing left and gives the ids.
func drained(f *hubtest.Fixture, root string, call hub.Call) []string {
	f.T.Helper()
	var got []string
	for {
		out, err := f.Hub.Claim(bg, call, claimIn(root, call))
		noError(f.T, err)
		if out.Work == nil {
			return got
		}
		got = append(got, out.Work.Handoff.ID)
	}
}

func alias(f *hubtest.Fixture, root, of string) hub.Aliased {
	f.T.Helper()
	out, err := f.Hub.Alias(bg, hubtest.Operator(), hub.AliasInput{Root: root, Of: of})
	noError(f.T, err)
	return out
}

func workspaces(f *hubtest.Fixture) []hub.WorkspaceInfo {
	f.T.Helper()
	list, err := f.Hub.Workspaces(bg, hubtest.Operator())
	noError(f.T, err)
	return list
}

func members(f *hubtest.Fixture, in hub.MembersInput) hub.Membership {
	f.T.Helper()
	out, err := f.Hub.Members(bg, hubtest.Operator(), in)
	noError(f.T, err)
	return out
}

func TestWorkspacesAreListedWithWhatIsInThemNow(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		for range 3 {
			openedIn(f, `c:\Src\shop`, anna, hub.OpenInput{})
		}
		openedIn(f, "C:/src/SHOP/", anna, hub.OpenInput{ExpiresIn: 600})
		openedIn(f, project, anna, hub.OpenInput{Criteria: []string{"green"}})
		first := drained(f, project, cid)[0]
		_, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: holding(cid, first)})
		noError(t, err)
		_, err = f.Hub.Claim(bg, cid, claimIn(`C:\src\shop`, cid))
		noError(t, err)
		f.Send(anna, "cid@acme") // is of no workspace
		want := func(windows map[handoff.State]int) {
			t.Helper()
			list := workspaces(f)
			if len(list) != 2 || list[0].Root != project || list[1].Root != `C:\Src\shop` || list[0].CreatedAt.IsZero() || list[0].Strict || list[0].Members != 0 {
				t.Fatalf("%+v", list)
			}
			if !maps.Equal(list[0].Handoffs, map[handoff.State]int{handoff.Verifying: 1}) || !maps.Equal(list[1].Handoffs, windows) {
				t.Errorf("%v, %v", list[0].Handoffs, list[1].Handoffs)
			}
		}
		want(map[handoff.State]int{handoff.Open: 3, handoff.Claimed: 1})
		// Nobody has written down yet that the lease lapsed and the deadline passed.
		f.Clock.Advance(11 * time.Minute)
		want(map[handoff.State]int{handoff.Open: 3, handoff.Expired: 1})
		_, err = f.Hub.Workspaces(bg, anna)
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
	})
}

func TestAnAliasBringsWhatWasCreatedUnderIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		held := openedIn(f, otherRoot, anna, hub.OpenInput{})
		drained(f, otherRoot, cid)
		verified := openedIn(f, otherRoot, anna, hub.OpenInput{Criteria: []string{"green"}})
		drained(f, otherRoot, cid)
		in := holding(cid, verified)
		in.ProjectRoot = otherRoot
		_, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: in})
		noError(t, err)
		low := openedIn(f, otherRoot, anna, hub.OpenInput{Priority: "low"})
		waits := openedIn(f, otherRoot, anna, hub.OpenInput{DependsOn: []string{held}})
		later := openedIn(f, otherRoot, anna, hub.OpenInput{Target: json.RawMessage(`{"strategy":"direct_with_fallback","agent_id":"eve@acme","fallback_after_seconds":600,"fallback":` + codeTarget + `}`)})
		here := openedIn(f, project, anna, hub.OpenInput{Priority: "low"})

		if out := alias(f, otherRoot+"/.", project); !out.Changed || out.Moved != 5 || out.Name.Root != otherRoot || out.Of.Root != project {
			t.Fatalf("%+v", out)
		}
		if out := alias(f, otherRoot, project); out.Changed || out.Moved != 0 {
			t.Fatalf("again: %+v", out)
		}
		list := workspaces(f)
		if len(list) != 1 || list[0].Root != project || len(list[0].Aliases) != 1 || list[0].Aliases[0].Root != otherRoot ||
			!maps.Equal(list[0].Handoffs, map[handoff.State]int{handoff.Open: 4, handoff.Claimed: 1, handoff.Verifying: 1}) {
			t.Fatalf("%+v", list)
		}
		// By either name, in the order in which they are due.
		if got := drained(f, otherRoot, dora); !slices.Equal(got, []string{low, here}) {
			t.Errorf("%v", got)
		}
		page, err := f.Hub.Available(bg, anna, hub.AvailableInput{ProjectRoot: project, AgentID: "anna@acme", Scope: hub.ScopeToVerify})
		if err != nil || len(page.Works) != 1 || page.Works[0].Handoff.ID != verified {
			t.Errorf("to verify: %+v, %v", page, err)
		}
		in = holding(cid, held)
		for _, in.ProjectRoot = range []string{otherRoot, project} { // the second repeats the first
			_, err := f.Hub.Deliver(bg, cid, hub.DeliverInput{HoldInput: in})
			noError(t, err)
		}
		if got := drained(f, project, dora); !slices.Equal(got, []string{waits}) {
			t.Errorf("unblocked: %v", got)
		}
		f.Clock.Advance(601 * time.Second)
		if got := drained(f, project, cid); !slices.Contains(got, later) {
			t.Errorf("the fallback: %v", got)
		}
		if got := openedIn(f, otherRoot, anna, hub.OpenInput{DependsOn: []string{here, waits}}); look(f, got).Handoff.WorkspaceID != list[0].ID {
			t.Error("created outside")
		}
	})
}

func TestWhatIsCreatedWhileARootBecomesAnAliasIsInTheOneWorkspace(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		cid := able(f, "cid@acme")
		for round := range 4 {
			root, other := fmt.Sprintf("/r%d", round), fmt.Sprintf("/r%d/other", round)
			var mu sync.Mutex
			var want []string
			var wg sync.WaitGroup
			for i := range 6 {
				from := f.Agent(fmt.Sprintf("a%d-%d@acme", round, i))
				wg.Go(func() {
					for j := range 8 {
						out, err := f.Hub.Open(bg, from, hub.OpenInput{
							ProjectRoot: []string{root, other}[j%2], From: from.Actor.Handle, Visibility: "public", Target: json.RawMessage(codeTarget),
						})
						if err != nil {
							t.Error(err)
						}
						mu.Lock()
						want = append(want, out.HandoffID)
						mu.Unlock()
					}
				})
			}
			wg.Go(func() {
				eventually(t, "some are there", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(want) >= 10 || t.Failed()
				})
				alias(f, other, root)
			})
			wg.Wait()
			got := drained(f, root, cid)
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Fatalf("%d of %d can be claimed", len(got), len(want))
			}
		}
	})
}

func TestAliasesNeverFormAChainOrALoop(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		openedIn(f, "/a", able(f, "anna@acme"), hub.OpenInput{})
		alias(f, "/a", "/b")
		alias(f, "/c", "/a") // the end of it is /b
		alias(f, "/b", "/d") // and /a and /c go along
		list := workspaces(f)
		if len(list) != 1 || list[0].Root != "/d" || len(list[0].Aliases) != 3 || list[0].Handoffs[handoff.Open] != 1 {
			t.Fatalf("%+v", list)
		}
		for _, pair := range [][2]string{{"/d", "/a"}, {"/d", "/d"}, {"/d", "/c/../b"}} {
			_, err := f.Hub.Alias(bg, hubtest.Operator(), hub.AliasInput{Root: pair[0], Of: pair[1]})
			if e := hubtest.WantCode(t, err, handoff.CodeInvalidParams); e.Details["field"] != "of" {
				t.Errorf("%+v", e)
			}
		}
		// Two at once, each against the other.
		for i := range 10 {
			one, two := fmt.Sprintf("/one%d", i), fmt.Sprintf("/two%d", i)
			var errs [2]error
			var wg sync.WaitGroup
			for j, pair := range [][2]string{{one, two}, {two, one}} {
				wg.Go(func() {
					_, errs[j] = f.Hub.Alias(bg, hubtest.Operator(), hub.AliasInput{Root: pair[0], Of: pair[1]})
				})
			}
			wg.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("%v", errs)
			}
		}
		if list := workspaces(f); len(list) != 11 {
			t.Errorf("%+v", list)
		}
	})
}

func TestAnAliasThatWasCutOffIsFinishedByASweep(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid := f.Agent("anna@acme"), able(f, "cid@acme")
		here := openedIn(f, project, anna, hub.OpenInput{})
		there := openedIn(f, otherRoot, anna, hub.OpenInput{})
		noError(t, f.Store.Write(bg, func(tx *store.Tx) error { return tx.SetAlias(workspaceID(otherRoot), workspaceID(project)) }))
		if got := workspaces(f); len(got) != 1 || got[0].Handoffs[handoff.Open] != 2 {
			t.Errorf("%+v", got)
		}
		// Where it is named, it is found even before.
		if _, err := f.Hub.Get(bg, cid, hub.GetInput{ProjectRoot: project, AgentID: "cid@acme", HandoffID: there}); err != nil {
			t.Error(err)
		}
		if n, err := f.Hub.Sweep(bg); n != 0 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		if got := drained(f, project, cid); !slices.Equal(got, []string{here, there}) {
			t.Fatalf("%v", got)
		}
	})
}

func workspaceID(root string) string {
	_, comparison, err := handoff.NormalizeProjectRoot(root)
	if err != nil {
		panic(err)
	}
	return handoff.WorkspaceID(comparison)
}

// parkedClaim is a claim of the next one that waits; it returns once it does.
func parkedClaim(f *hubtest.Fixture, root string, call hub.Call, n int) <-chan error {
	f.T.Helper()
	ch := make(chan error, 1)
	in := claimIn(root, call)
	in.Wait = hub.MaxWait
	go func() {
		out, err := f.Hub.Claim(bg, call, in)
		if err == nil && out.Work == nil {
			err = fmt.Errorf("nothing was claimed: %+v", out)
		}
		ch <- err
	}()
	parked(f, n)
	return ch
}

// soon wants an answer before a parked call looks again by itself.
func soon(t *testing.T, ch <-chan error) error {
	t.Helper()
	select {
	case err := <-ch:
		return err
	case <-time.After(2 * time.Second):
		t.Fatal("the parked call was not woken")
		return nil
	}
}

func TestWhoWaitsIsWokenByWhatAnAliasBrings(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		openedIn(f, otherRoot, anna, hub.OpenInput{})
		brought := parkedClaim(f, project, cid, 1)
		alias(f, otherRoot, project)
		noError(t, soon(t, brought))
		parked(f, 0)

		// One that waits under the old name is woken by what is created under the new one.
		waits := parkedClaim(f, "/old", dora, 1)
		alias(f, "/old", "/new")
		openedIn(f, "/new", anna, hub.OpenInput{})
		noError(t, soon(t, waits))
	})
}

func TestAStrictWorkspaceAdmitsItsMembersOnly(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, cid, dora := f.Agent("anna@acme"), able(f, "cid@acme"), able(f, "dora@acme")
		if got := members(f, hub.MembersInput{Root: project}); got.Strict || len(got.Members) != 0 || got.Root != project {
			t.Fatalf("%+v", got)
		}
		if len(workspaces(f)) != 0 {
			t.Error("looking made a workspace")
		}
		got := members(f, hub.MembersInput{Root: project + "//", Add: []string{"DORA@acme", "anna@acme", "anna@acme"}, Strict: ptr(true)})
		if !got.Strict || len(got.Members) != 2 || got.Members[0].Handle != "anna@acme" || got.Members[1].Handle != "dora@acme" {
			t.Fatalf("%+v", got)
		}
		openedIn(f, project, anna, hub.OpenInput{})
		id := openedIn(f, project, anna, hub.OpenInput{})
		_, err := f.Hub.Claim(bg, cid, claimIn(project, cid))
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
		if got := drained(f, project, dora); len(got) != 2 {
			t.Fatalf("%v", got)
		}

		// What a member holds stays with it when it is removed; what it waits for does not.
		waits := parkedClaim(f, project, dora, 1)
		if got := members(f, hub.MembersInput{Root: project, Remove: []string{"dora@acme", "cid@acme"}}); len(got.Members) != 1 || !got.Strict {
			t.Fatalf("%+v", got)
		}
		hubtest.WantCode(t, soon(t, waits), handoff.CodePermissionDenied)
		_, err = f.Hub.Deliver(bg, dora, hub.DeliverInput{HoldInput: holding(dora, id)})
		noError(t, err)

		// A root that becomes an alias is as strict as what it stands for.
		openedIn(f, otherRoot, cid, hub.OpenInput{Target: json.RawMessage(`{"strategy":"broadcast"}`)})
		alias(f, otherRoot, project)
		for _, root := range []string{project, otherRoot} {
			_, err = f.Hub.Claim(bg, dora, claimIn(root, dora))
			if e := hubtest.WantCode(t, err, handoff.CodePermissionDenied); !strings.Contains(e.Hint, "handclasp workspace members") {
				t.Errorf("%+v", e)
			}
		}
		if got := members(f, hub.MembersInput{Root: otherRoot, Strict: ptr(false)}); got.Root != project || len(got.Members) != 1 {
			t.Errorf("%+v", got)
		}
		if got := drained(f, project, dora); len(got) != 1 {
			t.Errorf("%v", got)
		}
		if list := workspaces(f); len(list) != 1 || list[0].Members != 1 {
			t.Errorf("%+v", list)
		}
	})
}

func TestImpossibleChangesOfWorkspacesAreRefused(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	for _, call := range []func(hub.Call) error{
		func(c hub.Call) error { _, err := f.Hub.Alias(bg, c, hub.AliasInput{Root: "/a", Of: "/b"}); return err },
		func(c hub.Call) error { _, err := f.Hub.Members(bg, c, hub.MembersInput{Root: "/a"}); return err },
	} {
		hubtest.WantCode(t, call(anna), handoff.CodePermissionDenied)
	}
	for _, in := range []hub.AliasInput{{Root: "", Of: "/a"}, {Root: "/a", Of: "shop"}, {Root: "./a", Of: "/a"}} {
		_, err := f.Hub.Alias(bg, hubtest.Operator(), in)
		hubtest.WantCode(t, err, handoff.CodeWorkspaceUnresolved)
	}
	for code, in := range map[handoff.Code]hub.MembersInput{
		handoff.CodeWorkspaceUnresolved: {Root: "shop"},
		handoff.CodeNotFound:            {Root: "/a", Add: []string{"anna@acme", "ana@acme"}, Strict: ptr(true)},
		handoff.CodeInvalidParams:       {Root: "/a", Add: []string{"anna@acme"}, Remove: []string{"ANNA@acme"}},
	} {
		_, err := f.Hub.Members(bg, hubtest.Operator(), in)
		hubtest.WantCode(t, err, code)
	}
	if list := workspaces(f); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}
