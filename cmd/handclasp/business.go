package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

type businessCmd struct {
	Add    businessAddCmd    `cmd:"" help:"Configure a business that receives customers."`
	List   businessListCmd   `cmd:"" help:"List the businesses and how each is reached."`
	Show   businessShowCmd   `cmd:"" help:"Show one business."`
	Edit   businessEditCmd   `cmd:"" help:"Change what is given; an empty value clears it."`
	Import businessImportCmd `cmd:"" help:"Configure many from a JSON file, all or none."`
}

// businessFlags are what add and edit share. A pointer tells what was given from what was not.
type businessFlags struct {
	Name          *string  `help:"What people call it. Default: the slug."`
	Channel       *string  `help:"How its person is reached: sms, email or form." placeholder:"CHANNEL"`
	Phone         *string  `help:"With its country code, or national with --region; kept in E.164."`
	Email         *string  `help:"Address of the person."`
	FormURL       *string  `name:"form-url" help:"Contact form of the business, for the channel form." placeholder:"URL"`
	Region        *string  `help:"Country of national numbers, such as DE." placeholder:"CC"`
	Timezone      *string  `help:"IANA name, such as Europe/Berlin; its days are those of the caps. Default: UTC." placeholder:"ZONE"`
	DailyMessages *int     `name:"daily-messages" help:"At most so many messages a day over all channels; 0 for no cap."`
	DailyCost     *float64 `name:"daily-cost" help:"At most so much a day for text messages; 0 for no cap."`
}

func (f *businessFlags) input(slug string) hub.BusinessInput {
	return hub.BusinessInput{
		Slug: slug, Name: f.Name, Timezone: f.Timezone, Region: f.Region, Channel: f.Channel, Phone: f.Phone, Email: f.Email, FormURL: f.FormURL,
		DailyMessages: f.DailyMessages, DailyCost: f.DailyCost,
	}
}

// act is what a command did, in words.
type act struct {
	word, remark string
	founding     bool // it makes a hub where there is none
}

func (f *businessFlags) did(word string) act {
	a := act{word: word}
	if f.Channel != nil && (strings.EqualFold(*f.Channel, "phone") || strings.EqualFold(*f.Channel, "text")) {
		a.remark = " (" + strings.ToLower(*f.Channel) + " means sms: a text message)"
	}
	return a
}

type businessAddCmd struct {
	config.Where  `embed:""`
	output        `embed:""`
	businessFlags `embed:""`
	Slug          string `arg:"" help:"Its key: lower-case letters, digits and hyphens, such as corner-shop."`
}

// Help is printed by --help.
func (*businessAddCmd) Help() string {
	return `Agents hand customers to it with initiate_handoff, by its slug. Exactly the channel is used that is configured; where its address is missing nobody is told, and the agent learns why.

Examples:

  handclasp business add corner-shop --name "The Corner Shop" --channel email --email ann@shop.example
  handclasp business add salon --channel form --form-url https://salon.example/contact --timezone Europe/Berlin
  handclasp business add garage --channel sms --phone 030901820 --region DE --daily-messages 50`
}

func (c *businessAddCmd) Run(e *env) error {
	did := c.did("configured")
	did.founding = true
	return oneBusiness(e, &c.Where, c.output, did, func(o *operatorClient, out *restapi.Business) error {
		return o.post("/operator/businesses", c.input(c.Slug), out)
	})
}

type businessEditCmd struct {
	config.Where  `embed:""`
	output        `embed:""`
	businessFlags `embed:""`
	Slug          string `arg:""`
}

// Help is printed by --help.
func (*businessEditCmd) Help() string {
	return `What is on its way is sent as the business is configured when it goes out.

Examples:

  handclasp business edit corner-shop --email ben@shop.example
  handclasp business edit corner-shop --channel ""          nobody is told any more`
}

func (c *businessEditCmd) Run(e *env) error {
	return oneBusiness(e, &c.Where, c.output, c.did("changed"), func(o *operatorClient, out *restapi.Business) error {
		return o.post("/operator/businesses/"+escape(c.Slug)+"/edit", c.input(""), out)
	})
}

type businessShowCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	Slug         string `arg:""`
}

// Help is printed by --help.
func (*businessShowCmd) Help() string {
	return `Example:

  handclasp business show corner-shop`
}

func (c *businessShowCmd) Run(e *env) error {
	return oneBusiness(e, &c.Where, c.output, act{}, func(o *operatorClient, out *restapi.Business) error {
		return o.get("/operator/businesses/"+escape(c.Slug), out)
	})
}

