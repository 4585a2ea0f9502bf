package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/config"
)

const key = "hc_live_0123456789"

// atHome gives the test a home folder of its own and no key in the environment.
func atHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HANDCLASP_KEY", "")
	return home
}

func put(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// ident is an Identity as the flags fill it.
func ident(as, url, keyFile, data, file string) config.Identity {
	return config.Identity{As: as, URL: url, KeyFile: keyFile, Config: file, Where: config.Where{Data: data}}
}

func TestAnIdentityThatContradictsItselfIsRefusedWithWhatToType(t *testing.T) {
	home := atHome(t)
	good := put(t, filepath.Join(home, "key"), key+"\n")
	const hub = "https://hub.example.com"
	database := ident("", hub, good, "", "")
	database.DatabaseURL = "postgres://h/d"
	both := ident("a@b", "", "", "/d", "")
	both.DatabaseURL = "postgres://h/d"
	mysql := ident("a@b", "", "", "", "")
	mysql.DatabaseURL = "mysql://u:SECRET@h/d"
	for name, c := range map[string]struct {
		id   config.Identity
		want string
	}{
		"nothing":                       {ident("", "", "", "", ""), "--as is missing"},
		"--as and --url":                {ident("a@b", hub, good, "", ""), "--as and --url exclude each other"},
		"--key-file without --url":      {ident("a@b", "", good, "", ""), "--key-file goes with --url"},
		"only --key-file":               {ident("", "", good, "", ""), "--key-file goes with --url"},
		"--url and --data":              {ident("", hub, good, "/d", ""), "--url excludes --data"},
		"--url and --database-url":      {database, "--url excludes --data and --database-url"},
		"--data and --database-url":     {both, "exclude each other"},
		"another database":              {mysql, "postgres://"},
		"no --as":                       {ident("", "", "", "/d", ""), "--as is missing"},
		"--as of two lines":             {ident("a@b\nX: y", "", "", "/d", ""), "--as:"},
		"no --key-file":                 {ident("", hub, "", "", ""), "--key-file is missing"},
		"a key file that is not there":  {ident("", hub, filepath.Join(home, "none"), "", ""), "--key-file: open"},
		"a folder":                      {ident("", hub, home, "", ""), "--key-file: read"},
		"an empty key file":             {ident("", hub, put(t, filepath.Join(home, "empty"), "\n"), "", ""), "does not hold one API key"},
		"two lines":                     {ident("", hub, put(t, filepath.Join(home, "two"), key+"\n"+key+"\n"), "", ""), "a second line"},
		"the word Bearer":               {ident("", hub, put(t, filepath.Join(home, "bearer"), "Bearer "+key), "", ""), "the word Bearer"},
		"a binary file":                 {ident("", hub, put(t, filepath.Join(home, "binary"), "SECRET\x00\xff"), "", ""), "does not hold one API key"},
		"a large file":                  {ident("", hub, put(t, filepath.Join(home, "large"), strings.Repeat("x", 1<<20)), "", ""), "does not hold one API key"},
		"a config that is not there":    {ident("", "", "", "", filepath.Join(home, "none")), "--config: open"},
		"a folder as config":            {ident("", "", "", "", home), "--config: read"},
		"a broken config":               {ident("", "", "", "", put(t, filepath.Join(home, "b.json"), `{"as":`)), "one JSON object of strings"},
		"an empty config":               {ident("", "", "", "", put(t, filepath.Join(home, "e.json"), ``)), "one JSON object of strings"},
		"a list":                        {ident("", "", "", "", put(t, filepath.Join(home, "l.json"), `["a@b"]`)), "one JSON object of strings"},
		"two objects":                   {ident("", "", "", "", put(t, filepath.Join(home, "2.json"), `{"as":"a@b"}{}`)), "something follows"},
		"a brace too many":              {ident("", "", "", "", put(t, filepath.Join(home, "3.json"), `{"as":"a@b"}}`)), "something follows"},
		"an unknown field":              {ident("", "", "", "", put(t, filepath.Join(home, "u.json"), `{"as":"a@b","api_key":"SECRET"}`)), `unknown field "api_key"`},
		"a number":                      {ident("", "", "", "", put(t, filepath.Join(home, "n.json"), `{"as":7}`)), "one JSON object of strings"},
		"a config that says two things": {ident("", "", "", "", put(t, filepath.Join(home, "c.json"), `{"as":"a@b","url":"http://h"}`)), "exclude each other"},
		"a config that says nothing":    {ident("", "", "", "", put(t, filepath.Join(home, "0.json"), `{}`)), "--as is missing"},
	} {
		err := c.id.Resolve()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), key) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	t.Setenv("HANDCLASP_KEY", "Bearer "+key)
	id := ident("", hub, "", "", "")
	if err := id.Resolve(); err == nil || !strings.HasPrefix(err.Error(), "HANDCLASP_KEY does not hold one API key") || strings.Contains(err.Error(), key) {
		t.Errorf("a bad key in the environment: %v", err)
	}
}

