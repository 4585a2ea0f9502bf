package mcpserver

import (
	"context"
	"encoding/json"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// The desk toolset: to the person of a business, or to an agent nobody knows yet.

// closedInitiate is the output schema of initiate_handoff as it is published since before this hub:
// closed, so that clients may rely on what it does not name.
const closedInitiate = `{"type":"object","properties":{` +
	`"channel":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"human mode, skipped before sending: the channel that would have been used, or form when the business only takes leads through a web form"},` +
	`"continuation_expired":{"type":"boolean","description":"agent mode, replay: the continuation has expired; it is never made anew, start a new handoff"},` +
	`"continuation_url":{"type":"string","description":"agent mode: signed URL that the next agent redeems exactly once"},` +
	`"delivered":{"type":"boolean","description":"human mode: present only as false, when nothing was sent; see reason"},` +
	`"delivered_via":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"human mode: sms or email, the channel that the notification went by"},` +
	`"expires_at":{"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991,"description":"agent mode: Unix seconds when continuation_url stops working"},` +
	`"form_url":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"human mode, channel form: the contact form of the business, for the user to complete"},` +
	`"handoff_id":{"type":"string","format":"uuid","pattern":"^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$"},` +
	`"handshake_token":{"type":"string","description":"agent mode: the bare token inside continuation_url"},` +
	`"idempotent_replay":{"type":"boolean","description":"this idempotency_key already had a handoff, which is shown as it stands: nothing was sent or made again"},` +
	`"mode":{"type":"string","enum":["human","agent"],"description":"of the stored handoff, which may differ from the one asked for when a key is used again"},` +
	`"reason":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"human mode, not delivered: why"},` +
	`"status":{"type":"string","description":"human mode: pending while the notification is on its way or its outcome is not known"},` +
	`"ticket_id":{"anyOf":[{"type":"string"},{"type":"null"}],"description":"human mode, delivered: the provider's id of the message, or the handoff_id"}` +
	`},"required":["mode","handoff_id"],"additionalProperties":false}`

// originalEmail is the pattern that the original publishes; handoff.CheckEmail enforces the same.
const originalEmail = `^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`

type statusArgs struct {
	HandoffID string `json:"handoff_id"`
	Known     string `json:"known_updated_at"`
	Wait      int    `json:"wait_seconds"`
}

var deliveryOut = []param{
	str("delivered_via", "The channel that it went by."), str("ticket_id", "The provider's id of it."), boolean("delivered", "Only ever false: nothing went out."),
	str("reason", "Why nothing went out."), str("channel", "What would have been used."), str("form_url", "Where the user can write to the business."), str("status", "pending: on its way, or not known."),
}

var deskTools = []tool{
	{
		set: "desk", name: "initiate_handoff", title: "Bring in a person, or hand on by a signed link",
		desc: "Hand your user over. Mode human: the person of a business gets an e-mail and can answer; use it when the user asks for a human. " +
			"Mode agent: returns continuation_url, a link that counts once, within an hour; give it to the user or the next agent. To add to a handoff that is open use reply_to_person. " +
			"Tell the user what the result says: delivered_via = somebody was told; delivered false = nobody was, reason says why (pass on form_url; do not call again, the operator can mend it and send it later); " +
			"status pending = not known yet, ask get_handoff_status, which also waits for the answer. " +
			"A mail cannot be recalled; cancel_handoff ends an OPEN request. " +
			"After a lost answer repeat with the same idempotency_key: the stored handoff comes back, whatever else you pass, and nothing is sent. " +
			"Refused, nothing stored: business_not_found, invalid_params, rate_limited, feature_disabled.",
		hints: hints{destructive: true, idempotent: true, openWorld: true},
		parks: true,
		params: []param{
			str("slug", "The business whose customer the user is, in either mode; find_business lists them.").limit(1, 63).need(),
			enum("mode", "human: a person is told; agent: you get a link to pass on.", "human", "agent").need(),
			str("idempotency_key", "Your own word for this handover, such as the conversation's id. A new request needs a new one.").limit(1, 255).need(),
			str("reason", "Why the user wants a human, in a line or two; shown to the person as a quotation.").chars(0, 800),
			str("message", "Deprecated alias of reason; not with it.").chars(1, 800),
			str("purpose", "Mode agent: what the next agent is to do and all that it must know; without it the link hands on reason and contact only. Not shown in mode human.").limit(1, 8<<10),
			enum("urgency", "high and emergency stand out; consent and caps hold all the same.", "low", "normal", "high", "emergency").fallback("normal"),
			str("contact_name", "The user's name. Ask the user before you pass contact details on.").chars(0, 120).hide(),
			str("contact_email", "The user's e-mail address.").publish(originalEmail, "email").limit(0, 254).hide(),
			str("contact_phone", "The user's telephone number.").chars(0, 40).hide(),
			str("reservation_id", "Your reference; kept and shown.").chars(0, 256),
			str("agent_id", "How you call yourself; shown as unverified.").chars(0, 256),
		},
		closed: json.RawMessage(closedInitiate),
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.InitiateInput) (*result, error) {
			o, err := h.Initiate(ctx, call, in)
			if err != nil {
				return nil, err
			}
			return initiatedResult(&o), nil
		}),
	},
	{
		set: "desk", name: "get_handoff_status", title: "See whether a person was reached and has answered",
		desc: "Read how a handoff of initiate_handoff stands: what was sent, who holds it, what the person or the next agent wrote, how it ended. " +
			"To wait for an answer pass known_updated_at (updated_at of the last result) with wait_seconds: it returns at the next change, or with timed_out true; call again while status is OPEN or CLAIMED. The other four are final: stop. " +
			"Without known_updated_at it returns at once. " +
			"deliveries: refused or dead = nobody was told, say so to the user; queued with a reason = the last try failed and more follow; unconfirmed = nobody knows. stalled true = only the operator can go on. " +
			"view_thread reads the whole conversation. Changes nothing. For its creator, its holder and the operator; anybody else: not_found.",
		hints: hints{readOnly: true, idempotent: true},
		parks: true,
		params: []param{
			str("handoff_id", "From initiate_handoff.").limit(1, 64).need(),
			str("known_updated_at", "Copied from updated_at: wait for a change after it.").eg(`"2026-11-30T12:00:00.000Z"`),
			integer("wait_seconds", "Longest wait.", 0, 50).fallback(0),
		},
		output: []param{
			str("handoff_id", "").need(), str("mode", "").need(), str("status", "OPEN, CLAIMED, COMPLETED, REJECTED, CANCELLED or EXPIRED.").need(),
			list("deliveries", "", object("", "", str("channel", "").need(), str("state", "queued, sending, sent, refused, unconfirmed (nobody knows) or dead (given up).").need(), str("ticket_id", ""), str("reason", ""), str("updated_at", "").need()).open()).need(),
			list("messages", "The latest 20 that others wrote.", messageOut).need(), str("result_summary", ""), str("ended_reason", ""),
			boolean("stalled", "Only the operator can go on with it."), str("updated_at", "").need(), boolean("timed_out", "Nothing changed."), provenanceOut,
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in statusArgs) (*result, error) {
			known, err := parseTime("known_updated_at", in.Known)
			if err != nil {
				return nil, err
			}
			s, err := h.DeskStatus(ctx, call, hub.StatusInput{HandoffID: in.HandoffID, Known: known, Wait: time.Duration(in.Wait) * time.Second})
			if err != nil {
				return nil, err
			}
			return statusResult(&s), nil
		}),
	},
	{
		set: "desk", name: "reply_to_person", title: "Write to the person behind a handoff",
		desc: "Send a message to the person of the business behind a human-mode handoff that you made: it stands in the thread and goes out by e-mail or text. " +
			"send_message writes to the thread only. It cannot be taken back; a repeat without idempotency_key sends it again. Each counts against the business's daily cap. " +
			"The result says whether it went out, as that of initiate_handoff does. " +
			"Refused, nothing sent: not_found, invalid_transition (no person is behind it), not_owner, thread_terminal, content_too_large.",
		hints: hints{openWorld: true},
		parks: true,
		params: []param{
			str("handoff_id", "From initiate_handoff.").limit(1, 64).need(),
			str("body", "Plain text, quoted to the person as yours; links are made dead.").limit(1, 64<<10).need(),
			str("idempotency_key", "Your own word for this message: with it a repeat sends nothing twice.").limit(0, 255),
		},
		output: append([]param{str("handoff_id", "").need(), str("message_id", "").need(), boolean("idempotent_replay", "")}, deliveryOut...),
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.ReplyInput) (*result, error) {
			out, err := h.Reply(ctx, call, in)
			if err != nil {
				return nil, err
			}
			r := newResult()
			r.token("handoff_id", out.HandoffID)
			r.token("message_id", out.MessageID)
			deliveryFields(r, &out.Delivery, out.FormURL)
			replay(r, out.Replay)
			return r, nil
		}),
	},
	{
		set: "desk", name: "redeem_continuation", title: "Take over what a signed link hands on",
		desc: "Take over a handoff by the link that another agent or a user gave you: pass exactly one of continuation_url and handshake_token. " +
			"It works once: you become the holder and get what there is to know. Never try a link that you made yourself: that uses it up, for you. " +
			"Then view_thread reads on, send_message writes, complete_handoff ends it. The link is parsed, never opened. " +
			"A repeat with the same idempotency_key within a minute returns the same. " +
			"Refused, in this order: continuation_malformed, continuation_bad_signature, continuation_wrong_scope, not_found, continuation_already_redeemed, continuation_expired (also: revoked, or the handoff has ended).",
		hints: hints{idempotent: true},
		params: []param{
			str("continuation_url", "As you got it.").limit(1, 8<<10).hide(), str("handshake_token", "The part behind the last / of the URL, instead of it.").limit(1, 4<<10).hide(),
			str("idempotency_key", "Pass one: without it an answer that got lost cannot be had again.").limit(0, 255),
		},
		output: []param{
			str("handoff_id", "").need(), str("business_slug", "").need(), str("purpose", ""), str("reservation_id", ""),
			object("contact", "", str("name", ""), str("email", ""), str("phone", "")).open(), str("reason", ""), str("urgency", ""),
			list("messages", "", messageOut).need(), str("agent_id", "How its creator calls itself, unverified."), str("issued_at", "").need(),
			integer("claim_epoch", "", 0, 0).atLeast(0).need(), boolean("idempotent_replay", ""), provenanceOut.need(),
		},
		run: handle(func(ctx context.Context, h *hub.Hub, call hub.Call, in hub.RedeemInput) (*result, error) {
			out, err := h.RedeemContinuation(ctx, call, in)
			if err != nil {
				return nil, err
			}
			return redeemedResult(&out), nil
		}),
	},
	{
		set: "desk", name: "find_business", title: "Find the business to hand a user to",
		desc: "List the businesses that initiate_handoff can hand a user to, by slug, with the channels they are configured for. " +
			"Use it when you do not know the slug. Whether the person is really told only the result of initiate_handoff says; without channels nobody is. " +
			"Numbers and addresses are never shown. Changes nothing. Refused: invalid_params.",
		hints: hints{readOnly: true, idempotent: true},
		params: []param{
			str("query", "Part of a slug or a name, in any case. Default: all.").limit(0, 200),
			integer("limit", "Items a page.", 1, hub.PageLimit).fallback(hub.DefaultPage),
			str("cursor", "next_cursor of the last page; leave it out for the first."),
		},
		output: []param{
			list("businesses", "", object("", "", str("slug", "").need(), str("name", "").need(), list("channels", "", str("", "")).need(), str("timezone", "").need()).open()).need(),
			nullable("next_cursor", "null on the last page."), provenanceOut,
		},
		run: handle(func(ctx context.Context, h *hub.Hub, _ hub.Call, in hub.FindInput) (*result, error) {
			list, next, err := h.FindBusinesses(ctx, in)
			if err != nil {
				return nil, err
			}
			return businessesResult(list, next), nil
		}),
	},
}

