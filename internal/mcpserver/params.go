package mcpserver

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"handclasp/internal/handoff"
)

// kind is the JSON type that a parameter accepts.
type kind uint8

const (
	kindString kind = iota
	kindInteger
	kindNumber
	kindBoolean
	kindObject
	kindArray
	// kindRaw is any JSON value, handed on byte for byte as it came.
	kindRaw
)

// schemaType is the JSON Schema word for each kind; a raw value has none.
var schemaType = [...]string{"string", "integer", "number", "boolean", "object", "array", ""}

// param is one parameter of a tool, or one field of an object parameter. The same literal is
// published as JSON Schema by [schema] and enforced by [decodeArgs], so neither can drift from
// the other. Params are made with the constructors below and are values: each refining method
// returns a changed copy, so that a tool reads like a table:
//
//	var sendMessageParams = []param{
//		str("thread_id", "The handoff to write to.").need(),
//		str("body", "Markdown, as you would say it to a colleague.").limit(1, 64<<10).need(),
//		raw("payload", "Machine-readable companion of body, any JSON.").limit(0, 64<<10),
//		list("artifacts", "Typed attachments.", artifactParam).items(0, 50),
//		boolean("expects_reply", "Holder only: mark the handoff as waiting for an answer."),
//	}
type param struct {
	name, desc string
	also       string // another name that is accepted
	kind       kind
	required   bool

	enum           []string       // strings: the accepted spellings
	pattern        *regexp.Regexp // strings: what they must match
	form           string         // the pattern in words, for errors
	published      string         // strings: a pattern for clients that the hub checks in another way
	format         string         // strings: the word of JSON Schema for what they hold
	ifEmpty        handoff.Code   // required ones: the refusal of what comes empty, if not invalid_params
	orNumber       bool           // strings: a number stands for its digits
	min, max       *int64         // integers and numbers, inclusive
	minLen, maxLen int            // strings, objects and raw values; 0 is no bound
	characters     bool           // minLen and maxLen count characters, not bytes
	item           *param         // arrays: what they hold
	minItems       int
	maxItems       int
	props          []param // objects: the declared fields
	extra          bool    // objects: other fields are kept, as raw values
	inWords        bool    // objects: the description publishes the optional fields
	switchOn       string  // objects: the field that cases look at
	cases          []variant
	def            any
	example        string
	secret         bool
}

// variant says which fields an object needs when its switch field has one value.
type variant struct {
	value string
	needs []string
}

// str is a text parameter.
func str(name, desc string) param { return param{name: name, desc: desc, kind: kindString} }

// enum is a text parameter with a closed set of values, which callers may write in any case.
func enum(name, desc string, values ...string) param {
	return param{name: name, desc: desc, kind: kindString, enum: values}
}

// integer is a whole number from lo to hi.
func integer(name, desc string, lo, hi int64) param {
	return param{name: name, desc: desc, kind: kindInteger, min: &lo, max: &hi}
}

// number is any finite number; between bounds it.
func number(name, desc string) param { return param{name: name, desc: desc, kind: kindNumber} }

// boolean is true or false.
func boolean(name, desc string) param { return param{name: name, desc: desc, kind: kindBoolean} }

// raw is any JSON value, null included, that reaches the tool byte for byte.
func raw(name, desc string) param { return param{name: name, desc: desc, kind: kindRaw} }

// object is an object with exactly these fields, unless open allows more.
func object(name, desc string, props ...param) param {
	return param{name: name, desc: desc, kind: kindObject, props: props}
}

// list is an array of item.
func list(name, desc string, item param) param {
	return param{name: name, desc: desc, kind: kindArray, item: &item}
}

// alias accepts the parameter under another name too, which is not published.
func (p param) alias(name string) param { p.also = name; return p }

// need makes the parameter required.
func (p param) need() param { p.required = true; return p }

// limit bounds the size in bytes: of the text, or of the JSON of an object or a raw value.
// A hi of 0 is no upper bound.
func (p param) limit(lo, hi int) param { p.minLen, p.maxLen = lo, hi; return p }

// chars bounds the length of a text in characters (Unicode code points, as JSON Schema counts).
func (p param) chars(lo, hi int) param { p.minLen, p.maxLen, p.characters = lo, hi, true; return p }

// match demands that a text matches pattern, which must mean the same in RE2 and ECMA-262; form
// says it in words, for example "name@team".
func (p param) match(pattern, form string) param {
	p.pattern, p.form = regexp.MustCompile(pattern), form
	return p
}

// publish shows clients a pattern and a format that the hub checks in another way: Go's engine has no
// look-ahead.
func (p param) publish(pattern, format string) param {
	p.published, p.format = pattern, format
	return p
}

// emptyIs refuses what comes empty with another code.
func (p param) emptyIs(code handoff.Code) param { p.ifEmpty = code; return p }

