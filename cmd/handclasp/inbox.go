package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/restapi"
)

type inboxCmd struct {
	config.Identity `embed:""`
	output          `embed:""`
	Thread          string   `arg:"" optional:"" name:"thread-id" help:"A handoff to open (on the local data folder the beginning of its id is enough, 8 characters or more); its messages count as read then."`
	Status          []string `help:"Only pending, accepted, completed, declined, cancelled or expired ones; may be repeated." placeholder:"STATUS"`
	Sent            bool     `help:"Only what the agent sent." xor:"direction"`
	Received        bool     `help:"Only what was sent to it." xor:"direction"`
	Limit           int      `help:"Handoffs a page (default ${default})." default:"50"`
	Cursor          string   `help:"Where the last page ended." placeholder:"CURSOR"`
	Wait            int      `help:"Seconds to wait for something unread, at most 50." placeholder:"SECONDS"`
}

// Help is printed by --help.
func (*inboxCmd) Help() string {
	return `Shows a person what waits for an agent, and marks as read only what is opened.

Examples:
  handclasp inbox --as frank@acme
  handclasp inbox 0192f3a0-… --as frank@acme
  handclasp inbox --url https://hub.example.com --key-file frank.key --status pending`
}

type partyView struct{ Handle, Name, Role string }

// heldBy names whom a handoff was sent to, and who holds it if that is another. An open handoff names
// nobody.
func heldBy(to partyView, holder *partyView) string {
	name := to.Handle
	if name == "" {
		name = "the pool"
	}
	if holder == nil {
		return name
	}
	return name + " (held by " + holder.Handle + ")"
}

type inboxView struct {
	Items []struct {
		ThreadID string     `json:"thread_id"`
		Sender   partyView  `json:"sender"`
		To       partyView  `json:"recipient"`
		Holder   *partyView `json:"holder"`
		Preview  string     `json:"summary_preview"`
		Intent   string     `json:"intent"`
		Status   string     `json:"status"`
		Unread   int        `json:"unread_messages"`
		Created  string     `json:"created_at"`
	} `json:"items"`
	Unread int     `json:"unread_total"`
	Next   *string `json:"next_cursor"`
}

// Run lists the inbox, or opens one thread.
func (c *inboxCmd) Run(e *env) error {
	if c.Thread != "" {
		return c.open(e)
	}
	args := map[string]any{"limit": c.Limit, "wait_seconds": c.Wait}
	if len(c.Status) > 0 {
		args["status"] = c.Status
	}
	switch {
	case c.Sent:
		args["role"] = "sender"
	case c.Received:
		args["role"] = "recipient"
	}
	if c.Cursor != "" {
		args["cursor"] = c.Cursor
	}
	return asAgent(e, &c.Identity, func(s *session) error {
		var raw json.RawMessage
		if err := s.call("check_inbox", args, &raw); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, raw)
		}
		var in inboxView
		if err := json.Unmarshal(raw, &in); err != nil {
			return err
		}
		return in.print(e)
	})
}

func (in *inboxView) print(e *env) error {
	if len(in.Items) == 0 {
		return e.say("nothing waits\n")
	}
	err := table(e, "THREAD\tSTATUS\tUNREAD\tFROM\tTO\tINTENT\tAGE\tSUMMARY", len(in.Items), func(i int) string {
		it := in.Items[i]
		return strings.Join([]string{
			it.ThreadID, it.Status, fmt.Sprint(it.Unread), it.Sender.Handle, heldBy(it.To, it.Holder), it.Intent, ageOf(it.Created, time.Now()), oneLine(it.Preview, previewWidth),
		}, "\t")
	})
	if err != nil {
		return err
	}
	if in.Next != nil {
		if err := e.say("\nmore: --cursor %s\n", *in.Next); err != nil {
			return err
		}
	}
	return e.say("\n%d unread in all; open one with: handclasp inbox THREAD%s\n", in.Unread, e.sameHub)
}

type threadView struct {
	ThreadID  string         `json:"thread_id"`
	Status    string         `json:"status"`
	Intent    string         `json:"intent"`
	Sender    partyView      `json:"sender"`
	To        partyView      `json:"recipient"`
	Holder    *partyView     `json:"holder"`
	Question  string         `json:"question"`
	Action    *actionView    `json:"proposed_action"`
	Drafts    []draftView    `json:"drafts"`
	Artifacts []artifactView `json:"artifacts"`
	Messages  []struct {
		Seq       int            `json:"sequence_no"`
		From      string         `json:"from"`
		Body      string         `json:"body"`
		Artifacts []artifactView `json:"artifacts"`
		Created   string         `json:"created_at"`
	} `json:"messages"`
	Result     string         `json:"result_summary"`
	Delivered  []artifactView `json:"completion_artifacts"`
	Reason     string         `json:"ended_reason"`
	Created    string         `json:"created_at"`
	HasMore    bool           `json:"has_more"`
	NextNumber int            `json:"next_sequence_no"`
}

