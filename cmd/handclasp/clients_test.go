package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"handclasp/internal/config"
	"handclasp/internal/restapi"
)

// awkward holds what shells and configuration files give a meaning to.
const awkward = "/srv/o'neil \"hub\" \\ $HOME `x` <&> é\t\x7f\n-end"

var (
	testOverHTTP  = access{url: "http://127.0.0.1:7433", key: "hc_live_0123"}
	testOverStdio = access{command: "/opt/hand clasp/handclasp", args: []string{"mcp", "--as", "frank@acme", "--data", awkward}}
)

// clientServer is what clients document for one server, over HTTP or stdio.
type clientServer struct {
	Type    string            `json:"type"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Command string            `json:"command"`
	Args    []string          `json:"args"`
}

func TestTheConfigurationOfEveryClientHoldsTheFieldsThatItDocuments(t *testing.T) {
	t.Parallel()
	http := clientServer{Type: "http", URL: "http://127.0.0.1:7433/mcp", Headers: map[string]string{"Authorization": "Bearer hc_live_0123"}}
	untyped := http
	untyped.Type = ""
	stdio := clientServer{Type: "stdio", Command: testOverStdio.command, Args: testOverStdio.args}
	codexHTTP := untyped
	codexStdio := stdio
	codexStdio.Type = ""
	for _, c := range []struct {
		client, file string
		read         func(*testing.T, string) clientServer
		http, stdio  clientServer
	}{
		{"claude", ".mcp.json", readJSON("mcpServers"), http, stdio},
		{"codex", "~/.codex/config.toml", readTOML, codexHTTP, codexStdio},
		{"cursor", "~/.cursor/mcp.json", readJSON("mcpServers"), untyped, stdio},
		{"vscode", ".vscode/mcp.json", readJSON("servers"), http, stdio},
	} {
		for _, way := range []struct {
			transport string
			conn      access
			want      clientServer
		}{{"http", testOverHTTP, c.http}, {"stdio", testOverStdio, c.stdio}} {
			got, _, err := configFor(c.client, way.conn)
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != c.client || got.File != c.file || got.Transport != way.transport {
				t.Errorf("%s: %+v", c.client, got)
			}
			if diff := cmp.Diff(way.want, c.read(t, got.Config)); diff != "" {
				t.Errorf("%s over %s: %s\n%s", c.client, way.transport, diff, got.Config)
			}
			if way.transport == "stdio" && strings.Contains(got.Config+got.Command, "hc_live_") {
				t.Errorf("%s over stdio holds a key:\n%s", c.client, got.Config)
			}
		}
	}
}

func readJSON(root string) func(*testing.T, string) clientServer {
	return func(t *testing.T, text string) clientServer {
		t.Helper()
		dec := json.NewDecoder(strings.NewReader(text))
		dec.DisallowUnknownFields()
		var file map[string]map[string]clientServer
		if err := dec.Decode(&file); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		s, ok := file[root]["handclasp"]
		if !ok || len(file) != 1 {
			t.Fatalf("no %s.handclasp in\n%s", root, text)
		}
		return s
	}
}

// readTOML reads the little of TOML that is written: scripts/clients lets codex itself read it.
func readTOML(t *testing.T, text string) clientServer {
	t.Helper()
	if strings.ContainsAny(text, "\x7f\t\r") {
		t.Fatalf("a control character stands in the TOML as it is: %q", text)
	}
	lines := strings.Split(text, "\n")
	if lines[0] != "[mcp_servers.handclasp]" {
		t.Fatalf("the first line is %q", lines[0])
	}
	var s clientServer
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, " = ")
		into := map[string]any{"url": &s.URL, "http_headers": &s.Headers, "command": &s.Command, "args": &s.Args}[name]
		if !ok || into == nil {
			t.Fatalf("the line %q", line)
		}
		if name == "http_headers" {
			value = strings.Replace(value, "{ Authorization = ", `{"Authorization": `, 1)
		}
		if err := json.Unmarshal([]byte(value), into); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return s
}

func TestTheCommandForClaudeReachesItWordByWordThroughAShell(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		conn access
		want []string
	}{
		{testOverHTTP, []string{"mcp", "add", "--scope", "user", "--transport", "http", "handclasp", "http://127.0.0.1:7433/mcp", "--header", "Authorization: Bearer hc_live_0123"}},
		{testOverStdio, append([]string{"mcp", "add", "--scope", "user", "handclasp", "--", testOverStdio.command}, testOverStdio.args...)},
	} {
		out, err := exec.CommandContext(context.Background(), "sh", "-c", `claude() { printf '%s\0' "$@"; }; `+claudeCommand(c.conn)).Output()
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestAgentAddGivesTheConfigurationBesideTheKey(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "my hub")
	key := addForClient(t, "agent", "add", "frank@acme", "--client", "codex", "--url", "https://hub.example.com/", "--data", data, "--json")
	if s := readTOML(t, key.Client.Config); s.URL != "https://hub.example.com/mcp" || s.Headers["Authorization"] != "Bearer "+key.APIKey {
		t.Errorf("over HTTP: %+v", s)
	}
	again := addForClient(t, "agent", "key", "rotate", "Frank@acme", "--client", "vscode", "--data", data, "--json")
	// This program was built by go test: its path is gone when the client would start it.
	want := clientServer{Type: "stdio", Command: "handclasp", Args: []string{"mcp", "--as", "Frank@acme", "--data", data}}
	if diff := cmp.Diff(want, readJSON("servers")(t, again.Client.Config)); diff != "" || !strings.Contains(strings.Join(again.Client.Notes, " "), "go install ./cmd/handclasp") {
		t.Errorf("over stdio: %s %v", diff, again.Client.Notes)
	}
	text := runProgram(context.Background(), "agent", "add", "anna@acme", "--client", "claude", "--url", "http://127.0.0.1:7433", "--data", data).stdout.String()
	for _, part := range []string{"API key  hc_live_", "claude mcp add --scope user --transport http handclasp http://127.0.0.1:7433/mcp", ".mcp.json", "keep it out of the repository"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

func addForClient(t *testing.T, args ...string) keyWithClient {
	t.Helper()
	p := runProgram(context.Background(), args...)
	var key keyWithClient
	if err := json.Unmarshal(p.stdout.Bytes(), &key); err != nil || p.code != 0 || key.Client == nil {
		t.Fatalf("%v: %d %v %s%s", args, p.code, err, p.stdout.String(), p.stderr.String())
	}
	return key
}

func TestAConfigurationThatCannotBeMadeRegistersNobody(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub ${HOME}")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--client", "claud"}, 2, `"claude","codex","cursor","vscode"`},
		{[]string{"--url", "http://h"}, 2, "--client claude"},
		{[]string{"--client", "claude", "--url", "hub.example.com"}, 2, "https://hub.example.com"},
		{[]string{"--client", "claude", "--url", "http://h/mcp/team"}, 2, "root of its host"},
		{[]string{"--client", "claude"}, 1, "clients replace ${…}"},
	} {
		p := runProgram(context.Background(), append([]string{"agent", "add", "frank@acme", "--data", data}, c.args...)...)
		if p.code != c.code || !strings.Contains(p.stderr.String(), c.want) || p.stdout.Len() > 0 {
			t.Errorf("%v: exit %d, %s%s", c.args, p.code, p.stderr.String(), p.stdout.String())
		}
	}
	if p := runProgram(context.Background(), "agent", "list", "--data", data); strings.Contains(p.stdout.String(), "frank") {
		t.Errorf("a refused command registered an agent:\n%s", p.stdout.String())
	}
}

func TestTheClientIsSentToTheHubThatServesTheFolder(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string) *operatorClient {
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/owner" {
				t.Errorf("%s %s was asked", r.Method, r.URL)
			}
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		})
		return &operatorClient{ctx: context.Background(), http: &http.Client{Transport: inProcess{h}}}
	}
	where := &config.Where{Data: "/srv/hub"}
	for _, c := range []struct {
		name string
		op   *operatorClient
		url  string
	}{
		{"a hub", answer(200, `{"kind":"serve","url":"http://127.0.0.1:9","pid":7}`), "http://127.0.0.1:9"},
		{"a hub on every address", answer(200, `{"kind":"serve","url":"http://[::]:9","pid":7}`), "http://127.0.0.1:9"},
		{"a stdio process", answer(200, `{"kind":"mcp","pid":7}`), ""},
		{"a command", answer(200, `{"kind":"command","pid":7}`), ""},
		{"an older hub", answer(404, `{"detail":"the hub that owns this folder does not know the operation"}`), ""},
	} {
		conn, err := (&clientFlags{Client: "claude"}).access(c.op, where, "frank@acme")
		if err != nil || conn.url != c.url || (conn.command == "") != (c.url != "") {
			t.Errorf("%s: %+v %v", c.name, conn, err)
		}
	}
	conn, err := (&clientFlags{Client: "claude"}).access(nil, &config.Where{DatabaseURL: "postgres://h/d"}, "frank@acme")
	if err != nil || conn.url != defaultHub || !strings.Contains(strings.Join(conn.notes, ""), "--url") {
		t.Errorf("with PostgreSQL: %+v %v", conn, err)
	}
}

func TestStdioNamesTheProgramAndTheFolderWhereTheClientCannotKnowThem(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	standard := filepath.Join(home, ".local", "share", "handclasp")
	for _, c := range []struct{ program, data, command, args string }{
		{"/usr/local/bin/handclasp", standard, "/usr/local/bin/handclasp", "mcp --as frank@acme"},
		{"/home/f/go-builder/handclasp", "/srv/hub", "/home/f/go-builder/handclasp", "mcp --as frank@acme --data /srv/hub"},
		{"/tmp/go-build123/b001/exe/handclasp", "/srv/hub", "handclasp", "mcp --as frank@acme --data /srv/hub"},
		{"/c/" + strings.Repeat("0f", 32) + "-d/handclasp", standard, "handclasp", "mcp --as frank@acme"},
	} {
		conn, err := stdioAccess(c.program, c.data, "frank@acme")
		if err != nil || conn.command != c.command || strings.Join(conn.args, " ") != c.args || (len(conn.notes) > 0) != (c.command == "handclasp") {
			t.Errorf("%s: %+v %v", c.program, conn, err)
		}
	}
	// A client starts it without the shell's XDG_DATA_HOME, so that folder has to be named.
	t.Setenv("XDG_DATA_HOME", "/srv/xdg")
	where := config.Where{}
	if err := where.Check(); err != nil {
		t.Fatal(err)
	}
	conn, err := stdioAccess("/usr/local/bin/handclasp", where.Data, "frank@acme")
	if err != nil || strings.Join(conn.args, " ") != "mcp --as frank@acme --data /srv/xdg/handclasp" {
		t.Errorf("with XDG_DATA_HOME: %+v %v", conn, err)
	}
}

func TestTheKeyStaysWhereItWasInTheDocument(t *testing.T) {
	t.Parallel()
	text, err := jsonText(keyWithClient{NewKey: restapi.NewKey{APIKey: "k"}}, "")
	if err != nil || text != `{"agent_id":"","handle":"","key_id":"","api_key":"k"}` {
		t.Fatalf("%s %v", text, err)
	}
}