func TestTheAddressOfAHubIsTakenInTheFormsThatPeoplePaste(t *testing.T) {
	home := atHome(t)
	file := put(t, filepath.Join(home, "key"), "  "+key+"\r\n")
	for url, want := range map[string]string{
		"http://127.0.0.1:7433": "http://127.0.0.1:7433", "https://hub.example.com/": "https://hub.example.com",
		"https://hub.example.com/mcp": "https://hub.example.com", "https://hub.example.com/mcp/": "https://hub.example.com",
		"https://hub.example.com/mcp/team": "https://hub.example.com", "http://[::1]:7433/mcp/team/": "http://[::1]:7433",
		"https://proxy.example.com/hub": "https://proxy.example.com/hub",
	} {
		id := ident("", url, file, "", "")
		if err := id.Resolve(); err != nil || id.URL != want || id.Key != key {
			t.Errorf("%s: %v, %q with the key %q", url, err, id.URL, id.Key)
		}
	}
	for _, url := range []string{
		"hub.example.com", "hub.example.com:7433", "localhost:7433", "ftp://h", "https://", "/mcp", "https://u:SECRET@h", "https://SECRET@h",
		"https://h?key=SECRET", "https://h/#SECRET", "https://h\n", "http://h:port", "://", "https://h/%zz",
	} {
		id := ident("", url, file, "", "")
		if err := id.Resolve(); err == nil || !strings.HasPrefix(err.Error(), "--url:") || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestWhatIsTypedWinsOverTheFileAndPathsAreRelativeToIt(t *testing.T) {
	home := atHome(t)
	put(t, filepath.Join(home, "etc", "frank.key"), key)
	put(t, filepath.Join(home, "other.key"), "hc_live_other")
	local := put(t, filepath.Join(home, "etc", "local.json"), `{"as":"frank@acme","data":"hub"}`)
	remote := put(t, filepath.Join(home, "etc", "remote.json"), `{"url":"https://hub.example.com/mcp","key_file":"frank.key"}`)
	for name, c := range map[string]struct {
		id              config.Identity
		as, url, k, dir string
	}{
		"a local file":        {ident("", "", "", "", local), "frank@acme", "", "", filepath.Join(home, "etc", "hub")},
		"another agent":       {ident("anna@acme", "", "", "", local), "anna@acme", "", "", filepath.Join(home, "etc", "hub")},
		"another folder":      {ident("", "", "", "/d", local), "frank@acme", "", "", "/d"},
		"a hub, typed":        {ident("", "https://h", filepath.Join(home, "other.key"), "", local), "", "https://h", "hc_live_other", ""},
		"a remote file":       {ident("", "", "", "", remote), "", "https://hub.example.com", key, ""},
		"another key":         {ident("", "", filepath.Join(home, "other.key"), "", remote), "", "https://hub.example.com", "hc_live_other", ""},
		"an agent, typed":     {ident("anna@acme", "", "", "", remote), "anna@acme", "", "", filepath.Join(home, ".local", "share", "handclasp")},
		"nothing of the file": {ident("a@b", "", "", "/d", ""), "a@b", "", "", "/d"},
	} {
		if err := c.id.Resolve(); err != nil || c.id.As != c.as || c.id.URL != c.url || c.id.Key != c.k || c.id.Data != c.dir {
			t.Errorf("%s: %v, %+v", name, err, c.id)
		}
	}
	// The key of the file is not sent to another hub.
	id := ident("", "https://elsewhere.example.com", "", "", remote)
	if err := id.Resolve(); err == nil || id.Key != "" {
		t.Errorf("%v, the key %q", err, id.Key)
	}
}

func TestTheUsersFileCountsWhenNothingElseIsSaid(t *testing.T) {
	home := atHome(t)
	put(t, config.DefaultConfig(), `{"as":"frank@acme"}`)
	id := ident("", "", "", "", "")
	if err := id.Resolve(); err != nil || id.As != "frank@acme" {
		t.Errorf("%v %+v", err, id)
	}
	id = ident("anna@acme", "", "", "/d", "")
	if err := id.Resolve(); err != nil || id.As != "anna@acme" || id.Data != "/d" {
		t.Errorf("%v %+v", err, id)
	}
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "xdg"))
	put(t, config.DefaultConfig(), `{"as":`)
	id = ident("", "", "", "", "")
	if err := id.Resolve(); err == nil || !strings.Contains(err.Error(), filepath.Join(home, "xdg", "handclasp", "config.json")) {
		t.Errorf("a broken file that nobody named: %v", err)
	}
	t.Setenv("XDG_CONFIG_HOME", "relative") // is ignored, as its specification says
	if got := config.DefaultConfig(); got != filepath.Join(home, ".config", "handclasp", "config.json") {
		t.Errorf("%s", got)
	}
}
