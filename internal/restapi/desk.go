package restapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// The operator's hand on the desk: businesses, what was sent to people, and what was given out.

// Business is a business as the operator configured it.
type Business struct {
	Slug          string   `json:"slug"`
	Name          string   `json:"name"`
	Timezone      string   `json:"timezone"`
	Channel       string   `json:"channel"` // sms, email or form; empty for none
	Phone         string   `json:"phone,omitempty"`
	Email         string   `json:"email,omitempty"`
	FormURL       string   `json:"form_url,omitempty"`
	Region        string   `json:"region,omitempty"`
	DailyMessages int      `json:"daily_messages"` // 0 for no cap
	DailyCost     float64  `json:"daily_cost"`     // 0 for no cap
	Channels      []string `json:"channels"`       // by which its person is reached
	Reason        string   `json:"reason,omitempty"`
	CreatedAt     string   `json:"created_at"`
	UpdatedAt     string   `json:"updated_at"`
	// CapsDropped are those that it had before an import replaced it.
	CapsDropped []string `json:"caps_dropped,omitempty"`
}

// Businesses is a list of them.
type Businesses struct {
	Businesses []Business `json:"businesses"`
}

// BusinessImport configures many at once, all or none.
type BusinessImport struct {
	// Businesses are objects as hub.BusinessInput reads them: what is wrong with one is the hub's to say.
	Businesses []json.RawMessage `json:"businesses"`
	// Replace overwrites those that exist.
	Replace bool `json:"replace"`
}

// Delivery is one notification to somebody outside.
type Delivery struct {
	DeliveryID string  `json:"delivery_id"`
	HandoffID  string  `json:"handoff_id"`
	Kind       string  `json:"kind"`
	Channel    string  `json:"channel"`
	Recipient  string  `json:"recipient"` // an agent's handle, or person:SLUG
	State      string  `json:"state"`
	Reason     string  `json:"reason,omitempty"`
	TicketID   string  `json:"ticket_id,omitempty"`
	Attempts   int     `json:"attempts"`
	Unknown    bool    `json:"outcome_unknown"` // some attempt may have gone out
	DueAt      *string `json:"due_at"`
	CreatedAt  string  `json:"created_at"`
	UpdatedAt  string  `json:"updated_at"`
}

// Deliveries is a page of them.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	NextCursor string     `json:"next_cursor,omitempty"`
}

func (o *operator) deskRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /operator/businesses", o.listBusinesses)
	mux.HandleFunc("POST /operator/businesses", o.addBusiness)
	mux.HandleFunc("POST /operator/businesses/import", o.importBusinesses)
	mux.HandleFunc("GET /operator/businesses/{slug}", o.showBusiness)
	mux.HandleFunc("POST /operator/businesses/{slug}/edit", o.editBusiness)
	mux.HandleFunc("GET /operator/deliveries", o.listDeliveries)
	mux.HandleFunc("POST /operator/deliveries/{id}/resend", o.resendDelivery)
	mux.HandleFunc("POST /operator/continuations/{id}/revoke", o.revokeContinuation)
	mux.HandleFunc("POST /operator/signers/rotate", o.rotateSigningKey)
}

func businessJSON(b *handoff.Business) Business {
	_, _, reason := b.Route()
	return Business{
		Slug: b.Slug, Name: b.Name, Timezone: b.Timezone, Channel: string(b.Preferred), Phone: b.Phone, Email: b.Email, FormURL: b.FormURL, Region: b.Region,
		DailyMessages: b.DailyMessages, DailyCost: float64(b.DailyCost) / 1e6, Channels: b.Channels(), Reason: reason, CreatedAt: stamp(b.CreatedAt), UpdatedAt: stamp(b.UpdatedAt),
	}
}

func businessesJSON(list []handoff.Business) Businesses {
	out := Businesses{make([]Business, len(list))}
	for i := range list {
		out.Businesses[i] = businessJSON(&list[i])
	}
	return out
}

func (o *operator) listBusinesses(w http.ResponseWriter, r *http.Request) {
	list, err := o.hub.Businesses(r.Context(), asOperator)
	o.answer(w, r, err, businessesJSON(list))
}

func (o *operator) addBusiness(w http.ResponseWriter, r *http.Request) {
	var in hub.BusinessInput
	if !o.decode(w, r, &in) {
		return
	}
	b, err := o.hub.AddBusiness(r.Context(), asOperator, in)
	o.answer(w, r, err, businessJSON(&b))
}

func (o *operator) importBusinesses(w http.ResponseWriter, r *http.Request) {
	var in BusinessImport
	if !o.decode(w, r, &in) {
		return
	}
	inputs := make([]hub.BusinessInput, len(in.Businesses))
	for i, raw := range in.Businesses {
		_ = json.Unmarshal(raw, &inputs[i]) // its faults are those of the import
	}
	list, err := o.hub.ImportBusinesses(r.Context(), asOperator, inputs, in.Replace)
	out := Businesses{make([]Business, len(list))}
	for i := range list {
		b := &list[i]
		out.Businesses[i] = businessJSON(&b.Business)
		if before := b.Replaced; before != nil && before.DailyMessages > 0 && b.DailyMessages == 0 {
			out.Businesses[i].CapsDropped = append(out.Businesses[i].CapsDropped, "daily_messages")
		}
		if before := b.Replaced; before != nil && before.DailyCost > 0 && b.DailyCost == 0 {
			out.Businesses[i].CapsDropped = append(out.Businesses[i].CapsDropped, "daily_cost")
		}
	}
	o.answer(w, r, err, out)
}

