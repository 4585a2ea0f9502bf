package hub

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"handclasp/internal/handoff"
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

	// faults are what could not be read of it.
	faults []error
}

// UnmarshalJSON reads one. What is of the wrong kind or no field at all is left out and remembered, so that
// whoever configures it hears of all faults at once.
func (in *BusinessInput) UnmarshalJSON(b []byte) error {
	*in = BusinessInput{}
	var fields map[string]json.RawMessage
	if json.Unmarshal(b, &fields) != nil || fields == nil {
		in.faults = []error{handoff.Refuse(handoff.CodeInvalidParams, handoff.JSONKind(b)+` came; an object is accepted, such as {"slug": "corner-shop"}`, "")}
		return nil
	}
	const text, number = "a string", "a number"
	known := []struct {
		name, accepted string
		dest           any
	}{
		{"slug", text, &in.Slug},
		{"name", text, &in.Name},
		{"timezone", text, &in.Timezone},
		{"region", text, &in.Region},
		{"channel", text, &in.Channel},
		{"phone", text, &in.Phone},
		{"email", text, &in.Email},
		{"form_url", text, &in.FormURL},
		{"daily_messages", "a whole number", &in.DailyMessages},
		{"daily_cost", number, &in.DailyCost},
		{"lead_routing_json", "", &in.Routing},
	}
	names := make([]string, len(known))
	for i, f := range known {
		names[i] = f.name
		raw, given := fields[f.name]
		if !given || json.Unmarshal(raw, f.dest) == nil {
			continue
		}
		came := handoff.JSONKind(raw)
		if came == number {
			came = handoff.CutGraphemes(string(raw), 40)
		}
		in.faults = append(in.faults, handoff.Invalid(f.name, came+" came; "+f.accepted+" is accepted"))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if slices.Contains(names, name) {
			continue
		}
		also := ""
		if near := handoff.NearMatches(name, names, 1); len(near) > 0 {
			also = "; did you mean " + near[0] + "?"
		}
		if !plainName.MatchString(name) {
			name = handoff.Quote(name)
		}
		in.faults = append(in.faults, handoff.Invalid(name, "is not a field here; accepted are "+strings.Join(names, ", ")+also))
	}
	return nil
}

// misread reports whether a field came and could not be read. Of what is no object nothing could.
func (in *BusinessInput) misread(field string) bool {
	return slices.ContainsFunc(in.faults, func(err error) bool {
		e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
		return ok && (e.Details["field"] == field || e.Details == nil)
	})
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,60}$`)

// faults collects what is wrong with an input, to tell all of it at once.
type faults struct{ list []*handoff.Error }

// mostFaults is how many are told.
const mostFaults = 20

// add notes what err holds, which may be nothing, one refusal or several that were joined; place is
// where in a list it is.
func (f *faults) add(place string, err error) {
	if err == nil {
		return
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // joined by us
		for _, err := range several.Unwrap() {
			f.add(place, err)
		}
		return
	}
	var e *handoff.Error
	if !errors.As(err, &e) {
		e = &handoff.Error{Code: handoff.CodeInternal, Message: "internal error", Err: err}
	}
	at := *e
	if field, named := e.Details["field"].(string); place != "" && named {
		at.Message, at.Details = place+"."+e.Message, map[string]any{"field": place + "." + field}
	} else if place != "" {
		at.Message = place + ": " + e.Message
	}
	f.list = append(f.list, &at)
}

// err is nil, the one fault, or a refusal with a line for each of the first.
func (f *faults) err() error {
	switch len(f.list) {
	case 0:
		return nil
	case 1:
		e := *f.list[0]
		if e.Hint == "" {
			e.Hint = "Nothing was changed."
		}
		return &e
	}
	var lines []string
	for _, e := range f.list[:min(len(f.list), mostFaults)] {
		lines = append(lines, e.Message)
	}
	text := fmt.Sprintf("%d faults, and nothing was changed:\n  %s", len(f.list), strings.Join(lines, "\n  "))
	if more := len(f.list) - mostFaults; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return handoff.Refuse(handoff.CodeInvalidParams, text, "").With("faults", lines)
}
