package store

import (
	"time"

	"handclasp/internal/handoff"
)

const deliveryColumns = `id, handoff_id, kind, channel, recipient_id, sequence_no, event_seq, state, reason, provider_id, attempts, unknown,
	due_at, created_at, updated_at, spend_day, cost`

type deliveryScan struct {
	d                              handoff.Delivery
	unknown, due, created, updated int64
}

func (s *deliveryScan) dest() []any {
	d := &s.d
	return []any{
		&d.ID, &d.HandoffID, &d.Kind, &d.Channel, &d.Recipient, &d.SequenceNo, &d.EventSeq, &d.State, &d.Reason, &d.ProviderID, &d.Attempts, &s.unknown,
		&s.due, &s.created, &s.updated, &d.SpendDay, &d.Cost,
	}
}

func (s *deliveryScan) value() handoff.Delivery {
	s.d.Unknown, s.d.DueAt, s.d.CreatedAt, s.d.UpdatedAt = s.unknown != 0, timeOf(s.due), timeOf(s.created), timeOf(s.updated)
	return s.d
}

// InsertDelivery stores the intent to tell somebody, or that nobody is told and why.
func (tx *Tx) InsertDelivery(d *handoff.Delivery) error {
	return tx.exec("INSERT INTO deliveries ("+deliveryColumns+") VALUES ("+params(1, 17)+")",
		d.ID, d.HandoffID, string(d.Kind), string(d.Channel), d.Recipient, d.SequenceNo, d.EventSeq, string(d.State), d.Reason, d.ProviderID, d.Attempts, flag(d.Unknown),
		micros(d.DueAt), micros(d.CreatedAt), micros(d.UpdatedAt), d.SpendDay, d.Cost)
}

// UpdateDelivery stores what became of a delivery. It is guarded by the attempt and the state that the
// caller saw: of two that report on one attempt, or of one that reports after another took over, only
// the first counts.
func (tx *Tx) UpdateDelivery(was, d *handoff.Delivery) error {
	return tx.execOne(`UPDATE deliveries SET state = $1, reason = $2, provider_id = $3, attempts = $4, unknown = $5, due_at = $6, created_at = $7, updated_at = $8,
		spend_day = $9, cost = $10, channel = $11 WHERE id = $12 AND state = $13 AND attempts = $14`,
		string(d.State), d.Reason, d.ProviderID, d.Attempts, flag(d.Unknown), micros(d.DueAt), micros(d.CreatedAt), micros(d.UpdatedAt),
		d.SpendDay, d.Cost, string(d.Channel), d.ID, string(was.State), was.Attempts)
}

// LockDelivery reads one delivery and keeps others from changing it until the end of tx;
// [handoff.CodeNotFound] when there is none.
func (tx *Tx) LockDelivery(id string) (handoff.Delivery, error) {
	if !storable(id) {
		return handoff.Delivery{}, handoff.NotFound("delivery", id)
	}
	list, err := tx.deliveries("SELECT "+deliveryColumns+" FROM deliveries WHERE id = $1"+tx.d.forUpdate(), id)
	if err == nil && len(list) == 0 {
		err = handoff.NotFound("delivery", id)
	}
	if err != nil {
		return handoff.Delivery{}, err
	}
	return list[0], nil
}

// DueQuery selects deliveries of one channel that wait.
type DueQuery struct {
	Channel handoff.Channel
	// MadeBy leaves out those that were made later; zero leaves out none.
	MadeBy time.Time
	// Not are recipients left out.
	Not []string
}

// where is q for a WHERE whose arguments so far are args.
func (q *DueQuery) where(args *[]any) string {
	arg := func(v any) string {
		*args = append(*args, v)
		return "$" + itoa(len(*args))
	}
	out := "state IN ('queued', 'sending') AND channel = " + arg(string(q.Channel))
	if !q.MadeBy.IsZero() {
		out += " AND created_at <= " + arg(micros(q.MadeBy))
	}
	for _, id := range q.Not {
		out += " AND recipient_id <> " + arg(id)
	}
	return out
}

// DueDeliveries reads those that wait to be taken at now, the longest due first, and keeps them until
// the end of tx. Those that another holds are left out.
func (tx *Tx) DueDeliveries(now time.Time, q DueQuery, limit int) ([]handoff.Delivery, error) {
	args := []any{micros(now), limit}
	return tx.deliveries("SELECT "+deliveryColumns+" FROM deliveries h"+tx.d.by("deliveries_due")+
		" WHERE "+q.where(&args)+" AND due_at <= $1 ORDER BY due_at LIMIT $2"+tx.d.skipLocked(), args...)
}

// NextDelivery is when the first delivery falls due; zero when none waits. It may be past.
func (tx *Tx) NextDelivery(q DueQuery) (time.Time, error) {
	var at int64
	var args []any
	where := q.where(&args)
	err := tx.row("SELECT due_at FROM deliveries"+tx.d.by("deliveries_due")+" WHERE "+where+" ORDER BY due_at LIMIT 1", args...).scan(&at)
	if IsNoRows(err) {
		err = nil
	}
	return timeOf(at), err
}

// DeliveriesOf reads those of one handoff to a recipient, the oldest first.
func (tx *Tx) DeliveriesOf(handoffID string) ([]handoff.Delivery, error) {
	return tx.deliveries("SELECT "+deliveryColumns+" FROM deliveries WHERE handoff_id = $1 ORDER BY id", handoffID)
}

// Deliveries reads one page for the operator, the newest first; behind beforeID where it is not empty,
// and only of the given states where there are some.
func (tx *Tx) Deliveries(states []handoff.DeliveryState, beforeID string, limit int) ([]handoff.Delivery, error) {
	args := []any{limit}
	where := "1 = 1"
	if beforeID != "" {
		args = append(args, beforeID)
		where += " AND id < $" + itoa(len(args))
	}
	for i, s := range states {
		args = append(args, string(s))
		if i == 0 {
			where += " AND state IN ($" + itoa(len(args))
		} else {
			where += ", $" + itoa(len(args))
		}
	}
	if len(states) > 0 {
		where += ")"
	}
	return tx.deliveries("SELECT "+deliveryColumns+" FROM deliveries WHERE "+where+" ORDER BY id DESC LIMIT $1", args...)
}

func (tx *Tx) deliveries(query string, args ...any) ([]handoff.Delivery, error) {
	var list []handoff.Delivery
	err := tx.each(query, args, func(r rows) error {
		var s deliveryScan
		err := r.Scan(s.dest()...)
		list = append(list, s.value())
		return err
	})
	return list, err
}
