package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"handclasp/internal/config"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

// Looking at an agent and changing it; adding it and its keys are in agent.go.

type agentShowCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:"" help:"As agent list shows it, in any case."`
}

// Help is printed by --help.
func (*agentShowCmd) Help() string {
	return `Everything the operator may see: who it is, what it offers, its keys without their secrets, blocks in both directions, and how many handoffs wait for it or are held by it.

Examples:

  handclasp agent show frank@acme
  handclasp agent show frank@acme --json`
}

func (c *agentShowCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var a restapi.AgentDetail
		if err := o.get("/operator/agents/"+escape(c.Handle), &a); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, a)
		}
		return showAgent(e, &a)
	})
}

func showAgent(e *env, a *restapi.AgentDetail) error {
	status := a.Status
	if a.Unlisted {
		status += ", unlisted"
	}
	w := tabwriter.NewWriter(e.stdout, 0, 4, 2, ' ', 0)
	for _, f := range [][2]string{
		{"handle", a.Handle},
		{"id", a.AgentID},
		{"name", a.Name},
		{"email", a.Email},
		{"role", a.Role},
		{"skills", strings.Join(a.Skills, ", ")},
		{"repos", strings.Join(a.Repos, ", ")},
		{"capabilities", strings.Join(a.Capabilities, ", ")},
		{"tags", tagList(a.Tags)},
		{"status", status},
		{"created", a.CreatedAt},
		{"last seen", orDash(a.LastSeenAt)},
		{"handoffs", fmt.Sprintf("%d open for it, %d held by it", a.Handoffs.Open, a.Handoffs.Held)},
		{"blocks", blockList(a.Blocks)},
		{"blocked by", blockList(a.BlockedBy)},
		{"told by", channelList(a.Notify)},
	} {
		if _, err := fmt.Fprintf(w, "%s\t%s\n", f[0], lineOrDash(f[1])); err != nil {
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(e.stdout); err != nil {
		return err
	}
	return keyTable(e, a.Keys)
}

func tagList(tags map[string][]string) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		for _, v := range tags[key] {
			list = append(list, key+"="+v)
		}
	}
	return strings.Join(list, ", ")
}

func channelList(channels []restapi.AgentChannel) string {
	list := make([]string, len(channels))
	for i, c := range channels {
		list[i] = c.Channel + " at " + c.Address
	}
	return strings.Join(list, ", ")
}

func blockList(blocks []restapi.Block) string {
	list := make([]string, len(blocks))
	for i, b := range blocks {
		list[i] = b.Handle + " since " + b.Since
		if b.Reason != "" {
			list[i] += " (" + b.Reason + ")"
		}
	}
	return strings.Join(list, ", ")
}

type agentEditCmd struct {
	config.Where   `embed:""`
	output         `embed:""`
	Handle         string   `arg:"" help:"As agent list shows it, in any case. A handle itself never changes."`
	Name           *string  `help:"Display name; an empty one is the handle again."`
	Email          *string  `help:"Address of the person behind it; an empty one removes it."`
	Role           *string  `help:"Such as backend; an empty one removes it."`
	Skill          []string `help:"May be repeated; those given replace the list." sep:"none" xor:"skills"`
	NoSkills       bool     `help:"Leave it no skill." xor:"skills"`
	Repo           []string `help:"A repository it owns; may be repeated; those given replace the list." sep:"none" xor:"repos"`
	NoRepos        bool     `help:"Leave it no repository." xor:"repos"`
	Capability     []string `help:"May be repeated; those given replace the list and are added to the catalog." sep:"none" xor:"capabilities"`
	NoCapabilities bool     `help:"Leave it no capability." xor:"capabilities"`
	Tag            []string `help:"key=value; may be repeated; those given replace all tags and are added to the catalog." sep:"none" placeholder:"KEY=VALUE" xor:"tags"`
	NoTags         bool     `help:"Leave it no tag." xor:"tags"`
	Unlisted       bool     `help:"Keep it out of public listings." xor:"listed"`
	Listed         bool     `help:"Show it in public listings again." xor:"listed"`
}

// Help is printed by --help.
func (*agentEditCmd) Help() string {
	return `What is not named stays as it is. A flag that may be repeated replaces the whole list, and --no-… empties it. What the agent may claim changes at once.

