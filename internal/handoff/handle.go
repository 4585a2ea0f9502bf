package handoff

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// maxHandle is the length of a handle in bytes. It is part of what a handle is, not a limit
// that an operator may move.
const maxHandle = 256

var (
	handlePattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*(@[A-Za-z0-9._-]+)?$`)
	uuidPattern   = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

	reservedHandles = []string{"me", "hub", "operator", "admin", "person", "anonymous"}
)

// ParseHandle checks a handle that somebody wants to register and returns it as it will be
// shown (domain: "agent"). It is name@team or a bare name of at most 256 bytes, never with
// "..", and not a reserved word in any case; a reserved word is the whole handle, so
// admin@acme may be taken. Every fault is invalid_params about "handle".
func ParseHandle(s string) (string, error) {
	const field = "handle"
	switch {
	case len(s) > maxHandle:
		return "", Invalid(field, "is longer than 256 bytes")
	case !handlePattern.MatchString(s):
		return "", Invalid(field, Quote(s)+" came; accepted is name@team or a bare name of "+
			"letters, digits, '.', '_' and '-', the name beginning with a letter, a digit or '_'")
	case strings.Contains(s, ".."):
		return "", Invalid(field, Quote(s)+` came; ".." is not accepted`)
	case slices.Contains(reservedHandles, FoldHandle(s)):
		return "", Invalid(field, Quote(s)+" is reserved; choose another name").
			With("reserved", reservedHandles)
	case uuidPattern.MatchString(s):
		// A target names agents by handle or by UUID. A handle in the shape of somebody's
		// UUID would receive that agent's handoffs.
		return "", Invalid(field, Quote(s)+" came; a handle must not look like a UUID")
	}
	return s, nil
}

// ValidTeammateHandle reports whether s can be the "to" of handoff_to_teammate:
// ^[A-Za-z0-9._-]+@[A-Za-z0-9._-]+$ (contracts: teammates), at most 256 bytes. Whether
// anybody bears it is another question.
func ValidTeammateHandle(s string) bool {
	name, team, ok := strings.Cut(s, "@")
	return ok && len(s) <= maxHandle && isHandlePart(name) && isHandlePart(team)
}

// isHandlePart reports whether s is one or more of A-Z a-z 0-9 . _ -.
func isHandlePart(s string) bool {
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return s != ""
}

// FoldHandle is the key under which handles and agent ids compare without case. It folds
// ASCII only, which is all a handle holds: full Unicode folding would let the Kelvin sign
// in a lookup find a handle with a k.
func FoldHandle(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r >= 'A' && r <= 'Z' }) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + ('a' - 'A')
		}
		return r
	}, s)
}

// sameHandle compares by [FoldHandle], which keeps the length.
func sameHandle(s, t string) bool { return len(s) == len(t) && FoldHandle(s) == FoldHandle(t) }

// NearMatches returns at most limit of the candidates that somebody who wrote want may have
// meant, the nearest first, ties in alphabetical order. Near is an edit distance (a swap of
// neighbours counts as one) of 1 to 3, growing with the length of want and blind to case;
// after those come candidates that contain want or are contained in it, and the same name
// in another team. It is fast enough for some thousand candidates per refusal.
func NearMatches(want string, from []string, limit int) []string {
	// Nothing that long was ever registered, and comparing it would be the caller's lever.
	if want == "" || len(want) > 4*maxHandle || limit <= 0 {
		return nil
	}
	type match struct {
		text     string
		distance int
	}
	w := newNearWord(want)
	var found []match
	for _, candidate := range from {
		if d, ok := w.distance(candidate); ok {
			found = append(found, match{candidate, d})
		}
	}
	slices.SortStableFunc(found, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.text, b.text))
	})
	var near []string
	for _, m := range found[:min(limit, len(found))] {
		near = append(near, m.text)
	}
	return near
}

// didYouMean is the tail of a refusal that lists accepted words.
func didYouMean(got string, accepted []string) string {
	if near := NearMatches(got, accepted, 1); len(near) > 0 {
		return "; did you mean " + near[0] + "?"
	}
	return ""
}

// nearWord compares one word with many; its buffers live across candidates.
type nearWord struct {
	folded, name string
	runes, other []rune
	within       int
	rows         [3][]int
}

func newNearWord(want string) *nearWord {
	w := &nearWord{folded: strings.ToLower(want)}
	w.name, _, _ = strings.Cut(w.folded, "@")
	w.runes = []rune(w.folded)
	w.within = min(3, 1+len(w.runes)/5)
	return w
}

func (w *nearWord) distance(candidate string) (int, bool) {
	folded := strings.ToLower(candidate)
	w.other = w.other[:0]
	for _, r := range folded {
		w.other = append(w.other, r)
	}
	if d := w.edits(); d <= w.within {
		return d, true
	}
	const tooShortToMean = 3 // "a" is part of nearly everything
	contained := len(w.folded) >= tooShortToMean && len(folded) >= tooShortToMean &&
		(strings.Contains(folded, w.folded) || strings.Contains(w.folded, folded))
	name, _, _ := strings.Cut(folded, "@")
	return w.within + 1, contained || (name != "" && name == w.name)
}

// edits is the optimal string alignment distance between w.runes and w.other, or something
// above w.within. Only the cells within that distance of the diagonal are computed.
func (w *nearWord) edits() int {
	a, b, k := w.runes, w.other, w.within
	far := k + 1
	if len(a)-len(b) > k || len(b)-len(a) > k {
		return far
	}
	for i := range w.rows {
		w.rows[i] = slices.Grow(w.rows[i][:0], len(b)+2)[:len(b)+2]
	}
	before, last, row := w.rows[0], w.rows[1], w.rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		lo, hi := max(1, i-k), min(len(b), i+k)
		row[lo-1] = far
		if lo == 1 {
			row[0] = i
		}
		best := row[lo-1]
		for j := lo; j <= hi; j++ {
			substitute := last[j-1]
			if a[i-1] != b[j-1] {
				substitute++
			}
			d := min(substitute, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, before[j-2]+1)
			}
			row[j] = d
			best = min(best, d)
		}
		row[hi+1] = far // the next row reads one cell beyond this band
		if best > k {
			return far
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// IsUUID reports whether s is written as the UUID of an agent.
func IsUUID(s string) bool { return uuidPattern.MatchString(s) }
