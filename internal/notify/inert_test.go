package notify

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
)

func TestWhatCallersWroteIsInertAndStillReadable(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, in, want string }{
		{"plain words", "Can I get a table for six?", "Can I get a table for six?"},
		{"a sentence", "I waited. Nobody came... why?", "I waited. Nobody came... why?"},
		{"a dotted name", "see evil.example now", "see evil[.]example now"},
		{"a sentence without a space", "Hello.World", "Hello[.]World"},
		{"a link", "https://evil.example/x?y=z", "https[://]evil[.]example/x?y=z"},
		{"a link in capitals", "HTTP://EVIL.EXAMPLE", "HTTP[://]EVIL[.]EXAMPLE"},
		{"a link to a bare host", "http://localhost/x", "http[://]localhost/x"},
		{"a link without slashes", "go to http:evil", "go to http[:]evil"},
		{"www", "www.evil.example", "www[.]evil[.]example"},
		{"a link without a scheme", "look //evil/x", "look / /evil/x"},
		{"a share of Windows", `\\evil\share`, `\ \evil\share`},
		{"a mail address", "write to bob@example.com", "write to bob[@]example[.]com"},
		{"a mail address of one host", "bob@host", "bob[@]host"},
		{"a mailto", "mailto:bob", "mailto[:]bob"},
		{"a telephone scheme", "tel:+15550100", "tel[:]+15550100"},
		{"a mention", "ask @bob", "ask @bob"},
		{"a label is no scheme", "Name:John model:x", "Name:John model:x"},
		{"an IP address", "10.1.2.3", "10[.]1[.]2[.]3"},
		{"a price, a time and a date", "(12.50€) at 19.30, on 24.12.2026.", "(12.50€) at 19.30, on 24.12.2026."},
		{"a version is a name", "v1.2", "v1[.]2"},
		{"fullwidth dot", "evil．example", "evil[.]example"},
		{"one dot leader", "evil․example", "evil[.]example"},
		{"small full stop", "evil﹒example", "evil[.]example"},
		{"ideographic stop after Latin", "evil。example", "evil[.]example"},
		{"halfwidth stop after Latin", "evil｡example", "evil[.]example"},
		{"Chinese sentences", "你好。谢谢", "你好。 谢谢"},
		{"an ellipsis without a space", "wait...what", "wait... what"},
		{"two dots", "evil..example", "evil.. example"},
		{"an emoji domain", "💩.la", "💩[.]la"},
		{"split by a zero-width space", "evil\u200b.\u200bexample", "evil[.]example"},
		{"a soft hyphen", "ht\u00adtp://a", "http[://]a"},
		{"lines", "a\r\nb\n\n\tc\u2028d\u0085e", "a b c d e"},
		{"directions", "a\u202eb\u2066c\u200fd", "abcd"},
		{"controls", "a\x00b\x1b[31mc\x7f", "ab[31mc"},
		{"invalid UTF-8", "a\xff\xfeb", "a\uFFFDb"},
		{"odd spaces", "a\u00a0\u3000b", "a b"},
		{"letters that do not show", "a\u3164\u115f\u2800b", "ab"},
		{"a joiner between letters", "a\u200db\u200cc", "abc"},
		{"a family", "👩‍👩‍👧 and 👩🏽‍💻", "👩‍👩‍👧 and 👩🏽‍💻"},
		{"a heart and a keycap", "❤️ 1️⃣", "❤️ 1️⃣"},
		{"a selector on a letter", "a\ufe0fb\ufe0f", "ab"},
		{"hidden bytes in selectors", "😀\U000E0101\U000E0102", "😀"},
		{"already inert", "http[://]evil[.]example bob[@]x", "http[://]evil[.]example bob[@]x"},
		{"an open bracket before a scheme", "[http://x", "[http[://]x"},
		{"markup stays text", `<a href="//x">`, `<a href="/ /x">`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := Inert(tt.in, 0); got != tt.want {
				t.Errorf("Inert(%q)\n got %q\nwant %q", tt.in, got, tt.want)
			}
		})
	}
}

func TestALongTextIsCutBetweenGraphemes(t *testing.T) {
	t.Parallel()
	if got := Inert("👩‍👩‍👧👩‍👩‍👧👩‍👩‍👧", 2); got != "👩‍👩‍👧…" {
		t.Errorf("got %q", got)
	}
	if got := Inert("ab", 2); got != "ab" {
		t.Errorf("a text that fits was cut: %q", got)
	}
	if got := Inert("a"+strings.Repeat("\u0301", 100_000), 10); utf8.RuneCountInString(got) > 10 {
		t.Errorf("one letter carries %d marks", utf8.RuneCountInString(got)-1)
	}
}

func TestALongWordTakesNoLongerThanItsLength(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{":x", "a.", "//", "@a", "👩\u200d", "\u0301", "1.", "tel:", "\u200d", "。你", "\n", " "} {
		begun := time.Now()
		long := strings.Repeat(piece, 50_000)
		Inert(long, 800)
		MultiLine(long, 800, 20)
		if took := time.Since(begun); took > 20*time.Second { // the square would be many minutes
			t.Errorf("%q repeated takes %v", piece, took)
		}
	}
}

