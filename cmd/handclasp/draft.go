package main

import (
	"fmt"
	"strings"

	"handclasp/internal/config"
	"handclasp/internal/restapi"
)

type handoffCmd struct {
	List     handoffListCmd     `cmd:"" help:"List handoffs, newest first; find what is stuck."`
	Show     handoffShowCmd     `cmd:"" help:"Show a handoff with its thread and its events."`
	Cancel   handoffCancelCmd   `cmd:"" help:"End a handoff that has not ended, with a reason."`
	Reassign handoffReassignCmd `cmd:"" help:"Give a handoff to another agent, with a reason."`
	Erase    handoffEraseCmd    `cmd:"" help:"Remove the texts of a handoff that has ended, for good."`
	Draft    draftCmd           `cmd:"" help:"Drafts that wait for a person's word."`
}

type draftCmd struct {
	List    draftListCmd    `cmd:"" help:"List undecided drafts, oldest first."`
	Show    draftShowCmd    `cmd:"" help:"Show a draft with its diff."`
	Approve draftApproveCmd `cmd:"" help:"Approve a draft. The hub never applies it."`
	Decline draftDeclineCmd `cmd:"" help:"Decline a draft, with a reason."`
}

type draftListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
}

func (c *draftListCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out struct {
			Drafts []restapi.Draft `json:"drafts"`
		}
		if err := o.get("/operator/drafts", &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		return table(e, "DRAFT\tFROM\tFOR\tFILES\tCREATED", len(out.Drafts), func(i int) string {
			d := out.Drafts[i]
			return strings.Join([]string{d.DraftID, d.From, d.Sender, lineOrDash(strings.Join(d.TargetFiles, " ")), d.CreatedAt}, "\t")
		})
	})
}

type draftShowCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	DraftID      string `arg:"" name:"draft-id" help:"As draft list shows it."`
}

func (c *draftShowCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var d restapi.Draft
		if err := o.get("/operator/drafts/"+escape(c.DraftID), &d); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, d)
		}
		// What agents wrote is shown as text: it cannot move the cursor or hide itself, nor pass for
		// what stands behind it.
		_, err := fmt.Fprintf(e.stdout, "%s, offered by %s for %s, thread %s\n\n%s\n\nWhy:\n%s\nFiles: %s\n\n%s\n",
			d.Status, d.From, d.Sender, d.ThreadID, indented(d.Description), indented(d.Rationale), lineOrDash(strings.Join(d.TargetFiles, " ")), plain(d.SuggestedDiff))
		return err
	})
}

type draftApproveCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	DraftID      string `arg:"" name:"draft-id" help:"As draft list shows it; draft show prints its diff."`
	Reason       string `help:"A word to both sides."`
}

func (c *draftApproveCmd) Run(e *env) error {
	return decide(e, &c.Where, c.JSON, c.DraftID, true, c.Reason)
}

type draftDeclineCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	DraftID      string `arg:"" name:"draft-id" help:"As draft list shows it; draft show prints its diff."`
	Reason       string `help:"Why; both sides are told." required:""`
}

func (c *draftDeclineCmd) Run(e *env) error {
	return decide(e, &c.Where, c.JSON, c.DraftID, false, c.Reason)
}

func decide(e *env, where *config.Where, asJSON bool, id string, approve bool, reason string) error {
	return operate(e, where, func(o *operatorClient) error {
		var d restapi.Draft
		if err := o.post("/operator/drafts/"+escape(id)+"/decision", map[string]any{"approve": approve, "reason": reason}, &d); err != nil {
			return err
		}
		if asJSON {
			return printJSON(e, d)
		}
		_, err := fmt.Fprintln(e.stdout, d.Status, d.DraftID)
		return err
	})
}

// plain makes text of others safe for a terminal: control characters could rewrite the screen.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\uFFFD'
		}
		return r
	}, s)
}
