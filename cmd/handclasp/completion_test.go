package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
)

func TestCommandsFlagsAndValuesAreCompleted(t *testing.T) {
	t.Parallel()
	for words, want := range map[string]string{
		"":                          "agent",
		"ag":                        "agent",
		"agent ":                    "disable",
		"agent key ro":              "rotate",
		"agent add --cl":            "--client",
		"agent add x@y --client ":   "codex",
		"serve --log-format ":       "json",
		"agent list --data /tmp --": "--json",
		"completion ":               "fish",
		"mcp --transport ":          "mcp",
		"cat":                       "catalog",
		"catalog remove ":           "capability",
		"workspace ":                "alias",
		"workspace alias /a --":     "--of",
		"workspace members /a --s":  "--strict",
		"handoff list --door ":      "pool",
	} {
		args := append([]string{"complete", "--"}, strings.Split(words, " ")...)
		p := runWithInput("", args...)
		if lines := strings.Split(p.stdout.String(), "\n"); p.code != 0 || !slices.Contains(lines, want) || slices.Contains(lines, "complete") {
			t.Errorf("%q: %q is missing in %q %s", words, want, lines, p.stderr.String())
		}
	}
}

func TestEachShellTakesItsScript(t *testing.T) {
	t.Parallel()
	for shell, ask := range map[string]string{
		"bash": `source <(handclasp completion bash); COMP_WORDS=(handclasp agent key ro); COMP_CWORD=3; _handclasp; echo "${COMPREPLY[@]}"`,
		"zsh":  `autoload -Uz compinit; compinit -D; source <(handclasp completion zsh); compadd() { shift; print -r -- "$@"; }; words=(handclasp agent key ro); CURRENT=4; _handclasp`,
		"fish": `handclasp completion fish | source; complete -C 'handclasp agent key ro'`,
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			bin, err := exec.LookPath(shell)
			hubtest.Require(t, shell, err)
			cmd := exec.CommandContext(t.Context(), bin, "-c", ask) //nolint:gosec // a shell is asked
			cmd.Env = append(os.Environ(), "PATH="+shim(t)+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			if err != nil || strings.TrimSpace(string(out)) != "rotate" {
				t.Errorf("%v: %q", err, out)
			}
		})
	}
}
