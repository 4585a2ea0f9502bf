package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"
	"text/tabwriter"
	"time"

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
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
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
