package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The outbox: what is to be sent is a row that was committed with the change it reports. Any node takes
// due ones with a lease, sends, and says what became of it.

// Outgoing is a delivery that was taken, ready to be sent. Attempt fences the report.
type Outgoing struct {
	handoff.Notification
	// Recipient is the id of whom it is for.
	Recipient string
	// Refused is why it must not go out any more; empty for all others.
	Refused string
}

// Sendable is signalled when there may be something to send on this node.
func (h *Hub) Sendable() <-chan struct{} { return h.sendable }

func (h *Hub) kick() {
	select {
	case h.sendable <- struct{}{}:
	default:
	}
}

// Lane is what is sent together: what waits in one holds up nothing in another.
type Lane struct {
	Channel handoff.Channel
	// Not are recipients that have enough on their way.
	Not []string
}

// query selects what this node may take. What goes out by a channel that is not configured here another
// node may send: it is left alone until it would be given up.
func (h *Hub) query(tx *store.Tx, lane Lane) store.DueQuery {
	q := store.DueQuery{Channel: lane.Channel, Not: lane.Not}
	if lane.Channel == handoff.ChannelEmail && !h.cfg.Mail {
		q.MadeBy = tx.Now().Add(-handoff.GiveUpAfter)
	}
	return q
}

// TakeDeliveries takes at most limit due deliveries of a lane that this node can send. Each must be reported with [Hub.ReportDelivery];
// one that is not is taken anew when its lease is over.
func (h *Hub) TakeDeliveries(ctx context.Context, lane Lane, limit int) ([]Outgoing, error) {
	secret, err := h.linkSecret(ctx)
	if err != nil {
		return nil, err
	}
	var taken []handoff.Delivery
	err = h.st.Write(ctx, func(tx *store.Tx) error {
		taken = nil
		list, err := tx.DueDeliveries(tx.Now(), h.query(tx, lane), limit)
		if err != nil {
			return err
		}
		for i := range list {
			was := list[i]
			list[i].Take(tx.Now())
			if err := tx.UpdateDelivery(&was, &list[i]); err != nil {
				return err
			}
		}
		taken = list
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]Outgoing, len(taken))
	for i := range taken {
		if err := h.st.Read(ctx, func(tx *store.Tx) error {
			out[i], err = h.outgoing(tx, &taken[i], secret)
			return err
		}); err != nil {
			return nil, err // their leases run out
		}
	}
	return append(out, sentEarly(h)...), nil
}

// UntilDelivery is how long it takes until a delivery of a lane falls due, at most the given time.
func (h *Hub) UntilDelivery(ctx context.Context, lane Lane, most time.Duration) (wait time.Duration, err error) {
	wait = most
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		at, err := tx.NextDelivery(h.query(tx, lane))
		if err == nil && !at.IsZero() {
			wait = min(max(at.Sub(tx.Now()), 0), most)
		}
		return err
	})
	return wait, err
}

// outgoing collects what a notification says. The link is derived anew each time.
func (h *Hub) outgoing(tx *store.Tx, d *handoff.Delivery, secret []byte) (Outgoing, error) {
	n := Outgoing{Recipient: d.Recipient, Notification: handoff.Notification{
		ID: d.ID, HandoffID: d.HandoffID, Kind: d.Kind, Channel: d.Channel, CreatedAt: d.CreatedAt, Attempt: d.Attempts, First: d.ID,
	}}
	row, err := tx.Handoff(d.HandoffID)
	if err != nil {
		return n, err
	}
	if row = row.At(tx.Now()); d.Kind == handoff.NotifyNews {
		return n, h.news(tx, d, &row, &n)
	}
	desk, err := tx.Desk(d.HandoffID)
	if err != nil {
		return n, err
	}
	b, err := tx.Business(desk.Slug)
	if err != nil {
		return n, err
	}
	if row.State.Terminal() {
		n.Refused = reasonEnded
		return n, nil
	}
	channel, address, reason := b.Route()
	if reason == "" && channel != d.Channel {
		reason = handoff.ReasonShape // its routing was changed since
	}
	if reason != "" {
		n.Refused = reason
		return n, nil
	}
	contact, err := tx.Contact(d.HandoffID)
	if err != nil {
		return n, err
	}
	n.To, n.Business, n.Urgency = address, b.Name, desk.Urgency
	n.Reason, n.ReservationID, n.AgentLabel = desk.Reason, desk.ReservationID, desk.AgentLabel
	n.ContactName, n.ContactEmail, n.ContactPhone = contact.Name, contact.Email, contact.Phone
	if d.SequenceNo > 0 {
		m, err := tx.MessageAt(d.HandoffID, d.SequenceNo)
		if err != nil {
			return n, err
		}
		n.Body = m.Body
	}
	for use, dest := range map[store.LinkUse]*string{store.LinkPage: &n.Link, store.LinkReply: &n.ReplyToken} {
		generation, err := tx.LinkGeneration(d.HandoffID, use)
		if err != nil {
			return n, err
		}
		*dest = auth.PersonToken(secret, string(use), d.HandoffID, d.Recipient, generation)
	}
	n.Link = h.cfg.PublicURL + "/h/" + n.Link
	list, err := tx.DeliveriesOf(d.HandoffID)
	for i := range list {
		if list[i].Kind == handoff.NotifyHandoff {
			n.First = list[i].ID
			break
		}
	}
	return n, err
}