func initiatedResult(o *hub.Initiated) *result {
	r := newResult()
	r.token("mode", string(o.Mode))
	r.token("handoff_id", o.HandoffID)
	if o.Delivery != nil {
		deliveryFields(r, o.Delivery, o.FormURL)
	}
	if c := o.Continuation; c != nil {
		if c.Token != "" {
			r.data("continuation_url", c.URL, true)
			r.data("handshake_token", c.Token, true)
		}
		r.num("expires_at", c.ExpiresAt.Unix())
		if c.Expired && o.Replay {
			r.flag("continuation_expired", true)
		}
	}
	replay(r, o.Replay)
	return r
}

// deliveryFields says what became of a notification (contracts: desk, "From delivery to answer").
func deliveryFields(r *result, d *handoff.Delivery, formURL string) {
	if reason, certain := d.Refusal(); certain {
		r.flag("delivered", false)
		r.token("reason", reason)
		if d.Attempts == 0 && d.Channel != "" {
			r.token("channel", string(d.Channel))
		}
		if formURL != "" {
			r.data("form_url", formURL, true) // the operator's
		}
		return
	}
	if d.State != handoff.DeliverySent {
		r.token("status", "pending")
		return
	}
	r.token("delivered_via", string(d.Channel))
	ticket := d.ProviderID
	if ticket == "" {
		ticket = d.HandoffID
	}
	r.token("ticket_id", ticket)
}