type actionView struct {
	Description, Rationale string
	TargetFiles            []string `json:"target_files"`
	Diff                   string   `json:"suggested_diff"`
}

type draftView struct {
	DraftID string `json:"draft_id"`
	Status  string `json:"status"`
	Diff    string `json:"suggested_diff"`
	Reason  string `json:"reason"`
}

type artifactView map[string]any

// line is an artifact in one line, with its diff below.
func (a artifactView) line() string {
	text := func(name string) string {
		s, _ := a[name].(string)
		return oneLine(s, 200)
	}
	out := text("type")
	for _, name := range []string{"path", "command", "schema_url", "url"} {
		if v := text(name); v != "" {
			out += "  " + v
		}
	}
	if diff, ok := a["diff"].(string); ok {
		out += "\n" + indented(diff)
	}
	return out
}

func (c *inboxCmd) open(e *env) error {
	return asAgent(e, &c.Identity, func(s *session) error {
		id, err := s.threadWith(c.Thread)
		if err != nil {
			return err
		}
		var whole map[string]any
		for after := 0; ; {
			var raw json.RawMessage
			if err := s.call("view_thread", map[string]any{"thread_id": id, "after_sequence_no": after}, &raw); err != nil {
				return err
			}
			var t threadView
			if err := json.Unmarshal(raw, &t); err != nil {
				return err
			}
			if !c.JSON {
				if err := t.print(e, after == 0); err != nil {
					return err
				}
			}
			if whole, err = joined(whole, raw); err != nil {
				return err
			}
			if after = t.NextNumber; t.HasMore {
				continue
			}
			if c.JSON {
				return printJSON(e, whole)
			}
			return nil
		}
	})
}

// joined is a thread with the messages of a further page.
func joined(whole map[string]any, page json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(page))
	d.UseNumber() // numbers of payloads stay as they are
	var next map[string]any
	if err := d.Decode(&next); err != nil || whole == nil {
		return next, err
	}
	before, _ := whole["messages"].([]any)
	more, _ := next["messages"].([]any)
	whole["messages"], whole["has_more"] = append(before, more...), next["has_more"]
	delete(whole, "next_sequence_no")
	return whole, nil
}

// threadWith completes an id of which only the beginning was given: where the data lies here, the
// operator can look it up.
func (s *session) threadWith(begin string) (string, error) {
	if s.operator == nil {
		return begin, nil
	}
	var h restapi.Handoff
	err := s.operator.get("/operator/handoffs/"+escape(begin)+"?limit=1", &h)
	var refused refusedError
	switch {
	case err == nil:
		return h.ThreadID, nil
	case errors.As(err, &refused) && refused.code == handoff.CodeNotFound:
		return begin, nil // in the words for the agent
	}
	return "", err
}

// print writes a page of a thread. What agents wrote is indented, our own words are not.
func (t *threadView) print(e *env, first bool) error {
	var b strings.Builder
	if first {
		fmt.Fprintf(&b, "%s  %s  %s\nfrom %s to %s, %s\n", t.ThreadID, t.Status, t.Intent, t.Sender.Handle, heldBy(t.To, t.Holder), ageOf(t.Created, time.Now())+" ago")
		part(&b, "question", t.Question)
		if t.Action != nil {
			part(&b, "proposed action", t.Action.Description)
			part(&b, "why", t.Action.Rationale)
			part(&b, "files", strings.Join(t.Action.TargetFiles, "\n"))
			part(&b, "diff", t.Action.Diff)
		}
		for _, d := range t.Drafts {
			part(&b, "draft "+d.DraftID+", "+d.Status, d.Diff)
		}
		for _, a := range t.Artifacts {
			fmt.Fprintf(&b, "\nattached: %s\n", a.line())
		}
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		part(&b, fmt.Sprintf("#%d %s, %s", m.Seq, m.From, ageOf(m.Created, time.Now())+" ago"), m.Body)
		if m.Seq > 1 { // those of the first are the handoff's own
			for _, a := range m.Artifacts {
				fmt.Fprintf(&b, "attached: %s\n", a.line())
			}
		}
	}
	if first {
		part(&b, "result", t.Result)
		for _, a := range t.Delivered {
			fmt.Fprintf(&b, "delivered: %s\n", a.line())
		}
		part(&b, "reason", t.Reason)
	}
	return e.say("%s", b.String())
}

func part(b *strings.Builder, title, text string) {
	if text != "" {
		fmt.Fprintf(b, "\n%s:\n%s\n", title, indented(text))
	}
}