// reasonEnded: the handoff had ended before its notification went out.
const reasonEnded = "handoff_ended"

// ReportDelivery writes down how an attempt ended. A report of an attempt that another took over
// changes nothing.
func (h *Hub) ReportDelivery(ctx context.Context, out *Outgoing, o handoff.Outcome) error {
	return h.change(ctx, "delivery_report", Call{Actor: handoff.System()}, func(c *change) error {
		was, err := c.LockHandoff(out.HandoffID)
		if err != nil {
			return err
		}
		d, err := c.LockDelivery(out.ID)
		if isCode(err, handoff.CodeNotFound) { // another sent it, and it is not kept any more
			return nil
		}
		if err != nil || d.State != handoff.DeliverySending || d.Attempts != out.Attempt {
			return err
		}
		return c.reported(&was, d, o)
	})
}

// InsertDelivery notes besides what nobody is told of from the start, for the log.
func (c *change) InsertDelivery(d *handoff.Delivery) error {
	if d.State == handoff.DeliveryRefused {
		c.untold = append(c.untold, *d)
	}
	return c.Tx.InsertDelivery(d)
}

// logUntold says in the log that a handoff was made or written to and its person was not told. It holds
// nothing that a customer gave.
func (h *Hub) logUntold(ctx context.Context, list []handoff.Delivery) {
	for i := range list {
		d := &list[i]
		slug, _ := handoff.PersonSlug(d.Recipient)
		h.log.InfoContext(ctx, "nobody is told", "handoff", d.HandoffID, "business", slug, "kind", string(d.Kind), "reason", d.Reason)
	}
}

// BusinessesByMail is how many businesses are reached by e-mail.
func (h *Hub) BusinessesByMail(ctx context.Context) (n int, err error) {
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		n, err = tx.BusinessesByMail()
		return err
	})
	return n, err
}

func (c *change) reported(was *handoff.Handoff, before handoff.Delivery, o handoff.Outcome) error {
	d, row := before, *was
	event := d.Report(o, rand.Float64(), c.Now())
	if _, certain := d.Refusal(); certain && d.SpendDay != "" {
		slug, _ := handoff.PersonSlug(d.Recipient)
		if err := c.Release(slug, d.SpendDay, d.Cost); err != nil {
			return err
		}
		d.SpendDay, d.Cost = "", 0
	}
	if d.State == handoff.DeliveryRefused && d.Kind != handoff.NotifyNews && o.Err == nil { // the sender was not asked, and said nothing
		c.untold = append(c.untold, d)
	}
	c.wake[wakeHandoff(row.ID)] = true
	if err := c.UpdateDelivery(&before, &d); err != nil || event == handoff.Repeated {
		return err
	}
	whom := []string{row.Creator}
	switch {
	case d.Kind == handoff.NotifyNews && event == handoff.EventDeliverySent:
		return nil // it changes nothing of the handoff
	case d.Kind == handoff.NotifyNews, event == handoff.EventDeliverySent:
		whom = nil // nobody is told of that outside, which might fail again
	}
	row.UpdatedAt = c.Now()
	if err := c.record(&row, event, handoff.System(), d.ID, 0, whom...); err != nil {
		return err
	}
	return c.update(was, &row)
}