func statusResult(s *hub.DeskStatus) *result {
	h := &s.Handoff
	r := newResult()
	r.head("Handoff %s is %s.", h.ID, h.Status())
	r.token("handoff_id", h.ID)
	r.token("mode", string(s.Desk.Mode))
	r.token("status", h.Status())
	r.list("deliveries", len(s.Deliveries), 0, func(i int) {
		d := &s.Deliveries[i]
		r.token("channel", string(d.Channel))
		r.token("state", string(d.State))
		if d.State == handoff.DeliverySent {
			ticket := d.ProviderID
			if ticket == "" {
				ticket = d.HandoffID
			}
			r.token("ticket_id", ticket)
		}
		if d.Reason != "" {
			r.token("reason", d.Reason)
		}
		r.time("updated_at", d.UpdatedAt)
	})
	t := &hub.Thread{Handoff: *h, Viewer: s.Viewer, Parties: s.Parties}
	first := len(s.Messages) - lastFitting(t, s.Messages)
	r.list("messages", len(s.Messages)-first, 0, func(i int) { message(r, t, &s.Messages[first+i]) })
	if h.ResultSummary != "" {
		r.prose("result_summary", h.ResultSummary, h.DeliveredBy(s.Viewer.ID) || erased(h))
	}
	if h.EndedReason != "" {
		r.prose("ended_reason", h.EndedReason, h.EndedBy == s.Viewer.ID || h.EndedBy == handoff.System().ID || erased(h))
	}
	if s.Stalled {
		r.flag("stalled", true)
	}
	r.time("updated_at", s.UpdatedAt)
	if s.TimedOut {
		r.flag("timed_out", true)
	}
	return r
}

