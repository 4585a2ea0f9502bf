package handoff

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// wantCode fails unless err has the code and its message names field.
func wantCode(t *testing.T, err error, code Code, field string) {
	t.Helper()
	if CodeOf(err) != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
	if !strings.Contains(err.Error(), field) {
		t.Fatalf("error %q does not name %q", err, field)
	}
}

func TestHandlesFollowTheGrammar(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a", "frank@acme", "Frank.O-Neil_2@Acme.io", "_bot", "7of9", "admin@acme", "me.too", "a@.b", strings.Repeat("a", 256)} {
		if got, err := ParseHandle(s); err != nil || got != s {
			t.Errorf("ParseHandle(%q) = %q, %v; want it as it came", s, got, err)
		}
	}
	for _, s := range []string{
		"", " a", "a ", "a\n", ".a", "-a", "@acme", "a@", "a@b@c", "a b", "a..b", "a@b..c", "é@acme", "frank/acme",
		"me", "ME", "Hub", "operator", "Admin", "person", "ANONYMOUS", strings.Repeat("a", 257),
		"019236d0-1111-7abc-8def-0123456789AB", "\u212Aim", "a\x00",
	} {
		_, err := ParseHandle(s)
		if err == nil {
			t.Errorf("ParseHandle(%q) accepted it", s)
			continue
		}
		wantCode(t, err, CodeInvalidParams, "handle")
	}
}

func TestTeammateHandleNeedsATeam(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"frank@acme": true, ".x@y": true, "Frank@ACME": true,
		"frank": false, "@acme": false, "frank@": false, "a@b@c": false, "frank@acme\n": false,
		strings.Repeat("a", 300) + "@b": false,
	} {
		if got := ValidTeammateHandle(s); got != want {
			t.Errorf("ValidTeammateHandle(%q) = %v", s, got)
		}
	}
}

func TestFoldingIsAsciiOnly(t *testing.T) {
	t.Parallel()
	if got := FoldHandle("Frank@ACME"); got != "frank@acme" {
		t.Errorf("got %q", got)
	}
	if FoldHandle("fran\u212A") == "frank" {
		t.Error("the Kelvin sign reached the handle with a k")
	}
}

func TestUnknownRecipientGetsNearMatches(t *testing.T) {
	t.Parallel()
	known := []string{"zoe@acme", "franka@acme", "Frank@Acme", "frank@globex", "frankie@acme", "bob@acme"}
	tests := map[string][]string{
		"frnak@acme": {"Frank@Acme", "franka@acme"},
		"FRANK@acme": {"Frank@Acme", "franka@acme"},
		"frank":      {"Frank@Acme", "frank@globex"},
		"bob@acmee":  {"bob@acme"},
		"nobody":     nil,
		"":           nil,
	}
	for want, near := range tests {
		if got := NearMatches(want, known, 2); !slices.Equal(got, near) {
			t.Errorf("NearMatches(%q) = %q, want %q", want, got, near)
		}
	}
	if got := NearMatches("frank@acme", known, 0); got != nil {
		t.Errorf("a limit of 0 gave %q", got)
	}
}

func TestNearMatchSuggestsTheFullNameOfAnEnumValue(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		"question":    "ask_question",
		"Propose":     "propose_action",
		"infrom":      "inform",
		"vissibility": "visibility",
	} {
		near := NearMatches(got, []string{"inform", "ask_question", "propose_action", "visibility"}, 1)
		if !slices.Equal(near, []string{want}) {
			t.Errorf("%q gave %q, want %q", got, near, want)
		}
	}
}

// plainDistance is the optimal string alignment distance, computed without shortcuts.
func plainDistance(a, b []rune) int {
	d := make([][]int, len(a)+1)
	for i := range d {
		d[i] = make([]int, len(b)+1)
		for j := range d[i] {
			switch {
			case i == 0 || j == 0:
				d[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				d[i][j] = d[i-1][j-1]
			default:
				d[i][j] = d[i-1][j-1] + 1
			}
			d[i][j] = min(d[i][j], d[i-1][j]+1, d[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}

func TestBandedDistanceEqualsThePlainOne(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 1, 14, -1)
		w := newNearWord(word.Draw(t, "want"))
		for _, other := range rapid.SliceOfN(word, 1, 4).Draw(t, "others") {
			w.other = []rune(other)
			got, want := w.edits(), plainDistance(w.runes, w.other)
			if min(got, w.within+1) != min(want, w.within+1) {
				t.Fatalf("%q to %q: got %d, want %d (within %d)", w.folded, other, got, want, w.within)
			}
		}
	})
}

func BenchmarkNearMatchesOfFiveThousand(b *testing.B) {
	known := make([]string, 5000)
	for i := range known {
		known[i] = fmt.Sprintf("agent-%04d@team-%d", i, i%7)
	}
	for b.Loop() {
		NearMatches("agnet-0042@team-0", known, 3)
	}
}
