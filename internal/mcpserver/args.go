package mcpserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// decodeArgs checks the arguments of a call against params and returns them in the one shape
// that a tool's input struct expects: an object with the declared names only, absent fields left
// out, enums in their declared spelling, integers as integers. Clients send odd shapes (see
// testdata/quirks.json); where the meaning is certain they are put right, and where it is not
// the call is refused:
//
//   - a string that holds JSON stands for the object or list that is due, the arguments included
//   - null, "null", ["null"] and "" are absent where a field is optional, and so is [] where a
//     list needs an item
//   - enums match in any case; digits in a string are a number; 5.0 and 1e0 are integers; a
//     single value is a list of one
//   - raw values, and fields that an open object keeps, pass byte for byte, null included
//
// Every error is a *handoff.Error, invalid_params or content_too_large, about the first fault
// found; Details holds its "field", for example artifacts[1].title. The text never repeats raw
// or secret values.
func decodeArgs(params []param, args json.RawMessage) (json.RawMessage, error) {
	root := param{kind: kindObject, props: params}
	s := scanner{data: args}
	s.ws()
	came := ""
	switch s.peek() {
	case 0:
		came = "nothing"
	case '{':
	case 'n':
		came = "null"
	case '"':
		t, bad := s.text()
		if bad != fine {
			return nil, bad.fault().refusal()
		}
		inner := scanner{data: t.decode()}
		inner.ws()
		switch {
		case inner.peek() == 0:
			came = "an empty string"
		case string(bytes.TrimSpace(inner.data)) == "null":
			came = "null"
		case inner.peek() != '{':
			return nil, notAnObject(params, "a string that holds no JSON object")
		}
		if s.ws(); s.i < len(s.data) {
			return nil, badSyntax.fault().refusal()
		}
		s = inner
	default:
		return nil, notAnObject(params, s.jsonType())
	}
	if came != "" {
		if requiredNames(params) == nil {
			return json.RawMessage("{}"), nil
		}
		return nil, receivedNothing(params, came)
	}
	d := decoder{out: make([]byte, 0, len(s.data)+16)}
	f := d.object(&root, &s)
	if f == nil && d.members == 0 && requiredNames(params) != nil {
		return nil, receivedNothing(params, "{}")
	}
	if f == nil {
		f = d.missing(&root)
	}
	if f == nil {
		if s.ws(); s.i < len(s.data) {
			f = badSyntax.fault()
		}
	}
	if f != nil {
		return nil, f.refusal()
	}
	return d.out, nil
}

// decoder builds the normalised arguments.
type decoder struct {
	out []byte
	// What the object that was read last held: how many members, which declared fields came
	// with a value, which with none, and the value of its switch field.
	members     int
	seen, blank uint64
	switched    string
}

// object reads an object. The caller asks missing next, while d still describes that object.
func (d *decoder) object(p *param, s *scanner) *fault {
	if !s.take('{') {
		return badSyntax.fault()
	}
	d.out = append(d.out, '{')
	var members int
	var seen, blank uint64
	var switched string
	var kept keySet
	for first := true; ; first = false {
		s.ws()
		if first && s.take('}') {
			break
		}
		name, bad := s.text()
		if bad != fine {
			f := bad.fault()
			if !f.broken {
				f.what = "a field name " + f.what
			}
			return f
		}
		if s.ws(); !s.take(':') {
			return badSyntax.fault()
		}
		s.ws()
		members++
		key := name.decode()
		at := p.find(key)
		if at < 0 {
			if f := d.extra(p, s, name.lit, key, &kept); f != nil {
				return f
			}
		} else {
			field, bit := &p.props[at], uint64(1)<<at
			if (seen|blank)&bit != 0 {
				return twice(field.name)
			}
			start := len(d.out)
			d.name(field.name)
			value := len(d.out)
			present, f := d.value(field, s)
			if f != nil {
				return f.under(field.name)
			}
			if present {
				seen |= bit
				if field.name == p.switchOn {
					switched = string(d.out[value+1 : len(d.out)-1])
				}
			} else {
				d.out = d.out[:start]
				blank |= bit
			}
		}
		s.ws()
		if s.take('}') {
			break
		}
		if !s.take(',') {
			return badSyntax.fault()
		}
	}
	d.out = append(d.out, '}')
	d.members, d.seen, d.blank, d.switched = members, seen, blank, switched
	return nil
}

