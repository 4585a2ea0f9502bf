package handoff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

func isPrintable(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// over reports whether got exceeds limit. A limit of zero is no limit, so that stored values
// can be read back with a zero [Limits] after the operator has lowered the bounds.
func over(got, limit int) bool { return limit > 0 && got > limit }

const (
	faultNUL       = "holds a NUL character; remove it"
	faultUTF8      = "is not valid UTF-8"
	faultSurrogate = `holds a lone surrogate (half of a \ud8xx\udcxx pair); send whole characters`
)

// CheckText refuses text that no door may store: above maxBytes bytes of UTF-8 (0 = no
// limit) it is content_too_large; invalid UTF-8 and NUL are invalid_params naming the field
// (contracts: errors, "Limits"). Empty text passes.
func CheckText(field, s string, maxBytes int) error {
	switch {
	case over(len(s), maxBytes):
		return TooLarge(field, len(s), maxBytes, "bytes")
	case !utf8.ValidString(s):
		return Invalid(field, faultUTF8)
	case strings.ContainsRune(s, 0):
		return Invalid(field, faultNUL)
	}
	return nil
}

// previewChars is the length of an inbox preview in characters (contracts: teammates,
// "summary").
const previewChars = 240

// Preview is the beginning of a summary for an inbox line: at most 240 characters (runes),
// ending between two grapheme clusters. Only a first cluster that is itself longer than that
// makes it longer, because half a character is not text.
func Preview(s string) string {
	if len(s) <= previewChars {
		return s
	}
	end, runes, state := 0, 0, -1
	for rest := s; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		n := utf8.RuneCountInString(cluster)
		if runes+n > previewChars {
			break
		}
		end += len(cluster)
		runes += n
	}
	if end == 0 {
		return "…" // one cluster of hundreds of marks: no beginning of it is a text
	}
	return s[:end]
}

// Folded is text to look for text by, in any case and in any of its Unicode forms.
func Folded(s string) string { return cases.Fold().String(norm.NFKC.String(s)) }

// decoderDepth is how deep encoding/json reads; deeper JSON could be stored and never read.
const decoderDepth = 10_000

// CheckRawJSON refuses JSON that no door may store. Above maxBytes bytes as sent, or nested
// deeper than maxDepth containers (a bare string has depth 0, {} has 1), it is
// content_too_large; a limit of 0 is none. Malformed JSON, and NUL, a lone surrogate or
// invalid UTF-8 inside any string or key, are invalid_params.
//
// The error names field and nothing from inside the value, because payloads are never
// echoed. With an empty field, raw is the whole argument object of a call and the error
// names the argument at fault.
func CheckRawJSON(field string, raw json.RawMessage, maxBytes, maxDepth int) error {
	seen := scanJSON(raw)
	if field == "" {
		field = seen.argument
	}
	if field == "" {
		field = "arguments"
	}
	if maxDepth <= 0 || maxDepth > decoderDepth {
		maxDepth = decoderDepth
	}
	switch {
	case over(len(raw), maxBytes):
		return TooLarge(field, len(raw), maxBytes, "bytes")
	case seen.depth > maxDepth:
		return TooLarge(field, seen.depth, maxDepth, "levels of nesting")
	case !json.Valid(raw):
		return Invalid(field, "is not valid JSON")
	case seen.fault != "":
		return Invalid(field, seen.fault)
	}
	return nil
}

type jsonScan struct {
	depth    int    // of containers
	fault    string // of the first bad string, if there is one
	argument string // the key of the outermost object below which fault stands
}

// scanJSON looks at what encoding/json repairs silently (it turns a lone surrogate into
// U+FFFD). It stands any input; on malformed JSON its findings mean nothing.
func scanJSON(raw []byte) jsonScan {
	var seen jsonScan
	var key []byte
	level, inObject, atKey := 0, false, false
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '{', '[':
			if level == 0 {
				inObject = raw[i] == '{'
				atKey = inObject
			}
			level++
			seen.depth = max(seen.depth, level)
		case '}', ']':
			level--
		case ',':
			atKey = inObject && level == 1
		case ':':
			atKey = false
		case '"':
			end := stringEnd(raw, i)
			literal := raw[i:end]
			i = end - 1
			if fault := stringFault(literal); fault != "" && seen.fault == "" {
				seen.fault = fault
				// A bad key cannot be named; then the object as a whole is.
				if !atKey && key != nil {
					seen.argument = argumentName(key)
				}
			}
			if atKey {
				key = literal
			}
		}
	}
	return seen
}

func argumentName(literal []byte) string {
	var name string
	if json.Unmarshal(literal, &name) != nil {
		return ""
	}
	return joinField("", name)
}

// stringEnd is the index behind the string literal that begins at raw[start].
func stringEnd(raw []byte, start int) int {
	for i := start + 1; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(raw)
}

