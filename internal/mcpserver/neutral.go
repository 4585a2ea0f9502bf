package mcpserver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// neutralise renders prose of another actor so that it cannot pass for structure, and stays
// readable:
//
//   - tags that chat formats give a meaning lose their brackets: <system> becomes ‹system›, and
//     so do </assistant>, <|im_start|>, [INST], <tool_result> and forged fence markers, also
//     with spaces, fullwidth or styled letters, Cyrillic look-alikes and zero-width characters
//   - a role at the start of a line is bracketed: "Human: hi" becomes "‹Human›: hi"
//   - characters that do not show but act (controls but newline and tab, bidi overrides,
//     zero-width and tag characters) are written out: ⟨U+202E⟩; CRLF becomes a newline
//
// It changes the rendering only. What is stored, and machine data, stay as they came.
func neutralise(s string) string {
	if !suspicious(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/8)
	closeAt, lineStart, before := -1, true, rune(0)
	for i := 0; i < len(s); {
		if lineStart {
			lineStart = false
			if from, to := roleAtLineStart(s[i:]); to > 0 {
				showActing(&b, s[i:i+from])
				b.WriteString("‹")
				showActing(&b, s[i+from:i+to])
				b.WriteString("›")
				i += to
				before = 0
				continue
			}
		}
		r, w := utf8.DecodeRuneInString(s[i:])
		switch {
		case i == closeAt:
			b.WriteString("›")
		case isOpener(r):
			if end, ok := roleTag(s[i+w:], r, isWordRune(before)); ok {
				b.WriteString("‹")
				if end >= 0 {
					closeAt = i + w + end
				}
			} else {
				b.WriteString(s[i : i+w])
			}
		case r == '\n':
			b.WriteByte('\n')
			lineStart = true
		case r == '\r':
			if !strings.HasPrefix(s[i+1:], "\n") {
				b.WriteString("⟨U+000D⟩\n")
				lineStart = true
			}
		case acts(r):
			showActing(&b, s[i:i+w])
			if run := actingRun(s[i:]); len(run) > w*maxActing {
				// Said once, with how often: a text of nothing else would grow fiftyfold.
				fmt.Fprintf(&b, "… %d such characters", utf8.RuneCountInString(run))
				w = len(run)
				r, _ = utf8.DecodeLastRuneInString(run)
			}
			// Some readers break the line here.
			lineStart = r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\v' || r == '\f'
		case r == utf8.RuneError && w == 1:
			b.WriteRune(utf8.RuneError)
		default:
			b.WriteString(s[i : i+w])
		}
		before = r
		i += w
	}
	return b.String()
}

// maxActing is how many acting characters in a row are written out one by one.
const maxActing = 8

// actingRun is the longest beginning of s that is only acting characters.
func actingRun(s string) string {
	end := strings.IndexFunc(s, func(r rune) bool { return !acts(r) })
	if end < 0 {
		return s
	}
	return s[:end]
}

// showActing writes s with the characters that act written out.
func showActing(b *strings.Builder, s string) {
	for _, r := range s {
		if acts(r) {
			fmt.Fprintf(b, "⟨U+%04X⟩", r)
		} else {
			b.WriteRune(r)
		}
	}
}

// suspicious reports whether s holds anything that neutralise may change. Most text does not.
func suspicious(s string) bool {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= utf8.RuneSelf, c < ' ' && c != '\n' && c != '\t', c == 0x7f:
			return true
		case c == '<', c == '[', c == ':':
			return true
		}
	}
	return false
}

