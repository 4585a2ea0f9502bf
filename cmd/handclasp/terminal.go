package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"handclasp/internal/handoff"
)

// How commands print: for a program, for a person, and what others wrote so that it cannot pass
// for ours.

// isTerminal reports whether a person sits at the other end.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (e *env) say(format string, args ...any) error {
	_, err := fmt.Fprintf(e.stdout, format, args...)
	return err
}

func printJSON(e *env, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := e.stdout.Write(plainJSON(b.Bytes()))
	return err
}

// plainJSON writes what a terminal would act on or hide, such as C1 controls and direction overrides,
// as \u escapes: for a program it is the same JSON.
func plainJSON(b []byte) []byte {
	if !bytes.ContainsFunc(b, hidden) {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		switch {
		case !hidden(r):
			out = utf8.AppendRune(out, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
	}
	return out
}

// hidden is for what stands inside strings: the encoder has escaped the ASCII controls there.
func hidden(r rune) bool {
	return r >= 0x7f && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

func table(e *env, header string, rows int, row func(i int) string) error {
	w := tabwriter.NewWriter(e.stdout, 0, 4, 2, ' ', 0)
	if _, err := fmt.Fprintln(w, header); err != nil {
		return err
	}
	for i := range rows {
		if _, err := fmt.Fprintln(w, row(i)); err != nil {
			return err
		}
	}
	return w.Flush()
}

func orDash(s *string) string {
	if s == nil {
		return "–"
	}
	return *s
}

func orNothing(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// lineOrDash is text of others in a place that has one line; nothing is a dash.
func lineOrDash(s string) string {
	if s = oneLine(s, math.MaxInt); s == "" {
		return "–"
	}
	return s
}

// plain makes text of others safe for a terminal: control characters could rewrite the screen.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\uFFFD'
		}
		return r
	}, s)
}

// unfenced is a text without the marks that tell a model where foreign text begins and ends: a
// person sees that from the layout.
func unfenced(s string) string {
	lines := strings.Split(s, "\n")
	if n := len(lines); n >= 2 && strings.HasPrefix(lines[0], "«untrusted ") && strings.HasPrefix(lines[n-1], "«/untrusted ") {
		lines = lines[1 : n-1]
	}
	return plain(strings.Join(lines, "\n"))
}

// indented sets a text of others off from ours.
func indented(s string) string {
	return "    " + strings.ReplaceAll(unfenced(s), "\n", "\n    ")
}

// oneLine cuts a text of others to one line of at most so many characters.
func oneLine(s string, width int) string {
	s = strings.Join(strings.Fields(unfenced(s)), " ")
	if cut := handoff.CutGraphemes(s, width); len(cut) < len(s) {
		return cut + "…"
	}
	return s
}

// ageOf says how long ago a time of the hub's was.
func ageOf(stamp string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, stamp)
	if err != nil {
		return stamp
	}
	switch d := max(now.Sub(at), 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// sized is a number of bytes as people read it.
func sized(n int64) string {
	for _, unit := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= unit.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(unit.size), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
