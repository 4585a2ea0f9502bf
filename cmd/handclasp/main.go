// Command handclasp is the hub, its operator's commands and a demonstration. Each subcommand
// has a file of its own here; what they do is in internal/.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"handclasp/internal/config"
	"handclasp/internal/mcpserver"
)

// cli is the command line; kong reads flags into it, and the HANDCLASP_… twins of settings.
type cli struct {
	Serve        serveCmd         `cmd:"" help:"Run the hub."`
	MCP          mcpCmd           `cmd:"" name:"mcp" help:"Serve MCP over stdio, for a client that starts its servers itself."`
	Demo         demoCmd          `cmd:"" help:"Show handoffs between agents in a temporary hub, told step by step."`
	Agent        agentCmd         `cmd:"" help:"Agents and their keys."`
	Invite       inviteCmd        `cmd:"" help:"Join links, each good for one new agent."`
	Handoff      handoffCmd       `cmd:"" help:"The operator's hand on handoffs."`
	Business     businessCmd      `cmd:"" help:"Businesses that customers are handed to."`
	Delivery     deliveryCmd      `cmd:"" help:"What was sent to people."`
	Continuation continuationCmd  `cmd:"" help:"Links that the desk gives out, to persons and to the next agent."`
	Key          keyCmd           `cmd:"" help:"The key that signs links to the next agent."`
	Notify       notifyCmd        `cmd:"" help:"Try how notifications go out."`
	Catalog      catalogCmd       `cmd:"" help:"The words that targets of open handoffs may name."`
	Workspace    workspaceCmd     `cmd:"" help:"The projects that open handoffs belong to."`
	Inbox        inboxCmd         `cmd:"" help:"List what waits for an agent, or open one thread."`
	Send         sendCmd          `cmd:"" help:"Hand work to a teammate's agent."`
	Tail         tailCmd          `cmd:"" help:"Follow the log of the hub."`
	Doctor       doctorCmd        `cmd:"" help:"Check the configuration, the data and their surroundings, and say what to do."`
	Backup       backupCmd        `cmd:"" help:"Write all that a hub holds to a file, while it serves."`
	Restore      restoreCmd       `cmd:"" help:"Fill a new hub from a backup."`
	Export       exportCmd        `cmd:"" help:"Write the log of events as NDJSON."`
	Completion   completionCmd    `cmd:"" help:"Print the script that completes commands in a shell."`
	Complete     completeCmd      `cmd:"" hidden:""`
	Version      versionCmd       `cmd:"" help:"Show version, schema and protocol revisions."`
	VersionToo   kong.VersionFlag `name:"version" help:"Show the version."`
}

// env is what a command gets from its surroundings.
type env struct {
	ctx            context.Context
	stdin          io.Reader
	stdout, stderr io.Writer
	model          *kong.Node // of the command line
	// variables are the names in the environment that set a flag of any command.
	variables map[string]bool
	// sameHub are the flags by which another command reaches the same hub as the same agent, to be
	// put behind it.
	sameHub string
}

