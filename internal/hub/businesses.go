package hub

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// micro is how a cost is kept: millionths.
const micro = 1_000_000

// AddBusiness configures a new business: invalid_params where its slug is taken or fields are wrong.
func (h *Hub) AddBusiness(ctx context.Context, call Call, in BusinessInput) (handoff.Business, error) {
	list, err := h.configureAll(ctx, call, []BusinessInput{in}, false, func(int) string { return "" })
	if err != nil {
		return handoff.Business{}, err
	}
	return list[0].Business, nil
}

// ImportedBusiness is one as it is configured now.
type ImportedBusiness struct {
	handoff.Business
	// Replaced is how it was configured before; nil for a new one.
	Replaced *handoff.Business
}

// ImportBusinesses configures some businesses, all of them or none. Those that exist are replaced as a
// whole where that is asked for. The error names all faults, each with its place in the list.
func (h *Hub) ImportBusinesses(ctx context.Context, call Call, list []BusinessInput, replace bool) ([]ImportedBusiness, error) {
	return h.configureAll(ctx, call, list, replace, func(i int) string { return fmt.Sprintf("[%d]", i) })
}

func (h *Hub) configureAll(ctx context.Context, call Call, list []BusinessInput, replace bool, place func(int) string) ([]ImportedBusiness, error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	made := make([]ImportedBusiness, len(list))
	var faults faults
	seen := map[string]int{}
	for i := range list {
		in := &list[i]
		made[i].Business = handoff.Business{Slug: in.Slug, Name: in.Slug, Timezone: "UTC"}
		if first, twice := seen[in.Slug]; twice {
			faults.add(place(i), handoff.Invalid("slug", fmt.Sprintf("%s stands in [%d] already", handoff.Quote(in.Slug), first)))
		} else if !in.misread("slug") {
			faults.add(place(i), handoff.CheckSlug(in.Slug))
			seen[in.Slug] = i
		}
		faults.add(place(i), h.configure(&made[i].Business, in))
	}
	taken := func(i int) error {
		slug := made[i].Slug
		return handoff.Invalid("slug", handoff.Quote(slug)+" is configured already. Edit it with handclasp business edit "+slug+", or replace it as a whole with handclasp business import --replace")
	}
	if len(faults.list) > 0 { // and which slugs are taken belongs to what is told of the file
		if !replace {
			if err := h.st.Read(ctx, func(tx *store.Tx) error {
				for slug, i := range seen {
					if _, err := tx.Business(slug); err == nil {
						faults.add(place(i), taken(i))
					} else if !isCode(err, handoff.CodeBusinessNotFound) {
						return err
					}
				}
				return nil
			}); err != nil {
				return nil, err
			}
		}
		return nil, faults.err()
	}
	err := h.change(ctx, "business_import", call, func(c *change) error {
		faults.list = nil
		for i := range made {
			b := &made[i].Business
			b.UpdatedAt = c.Now()
			there, err := c.LockBusiness(b.Slug)
			switch {
			case err == nil && !replace:
				faults.add(place(i), taken(i))
				continue
			case err == nil:
				b.CreatedAt, made[i].Replaced = there.CreatedAt, &there
				err = first(func() error { return c.UpdateBusiness(b) }, func() error { return c.businessEvent(handoff.EventBusinessEdited, b.Slug) })
			case isCode(err, handoff.CodeBusinessNotFound):
				b.CreatedAt, made[i].Replaced = c.Now(), nil
				err = first(func() error { return c.InsertBusiness(b) }, func() error { return c.businessEvent(handoff.EventBusinessAdded, b.Slug) })
			}
			if err != nil {
				return err
			}
		}
		return faults.err()
	})
	return made, err
}

func (c *change) businessEvent(event handoff.EventType, slug string) error {
	c.wake[anyEvent] = true
	return c.InsertEvent(&handoff.Event{Type: event, ActorID: c.call.Actor.ID, SubjectID: slug, TraceID: c.call.traceID(), At: c.Now()})
}

// EditBusiness changes the fields that are given.
func (h *Hub) EditBusiness(ctx context.Context, call Call, in BusinessInput) (handoff.Business, error) {
	if err := operatorOnly(call); err != nil {
		return handoff.Business{}, err
	}
	var b handoff.Business
	err := h.change(ctx, "business_edit", call, func(c *change) error {
		var err error
		if b, err = c.LockBusiness(in.Slug); err != nil {
			return businessCommand(err)
		}
		var faults faults
		faults.add("", h.configure(&b, &in))
		if err := faults.err(); err != nil {
			return err
		}
		b.UpdatedAt = c.Now()
		return first(func() error { return c.UpdateBusiness(&b) }, func() error { return c.businessEvent(handoff.EventBusinessEdited, b.Slug) })
	})
	return b, err
}

// businessCommand names the command that lists businesses, for an operator.
func businessCommand(err error) error {
	if e, ok := err.(*handoff.Error); ok && e.Code == handoff.CodeBusinessNotFound { //nolint:errorlint // a refusal of ours is not wrapped
		e.Hint = "List them with: handclasp business list"
	}
	return err
}

