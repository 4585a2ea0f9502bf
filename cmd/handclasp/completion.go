package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is printed by --help.
func (*completionCmd) Help() string {
	return `Prints what a shell needs to complete commands and flags.

Examples:
  source <(handclasp completion bash)                       in ~/.bashrc
  source <(handclasp completion zsh)                        in ~/.zshrc, after compinit
  handclasp completion fish | source                        in ~/.config/fish/config.fish`
}

// The scripts ask the program itself, so that they never lag behind it.
var completionScripts = map[string]string{
	"bash": `_handclasp() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _handclasp handclasp
`,
	"zsh": `_handclasp() {
  local -a found
  found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n ${found[1]} ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _handclasp handclasp
`,
	"fish": `complete -c handclasp -f -a '(handclasp complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

// Run prints the script of a shell.
func (c *completionCmd) Run(e *env) error { return e.say("%s", completionScripts[c.Shell]) }

// completeCmd is what the scripts call.
type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:""`
}

// Run prints what the last word, which may be empty, can become.
func (c *completeCmd) Run(e *env) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, s := range candidates(e.model, words) {
		if _, err := fmt.Fprintln(e.stdout, s); err != nil {
			return err
		}
	}
	return nil
}

// candidates completes the last of the words that follow the program's name.
func candidates(node *kong.Node, words []string) []string {
	if len(words) == 0 {
		words = []string{""}
	}
	last := len(words) - 1
	var pending *kong.Flag // the flag whose value comes next
	for _, w := range words[:last] {
		switch {
		case pending != nil:
			pending = nil
		case strings.HasPrefix(w, "-"):
			if f := flagNamed(node, w); f != nil && !f.IsBool() && !strings.Contains(w, "=") {
				pending = f
			}
		default:
			if child := childNamed(node, w); child != nil {
				node = child
			} else if node.DefaultCmd != nil { // whose name was left out
				node = node.DefaultCmd
			}
		}
	}
	var all []string
	switch {
	case pending != nil:
		all = enumOf(pending.Value)
	case strings.HasPrefix(words[last], "-"):
		for _, group := range node.AllFlags(true) {
			for _, f := range group {
				all = append(all, "--"+f.Name)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				all = append(all, child.Name)
			}
		}
		for _, p := range node.Positional {
			all = append(all, enumOf(p)...)
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" || !strings.HasPrefix(s, words[last]) })
	slices.Sort(all)
	return slices.Compact(all)
}

func enumOf(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

func childNamed(n *kong.Node, name string) *kong.Node {
	for _, child := range n.Children {
		if child.Name == name || slices.Contains(child.Aliases, name) {
			return child
		}
	}
	return nil
}

func flagNamed(n *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, group := range n.AllFlags(false) {
		for _, f := range group {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}
