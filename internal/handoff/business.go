package handoff

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Business is a company that receives customers' handoffs through one person.
type Business struct {
	// Slug is its key: lower-case letters, digits and hyphens, at most 63 characters.
	Slug string
	// Name is how people call it.
	Name string
	// Timezone is an IANA name; its days are those of the spend cap.
	Timezone string
	// Preferred is the one channel that is used; empty while nothing is configured.
	Preferred Channel
	Phone     string // E.164
	Email     string
	FormURL   string
	// Region is the default of national numbers: two letters, ISO 3166.
	Region string
	// DailyMessages caps what is sent in a day over all channels; 0 = no cap.
	DailyMessages int
	// DailyCost caps what text messages of a day may cost, in millionths of the operator's currency;
	// 0 = no cap.
	DailyCost int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Person is the actor that stands for the person of a business.
func Person(slug string) Actor {
	return Actor{Kind: KindPerson, ID: personPrefix + slug, Handle: personPrefix + slug}
}

const personPrefix = "person:"

// PersonSlug is the business of a person's id; ok is false for other actors.
func PersonSlug(actorID string) (slug string, ok bool) {
	return strings.CutPrefix(actorID, personPrefix)
}

// Bearer is an actor that holds a continuation without a credential of its own.
func Bearer(redemption string) Actor {
	id := bearerPrefix + redemption
	return Actor{Kind: KindBearer, ID: id, Handle: id}
}

const bearerPrefix = "anonymous:"

// IsBearer reports whether an actor's id is that of a bearer.
func IsBearer(actorID string) bool { return strings.HasPrefix(actorID, bearerPrefix) }

// IsOutside reports whether an actor's id is that of a person or a bearer, who are no agents.
func IsOutside(actorID string) bool {
	return strings.HasPrefix(actorID, personPrefix) || IsBearer(actorID)
}

// Why nothing is sent to a business; see contracts: desk, "From delivery to answer".
const (
	ReasonForm          = "form_routing_configured"
	ReasonNoRecipient   = "no_recipient_configured"
	ReasonShape         = "routing_shape_mismatch"
	ReasonInvalid       = "invalid_recipient"
	ReasonOptedOut      = "recipient_opted_out"
	ReasonConsent       = "sms_consent_missing"
	ReasonNotConfigured = "provider_not_configured"
	ReasonSpendCap      = "spend_cap_reached"
)

// Route is the channel over which the person is reached with its address, or the reason why there is
// none. The channel of a refusal is what would have been used; empty where nothing is configured.
func (b *Business) Route() (channel Channel, address, reason string) {
	switch {
	case b.Preferred == ChannelForm:
		return ChannelForm, "", ReasonForm
	case b.Preferred == "" || b.Phone == "" && b.Email == "":
		return b.Preferred, "", ReasonNoRecipient
	case b.address() == "":
		return b.Preferred, "", ReasonShape
	}
	return b.Preferred, b.address(), ""
}

func (b *Business) address() string {
	if b.Preferred == ChannelSMS {
		return b.Phone
	}
	return b.Email
}

// Channels are those by which the business can be reached, the preferred one alone.
func (b *Business) Channels() []string {
	channel, _, reason := b.Route()
	if reason != "" && channel != ChannelForm {
		return []string{}
	}
	return []string{string(channel)}
}

var slugForm = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// CheckSlug refuses what cannot be the key of a business.
func CheckSlug(slug string) error {
	if !slugForm.MatchString(slug) {
		return Invalid("slug", Quote(slug)+" came; 1 to 63 lower-case letters, digits and hyphens are accepted, beginning with a letter or a digit")
	}
	return nil
}

// emailForm is the pattern that the published schema of initiate_handoff carries, without its two
// negative lookaheads: CheckEmail looks at what they forbid.
var emailForm = regexp.MustCompile(`^([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`)

// CheckEmail refuses what is not one plain e-mail address.
func CheckEmail(field, s string, maxBytes int) error {
	switch {
	case s == "":
		return Invalid(field, "no e-mail address came; one without a display name is accepted, such as ann@example.com")
	case over(len(s), maxBytes):
		return Invalid(field, fmt.Sprintf("%d bytes came; an e-mail address of at most %d is accepted", len(s), maxBytes))
	case strings.HasPrefix(s, ".") || strings.Contains(s, "..") || !emailForm.MatchString(s):
		return Invalid(field, Quote(s)+" came; an e-mail address without a display name is accepted, such as ann@example.com")
	}
	return nil
}

// CheckFormURL refuses what is not the address of a web form.
func CheckFormURL(field, s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || len(s) > 2048 || strings.ContainsAny(s, " \"<>\\") || !isPrintable(s) {
		return Invalid(field, Quote(s)+" came; an http or https address is accepted, such as https://shop.example.com/contact")
	}
	return nil
}

// CheckTimezone refuses what is no IANA time zone.
func CheckTimezone(s string) error {
	if s == "Local" {
		return Invalid("timezone", Quote(s)+" came; an IANA name is accepted, such as Europe/Berlin")
	}
	if _, err := time.LoadLocation(s); err != nil {
		return Invalid("timezone", Quote(s)+" came; an IANA name is accepted, such as Europe/Berlin")
	}
	return nil
}

// Routing is a lead_routing_json, in either of its two shapes, as one. Addresses stand as they came.
type Routing struct {
	Preferred Channel
	Phone     string
	Email     string
	FormURL   string
}

// routingShape is one of the two that a lead_routing_json may have.
type routingShape struct {
	preferred string
	addresses [3]string // phone, e-mail, form
	words     map[string]Channel
}

var routingShapes = [2]routingShape{
	{"preferred_channel", [3]string{"phone", "email", "form_url"}, map[string]Channel{
		"phone": ChannelSMS, "text": ChannelSMS, "email": ChannelEmail, "form": ChannelForm,
	}},
	{"preferred", [3]string{"sms_to", "email_to", ""}, map[string]Channel{"sms": ChannelSMS, "email": ChannelEmail}},
}

func (s *routingShape) fields() []string {
	return slices.DeleteFunc([]string{s.preferred, s.addresses[0], s.addresses[1], s.addresses[2]}, func(f string) bool { return f == "" })
}

// ParseRouting reads a lead_routing_json. Both shapes are accepted, and not mixed. The error names
// the field below field; several faults come joined.
func ParseRouting(field string, raw json.RawMessage) (Routing, error) {
	const want = `{"preferred_channel": "phone", "text", "email" or "form", "phone", "email", "form_url"} or {"preferred": "sms" or "email", "sms_to", "email_to"}`
	if jsonKind(raw) == kindString { // exports keep it as text
		var text string
		if json.Unmarshal(raw, &text) == nil {
			raw = json.RawMessage(text)
		}
	}
	o, err := parseObject(field, bytes.TrimSpace(raw), "an object of the shape "+want)
	if err != nil {
		return Routing{}, err
	}
	var used [2][]string
	for i := range routingShapes {
		for _, key := range routingShapes[i].fields() {
			if !o.absent(key) {
				used[i] = append(used[i], key)
			}
		}
	}
	if len(used[0]) > 0 && len(used[1]) > 0 {
		return Routing{}, Invalid(field, fmt.Sprintf("two shapes are mixed: %s of one and %s of the other came; the fields of one are accepted, either %s, or %s",
			strings.Join(used[0], ", "), strings.Join(used[1], ", "), strings.Join(routingShapes[0].fields(), ", "), strings.Join(routingShapes[1].fields(), ", ")))
	}
	shape, other := &routingShapes[0], &routingShapes[1]
	if len(used[1]) > 0 {
		shape, other = other, shape
	}
	for _, key := range other.fields() { // null, as exports have it for what is not set
		delete(o, key)
	}
	return o.routing(field, shape)
}

func (o jsonObject) routing(field string, shape *routingShape) (r Routing, err error) {
	faults := []error{o.only(field, shape.fields()...)}
	if !o.absent(shape.preferred) {
		word, err := o.text(field, shape.preferred, 64)
		channel, known := shape.words[strings.ToLower(word)]
		if err == nil && !known {
			err = Invalid(joinField(field, shape.preferred), Quote(word)+" came; accepted are "+strings.Join(sortedWords(shape.words), ", "))
		}
		r.Preferred = channel
		faults = append(faults, err)
	}
	for i, dest := range []*string{&r.Phone, &r.Email, &r.FormURL} {
		if shape.addresses[i] == "" || o.absent(shape.addresses[i]) {
			continue
		}
		*dest, err = o.text(field, shape.addresses[i], 2048)
		faults = append(faults, err)
	}
	switch {
	case o.absent(shape.preferred) && (r.Phone != "" || r.Email != "" || r.FormURL != ""):
		faults = append(faults, Invalid(joinField(field, shape.preferred), "nothing came, and addresses did; accepted are "+strings.Join(sortedWords(shape.words), ", ")))
	case r.Preferred == ChannelForm && o.absent(shape.addresses[2]):
		faults = append(faults, Invalid(joinField(field, shape.addresses[2]), "nothing came; the channel form needs the address of the form"))
	}
	return r, errors.Join(faults...)
}

func sortedWords(words map[string]Channel) []string {
	return slices.Sorted(maps.Keys(words))
}