// numeric lets a number stand for its digits where a text is due, as for the cursor 0.
func (p param) numeric() param { p.orNumber = true; return p }

// between bounds a number.
func (p param) between(lo, hi int64) param { p.min, p.max = &lo, &hi; return p }

// atLeast gives a number a lower bound only.
func (p param) atLeast(lo int64) param { p.min, p.max = &lo, nil; return p }

// items bounds the length of a list. With a lo above 0 an empty optional list counts as absent.
// A hi of 0 is no upper bound.
func (p param) items(lo, hi int) param { p.minItems, p.maxItems = lo, hi; return p }

// open keeps fields that are not declared, each as a raw value under its own name.
func (p param) open() param { p.extra = true; return p }

// words keeps the optional fields of an open object, and its conditions, out of the published
// schema, where a description names them; they are enforced all the same. It is for the second
// use of a long object that another tool spells out.
func (p param) words() param { p.inWords = true; return p }

// when makes fields required where the enum field has value. All calls name the same field.
func (p param) when(field, value string, needs ...string) param {
	p.switchOn = field
	p.cases = append(slices.Clip(p.cases), variant{value, needs})
	return p
}

// fallback publishes the value that an absent parameter means; the tool applies it.
func (p param) fallback(v any) param { p.def = v; return p }

// eg is one valid JSON value, shown in errors only.
func (p param) eg(example string) param { p.example = example; return p }

// hide keeps the value out of every error: for secrets, tokens and contact details.
func (p param) hide() param { p.secret = true; return p }

// maxParams is how many fields one object may declare: the decoder keeps them in one word.
const maxParams = 64

// schema publishes params as the input schema of a tool: compact JSON Schema 2020-12, properties
// in the order of declaration, nothing else allowed. It accepts less than [decodeArgs], which
// also takes the odd shapes that clients send, and never anything that decodeArgs refuses but
// for two rules that JSON Schema cannot say, limits in bytes and the checks on text itself, and
// what [param.words] leaves to a description.
// There is no condition at the top level, because model providers refuse such schemas.
//
// It panics on a table that contradicts itself, which then shows when the server starts.
func schema(params []param) json.RawMessage {
	root := param{kind: kindObject, props: params}
	root.mustBeSound("arguments")
	b := append(make([]byte, 0, 1024), `{"type":"object","properties":`...)
	return append(appendFields(b, &root), '}')
}

// appendSchema writes the schema of one parameter.
func appendSchema(b []byte, p *param) []byte {
	b = append(b, '{')
	if t := schemaType[p.kind]; t != "" {
		b = append(append(append(b, `"type":"`...), t...), `",`...)
	}
	if p.desc != "" {
		b = append(appendJSONString(append(b, `"description":`...), p.desc), ',')
	}
	if len(p.enum) > 0 {
		b = append(appendStrings(append(b, `"enum":`...), p.enum), ',')
	}
	if p.pattern != nil {
		b = append(appendJSONString(append(b, `"pattern":`...), p.pattern.String()), ',')
	}
	if p.published != "" {
		b = append(appendJSONString(append(b, `"pattern":`...), p.published), ',')
	}
	if p.format != "" {
		b = append(appendJSONString(append(b, `"format":`...), p.format), ',')
	}
	if p.kind == kindString {
		b = appendBound(b, "minLength", p.minLen)
		b = appendBound(b, "maxLength", p.maxLen)
	}
	if p.min != nil {
		b = append(strconv.AppendInt(append(b, `"minimum":`...), *p.min, 10), ',')
	}
	if p.max != nil {
		b = append(strconv.AppendInt(append(b, `"maximum":`...), *p.max, 10), ',')
	}
	if p.item != nil {
		b = append(appendSchema(append(b, `"items":`...), p.item), ',')
		b = appendBound(b, "minItems", p.minItems)
		b = appendBound(b, "maxItems", p.maxItems)
	}
	if p.kind == kindObject && (len(p.props) > 0 || !p.extra) {
		b = append(appendFields(append(b, `"properties":`...), p), ',')
	}
	if p.def != nil {
		v, err := json.Marshal(p.def)
		if err != nil {
			panic(fmt.Sprintf("mcpserver: default of %s: %v", p.name, err))
		}
		b = append(append(append(b, `"default":`...), v...), ',')
	}
	return append(trimComma(b), '}')
}

