package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// keep writes the results: one JSON file for each run, and a README with tables.
func keep(dir, suite string, runs []*run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, r := range runs {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", " ")
		if err := enc.Encode(r.results); err != nil {
			return err
		}
		if err := write(filepath.Join(dir, r.name()+".json"), b.Bytes()); err != nil {
			return err
		}
	}
	return write(filepath.Join(dir, "README.md"), readme(suite, runs))
}

func write(path string, b []byte) error {
	return os.WriteFile(path, b, 0o644)
}

// readme is the page about all runs.
func readme(suite string, runs []*run) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `# MCP conformance

What %s, the official conformance suite, says.
Written by %s; do not edit. A run fails if a scenario does not pass that is not listed below as such, and if
one passes that is.

`, "`@modelcontextprotocol/conformance@"+suite+"`", "`make conformance`")
	fmt.Fprintln(&b, summaryHead+"\n|---|---|---|---|---|---|")
	for _, r := range runs {
		fmt.Fprintln(&b, r.summary())
	}
	fmt.Fprintln(&b, "\n\"Beside the requirements\" are what the suite runs and does not count: extensions, and scenarios that are newer than\nthe revision or still pending in the suite.")
	for i, r := range runs {
		if i == 0 || runs[i-1].target != r.target {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", r.target.title, r.target.about)
		}
		fmt.Fprintf(&b, "\n### %s, %s\n\nAll checks: [%s.json](%s.json)\n\n", r.target.title, r.revision, r.name(), r.name())
		fmt.Fprintln(&b, "| Scenario | Result | Checks | Why not |\n|---|---|---|---|")
		for i := range r.results {
			fmt.Fprintln(&b, r.row(&r.results[i]))
		}
	}
	return b.Bytes()
}

// outcome is the verdict as a reader of the table wants it: what the hub cannot be asked is no
// failure of it.
func (r *run) outcome(s *result) (word, checks, reason string) {
	word, passed, total := s.verdict()
	checks = fmt.Sprintf("%d of %d", passed, total)
	g := find(expected[r.name()], s.Scenario)
	switch faults := compare([]result{*s}, gapsOf(g)); {
	case len(faults) > 0:
		return word, checks, "**Not expected.** " + strings.Join(faults, "; ")
	case g == nil:
		return word, checks, ""
	case g.fixture != "" && g.checks != nil:
		word = "passes but for fixtures"
	case g.fixture != "":
		word = "needs a fixture"
	}
	return word, checks, g.words()
}

func gapsOf(g *gap) []gap {
	if g == nil {
		return nil
	}
	return []gap{*g}
}

func (r *run) row(s *result) string {
	word, checks, reason := r.outcome(s)
	name := "`" + s.Scenario + "`"
	if s.Aside != "" {
		name += " (" + s.Aside + ")"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", name, word, checks, strings.ReplaceAll(reason, "|", `\|`))
}

const summaryHead = "| Run | Revision | Required scenarios that pass | Need a fixture | Do not pass | Beside the requirements |"

func (r *run) summary() string {
	var required, passed, fixture, aside, asidePassed int
	for i := range r.results {
		word, _, _ := r.outcome(&r.results[i])
		if r.results[i].Aside != "" {
			aside++
			if word == "passes" {
				asidePassed++
			}
			continue
		}
		required++
		switch word {
		case "passes":
			passed++
		case "needs a fixture", "passes but for fixtures":
			fixture++
		}
	}
	return fmt.Sprintf("| %s | %s | %d of %d | %d | %d | %d of %d pass |", r.target.title, r.revision, passed, required, fixture, required-passed-fixture, asidePassed, aside)
}