func main() {
	// Whatever this program writes is its user's alone: the database, its journal, the socket.
	syscall.Umask(0o077)
	// A reader that left (… | head) is an error of writing, not a reason to die without tidying up.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run carries out one command line: 0 for a success, 1 for a failure, 2 for bad usage.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := newParser(&c, stdout, stderr, func(code int) { exited = code })
	if err != nil {
		fmt.Fprintln(stderr, "handclasp:", err)
		return 1
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if args[0] == "help" {
		args = append(args[1:len(args):len(args)], "--help")
	}
	k, err := parser.Parse(args)
	if exited >= 0 { // --help printed what there is to say
		return exited
	}
	if err != nil {
		fmt.Fprintf(stderr, "handclasp: %s\nTry: handclasp %s--help\n", said(err, args), commandPath(err))
		return 2
	}
	if flag := withoutValue(args); flag != "" {
		fmt.Fprintf(stderr, "handclasp: %s: it is empty; leave it out, or give it a value\n", flag)
		return 2
	}
	preferTyped(k)
	e := &env{
		ctx: ctx, stdin: stdin, stdout: stdout, stderr: stderr,
		model: parser.Model.Node, variables: variables(parser.Model.Node), sameHub: sameHub(k),
	}
	if err := k.Run(e); err != nil {
		if hadEnough(err) {
			return 1
		}
		fmt.Fprintln(stderr, "handclasp:", err)
		var usage usageError
		if errors.As(err, &usage) {
			return 2
		}
		return 1
	}
	return 0
}

// hadEnough reports whether the reader of our output left, as head does. A hub that went away breaks
// a pipe too, and that is worth a word.
func hadEnough(err error) bool {
	var file *fs.PathError
	return errors.As(err, &file) && file.Path == os.Stdout.Name() && errors.Is(file, syscall.EPIPE)
}

// newParser reads command lines into c.
func newParser(c *cli, stdout, stderr io.Writer, exit func(code int)) (*kong.Kong, error) {
	dataDefault, err := config.DefaultData()
	if err != nil {
		dataDefault = "none is known"
	}
	settings, err := settingFlags()
	if err != nil {
		return nil, err
	}
	return kong.New(c,
		kong.Name("handclasp"),
		kong.Description("A durable handoff hub for AI agents and people."),
		kong.PostBuild(func(k *kong.Kong) error { return giveTwins(k.Model.Node, settings) }),
		kong.Vars{"version": "handclasp " + version(), "data_default": dataDefault, "config_default": config.DefaultConfig(), "toolsets": strings.Join(mcpserver.Toolsets(), ", ")},
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
}

// settingFlags are the names of the flags that have a twin in the environment: those that say where a hub
// is, how it runs and as whom to work, which are all that package config declares, what mcp serves, and
// how output looks. What a command is to write, whom it is to tell and what it may do without asking is said for that one
// act; a variable that was set for something else must not say it (ADR 18).
func settingFlags() (map[string]bool, error) {
	var declared struct {
		Serve    config.Serve    `cmd:""`
		Identity config.Identity `cmd:""`
	}
	k, err := kong.New(&declared, kong.Vars{"data_default": "", "config_default": ""})
	if err != nil {
		return nil, err
	}
	names := map[string]bool{"json": true, "toolset": true, "transport": true}
	return names, kong.Visit(k.Model.Node, func(v kong.Visitable, next kong.Next) error {
		if f, ok := v.(*kong.Flag); ok && f.Name != "help" {
			names[f.Name] = true
		}
		return next(nil)
	})
}

// giveTwins lets the environment set those flags by their names, where they name no variable themselves.
func giveTwins(n *kong.Node, settings map[string]bool) error {
	return kong.Visit(n, func(v kong.Visitable, next kong.Next) error {
		if f, ok := v.(*kong.Flag); ok && settings[f.Name] && len(f.Envs) == 0 {
			twin := "HANDCLASP_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
			f.Envs, f.Value.Tag.Envs = []string{twin}, []string{twin}
		}
		return next(nil)
	})
}

// said is an error of the parser without the empty word, by which a flag that chooses one of
// several words is left out.
func said(err error, args []string) string {
	text := strings.NewReplacer(`"",`, "", `,""`, "").Replace(err.Error())
	if strings.HasPrefix(text, "unknown flag") && len(args) > 0 && strings.HasPrefix(args[0], "-") {
		text += "; flags stand behind the command"
	}
	return text
}

// contrary are flags of which a command takes one.
var contrary = [][2]string{{"url", "as"}, {"url", "data"}, {"url", "database-url"}, {"data", "database-url"}, {"as", "key-file"}}

// withoutValue is a flag that says where the hub is or as whom, typed with nothing, as a variable
// leaves it that is not set. The parser would take an empty path for the current folder.
func withoutValue(args []string) string {
	for _, name := range []string{"--as", "--url", "--data", "--database-url", "--key-file", "--config"} {
		for i, arg := range args {
			if arg == name+"=" || arg == name && i+1 < len(args) && args[i+1] == "" {
				return name
			}
		}
	}
	return ""
}

// preferTyped lets a flag that was typed win over a contrary one that the environment sets.
func preferTyped(k *kong.Context) {
	typed, flags := map[string]bool{}, map[string]*kong.Flag{}
	for _, p := range k.Path {
		if p.Flag != nil {
			typed[p.Flag.Name] = true
		}
	}
	for _, f := range k.Flags() {
		flags[f.Name] = f
	}
	for _, pair := range contrary {
		if slices.Contains(pair[:], "url") && flags["key-file"] == nil {
			continue // --url is what this command writes down, and not where the hub is
		}
		for i, name := range pair {
			if other := flags[pair[1-i]]; typed[name] && other != nil && !typed[other.Name] {
				other.Target.SetZero()
			}
		}
	}
}

// sameHub repeats the typed flags that say where the hub is and as whom.
func sameHub(k *kong.Context) string {
	flags := ""
	for _, p := range k.Path {
		if p.Flag == nil {
			continue
		}
		switch p.Flag.Name {
		case "database-url": // it may hold a password
			flags += " --database-url …"
		case "as", "data", "url", "key-file", "config":
			flags += " " + shellWords("--"+p.Flag.Name, p.Flag.Target.String())
		}
	}
	return flags
}

// variables collects the twins of all flags in the environment.
func variables(n *kong.Node) map[string]bool {
	names := map[string]bool{}
	_ = kong.Visit(n, func(v kong.Visitable, next kong.Next) error {
		if f, ok := v.(*kong.Flag); ok {
			for _, name := range f.Envs {
				names[name] = true
			}
		}
		return next(nil)
	})
	return names
}

// commandPath is as much of a command as the parser understood, for the hint to its help.
func commandPath(err error) string {
	var parse *kong.ParseError
	if !errors.As(err, &parse) || parse.Context == nil || parse.Context.Selected() == nil {
		return ""
	}
	return strings.TrimPrefix(parse.Context.Selected().FullPath(), "handclasp ") + " "
}

// usageError is a command line that says something impossible.
type usageError struct{ error }
