package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/restapi"
)

type handoffListCmd struct {
	config.Where   `embed:""`
	output         `embed:""`
	Status         []string `help:"Only pending, accepted, completed, declined, cancelled or expired ones, or in words of the pool OPEN, CLAIMED, VERIFYING, COMPLETED, REJECTED, CANCELLED, EXPIRED; may be repeated." placeholder:"STATUS"`
	Door           string   `help:"Only those of the door team, pool or desk." enum:",team,pool,desk" default:"" placeholder:"DOOR"`
	Workspace      string   `help:"Only open handoffs of the workspace with this root." placeholder:"ROOT"`
	Agent          string   `help:"Only those that this agent sent, received or holds." placeholder:"HANDLE"`
	From           string   `help:"Only those that this agent sent." placeholder:"HANDLE"`
	To             string   `help:"Only those that were sent to this agent, or to person:SLUG, the person of a business." placeholder:"HANDLE"`
	Since          string   `help:"Only those created since: a time such as 2026-11-30T12:00:00Z, or an age such as 2h or 3d." placeholder:"TIME"`
	Unfetched      bool     `help:"Only pending ones that their recipient never looked at."`
	Untold         bool     `help:"Only open ones of the desk whose person was not told, or nobody knows."`
	HeldLongerThan string   `help:"Only those that their holder has had for longer, such as 2h." placeholder:"AGE"`
	Limit          int      `help:"At most so many, 1 to 200 (default 50)."`
	Cursor         string   `help:"Go on where a list ended: its next cursor."`
	All            bool     `help:"All pages."`
}

// Help is printed by --help.
func (handoffListCmd) Help() string {
	return `Examples:

  handclasp handoff list --status pending --to frank@acme
  handclasp handoff list --unfetched                      nobody has looked at these
  handclasp handoff list --untold                         customers whom nobody was told about
  handclasp handoff list --to person:corner-shop
  handclasp handoff list --held-longer-than 2h            accepted and not finished
  handclasp handoff list --door pool --workspace /srv/shop --status OPEN
  handclasp handoff list --since 1d --all --json`
}

func (c *handoffListCmd) query() (url.Values, error) {
	q := url.Values{"status": c.Status}
	for name, value := range map[string]string{"agent": c.Agent, "from": c.From, "to": c.To, "cursor": c.Cursor, "door": c.Door, "project_root": c.Workspace} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if c.Workspace != "" && (c.Door == string(handoff.DoorTeam) || c.Door == string(handoff.DoorDesk)) {
		return nil, usageError{fmt.Errorf("--workspace and --door %s exclude each other: only what is offered at the pool is of a workspace", c.Door)}
	}
	if c.Unfetched && c.HeldLongerThan != "" {
		return nil, usageError{errors.New("--unfetched and --held-longer-than exclude each other: what nobody fetched is held by nobody")}
	}
	if c.Untold {
		q.Set("untold", "true")
	}
	if c.Unfetched {
		q.Set("unfetched", "true")
	}
	if c.Since != "" {
		since, err := time.Parse(time.RFC3339, c.Since)
		if err != nil {
			age, ok := parseAge(c.Since)
			if !ok {
				return nil, usageError{fmt.Errorf("--since: %s came; a time such as 2026-11-30T12:00:00Z or an age such as 2h or 3d is accepted", handoff.Quote(c.Since))}
			}
			since = time.Now().Add(-age)
		}
		q.Set("since", since.UTC().Format(time.RFC3339Nano))
	}
	if c.HeldLongerThan != "" {
		age, ok := parseAge(c.HeldLongerThan)
		if !ok {
			return nil, usageError{fmt.Errorf("--held-longer-than: %s came; an age of a second or more is accepted, such as 90m, 2h or 3d", handoff.Quote(c.HeldLongerThan))}
		}
		q.Set("held_longer_than_seconds", strconv.Itoa(int(age/time.Second)))
	}
	switch {
	case c.Limit != 0:
		q.Set("limit", strconv.Itoa(c.Limit))
	case c.All:
		q.Set("limit", "200")
	}
	return q, nil
}

// parseAge reads 90m, 2h or 3d, between a second and ten years.
func parseAge(s string) (time.Duration, bool) {
	const day = 24 * time.Hour
	age, err := time.ParseDuration(s)
	if days, isDays := strings.CutSuffix(s, "d"); isDays {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 12)
		age = time.Duration(n) * day
	}
	return age, err == nil && age >= time.Second && age <= 3660*day
}

// Run lists.
func (c *handoffListCmd) Run(e *env) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	return operate(e, &c.Where, func(o *operatorClient) error {
		list := restapi.Handoffs{Handoffs: []restapi.Handoff{}}
		for {
			var page restapi.Handoffs
			if err := o.get("/operator/handoffs?"+q.Encode(), &page); err != nil {
				return err
			}
			list.Handoffs, list.NextCursor = append(list.Handoffs, page.Handoffs...), page.NextCursor
			if !c.All || page.NextCursor == nil {
				break
			}
			q.Set("cursor", *page.NextCursor)
		}
		if c.JSON {
			return printJSON(e, list)
		}
		if len(list.Handoffs) == 0 {
			return e.say("no handoff is like that\n")
		}
		now := time.Now()
		if err := table(e, "ID\tSTATUS\tFROM\tTO\tINTENT\tAGE\tPREVIEW", len(list.Handoffs), func(i int) string {
			h := &list.Handoffs[i]
			return strings.Join([]string{h.ThreadID, h.Status, h.From, recipientOf(h), lineOrDash(h.Intent), ageOf(h.CreatedAt, now), aboutOf(h)}, "\t")
		}); err != nil || list.NextCursor == nil {
			return err
		}
		_, err := fmt.Fprintf(e.stdout, "\nThere are more: add --all, or --cursor %s\n", *list.NextCursor)
		return err
	})
}

