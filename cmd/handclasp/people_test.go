package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/restapi"
)

func TestAnAgentIsShownEditedAndBlocked(t *testing.T) {
	t.Parallel()
	data := "--data=" + filepath.Join(t.TempDir(), "hub")
	for _, handle := range []string{"anna@acme", "frank@acme"} {
		mustRun(t, "agent", "add", handle, "--skill", "go", "--tag", "team=x", data)
	}
	if out := mustRun(t, "agent", "edit", "FRANK@acme", "--name", "Frank\x1b[2J", "--role", "backend", "--email", "f@acme.example", "--skill", "sql", "--skill", "c++, c", "--no-tags", "--capability", "deploy", "--unlisted", data); !strings.Contains(out, "edited frank@acme") {
		t.Error(out)
	}
	a := runJSON[restapi.AgentDetail](t, "agent", "show", "frank@acme", data)
	if a.Role != "backend" || a.Email != "f@acme.example" || len(a.Skills) != 2 || a.Skills[1] != "c++, c" || len(a.Tags) != 0 || a.Capabilities[0] != "deploy" || !a.Unlisted || len(a.Keys) != 1 {
		t.Errorf("%+v", a)
	}
	if b := runJSON[restapi.BlockChange](t, "agent", "block", "anna@acme", "frank@acme", "--reason", "floods", data); !b.Changed || !b.Blocked {
		t.Errorf("%+v", b)
	}
	shown := mustRun(t, "agent", "show", "frank@acme", data)
	for _, part := range []string{a.AgentID, "active, unlisted", "anna@acme since 20", "(floods)", "0 open for it, 0 held by it", "hc_live_"} {
		if !strings.Contains(shown, part) {
			t.Errorf("it lacks %q: %s", part, shown)
		}
	}
	if strings.Contains(shown, "\x1b") {
		t.Error("a name moves the cursor")
	}
	if out := mustRun(t, "agent", "block", "anna@acme", "frank@acme", data); !strings.Contains(out, "nothing changed") {
		t.Error(out)
	}
	if out := mustRun(t, "agent", "unblock", "anna@acme", "frank@acme", data); !strings.Contains(out, "anna@acme does not block frank@acme") {
		t.Error(out)
	}
	a = runJSON[restapi.AgentDetail](t, "agent", "edit", "frank@acme", "--no-skills", "--email", "", "--name=", "--listed", data)
	if len(a.Skills) != 0 || a.Email != "" || a.Name != "frank@acme" || a.Unlisted || a.Role != "backend" || len(a.BlockedBy) != 0 {
		t.Errorf("%+v", a)
	}
}

