package hub

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// InitiateInput hands a user to the person of a business, or to whichever agent gets the link.
type InitiateInput struct {
	Slug           string `json:"slug"`
	Mode           string `json:"mode"`
	IdempotencyKey string `json:"idempotency_key"`
	Reason         string `json:"reason"`
	// Message is the old name of Reason.
	Message       string `json:"message"`
	Purpose       string `json:"purpose"`
	Urgency       string `json:"urgency"`
	ContactName   string `json:"contact_name"`
	ContactEmail  string `json:"contact_email"`
	ContactPhone  string `json:"contact_phone"`
	ReservationID string `json:"reservation_id"`
	AgentLabel    string `json:"agent_id"`
}

// Initiated is a handoff of the desk as it stands now.
type Initiated struct {
	Mode      handoff.DeskMode
	HandoffID string
	// Delivery is the last one that told the person of it; nil in agent mode.
	Delivery *handoff.Delivery
	FormURL  string
	// Continuation is the link of agent mode.
	Continuation *ContinuationLink
	Replay       bool
}

// ContinuationLink is a signed link with its bare token. It is the same each time it is asked for, and
// empty once it counts no more.
type ContinuationLink struct {
	URL, Token string
	ExpiresAt  time.Time
	// Expired: nobody redeemed it, and nobody can any more: its time is over, it was revoked, its key
	// ended, or its handoff did.
	Expired bool
}

const (
	verbInitiate = "initiate"
	// firstOutcome is how long a call waits until something is known of its notification.
	firstOutcome = 10 * time.Second
	// maxReason and the others are in characters (contracts: desk).
	maxReason      = 800
	maxContactName = 120
	maxPhone       = 40
	maxAgentLabel  = 256
	maxReservation = 256
)

// Initiate makes a handoff of the desk, commits it with the intent to tell the person, and waits a
// while for the first outcome of that. A key that was used before gives the stored handoff as it stands,
// whatever else comes with it: nothing is sent or minted again. Refused with invalid_params,
// business_not_found, feature_disabled or rate_limited, nothing is stored.
func (h *Hub) Initiate(ctx context.Context, call Call, in InitiateInput) (Initiated, error) {
	key, err := ResolveKey(in.IdempotencyKey, nil, call.HeaderKey)
	if err == nil && key == "" {
		err = handoff.Invalid("idempotency_key", "nothing came; 1 to 255 bytes are accepted, such as the id of the conversation")
	}
	if err != nil {
		return Initiated{}, err
	}
	op, err := h.operation(call, verbInitiate, key)
	if err != nil {
		return Initiated{}, err
	}
	if out, found, err := h.initiatedBefore(ctx, op); found || err != nil {
		return out, err
	}
	n, err := h.newDeskHandoff(call, in)
	if err != nil {
		return Initiated{}, err
	}
	if err := h.allowInitiate(call.Actor, in.Slug); err != nil {
		return Initiated{}, err
	}
	if n.links, err = h.linkSecret(ctx); err != nil {
		return Initiated{}, err
	}
	var delivery *handoff.Delivery
	replayed := false
	err = h.change(ctx, verbInitiate, call, func(c *change) error {
		effect, found, err := c.Effect(op)
		if err != nil || found {
			replayed, n.row.ID = found, effect.HandoffID
			return err
		}
		delivery, err = c.openDesk(&n)
		if err != nil {
			return err
		}
		return c.InsertEffect(op, store.Effect{HandoffID: n.row.ID}, c.Now())
	})
	if err != nil {
		return Initiated{}, err
	}
	if !replayed && delivery != nil && delivery.State.Pending() {
		h.awaitDelivery(ctx, call, delivery)
	}
	var out Initiated
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		out, err = h.initiated(tx, n.row.ID)
		out.Replay = replayed
		return err
	})
	return out, err
}

// initiatedBefore is what the key stands for already.
func (h *Hub) initiatedBefore(ctx context.Context, op store.Operation) (out Initiated, found bool, err error) {
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		var effect store.Effect
		if effect, found, err = tx.Effect(op); err != nil || !found {
			return err
		}
		out, err = h.initiated(tx, effect.HandoffID)
		out.Replay = true
		if c := out.Continuation; err == nil && c != nil && c.Token != "" {
			row, err := tx.Handoff(out.HandoffID)
			if row = row.At(tx.Now()); row.State.Terminal() {
				out.Continuation = &ContinuationLink{ExpiresAt: c.ExpiresAt, Expired: true}
			}
			return err
		}
		return err
	})
	return out, found, err
}

