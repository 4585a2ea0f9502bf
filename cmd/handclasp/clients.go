package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"handclasp/internal/config"
	"handclasp/internal/owner"
	"handclasp/internal/restapi"
)

// The configuration of MCP clients, as each of them documents it. scripts/clients feeds what is
// made here to the real programs.

// defaultHub is where serve listens when nothing else is said.
const defaultHub = "http://127.0.0.1:7433"

// serverName is what the hub is called inside a client's configuration.
const serverName = "handclasp"

// mcpClients are the clients that --client accepts, in the order of help and demo.
var mcpClients = []mcpClient{
	// https://code.claude.com/docs/en/mcp, and `claude mcp add --help` of 2.1.332. The scope user
	// makes it known in all projects; .mcp.json is that of one project.
	{name: "claude", title: "Claude Code", file: ".mcp.json", place: "the project's folder", shared: true, config: jsonConfig("mcpServers", "http", "stdio"), command: claudeCommand},
	// https://developers.openai.com/codex/mcp, and `codex mcp get --json` of 0.171.0. A header of
	// the name `headers` would be ignored without a word; there is no inline bearer_token.
	{name: "codex", title: "Codex", file: "~/.codex/config.toml", config: codexConfig},
	// https://cursor.com/docs/mcp: a remote server has url and headers, and no type.
	{name: "cursor", title: "Cursor", file: "~/.cursor/mcp.json", config: jsonConfig("mcpServers", "", "stdio")},
	// https://code.visualstudio.com/docs/agents/reference/mcp-configuration, and the schema in
	// src/vs/workbench/contrib/mcp/common/mcpConfiguration.ts of microsoft/vscode.
	{name: "vscode", title: "VS Code", file: ".vscode/mcp.json", place: "the workspace's folder", shared: true, config: jsonConfig("servers", "http", "stdio")},
}

// mcpClient is what a client's documentation says of its configuration.
type mcpClient struct {
	name, title string
	file, place string // place says which folder a relative file is in
	shared      bool   // the file lies in a repository
	config      func(access) (string, error)
	command     func(access) string // nil if it has no command that adds a server
}

// access is how a client reaches the hub: at a URL with a key, or by starting this program.
type access struct {
	url, key string
	command  string
	args     []string
	notes    []string // what a person has to know besides
}

func (c access) transport() string {
	if c.url != "" {
		return "http"
	}
	return "stdio"
}

func (c access) endpoint() string { return c.url + "/mcp" }

func (c access) authorization() string { return "Bearer " + c.key }

// clientConfig is one client's configuration as --json shows it. Config is the text of the file.
type clientConfig struct {
	Name      string   `json:"name"`
	File      string   `json:"file"`
	Transport string   `json:"transport"` // http or stdio
	Config    string   `json:"config"`
	Command   string   `json:"command,omitempty"` // does the same in a terminal
	Notes     []string `json:"notes,omitempty"`
}

// configFor makes the configuration of the client of that name, which must be one of mcpClients.
func configFor(name string, c access) (clientConfig, mcpClient, error) {
	client := mcpClients[slices.IndexFunc(mcpClients, func(m mcpClient) bool { return m.name == name })]
	text, err := client.config(c)
	if err != nil {
		return clientConfig{}, client, err
	}
	out := clientConfig{Name: name, File: client.file, Transport: c.transport(), Config: text, Notes: c.notes}
	if client.command != nil {
		out.Command = client.command(c)
	}
	return out, client, nil
}

// jsonConfig is the form that most clients share: an object of servers under one word.
func jsonConfig(root, httpType, stdioType string) func(access) (string, error) {
	type server struct {
		Type    string            `json:"type,omitempty"`
		URL     string            `json:"url,omitempty"`
		Headers map[string]string `json:"headers,omitempty"`
		Command string            `json:"command,omitempty"`
		Args    []string          `json:"args,omitempty"`
	}
	return func(c access) (string, error) {
		s := server{Type: stdioType, Command: c.command, Args: c.args}
		if c.url != "" {
			s = server{Type: httpType, URL: c.endpoint(), Headers: map[string]string{"Authorization": c.authorization()}}
		}
		return jsonText(map[string]map[string]server{root: {serverName: s}}, "  ")
	}
}

func jsonText(v any, indent string) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// codexConfig is a table of TOML.
func codexConfig(c access) (string, error) {
	lines := []string{"[mcp_servers." + serverName + "]"}
	var fault error
	value := func(v any) string {
		text, err := tomlValue(v)
		fault = errors.Join(fault, err)
		return text
	}
	if c.url != "" {
		lines = append(lines, "url = "+value(c.endpoint()), "http_headers = { Authorization = "+value(c.authorization())+" }")
	} else {
		lines = append(lines, "command = "+value(c.command), "args = "+value(c.args))
	}
	return strings.Join(lines, "\n"), fault
}

// tomlValue writes a string or a list of strings. What JSON's encoder makes of them is a basic
// string of TOML too (toml.io/en/v1.0.0#string), but for DEL, which TOML wants escaped.
func tomlValue(v any) (string, error) {
	text, err := jsonText(v, "")
	return strings.ReplaceAll(text, "\x7f", `\u007f`), err
}

