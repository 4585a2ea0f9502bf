package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/google/uuid"

	"handclasp/internal/config"
)

type sendCmd struct {
	config.Identity `embed:""`
	output          `embed:""`
	To              string   `arg:"" help:"Teammate's agent, such as frank@acme."`
	Summary         string   `arg:"" optional:"" help:"What this is, what is done, what is open; left out or -, it is read from stdin."`
	Intent          string   `help:"inform or ask_question (default: ask_question with --question, else inform)." enum:",inform,ask_question" default:"" placeholder:"INTENT"`
	Question        string   `help:"What you want to know."`
	Diff            []string `help:"File with a unified diff to attach, or - for stdin; may be repeated." sep:"none" placeholder:"FILE"`
	File            []string `help:"Path to point at, such as api/openapi.yaml; may be repeated." sep:"none" placeholder:"PATH"`
	Link            []string `help:"http or https address to attach; may be repeated." sep:"none" placeholder:"URL"`
	Test            []string `help:"Command that shows whether it works; may be repeated." sep:"none" placeholder:"COMMAND"`
	IdempotencyKey  string   `name:"idempotency-key" help:"Same key, same handoff: repeat a command safely. Default: a new one." placeholder:"KEY"`
}

// Help is printed by --help.
func (*sendCmd) Help() string {
	return `Hands work to a teammate's agent, as an agent of yours. A proposed action is for agents: use
handoff_to_teammate over MCP.

Examples:
  handclasp send frank@acme "GET /users is paginated now." --as anna@acme --file openapi.yaml
  git diff | handclasp send frank@acme "Please review." --diff - --as anna@acme
  handclasp send frank@acme --question "Can the list follow next_cursor?" --as anna@acme < notes.md`
}

// Run sends one handoff.
func (c *sendCmd) Run(e *env) error {
	args, err := c.arguments(e)
	if err != nil {
		return err
	}
	return asAgent(e, &c.Identity, func(s *session) error {
		var raw json.RawMessage
		if err := s.call("handoff_to_teammate", args, &raw); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, raw)
		}
		var out struct {
			ThreadID  string `json:"thread_id"`
			Status    string `json:"status"`
			Recipient string `json:"recipient"`
			InboxURL  string `json:"inbox_url"`
			Replay    bool   `json:"idempotent_replay"`
		}
		if err := json.Unmarshal(raw, &out); err != nil {
			return err
		}
		said := "handed to"
		if out.Replay {
			said = "was handed before, with this key, to"
		}
		page := ""
		if strings.HasPrefix(out.InboxURL, "http") { // else no hub is there to show it
			page = "page    " + out.InboxURL + "\n"
		}
		return e.say("%s %s\nthread  %s\nstatus  %s\n%s", said, out.Recipient, out.ThreadID, out.Status, page)
	})
}

func (c *sendCmd) arguments(e *env) (map[string]any, error) {
	summaryFromStdin := c.Summary == "" || c.Summary == "-"
	attached, err := c.attachments(e, summaryFromStdin)
	if err != nil {
		return nil, err
	}
	if summaryFromStdin {
		if c.Summary, err = readText(e.stdin, "the summary"); err != nil {
			return nil, err
		}
	}
	if strings.TrimSpace(c.Summary) == "" {
		return nil, usageError{errors.New("the summary is missing: give it as the second argument, or on stdin")}
	}
	if c.Intent == "" {
		c.Intent = "inform"
		if c.Question != "" {
			c.Intent = "ask_question"
		}
	}
	if c.IdempotencyKey == "" {
		c.IdempotencyKey = uuid.NewString()
	}
	args := map[string]any{
		"to": c.To, "intent": c.Intent, "summary": c.Summary, "artifacts": attached, "idempotency_key": c.IdempotencyKey,
	}
	if c.Question != "" {
		args["question"] = c.Question
	}
	return args, nil
}

func (c *sendCmd) attachments(e *env, stdinTaken bool) ([]any, error) {
	list := []any{}
	for _, name := range c.Diff {
		text, path, err := "", name, error(nil)
		switch {
		case name == "-" && stdinTaken:
			return nil, usageError{errors.New("--diff - and the summary both want stdin: give the summary as an argument")}
		case name == "-":
			stdinTaken = true
			text, err = readText(e.stdin, "--diff")
		default:
			var b []byte
			b, err = os.ReadFile(name)
			text = string(b)
		}
		if err != nil {
			return nil, fmt.Errorf("--diff: %w", err)
		}
		if strings.TrimSpace(text) == "" {
			return nil, fmt.Errorf("--diff: %s is empty; nothing is changed there, or git diff wants --staged or a commit", diffName(name))
		}
		if path = firstFile(text); path == "" {
			return nil, fmt.Errorf("--diff: %s holds no unified diff; give what git diff prints", diffName(name))
		}
		list = append(list, map[string]any{"type": "file_diff", "path": path, "diff": text})
	}
	for kind, values := range map[string]struct {
		field string
		list  []string
	}{"file_ref": {"path", c.File}, "link": {"url", c.Link}, "test_command": {"command", c.Test}} {
		for _, v := range values.list {
			list = append(list, map[string]any{"type": kind, values.field: v})
		}
	}
	return list, nil
}

func diffName(name string) string {
	if name == "-" {
		return "stdin"
	}
	return name
}

// firstFile is the path that a diff begins with.
func firstFile(diff string) string {
	for line := range strings.SplitSeq(diff, "\n") {
		for _, mark := range []string{"+++ ", "--- "} {
			name, ok := strings.CutPrefix(line, mark)
			if !ok {
				continue
			}
			name, _, _ = strings.Cut(strings.TrimRight(name, "\r"), "\t")
			if name != "/dev/null" && name != "" {
				return strings.TrimPrefix(strings.TrimPrefix(name, "b/"), "a/")
			}
		}
	}
	return ""
}

// stdinLimit is more than a summary or a diff may have; the hub says how much that is.
const stdinLimit = 4 << 20

func readText(in io.Reader, what string) (string, error) {
	if isTerminal(in) {
		return "", usageError{errors.New(what + " is read from stdin, and that is your terminal: give it as an argument, or pipe it in")}
	}
	b, err := io.ReadAll(io.LimitReader(in, stdinLimit))
	return strings.TrimRight(string(b), "\n"), err
}