// stringFault says what is wrong with a JSON string literal, or nothing.
func stringFault(literal []byte) string {
	if !utf8.Valid(literal) {
		return faultUTF8
	}
	for i := bytes.IndexByte(literal, '\\'); i >= 0 && i+1 < len(literal); {
		code, ok := unicodeEscape(literal[i:])
		switch {
		case !ok:
			i += 2
		case code == 0:
			return faultNUL
		case code >= 0xD800 && code <= 0xDBFF:
			low, paired := unicodeEscape(literal[i+6:])
			if !paired || low < 0xDC00 || low > 0xDFFF {
				return faultSurrogate
			}
			i += 12
		case code >= 0xDC00 && code <= 0xDFFF:
			return faultSurrogate
		default:
			i += 6
		}
		next := bytes.IndexByte(literal[i:], '\\')
		if next < 0 {
			break
		}
		i += next
	}
	return ""
}

// unicodeEscape reads a \uXXXX at the beginning of b.
func unicodeEscape(b []byte) (uint64, bool) {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return 0, false
	}
	code, err := strconv.ParseUint(string(b[2:6]), 16, 32)
	return code, err == nil
}

// joinField names a field inside another one. Keys are the caller's text, so an odd or
// endless one is quoted and cut.
func joinField(field, key string) string {
	if len(key) > quoteGraphemes || key == "" || !isPrintable(key) || strings.ContainsAny(key, ` ."[]`) {
		return field + "[" + Quote(key) + "]"
	}
	if field == "" {
		return key
	}
	return field + "." + key
}

// itemField names an element of a list; i counts from 0.
func itemField(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// jsonObject is a JSON object whose values stand as they came.
type jsonObject map[string]json.RawMessage

// parseObject reads an object by its exact keys: unlike a decoded struct it takes neither
// "Path" for "path" nor the second of two equal keys, which other readers resolve otherwise.
// want completes the sentence "… is accepted".
func parseObject(field string, raw json.RawMessage, want string) (jsonObject, error) {
	if jsonKind(raw) != kindObject {
		return nil, Invalid(field, jsonKind(raw)+" came, "+want+" is accepted")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, Invalid(field, "is not valid JSON")
	}
	o := jsonObject{}
	for dec.More() {
		token, err := dec.Token()
		key, ok := token.(string)
		if err != nil || !ok {
			return nil, Invalid(field, "is not valid JSON")
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, Invalid(field, "is not valid JSON")
		}
		if _, twice := o[key]; twice {
			return nil, Invalid(joinField(field, key), "is given twice")
		}
		o[key] = value
	}
	return o, nil
}

// only refuses keys that are not among accepted, naming the first and its near match.
func (o jsonObject) only(field string, accepted ...string) error {
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(accepted, key) {
			return Invalid(joinField(field, key), "is not a field here; accepted are "+
				strings.Join(accepted, ", ")+didYouMean(key, accepted)).With("accepted", accepted)
		}
	}
	return nil
}

// absent reports whether key is missing or null: clients send null for what they leave out.
func (o jsonObject) absent(key string) bool {
	kind := jsonKind(o[key])
	return kind == kindNothing || kind == kindNull
}

// text reads a required, non-blank string of at most maxBytes bytes.
func (o jsonObject) text(field, key string, maxBytes int) (string, error) {
	return parseString(joinField(field, key), o[key], maxBytes)
}

func parseString(field string, raw json.RawMessage, maxBytes int) (string, error) {
	var s string
	if jsonKind(raw) != kindString || json.Unmarshal(raw, &s) != nil {
		return "", Invalid(field, jsonKind(raw)+" came, a non-empty string is accepted")
	}
	if strings.TrimSpace(s) == "" {
		return "", Invalid(field, "an empty string came, a non-empty string is accepted")
	}
	return s, CheckText(field, s, maxBytes)
}

// parseInteger reads a JSON number without a fraction; 60.0 is one too, since some clients
// know only floats. From 2^53 on such clients are not exact any more, so nothing is taken.
func parseInteger(raw json.RawMessage) (int64, bool) {
	if jsonKind(raw) != kindNumber {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	if err != nil || f >= 1<<53 || f <= -(1<<53) || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

const (
	kindNothing = "nothing"
	kindObject  = "an object"
	kindList    = "a list"
	kindString  = "a string"
	kindNumber  = "a number"
	kindBool    = "a boolean"
	kindNull    = "null"
)

// JSONKind names the kind of a JSON value for a sentence, such as "a number".
func JSONKind(raw []byte) string { return jsonKind(raw) }

// jsonKind names the kind of a JSON value by its first byte, for decisions and sentences.
func jsonKind(raw json.RawMessage) string {
	raw = bytes.TrimLeft(raw, " \t\r\n")
	if len(raw) == 0 {
		return kindNothing
	}
	switch raw[0] {
	case '{':
		return kindObject
	case '[':
		return kindList
	case '"':
		return kindString
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	}
	return kindNumber
}
