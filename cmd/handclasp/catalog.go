package main

import (
	"fmt"
	"strings"

	"handclasp/internal/config"
	"handclasp/internal/restapi"
)

type catalogCmd struct {
	List   catalogListCmd   `cmd:"" help:"List the words, and how many agents bear each."`
	Add    catalogAddCmd    `cmd:"" help:"Make words known."`
	Remove catalogRemoveCmd `cmd:"" help:"Take out words that no agent bears."`
}

type catalogListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
}

// Help is printed by --help.
func (*catalogListCmd) Help() string {
	return `The catalog holds the capabilities and tags that the target of an open handoff may name; one that names another word is refused. Disabled agents count too.

Examples:

  handclasp catalog list
  handclasp catalog list --json | jq -r '.capabilities[].name'`
}

func (c *catalogListCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Catalog
		if err := o.get("/operator/catalog", &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		var rows []string
		row := func(kind, name string, agents int) {
			rows = append(rows, fmt.Sprintf("%s\t%s\t%d", kind, lineOrDash(name), agents))
		}
		for _, w := range out.Capabilities {
			row("capability", w.Name, w.Agents)
		}
		for _, t := range out.Tags {
			row("tag", t.Name, t.Agents)
			for _, v := range t.Values {
				row("tag", t.Name+"="+v.Name, v.Agents)
			}
		}
		if len(rows) == 0 {
			return e.say("the catalog is empty; giving an agent a capability or a tag fills it, and so does handclasp catalog add\n")
		}
		return table(e, "KIND\tNAME\tAGENTS", len(rows), func(i int) string { return rows[i] })
	})
}

// catalogWords are the words that a command names.
type catalogWords struct {
	Kind string   `arg:"" enum:"capability,tag" help:"capability or tag."`
	Name []string `arg:"" help:"A capability; of a tag its key, or key=value." sep:"none"`
}

type catalogAddCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	catalogWords `embed:""`
}

// Help is printed by --help.
func (*catalogAddCmd) Help() string {
	return `A target may name a word from then on, before any agent bears it. A value of a tag makes its key known too. Names compare exactly.

Examples:

  handclasp catalog add capability review deploy
  handclasp catalog add tag team=platform
  handclasp catalog add tag team                            the key alone, for Exists and DoesNotExist`
}

func (c *catalogAddCmd) Run(e *env) error {
	return changeCatalog(e, &c.Where, c.JSON, &c.catalogWords, "add", func(w restapi.CatalogChange) string {
		if !w.Changed {
			return fmt.Sprintf("%s %s was there already; nothing changed", w.Kind, lineOrDash(w.Name))
		}
		return fmt.Sprintf("added %s %s", w.Kind, lineOrDash(w.Name))
	})
}

type catalogRemoveCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	catalogWords `embed:""`
}

// Help is printed by --help.
func (*catalogRemoveCmd) Help() string {
	return `Refused, and then for all of the words, while an agent bears one of them. A tag key takes its values along. Open handoffs that name a word stay as they are: an agent that is given it later can claim them. New targets cannot name it.

Examples:

  handclasp catalog remove capability reviw
  handclasp catalog remove tag team=platform
  handclasp catalog remove tag team`
}

func (c *catalogRemoveCmd) Run(e *env) error {
	return changeCatalog(e, &c.Where, c.JSON, &c.catalogWords, "remove", func(w restapi.CatalogChange) string {
		with := ""
		if len(w.Values) > 0 {
			with = " with " + lineOrDash(strings.Join(w.Values, ", "))
		}
		return fmt.Sprintf("removed %s %s%s; open handoffs that name it stay as they are", w.Kind, lineOrDash(w.Name), with)
	})
}

func changeCatalog(e *env, where *config.Where, asJSON bool, words *catalogWords, verb string, line func(restapi.CatalogChange) string) error {
	return operate(e, where, func(o *operatorClient) error {
		var out restapi.CatalogChanges
		if err := o.post("/operator/catalog/"+verb, map[string]any{"kind": words.Kind, "names": words.Name}, &out); err != nil {
			return err
		}
		if asJSON {
			return printJSON(e, out)
		}
		for _, w := range out.Changes {
			if err := e.say("%s\n", line(w)); err != nil {
				return err
			}
		}
		return nil
	})
}
