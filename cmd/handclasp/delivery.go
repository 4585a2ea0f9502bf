package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/restapi"
)

type deliveryCmd struct {
	List   deliveryListCmd   `cmd:"" help:"List what was sent to people, and what was not."`
	Resend deliveryResendCmd `cmd:"" help:"Send one again that did not go out."`
}

type deliveryListCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	State        []string `help:"Only queued, sending, sent, refused, unconfirmed or dead ones; may be repeated." placeholder:"STATE"`
	Limit        int      `help:"At most so many, 1 to 200 (default 50)."`
	Cursor       string   `help:"Go on where a list ended: its next cursor."`
}

// Help is printed by --help.
func (*deliveryListCmd) Help() string {
	return `The newest first. KIND is handoff for the first notification of a person, reply for a message to that person, and news for an agent that is told outside. A refused one certainly did not go out; a dead one was given up after a day; of an unconfirmed one nobody knows.

Examples:

  handclasp delivery list
  handclasp delivery list --state dead --state unconfirmed`
}

func (c *deliveryListCmd) Run(e *env) error {
	q := url.Values{"state": c.State}
	if c.Cursor != "" {
		q.Set("cursor", c.Cursor)
	}
	if c.Limit != 0 {
		q.Set("limit", strconv.Itoa(c.Limit))
	}
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Deliveries
		if err := o.get("/operator/deliveries?"+q.Encode(), &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		if len(out.Deliveries) == 0 {
			return e.say("no deliveries\n")
		}
		if err := table(e, "DELIVERY\tKIND\tTO\tBY\tSTATE\tREASON\tTRIES\tUPDATED\tNEXT TRY\tHANDOFF", len(out.Deliveries), func(i int) string {
			d := out.Deliveries[i]
			return strings.Join([]string{d.DeliveryID, d.Kind, d.Recipient, lineOrDash(d.Channel), d.State, lineOrDash(d.Reason), fmt.Sprint(d.Attempts), d.UpdatedAt, orDash(nextTry(&d)), d.HandoffID}, "\t")
		}); err != nil || out.NextCursor == "" {
			return err
		}
		return e.say("\nthere are more: --cursor %s\n", out.NextCursor)
	})
}

// nextTry is when a delivery that waits is taken; nil for others.
func nextTry(d *restapi.Delivery) *string {
	if d.State != string(handoff.DeliveryQueued) {
		return nil
	}
	return d.DueAt
}

type deliveryResendCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	DeliveryID   string `arg:"" name:"delivery-id" help:"As delivery list shows it."`
	Again        bool   `help:"Send another like one that was sent: it did not arrive, or its link was revoked."`
}

// Help is printed by --help.
func (*deliveryResendCmd) Help() string {
	return `For one that was refused, is unconfirmed or dead, while its handoff has not ended; one that waits for its next attempt is tried now. It goes out as the business is configured now, with the id that it had, so that a mail which did arrive is recognised. Consent, opt-outs and caps hold all the same.

One that was sent is sent again with --again only: as another mail, with the link as it is now.

Example:

  handclasp delivery resend 019ad5a2-6c1e-7b7e-9a55-0c2f7d9be001`
}

func (c *deliveryResendCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out restapi.Delivery
		if err := o.post("/operator/deliveries/"+escape(c.DeliveryID)+"/resend", restapi.Resend{Again: c.Again}, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		return e.say("queued %s again; handclasp delivery list shows what becomes of it\n", out.DeliveryID)
	})
}

type continuationCmd struct {
	Revoke continuationRevokeCmd `cmd:"" help:"End the link that was given out for a handoff of the desk."`
}

type continuationRevokeCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	HandoffID    string `arg:"" name:"handoff-id"`
}

// Help is printed by --help.
func (*continuationRevokeCmd) Help() string {
	return `In agent mode the continuation ends, and the session of whoever redeemed it without a key; a handoff that is held by such a one then waits for handclasp handoff reassign. In human mode the person's link and reply address end; the next notification carries new ones.

Example:

  handclasp continuation revoke 019ad5a2-6c1e-7b7e-9a55-0c2f7d9be001`
}

func (c *continuationRevokeCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out map[string]any
		if err := o.post("/operator/continuations/"+escape(c.HandoffID)+"/revoke", nil, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		return e.say("revoked what was given out for %s\n", out["handoff_id"])
	})
}

type keyCmd struct {
	RotateSigning keyRotateSigningCmd `cmd:"" name:"rotate-signing" help:"Sign continuations and sessions with a new key."`
}

type keyRotateSigningCmd struct {
	config.Where `embed:""`
	output       `embed:""`
	AtOnce       bool `name:"at-once" help:"What other keys signed counts no more: all links to the next agent end, and the sessions of those who redeemed one. Persons' links /h/… are not affected."`
}

// Help is printed by --help.
func (*keyRotateSigningCmd) Help() string {
	return `Of the links that the desk gives out, the key signs those to the next agent (…/a2a/continue/…) and the sessions of those who redeemed one without a key. Persons' links (…/h/…) are made otherwise and are not affected: handclasp continuation revoke ends one. What the last key signed counts on for eight days, longer than any of it lasts. The keys of agents are others: handclasp agent key rotate.

Examples:

  handclasp key rotate-signing
  handclasp key rotate-signing --at-once                    after a leak of the database`
}

func (c *keyRotateSigningCmd) Run(e *env) error {
	return operate(e, &c.Where, func(o *operatorClient) error {
		var out map[string]any
		if err := o.post("/operator/signers/rotate", map[string]bool{"at_once": c.AtOnce}, &out); err != nil {
			return err
		}
		if c.JSON {
			return printJSON(e, out)
		}
		what := "what the last one signed counts on for eight days"
		if c.AtOnce {
			what = "what others signed counts no more"
		}
		return e.say("signing with the key %s; %s\n", out["key_id"], what)
	})
}