// awaitDelivery waits until something is known of a delivery: its first attempt ended, or time is up.
// Whatever keeps it from waiting, the delivery goes on.
func (h *Hub) awaitDelivery(ctx context.Context, call Call, d *handoff.Delivery) {
	_ = h.park(ctx, call, []string{wakeHandoff(d.HandoffID)}, firstOutcome, func(*waiter) (bool, error) {
		known := false
		err := h.st.Read(ctx, func(tx *store.Tx) error {
			list, err := tx.DeliveriesOf(d.HandoffID)
			for i := range list {
				if list[i].ID == d.ID {
					known = !list[i].State.Pending() || list[i].State == handoff.DeliveryQueued && list[i].Attempts > 0
				}
			}
			return err
		})
		return known, err
	})
}

// DeliveryQuery selects a page of deliveries for the operator, the newest first.
type DeliveryQuery struct {
	States []string `json:"state"`
	Limit  int      `json:"limit"`
	// Before is the id of the last one of the page before.
	Before string `json:"cursor"`
}

// Deliveries lists what was sent, and what was not.
func (h *Hub) Deliveries(ctx context.Context, call Call, q DeliveryQuery) (list []handoff.Delivery, err error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	limit, err := pageSize(q.Limit)
	if err != nil {
		return nil, err
	}
	states := make([]handoff.DeliveryState, len(q.States))
	for i, word := range q.States {
		if states[i], err = deliveryStateCalled(word); err != nil {
			return nil, err
		}
	}
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		list, err = tx.Deliveries(states, q.Before, limit)
		return err
	})
	return list, err
}

// Recipients are the handles of the agents that some deliveries are for, by their ids.
func (h *Hub) Recipients(ctx context.Context, list []handoff.Delivery) (handles map[string]string, err error) {
	ids := map[string]bool{}
	for i := range list {
		if !handoff.IsOutside(list[i].Recipient) {
			ids[list[i].Recipient] = true
		}
	}
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		handles, err = h.handles.of(tx, ids)
		return err
	})
	return handles, err
}

func deliveryStateCalled(word string) (handoff.DeliveryState, error) {
	var words []string
	for _, s := range handoff.DeliveryStates() {
		if string(s) == word {
			return s, nil
		}
		words = append(words, string(s))
	}
	return "", handoff.Invalid("state", handoff.Quote(word)+" came; "+joinOr(words)+" are accepted")
}

// Resend sends a delivery again that was refused, is unconfirmed or dead, or waits for its next attempt, by
// the operator's hand; and another like one that was sent, if again. What keeps it from going out now is
// the error.
func (h *Hub) Resend(ctx context.Context, call Call, id string, again bool) (handoff.Delivery, error) {
	if err := operatorOnly(call); err != nil {
		return handoff.Delivery{}, err
	}
	var d handoff.Delivery
	err := h.change(ctx, "delivery_resend", call, func(c *change) error {
		known, err := c.LockDelivery(id)
		if isCode(err, handoff.CodeNotFound) {
			return handoff.Refuse(handoff.CodeNotFound, "no delivery has the id "+handoff.Quote(id), "List them with: handclasp delivery list")
		}
		if err != nil {
			return err
		}
		d = known
		row, err := c.Handoff(d.HandoffID)
		if err != nil {
			return err
		}
		if row = row.At(c.Now()); row.State.Terminal() {
			return handoff.Refuse(handoff.CodeInvalidTransition, "its handoff has ended: it is "+row.Status(), "Nothing was sent.")
		}
		if err := d.Resend(newID(), again, c.Now()); err != nil {
			return err
		}
		c.sends = true
		keep := func() error {
			if d.ID != known.ID {
				return c.InsertDelivery(&d)
			}
			return c.UpdateDelivery(&known, &d)
		}
		slug, person := handoff.PersonSlug(d.Recipient)
		if !person {
			return keep()
		}
		if known.State == handoff.DeliveryQueued {
			c.wake[wakeHandoff(d.HandoffID)] = true
			return keep() // the attempt that it was counted for
		}
		b, err := c.counted(slug)
		if err != nil {
			return err
		}
		d.SpendDay = "" // what may have gone out stays counted where it was
		if err = c.reserve(&d, &b); err == nil && d.Reason != "" {
			err = handoff.Refuse(handoff.CodeInvalidTransition, fmt.Sprintf("it would not go out now: %s", d.Reason), "Nothing was sent. handclasp business show "+slug+" tells how the business is reached.").With("reason", d.Reason)
		}
		if err != nil {
			return err
		}
		c.wake[wakeHandoff(d.HandoffID)] = true
		return keep()
	})
	return d, err
}