// initiated describes a handoff of the desk as it stands.
func (h *Hub) initiated(tx *store.Tx, id string) (Initiated, error) {
	d, err := tx.Desk(id)
	if err != nil {
		return Initiated{}, err
	}
	out := Initiated{Mode: d.Mode, HandoffID: id}
	if d.Mode == handoff.AgentMode {
		out.Continuation, err = h.continuationLink(tx, id)
		return out, err
	}
	list, err := tx.DeliveriesOf(id)
	if err != nil {
		return out, err
	}
	for i := range list {
		if list[i].Kind == handoff.NotifyHandoff && (out.Delivery == nil || out.Delivery.State != handoff.DeliverySent) {
			out.Delivery = &list[i]
		}
	}
	if out.Delivery != nil && out.Delivery.Channel == handoff.ChannelForm {
		b, err := tx.Business(d.Slug)
		out.FormURL = b.FormURL
		return out, err
	}
	return out, nil
}

// newDesk is what can be decided about a handoff of the desk before the database is asked.
type newDesk struct {
	row     handoff.Handoff
	desk    handoff.Desk
	contact handoff.Contact
	links   []byte // the secret of persons' links
}

func (h *Hub) newDeskHandoff(call Call, in InitiateInput) (newDesk, error) {
	if h.cfg.PublicURL == "" {
		return newDesk{}, handoff.Refuse(handoff.CodeFeatureDisabled, "initiate_handoff needs a hub that people can reach, and this one listens nowhere",
			"Nothing was written. The operator runs one with: handclasp serve")
	}
	n := newDesk{
		row: handoff.Handoff{
			ID: newID(), Door: handoff.DoorDesk, State: handoff.Open, Creator: call.Actor.ID, Visibility: handoff.Private,
			TraceID: call.traceID(), TraceParent: call.TraceParent,
		},
		desk: handoff.Desk{
			Slug: in.Slug, Mode: handoff.DeskMode(strings.ToLower(in.Mode)), Urgency: handoff.Urgency(strings.ToLower(in.Urgency)),
			Reason: in.Reason, Purpose: in.Purpose, ReservationID: in.ReservationID, AgentLabel: in.AgentLabel,
		},
		contact: handoff.Contact{Name: in.ContactName, Email: in.ContactEmail, Phone: in.ContactPhone},
	}
	d := &n.desk
	d.HandoffID = n.row.ID
	if d.Mode != handoff.HumanMode && d.Mode != handoff.AgentMode {
		return n, handoff.Invalid("mode", handoff.Quote(in.Mode)+" came; human and agent are accepted")
	}
	if in.Reason != "" && in.Message != "" {
		return n, handoff.Invalid("message", "it came together with reason, whose old name it is; give reason alone")
	}
	if d.Urgency == "" {
		d.Urgency = handoff.UrgencyNormal
	}
	if !urgent(d.Urgency) {
		return n, handoff.Invalid("urgency", handoff.Quote(in.Urgency)+" came; low, normal, high and emergency are accepted")
	}
	field := "reason"
	if in.Message != "" {
		d.Reason, field = in.Message, "message"
	}
	if err := first(
		func() error { return checkChars(field, d.Reason, maxReason, false) },
		func() error { return handoff.CheckText("purpose", d.Purpose, h.lim.ShortText) },
		func() error { return checkChars("contact_name", in.ContactName, maxContactName, true) },
		func() error { return checkChars("contact_phone", in.ContactPhone, maxPhone, true) },
		func() error { return checkChars("reservation_id", in.ReservationID, maxReservation, false) },
		func() error { return checkChars("agent_id", in.AgentLabel, maxAgentLabel, false) },
		func() error {
			if in.ContactEmail == "" {
				return nil
			}
			return handoff.CheckEmail("contact_email", in.ContactEmail, h.lim.Email)
		}); err != nil {
		return n, err
	}
	if d.Mode == handoff.HumanMode {
		n.row.Recipient = handoff.Person(d.Slug).ID
	}
	return n, nil
}

func urgent(u handoff.Urgency) bool {
	for _, known := range handoff.Urgencies() {
		if u == known {
			return true
		}
	}
	return false
}

// checkChars bounds a text in characters. A contact is not repeated.
func checkChars(field, s string, most int, _ bool) error {
	if err := handoff.CheckText(field, s, 0); err != nil {
		return err
	}
	if n := utf8.RuneCountInString(s); n > most {
		return handoff.Invalid(field, fmt.Sprintf("%d characters came, at most %d are accepted", n, most))
	}
	return nil
}

