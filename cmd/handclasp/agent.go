package main

import (
	"fmt"
	"strings"

	"handclasp/internal/config"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

type agentCmd struct {
	Add     agentAddCmd     `cmd:"" help:"Register an agent and show its key, once."`
	List    agentListCmd    `cmd:"" help:"List the agents."`
	Show    agentShowCmd    `cmd:"" help:"Show all that is known of an agent."`
	Edit    agentEditCmd    `cmd:"" help:"Change what is known of an agent."`
	Disable agentDisableCmd `cmd:"" help:"Turn an agent off: its keys stop at once."`
	Enable  agentEnableCmd  `cmd:"" help:"Turn a disabled agent on again."`
	Block   agentBlockCmd   `cmd:"" help:"Keep another agent from handing work to one."`
	Unblock agentUnblockCmd `cmd:"" help:"Lift such a block."`
	Notify  agentNotifyCmd  `cmd:"" help:"Tell an agent outside when its inbox has news."`
	Key     agentKeyCmd     `cmd:"" help:"The keys of an agent."`
}

// output is the --json flag that every operator command has.
type output struct {
	JSON bool `help:"Print one JSON document on stdout and nothing else."`
}

type agentAddCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	clientFlags  `embed:""`
	Handle       string   `arg:"" help:"name@team; a bare name cannot be named by handoff_to_teammate."`
	Name         string   `help:"Display name. Default: the handle."`
	Email        string   `help:"Address of the person behind it."`
	Role         string   `help:"Such as backend."`
	Skill        []string `help:"May be repeated." sep:"none"`
	Repo         []string `help:"A repository it owns; may be repeated." sep:"none"`
	Capability   []string `help:"May be repeated; added to the catalog." sep:"none"`
	Tag          []string `help:"key=value; may be repeated; added to the catalog." sep:"none" placeholder:"KEY=VALUE"`
	Unlisted     bool     `help:"Keep it out of public listings."`
	KeyLabel     string   `help:"What the key is for, such as the machine it is on."`
}

// Help is printed by --help.
func (*agentAddCmd) Help() string {
	return `The first agent makes the data folder. The key is shown this once and stored as a hash; agent key rotate makes another.

Examples:

  handclasp agent add frank@acme --client claude
  handclasp agent add frank@acme --name "Frank's agent" --role backend --skill go --skill sql
  handclasp agent add frank@acme --client codex --url https://hub.example.com`
}

func (c *agentAddCmd) Run(e *env) error {
	tags, err := parseTags(c.Tag)
	if err != nil {
		return err
	}
	return operateOn(e, &c.Where, true, func(o *operatorClient) error {
		conn, err := c.access(o, &c.Where, c.Handle)
		if err != nil {
			return err
		}
		var k restapi.NewKey
		if err := o.post("/operator/agents", hub.AgentInput{
			Handle: c.Handle, Name: c.Name, Email: c.Email, Role: c.Role, Skills: c.Skill, Repos: c.Repo,
			Capabilities: c.Capability, Tags: tags, Unlisted: c.Unlisted, KeyLabel: c.KeyLabel,
		}, &k); err != nil {
			return err
		}
		what := "registered " + k.Handle
		if !strings.Contains(k.Handle, "@") {
			what += " (a bare handle: it can send, and handoff_to_teammate cannot name it; register name@team for that)"
		}
		return c.showKey(e, k, what, c.Client, conn)
	})
}

// showKey shows a key at the one moment it can be, and the configuration of the client that is
// to use it, if one was asked for.
func (o output) showKey(e *env, k restapi.NewKey, what, client string, conn access) error {
	conn.key = k.APIKey
	if o.JSON {
		return printKeyJSON(e, k, client, conn)
	}
	use := " Give it to the agent's MCP client as: Authorization: Bearer <API key>"
	if client != "" {
		use = ""
	}
	_, err := fmt.Fprintf(e.stdout, "%s\nkey id   %s\nAPI key  %s\n\nThe key is shown this once.%s\n", what, k.KeyID, k.APIKey, use)
	if err != nil || client == "" {
		return err
	}
	return showClient(e, client, conn)
}

type agentListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
}

// Help is printed by --help.
func (*agentListCmd) Help() string {
	return `Examples:

  handclasp agent list
  handclasp agent list --json | jq -r '.agents[].handle'`
}

func (c *agentListCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out struct {
			Agents []restapi.Agent `json:"agents"`
		}
		if err := o.get("/operator/agents", &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		return table(e, "HANDLE\tNAME\tROLE\tSTATUS\tLAST SEEN", len(out.Agents), func(i int) string {
			a := out.Agents[i]
			return strings.Join([]string{a.Handle, lineOrDash(a.Name), lineOrDash(a.Role), a.Status, orDash(a.LastSeenAt)}, "\t")
		})
	})
}

type agentDisableCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:"" help:"As agent list shows it, in any case."`
}

// Help is printed by --help.
func (*agentDisableCmd) Help() string {
	return `Its parked calls end too. What it claimed at the pool is open again at once. What it accepted from teammates, and what it delivered and waits for a verdict, stays with it: handclasp handoff list --agent HANDLE finds that, and handoff reassign gives it to another; a verdict that sends work back opens it for others. Work that only this agent may verify waits: handoff list --status VERIFYING finds it.

Example:

  handclasp agent disable frank@acme`
}

func (c *agentDisableCmd) Run(e *env) error {
	if err := setStatus(e, &c.Where, c.JSON, c.Handle, "disable", "disabled"); err != nil || c.JSON {
		return err
	}
	return e.say("What it claimed at the pool is open again. What stays with it: handclasp handoff list --agent %s\n", c.Handle)
}

type agentEnableCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:""`
}

// Help is printed by --help.
func (*agentEnableCmd) Help() string {
	return `Its keys work again, but for those that were revoked.

Example:

  handclasp agent enable frank@acme`
}

func (c *agentEnableCmd) Run(e *env) error {
	return setStatus(e, &c.Where, c.JSON, c.Handle, "enable", "enabled")
}

func setStatus(e *env, where *config.Where, asJSON bool, handle, verb, past string) error {
	return operate(e, where, func(o *operatorClient) error {
		var out map[string]any
		if err := o.post("/operator/agents/"+escape(handle)+"/"+verb, nil, &out); err != nil {
			return err
		}
		if asJSON {
			return printJSON(e, out)
		}
		_, err := fmt.Fprintln(e.stdout, past, handle)
		return err
	})
}

type agentKeyCmd struct {
	List   keyListCmd   `cmd:"" help:"List the keys of an agent, without their secrets."`
	Rotate keyRotateCmd `cmd:"" help:"Make a new key and revoke the others; shows it once."`
	Revoke keyRevokeCmd `cmd:"" help:"End one key at once."`
}

type keyListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:""`
}

// Help is printed by --help.
func (*keyListCmd) Help() string {
	return `Example:

  handclasp agent key list frank@acme`
}

func (c *keyListCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out struct {
			Keys []restapi.Key `json:"keys"`
		}
		if err := o.get("/operator/agents/"+escape(c.Handle)+"/keys", &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		return keyTable(e, out.Keys)
	})
}

func keyTable(e *env, keys []restapi.Key) error {
	return table(e, "KEY ID\tKEY\tLABEL\tCREATED\tLAST USED\tREVOKED", len(keys), func(i int) string {
		k := keys[i]
		return strings.Join([]string{k.KeyID, k.Hint, lineOrDash(k.Label), k.CreatedAt, orDash(k.LastUsedAt), orDash(k.RevokedAt)}, "\t")
	})
}

type keyRotateCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	clientFlags  `embed:""`
	Handle       string `arg:""`
	Label        string `help:"What the key is for, such as the machine it is on."`
	Keep         bool   `help:"Keep the other keys valid."`
}

// Help is printed by --help.
func (*keyRotateCmd) Help() string {
	return `The others end at once, and the calls that wait with them.

Examples:

  handclasp agent key rotate frank@acme
  handclasp agent key rotate frank@acme --keep --label laptop --client vscode`
}

func (c *keyRotateCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		conn, err := c.access(o, &c.Where, c.Handle)
		if err != nil {
			return err
		}
		path := "/operator/agents/" + escape(c.Handle) + "/keys/rotate"
		what := "new key of " + c.Handle + "; the others are revoked"
		if c.Keep {
			path, what = "/operator/agents/"+escape(c.Handle)+"/keys", "another key of "+c.Handle
		}
		var k restapi.NewKey
		if err := o.post(path, map[string]string{"label": c.Label}, &k); err != nil {
			return err
		}
		return c.showKey(e, k, what, c.Client, conn)
	})
}

type keyRevokeCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	KeyID        string `arg:"" name:"key-id" help:"As agent key list shows it."`
}

// Help is printed by --help.
func (*keyRevokeCmd) Help() string {
	return `Calls that wait with it end too; the agent's other keys stay.

Example:

  handclasp agent key revoke 019ad5a2-6c1e-7b7e-9a55-0c2f7d9be001`
}

func (c *keyRevokeCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out map[string]any
		if err := o.post("/operator/keys/"+escape(c.KeyID)+"/revoke", nil, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		_, err := fmt.Fprintln(e.stdout, "revoked", c.KeyID)
		return err
	})
}
