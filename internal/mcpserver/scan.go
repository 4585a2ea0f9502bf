package mcpserver

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxDepth is how deep a value of any kind may nest; it bounds the stack of one decode.
	maxDepth = 1000
	// rawDepth is how deep a caller's own JSON may: what it sends comes back some levels deeper
	// in a result, and clients give up on deep JSON, the strictest of the known ones at 200.
	rawDepth = 128
)

// scanner walks over JSON (RFC 8259) once, without building values. It is strict where the
// standard library is lenient: text must be valid Unicode without NUL (contracts: errors).
type scanner struct {
	data []byte
	i    int
}

// span is a JSON string as it stands in the input.
type span struct {
	lit     []byte // with its quotes
	escaped bool   // it holds at least one backslash
	size    int    // bytes of the text that it stands for
}

// trouble is what is wrong with a piece of JSON.
type trouble uint8

const (
	fine trouble = iota
	badSyntax
	badNUL
	badSurrogate
	badUTF8
	tooDeep
)

// sentence words a trouble for the caller.
func (t trouble) sentence() string {
	switch t {
	case badNUL:
		return `holds a NUL character (\u0000); text must be Unicode without NUL`
	case badSurrogate:
		return `holds half of a surrogate pair (\ud800 to \udfff); text must be valid Unicode`
	case badUTF8:
		return "is not valid UTF-8"
	case tooDeep:
		return "nests deeper than " + strconv.Itoa(rawDepth) + " levels"
	}
	return "is not valid JSON"
}

func (s *scanner) ws() {
	for s.i < len(s.data) {
		switch s.data[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// peek gives the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.i < len(s.data) {
		return s.data[s.i]
	}
	return 0
}

// take steps over c and says whether it was there.
func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.i++
	return true
}

// literal steps over word and says whether it was there.
func (s *scanner) literal(word string) bool {
	if len(s.data)-s.i < len(word) || string(s.data[s.i:s.i+len(word)]) != word {
		return false
	}
	s.i += len(word)
	return true
}

// text steps over a string.
func (s *scanner) text() (span, trouble) {
	start := s.i
	if !s.take('"') {
		return span{}, badSyntax
	}
	t := span{}
	for s.i < len(s.data) {
		switch c := s.data[s.i]; {
		case c == '"':
			s.i++
			t.lit = s.data[start:s.i]
			return t, fine
		case c == '\\':
			t.escaped = true
			n, bad := s.escape()
			if bad != fine {
				return t, bad
			}
			t.size += n
		case c < ' ':
			return t, badSyntax
		case c < utf8.RuneSelf:
			s.i++
			t.size++
		default:
			r, w := utf8.DecodeRune(s.data[s.i:])
			if r == utf8.RuneError && w == 1 {
				return t, badUTF8
			}
			s.i += w
			t.size += w
		}
	}
	return t, badSyntax
}

// escape steps over one escape sequence, a surrogate pair being one, and gives the bytes that
// it stands for.
func (s *scanner) escape() (int, trouble) {
	if s.i+1 >= len(s.data) {
		return 0, badSyntax
	}
	switch s.data[s.i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return 1, fine
	case 'u':
	default:
		return 0, badSyntax
	}
	r := hex4(s.data[s.i:])
	switch {
	case r < 0:
		return 0, badSyntax
	case r == 0:
		return 0, badNUL
	case !utf16.IsSurrogate(r):
		s.i += 6
		return utf8.RuneLen(r), fine
	}
	low := hex4(s.data[s.i+6:])
	if low < 0 || utf16.DecodeRune(r, low) == utf8.RuneError {
		return 0, badSurrogate
	}
	s.i += 12
	return 4, fine
}

// hex4 reads \uXXXX at the start of b, or gives -1.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	var r rune
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// decode gives the text of t, which [scanner.text] has checked. It copies only where it must.
func (t span) decode() []byte {
	in := t.lit[1 : len(t.lit)-1]
	if !t.escaped {
		return in
	}
	out := make([]byte, 0, t.size)
	for i := 0; i < len(in); {
		if in[i] != '\\' {
			next := bytes.IndexByte(in[i:], '\\')
			if next < 0 {
				return append(out, in[i:]...)
			}
			out = append(out, in[i:i+next]...)
			i += next
			continue
		}
		switch c := in[i+1]; c {
		case 'u':
			r := hex4(in[i:])
			if utf16.IsSurrogate(r) {
				r = utf16.DecodeRune(r, hex4(in[i+6:]))
				i += 6
			}
			out = utf8.AppendRune(out, r)
			i += 6
			continue
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		default:
			out = append(out, c)
		}
		i += 2
	}
	return out
}

