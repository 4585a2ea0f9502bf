package main

import (
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"handclasp/internal/restapi"
)

// twins are the variables that set each flag, by command and flag.
func twins(t *testing.T) map[string][]string {
	t.Helper()
	parser, err := newParser(&cli{}, io.Discard, io.Discard, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, f := range n.Flags {
			all[strings.TrimPrefix(n.FullPath(), "handclasp ")+" --"+f.Name] = f.Envs
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(parser.Model.Node)
	return all
}

func TestEverySettingHasItsTwinInTheEnvironment(t *testing.T) {
	t.Parallel()
	all := twins(t)
	for flag, envs := range all {
		command, name, _ := strings.Cut(flag, " --")
		want := "HANDCLASP_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if settings := (command == "serve" || command == "doctor") && name != "help"; settings && (len(envs) != 1 || envs[0] != want) {
			t.Errorf("%s is set by %v", flag, envs)
		}
	}
	for _, flag := range []string{
		"agent list --data", "agent list --database-url", "agent list --json", "mcp --as", "mcp --toolset", "mcp --transport", "inbox --url", "inbox --key-file", "inbox --config",
		"send --as", "tail --url", "notify test --smtp-url", "notify test --public-url", "business add --data", "backup --data", "invite create --url",
	} {
		if len(all[flag]) != 1 {
			t.Errorf("%s is set by %v", flag, all[flag])
		}
	}
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(readme), "| Flag of `serve` |")
	table, _, _ = strings.Cut(table, "\n\n")
	documented := 0
	for _, m := range regexp.MustCompile("`--([a-z-]+)`").FindAllStringSubmatch(table, -1) {
		documented++
		name := strings.TrimPrefix(m[1], "no-")
		if len(all["serve --"+name]) != 1 {
			t.Errorf("--%s of the README is set by %v", m[1], all["serve --"+name])
		}
	}
	if documented < 20 {
		t.Errorf("the README names %d flags of serve", documented)
	}
}

// A variable that was set for one command must not write into another's business.
func TestWhatOneCommandIsToDoIsNeverTakenFromTheEnvironment(t *testing.T) {
	for flag, envs := range twins(t) {
		_, name, _ := strings.Cut(flag, " --")
		switch name {
		case "email", "name", "phone", "channel", "webhook", "slack", "off", "yes", "at-once", "replace", "force", "reason", "to", "from", "role", "expires-in", "idempotency-key", "output", "limit", "status":
			if len(envs) > 0 {
				t.Errorf("%s is set by %v", flag, envs)
			}
		}
	}
	for _, name := range []string{"EMAIL", "NAME", "YES", "OFF", "AT_ONCE", "REPLACE", "PHONE", "WEBHOOK", "ROLE"} {
		t.Setenv("HANDCLASP_"+name, "true")
	}
	t.Setenv("HANDCLASP_EMAIL", "mallory@evil.example")
	data := "--data=" + filepath.Join(t.TempDir(), "hub")
	mustRun(t, "agent", "add", "frank@acme", data)
	if a := runJSON[restapi.AgentDetail](t, "agent", "show", "frank@acme", data); a.Email != "" || a.Name != "frank@acme" || a.Role != "" {
		t.Errorf("%+v", a)
	}
	mustRun(t, "business", "add", "shop", "--channel", "email", "--email", "ann@shop.example", data)
	if b := runJSON[restapi.Business](t, "business", "edit", "shop", "--timezone", "Europe/Berlin", data); b.Email != "ann@shop.example" || b.Name != "shop" || b.Phone != "" {
		t.Errorf("%+v", b)
	}
	if n := runJSON[restapi.AgentNotify](t, "agent", "notify", "frank@acme", "--slack", "https://8.8.8.8/services/T0/B0/x", data); len(n.Channels) != 1 {
		t.Errorf("%+v", n)
	}
	refused(t, 1, "is configured already", "business", "add", "shop", data)
	if help := mustRun(t, "business", "edit", "--help"); strings.Contains(help, "HANDCLASP_EMAIL") || !strings.Contains(help, "$HANDCLASP_DATA") {
		t.Error(help)
	}
}

// The address that agent add writes into a client's configuration is not where the command works.
func TestAnAddressForAClientLeavesTheFolderOfTheEnvironment(t *testing.T) {
	data := filepath.Join(t.TempDir(), "hub")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("HANDCLASP_DATA", data)
	mustRun(t, "agent", "add", "frank@acme", "--client", "claude", "--url", "https://hub.example.com")
	mustRun(t, "agent", "key", "rotate", "frank@acme", "--client", "claude", "--url", "https://hub.example.com")
	mustRun(t, "invite", "gina@acme", "--url", "https://hub.example.com")
	if out := mustRun(t, "agent", "list", "--data", data); !strings.Contains(out, "frank@acme") {
		t.Error(out)
	}
	refused(t, 1, "no agent is registered", "tail", "--as", "nobody@acme")
	refused(t, 2, "HANDCLASP_KEY", "inbox", "--url", "https://hub.example.com")
}