// lastFitting is how many of the last messages fit on a page.
func lastFitting(t *hub.Thread, list []handoff.Message) int {
	return fitting(len(list), envelope, func(i int) int { return sizer{}.Message(t, &list[len(list)-1-i]) })
}

func redeemedResult(out *hub.Redeemed) *result {
	own := out.Creator == out.Viewer.ID
	r := newResult()
	r.head("Handoff %s is yours.", out.HandoffID)
	r.token("handoff_id", out.HandoffID)
	r.token("business_slug", out.Desk.Slug)
	optional(r, "purpose", out.Desk.Purpose, own)
	optional(r, "reservation_id", out.Desk.ReservationID, own)
	r.object("contact", func() {
		optional(r, "name", out.Contact.Name, own)
		optional(r, "email", out.Contact.Email, own)
		optional(r, "phone", out.Contact.Phone, own)
	})
	optional(r, "reason", out.Desk.Reason, own)
	r.token("urgency", string(out.Desk.Urgency))
	t := &hub.Thread{Handoff: handoff.Handoff{ID: out.HandoffID, Door: handoff.DoorDesk, Creator: out.Creator}, Viewer: out.Viewer, Parties: out.Parties}
	fits := fitting(len(out.Messages), 2*envelope, func(i int) int { return sizer{}.Message(t, &out.Messages[i]) })
	r.list("messages", fits, 0, func(i int) { message(r, t, &out.Messages[i]) })
	optional(r, "agent_id", out.Desk.AgentLabel, own)
	r.time("issued_at", out.IssuedAt)
	r.num("claim_epoch", int64(out.Epoch))
	replay(r, out.Replay)
	author(r, &t.Handoff, "business", t.Party(out.Creator).Handle, own)
	return r
}

// optional writes a text of another if there is one.
func optional(r *result, name lit, s string, own bool) {
	if s != "" {
		r.prose(name, s, own)
	}
}

func businessesResult(list []handoff.Business, next string) *result {
	fits := fitting(len(list), envelope, func(i int) int { return weigh(func(r *result) { businessFields(r, &list[i]) }) })
	if fits < len(list) {
		next = list[fits-1].Slug
	}
	r := newResult()
	r.head("Businesses on this page: %d.", fits)
	r.list("businesses", fits, 0, func(i int) { businessFields(r, &list[i]) })
	nullToken(r, "next_cursor", next)
	return r
}

func businessFields(r *result, b *handoff.Business) {
	r.token("slug", b.Slug)
	r.prose("name", b.Name, false)
	r.tokens("channels", b.Channels())
	r.token("timezone", b.Timezone)
}