// number steps over a number and gives its literal; nil is bad syntax.
func (s *scanner) number() []byte {
	start := s.i
	s.take('-')
	switch {
	case s.take('0'):
	case !s.digits():
		return nil
	}
	if s.take('.') && !s.digits() {
		return nil
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.i++
		if c := s.peek(); c == '+' || c == '-' {
			s.i++
		}
		if !s.digits() {
			return nil
		}
	}
	return s.data[start:s.i]
}

func (s *scanner) digits() bool {
	start := s.i
	for c := s.peek(); c >= '0' && c <= '9'; c = s.peek() {
		s.i++
	}
	return s.i > start
}

// skip steps over any value and checks all of it.
func (s *scanner) skip(depth int) trouble {
	if depth > maxDepth {
		return tooDeep
	}
	switch c := s.peek(); c {
	case '"':
		_, bad := s.text()
		return bad
	case '{', '[':
		s.i++
		return s.skipItems(c == '{', depth)
	case 't':
		return badUnless(s.literal("true"))
	case 'f':
		return badUnless(s.literal("false"))
	case 'n':
		return badUnless(s.literal("null"))
	}
	return badUnless(s.number() != nil)
}

// skipItems steps over the rest of an object or an array.
func (s *scanner) skipItems(isObject bool, depth int) trouble {
	end := byte(']')
	if isObject {
		end = '}'
	}
	if s.ws(); s.take(end) {
		return fine
	}
	for {
		s.ws()
		if isObject {
			if _, bad := s.text(); bad != fine {
				return bad
			}
			if s.ws(); !s.take(':') {
				return badSyntax
			}
			s.ws()
		}
		if bad := s.skip(depth + 1); bad != fine {
			return bad
		}
		s.ws()
		if s.take(end) {
			return fine
		}
		if !s.take(',') {
			return badSyntax
		}
	}
}

func badUnless(ok bool) trouble {
	if ok {
		return fine
	}
	return badSyntax
}

// whole is the verdict on a number literal as an integer.
type whole uint8

const (
	isWhole whole = iota
	isFraction
	isHuge // beyond 64 bits
)

// wholeNumber reads a number literal as an integer without going through a float, so 5.0 is 5,
// 1e2 is 100, and 12345678901234567890 is huge and not another number.
func wholeNumber(lit []byte) (int64, whole) {
	if len(lit) <= 18 && !bytes.ContainsAny(lit, ".eE") {
		n, _ := strconv.ParseInt(string(lit), 10, 64)
		return n, isWhole
	}
	mantissa, exponent := lit, 0
	if at := bytes.IndexAny(lit, "eE"); at >= 0 {
		mantissa = lit[:at]
		var err error
		exponent, err = strconv.Atoi(string(lit[at+1:]))
		if err != nil || exponent > math.MaxInt32 || exponent < math.MinInt32 {
			exponent = math.MaxInt32
			if lit[at+1] == '-' {
				exponent = math.MinInt32
			}
		}
	}
	negative := mantissa[0] == '-'
	mantissa = bytes.TrimPrefix(mantissa, []byte("-"))
	integral, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := append(append(make([]byte, 0, len(mantissa)), integral...), fraction...)
	point := len(integral) + exponent // how many of digits stand before the point
	trimmed := bytes.TrimLeft(digits, "0")
	point -= len(digits) - len(trimmed)
	digits = bytes.TrimRight(trimmed, "0")
	switch {
	case len(digits) == 0:
		return 0, isWhole
	case point < len(digits):
		return 0, isFraction
	case point > 19:
		return 0, isHuge
	}
	for len(digits) < point {
		digits = append(digits, '0')
	}
	if negative {
		digits = append([]byte("-"), digits...)
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0, isHuge
	}
	return n, isWhole
}

// appendJSONString appends s as a JSON string. Unlike encoding/json it leaves <, > and & alone.
// Bytes that are not UTF-8 become U+FFFD, so that the output is always valid.
func appendJSONString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, w := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && w == 1 {
				b = append(append(b, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += w
			continue
		}
		b = append(b, s[start:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
		i++
		start = i
	}
	return append(append(b, s[start:]...), '"')
}
