package hub_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func catalog(f *hubtest.Fixture) hub.Catalog {
	f.T.Helper()
	c, err := f.Hub.Catalog(bg, hubtest.Operator())
	noError(f.T, err)
	return c
}

func capabilities(f *hubtest.Fixture) []string {
	f.T.Helper()
	var names []string
	for _, w := range catalog(f).Capabilities {
		names = append(names, w.Name)
	}
	return names
}

func addWords(f *hubtest.Fixture, kind string, names ...string) []hub.CatalogChange {
	f.T.Helper()
	out, err := f.Hub.AddToCatalog(bg, hubtest.Operator(), hub.CatalogInput{Kind: kind, Names: names})
	noError(f.T, err)
	return out
}

func TestTheCatalogCountsWhoBearsEachWord(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		for handle, in := range map[string]hub.AgentInput{
			"anna@acme":  {Capabilities: []string{"review", "deploy"}, Tags: map[string][]string{"team": {"platform", "ENG/BACKEND"}}},
			"frank@acme": {Capabilities: []string{"review"}, Tags: map[string][]string{"team": {"platform"}, "region": {"eu"}}},
		} {
			in.Handle = handle
			_, err := f.Hub.AddAgent(bg, hubtest.Operator(), in)
			noError(t, err)
		}
		disable(f, "frank@acme")
		addWords(f, "capability", "Review")
		if got := addWords(f, "tag", "team=data", "free", "team=data"); len(got) != 2 || !got[0].Changed || !got[1].Changed {
			t.Errorf("%+v", got)
		}
		if got := addWords(f, "tag", "team=platform"); got[0].Changed {
			t.Errorf("%+v", got)
		}
		want := hub.Catalog{
			Capabilities: []hub.CatalogWord{{"Review", 0}, {"deploy", 1}, {"review", 2}},
			Tags: []hub.CatalogTag{
				{hub.CatalogWord{"free", 0}, nil},
				{hub.CatalogWord{"region", 1}, []hub.CatalogWord{{"eu", 1}}},
				{hub.CatalogWord{"team", 2}, []hub.CatalogWord{{"ENG/BACKEND", 1}, {"data", 0}, {"platform", 2}}},
			},
		}
		if got := catalog(f); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v", got)
		}
		// From the word of the operator on a target may name it, although nobody matches yet.
		opened(f, f.Agent("eve@acme"), hub.OpenInput{Target: []byte(`{"strategy":"tag","selector":{"team":["data"]}}`)})
	})
}

func TestAWordThatAnAgentBearsStaysInTheCatalog(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		eve := f.Agent("eve@acme")
		able(f, "anna@acme")
		edit(f, "anna@acme", hub.AgentEdit{Tags: ptr(map[string][]string{"team": {"platform"}})})
		addWords(f, "capability", "spare")
		addWords(f, "tag", "team=data", "teams=x")
		remove := func(kind string, names ...string) ([]hub.CatalogChange, error) {
			return f.Hub.RemoveFromCatalog(bg, hubtest.Operator(), hub.CatalogInput{Kind: kind, Names: names})
		}
		for _, c := range []struct{ kind, name string }{{"capability", "code"}, {"tag", "team"}, {"tag", "team=platform"}} {
			_, err := remove(c.kind, c.name)
			if e := hubtest.WantCode(t, err, handoff.CodeInvalidTransition); !strings.Contains(e.Message, "anna@acme") || !slices.Equal(e.Details["agents"].([]string), []string{"anna@acme"}) {
				t.Errorf("%+v", e)
			}
		}
		_, err := remove("capability", "spare", "code") // all or none
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		_, err = remove("capability", "cod")
		if e := hubtest.WantCode(t, err, handoff.CodeNotFound); !strings.Contains(e.Hint, "Did you mean code?") {
			t.Errorf("%+v", e)
		}
		if got := capabilities(f); !slices.Equal(got, []string{"code", "spare"}) {
			t.Fatalf("%v", got)
		}

		id := opened(f, eve, hub.OpenInput{}).HandoffID // its target names code
		edit(f, "anna@acme", hub.AgentEdit{Capabilities: ptr([]string{}), Tags: ptr(map[string][]string{})})
		_, err = remove("capability", "code", "spare")
		noError(t, err)
		got, err := remove("tag", "team")
		if err != nil || !slices.Equal(got[0].Values, []string{"team=data", "team=platform"}) {
			t.Fatalf("%+v %v", got, err)
		}
		if c := catalog(f); len(c.Capabilities) != 0 || len(c.Tags) != 1 || c.Tags[0].Name != "teams" || len(c.Tags[0].Values) != 1 {
			t.Fatalf("%+v", c)
		}
		_, err = f.Hub.Open(bg, eve, hub.OpenInput{ProjectRoot: project, From: "eve@acme", Visibility: "public", Target: []byte(codeTarget)})
		hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		// What was created before is claimed by whoever is given the word later.
		edit(f, "anna@acme", hub.AgentEdit{Capabilities: ptr([]string{"code"})})
		if w := claimNext(f, callAs(f, "anna@acme")); w == nil || w.Handoff.ID != id || !slices.Equal(capabilities(f), []string{"code"}) {
			t.Fatalf("%+v", w)
		}
	})
}

