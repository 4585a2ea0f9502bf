package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"handclasp/internal/bridge"
	"handclasp/internal/config"
	"handclasp/internal/mcpserver"
	"handclasp/internal/telemetry"
)

type mcpCmd struct {
	config.Identity `embed:""`
	Toolset         []string `help:"Toolsets to serve: ${toolsets}. Default: all." placeholder:"SET"`
	Transport       string   `help:"How to talk to the hub of --url (default ${default})." enum:"mcp" default:"mcp"`
	LogLevel        string   `name:"log-level" help:"debug, info, warn or error, on stderr (default ${default})." enum:"debug,info,warn,error" default:"warn"`
}

// Help is printed by --help.
func (*mcpCmd) Help() string {
	return `Clients such as Claude Code, Codex, Cursor and VS Code start this command themselves.
Without --url it works on the local data folder and needs no server: the first process owns
the folder, further ones go through it, and one of them takes over when it ends. With --url it
carries calls to a running hub; --toolset, not a path in that address, chooses the tools. A call whose transport fails is repeated with one idempotency
key, so that it takes effect once.

Examples:
  handclasp agent add frank@acme --client claude     register, and get what to paste
  handclasp mcp --as frank@acme                      on the local data folder
  handclasp mcp --url https://hub.example.com --key-file ~/.config/handclasp/frank.key`
}

// Run serves until the client closes stdin or a signal comes. Nothing but protocol goes to
// stdout.
func (c *mcpCmd) Run(e *env) error {
	path, err := endpoint(c.Toolset)
	if err != nil {
		return usageError{err}
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		return usageError{err}
	}
	log := telemetry.NewLogger(e.stderr, "text", level)
	conn, err := connect(e.ctx, &c.Identity, true, log)
	if e.ctx.Err() != nil && conn == nil { // a signal came first
		return nil
	}
	if err != nil {
		return err
	}
	defer conn.close()
	if isTerminal(e.stdin) {
		fmt.Fprintf(e.stderr, "handclasp mcp serves an MCP client on stdin and stdout, as %s at %s. You are at a terminal: Ctrl-D ends it.\n", orKey(c.As), conn.where)
	}
	return bridge.Run(e.ctx, bridge.Config{
		In: e.stdin, Out: e.stdout, Endpoint: conn.base + path, Hub: conn, Explain: conn.explain, LongestPause: conn.pause, Log: log,
	})
}

func orKey(as string) string {
	if as == "" {
		return "the agent of the key"
	}
	return as
}

// endpoint is the path that serves the toolsets.
func endpoint(sets []string) (string, error) {
	all := mcpserver.Toolsets()
	chosen := map[string]bool{}
	for _, s := range sets {
		if !slices.Contains(all, s) {
			return "", fmt.Errorf("--toolset: %q came; %s are accepted", s, strings.Join(all, ", "))
		}
		chosen[s] = true
	}
	switch {
	case len(chosen) == 0 || len(chosen) == len(all) && len(all) > 1:
		return "/mcp", nil
	case len(chosen) == 1:
		return "/mcp/" + sets[0], nil
	}
	return "", fmt.Errorf("--toolset: one of %s is accepted, or none for all", strings.Join(all, ", "))
}
