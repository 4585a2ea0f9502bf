package mcpserver

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"handclasp/internal/handoff"
)

// What every tool's text must have is what notes on tool definitions and a reader who has seen
// nothing else ask for.

func TestEveryParameterOfEveryToolIsDescribed(t *testing.T) {
	t.Parallel()
	var walk func(path string, p *param)
	walk = func(path string, p *param) {
		for i := range p.props {
			f := &p.props[i]
			if f.desc == "" {
				t.Errorf("%s.%s has no description", path, f.name)
			}
			if f.kind == kindString && f.maxLen > 0 && f.characters {
				t.Errorf("%s.%s is bounded in characters; our limits are bytes", path, f.name)
			}
			walk(path+"."+f.name, f)
		}
		if p.item != nil {
			walk(path+"[]", p.item)
		}
	}
	for i := range teamTools {
		walk(teamTools[i].name, &param{props: teamTools[i].params})
	}
}

func TestEveryToolSaysWhatItsSiblingsAreAndHowItRefuses(t *testing.T) {
	t.Parallel()
	codes := regexp.MustCompile(`\b(not_found|not_owner|recipient_not_found|thread_terminal|invalid_\w+|rate_limited|teammate_blocked)\b`)
	for i := range teamTools {
		d := &teamTools[i]
		sibling := false
		for j := range teamTools {
			sibling = sibling || i != j && strings.Contains(d.desc, teamTools[j].name)
		}
		switch {
		case !sibling:
			t.Errorf("%s names no other tool", d.name)
		case !codes.MatchString(d.desc):
			t.Errorf("%s names no code that it refuses with", d.name)
		case len(d.title) <= len(d.name):
			t.Errorf("the title of %s says no more than its name", d.name)
		case regexp.MustCompile(`(?i)always|must call|call this first`).MatchString(d.desc):
			t.Errorf("%s tries to be called", d.name)
		}
		if d.hints.readOnly && (d.hints.destructive || !d.hints.idempotent) {
			t.Errorf("the hints of %s contradict each other", d.name)
		}
		writes := !d.hints.readOnly && d.name != "check_inbox" && d.name != "view_thread"
		if keyed := (&param{props: d.params}).find([]byte("idempotency_key")) >= 0; keyed != writes {
			t.Errorf("%s: writes %v, takes an idempotency_key %v", d.name, writes, keyed)
		}
	}
}

func TestTheToolsNameNoCodeThatDoesNotExist(t *testing.T) {
	t.Parallel()
	for i := range teamTools {
		d := teamTools[i].definition()
		in, err := json.Marshal(d.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		nothingUnknown(t, d.Name, d.Description+" "+string(in))
	}
}

var snakeWord = regexp.MustCompile(`\b[a-z]+(_[a-z]+)+\b`)

// nothingUnknown fails for a word such as this_one that is neither tool, parameter, field nor code.
func nothingUnknown(t *testing.T, where, text string) {
	t.Helper()
	known := knownWords()
	for _, w := range snakeWord.FindAllString(text, -1) {
		if code := handoff.Code(w); !known[w] && handoff.Lookup(code) == handoff.Lookup(handoff.CodeInternal) {
			t.Errorf("%s speaks of %s, which is neither tool, parameter, field nor code", where, w)
		}
	}
}

// knownWords are the names that texts may use.
func knownWords() map[string]bool {
	known := map[string]bool{"propose_action": true, "ask_question": true, "target_files": true, "has_more": true, "handoff_already_claimed": true}
	var names func(ps []param)
	names = func(ps []param) {
		for j := range ps {
			known[ps[j].name] = true
			names(ps[j].props)
			if ps[j].item != nil {
				names(ps[j].item.props)
				for _, v := range ps[j].item.enum {
					known[v] = true
				}
			}
		}
	}
	for i := range teamTools {
		known[teamTools[i].name] = true
		names(teamTools[i].params)
		names(teamTools[i].output)
	}
	for _, kind := range handoff.ArtifactTypes() {
		known[kind] = true
	}
	for i := range teamPrompts {
		known[teamPrompts[i].name] = true
	}
	return known
}