// claudeCommand is the line that adds the server for all projects of this person.
func claudeCommand(c access) string {
	if c.url != "" {
		return shellWords("claude", "mcp", "add", "--scope", "user", "--transport", "http", serverName, c.endpoint(), "--header", "Authorization: "+c.authorization())
	}
	return shellWords(append([]string{"claude", "mcp", "add", "--scope", "user", serverName, "--", c.command}, c.args...)...)
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// shellWords is a command line for a POSIX shell.
func shellWords(words ...string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; !plainWord.MatchString(w) {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// clientFlags ask for the configuration of a client beside a new key.
type clientFlags struct {
	Client string `help:"Print the configuration of this MCP client too: claude, codex, cursor or vscode." enum:"claude,codex,cursor,vscode," default:"" placeholder:"NAME"`
	URL    string `name:"url" env:"HANDCLASP_CLIENT_URL" help:"Address of the hub in that configuration. Default: that of the hub which serves the folder; if none does, the client starts handclasp mcp by itself." placeholder:"URL"`
}

// Validate is called by the parser, before a command has changed anything.
func (f *clientFlags) Validate() error {
	if f.URL == "" {
		return nil
	}
	if f.Client == "" {
		return errors.New("--url: it goes into the configuration of a client; name that too, such as --client claude")
	}
	var err error
	f.URL, err = config.HubURL("--url", f.URL)
	return err
}

// access is how the client that was asked for will reach the hub as the agent.
func (f *clientFlags) access(o *operatorClient, where *config.Where, handle string) (access, error) {
	if f.Client == "" || f.URL != "" {
		return access{url: f.URL}, nil
	}
	if where.DatabaseURL != "" {
		return access{url: defaultHub, notes: []string{defaultHub + " is the default address of serve; if yours is another, name it with --url."}}, nil
	}
	if address := o.hubURL(); address != "" {
		return access{url: address}, nil
	}
	program, err := os.Executable()
	if err != nil {
		return access{}, fmt.Errorf("the path of this program is not known: %w. Name the address of a hub with --url", err)
	}
	return stdioAccess(program, where.Data, handle)
}

// hubURL is the address of the hub that serves the folder, or empty if none does.
func (c *operatorClient) hubURL() string {
	var info owner.Info
	if err := c.get("/owner", &info); err != nil || info.Kind != owner.Serve {
		return ""
	}
	u, err := url.Parse(info.URL)
	if err != nil {
		return ""
	}
	// A hub that listens on every address has none of its own; this machine reaches it at its own.
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
	return u.String()
}

// builtForTheMoment matches where `go run` and `go test` put a program: a folder that does not
// stay, or the build cache.
var builtForTheMoment = regexp.MustCompile(`/go-build[0-9]*/|/[0-9a-f]{64}-d/`)

// thisProgram is how a person starts it once more.
func thisProgram() []string {
	program, err := os.Executable()
	if err != nil || builtForTheMoment.MatchString(program) {
		return []string{"go", "run", "./cmd/handclasp"}
	}
	return []string{program}
}

// stdioAccess starts the program on the folder. It needs no key: whoever can open the folder
// may act as any agent of it.
func stdioAccess(program, data, handle string) (access, error) {
	c := access{command: program, args: []string{"mcp", "--as", handle}}
	if builtForTheMoment.MatchString(program) {
		c.command = "handclasp"
		c.notes = []string{"handclasp must be on the PATH of the client; this one was built for the moment: go install ./cmd/handclasp"}
	}
	// The folder is left out only where a program that knows no more than its home finds it.
	if home, err := config.HomeData(); err != nil || data != home {
		c.args = append(c.args, "--data", data)
	}
	for _, word := range append([]string{c.command}, c.args...) {
		if strings.Contains(word, "${") || !utf8.ValidString(word) {
			return c, fmt.Errorf("%q cannot be written into a client's configuration: clients replace ${…}, and take only UTF-8. Use another folder, or name the address of a hub with --url", word)
		}
	}
	return c, nil
}

// keyWithClient is a new key beside the configuration that was asked for.
type keyWithClient struct {
	restapi.NewKey
	Client *clientConfig `json:"client,omitempty"`
}

func printKeyJSON(e *env, k restapi.NewKey, client string, conn access) error {
	out := keyWithClient{NewKey: k}
	if client != "" {
		conf, _, err := configFor(client, conn)
		if err != nil {
			return err
		}
		out.Client = &conf
	}
	return printJSON(e, out)
}

// showClient prints where the configuration goes, and the configuration.
func showClient(e *env, name string, c access) error {
	conf, client, err := configFor(name, c)
	if err != nil {
		return err
	}
	say := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(e.stdout, format, args...)
		}
	}
	if c.url == "" {
		say("\n%s, by starting handclasp on the folder; this needs no key.", client.title)
	} else {
		say("\n%s, over HTTP at %s.", client.title, c.endpoint())
	}
	for _, note := range c.notes {
		say("\n%s", note)
	}
	if conf.Command != "" {
		say("\nRun this (if it is there already, first: claude mcp remove --scope user %s):\n\n%s\n\nOr put this into %s", serverName, conf.Command, conf.File)
	} else {
		say("\nPut this into %s", conf.File)
	}
	if client.place != "" {
		say(" in %s", client.place)
	}
	say(", beside what the file already holds")
	if client.shared && c.url != "" {
		say("; the key is in it, so keep it out of the repository")
	}
	say(":\n\n%s\n", conf.Config)
	return err
}
