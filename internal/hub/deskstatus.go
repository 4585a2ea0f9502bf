package hub

import (
	"context"
	"slices"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// StatusInput asks how a handoff of the desk stands.
type StatusInput struct {
	HandoffID string
	// Known parks the call until something changed after it; zero returns at once.
	Known time.Time
	Wait  time.Duration
}

// DeskStatus is how a handoff of the desk stands.
type DeskStatus struct {
	Handoff    handoff.Handoff
	Desk       handoff.Desk
	Viewer     handoff.Actor
	Deliveries []handoff.Delivery
	// Messages are the last ones that others than the creator wrote, in order.
	Messages []handoff.Message
	Parties  map[string]Party
	// UpdatedAt is when anything of it changed last.
	UpdatedAt time.Time
	// Stalled: nobody can go on with it but by the operator's hand: whoever redeemed it has no session any
	// more, or its link counts no more and nobody has redeemed it.
	Stalled  bool
	TimedOut bool
}

// settled reports whether nothing of s can change any more.
func (s *DeskStatus) settled() bool {
	return s.Handoff.State.Terminal() && !slices.ContainsFunc(s.Deliveries, func(d handoff.Delivery) bool { return d.State.Pending() })
}

// statusMessages is how many messages a status holds at most.
const statusMessages = 20

// DeskStatus reads how a handoff of the desk stands, for its creator, its holder and the operator;
// not_found for others and for handoffs of other doors.
func (h *Hub) DeskStatus(ctx context.Context, call Call, in StatusInput) (DeskStatus, error) {
	if err := checkWait(in.Wait); err != nil {
		return DeskStatus{}, err
	}
	var out DeskStatus
	news := false
	err := h.park(ctx, call, []string{wakeHandoff(in.HandoffID)}, in.Wait, func(*waiter) (bool, error) {
		err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			out, err = h.deskStatus(tx, call, in.HandoffID)
			return err
		})
		news = in.Known.IsZero() || out.UpdatedAt.Truncate(time.Millisecond).After(in.Known)
		return news || out.settled(), err
	})
	out.TimedOut = err == nil && !news && in.Wait > 0 && !out.settled()
	return out, err
}

func (h *Hub) deskStatus(tx *store.Tx, call Call, id string) (DeskStatus, error) {
	row, err := tx.Handoff(id)
	if err != nil {
		return DeskStatus{}, err
	}
	row = row.At(tx.Now())
	out := DeskStatus{Handoff: row, Viewer: call.Actor, UpdatedAt: row.UpdatedAt}
	if row.Door != handoff.DoorDesk || !row.Participant(call.Actor, &handoff.Agent{ID: call.Actor.ID, Handle: call.Actor.Handle}) {
		return out, handoff.NotFound("handoff", id)
	}
	if out.Desk, err = tx.Desk(id); err != nil {
		return out, err
	}
	if out.Deliveries, err = tx.DeliveriesOf(id); err != nil {
		return out, err
	}
	// What agents are told of their inboxes is their own business.
	out.Deliveries = slices.DeleteFunc(out.Deliveries, func(d handoff.Delivery) bool { return d.Kind == handoff.NotifyNews })
	for i := range out.Deliveries {
		if at := out.Deliveries[i].UpdatedAt; at.After(out.UpdatedAt) {
			out.UpdatedAt = at
		}
	}
	list, err := tx.LastMessages(id, row.Creator, statusMessages)
	if err != nil {
		return out, err
	}
	ids := map[string]bool{row.Creator: true}
	for i := range list {
		if list[i].SequenceNo > 1 { // the first one is the handoff itself
			out.Messages = append(out.Messages, list[i])
			ids[list[i].Author] = true
		}
	}
	if out.Parties, err = names(tx, sortedKeys(ids)); err != nil {
		return out, err
	}
	if out.Desk.Mode == handoff.AgentMode && !row.State.Terminal() {
		link, err := tx.Continuation(id)
		if err != nil {
			return out, err
		}
		secret, err := signer(tx)
		if err != nil {
			return out, err
		}
		keyless := secret(link.KeyID) == nil
		if row.State == handoff.Open {
			out.Stalled = keyless || !link.RevokedAt.IsZero()
		} else {
			out.Stalled = row.Holder == link.RedeemerID && handoff.IsBearer(row.Holder) && (keyless || sessionOver(&link, tx.Now()))
		}
	}
	return out, nil
}