// name starts a member. Names that are declared need no escaping.
func (d *decoder) name(name string) {
	if d.out[len(d.out)-1] != '{' {
		d.out = append(d.out, ',')
	}
	d.out = append(append(append(d.out, '"'), name...), `":`...)
}

// extra reads a field that is not declared: an open object keeps it as it is.
func (d *decoder) extra(p *param, s *scanner, lit, key []byte, kept *keySet) *fault {
	name := string(key)
	for i := range p.props {
		// encoding/json matches names in any case, so a kept "URL" would replace the checked
		// "url" in the tool's struct.
		if !p.extra || strings.EqualFold(p.props[i].name, name) {
			return unknown(p, name)
		}
	}
	if !p.extra {
		return unknown(p, name)
	}
	if !kept.add(name) {
		return twice(segment(name))
	}
	if d.out[len(d.out)-1] != '{' {
		d.out = append(d.out, ',')
	}
	d.out = append(append(d.out, lit...), ':')
	start := s.i
	if bad := s.skip(maxDepth - rawDepth + 2); bad != fine {
		return bad.fault().under(segment(name))
	}
	d.out = append(d.out, s.data[start:s.i]...)
	return nil
}

// missing checks, after object, that the required fields came.
func (d *decoder) missing(p *param) *fault {
	var lacking []*param
	for i := range p.props {
		if p.props[i].required && d.seen&(1<<i) == 0 {
			lacking = append(lacking, &p.props[i])
		}
	}
	because := ""
	if len(lacking) == 0 && d.switched != "" {
		for _, c := range p.cases {
			if c.value != d.switched {
				continue
			}
			for _, n := range c.needs {
				if at := p.find([]byte(n)); d.seen&(1<<at) == 0 {
					lacking = append(lacking, &p.props[at])
					because = " with " + p.switchOn + " " + c.value
				}
			}
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	first, all := lacking[0], make([]string, len(lacking))
	for i, l := range lacking {
		all[i] = l.name
	}
	what := "is required" + because + " and did not come"
	if d.blank&(1<<p.find([]byte(first.name))) != 0 {
		what = "is required" + because + ", and came empty"
	}
	what += "; accepted: " + first.accepts()
	if len(all) > 1 {
		what += "; also missing: " + strings.Join(all[1:], ", ")
	}
	return (&fault{what: what}).with("missing", all).under(first.name)
}

// value reads one value for p and reports whether there is one; false means that the field
// counts as absent, and what was appended since must be taken back.
func (d *decoder) value(p *param, s *scanner) (bool, *fault) {
	if p.kind == kindRaw {
		start := s.i
		if bad := s.skip(maxDepth - rawDepth + 1); bad != fine {
			return false, bad.fault()
		}
		if size := s.i - start; p.maxLen > 0 && size > p.maxLen {
			return false, tooLarge(size, p.maxLen, "bytes")
		}
		d.out = append(d.out, s.data[start:s.i]...)
		return true, nil
	}
	if s.literal("null") || !p.required && s.absent() {
		return false, nil
	}
	switch p.kind {
	case kindString:
		return true, d.text(p, s)
	case kindInteger, kindNumber:
		return true, d.number(p, s)
	case kindBoolean:
		return true, d.boolean(p, s)
	}
	if s.peek() != '"' {
		return d.container(p, s)
	}
	// A string stands for the JSON that it holds.
	start := *s
	t, bad := s.text()
	if bad != fine {
		return false, bad.fault()
	}
	inner := scanner{data: bytes.TrimSpace(t.decode())}
	opens := inner.peek()
	holds := opens == '{' || opens == '[' && p.kind == kindArray
	if holds {
		probe := inner
		bad = probe.skip(1)
		holds = bad == fine && probe.i == len(probe.data)
	}
	switch {
	case holds:
		if !p.required && inner.absent() {
			return false, nil
		}
		return d.container(p, &inner)
	case bad != fine && bad != badSyntax:
		return false, bad.fault()
	case p.kind == kindArray && !p.item.container():
		return d.container(p, &start)
	}
	return false, wrongType(p, "a string that holds no JSON "+schemaType[p.kind])
}

// container reads an object or a list, or the single value that stands for a list of one.
func (d *decoder) container(p *param, s *scanner) (bool, *fault) {
	start, from := s.i, len(d.out)
	if p.kind == kindArray {
		n, f := d.list(p, s)
		if f == nil && n == 0 && p.minItems > 0 && !p.required {
			return false, nil
		}
		if f == nil {
			f = p.checkCount(n)
		}
		return true, f
	}
	if s.peek() != '{' {
		return false, wrongType(p, s.jsonType())
	}
	if f := d.object(p, s); f != nil {
		return false, f
	}
	if f := d.missing(p); f != nil {
		// What the switch field makes required is taken at its word: the path "null" is a path.
		again, ok := p.strict(d.switched)
		if !ok {
			return false, f
		}
		s.i, d.out = start, d.out[:from]
		if d.object(&again, s) != nil || d.missing(&again) != nil {
			return false, f
		}
	}
	if size := s.i - start; p.maxLen > 0 && size > p.maxLen {
		d.out = d.out[:from]
		return false, tooLarge(size, p.maxLen, "bytes")
	}
	return true, nil
}

// strict is p with the fields required that p needs when its switch field is value.
func (p *param) strict(value string) (param, bool) {
	for _, c := range p.cases {
		if c.value != value {
			continue
		}
		q := *p
		q.props = slices.Clone(p.props)
		for _, n := range c.needs {
			q.props[p.find([]byte(n))].required = true
		}
		return q, true
	}
	return param{}, false
}

// list reads a list and gives its length.
func (d *decoder) list(p *param, s *scanner) (int, *fault) {
	item := *p.item
	item.required = true // a list has no optional places
	d.out = append(d.out, '[')
	if !s.take('[') {
		if _, f := d.value(&item, s); f != nil {
			return 0, f
		}
		d.out = append(d.out, ']')
		return 1, nil
	}
	n := 0
	if s.ws(); !s.take(']') {
		for {
			if n > 0 {
				d.out = append(d.out, ',')
			}
			s.ws()
			present, f := d.value(&item, s)
			if f == nil && !present {
				f = wrongType(&item, "null")
			}
			if f != nil {
				return n, f.under("[" + strconv.Itoa(n) + "]")
			}
			n++
			s.ws()
			if s.take(']') {
				break
			}
			if !s.take(',') {
				return n, badSyntax.fault()
			}
		}
	}
	d.out = append(d.out, ']')
	return n, nil
}

func (p *param) checkCount(n int) *fault {
	switch {
	case p.minItems == p.maxItems && n != p.minItems && n > 0:
		return &fault{what: fmt.Sprintf("%d items came, exactly %d are accepted", n, p.minItems)}
	case n < p.minItems:
		return &fault{what: fmt.Sprintf("%d items came, at least %d must; accepted: %s", n, p.minItems, p.accepts())}
	case p.maxItems > 0 && n > p.maxItems:
		return tooLarge(n, p.maxItems, "items")
	}
	return nil
}

func (p *param) container() bool { return p.kind == kindObject || p.kind == kindArray }

// keySet holds the names of an object's undeclared fields.
type keySet struct {
	few  []string
	many map[string]struct{}
}

// add reports whether name is new.
func (k *keySet) add(name string) bool {
	if k.many == nil {
		if slices.Contains(k.few, name) {
			return false
		}
		if k.few = append(k.few, name); len(k.few) <= 16 {
			return true
		}
		k.many = make(map[string]struct{}, 64)
		for _, n := range k.few {
			k.many[n] = struct{}{}
		}
		return true
	}
	if _, dup := k.many[name]; dup {
		return false
	}
	k.many[name] = struct{}{}
	return true
}
