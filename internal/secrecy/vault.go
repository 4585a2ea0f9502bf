// Package secrecy proves that the payload of an open handoff reaches its claimant and nobody else
// (domain: "Who sees what"), and results, feedback and reasons only those whom they concern. Its
// tests put marked texts into a hub and search everything that the hub says to anybody: tools,
// resources, prompts, pages, routes, the log, the metrics and what nodes tell each other. What there
// is to ask is read from the hub and its sources, so that a new output fails until it is covered.
package secrecy

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Vault makes marked texts and finds them again in whatever form they leak.
type Vault struct {
	// What every mark begins and ends with: twelve letters, and twelve digits.
	letters, digits string
	names           map[string]string // what stands between, by kind: the name of the secret
	// needles are what an encoding makes of letters or digits, with the name of the encoding.
	needles []needle
}

type needle struct {
	text []byte
	form string
}

// Trace is a mark that was found. Secret is empty where so little of it was left that it cannot be
// told which it was.
type Trace struct{ Secret, Form string }

// NewVault makes an empty one; the marks of two never resemble each other.
func NewVault() *Vault {
	v := &Vault{letters: random("abcdefghijklmnopqrstuvwxyz", 12), digits: random("123456789", 12), names: map[string]string{}}
	for _, mark := range []string{v.letters, v.digits} {
		v.needles = append(v.needles, needle{[]byte(hex.EncodeToString([]byte(mark))), "hex"})
		for pad := range 3 {
			for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
				v.needles = append(v.needles, needle{sure(enc, pad, mark), "base64"})
			}
		}
	}
	// A number that went through a float keeps its first digits.
	v.needles = append(v.needles, needle{[]byte(v.digits[:1] + "." + v.digits[1:10]), "a rounded number"})
	return v
}

// sure is the part of an encoding that only depends on mark, which begins pad bytes behind a
// multiple of three.
func sure(enc *base64.Encoding, pad int, mark string) []byte {
	text := enc.EncodeToString([]byte(strings.Repeat("x", pad) + mark))
	first := (pad*8 + 5) / 6
	last := (pad + len(mark)) * 8 / 6
	return []byte(text[first:last])
}

func random(alphabet string, n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	for i := range b {
		b[i] = alphabet[int(b[i])%len(alphabet)]
	}
	return string(b)
}

// Word is a mark for a text. Whole words of it are letters only, so no careful encoding alters it.
func (v *Vault) Word(secret string) string {
	return v.letters + v.name(secret, "qrstuvwxyz") + v.letters
}

// Number is a mark for a JSON number.
func (v *Vault) Number(secret string) string {
	return v.digits + v.name(secret, "1234567890") + v.digits
}

// name is the six characters of a secret in an alphabet.
func (v *Vault) name(secret, alphabet string) string {
	for id, s := range v.names {
		if s == secret && strings.Contains(alphabet, id[:1]) {
			return id
		}
	}
	for {
		id := random(alphabet, 6)
		if _, taken := v.names[id]; !taken {
			v.names[id] = secret
			return id
		}
	}
}

// JSON is a value that holds the mark of a secret wherever JSON can: as a name, a text, a text that
// was sent in escapes, a number, deep inside, among characters that encodings treat in their own way.
func (v *Vault) JSON(secret string) string {
	word, number := v.Word(secret), v.Number(secret)
	var escaped strings.Builder
	for _, r := range word {
		fmt.Fprintf(&escaped, `\u%04x`, r)
	}
	return `{"` + word + `":["` + escaped.String() + `",` + number + `,1.50,{"deep":[[{"n":-` + number + `.50}]],"<b>&'\"é ` + word + `\u2028":null}],"plain":"` + word + `"}`
}

// Search finds the marks in an output.
func (v *Vault) Search(output []byte) []Trace {
	found := map[Trace]bool{}
	for depth := 0; depth < 4; depth++ {
		v.searchIn(output, found)
		clear := decoded(output)
		if bytes.Equal(clear, output) {
			break
		}
		output = clear
	}
	list := make([]Trace, 0, len(found))
	for t := range found {
		list = append(list, t)
	}
	slices.SortFunc(list, func(a, b Trace) int { return strings.Compare(a.Secret+" "+a.Form, b.Secret+" "+b.Form) })
	return list
}

func (v *Vault) searchIn(output []byte, found map[Trace]bool) {
	folded := bytes.ToLower(output)
	for _, mark := range []string{v.letters, v.digits} {
		for rest, at := folded, 0; ; {
			i := bytes.Index(rest, []byte(mark))
			if i < 0 {
				break
			}
			at += i
			found[Trace{v.nameAt(folded, at, len(mark)), "plain"}] = true
			at += len(mark)
			rest = folded[at:]
		}
	}
	for _, n := range v.needles {
		in := output
		if n.form == "hex" {
			in = folded
		}
		if bytes.Contains(in, n.text) {
			found[Trace{"", n.form}] = true
		}
	}
}

// nameAt tells which secret the mark at a place is of: its name stands behind, or before.
func (v *Vault) nameAt(output []byte, at, length int) string {
	if end := at + length + 6; end <= len(output) {
		if name, ok := v.names[string(output[at+length:end])]; ok {
			return name
		}
	}
	if at >= 6 {
		return v.names[string(output[at-6:at])]
	}
	return ""
}

var escape = regexp.MustCompile(`\\+(u\{?[0-9a-fA-F]{4,6}\}?|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2})`)

// decoded undoes one layer of what JSON, HTML, addresses and other programming languages make of
// characters.
func decoded(output []byte) []byte {
	text := string(bytes.ReplaceAll(output, []byte{0}, nil)) // UTF-16 of plain letters
	text = escape.ReplaceAllStringFunc(text, func(s string) string {
		s = strings.Trim(strings.TrimLeft(s, `\`)[1:], "{}")
		n, err := strconv.ParseUint(s, 16, 32)
		if err != nil {
			return s
		}
		return string(rune(n))
	})
	text = html.UnescapeString(text)
	if strings.Contains(text, "%") {
		text = percent.ReplaceAllStringFunc(text, func(s string) string {
			c, err := url.PathUnescape(s)
			if err != nil {
				return s
			}
			return c
		})
	}
	return []byte(text)
}

var percent = regexp.MustCompile(`%[0-9a-fA-F]{2}`)