func (o *operator) showBusiness(w http.ResponseWriter, r *http.Request) {
	b, err := o.hub.Business(r.Context(), asOperator, r.PathValue("slug"))
	o.answer(w, r, err, businessJSON(&b))
}

func (o *operator) editBusiness(w http.ResponseWriter, r *http.Request) {
	var in hub.BusinessInput
	if !o.decode(w, r, &in) {
		return
	}
	in.Slug = r.PathValue("slug")
	b, err := o.hub.EditBusiness(r.Context(), asOperator, in)
	o.answer(w, r, err, businessJSON(&b))
}

func deliveryJSON(d *handoff.Delivery, recipient string) Delivery {
	out := Delivery{
		DeliveryID: d.ID, HandoffID: d.HandoffID, Kind: string(d.Kind), Channel: string(d.Channel), Recipient: recipient, State: string(d.State), Reason: d.Reason,
		TicketID: d.ProviderID, Attempts: d.Attempts, Unknown: d.Unknown, CreatedAt: stamp(d.CreatedAt), UpdatedAt: stamp(d.UpdatedAt),
	}
	if d.State.Pending() {
		out.DueAt = stampOrNull(d.DueAt)
	}
	return out
}

func (o *operator) listDeliveries(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	in := hub.DeliveryQuery{States: q["state"], Before: q.Get("cursor")}
	limit, err := limitIn(q)
	if err != nil {
		o.fail(w, r, err)
		return
	}
	in.Limit = limit
	list, err := o.hub.Deliveries(r.Context(), asOperator, in)
	var handles map[string]string
	if err == nil {
		handles, err = o.hub.Recipients(r.Context(), list)
	}
	out := Deliveries{Deliveries: make([]Delivery, len(list))}
	for i := range list {
		out.Deliveries[i] = deliveryJSON(&list[i], cmp.Or(handles[list[i].Recipient], list[i].Recipient))
	}
	if limit == 0 {
		limit = hub.DefaultPage
	}
	if len(list) == limit {
		out.NextCursor = list[limit-1].ID
	}
	o.answer(w, r, err, out)
}

func limitIn(q url.Values) (int, error) {
	text := q.Get("limit")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, handoff.Invalid("limit", handoff.Quote(text)+" came; a whole number is accepted")
	}
	return n, nil
}

// Resend is how a delivery is sent again.
type Resend struct {
	// Again makes another one of one that was sent.
	Again bool `json:"again"`
}

func (o *operator) resendDelivery(w http.ResponseWriter, r *http.Request) {
	var in Resend
	if !o.decode(w, r, &in) {
		return
	}
	d, err := o.hub.Resend(r.Context(), asOperator, r.PathValue("id"), in.Again)
	var handles map[string]string
	if err == nil {
		handles, err = o.hub.Recipients(r.Context(), []handoff.Delivery{d})
	}
	o.answer(w, r, err, deliveryJSON(&d, cmp.Or(handles[d.Recipient], d.Recipient)))
}

func (o *operator) revokeContinuation(w http.ResponseWriter, r *http.Request) {
	id, err := o.hub.RevokeContinuation(r.Context(), asOperator, r.PathValue("id"))
	o.answer(w, r, err, map[string]any{"handoff_id": id, "revoked": true})
}

func (o *operator) rotateSigningKey(w http.ResponseWriter, r *http.Request) {
	var in struct {
		AtOnce bool `json:"at_once"`
	}
	if !o.decode(w, r, &in) {
		return
	}
	id, err := o.hub.RotateSigningKey(r.Context(), asOperator, in.AtOnce)
	o.answer(w, r, err, map[string]any{"key_id": id, "others_end_at_once": in.AtOnce})
}

// DecodeBusinesses takes a file of businesses apart: a list, or an object with the list "businesses". What
// is in it is read by the hub. The error is a sentence.
func DecodeBusinesses(b []byte) ([]json.RawMessage, error) {
	const want = `a list of businesses is accepted, such as [{"slug": "corner-shop"}], or an object with one as "businesses"`
	if !json.Valid(b) {
		var syntax *json.SyntaxError
		if errors.As(json.Unmarshal(b, new(any)), &syntax) {
			before := b[:min(syntax.Offset, int64(len(b)))]
			return nil, fmt.Errorf("line %d: it is no valid JSON here (%w); %s", bytes.Count(before, []byte("\n"))+1, syntax, want)
		}
	}
	if handoff.JSONKind(b) == "an object" {
		var wrapped map[string]json.RawMessage
		if err := json.Unmarshal(b, &wrapped); err != nil || len(wrapped) != 1 || wrapped["businesses"] == nil {
			return nil, errors.New("an object came; " + want)
		}
		b = wrapped["businesses"]
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s came; %s", handoff.JSONKind(b), want)
	}
	return list, nil
}