// previewWidth keeps a row within 160 columns.
const previewWidth = 48

// recipientOf names whom a handoff was sent to or who may claim it, and who holds it if that is
// another.
func recipientOf(h *restapi.Handoff) string {
	to := h.To
	if h.Pool != nil {
		to = oneLine(h.Target.Words(), previewWidth)
	}
	if h.Desk != nil && h.Mode == string(handoff.AgentMode) {
		to = "next agent of " + h.Slug
	}
	if h.Holder == nil || *h.Holder == to {
		return to
	}
	if handoff.State(h.State).Terminal() {
		return to + " (last held by " + *h.Holder + ")"
	}
	return to + " (held by " + *h.Holder + ")"
}

// aboutOf says in a few words what a handoff is about: of an open one, which has no summary, the
// workspace.
func aboutOf(h *restapi.Handoff) string {
	if h.Pool != nil {
		return "in " + oneLine(h.ProjectRoot, previewWidth)
	}
	return oneLine(h.Preview, previewWidth)
}

// handoffID is how every command names a handoff.
type handoffID struct {
	ID string `arg:"" name:"id" help:"As handoff list shows it; its beginning is enough if that is unique, at least 8 characters."`
}

func (h handoffID) path(rest string) string { return "/operator/handoffs/" + escape(h.ID) + rest }

type handoffCancelCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	handoffID    `embed:""`
	Reason       string `help:"Why; all who take part are told." required:""`
}

// Help is printed by --help.
func (handoffCancelCmd) Help() string {
	return `Ends a handoff that is pending or accepted; at the pool OPEN, CLAIMED or VERIFYING. Its holder's next call is refused with thread_terminal.

Example:

  handclasp handoff cancel 019ad5c2-4f60 --reason "the release was called off"`
}

// Run cancels.
func (c *handoffCancelCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Ended
		if err := o.post(c.path("/cancel"), map[string]string{"reason": c.Reason}, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		_, err := fmt.Fprintln(e.stdout, out.Status, out.ThreadID+already(out.Replay))
		return err
	})
}

func already(replay bool) string {
	if replay {
		return " (already; nothing was changed)"
	}
	return ""
}

type handoffReassignCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	handoffID    `embed:""`
	To           string `arg:"" help:"Handle of the agent that is to hold it."`
	Reason       string `help:"Why; goes into the thread as a message." required:""`
}

// Help is printed by --help.
func (handoffReassignCmd) Help() string {
	return `The new holder finds the handoff in its inbox, accepted and without a lease. Whoever held it before
gets lease_lost at its next call. An open handoff goes to any agent, whatever its target says; one that
waits for its verdict is to be done anew.

Example:

  handclasp handoff reassign 019ad5c2-4f60 grace@acme --reason "frank is on leave"`
}

// Run reassigns.
func (c *handoffReassignCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Reassigned
		if err := o.post(c.path("/reassign"), map[string]string{"to": c.To, "reason": c.Reason}, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		_, err := fmt.Fprintf(e.stdout, "%s is held by %s, claim epoch %d%s\n", out.ThreadID, out.Holder, out.ClaimEpoch, already(out.Replay))
		return err
	})
}

type handoffEraseCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	handoffID    `embed:""`
	Yes          bool `help:"Do not ask."`
}

// Help is printed by --help.
func (handoffEraseCmd) Help() string {
	return `Removes summary, question, messages, artifacts, drafts, metadata, payload, result, criteria, feedback,
reasons and contact details of a handoff that is completed, declined, cancelled or expired. Ids, states,
times and events stay, and with them target, workspace and trace id of an open handoff. It cannot be
undone; backups made before still hold the texts.

Example:

  handclasp handoff erase 019ad5c2-4f60 --yes`
}

// Run erases, after a person has confirmed it.
func (c *handoffEraseCmd) Run(e *env) error {
	if !c.Yes {
		if err := c.confirmed(e); err != nil {
			return err
		}
	}
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Erased
		if err := o.post(c.path("/erase"), nil, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		_, err := fmt.Fprintln(e.stdout, "erased", out.ThreadID+already(out.Replay))
		return err
	})
}

// confirmed shows the person what is about to be erased and asks. The folder is free meanwhile.
func (c *handoffEraseCmd) confirmed(e *env) error {
	if !isTerminal(e.stdin) {
		return usageError{errors.New("erasing cannot be undone, and nobody is here to ask. Add --yes to erase " + handoff.Quote(c.ID))}
	}
	return askToErase(e, &c.Where, &c.handoffID, e.stdin)
}

// askToErase asks on stderr whether to erase the handoff, reads the word from in, and makes id
// the whole id of what was shown.
func askToErase(e *env, where *config.Where, id *handoffID, in io.Reader) error {
	var h restapi.Handoff
	if err := operate(e, where, func(o *operatorClient) error { return o.get(id.path("?limit=1"), &h) }); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.stderr, "%s, %s, from %s to %s: %s\nThis removes its texts and contact details and cannot be undone. Type yes to go on: ",
		h.ThreadID, h.Status, h.From, recipientOf(&h), aboutOf(&h)); err != nil {
		return err
	}
	word, err := bufio.NewReader(io.LimitReader(in, 64)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if strings.TrimSpace(word) != "yes" {
		return errors.New("nothing was erased")
	}
	id.ID = h.ThreadID
	return nil
}