// acts reports whether r is invisible and yet changes what the reader gets. The joiners that
// emoji and several scripts need are left.
func acts(r rune) bool {
	switch {
	case r == '\n', r == '\t', r == '\u200c', r == '\u200d':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	case r >= 0xE0100 && r <= 0xE01EF: // variation selectors that can carry hidden bytes
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// roleWords are the tag names of chat formats, and ours.
var roleWords = func() map[string]struct{} {
	m := map[string]struct{}{}
	for w := range strings.FieldsSeq(`
		system sys assistant user human developer tool inst instruction instructions
		system_prompt system_reminder system_message system_note thinking think prompt
		tool_use tool_call tool_calls tool_result tool_results tool_response tool_output
		function function_call function_calls function_result function_results
		function_response invoke parameter parameters im_start im_end im_sep
		start_header_id end_header_id eot_id begin_of_text end_of_text endoftext
		start_of_turn end_of_turn untrusted trusted hub operator`) {
		m[w] = struct{}{}
	}
	return m
}()

// lineRoles are the speakers of a transcript.
var lineRoles = map[string]struct{}{
	"system": {}, "human": {}, "assistant": {}, "user": {}, "developer": {},
}

func isOpener(r rune) bool {
	switch r {
	case '<', '[', '«', '＜', '［', '﹤', '〈', '《', '❮', '⟨', '⟪', '【':
		return true
	}
	return false
}

func isCloser(r rune) bool {
	switch r {
	case '>', ']', '»', '＞', '］', '﹥', '〉', '》', '❯', '⟩', '⟫', '】':
		return true
	}
	return false
}

// tagLead is how much may stand between a bracket and a tag's name, and tagReach how far behind
// the name the closing bracket is looked for, in bytes. Both keep neutralise linear.
const (
	tagLead  = 64
	tagReach = 256
)

// roleTag reports whether s, which follows the opening bracket open, continues a tag that must
// lose its brackets, and where its closing bracket is (-1: none near).
func roleTag(s string, open rune, indexed bool) (end int, ok bool) {
	i, spaced, barred := 0, false, false
lead:
	for i < len(s) && i < tagLead {
		r, w := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '|' || r == '｜' || r == '¦' || r == '│' || r == '▁':
			barred = true
		case r == ' ' || r == '\t' || r == '\u00a0' || r == '\u3000':
			spaced = true
		case r == '/' || r == '\\' || r == '!' || r == '?' || r == '／' || r == '⁄' || invisible(r) || isOpener(r):
		default:
			break lead
		}
		i += w
	}
	name, n := foldWord(s[i:], true)
	if at := strings.LastIndexByte(name, ':'); at >= 0 {
		name = name[at+1:]
	}
	_, known := roleWords[name]
	square := open == '[' || open == '［' || open == '【'
	if square && indexed && !barred {
		return 0, false // an index: users[user]
	}
	if !known && (!barred || square) {
		return 0, false
	}
	end = closer(s, i+n)
	if spaced && end < 0 || square && end < 0 {
		return 0, false // a comparison: used < system
	}
	return end, true
}

func closer(s string, from int) int {
	for i := from; i < len(s) && i < from+tagReach; {
		r, w := utf8.DecodeRuneInString(s[i:])
		switch {
		case isCloser(r):
			return i
		case isOpener(r):
			return -1
		}
		i += w
	}
	return -1
}

// roleAtLineStart finds a speaker and its colon at the start of a line, behind spaces, quote and
// heading marks, and gives the bounds of the word; to is 0 when there is none.
func roleAtLineStart(s string) (from, to int) {
	for from < len(s) {
		r, w := utf8.DecodeRuneInString(s[from:])
		if !strings.ContainsRune(" \t#*_>-\u00a0\u3000", r) && !invisible(r) {
			break
		}
		from += w
	}
	name, n := foldWord(s[from:], false)
	if _, ok := lineRoles[name]; !ok {
		return 0, 0
	}
	for i := from + n; i < len(s); {
		r, w := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == ':' || r == '：' || r == '﹕' || r == '꞉' || r == '∶':
			return from, from + n
		case !strings.ContainsRune(" \t*_\u00a0\u3000", r) && !invisible(r):
			return 0, 0
		}
		i += w
	}
	return 0, 0
}

// foldWord reads the word at the start of s as a plain lower-case one, and how many bytes it
// takes there. A word too long to be of interest is "".
func foldWord(s string, joined bool) (string, int) {
	var buf [40]byte
	n, i := 0, 0
	for i < len(s) {
		r, w := utf8.DecodeRuneInString(s[i:])
		if invisible(r) {
			i += w
			continue
		}
		r = plain(r)
		if joined && r == '-' {
			r = '_'
		}
		letter := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !letter && (!joined || r != '_' && r != ':') {
			break
		}
		if n == len(buf) {
			return "", i
		}
		buf[n] = byte(r)
		n++
		i += w
	}
	return string(buf[:n]), i
}

// plain gives the lower-case ASCII character that r looks like or is a styled form of, else r.
func plain(r rune) rune {
	switch {
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	case r < utf8.RuneSelf:
		return r
	}
	if at := strings.IndexRune(lookalikes, r); at >= 0 {
		// Every look-alike takes two bytes.
		return rune("aaeeooccppxxyyssiijjmmtthhkkbbhhooee"[at/2])
	}
	if d := norm.NFKD.String(string(r)); d[0] < utf8.RuneSelf {
		return plain(rune(d[0]))
	}
	return r
}

// lookalikes are Cyrillic and Greek letters in the order of their ASCII twins in plain.
const lookalikes = "аАеЕоОсСрРхХуУѕЅіІјЈмМтТһҺкКвВնΝοΟεΕ"

// invisible reports whether r takes no room, so that it may hide inside a word.
func invisible(r rune) bool {
	return r >= utf8.RuneSelf && (unicode.In(r, unicode.Cf, unicode.Mn, unicode.Me) || r == '\u115f' || r == '\u3164')
}

func isWordRune(r rune) bool {
	return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r)
}
