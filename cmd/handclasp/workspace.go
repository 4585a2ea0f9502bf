package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/restapi"
)

type workspaceCmd struct {
	List    workspaceListCmd    `cmd:"" help:"List the workspaces, their other names, and the handoffs in them."`
	Alias   workspaceAliasCmd   `cmd:"" help:"Make a root another name of a workspace."`
	Members workspaceMembersCmd `cmd:"" help:"Show or change who may use a workspace."`
}

// workspaceRoot is how every command names a workspace.
type workspaceRoot struct {
	Root string `arg:"" help:"The root of the project as agents name it: an absolute path on any machine, or a URI."`
}

type workspaceListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
}

// Help is printed by --help.
func (*workspaceListCmd) Help() string {
	return `A workspace is a project, known by its root. It comes about when an agent first creates a handoff in it.

Examples:

  handclasp workspace list
  handclasp workspace list --json | jq '.workspaces[] | select(.handoffs.OPEN > 0)'`
}

func (c *workspaceListCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Workspaces
		if err := o.get("/operator/workspaces", &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		if len(out.Workspaces) == 0 {
			return e.say("no workspace was used yet\n")
		}
		return table(e, "ROOT\tID\tACCESS\tHANDOFFS\tALIASES", len(out.Workspaces), func(i int) string {
			w := &out.Workspaces[i]
			aliases := make([]string, len(w.Aliases))
			for j, a := range w.Aliases {
				aliases[j] = a.ProjectRoot
			}
			return strings.Join([]string{lineOrDash(w.ProjectRoot), w.WorkspaceID, admission(w), lineOrDash(inStates(w.Handoffs)), lineOrDash(strings.Join(aliases, ", "))}, "\t")
		})
	})
}

func admission(w *restapi.Workspace) string {
	if !w.Strict {
		return "open"
	}
	return "strict, " + count(w.Members, "member")
}

func count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprint(n, " ", noun)
}

func inStates(counts map[string]int) string {
	var list []string
	for _, s := range handoff.States() {
		if n := counts[s.PoolStatus()]; n > 0 {
			list = append(list, fmt.Sprint(n, " ", s.PoolStatus()))
		}
	}
	return strings.Join(list, ", ")
}

type workspaceAliasCmd struct {
	config.Where  `embed:""`
	output        `embed:""`
	workspaceRoot `embed:""`
	Of            string `help:"A root of the workspace that it becomes a name of." required:"" placeholder:"ROOT"`
}

// Help is printed by --help.
func (*workspaceAliasCmd) Help() string {
	return `For one project under several roots: two machines, or several worktrees. Handoffs that were created under ROOT move to the workspace of the other root, which decides who may use it. Neither needs to have been used before. An alias of an alias is one of its end, and what moved stays moved.

Examples:

  handclasp workspace alias /home/anna/shop --of /srv/shop
  handclasp workspace alias 'C:\src\shop' --of git+https://git.example.com/acme/shop`
}

// Run may take long: all handoffs of the old workspace move.
func (c *workspaceAliasCmd) Run(e *env) error {
	return operateAtLength(e, &c.Where, func(o *operatorClient) error {
		var out restapi.WorkspaceAlias
		if err := o.post("/operator/workspaces/alias", map[string]string{"project_root": c.Root, "of": c.Of}, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		now := fmt.Sprintf("%s is another name of %s", lineOrDash(out.ProjectRoot), lineOrDash(out.Of.ProjectRoot))
		switch {
		case out.Moved > 0:
			now += fmt.Sprintf("; %s moved there", count(out.Moved, "handoff"))
		case !out.Changed:
			now += already(true)
		}
		return e.say("%s\n", now)
	})
}

type workspaceMembersCmd struct {
	config.Where  `embed:""`
	output        `embed:""`
	workspaceRoot `embed:""`
	Add           []string `help:"Handle of an agent that may use it; may be repeated." sep:"none" placeholder:"HANDLE"`
	Remove        []string `help:"Handle of an agent that no longer may; may be repeated." sep:"none" placeholder:"HANDLE"`
	Strict        bool     `help:"Admit only members." xor:"access"`
	Open          bool     `help:"Admit every agent again." xor:"access"`
}

// Help is printed by --help.
func (*workspaceMembersCmd) Help() string {
	return `Without a flag it shows who may use the workspace: every agent, unless it is strict. What an agent holds when it is removed stays with it; calls of its that wait in the workspace end.

The root need not have been used before, so mind its spelling: handclasp workspace list shows those in use.

Examples:

  handclasp workspace members /srv/shop
  handclasp workspace members /srv/shop --strict --add anna@acme --add frank@acme
  handclasp workspace members /srv/shop --remove frank@acme
  handclasp workspace members /srv/shop --open`
}

func (c *workspaceMembersCmd) Run(e *env) error {
	in := map[string]any{"project_root": c.Root, "add": c.Add, "remove": c.Remove}
	if c.Strict || c.Open {
		in["strict"] = c.Strict
	}
	for _, handle := range slices.Concat(c.Add, c.Remove) {
		if handle == "" {
			return usageError{errors.New("--add and --remove take a handle, such as frank@acme; an empty one came")}
		}
	}
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.WorkspaceMembers
		if err := o.post("/operator/workspaces/members", in, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		return showMembers(e, &out)
	})
}

func showMembers(e *env, m *restapi.WorkspaceMembers) error {
	root := lineOrDash(m.ProjectRoot)
	if !m.Strict {
		if err := e.say("%s is open: every agent may use it\n", root); err != nil || len(m.Members) == 0 {
			return err
		}
		if err := e.say("Once it is strict, only these may:\n\n"); err != nil {
			return err
		}
	} else {
		if len(m.Members) == 0 {
			return e.say("%s is strict and has no members: nobody may use it. Add one with --add HANDLE\n", root)
		}
		if err := e.say("%s is strict: only its members may use it\n\n", root); err != nil {
			return err
		}
	}
	return table(e, "HANDLE\tSTATUS", len(m.Members), func(i int) string { return m.Members[i].Handle + "\t" + m.Members[i].Status })
}
