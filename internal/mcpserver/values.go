package mcpserver

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"handclasp/internal/handoff"
)

// text reads a string, and keeps its literal as it came unless it is an enum.
func (d *decoder) text(p *param, s *scanner) *fault {
	if s.peek() != '"' {
		if p.orNumber {
			if lit := s.numberAhead(); lit != nil {
				d.out = append(append(append(d.out, '"'), lit...), '"')
				return nil
			}
		}
		return wrongType(p, s.jsonType())
	}
	t, bad := s.text()
	if bad != fine {
		return bad.fault()
	}
	if len(p.enum) > 0 {
		word := string(bytes.TrimSpace(t.decode()))
		for _, v := range p.enum {
			if strings.EqualFold(v, word) {
				d.out = append(append(append(d.out, '"'), v...), '"')
				return nil
			}
		}
		return notInEnum(p, word)
	}
	size, unit := t.size, "bytes"
	if p.characters {
		size, unit = utf8.RuneCount(t.decode()), "characters"
	}
	switch {
	case size < p.minLen && size == 0:
		return &fault{what: "came empty; accepted: " + p.accepts() + " that is not empty", code: p.ifEmpty}
	case size < p.minLen:
		return &fault{what: fmt.Sprintf("%d %s came, at least %d are accepted", size, unit, p.minLen)}
	case p.maxLen > 0 && size > p.maxLen:
		return tooLarge(size, p.maxLen, unit)
	}
	if p.pattern != nil {
		if value := t.decode(); !p.pattern.Match(value) {
			return &fault{what: p.quote(string(value)) + " came; accepted: " + p.accepts()}
		}
	}
	d.out = append(d.out, t.lit...)
	return nil
}

// number reads an integer or a number, also from a string.
func (d *decoder) number(p *param, s *scanner) *fault {
	lit := s.numberAhead()
	if lit == nil && s.peek() == '"' {
		t, bad := s.text()
		if bad != fine {
			return bad.fault()
		}
		word := bytes.TrimSpace(t.decode())
		inner := scanner{data: word}
		if lit = inner.number(); lit == nil || inner.i < len(word) {
			return wrongType(p, "the string "+p.quote(string(t.decode())))
		}
	}
	if lit == nil {
		return wrongType(p, s.jsonType())
	}
	if p.kind == kindNumber {
		v, err := strconv.ParseFloat(string(lit), 64)
		if err != nil || p.min != nil && v < float64(*p.min) || p.max != nil && v > float64(*p.max) {
			return p.outOfRange(lit)
		}
		d.out = append(d.out, lit...)
		return nil
	}
	n, verdict := wholeNumber(lit)
	switch {
	case verdict == isFraction:
		return &fault{what: p.quoteNumber(lit) + " came, which is not whole; accepted: " + p.accepts()}
	case verdict == isHuge, p.min != nil && n < *p.min, p.max != nil && n > *p.max:
		return p.outOfRange(lit)
	}
	d.out = strconv.AppendInt(d.out, n, 10)
	return nil
}

func (p *param) outOfRange(lit []byte) *fault {
	q := *p
	if q.min == nil && q.max == nil && q.kind == kindInteger {
		lo, hi := int64(math.MinInt64), int64(math.MaxInt64)
		q.min, q.max = &lo, &hi
	}
	return &fault{what: p.quoteNumber(lit) + " is out of range; accepted: " + q.accepts()}
}

// boolean reads true or false, also from a string in any case.
func (d *decoder) boolean(p *param, s *scanner) *fault {
	word := ""
	switch {
	case s.literal("true"):
		word = "true"
	case s.literal("false"):
		word = "false"
	case s.peek() == '"':
		t, bad := s.text()
		if bad != fine {
			return bad.fault()
		}
		word = strings.ToLower(string(bytes.TrimSpace(t.decode())))
		if word != "true" && word != "false" {
			return wrongType(p, "the string "+p.quote(string(t.decode())))
		}
	default:
		return wrongType(p, s.jsonType())
	}
	d.out = append(d.out, word...)
	return nil
}

// absent steps over a value that stands for nothing, if there is one: null, "null", "", or a
// list that holds only null or "null".
func (s *scanner) absent() bool {
	if s.literal("null") || s.literal(`"null"`) || s.literal(`""`) {
		return true
	}
	ahead := *s
	if !ahead.take('[') {
		return false
	}
	if ahead.ws(); !ahead.literal("null") && !ahead.literal(`"null"`) {
		return false
	}
	if ahead.ws(); !ahead.take(']') {
		return false
	}
	*s = ahead
	return true
}

// numberAhead steps over a number, or gives nil and stays.
func (s *scanner) numberAhead() []byte {
	ahead := *s
	lit := ahead.number()
	if lit != nil {
		*s = ahead
	}
	return lit
}

// jsonType names the type of the value ahead.
func (s *scanner) jsonType() string {
	switch c := s.peek(); {
	case c == '{':
		return "an object"
	case c == '[':
		return "a list"
	case c == '"':
		return "a string"
	case c == 't', c == 'f':
		return "a boolean"
	case c == 'n':
		return "null"
	case c == '-', c >= '0' && c <= '9':
		return "a number"
	}
	return "no valid JSON"
}

// quote repeats a value in an error, unless it is secret.
func (p *param) quote(v string) string {
	if p.secret {
		return "a value (not repeated here)"
	}
	return handoff.Quote(v)
}

func (p *param) quoteNumber(lit []byte) string {
	if p.secret || len(lit) > 40 {
		return "a number (not repeated here)"
	}
	return string(lit)
}
