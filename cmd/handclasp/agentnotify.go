package main

import (
	"fmt"

	"handclasp/internal/config"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

type agentNotifyCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Handle       string `arg:"" help:"As agent list shows it, in any case."`
	Webhook      string `help:"POST to this address, signed as Standard Webhooks say; the secret is shown once." placeholder:"URL"`
	Slack        string `help:"A Slack-compatible incoming webhook." placeholder:"URL"`
	Email        string `help:"Send an e-mail, if the hub can." placeholder:"ADDRESS"`
	Off          bool   `help:"End all of them."`
}

// Help is printed by --help.
func (*agentNotifyCmd) Help() string {
	return `What is told is that there is news of a handoff, with its id, status and link; never what it says. Each replaces the last of its kind. The hub does not dial addresses inside its own network, unless it is started with --notify-allow-network.

Examples:

  handclasp agent notify frank@acme --webhook https://ci.example.com/hooks/handclasp
  handclasp agent notify frank@acme --slack https://hooks.slack.com/services/… --email frank@example.com
  handclasp agent notify frank@acme --off`
}

func (c *agentNotifyCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.AgentNotify
		in := hub.NotifyInput{Email: c.Email, Webhook: c.Webhook, Slack: c.Slack, Off: c.Off}
		if err := o.post("/operator/agents/"+escape(c.Handle)+"/notify", in, &out); err != nil {
			return err
		}
		for _, one := range out.Channels {
			if one.Forbidden != "" {
				fmt.Fprintf(e.stderr, "warning: %s. The address is kept; if the hub is to dial it, start that with handclasp serve --notify-allow-network and the network, such as 10.1.0.0/16\n", one.Forbidden)
			}
		}
		if c.JSON {
			return printJSON(e, out)
		}
		if len(out.Channels) == 0 {
			return e.say("%s is told nowhere outside\n", out.Handle)
		}
		for _, one := range out.Channels {
			if err := e.say("%s is told by %s at %s\n", out.Handle, one.Channel, lineOrDash(one.Address)); err != nil {
				return err
			}
			if one.Secret != "" {
				if err := e.say("secret   %s\n\nThe secret verifies the signature and is shown this once.\n", one.Secret); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