// oneBusiness runs a command on one business and shows how that is configured then.
func oneBusiness(e *env, where *config.Where, out output, did act, run func(*operatorClient, *restapi.Business) error) error {
	return operateOn(e, where, did.founding, func(o *operatorClient) error {
		var b restapi.Business
		if err := run(o, &b); err != nil {
			return err
		}
		if out.JSON {
			return printJSON(e, b)
		}
		if did.word != "" {
			if err := e.say("%s %s%s\n", did.word, b.Slug, did.remark); err != nil {
				return err
			}
		}
		rows := [][2]string{{"slug", b.Slug}, {"name", b.Name}, {"channel", b.Channel}, {"e-mail", b.Email}, {"phone", b.Phone}, {"form", b.FormURL}, {"region", b.Region}, {"timezone", b.Timezone}}
		if b.DailyMessages > 0 {
			rows = append(rows, [2]string{"messages a day", fmt.Sprint(b.DailyMessages)})
		}
		if b.DailyCost > 0 {
			rows = append(rows, [2]string{"cost a day", fmt.Sprint(b.DailyCost)})
		}
		for _, r := range rows {
			if r[1] == "" {
				continue
			}
			if err := e.say("%-15s %s\n", r[0], lineOrDash(r[1])); err != nil {
				return err
			}
		}
		if reason := unreached(&b); reason != "" {
			return e.say("\nNobody can be told: %s.\n", reason)
		}
		return nil
	})
}

// unreached is why nobody can be told of a customer; empty where somebody can, or a form is shown instead.
func unreached(b *restapi.Business) string {
	switch {
	case b.Reason == handoff.ReasonForm:
		return ""
	case b.Reason == "" && b.Channel == string(handoff.ChannelSMS):
		return string(handoff.ReasonConsent) + ", for text messages come later"
	}
	return b.Reason
}

type businessListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
}

// Help is printed by --help.
func (*businessListCmd) Help() string {
	return `Examples:

  handclasp business list
  handclasp business list --json | jq -r '.businesses[].slug'`
}

func (c *businessListCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Businesses
		if err := o.get("/operator/businesses", &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		if len(out.Businesses) == 0 {
			return e.say("no business is configured; handclasp business add SLUG --channel email --email ADDRESS makes one\n")
		}
		return table(e, "SLUG\tNAME\tREACHED BY\tTIMEZONE", len(out.Businesses), func(i int) string {
			b := out.Businesses[i]
			by := strings.Join(b.Channels, ", ")
			if by == "" {
				by = "nothing: " + b.Reason
			}
			return strings.Join([]string{b.Slug, lineOrDash(b.Name), by, b.Timezone}, "\t")
		})
	})
}

type businessImportCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	File         string `arg:"" help:"A JSON file; - for standard input."`
	Replace      bool   `help:"Replace those that exist as a whole, caps, time zone and all: what the file does not give is gone."`
}

// Help is printed by --help.
func (*businessImportCmd) Help() string {
	return `All that the file holds is configured, or nothing, and all its faults are told at once. A business that exists is refused, or with --replace replaced as a whole. The file holds a list, or an object with the list "businesses". Each has slug and, as far as wanted, name, timezone, region, daily_messages, daily_cost and lead_routing_json, of either shape:

  {"preferred_channel": "phone|text|email|form", "phone": …, "email": …, "form_url": …}
  {"preferred": "sms|email", "sms_to": …, "email_to": …}

Examples:

  handclasp business import businesses.json
  cat businesses.json | handclasp business import - --replace`
}

// maxImport bounds a file in bytes.
const maxImport = 16 << 20

func (c *businessImportCmd) Run(e *env) error {
	in := e.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxImport+1))
	if err != nil {
		return err
	}
	if len(b) > maxImport {
		return fmt.Errorf("%s: it is larger than the %d MiB that are accepted", c.File, maxImport>>20)
	}
	list, err := restapi.DecodeBusinesses(b)
	if err != nil {
		return fmt.Errorf("%s: %w", c.File, err)
	}
	if len(list) == 0 {
		return errors.New(c.File + ": it holds no business")
	}
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Businesses
		if err := o.post("/operator/businesses/import", restapi.BusinessImport{Businesses: list, Replace: c.Replace}, &out); err != nil {
			return err
		}
		for _, b := range out.Businesses {
			for _, flag := range b.CapsDropped {
				fmt.Fprintf(e.stderr, "warning: %s has no --%s any more; the file gives none, and a business is replaced as a whole\n", b.Slug, strings.ReplaceAll(flag, "_", "-"))
			}
		}
		if c.JSON {
			return printJSON(e, out)
		}
		if err := e.say("configured %d businesses\n", len(out.Businesses)); err != nil {
			return err
		}
		for i := range out.Businesses {
			if reason := unreached(&out.Businesses[i]); reason != "" {
				if err := e.say("%s: nobody can be told: %s\n", out.Businesses[i].Slug, reason); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
