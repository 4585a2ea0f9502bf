package secrecy

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"
)

func TestAMarkIsFoundInEveryFormInWhichItLeaks(t *testing.T) {
	t.Parallel()
	v := NewVault()
	v.Word("another")
	word, number := v.Word("it"), v.Number("it")
	each := func(text, format string) string {
		var b strings.Builder
		for _, r := range text {
			fmt.Fprintf(&b, format, r)
		}
		return b.String()
	}
	var float any
	if err := json.Unmarshal([]byte(number), &float); err != nil {
		t.Fatal(err)
	}
	wide := func(s string) string {
		var b strings.Builder
		for _, u := range utf16.Encode([]rune(s)) {
			b.WriteByte(byte(u))
			b.WriteByte(byte(u >> 8))
		}
		return b.String()
	}
	escaped := each(word, `\u%04X`)
	again, err := json.Marshal(escaped)
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]struct {
		text  string
		named bool // it can be told which mark it was
	}{
		"a text":                   {word, true},
		"a number":                 {number, true},
		"capitals":                 {strings.ToUpper(word), true},
		"JSON escapes":             {escaped, true},
		"JSON in JSON":             {string(again), true},
		"long escapes":             {each(word, `\U%08x`), true},
		"bytes of a language":      {each(word, `\x%02x`), true},
		"HTML, decimal":            {each(word, "&#%d;"), true},
		"HTML, hexadecimal":        {each(word, "&#x%X;"), true},
		"HTML of escapes":          {html.EscapeString(escaped), true},
		"an address":               {each(word, "%%%02X"), true},
		"an address of an address": {url.QueryEscape(each(word, "%%%02x")), true},
		"UTF-16":                   {wide(word), true},
		"hex":                      {hex.EncodeToString([]byte(word)), false},
		"hex in capitals":          {strings.ToUpper(hex.EncodeToString([]byte(number))), false},
		"its beginning":            {"prefix " + word[:12] + "…", false},
		"its end":                  {"…" + word[len(word)-12:], false},
		"a number's beginning":     {number[:12], false},
		"a rounded number":         {fmt.Sprint(float), false},
		"a rounded fraction":       {fmt.Sprintf("%.9f", 3.25) + " " + number[:1] + "." + number[1:10] + "e+29", false},
	}
	for pad := range 3 {
		for name, enc := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "base64 of addresses": base64.URLEncoding} {
			text := enc.EncodeToString([]byte(strings.Repeat("~", pad) + word + "~~~"))
			forms[fmt.Sprintf("%s behind %d", name, pad)] = struct {
				text  string
				named bool
			}{text, false}
			forms[fmt.Sprintf("%s behind %d, escaped", name, pad)] = struct {
				text  string
				named bool
			}{url.QueryEscape(text), false}
		}
	}
	for name, form := range forms {
		got := v.Search([]byte("before " + form.text + " after"))
		want := ""
		if form.named {
			want = "it"
		}
		if len(got) != 1 || got[0].Secret != want {
			t.Errorf("%s: found %v in %s", name, got, form.text)
		}
	}
}

func TestAPayloadIsFoundWhereverAPartOfItIs(t *testing.T) {
	t.Parallel()
	v := NewVault()
	text := v.JSON("it")
	if !json.Valid([]byte(text)) {
		t.Fatalf("%s", text)
	}
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	marked := 0
	for {
		token, err := dec.Token()
		if err != nil {
			break
		}
		if got := v.Search([]byte(fmt.Sprint(token))); len(got) == 1 && got[0].Secret == "it" {
			marked++
		}
	}
	if marked != 6 {
		t.Errorf("%d tokens are marked", marked)
	}
	for cut := 20; cut <= len(text); cut += 7 {
		if len(v.Search([]byte(text[:cut]))) == 0 {
			t.Errorf("its first %d bytes are not found", cut)
		}
	}
}

func TestWhatHoldsNoMarkIsInnocent(t *testing.T) {
	t.Parallel()
	v, other := NewVault(), NewVault()
	v.Word("it")
	for _, text := range []string{"", "%", `\u12`, "%zz &#; &#x110000;", other.JSON("it"), v.letters[:11], v.digits[:9], strings.Repeat("0123456789abcdef", 1000)} {
		if got := v.Search([]byte(text)); len(got) != 0 {
			t.Errorf("found %v in %s", got, text)
		}
	}
}
