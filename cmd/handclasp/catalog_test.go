package main

import (
	"strings"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/restapi"
)

func TestTheCatalogIsListedFilledAndEmptied(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := where(t, kind)
			with := func(args ...string) []string { return append(args, at...) }
			mustRun(t, with("agent", "add", "anna@acme", "--tag", "team=platform")...)
			mustRun(t, with("agent", "edit", "anna@acme", "--no-tags")...)
			mustRun(t, with("agent", "edit", "anna@acme", "--capability", "review\x1b[2J")...)
			if out := mustRun(t, with("catalog", "add", "capability", "deploy", "deploy to eu", "deploy")...); out != "added capability deploy\nadded capability deploy to eu\n" {
				t.Errorf("%q", out)
			}
			if out := mustRun(t, with("catalog", "add", "tag", "team=platform")...); !strings.Contains(out, "there already; nothing changed") {
				t.Errorf("%q", out)
			}
			out := mustRun(t, with("catalog", "list")...)
			rows := strings.Split(out, "\n")
			if len(rows) != 7 || strings.ContainsRune(out, '\x1b') {
				t.Errorf("%q", out)
			}
			for i, want := range []string{"KIND NAME AGENTS", "capability deploy 0", "capability deploy to eu 0", "capability review", "tag team 0", "tag team=platform 0"} {
				if got := strings.Join(strings.Fields(rows[i]), " "); !strings.HasPrefix(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			}
			list := runJSON[restapi.Catalog](t, with("catalog", "list")...)
			if len(list.Capabilities) != 3 || list.Capabilities[2].Agents != 1 || len(list.Tags) != 1 || list.Tags[0].Values[0] != (restapi.CatalogWord{Name: "platform"}) {
				t.Errorf("%+v", list)
			}
			if out := mustRun(t, with("catalog", "remove", "tag", "team")...); out != "removed tag team with team=platform; open handoffs that name it stay as they are\n" {
				t.Errorf("%q", out)
			}
			removed := runJSON[restapi.CatalogChanges](t, with("catalog", "remove", "capability", "deploy")...)
			if len(removed.Changes) != 1 || removed.Changes[0].Kind != "capability" || removed.Changes[0].Name != "deploy" || !removed.Changes[0].Changed {
				t.Errorf("%+v", removed)
			}
			refused(t, 1, "is borne by anna@acme. Nothing was changed. Take it from them first: handclasp agent edit HANDLE", with("catalog", "remove", "capability", "review\x1b[2J")...)
			refused(t, 1, "Did you mean deploy to eu?", with("catalog", "remove", "capability", "deploy to us")...)
			refused(t, 1, "team=platform", with("catalog", "add", "tag", "team=")...)
			for _, args := range [][]string{{"catalog", "add", "capability"}, {"catalog", "add", "role", "x"}, {"catalog", "remove"}} {
				if p := runProgram(t.Context(), with(args...)...); p.code != 2 || !strings.Contains(p.stderr.String(), "Try: handclasp catalog") {
					t.Errorf("%v: %d %s", args, p.code, p.stderr.String())
				}
			}
		})
	}
}

func TestAnEmptyCatalogSaysHowItIsFilled(t *testing.T) {
	t.Parallel()
	data, _ := withAgents(t, "anna@acme")
	if out := mustRun(t, "catalog", "list", "--data", data); !strings.Contains(out, "handclasp catalog add") {
		t.Errorf("%q", out)
	}
	if list := runJSON[map[string][]any](t, "catalog", "list", "--data", data); list["capabilities"] == nil || list["tags"] == nil {
		t.Errorf("%v", list)
	}
}
