package poolmodel_test

import (
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/poolmodel"
)

// What the hub answers, in the words of the model.

func (d *driver) work(w hub.Work, err error) (poolmodel.Reply, error) {
	if err != nil {
		return poolmodel.Reply{}, err
	}
	return poolmodel.Reply{Seen: []poolmodel.Seen{d.seen(&w)}, Replay: w.Replay}, nil
}

func (d *driver) thread(t hub.Thread, err error) (poolmodel.Reply, error) {
	if err != nil {
		return poolmodel.Reply{}, err
	}
	s := d.row(&t.Handoff)
	s.Messages = len(t.Messages)
	return poolmodel.Reply{Seen: []poolmodel.Seen{s}, Replay: t.Replay}, nil
}

func ended(e hub.Ended, err error) (poolmodel.Reply, error) {
	return poolmodel.Reply{Status: e.Status, Verifying: e.Verifying, Replay: e.Replay}, err
}

func (d *driver) seen(w *hub.Work) poolmodel.Seen {
	s := d.row(&w.Handoff)
	s.DependsOn = d.named(w.DependsOn)
	s.Dependencies = counts(w.Dependencies)
	return s
}

func (d *driver) row(h *handoff.Handoff) poolmodel.Seen {
	s := poolmodel.Seen{
		Name: d.names[h.ID], State: h.State, Creator: d.who(h.Creator), Holder: d.who(h.Holder), Epoch: h.Epoch, LeaseEnds: h.LeaseExpiresAt,
		Priority: h.Priority, CreatedAt: h.CreatedAt, Payload: string(h.Payload), Result: string(h.Result), Summary: h.ResultSummary,
		EndedBy: d.who(h.EndedBy), EndedReason: h.EndedReason,
	}
	if v := h.Verdict; v != nil {
		s.Verdict = map[bool]string{true: "pass", false: "fail"}[v.Pass]
		s.Feedback, s.VerifiedBy = v.Feedback, d.who(v.VerifiedBy)
	}
	if strings.HasPrefix(s.EndedReason, "its deadline passed") {
		s.EndedReason = poolmodel.DeadlinePassed
	}
	return s
}

func (d *driver) who(id string) string {
	if handle, ok := d.handles[id]; ok {
		return handle
	}
	return id
}

// called turns handles into the names of the program.
func (d *driver) called(handles []string) []string {
	for i, handle := range handles {
		if handle == d.real(late) {
			handles[i] = late
		}
	}
	return handles
}

func (d *driver) named(ids []string) []string {
	var list []string
	for _, id := range ids {
		list = append(list, d.names[id])
	}
	slices.Sort(list)
	return list
}

func counts(n *hub.DependencyCount) string {
	if n == nil {
		return ""
	}
	return poolmodel.Counts(n.Total, n.Satisfied, n.Pending, n.Failed)
}

// events reads what the log says of a handoff. They are numbered from 1 without a gap.
func (d *driver) events(name string) []poolmodel.Event {
	h, err := d.f.Hub.History(bg, hubtest.Operator(), d.id(name), 0)
	if err != nil {
		d.t.Fatal(err)
	}
	var list []poolmodel.Event
	for i, e := range h.Events {
		if e.Seq != i+1 {
			d.t.Fatalf("event %d of %s is numbered %d", i+1, name, e.Seq)
		}
		if e.Type == handoff.EventMessageCreated || e.Type == handoff.EventInputRequired {
			e.State = ""
		}
		list = append(list, poolmodel.Event{Type: e.Type, State: e.State, Epoch: e.Epoch})
	}
	return list
}

// listing is what the operator sees of the handoffs of a program, which began at that time.
func (d *driver) listing(began time.Time, statuses []string) []string {
	in := hub.ListInput{Since: began, Statuses: statuses, Limit: 7}
	var list []string
	for {
		page, err := d.f.Hub.Handoffs(bg, hubtest.Operator(), in)
		d.must(err)
		for i := range page.Items {
			h := &page.Items[i].Handoff
			list = append(list, poolmodel.Line(d.names[h.ID], h.State, d.who(h.Holder), h.Epoch))
		}
		if in.Cursor = page.NextCursor; in.Cursor == "" {
			return list
		}
	}
}
