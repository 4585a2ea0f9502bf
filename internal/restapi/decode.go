package restapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"handclasp/internal/handoff"
)

// mostLevels is how deep a body may nest: a value that a caller sends for others comes back some levels
// deeper, and readers give up on deep JSON.
const mostLevels = 128

// decodeOne reads one strict JSON value into dest, and nothing behind it: names count in their own case
// and once, unknown ones are refused, and text is Unicode without NUL. io.EOF says that nothing came; any
// other error is a [handoff.Error] that names the field, what came and what is accepted.
func decodeOne(body io.Reader, dest any) error {
	raw, err := io.ReadAll(body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return handoff.TooLarge("body", int(large.Limit)+1, int(large.Limit), "bytes")
	case err != nil:
		return handoff.Invalid("body", "it broke off while it came")
	case strings.TrimSpace(string(raw)) == "":
		return io.EOF
	}
	if err := json.Unmarshal(raw, dest, json.RejectUnknownMembers(true)); err != nil {
		var known *handoff.Error
		if errors.As(handoff.CheckRawJSON("", raw, 0, mostLevels), &known) && known.Details["field"] != "arguments" {
			return known // it words what is wrong with a text
		}
		return wrongJSON(err, raw)
	}
	return handoff.CheckRawJSON("", raw, 0, mostLevels)
}

// wrongJSON words why a body does not fit.
func wrongJSON(err error, raw []byte) *handoff.Error {
	var shape *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &shape):
		field := fieldAt(shape.JSONPointer)
		if errors.Is(err, json.ErrUnknownName) {
			return handoff.Invalid(field, "there is no such field here")
		}
		if accepted := kindOf(shape.GoType); accepted != "" {
			return handoff.Invalid(field, fmt.Sprintf("%s came; %s is accepted", came(shape.JSONKind), accepted))
		}
		return handoff.Invalid(field, "what came is not accepted here")
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		return handoff.Invalid(fieldAt(syntax.JSONPointer), "it came twice; once is accepted")
	case errors.As(err, &syntax):
		return handoff.Invalid("body", "it is not valid JSON, from its byte "+strconv.FormatInt(min(syntax.ByteOffset, int64(len(raw))), 10)+" on")
	}
	return handoff.Invalid("body", "it is not the JSON that this takes")
}

// fieldAt writes a JSON pointer as fields are named in errors: a.b[0].
func fieldAt(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(printable(token))
	}
	if b.Len() == 0 {
		return "body"
	}
	return b.String()
}

// printable is the name of a field as it came, cut and without what acts on a terminal.
func printable(name string) string {
	quoted := handoff.Quote(name)
	if quoted == `"`+name+`"` {
		return name
	}
	return quoted
}

func came(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return "something else"
}

// kindOf says in JSON's words what fits a type of ours; empty where that depends.
func kindOf(t reflect.Type) string {
	if t == nil {
		return ""
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return ""
}
