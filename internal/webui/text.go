package webui

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Agents write text in order to be read, and hostile ones in order to be misread. The template
// escapes what HTML gives a meaning; this file writes out what Unicode does.

// piece is a stretch of text. One that acts names characters that do not show by themselves,
// such as U+202E, and is set apart by its style, so that text cannot imitate it.
type piece struct {
	Text string
	Acts bool
}

// prose prepares text for reading. The joiners that emoji and several scripts need are left.
func prose(s string) []piece {
	return pieces(strings.ReplaceAll(s, "\r\n", "\n"), func(r rune) bool {
		return r != '\u200c' && r != '\u200d' && acts(r)
	})
}

// code prepares text that a machine would take literally: every character that does not show
// is written out but newline and tab.
func code(s string) []piece { return pieces(s, acts) }

// acts reports whether r does not show and yet changes what the reader or a machine gets:
// controls, direction overrides and isolates, zero-width and tag characters, invisible letters.
func acts(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	case r >= 0xE0100 && r <= 0xE01EF: // variation selectors that can carry hidden bytes
		return true
	case r == '\u115f', r == '\u1160', r == '\u3164', r == '\uffa0', r == '\u2800', r == '\u034f', r == '\u17b4', r == '\u17b5':
		return true
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

func pieces(s string, acts func(rune) bool) []piece {
	var out []piece
	for s != "" {
		at := strings.IndexFunc(s, acts)
		if at < 0 {
			return append(out, piece{Text: s})
		}
		if at > 0 {
			out = append(out, piece{Text: s[:at]})
		}
		s = s[at:]
		end := strings.IndexFunc(s, func(r rune) bool { return !acts(r) })
		if end < 0 {
			end = len(s)
		}
		out = append(out, piece{Text: names(s[:end]), Acts: true})
		s = s[end:]
	}
	return out
}

// names writes characters as code points; of a repeated one it gives the count.
func names(s string) string {
	var b strings.Builder
	for s != "" {
		r, w := utf8.DecodeRuneInString(s)
		count := 0
		for strings.HasPrefix(s, s[:w]) {
			next := s[w:]
			count++
			if !strings.HasPrefix(next, s[:w]) {
				s = next
				break
			}
			s = next
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "U+%04X", r)
		if count > 1 {
			fmt.Fprintf(&b, " ×%d", count)
		}
	}
	return b.String()
}

// linkView is an address as the page shows it: always in full, and to be clicked only if the
// eye can judge where it leads.
type linkView struct {
	URL  string
	Live bool
}

func link(s string) linkView {
	u, err := url.Parse(s)
	plain := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" &&
		u.User == nil && // https://bank.example@evil.example leads to evil.example
		!strings.ContainsFunc(u.Host, func(r rune) bool { return r >= utf8.RuneSelf }) && // look-alike letters
		!strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || r == '\n' || r == '\t' || acts(r) })
	return linkView{s, plain}
}

// stretch is a run of lines of a diff that are of one kind: "add", "del", "hunk", "meta" or "".
type stretch struct {
	Class string
	Text  []piece
}

// maxStretches bounds how many elements a diff becomes; what follows is shown without colour.
const maxStretches = 4000

var hunkHeader = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// diff colours a unified diff. Any text may come; what is not a diff stays plain. Lines are
// judged by where they stand: inside a hunk, "--- x" is a removed line and no header.
func diff(s string) []stretch {
	var out []stretch
	var removed, added int // what the current hunk still has to hold
	start, class := 0, ""
	for at := 0; at < len(s); {
		if len(out) == maxStretches {
			class = ""
			break
		}
		end := len(s)
		if n := strings.IndexByte(s[at:], '\n'); n >= 0 {
			end = at + n + 1
		}
		c := lineClass(s[at:end], &removed, &added)
		if c != class && at > start {
			out = append(out, stretch{class, code(s[start:at])})
			start = at
		}
		class = c
		at = end
	}
	if start < len(s) {
		out = append(out, stretch{class, code(s[start:])})
	}
	return out
}

func lineClass(line string, removed, added *int) string {
	if *removed > 0 || *added > 0 {
		switch line[0] {
		case '-':
			*removed--
			return "del"
		case '+':
			*added--
			return "add"
		case '\\':
			return "meta"
		case ' ', '\n', '\r':
			*removed--
			*added--
			return ""
		}
		*removed, *added = 0, 0 // the hunk is not what its header said
	}
	if m := hunkHeader.FindStringSubmatch(line); m != nil {
		*removed, *added = hunkCount(m[1]), hunkCount(m[2])
		return "hunk"
	}
	for _, prefix := range []string{"diff ", "index ", "--- ", "+++ ", "new file ", "deleted file ", "similarity ", "rename ", "copy ", "old mode ", "new mode ", `\ `} {
		if strings.HasPrefix(line, prefix) {
			return "meta"
		}
	}
	switch line[0] {
	case '+':
		return "add"
	case '-':
		return "del"
	}
	return ""
}

func hunkCount(s string) int {
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}