// openDesk writes a new handoff of the desk with all that belongs to it. The delivery is nil in agent
// mode.
func (c *change) openDesk(n *newDesk) (*handoff.Delivery, error) {
	b, err := c.counted(n.desk.Slug)
	if err != nil {
		return nil, err
	}
	now := c.Now()
	row := n.row
	row.CreatedAt, row.UpdatedAt, row.Messages, row.EventSeq = now, now, 1, 1
	row.ExpiresAt = now.Add(handoff.HumanDeadline)
	body := n.desk.Reason
	if n.desk.Mode == handoff.AgentMode {
		row.ExpiresAt = now.Truncate(time.Second).Add(handoff.ContinuationLasts)
		body = n.desk.Purpose
	}
	m := handoff.Message{ID: newID(), HandoffID: row.ID, SequenceNo: 1, Author: row.Creator, Body: body, CreatedAt: now}
	if m.Body == "" { // what a thread begins with when nobody said anything
		m.Author, m.Body = handoff.System().ID, openingLine(n.desk.Mode, b.Name)
	}
	row.Preview = handoff.Preview(m.Body)
	if err := first(
		func() error { return c.InsertHandoff(&row) },
		func() error { return c.InsertMessage(&m) },
		func() error { return c.InsertDesk(&n.desk, n.contact) },
		func() error { return c.tell(&row, handoff.EventCreated, c.call.Actor, m.ID, 0) }); err != nil {
		return nil, err
	}
	if n.desk.Mode == handoff.AgentMode {
		return nil, c.mint(&row)
	}
	if err := c.link(&row, n.links, 1); err != nil {
		return nil, err
	}
	was := row
	d, err := c.intend(&row, &b, handoff.NotifyHandoff, 0)
	if err != nil || row.EventSeq == was.EventSeq {
		return d, err
	}
	return d, c.update(&was, &row)
}

func openingLine(mode handoff.DeskMode, business string) string {
	if mode == handoff.AgentMode {
		return "A customer of " + business + " is handed on."
	}
	return "A customer would like to reach a person of " + business + "."
}

// counted reads a business, under its lock where what is sent to it is counted: without a cap many calls
// for one business need not wait for each other.
func (c *change) counted(slug string) (handoff.Business, error) {
	b, err := c.Business(slug)
	if err != nil || b.DailyMessages == 0 && b.DailyCost == 0 {
		return b, err
	}
	return c.LockBusiness(slug)
}

// intend writes down that the person of a business is to be told of a handoff or of a message in its
// thread, or why not. The caller has the business from [change.counted] and writes the row.
func (c *change) intend(row *handoff.Handoff, b *handoff.Business, kind handoff.NotificationKind, sequenceNo int) (*handoff.Delivery, error) {
	now := c.Now()
	d := &handoff.Delivery{
		ID: newID(), HandoffID: row.ID, Kind: kind, Recipient: handoff.Person(b.Slug).ID, SequenceNo: sequenceNo,
		State: handoff.DeliveryQueued, CreatedAt: now, UpdatedAt: now, DueAt: now,
	}
	if err := c.reserve(d, b); err != nil {
		return nil, err
	}
	if d.Reason != "" {
		d.State, d.DueAt = handoff.DeliveryRefused, time.Time{}
		if err := c.record(row, handoff.EventDeliveryRefused, handoff.System(), d.ID, 0); err != nil {
			return nil, err
		}
		return d, c.InsertDelivery(d)
	}
	c.sends = true
	return d, first(func() error { return c.InsertDelivery(d) }, func() error { return sendEarly(c, d) })
}

// reserve decides over which channel a delivery goes out and counts it against the caps, or sets the
// first reason why it does not (contracts: desk, "When several reasons hold").
func (c *change) reserve(d *handoff.Delivery, b *handoff.Business) error {
	d.Channel, _, d.Reason = b.Route()
	switch {
	case d.Reason != "":
		return nil
	case d.Channel == handoff.ChannelSMS:
		d.Reason = handoff.ReasonConsent // nobody has consented on record
		return nil
	case !c.hub.cfg.Mail && !c.hub.cfg.MailElsewhere:
		d.Reason = handoff.ReasonNotConfigured
		return nil
	}
	if b.DailyMessages == 0 && b.DailyCost == 0 {
		return nil
	}
	zone, err := time.LoadLocation(b.Timezone)
	if err != nil {
		return fmt.Errorf("the time zone of %s: %w", b.Slug, err)
	}
	day := c.Now().In(zone).Format(time.DateOnly)
	err = c.Reserve(b, day, d.Cost)
	if errors.Is(err, store.ErrCapReached) {
		d.Reason = handoff.ReasonSpendCap
		return nil
	}
	d.SpendDay = day
	return err
}