func TestAnInviteOfTheRunningHubBeginsWithItsAddressAndWorksOnce(t *testing.T) {
	t.Parallel()
	data := "--data=" + filepath.Join(t.TempDir(), "hub")
	url := startServe(t, data)
	mustRun(t, "agent", "add", "anna@acme", data)
	link := runJSON[restapi.InviteLink](t, "invite", "frank@acme", "--from", "anna@acme", "--role", "backend", "--expires-in", "2h", data)
	address, token, ok := strings.Cut(link.URL, "#")
	if !ok || address != url+"/join" || link.Inviter != "anna@acme" {
		t.Fatalf("%+v", link)
	}
	page, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	source, err := io.ReadAll(page.Body)
	page.Body.Close()
	if err != nil || page.StatusCode != http.StatusOK || !strings.Contains(string(source), "data-hub=\""+url+"\"") {
		t.Fatalf("%d %v %s", page.StatusCode, err, source)
	}
	redeem := func() (int, string) {
		resp, err := http.Post(url+"/invites/"+link.JTI+"/redeem", "application/json", strings.NewReader(`{"token":"`+token+`"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if status, body := redeem(); status != http.StatusCreated || !strings.Contains(body, "hc_live_") {
		t.Fatalf("%d %s", status, body)
	}
	if status, body := redeem(); status != http.StatusGone || !strings.Contains(body, "already_used") {
		t.Fatalf("%d %s", status, body)
	}
	if a := runJSON[restapi.AgentDetail](t, "agent", "show", "frank@acme", data); a.Role != "backend" || len(a.Keys) != 1 {
		t.Errorf("%+v", a)
	}
	if out := mustRun(t, "invite", "list", data); !strings.Contains(out, link.JTI) || !strings.Contains(out, "used") || strings.Contains(out, token) {
		t.Error(out)
	}
	if p := runProgram(context.Background(), "invite", "revoke", link.JTI, data); p.code != 1 || !strings.Contains(p.stderr.String(), "handclasp agent disable frank@acme") {
		t.Errorf("%d %s", p.code, p.stderr.String())
	}
	shown := mustRun(t, "invite", "create", "list", "--url", "https://hub.example.com/", data) // a handle that is also a word
	if !strings.Contains(shown, "\nhttps://hub.example.com/join#") || !strings.Contains(shown, "handclasp invite revoke ") {
		t.Error(shown)
	}
	_, jti, _ := strings.Cut(strings.TrimSpace(shown), "handclasp invite revoke ")
	if out := mustRun(t, "invite", "revoke", jti, data); !strings.Contains(out, "revoked "+jti) {
		t.Error(out)
	}
}

func TestImpossibleCommandsAboutPeopleSayWhatToTypeInstead(t *testing.T) {
	t.Parallel()
	data := "--data=" + filepath.Join(t.TempDir(), "hub")
	mustRun(t, "agent", "add", "anna@acme", data)
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"agent show ana@acme", 1, "Did you mean anna@acme?"},
		{"agent show ..", 1, "handclasp agent list"},
		{"agent show a/b", 1, "handclasp agent list"},
		{"agent show <empty>", 1, "handclasp agent list"},
		{"agent show", 2, "handclasp agent show --help"},
		{"agent edit anna@acme", 2, "--capability"},
		{"agent edit ana@acme --role x", 1, "Did you mean anna@acme?"},
		{"agent edit anna@acme --skill go --no-skills", 2, "--no-skills"},
		{"agent edit anna@acme --unlisted --listed", 2, "--listed"},
		{"agent edit anna@acme --skill <empty>", 2, "--no-skills leaves none"},
		{"agent edit anna@acme --tag x", 2, "team=platform"},
		{"agent edit anna@acme --handle x", 2, "handclasp agent edit --help"},
		{"agent block anna@acme", 2, "handclasp agent block --help"},
		{"agent block anna@acme ana@acme", 1, "Did you mean anna@acme?"},
		{"agent block anna@acme ANNA@acme", 1, "two different agents"},
		{"invite", 2, "handclasp invite create --help"},
		{"invite bob@acme", 1, "--url https://hub.example.com"},
		{"invite bob@acme --url hub", 2, "https://hub.example.com"},
		{"invite bob@acme --url https://u:secret@h", 2, "without"},
		{"invite bob@acme --url https://h/base", 2, "root of its host"},
		{"invite bob@acme --expires-in 7d", 2, "168h"},
		{"invite bob@acme --expires-in 1s", 2, "1m to 720h"},
		{"invite bob@acme --expires-in -1h", 2, "--expires-in"},
		{"invite anna@acme --url https://h", 1, "choose another"},
		{"invite operator --url https://h", 1, "reserved"},
		{"invite bob@acme --url https://h --from ana@acme", 1, "Did you mean anna@acme?"},
		{"invite revoke none", 1, "handclasp invite list"},
		{"invite revoke", 2, "handclasp invite revoke --help"},
	} {
		args := strings.Fields(c.args)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "<empty>", "")
		}
		p := runProgram(context.Background(), append(args, data)...)
		if p.code != c.code || !strings.Contains(p.stderr.String(), c.want) || strings.Contains(p.stderr.String(), "secret") || p.stdout.Len() > 0 {
			t.Errorf("%s: exit %d, %s%s", c.args, p.code, p.stdout.String(), p.stderr.String())
		}
	}
	if out := mustRun(t, "agent", "list", data); strings.Count(out, "\n") != 2 {
		t.Errorf("something was made: %s", out)
	}
}

func TestFlagsOfAnInviteAreCompletedWithoutTheWordCreate(t *testing.T) {
	t.Parallel()
	if out := mustRun(t, "complete", "--", "invite", "frank@acme", "--ex"); out != "--expires-in\n" {
		t.Errorf("%q", out)
	}
}

func TestTheHelpOfTheOperatorsCommandsShowsExamples(t *testing.T) {
	t.Parallel()
	for _, command := range []string{
		"agent show", "agent edit", "agent block", "agent unblock", "invite", "invite create", "invite list", "invite revoke",
		"catalog list", "catalog add", "catalog remove", "workspace list", "workspace alias", "workspace members",
	} {
		help := mustRun(t, append(strings.Fields(command), "--help")...)
		if _, examples, ok := strings.Cut(help, "Example"); !ok || !strings.Contains(examples, "    handclasp "+strings.TrimSuffix(command, " create")) {
			t.Errorf("%s: %s", command, help)
		}
	}
}
