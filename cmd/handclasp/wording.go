package main

import (
	"regexp"
	"strings"

	"handclasp/internal/handoff"
)

// Refusals of the hub are worded for agents, which know tools and parameters. A person at a
// terminal knows commands and flags.

// parameter finds what a refusal is about, at its beginning.
var parameter = regexp.MustCompile(`^([a-z_]+)(?:\[\d+\])?(?:\.([a-z_]+))?[^ :]*: `)

// flagFor is what sets a parameter on the command line; "artifacts.url" is a field of one.
var flagFor = map[string]string{
	"to": "the recipient", "summary": "the summary", "thread_id": "the thread", "intent": "--intent", "question": "--question",
	"status": "--status", "role": "--role", "limit": "--limit", "cursor": "--cursor", "wait_seconds": "--wait",
	"idempotency_key": "--idempotency-key", "since": "--since", "project_root": "the project root", "of": "--of", "remove": "--remove",
	"artifacts.url": "--link", "artifacts.path": "--file", "artifacts.command": "--test", "artifacts.diff": "--diff",
}

// toolWords are those of a hint for agents.
var toolWords = regexp.MustCompile(`\b(handoff|check|accept|decline|view|send|draft|complete|cancel|list|block|unblock)_[a-z_]+|\bidempotency_key\b|Correct this argument|Bearer`)

// adviceFor replaces a hint for agents.
var adviceFor = map[handoff.Code]string{
	handoff.CodeRecipientNotFound: "handclasp agent list shows who is there.",
	handoff.CodeNotFound:          "handclasp inbox lists what concerns the agent.",
	handoff.CodeUnavailable:       "Try again in a moment.",
}

// forPerson words a refusal of the hub for a terminal.
func forPerson(code handoff.Code, message, hint string) string {
	if m := parameter.FindStringSubmatch(message); m != nil {
		for _, name := range []string{m[1] + "." + m[2], m[1]} {
			if flag, ok := flagFor[name]; ok {
				message = flag + ": " + strings.TrimPrefix(message, m[0])
				break
			}
		}
	}
	message = strings.NewReplacer("list_teammates", "handclasp agent list", "check_inbox", "handclasp inbox").Replace(message)
	if toolWords.MatchString(hint) {
		hint = adviceFor[code]
	}
	return handoff.Sentences(message, hint)
}