// callAs is a call of an agent that exists.
func callAs(f *hubtest.Fixture, handle string) hub.Call {
	f.T.Helper()
	actor, err := f.Hub.ActAs(bg, handle)
	noError(f.T, err)
	return hub.Call{Actor: actor}
}

func TestOnlyTheOperatorWithProperWordsChangesTheCatalog(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	anna := f.Agent("anna@acme")
	_, err := f.Hub.Catalog(bg, anna)
	hubtest.WantCode(t, err, handoff.CodePermissionDenied)
	for _, change := range []func(hub.Call, hub.CatalogInput) ([]hub.CatalogChange, error){
		func(c hub.Call, in hub.CatalogInput) ([]hub.CatalogChange, error) {
			return f.Hub.AddToCatalog(bg, c, in)
		},
		func(c hub.Call, in hub.CatalogInput) ([]hub.CatalogChange, error) {
			return f.Hub.RemoveFromCatalog(bg, c, in)
		},
	} {
		_, err := change(anna, hub.CatalogInput{Kind: "capability", Names: []string{"x"}})
		hubtest.WantCode(t, err, handoff.CodePermissionDenied)
		for _, in := range []hub.CatalogInput{
			{Kind: "role", Names: []string{"x"}},
			{Kind: "capability"},
			{Kind: "capability", Names: []string{"ok", " "}},
			{Kind: "tag", Names: []string{"=v"}},
			{Kind: "tag", Names: []string{"k="}},
			{Kind: "tag", Names: []string{"k\x00=v"}},
			{Kind: "tag", Names: []string{"\xff"}},
		} {
			_, err := change(hubtest.Operator(), in)
			hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		}
		_, err = change(hubtest.Operator(), hub.CatalogInput{Kind: "tag", Names: []string{"k=" + strings.Repeat("x", 257)}})
		hubtest.WantCode(t, err, handoff.CodeContentTooLarge)
	}
	_, err = f.Hub.AddAgent(bg, hubtest.Operator(), hub.AgentInput{Handle: "bob@acme", Tags: map[string][]string{"a=b": {"c"}}})
	hubtest.WantCode(t, err, handoff.CodeInvalidParams)
	if c := catalog(f); len(c.Capabilities) != 0 || len(c.Tags) != 0 {
		t.Errorf("%+v", c)
	}
}

func TestNobodyOrdersMuchWorkWithManyUnknownWords(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna := f.Agent("anna@acme")
		var known []string
		var rules []string
		for i := range 32 {
			var values []string
			for j := range 20 {
				word := fmt.Sprintf("w%02d-%02d", i, j)
				known, values = append(known, "grp="+word), append(values, `"`+word+`x"`)
			}
			rules = append(rules, `{"strategy":"tag","selector":{"grp":[`+strings.Join(values, ",")+`]}}`)
		}
		addWords(f, "tag", known...)
		_, err := f.Hub.Open(bg, anna, hub.OpenInput{
			ProjectRoot: project, From: "anna@acme", Visibility: "public",
			Target: json.RawMessage(`{"strategy":"mixed","rules":[` + strings.Join(rules, ",") + `]}`),
		})
		e := hubtest.WantCode(t, err, handoff.CodeInvalidParams)
		unknown, _ := e.Details["unknown"].([]string)
		near, _ := e.Details["near_matches"].([]string)
		if len(unknown) != 20 || !strings.Contains(e.Message, "and 620 more") || len(near) == 0 || len(near) > 12 || !slices.Contains(near, "grp=w00-00") || e.Details["catalog"] != nil {
			t.Fatalf("%s\n%v", e.Message, e.Details)
		}
	})
}
