package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/google/uuid"

	"handclasp/internal/auth"
	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/notify"
)

type notifyCmd struct {
	Test notifyTestCmd `cmd:"" help:"Send a test e-mail, or a test to a webhook, with the settings that the hub runs with."`
}

type notifyTestCmd struct {
	config.Where   `embed:""`
	config.Mail    `embed:""`
	config.Outside `embed:""`
	output         `embed:""`
	Email          string `xor:"to" required:"" help:"Who gets a mail." placeholder:"ADDRESS"`
	Webhook        string `xor:"to" required:"" help:"What gets a webhook." placeholder:"URL"`
	Slack          string `xor:"to" required:"" help:"What gets a message as Slack takes them." placeholder:"URL"`
	SecretFile     string `help:"File with one line, the whsec_ secret to sign the webhook with. Without it one is made and printed." type:"path" placeholder:"FILE"`
	PublicURL      string `name:"public-url" help:"Address the hub is reached by; what is sent links to it." default:"http://127.0.0.1:7433" placeholder:"URL"`
}

// Help is printed by --help.
func (*notifyTestCmd) Help() string {
	return `Says what the other side answered. Nothing is stored, no hub is asked, and nothing is tried again.

Examples:

  handclasp notify test --email you@example.com --smtp-url smtp://hub@mail.example.com:587 --smtp-password-file mail.pw --mail-from "Handclasp <hub@example.com>"
  handclasp notify test --webhook https://ci.example.com/hooks/handclasp --secret-file hook.secret`
}

func (c *notifyTestCmd) Run(e *env) error {
	public, err := config.HubURL("--public-url", c.PublicURL)
	if err != nil {
		return usageError{err}
	}
	id := uuid.NewString()
	n := handoff.Notification{ID: id, HandoffID: id, First: id, Link: public, CreatedAt: time.Now(), Attempt: 1}
	sender, err := c.prepare(&n)
	if err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(e.ctx, time.Minute)
	defer cancel()
	o := sender.Send(ctx, n)
	if o.Kind != handoff.OutcomeSent {
		return fmt.Errorf("it was not sent (%s): %s: %w", o.Kind, o.Reason, o.Err)
	}
	if c.JSON {
		out := map[string]any{"state": o.Kind, "ticket_id": o.ProviderID}
		if n.Secret != "" && c.SecretFile == "" {
			out["secret"] = n.Secret
		}
		return printJSON(e, out)
	}
	switch {
	case c.Email != "":
		return e.say("the mail server has taken it for %s: %s\n", c.Email, o.ProviderID)
	case n.Secret != "" && c.SecretFile == "":
		return e.say("the webhook has taken it, signed with %s\n", n.Secret)
	}
	return e.say("the other side has taken it\n")
}

// prepare completes n for where it goes, and makes the sender for that.
func (c *notifyTestCmd) prepare(n *handoff.Notification) (notify.Sender, error) {
	if c.Email != "" {
		n.Kind, n.Channel, n.To = handoff.NotifyHandoff, handoff.ChannelEmail, c.Email
		n.Business, n.Urgency, n.Reason = "Handclasp (a test)", handoff.UrgencyNormal, "Nobody did: this is a test of how the hub sends mail."
		if err := c.Mail.Check(); err != nil {
			return nil, err
		}
		if !c.Configured() {
			return nil, errors.New("--smtp-url: nothing came; name the mail server, such as smtp://user@mail.example.com:587")
		}
		if err := handoff.CheckEmail("--email", c.Email, handoff.DefaultLimits().Email); err != nil {
			return nil, fmt.Errorf("--email: %s came; an address is accepted, such as you@example.com", handoff.Quote(c.Email))
		}
		return mailSender(&c.Mail)
	}
	outside, err := outsideOf(&c.Outside)
	if err != nil {
		return nil, err
	}
	n.Kind, n.Event, n.Status, n.Sender = handoff.NotifyNews, handoff.EventCreated, "pending", "test"
	flag := "--webhook"
	if n.Channel, n.To = handoff.ChannelWebhook, c.Webhook; c.Slack != "" {
		flag, n.Channel, n.To = "--slack", handoff.ChannelSlack, c.Slack
	}
	if _, err := notify.CheckURL(n.To); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if c.Slack != "" {
		return notify.NewSlack(outside), nil
	}
	n.Secret, err = c.secret()
	return notify.NewWebhook(outside), err
}

// secret is what the file holds, or a new one.
func (c *notifyTestCmd) secret() (string, error) {
	if c.SecretFile == "" {
		return auth.NewWebhookSecret(), nil
	}
	b, err := os.ReadFile(c.SecretFile)
	if err != nil {
		return "", fmt.Errorf("--secret-file: %w", err)
	}
	secret := strings.TrimSpace(string(b))
	if !strings.HasPrefix(secret, "whsec_") {
		return "", errors.New("--secret-file: a file with one line is accepted, the secret as agent notify printed it, which begins with whsec_")
	}
	return secret, nil
}