// ReplyInput is a message to the person of a business.
type ReplyInput struct {
	HandoffID      string `json:"handoff_id"`
	Body           string `json:"body"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Replied is the answer to it.
type Replied struct {
	HandoffID string
	MessageID string
	Delivery  handoff.Delivery
	FormURL   string
	Replay    bool
}

// Reply adds a message to the thread of a human-mode handoff and sends it to the person by the
// channel that the business prefers. Its creator's, and the operator's.
func (h *Hub) Reply(ctx context.Context, call Call, in ReplyInput) (Replied, error) {
	if in.Body == "" {
		return Replied{}, handoff.Invalid("body", "it is empty; a text is needed")
	}
	if err := handoff.CheckText("body", in.Body, h.lim.Summary); err != nil {
		return Replied{}, err
	}
	once, err := h.keyed(call, "reply", &in.IdempotencyKey, &in)
	if err != nil {
		return Replied{}, err
	}
	out := Replied{HandoffID: in.HandoffID}
	err = h.change(ctx, "reply", call, func(c *change) error {
		was, row, effect, found, err := c.begin(in.HandoffID, once)
		if err != nil {
			return err
		}
		d, err := c.Desk(row.ID)
		if isCode(err, handoff.CodeNotFound) || err == nil && d.Mode != handoff.HumanMode {
			return handoff.Refuse(handoff.CodeInvalidTransition, "no person waits behind this handoff", "Write to its thread with send_message.")
		}
		if err != nil {
			return err
		}
		if found {
			m, err := c.MessageAt(row.ID, effect.Epoch)
			if err != nil {
				return err
			}
			out.Delivery, err = c.LockDelivery(effect.RefID)
			if !isCode(err, handoff.CodeNotFound) {
				out.MessageID, out.Replay = m.ID, true
				return err
			}
			// It goes no sooner than the key, and the handoff has ended: the refusal below says so.
		}
		return c.reply(&was, &row, &d, in.Body, once, &out)
	})
	if err != nil {
		return Replied{}, err
	}
	if out.Replay || !out.Delivery.State.Pending() {
		return out, h.completeReply(ctx, &out)
	}
	h.awaitDelivery(ctx, call, &out.Delivery)
	return out, h.completeReply(ctx, &out)
}

func (c *change) reply(was, row *handoff.Handoff, d *handoff.Desk, body string, once once, out *Replied) error {
	actor := c.call.Actor
	if actor.ID != row.Creator && !actor.IsOperator() {
		return handoff.Refuse(handoff.CodeNotOwner, "only whoever made this handoff writes to its person this way", "Write to its thread with send_message if you take part in it.")
	}
	event, err := row.Append(actor, nil, false, c.Now(), c.hub.lim)
	if err != nil {
		return err
	}
	b, err := c.counted(d.Slug)
	if err != nil {
		return err
	}
	m := handoff.Message{ID: newID(), HandoffID: row.ID, SequenceNo: row.Messages, Author: actor.ID, Body: body, CreatedAt: c.Now()}
	if err := first(
		func() error { return c.record(row, event, actor, m.ID, m.SequenceNo, others(row)...) },
		func() error { return c.InsertMessage(&m) }); err != nil {
		return err
	}
	delivery, err := c.intend(row, &b, handoff.NotifyReply, m.SequenceNo)
	if err != nil {
		return err
	}
	out.MessageID, out.Delivery = m.ID, *delivery
	return first(
		func() error { return c.update(was, row) },
		func() error {
			return c.keep(once, store.Effect{HandoffID: row.ID, Epoch: m.SequenceNo, RefID: delivery.ID})
		})
}

// completeReply reads what became of the delivery meanwhile.
func (h *Hub) completeReply(ctx context.Context, out *Replied) error {
	return h.st.Read(ctx, func(tx *store.Tx) error {
		list, err := tx.DeliveriesOf(out.HandoffID)
		for i := range list {
			if list[i].ID == out.Delivery.ID {
				out.Delivery = list[i]
			}
		}
		if err != nil || out.Delivery.Channel != handoff.ChannelForm {
			return err
		}
		d, err := tx.Desk(out.HandoffID)
		if err != nil {
			return err
		}
		b, err := tx.Business(d.Slug)
		out.FormURL = b.FormURL
		return err
	})
}