// configure applies an input to a business and checks the whole. Several faults come joined.
func (h *Hub) configure(b *handoff.Business, in *BusinessInput) (err error) {
	faults := slices.Clone(in.faults)
	note := func(err error) {
		if err != nil {
			faults = append(faults, err)
		}
	}
	set := func(dest, value *string) {
		if value != nil {
			*dest = *value
		}
	}
	set(&b.Name, in.Name)
	set(&b.Timezone, in.Timezone)
	set(&b.Region, in.Region)
	b.Region, err = checkRegion(b.Region)
	note(err)
	switch {
	case in.Name != nil && strings.TrimSpace(b.Name) == "":
		note(handoff.Invalid("name", "it is empty; what people call the business is accepted"))
	default:
		note(handoff.CheckText("name", b.Name, 200))
	}
	note(handoff.CheckTimezone(b.Timezone))
	note(caps(b, in))
	note(h.route(b, in))
	return errors.Join(faults...)
}

// route applies how the person of a business is reached.
func (h *Hub) route(b *handoff.Business, in *BusinessInput) (err error) {
	routed := in.Channel != nil || in.Phone != nil || in.Email != nil || in.FormURL != nil
	if len(in.Routing) > 0 && string(in.Routing) != "null" {
		if routed {
			return handoff.Invalid("lead_routing_json", "it came together with channel, phone, email or form_url; give one or the other")
		}
		r, err := handoff.ParseRouting("lead_routing_json", in.Routing)
		b.Preferred, b.Phone, b.Email, b.FormURL = r.Preferred, r.Phone, r.Email, r.FormURL
		return errors.Join(err, h.normalise(b, "lead_routing_json.", err == nil))
	}
	if !routed {
		return nil
	}
	if in.Channel != nil {
		if b.Preferred, err = channelCalled(*in.Channel); err != nil {
			return err
		}
	}
	set(&b.Phone, in.Phone)
	set(&b.Email, in.Email)
	set(&b.FormURL, in.FormURL)
	if b.Preferred == "" && (b.Phone != "" || b.Email != "" || b.FormURL != "") && in.Channel == nil && !in.misread("channel") {
		return handoff.Invalid("channel", "nothing came, and an address did; sms, email and form are accepted")
	}
	return h.normalise(b, "", true)
}

func caps(b *handoff.Business, in *BusinessInput) error {
	var messages, cost error
	if n := in.DailyMessages; n != nil {
		if b.DailyMessages = *n; *n < 0 || *n > 1_000_000 {
			messages = handoff.Invalid("daily_messages", fmt.Sprintf("%d came; 0 for no cap, or up to 1000000 are accepted", *n))
		}
	}
	if n := in.DailyCost; n != nil {
		if b.DailyCost = int64(math.Round(*n * micro)); *n < 0 || *n > 1_000_000 || math.IsNaN(*n) {
			cost = handoff.Invalid("daily_cost", fmt.Sprintf("%g came; 0 for no cap, or up to 1000000 are accepted", *n))
		} else if b.DailyCost == 0 && *n > 0 {
			cost = handoff.Invalid("daily_cost", fmt.Sprintf("%g came; less than a millionth cannot be told from no cap", *n))
		}
	}
	return errors.Join(messages, cost)
}

func channelCalled(word string) (handoff.Channel, error) {
	switch c := handoff.Channel(strings.ToLower(word)); c {
	case "", handoff.ChannelSMS, handoff.ChannelEmail, handoff.ChannelForm:
		return c, nil
	case "phone", "text":
		return handoff.ChannelSMS, nil
	}
	return "", handoff.Invalid("channel", handoff.Quote(word)+" came; sms, email and form are accepted")
}

// normalise checks the addresses of a business and writes its number in E.164. whole: the addresses are
// all that came, so that one that is missing is a fault.
func (h *Hub) normalise(b *handoff.Business, at string, whole bool) error {
	var phone, email, form error
	if b.Phone != "" {
		b.Phone, phone = e164(at+"phone", b.Phone, b.Region)
	}
	if b.Email != "" {
		email = handoff.CheckEmail(at+"email", b.Email, h.lim.Email)
	}
	switch {
	case b.FormURL != "":
		form = handoff.CheckFormURL(at+"form_url", b.FormURL)
	case b.Preferred == handoff.ChannelForm && whole:
		form = handoff.Invalid(at+"form_url", "nothing came; the channel form needs the address of the form")
	}
	return errors.Join(phone, email, form)
}

// Business reads one for the operator.
func (h *Hub) Business(ctx context.Context, call Call, slug string) (b handoff.Business, err error) {
	if err := operatorOnly(call); err != nil {
		return b, err
	}
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		b, err = tx.Business(slug)
		return businessCommand(err)
	})
	return b, err
}

// Businesses lists all of them for the operator, by slug.
func (h *Hub) Businesses(ctx context.Context, call Call) (list []handoff.Business, err error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		list, err = tx.Businesses("", "", math.MaxInt32)
		return err
	})
	return list, err
}

// FindInput searches the businesses; an empty query finds all.
type FindInput struct {
	Query  string `json:"query"`
	Limit  int    `json:"limit"`
	Cursor string `json:"cursor"`
}

// FindBusinesses is a page of those whose slug or name contains the query, by slug. next is empty on
// the last page. What agents may see of them are slug, name, time zone and channels.
func (h *Hub) FindBusinesses(ctx context.Context, in FindInput) (list []handoff.Business, next string, err error) {
	limit, err := pageSize(in.Limit)
	if err != nil {
		return nil, "", err
	}
	if err := first(
		func() error { return handoff.CheckText("query", in.Query, 200) },
		func() error { return handoff.CheckText("cursor", in.Cursor, 63) }); err != nil {
		return nil, "", err
	}
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		list, err = tx.Businesses(in.Query, in.Cursor, limit+1)
		return err
	})
	if len(list) > limit {
		list = slices.Clip(list[:limit])
		next = list[limit-1].Slug
	}
	return list, next, err
}