// appendFields writes the value of "properties" and the keywords that go with it.
func appendFields(b []byte, p *param) []byte {
	b = append(b, '{')
	var required []string
	for i := range p.props {
		f := &p.props[i]
		if p.inWords && !f.required {
			continue
		}
		b = append(appendJSONString(b, f.name), ':')
		b = append(appendSchema(b, f), ',')
		if f.required {
			required = append(required, f.name)
		}
	}
	b = append(trimComma(b), '}')
	if len(required) > 0 {
		b = appendStrings(append(b, `,"required":`...), required)
	}
	if !p.extra {
		b = append(b, `,"additionalProperties":false`...)
	}
	sep := `,"allOf":[`
	for _, c := range p.cases {
		if len(c.needs) == 0 || p.inWords {
			continue
		}
		b = appendJSONString(append(b, sep+`{"if":{"properties":{`...), p.switchOn)
		b = append(appendJSONString(append(b, `:{"const":`...), c.value), `}}},"then":{"required":`...)
		b = append(appendStrings(b, c.needs), "}}"...)
		sep = ","
	}
	if sep == "," {
		b = append(b, ']')
	}
	return b
}

func appendBound(b []byte, word string, n int) []byte {
	if n == 0 {
		return b
	}
	return append(strconv.AppendInt(append(append(append(b, '"'), word...), `":`...), int64(n), 10), ',')
}

func appendStrings(b []byte, ss []string) []byte {
	b = append(b, '[')
	for _, s := range ss {
		b = append(appendJSONString(b, s), ',')
	}
	return append(trimComma(b), ']')
}

func trimComma(b []byte) []byte {
	if b[len(b)-1] == ',' {
		return b[:len(b)-1]
	}
	return b
}

// mustBeSound panics where p contradicts itself.
func (p *param) mustBeSound(path string) {
	fail := func(why string) { panic("mcpserver: parameter " + path + ": " + why) }
	if len(p.props) > maxParams {
		fail(fmt.Sprintf("more than %d fields", maxParams))
	}
	if p.kind == kindArray && p.item == nil {
		fail("a list without an item")
	}
	if p.required && p.def != nil {
		fail("required, and yet with a default")
	}
	if p.item != nil {
		p.item.mustBeSound(path + "[]")
	}
	if p.inWords && !p.extra {
		fail("a closed object must publish its fields")
	}
	for i := range p.props {
		f := &p.props[i]
		if f.name == "" {
			fail("a field without a name")
		}
		if slices.ContainsFunc(p.props[:i], func(o param) bool { return strings.EqualFold(o.name, f.name) }) {
			fail(f.name + " is declared twice")
		}
		f.mustBeSound(path + "." + f.name)
	}
	if p.switchOn == "" {
		return
	}
	at := p.find([]byte(p.switchOn))
	if at < 0 || len(p.props[at].enum) == 0 || !p.props[at].required {
		fail("conditions need a required enum field " + p.switchOn)
	}
	for _, c := range p.cases {
		if !slices.Contains(p.props[at].enum, c.value) {
			fail(p.switchOn + " never is " + c.value)
		}
		for _, n := range c.needs {
			if p.find([]byte(n)) < 0 {
				fail(c.value + " needs " + n + ", which is not declared")
			}
		}
	}
}

// find gives the index of the declared field, or -1.
func (p *param) find(name []byte) int {
	for i := range p.props {
		if f := &p.props[i]; f.name == string(name) || f.also != "" && f.also == string(name) {
			return i
		}
	}
	return -1
}

// accepts says in words what p takes, for errors.
func (p *param) accepts() string {
	s := p.shape()
	if p.example != "" {
		s += ", for example " + p.example
	}
	return s
}

func (p *param) shape() string {
	switch p.kind {
	case kindString:
		switch {
		case len(p.enum) > 0:
			return "one of " + strings.Join(p.enum, ", ")
		case p.form != "":
			return "a string of the form " + p.form
		}
		return "a string"
	case kindInteger:
		return strings.TrimSpace("an integer " + p.bounds())
	case kindNumber:
		return strings.TrimSpace("a number " + p.bounds())
	case kindBoolean:
		return "true or false"
	case kindArray:
		return "a list, each item " + p.item.accepts()
	case kindObject:
		if len(p.props) == 0 || p.example != "" {
			return "an object"
		}
		return "an object with " + strings.Join(names(p.props), ", ")
	}
	return "any JSON value"
}

// bounds is the range of a number: "1..200", "of at least 1" or nothing.
func (p *param) bounds() string {
	switch {
	case p.min != nil && p.max != nil:
		return fmt.Sprintf("%d..%d", *p.min, *p.max)
	case p.min != nil:
		return fmt.Sprintf("of at least %d", *p.min)
	case p.max != nil:
		return fmt.Sprintf("of at most %d", *p.max)
	}
	return ""
}

func names(params []param) []string {
	out := make([]string, len(params))
	for i := range params {
		out[i] = params[i].name
	}
	return out
}

func requiredNames(params []param) []string {
	var out []string
	for i := range params {
		if params[i].required {
			out = append(out, params[i].name)
		}
	}
	return out
}
