package notify

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"handclasp/internal/handoff"
)

// Mail clients turn what looks like an address into a link, whoever wrote it, and the reader takes
// it for one of ours. This file takes the looks away from what others wrote.

// Inert quotes what a caller wrote as data: one line of at most limit graphemes (0 = any number),
// without characters that do not show or that change what stands around them, and with nothing in
// it that a mail client makes a link of: evil.example becomes evil[.]example, http:// becomes
// http[://], a@b becomes a[@]b. Doing it twice changes nothing.
func Inert(s string, limit int) string {
	return cut(disarm(shown(strings.ToValidUTF8(s, "\uFFFD"))), limit)
}

// MultiLine is [Inert] for a text of several lines: at most lines of them (0 = any number), and
// never two empty ones in a row.
func MultiLine(s string, limit, lines int) string {
	var out []string
	for line := range strings.SplitSeq(lineEnds.Replace(s), "\n") {
		line = Inert(line, 0)
		if line == "" && (len(out) == 0 || out[len(out)-1] == "") {
			continue
		}
		out = append(out, line)
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	if lines > 0 && len(out) > lines {
		out = append(out[:lines-1], "…")
	}
	return cut(strings.Join(out, "\n"), limit)
}

// cut ends a text that is too long with an ellipsis, which counts.
func cut(s string, limit int) string {
	if limit <= 0 || len(handoff.CutGraphemes(s, limit)) == len(s) {
		return s
	}
	return strings.TrimRight(handoff.CutGraphemes(s, limit-1), " \n") + "…"
}

const (
	joiner  = '\u200d'
	keycap  = '\u20e3'
	asText  = '\ufe0e'
	asEmoji = '\ufe0f'
	// maxMarks on one letter is more than any script needs, and too few to climb over other lines.
	maxMarks = 6
)

// shown leaves what a reader sees, on one line. A joiner or a variation selector stays only where
// it makes an emoji.
func shown(s string) []rune {
	kept := make([]rune, 0, len(s))
	for _, r := range s {
		switch {
		case r == joiner, r == asText, r == asEmoji:
			kept = append(kept, r)
		case unicode.IsSpace(r), unicode.In(r, unicode.Z):
			kept = append(kept, ' ')
		case !hidden(r):
			kept = append(kept, r)
		}
	}
	out := make([]rune, 0, len(kept))
	marks := 0
	for i, r := range kept {
		next := rune(-1)
		if i+1 < len(kept) {
			next = kept[i+1]
		}
		keep := true
		switch {
		case r == joiner:
			keep = endsInEmoji(out) && pictograph(next)
		case r == asText, r == asEmoji:
			keep = len(out) > 0 && (pictograph(out[len(out)-1]) || next == keycap && strings.ContainsRune("0123456789#*", out[len(out)-1]))
		case r == ' ':
			keep = len(out) > 0 && out[len(out)-1] != ' '
			marks = 0
		case unicode.In(r, unicode.Mn, unicode.Me):
			marks++
			keep = marks <= maxMarks
		default:
			marks = 0
		}
		if keep {
			out = append(out, r)
		}
	}
	for len(out) > 0 && out[len(out)-1] == ' ' {
		out = out[:len(out)-1]
	}
	return out
}

// hidden reports whether r shows nothing by itself: controls, directions, tags, fillers, selectors.
func hidden(r rune) bool {
	return r == '\u2800' || // a braille cell without dots
		unicode.In(r, unicode.C, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

func endsInEmoji(rs []rune) bool {
	at := len(rs) - 1
	for at >= 0 && (rs[at] == asText || rs[at] == asEmoji || rs[at] >= 0x1F3FB && rs[at] <= 0x1F3FF) {
		at--
	}
	return at >= 0 && pictograph(rs[at])
}

// pictograph asks the rules of graphemes whether a joiner joins r to an emoji before it: only
// pictographs are joined so, and unlike marks they do not stick to a letter.
func pictograph(r rune) bool {
	if r < 0xa9 {
		return false
	}
	return oneCluster("\u00a9\u200d"+string(r)) && !oneCluster("a"+string(r))
}

func oneCluster(s string) bool {
	_, rest, _, _ := uniseg.FirstGraphemeClusterInString(s, -1)
	return rest == ""
}

// disarm breaks in each word what looks like the beginning or the middle of an address.
func disarm(rs []rune) string {
	var b strings.Builder
	for len(rs) > 0 {
		end := slices.Index(rs, ' ')
		if end < 0 {
			end = len(rs)
		}
		disarmWord(&b, rs[:end])
		rs = rs[end:]
		if len(rs) > 0 {
			b.WriteByte(' ')
			rs = rs[1:]
		}
	}
	return b.String()
}

func disarmWord(b *strings.Builder, w []rune) {
	if figure(string(w)) {
		b.WriteString(string(w))
		return
	}
	at := func(i int) rune {
		if i < 0 || i >= len(w) {
			return ' '
		}
		return w[i]
	}
	for i := 0; i < len(w); i++ {
		r := w[i]
		switch {
		case isDot(r):
			end := i + 1
			for isDot(at(end)) {
				end++
			}
			dots := w[i:end]
			switch {
			case i == 0 || !inName(at(end)):
				b.WriteString(string(dots))
			case len(dots) > 1 || endsSentence(r) && foreign(w[i-1]) && foreign(w[end]):
				b.WriteString(string(dots) + " ")
			default:
				b.WriteString("[.]")
			}
			i = end - 1
		case (r == '@' || r == '＠' || r == '﹫') && i > 0 && inName(at(i+1)):
			b.WriteString("[@]")
		case r == ':' && at(i+1) == '/' && at(i+2) == '/':
			if at(i-1) == '[' && (at(i+3) == ']' || at(i+3) == '…') { // ours already
				b.WriteString("://")
			} else {
				b.WriteString("[://]")
			}
			i += 2
		case r == ':' && at(i+1) != ' ' && at(i+1) != '…' && schemeBefore.MatchString(string(w[max(0, i-longestScheme):i])):
			b.WriteString("[:]")
		case (r == '/' || r == '\\') && at(i+1) == r: // //host, and \\host which Outlook opens
			b.WriteString(string(r) + " ")
		default:
			b.WriteRune(r)
		}
	}
}

// longestScheme is more than any of schemeBefore and the letter before it: looking back further for
// each colon would take the square of a long word's time.
const longestScheme = 20

// schemeBefore are schemes that clients act on without two slashes.
var schemeBefore = regexp.MustCompile(`(?i)(^|[^a-z0-9_])(about|bitcoin|blob|callto|data|facetime|facetime-audio|feed|file|ftp|geo|https?|im|intent|javascript|magnet|mailto|maps|market|news|sips?|skype|sms|smsto|spotify|steam|tel|vbscript|view-source|whatsapp|xmpp)$`)

// figure reports whether w is a price, a time or a date such as 24.12.2026: nothing links those, and
// a person has to read them. Four groups are an IP address.
func figure(w string) bool {
	w = strings.TrimLeft(w, "(\"'€$£¥+-~")
	w = strings.TrimRight(w, ")\"'.,;:!?€$£¥%…")
	return figures.MatchString(w)
}

var figures = regexp.MustCompile(`^[0-9]{1,9}([.,][0-9]{1,9}){1,2}$`)

// isDot reports whether r is a dot, or taken for one by browsers or by eyes.
func isDot(r rune) bool {
	switch r {
	case '.', '\u2024', '\ufe52', '\uff0e', '\ua4f8':
		return true
	}
	return endsSentence(r)
}

// endsSentence reports whether r is the full stop of a script that may put no space after it, and
// that browsers or eyes take for a dot.
func endsSentence(r rune) bool {
	switch r {
	case '\u3002', '\uff61', '\u06d4', '\u0701', '\u0702', '\ua60e':
		return true
	}
	return false
}

func foreign(r rune) bool {
	return r >= utf8.RuneSelf && !unicode.Is(unicode.Latin, r) && !unicode.IsDigit(r)
}

// inName reports whether r can stand in a name of the net, taken widely: there are emoji domains.
func inName(r rune) bool {
	return !unicode.IsSpace(r) && (!unicode.IsPunct(r) || unicode.In(r, unicode.Pc, unicode.Pd))
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n", "\v", "\n", "\f", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
