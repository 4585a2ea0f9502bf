package hub

import (
	"context"
	"errors"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// A person acts by a link, which opens one handoff and nothing else. Opening it changes nothing.

// linkLasts is how long the link of a handoff that has ended still shows it.
const linkLasts = 30 * 24 * time.Hour

// link gives a handoff's person new tokens in place of the last, of which only the hashes are kept.
func (c *change) link(row *handoff.Handoff, secret []byte, generation int) error {
	for _, use := range []store.LinkUse{store.LinkPage, store.LinkReply} {
		token := auth.PersonToken(secret, string(use), row.ID, row.Recipient, generation)
		if err := c.SetLink(row.ID, use, generation, auth.HashKey(token)); err != nil {
			return err
		}
	}
	return nil
}

// ErrNoPage says that a person's link shows nothing, without saying why.
var ErrNoPage = handoff.Refuse(handoff.CodeNotFound, "this link shows nothing", "It may have been cut off when it was copied, or its time is over. The business can send it again.")

// PersonPage is what a person sees of a handoff.
type PersonPage struct {
	Business handoff.Business
	Desk     handoff.Desk
	Contact  handoff.Contact
	Thread   Thread
}

// Open reports whether the person can still act.
func (p *PersonPage) Open() bool { return !p.Thread.Handoff.State.Terminal() }

// Taken reports whether the person holds the handoff.
func (p *PersonPage) Taken() bool {
	return p.Thread.Handoff.State == handoff.Claimed && p.Thread.Handoff.Holder == p.Thread.Handoff.Recipient
}

// linked finds the handoff that a person's token opens, as it is now.
func linked(tx *store.Tx, token string) (handoff.Handoff, error) {
	if !auth.IsPersonToken(token) {
		return handoff.Handoff{}, ErrNoPage
	}
	id, err := tx.LinkedHandoff(store.LinkPage, auth.HashKey(token))
	if store.IsNoRows(err) {
		return handoff.Handoff{}, ErrNoPage
	}
	if err != nil {
		return handoff.Handoff{}, err
	}
	row, err := tx.Handoff(id)
	row = row.At(tx.Now())
	if err == nil && row.State.Terminal() && tx.Now().Sub(row.UpdatedAt) >= linkLasts {
		err = ErrNoPage
	}
	return row, err
}

// PersonView shows the handoff of a person's link with its thread, and changes nothing.
func (h *Hub) PersonView(ctx context.Context, token string) (PersonPage, error) {
	var p PersonPage
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		row, err := linked(tx, token)
		if err != nil {
			return err
		}
		if err := h.Allow(handoff.Actor{ID: row.ID}); err != nil { // whoever has the link
			return err
		}
		if p.Desk, err = tx.Desk(row.ID); err != nil {
			return err
		}
		if p.Business, err = tx.Business(p.Desk.Slug); err != nil {
			return err
		}
		if p.Contact, err = tx.Contact(row.ID); err != nil {
			return err
		}
		after := max(row.Messages-PageLimit, 0) // the latest
		p.Thread, err = readThread(tx, handoff.Person(p.Desk.Slug), row, after, PageLimit, nil)
		return err
	})
	return p, err
}

// PersonAct is what a person does.
type PersonAct string

// The acts. Answering takes what nobody has taken yet, and so does completing.
const (
	PersonTakes     PersonAct = "take"
	PersonAnswers   PersonAct = "answer"
	PersonCompletes PersonAct = "complete"
	PersonDeclines  PersonAct = "decline"
)

// PersonInput is one act by a person's link.
type PersonInput struct {
	Token string    `json:"-"`
	Act   PersonAct `json:"act"`
	// Text is the answer, what was done, or why not.
	Text string `json:"text"`
	// Key makes a form that is sent twice count once.
	Key string `json:"-"`
}

