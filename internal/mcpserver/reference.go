package mcpserver

import (
	_ "embed" // for the reference
	"fmt"
	"strings"
	"sync"
)

//go:embed reference/team.md
var teamSource string

//go:embed reference/pool.md
var poolSource string

//go:embed reference/desk.md
var deskSource string

// targetGrammar says how a target is written.
//
//go:embed reference/grammar.md
var targetGrammar string

// The references of the toolsets: what stands in reference/, with the parameters of each tool filled
// in from the table that is published and enforced.
var (
	teamReference = sync.OnceValue(func() string { return withParameters(teamSource, allTools) })
	poolReference = sync.OnceValue(func() string { return withParameters(poolSource, allTools) })
	deskReference = sync.OnceValue(func() string { return withParameters(deskSource, ofSet(allTools, "desk", true)) })
)

// withParameters puts a table in place of each line <!-- parameters: TOOL -->.
func withParameters(source string, tools []tool) string {
	for i := range tools {
		var b strings.Builder
		b.WriteString("| Parameter | Takes | What it is |\n|---|---|---|\n")
		for j := range tools[i].params {
			parameterRows(&b, "", &tools[i].params[j])
		}
		source = strings.Replace(source, "<!-- parameters: "+tools[i].name+" -->\n", b.String(), 1)
	}
	return source
}

// parameterRows writes a parameter and what is in it; fields that a description publishes in
// words stand in the section on artifacts.
func parameterRows(b *strings.Builder, within string, p *param) {
	name := within + p.name
	if name != "" && !strings.HasSuffix(name, "[]") {
		takes := p.takes()
		if p.required {
			takes = "**required**, " + takes
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", name, takes, p.desc)
	}
	inner := p
	if p.item != nil {
		inner, name = p.item, name+"[]"
	}
	if inner.inWords {
		return
	}
	for i := range inner.props {
		parameterRows(b, name+".", &inner.props[i])
	}
}

// takes says type, bounds and default of a parameter.
func (p *param) takes() string {
	var s string
	switch {
	case len(p.enum) > 0:
		s = "`" + strings.Join(p.enum, "`, `") + "`"
	case p.kind == kindRaw:
		s = "any JSON"
	case p.kind == kindArray:
		s = "list"
		if len(p.item.enum) > 0 {
			s = "list of " + p.item.takes()
		}
		if p.maxItems > 0 && p.minItems == p.maxItems {
			s += fmt.Sprintf(" of %d", p.maxItems)
		} else if p.maxItems > 0 {
			s += fmt.Sprintf(", at most %d", p.maxItems)
		}
	default:
		s = schemaType[p.kind]
	}
	if p.form != "" {
		s += " of the form " + p.form
	}
	if in := p.bounds(); in != "" {
		s += " " + in
	}
	if p.maxLen > 0 {
		s += fmt.Sprintf(", at most %d bytes", p.maxLen)
	}
	if p.def != nil {
		s += fmt.Sprintf(", default `%v`", p.def)
	}
	return s
}
