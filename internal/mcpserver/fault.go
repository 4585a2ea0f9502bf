package mcpserver

import (
	"slices"
	"strings"

	"handclasp/internal/handoff"
)

// fault is a refusal on its way up: each level of the decoder puts its name in front of path, so
// that a call without faults never builds one.
type fault struct {
	path, what string
	details    map[string]any
	// got and limit describe what is too large, in unit; they replace what.
	got, limit int
	unit       string
	// broken JSON is nobody's field.
	broken bool
	// code is another than invalid_params.
	code handoff.Code
}

func (f *fault) under(name string) *fault {
	switch {
	case f.broken:
	case f.path == "" || f.path[0] == '[':
		f.path = name + f.path
	default:
		f.path = name + "." + f.path
	}
	return f
}

func (f *fault) with(key string, v any) *fault {
	if f.details == nil {
		f.details = map[string]any{}
	}
	f.details[key] = v
	return f
}

// refusal makes the error that the caller sees.
func (f *fault) refusal() *handoff.Error {
	path := f.path
	if path == "" {
		path = "arguments"
	}
	if f.unit != "" {
		return handoff.TooLarge(path, f.got, f.limit, f.unit)
	}
	e := handoff.Invalid(path, f.what)
	if f.code != "" {
		e.Code = f.code
	}
	e.Hint = "Nothing was done. Correct this argument and call again."
	for k, v := range f.details {
		e.Details[k] = v
	}
	return e
}

func (t trouble) fault() *fault {
	return &fault{what: t.sentence(), broken: t == badSyntax}
}

func tooLarge(got, limit int, unit string) *fault {
	return &fault{got: got, limit: limit, unit: unit}
}

func twice(name string) *fault {
	return (&fault{what: "came twice in one object; send it once"}).under(name)
}

// wrongType says which JSON type came, never the value.
func wrongType(p *param, came string) *fault {
	return &fault{what: came + " came; accepted: " + p.accepts()}
}

func notInEnum(p *param, word string) *fault {
	f := &fault{what: p.quote(word) + " is not one of " + strings.Join(p.enum, ", ")}
	f.with("accepted", p.enum)
	if near := nearest(word, p.enum); near != "" && !p.secret {
		f.what += "; did you mean " + near + "?"
		f.with("did_you_mean", near)
	}
	return f
}

// unknown refuses a field that p does not declare.
func unknown(p *param, name string) *fault {
	accepted := names(p.props)
	f := &fault{what: "is not a parameter here"}
	known := accepted
	for i := range p.props {
		if also := p.props[i].also; also != "" {
			known = append(slices.Clip(known), also)
		}
	}
	if near := nearest(name, known); near != "" {
		near = p.props[p.find([]byte(near))].name
		f.what += "; did you mean " + near + "?"
		f.with("did_you_mean", near)
	}
	if len(accepted) == 0 {
		f.what += "; none are accepted"
	} else {
		f.what += "; accepted: " + strings.Join(accepted, ", ")
	}
	return f.with("accepted", accepted).under(segment(name))
}

func receivedNothing(params []param, came string) *handoff.Error {
	required := requiredNames(params)
	return &handoff.Error{
		Code:    handoff.CodeInvalidParams,
		Message: "received no arguments; required: " + strings.Join(required, ", "),
		Hint:    "What arrived was " + came + ". If you did send arguments, your client dropped them: call again, with shorter values if they were long.",
		Details: map[string]any{"field": "arguments", "received": came, "missing": required},
	}
}

func notAnObject(params []param, came string) *handoff.Error {
	accepted := param{kind: kindObject, props: params}
	return wrongType(&accepted, came).refusal()
}

// segment makes a name that came from the caller fit for a path in an error.
func segment(name string) string {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}) {
		return handoff.Quote(name)
	}
	return name
}

// nearest gives the known word that was probably meant, or "". Spelling comes first, then
// containment: question is ask_question.
func nearest(word string, known []string) string {
	w := squash(word)
	if w == "" || len(w) > 64 {
		return ""
	}
	best, bestDistance := "", max(1, min(3, len(w)/3))+1
	for _, k := range known {
		if d := distance(w, squash(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best != "" {
		return best
	}
	for _, k := range known {
		s := squash(k)
		contained := len(w) >= 4 && strings.Contains(s, w) || len(s) >= 4 && strings.Contains(w, s)
		for part := range strings.SplitSeq(k, "_") {
			contained = contained || part == w
		}
		if contained && (best == "" || len(k) < len(best)) {
			best = k
		}
	}
	return best
}

// squash lowers s and drops what separates words, so threadId is near to thread_id.
func squash(s string) string {
	if len(s) > 128 {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' || r == ' ' || r == '.' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// distance is how many letters must be added, dropped, replaced or swapped with a neighbour to
// make b of a (optimal string alignment, in bytes).
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