// PersonDoes carries out an act by the link of a person, once.
func (h *Hub) PersonDoes(ctx context.Context, in PersonInput) error {
	if err := handoff.CheckText("text", in.Text, h.lim.Summary); err != nil {
		return err
	}
	switch in.Act {
	case PersonTakes, PersonCompletes:
	case PersonAnswers:
		if in.Text == "" {
			return handoff.Invalid("text", "it is empty; write an answer")
		}
	case PersonDeclines:
		if err := handoff.CheckText("text", in.Text, h.lim.Reason); err != nil {
			return err
		}
	default:
		return handoff.Invalid("act", handoff.Quote(string(in.Act))+" came; take, answer, complete and decline are accepted")
	}
	return h.change(ctx, "person_"+string(in.Act), Call{}, func(c *change) error {
		found, err := linked(c.Tx, in.Token)
		if err != nil {
			return err
		}
		if err := h.Allow(handoff.Actor{ID: found.ID}); err != nil {
			return err
		}
		slug, _ := handoff.PersonSlug(found.Recipient)
		c.call.Actor = handoff.Person(slug)
		key := ""
		if in.Key != "" {
			key = found.ID + " " + in.Key // a form is of one handoff, and its keys are no other's
		}
		once, err := h.keyed(Call{Actor: c.call.Actor}, "person", &key, &in)
		if err != nil {
			return err
		}
		was, row, _, done, err := c.begin(found.ID, once)
		if err != nil || done {
			return err
		}
		if err := c.personDoes(&was, &row, in); err != nil {
			return err
		}
		return c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch})
	})
}

func (c *change) personDoes(was, row *handoff.Handoff, in PersonInput) error {
	actor := c.call.Actor
	a := &handoff.Agent{ID: actor.ID, Handle: actor.Handle}
	if !row.State.Terminal() && row.State != handoff.Open && row.Holder != actor.ID {
		return handoff.Refuse(handoff.CodeNotOwner, "somebody else has this handoff", "Nothing was changed.")
	}
	if row.State == handoff.Open && in.Act != PersonDeclines {
		event, err := row.Claim(actor, handoff.ClaimInput{Agent: a}, c.Now(), c.hub.lim)
		if err != nil {
			return err
		}
		if err := c.record(row, event, actor, "", 0, row.Creator); err != nil {
			return err
		}
	}
	switch in.Act {
	case PersonAnswers:
		event, err := row.Append(actor, a, false, c.Now(), c.hub.lim)
		if err != nil {
			return err
		}
		m := handoff.Message{ID: newID(), HandoffID: row.ID, SequenceNo: row.Messages, Author: actor.ID, Body: in.Text, CreatedAt: c.Now()}
		return first(
			func() error { return c.record(row, event, actor, m.ID, m.SequenceNo, row.Creator) },
			func() error { return c.InsertMessage(&m) },
			func() error { return c.update(was, row) })
	case PersonCompletes:
		epoch := row.Epoch
		event, err := row.Complete(actor, &epoch, c.Now())
		if err != nil {
			return err
		}
		if row.ResultSummary = in.Text; in.Text == "" {
			row.ResultSummary = "Done."
		}
		return first(
			func() error { return c.record(row, event, actor, "", 0, row.Creator) },
			func() error { return c.update(was, row) })
	case PersonDeclines:
		epoch := row.Epoch
		event, err := row.Reject(actor, in.Text, &epoch, c.Now())
		if err != nil {
			return err
		}
		return first(
			func() error { return c.record(row, event, actor, "", 0, row.Creator) },
			func() error { return c.update(was, row) })
	}
	if row.EventSeq == was.EventSeq { // it was taken before
		if row.State.Terminal() || row.Holder != actor.ID {
			_, err := row.Claim(actor, handoff.ClaimInput{Agent: a}, c.Now(), c.hub.lim)
			return err
		}
		return nil
	}
	return c.update(was, row)
}

// IsNoPage reports whether a link shows nothing.
func IsNoPage(err error) bool { return errors.Is(err, ErrNoPage) }
