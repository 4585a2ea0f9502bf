package main

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
)

type notifyCmd struct {
	Test notifyTestCmd `cmd:"" help:"Send a test e-mail with the settings that the hub runs with."`
}

type notifyTestCmd struct {
	config.Mail `embed:""`
	output      `embed:""`
	Email       string `required:"" help:"Who gets it." placeholder:"ADDRESS"`
	PublicURL   string `name:"public-url" help:"Address the hub is reached by; the mail links to it." default:"http://127.0.0.1:7433" placeholder:"URL"`
}

// Help is printed by --help.
func (*notifyTestCmd) Help() string {
	return `Says what the mail server answered. Nothing is stored, and nothing is tried again.

Example:

  handclasp notify test --email you@example.com --smtp-url smtp://hub@mail.example.com:587 --smtp-password-file mail.pw --mail-from "Handclasp <hub@example.com>"`
}

func (c *notifyTestCmd) Run(e *env) error {
	if err := c.Check(); err != nil {
		return usageError{err}
	}
	if !c.Configured() {
		return usageError{fmt.Errorf("--smtp-url: nothing came; name the mail server, such as smtp://user@mail.example.com:587")}
	}
	public, err := config.HubURL("--public-url", c.PublicURL)
	if err != nil {
		return usageError{err}
	}
	if err := handoff.CheckEmail("--email", c.Email, handoff.DefaultLimits().Email); err != nil {
		return usageError{fmt.Errorf("--email: no e-mail address came; one without a display name is accepted, such as you@example.com")}
	}
	sender, err := mailSender(&c.Mail)
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	id := uuid.NewString()
	o := sender.Send(ctx, handoff.Notification{
		ID: id, HandoffID: id, First: id, Kind: handoff.NotifyHandoff, Channel: handoff.ChannelEmail, To: c.Email, Business: "Handclasp (a test)", Link: public,
		Urgency: handoff.UrgencyNormal, Reason: "Nobody did: this is a test of how the hub sends mail.", CreatedAt: time.Now(), Attempt: 1,
	})
	if o.Kind != handoff.OutcomeSent {
		return fmt.Errorf("the mail was not sent (%s): %s: %w", o.Kind, o.Reason, o.Err)
	}
	if c.JSON {
		return printJSON(e, map[string]any{"state": o.Kind, "ticket_id": o.ProviderID})
	}
	return e.say("the mail server has taken it for %s: %s\n", c.Email, o.ProviderID)
}
