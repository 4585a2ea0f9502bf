package main

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

// open makes open handoffs of anna's in a workspace and returns their ids.
func (w *workshop) open(root string, handoffs ...hub.OpenInput) []string {
	w.t.Helper()
	var ids []string
	w.within(func(h *hub.Hub, as func(string) hub.Call) {
		for _, in := range handoffs {
			in.ProjectRoot, in.From, in.Visibility = root, "anna@acme", "private"
			if in.Target == nil {
				in.Target = json.RawMessage(`{"strategy":"broadcast"}`)
			}
			out, err := h.Open(context.Background(), as("anna@acme"), in)
			if err != nil {
				w.t.Fatal(err)
			}
			ids = append(ids, out.HandoffID)
		}
	})
	return ids
}

func TestWorkspacesAreListedAndJoined(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, w *workshop) {
		if out := w.ok("workspace", "list"); !strings.Contains(out, "no workspace") {
			t.Errorf("%q", out)
		}
		w.open("/srv/shop", hub.OpenInput{}, hub.OpenInput{})
		w.open(`c:\src\shop`+"\x1b[2J", hub.OpenInput{})
		out := w.ok("workspace", "list")
		if rows := strings.Split(out, "\n"); len(rows) != 4 || !strings.HasPrefix(rows[1], "/srv/shop  ") || !strings.Contains(rows[1], "  open    2 OPEN    –") || strings.Contains(out, "\x1b") {
			t.Errorf("%q", out)
		}
		if out := w.ok("workspace", "alias", `C:\src\shop`+"\x1b[2J", "--of", "/srv/shop/"); out != "C:\\src\\shop\uFFFD[2J is another name of /srv/shop; 1 handoff moved there\n" {
			t.Errorf("%q", out)
		}
		var again restapi.WorkspaceAlias
		w.json(&again, "workspace", "alias", `C:\src\shop`+"\x1b[2J", "--of", "/srv/shop")
		if again.Changed || again.Moved != 0 || again.Of.ProjectRoot != "/srv/shop" || again.Of.WorkspaceID == again.WorkspaceID {
			t.Errorf("%+v", again)
		}
		var list restapi.Workspaces
		w.json(&list, "workspace", "list")
		if len(list.Workspaces) != 1 || list.Workspaces[0].Handoffs["OPEN"] != 3 || len(list.Workspaces[0].Aliases) != 1 || list.Workspaces[0].Strict {
			t.Errorf("%+v", list)
		}
		w.refused(1, "--of: ", "workspace", "alias", "/srv/shop", "--of", `C:\src\shop`+"\x1b[2J")
		w.refused(1, "--of: \"shop\" came; accepted are an absolute path", "workspace", "alias", "/srv/shop", "--of", "shop")
		w.refused(1, "the project root: \"shop\" came", "workspace", "alias", "shop", "--of", "/srv/shop")
		w.refused(2, "--of", "workspace", "alias", "/srv/shop")
	})
}

func TestMembersOfAWorkspaceAreShownAndChanged(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, w *workshop) {
		if out := w.ok("workspace", "members", "/srv/shop"); out != "/srv/shop is open: every agent may use it\n" {
			t.Errorf("%q", out)
		}
		if out := w.ok("workspace", "members", "/srv/shop", "--strict"); !strings.Contains(out, "nobody may use it. Add one with --add HANDLE") {
			t.Errorf("%q", out)
		}
		w.ok("agent", "disable", "grace@acme")
		out := w.ok("workspace", "members", "/srv/shop", "--add", "FRANK@acme", "--add", "grace@acme")
		if want := "/srv/shop is strict: only its members may use it\n\nHANDLE      STATUS\nfrank@acme  active\ngrace@acme  disabled\n"; out != want {
			t.Errorf("%q", out)
		}
		w.within(func(h *hub.Hub, as func(string) hub.Call) {
			if _, err := h.Open(context.Background(), as("anna@acme"), hub.OpenInput{ProjectRoot: "/srv/shop", From: "anna@acme", Visibility: "public", Target: json.RawMessage(`{"strategy":"broadcast"}`)}); err == nil {
				t.Error("a stranger creates in it")
			}
		})
		var now restapi.WorkspaceMembers
		w.json(&now, "workspace", "members", "/srv/shop/.", "--remove", "grace@acme", "--open")
		if now.Strict || len(now.Members) != 1 || now.Members[0].Handle != "frank@acme" || now.ProjectRoot != "/srv/shop" {
			t.Errorf("%+v", now)
		}
		if out := w.ok("workspace", "members", "/srv/shop"); !strings.Contains(out, "every agent may use it\nOnce it is strict, only these may:") {
			t.Errorf("%q", out)
		}
		if out := w.ok("workspace", "list"); !strings.Contains(out, "/srv/shop") || !strings.Contains(out, "open") {
			t.Errorf("%q", out)
		}
		w.refused(2, "--open", "workspace", "members", "/srv/shop", "--strict", "--open")
		w.refused(2, "take a handle", "workspace", "members", "/srv/shop", "--add", "")
		w.refused(1, "Did you mean frank@acme?", "workspace", "members", "/srv/shop", "--add", "frnk@acme")
		w.refused(1, "--remove: \"frank@acme\" is to be added too", "workspace", "members", "/srv/shop", "--add", "frank@acme", "--remove", "frank@acme")
	})
}

func TestCatalogAndWorkspacesAreReachedThroughARunningHub(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t)
	w.open("/home/anna/shop", hub.OpenInput{})
	startServe(t, w.at...)
	if out := w.ok("catalog", "add", "capability", "review"); out != "added capability review\n" {
		t.Errorf("%q", out)
	}
	if out := w.ok("workspace", "alias", "/home/anna/shop", "--of", "/srv/shop"); !strings.Contains(out, "1 handoff moved") {
		t.Errorf("%q", out)
	}
	w.refused(1, "Did you mean review?", "catalog", "remove", "capability", "revew")
	if out := w.ok("workspace", "members", "/home/anna/shop", "--strict", "--add", "anna@acme"); !strings.HasPrefix(out, "/srv/shop is strict") {
		t.Errorf("%q", out)
	}
	if out := w.ok("workspace", "list"); !strings.Contains(out, "strict, 1 member  1 OPEN    /home/anna/shop") {
		t.Errorf("%q", out)
	}
}
