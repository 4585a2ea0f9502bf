package main

import (
	"fmt"
	"strings"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

type inviteCmd struct {
	Create inviteCreateCmd `cmd:"" default:"withargs" help:"Make a one-time join link for a new agent; create may be left out."`
	List   inviteListCmd   `cmd:"" help:"List join links, without their tokens."`
	Revoke inviteRevokeCmd `cmd:"" help:"Take back a join link that nobody used."`
}

// Help is printed by --help.
func (*inviteCmd) Help() string {
	return (*inviteCreateCmd)(nil).Help() + "\n\nThe flags are listed by: handclasp invite create --help"
}

type inviteCreateCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:"" help:"What the new agent will be called: name@team."`
	Name         string `help:"Display name. Default: the handle."`
	Role         string `help:"Such as backend."`
	From         string `help:"The agent that invites. Default: the operator." placeholder:"HANDLE"`
	ExpiresIn    string `help:"How long the link is good, 1m to 720h (default ${default})." default:"24h" placeholder:"DURATION"`
	URL          string `name:"url" help:"Address people reach the hub by. Default: the one that the running serve knows." placeholder:"URL"`
}

// Help is printed by --help.
func (*inviteCreateCmd) Help() string {
	return `Prints a link for one person. Opening it changes nothing; the button on its page makes the agent and shows its key, once. The handle is taken at that moment, not before.

The link begins with the address of the hub. A running serve knows it; where none runs on the folder, or with --database-url, name it with --url.

Examples:

  handclasp invite frank@acme --from anna@acme
  handclasp invite frank@acme --role backend --expires-in 2h
  handclasp invite frank@acme --url https://hub.example.com
  handclasp invite list
  handclasp invite revoke 019ad5a2-6c1e-7b7e-9a55-0c2f7d9be001`
}

func (c *inviteCreateCmd) Run(e *env) error {
	lasts, err := time.ParseDuration(c.ExpiresIn)
	if err != nil || lasts < time.Minute || lasts > 30*24*time.Hour {
		return usageError{fmt.Errorf("--expires-in: %q came; 1m to 720h are accepted, such as 90m, 24h, or 168h for a week", c.ExpiresIn)}
	}
	address, err := config.HubURL("--url", c.URL)
	if err != nil {
		return usageError{err}
	}
	return operate(e, &c.Where, func(o *operatorClient) error {
		var l restapi.InviteLink
		if err := o.post("/operator/invites", hub.InviteInput{
			Handle: c.Handle, Name: c.Name, Role: c.Role, Inviter: c.From, ExpiresIn: int64(lasts / time.Second), URL: address,
		}, &l); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, l)
		}
		_, err := fmt.Fprintf(e.stdout, "join link for %s, from %s, good until %s\n\n%s\n\nIt works once. Whoever has it can join as %s, so send it to that person alone.\nTake it back with: handclasp invite revoke %s\n",
			l.Handle, l.Inviter, l.ExpiresAt, l.URL, l.Handle, l.JTI)
		return err
	})
}

type inviteListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
}

// Help is printed by --help.
func (*inviteListCmd) Help() string {
	return `The newest first, with what became of each: open, used or expired. A revoked one is gone.

Example:

  handclasp invite list --json`
}

func (c *inviteListCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out struct {
			Invites []restapi.Invite `json:"invites"`
		}
		if err := o.get("/operator/invites", &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		return table(e, "JTI\tHANDLE\tROLE\tFROM\tSTATUS\tCREATED\tEXPIRES\tUSED", len(out.Invites), func(i int) string {
			v := out.Invites[i]
			return strings.Join([]string{v.JTI, v.Handle, lineOrDash(v.Role), v.Inviter, v.Status, v.CreatedAt, v.ExpiresAt, orDash(v.RedeemedAt)}, "\t")
		})
	})
}

type inviteRevokeCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	JTI          string `arg:"" name:"jti" help:"The id of the link, as invite list shows it."`
}

// Help is printed by --help.
func (*inviteRevokeCmd) Help() string {
	return `The link is dead at once; its page then says that it is not valid. A link that was used cannot be taken back: turn its agent off with handclasp agent disable HANDLE.

Example:

  handclasp invite revoke 019ad5a2-6c1e-7b7e-9a55-0c2f7d9be001`
}

func (c *inviteRevokeCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out map[string]any
		if err := o.post("/operator/invites/"+escape(c.JTI)+"/revoke", nil, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		_, err := fmt.Fprintln(e.stdout, "revoked", c.JTI)
		return err
	})
}