func TestAReplyKeepsItsParagraphs(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, in string
		lines    int
		want     string
	}{
		{"paragraphs", "Hello,\r\n\r\n\r\nsee evil.example\u2029Bye\n\n", 0, "Hello,\n\nsee evil[.]example\nBye"},
		{"too many lines", "a\nb\nc\nd", 3, "a\nb\n…"},
		{"as many as allowed", "a\nb\nc", 3, "a\nb\nc"},
		{"nothing", "\n\u200b\n", 3, ""},
		{"a dot at the end of a line", "evil.\nexample", 0, "evil.\nexample"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := MultiLine(tt.in, 0, tt.lines); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	if got := MultiLine("ab\ncd\nef", 5, 0); got != "ab\nc…" {
		t.Errorf("cut at 5 graphemes: %q", got)
	}
}

// linked is what clients make links of.
var linked = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`[a-z][a-z0-9+.-]*://`,
	`www\.[\pL\pN]`,
	`[\pL\pN\pM\pS_-]\.[\pL\pM\pS_-]`,
	`[0-9]+\.[0-9]+\.[0-9]+\.[0-9]+`,
	`[\pL\pN]@[\pL\pN]`,
	`\b(mailto|tel|sms|javascript|data|file|https?):[\pL\pN/+]`,
	`//[\pL\pN]`,
	`\\\\`,
	"[a-z][\u2024\ufe52\uff0e\uff61\u3002][a-z]",
}, "|"))

// checkInert fails t where out could act on its reader.
func checkInert(t interface {
	Helper()
	Fatalf(string, ...any)
}, in, out string, newlines bool,
) {
	t.Helper()
	if !utf8.ValidString(out) {
		t.Fatalf("%q became invalid UTF-8: %q", in, out)
	}
	var before rune
	for _, r := range out {
		switch {
		case r == '\n' && newlines:
		case r == joiner:
			if before < 0xa9 || unicode.IsLetter(before) && before != '\u2139' {
				t.Fatalf("%q keeps a joiner behind %q: %q", in, before, out)
			}
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			t.Fatalf("%q keeps U+%04X: %q", in, r, out)
		case unicode.Is(unicode.Zs, r) && r != ' ':
			t.Fatalf("%q keeps the space U+%04X: %q", in, r, out)
		}
		before = r
	}
	if found := linked.FindString(out); found != "" {
		t.Fatalf("%q became %q, and %q looks like an address", in, out, found)
	}
}

// pieces are what hostile text is made of.
var pieces = rapid.SampledFrom([]string{
	"evil", "com", "example", "www", "http", "https", "mailto", "tel", "a", "b", "1", "23", "4567", "ä", "你", "。", "．", "｡", "․",
	".", "..", "...", ":", "/", "//", "://", "\\", "\\\\", "@", "＠", "[", "]", "[.]", "[://]", "(", ")", "-", "_", ",", "…", "€", "!", "%",
	" ", "\n", "\r\n", "\u2028", "\u00a0", "\t", "\u200b", "\u200c", "\u200d", "\u202e", "\ufeff", "\u00ad", "\x00", "\xff", "\xc3",
	"👩", "🏽", "💻", "❤", "\ufe0f", "\ufe0e", "\u20e3", "#", "🏴", "\U000E0067", "\u0301", "\u0600", "\u0d4e", "ℹ", "©", "क", "्",
})

func TestNoTextIsLeftThatActs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := strings.Join(rapid.SliceOfN(rapid.OneOf(pieces, rapid.String()), 0, 12).Draw(t, "pieces"), "")
		limit := rapid.IntRange(0, 30).Draw(t, "limit")
		once := Inert(in, limit)
		checkInert(t, in, once, false)
		if twice := Inert(once, limit); twice != once {
			t.Fatalf("%q becomes %q, and that %q", in, once, twice)
		}
		if limit > 0 && handoff.CutGraphemes(once, limit) != once {
			t.Fatalf("%q is longer than %d graphemes", once, limit)
		}
		lines := rapid.IntRange(0, 5).Draw(t, "lines")
		many := MultiLine(in, limit, lines)
		checkInert(t, in, many, true)
		if twice := MultiLine(many, limit, lines); twice != many {
			t.Fatalf("%q becomes %q, and that %q", in, many, twice)
		}
		if lines > 0 && strings.Count(many, "\n") >= lines {
			t.Fatalf("%q has more than %d lines", many, lines)
		}
	})
}

func FuzzInert(f *testing.F) {
	f.Add("https://evil.example bob@example.com 👩‍💻 1.2.3.4")
	f.Add("a\u200d\u202e.\xffb//c\\\\d")
	f.Fuzz(func(t *testing.T, in string) {
		once := Inert(in, 0)
		checkInert(t, in, once, false)
		if twice := Inert(once, 0); twice != once {
			t.Fatalf("%q becomes %q, and that %q", in, once, twice)
		}
		checkInert(t, in, MultiLine(in, 0, 0), true)
	})
}
