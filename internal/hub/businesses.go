package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// BusinessInput configures a business. When editing, nil leaves a field as it is and an empty text
// clears it.
type BusinessInput struct {
	Slug     string  `json:"slug"`
	Name     *string `json:"name,omitempty"`
	Timezone *string `json:"timezone,omitempty"`
	Region   *string `json:"region,omitempty"`
	// Channel is sms, email or form; empty turns notifications off.
	Channel *string `json:"channel,omitempty"`
	Phone   *string `json:"phone,omitempty"`
	Email   *string `json:"email,omitempty"`
	FormURL *string `json:"form_url,omitempty"`
	// DailyMessages and DailyCost are the caps of a day; 0 lifts them. The cost is in the operator's
	// currency, with a point.
	DailyMessages *int     `json:"daily_messages,omitempty"`
	DailyCost     *float64 `json:"daily_cost,omitempty"`
	// Routing is a lead_routing_json of either shape, in place of channel and addresses.
	Routing json.RawMessage `json:"lead_routing_json,omitempty"`
}

// micro is how a cost is kept: millionths.
const micro = 1_000_000

// AddBusiness configures a new business: invalid_params where its slug is taken or a field is wrong.
func (h *Hub) AddBusiness(ctx context.Context, call Call, in BusinessInput) (handoff.Business, error) {
	list, err := h.ImportBusinesses(ctx, call, []BusinessInput{in}, false)
	if err != nil {
		return handoff.Business{}, withoutIndex(err)
	}
	return list[0], nil
}

// withoutIndex takes the place in a list from the field of an error: only one came.
func withoutIndex(err error) error {
	e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
	if !ok {
		return err
	}
	e.Message = strings.TrimPrefix(e.Message, "[0].")
	if field, ok := e.Details["field"].(string); ok {
		e.Details["field"] = strings.TrimPrefix(field, "[0].")
	}
	return e
}

// ImportBusinesses configures some businesses, all of them or none. Those that exist are replaced
// where that is asked for. Errors name the place in the list.
func (h *Hub) ImportBusinesses(ctx context.Context, call Call, list []BusinessInput, replace bool) ([]handoff.Business, error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	made := make([]handoff.Business, len(list))
	seen := map[string]int{}
	for i, in := range list {
		b := handoff.Business{Slug: in.Slug, Name: in.Slug, Timezone: "UTC"}
		err := handoff.CheckSlug(in.Slug)
		if first, twice := seen[in.Slug]; err == nil && twice {
			err = handoff.Invalid("slug", fmt.Sprintf("%s stands in [%d] already", handoff.Quote(in.Slug), first))
		}
		if err == nil {
			err = h.configure(&b, in)
		}
		if err != nil {
			return nil, inItem(i, err)
		}
		seen[in.Slug], made[i] = i, b
	}
	err := h.change(ctx, "business_import", call, func(c *change) error {
		for i := range made {
			b := &made[i]
			b.UpdatedAt = c.Now()
			there, err := c.LockBusiness(b.Slug)
			switch {
			case err == nil && !replace:
				return inItem(i, handoff.Invalid("slug", handoff.Quote(b.Slug)+" is configured already; nothing was changed. Edit it with: handclasp business edit "+b.Slug))
			case err == nil:
				b.CreatedAt = there.CreatedAt
				err = first(func() error { return c.UpdateBusiness(b) }, func() error { return c.businessEvent(handoff.EventBusinessEdited, b.Slug) })
			case isCode(err, handoff.CodeBusinessNotFound):
				b.CreatedAt = c.Now()
				err = first(func() error { return c.InsertBusiness(b) }, func() error { return c.businessEvent(handoff.EventBusinessAdded, b.Slug) })
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return made, err
}

// inItem names the place in a list that an error is about.
func inItem(i int, err error) error {
	e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
	if !ok {
		return err
	}
	at := fmt.Sprintf("[%d]", i)
	e.Message = at + "." + e.Message
	if field, ok := e.Details["field"].(string); ok {
		e.Details["field"] = at + "." + field
	}
	return e
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
		if err := h.configure(&b, in); err != nil {
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

// configure applies an input to a business and checks the whole.
func (h *Hub) configure(b *handoff.Business, in BusinessInput) error {
	set := func(dest, value *string) {
		if value != nil {
			*dest = *value
		}
	}
	set(&b.Name, in.Name)
	set(&b.Timezone, in.Timezone)
	set(&b.Region, in.Region)
	var err error
	if b.Region, err = checkRegion(b.Region); err != nil {
		return err
	}
	if strings.TrimSpace(b.Name) == "" {
		return handoff.Invalid("name", "it is empty; what people call the business is accepted")
	}
	if err := first(
		func() error { return handoff.CheckText("name", b.Name, 200) },
		func() error { return handoff.CheckTimezone(b.Timezone) },
		func() error { return caps(b, in) }); err != nil {
		return err
	}
	routed := in.Channel != nil || in.Phone != nil || in.Email != nil || in.FormURL != nil
	if len(in.Routing) > 0 && string(in.Routing) != "null" {
		if routed {
			return handoff.Invalid("lead_routing_json", "it came together with channel, phone, email or form_url; give one or the other")
		}
		r, err := handoff.ParseRouting("lead_routing_json", in.Routing)
		if err != nil {
			return err
		}
		b.Preferred, b.Phone, b.Email, b.FormURL = r.Preferred, r.Phone, r.Email, r.FormURL
		return h.normalise(b, "lead_routing_json.")
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
	if b.Preferred == "" && (b.Phone != "" || b.Email != "" || b.FormURL != "") && in.Channel == nil {
		return handoff.Invalid("channel", "nothing came, and an address did; sms, email and form are accepted")
	}
	return h.normalise(b, "")
}

func caps(b *handoff.Business, in BusinessInput) error {
	if in.DailyMessages != nil {
		if *in.DailyMessages < 0 || *in.DailyMessages > 1_000_000 {
			return handoff.Invalid("daily_messages", fmt.Sprintf("%d came; 0 for no cap, or up to 1000000 are accepted", *in.DailyMessages))
		}
		b.DailyMessages = *in.DailyMessages
	}
	if in.DailyCost != nil {
		if *in.DailyCost < 0 || *in.DailyCost > 1_000_000 || math.IsNaN(*in.DailyCost) {
			return handoff.Invalid("daily_cost", fmt.Sprintf("%g came; 0 for no cap, or up to 1000000 are accepted", *in.DailyCost))
		}
		if b.DailyCost = int64(math.Round(*in.DailyCost * micro)); b.DailyCost == 0 && *in.DailyCost > 0 {
			return handoff.Invalid("daily_cost", fmt.Sprintf("%g came; less than a millionth cannot be told from no cap", *in.DailyCost))
		}
	}
	return nil
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

// normalise checks the addresses of a business and writes its number in E.164.
func (h *Hub) normalise(b *handoff.Business, at string) (err error) {
	if b.Phone != "" {
		if b.Phone, err = e164(at+"phone", b.Phone, b.Region); err != nil {
			return err
		}
	}
	if b.Email != "" {
		if err := handoff.CheckEmail(at+"email", b.Email, h.lim.Email); err != nil {
			return err
		}
	}
	if b.FormURL != "" {
		if err := handoff.CheckFormURL(at+"form_url", b.FormURL); err != nil {
			return err
		}
	}
	if b.Preferred == handoff.ChannelForm && b.FormURL == "" {
		return handoff.Invalid(at+"form_url", "nothing came; the channel form needs the address of the form")
	}
	return nil
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
