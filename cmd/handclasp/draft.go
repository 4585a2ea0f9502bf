package main

import (
	"fmt"
	"strings"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
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

// Help is printed by --help.
func (*draftListCmd) Help() string {
	return `Example:

  handclasp handoff draft list`
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
		if len(out.Drafts) == 0 {
			return e.say("no draft waits for a decision\n")
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

// Help is printed by --help.
func (*draftShowCmd) Help() string {
	return `Example:

  handclasp handoff draft show 019ad5c2-4f60-7a52-8c11-5d0e3b7f2a90`
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
		if err == nil && d.Status == string(handoff.Drafted) {
			err = e.say("\nDecide with: handclasp handoff draft approve %[1]s%[2]s, or decline %[1]s --reason …%[2]s\n", d.DraftID, e.sameHub)
		}
		return err
	})
}

type draftApproveCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	DraftID      string `arg:"" name:"draft-id" help:"As draft list shows it; draft show prints its diff."`
	Reason       string `help:"A word to both sides."`
}

// Help is printed by --help.
func (*draftApproveCmd) Help() string {
	return `Both sides see it; applying the diff is left to them.

Example:

  handclasp handoff draft approve 019ad5c2-4f60-7a52-8c11-5d0e3b7f2a90 --reason "merge it today"`
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

// Help is printed by --help.
func (*draftDeclineCmd) Help() string {
	return `The handoff goes on; its holder may offer another draft.

Example:

  handclasp handoff draft decline 019ad5c2-4f60-7a52-8c11-5d0e3b7f2a90 --reason "it breaks the old clients"`
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