Examples:

  handclasp agent edit frank@acme --role backend --skill go --skill sql
  handclasp agent edit frank@acme --tag team=platform --tag region=eu
  handclasp agent edit frank@acme --no-capabilities --email ""
  handclasp agent edit frank@acme --unlisted`
}

func (c *agentEditCmd) Run(e *env) error {
	edit, err := c.edit()
	if err != nil {
		return usageError{err}
	}
	return operate(e, &c.Where, func(o *operatorClient) error {
		var a restapi.AgentDetail
		if err := o.post("/operator/agents/"+escape(c.Handle)+"/edit", edit, &a); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, a)
		}
		_, err := fmt.Fprintf(e.stdout, "edited %s; handclasp agent show %s shows the result\n", a.Handle, a.Handle)
		return err
	})
}

func (c *agentEditCmd) edit() (hub.AgentEdit, error) {
	edit := hub.AgentEdit{Name: c.Name, Email: c.Email, Role: c.Role}
	for _, l := range []struct {
		flag, none string
		words      []string
		empty      bool
		list       **[]string
	}{
		{"--skill", "--no-skills", c.Skill, c.NoSkills, &edit.Skills},
		{"--repo", "--no-repos", c.Repo, c.NoRepos, &edit.Repos},
		{"--capability", "--no-capabilities", c.Capability, c.NoCapabilities, &edit.Capabilities},
	} {
		if slices.Contains(l.words, "") {
			return edit, fmt.Errorf("%s: it is empty; a word is accepted, and %s leaves none", l.flag, l.none)
		}
		if l.empty || len(l.words) > 0 {
			words := append([]string{}, l.words...) // none is an empty list on the wire; null would change nothing
			*l.list = &words
		}
	}
	if c.NoTags || len(c.Tag) > 0 {
		tags, err := parseTags(c.Tag)
		if err != nil {
			return edit, err
		}
		edit.Tags = &tags
	}
	if c.Unlisted || c.Listed {
		edit.Unlisted = &c.Unlisted
	}
	if edit.IsEmpty() {
		return edit, errors.New("nothing to edit: give at least one of --name, --email, --role, --skill, --repo, --capability, --tag (or --no-skills, --no-repos, --no-capabilities, --no-tags), --unlisted and --listed")
	}
	return edit, nil
}

// parseTags reads --tag key=value, each key with all its values.
func parseTags(flags []string) (map[string][]string, error) {
	tags := map[string][]string{}
	for _, t := range flags {
		key, value, ok := strings.Cut(t, "=")
		if !ok || key == "" || value == "" {
			return nil, usageError{fmt.Errorf("--tag: %q came; key=value is accepted, such as team=platform", t)}
		}
		tags[key] = append(tags[key], value)
	}
	return tags, nil
}

type agentBlockCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:"" help:"Who is protected."`
	Other        string `arg:"" help:"Who is kept away."`
	Reason       string `help:"Why; agent show shows it."`
}

// Help is printed by --help.
func (*agentBlockCmd) Help() string {
	return `Does on behalf of HANDLE what its own block_teammate does: OTHER can no longer hand work to it, nor write to what they share. What OTHER accepted before it can still complete or decline.

Examples:

  handclasp agent block anna@acme frank@acme --reason "floods her inbox"
  handclasp agent unblock anna@acme frank@acme`
}

func (c *agentBlockCmd) Run(e *env) error {
	return setBlock(e, &c.Where, c.JSON, c.Handle, c.Other, c.Reason, "block")
}

type agentUnblockCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:"" help:"Who is protected."`
	Other        string `arg:"" help:"Who is let in again."`
}

// Help is printed by --help.
func (*agentUnblockCmd) Help() string {
	return `Lifts a block, whether the agent set it or the operator. handclasp agent show HANDLE lists them.

Example:

  handclasp agent unblock anna@acme frank@acme`
}

func (c *agentUnblockCmd) Run(e *env) error {
	return setBlock(e, &c.Where, c.JSON, c.Handle, c.Other, "", "unblock")
}

func setBlock(e *env, where *config.Where, asJSON bool, handle, other, reason, verb string) error {
	return operate(e, where, func(o *operatorClient) error {
		var b restapi.BlockChange
		if err := o.post("/operator/agents/"+escape(handle)+"/"+verb, map[string]string{"other": other, "reason": reason}, &b); err != nil {
			return err
		}
		if asJSON {
			return printJSON(e, b)
		}
		now := b.Handle + " blocks " + b.Other
		if !b.Blocked {
			now = b.Handle + " does not block " + b.Other
		}
		if !b.Changed {
			now += "; it was so before, nothing changed"
		}
		_, err := fmt.Fprintln(e.stdout, now)
		return err
	})
}
