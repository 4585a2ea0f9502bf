package handoff

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/text/unicode/norm"
)

// wantRefusal fails the test unless err is a refusal of one of the codes that names the field, and is
// itself fit to be shown.
func wantRefusal(t *testing.T, err error, field string, codes ...Code) {
	t.Helper()
	if !slices.Contains(codes, CodeOf(err)) || !strings.HasPrefix(messageOf(err), field) {
		t.Fatalf("refused with %v", err)
	}
	if text := err.Error(); len(text) > 4000 || !utf8.ValidString(text) {
		t.Fatalf("the refusal is %d bytes of valid UTF-8 (%v): %.200q", len(text), utf8.ValidString(text), text)
	}
}

func messageOf(err error) string { return err.(*Error).Message } //nolint:errorlint // a refusal of ours is not wrapped

func FuzzParseTarget(f *testing.F) {
	for _, raw := range []string{
		`{"strategy":"direct","agent_id":"frank@acme"}`,
		`{"strategy":"capability","capability":["a","b"]}`,
		`{"strategy":"role","role":"reviewer"}`,
		`{"strategy":"tag","selector":{"team":["ENG","ops"],"area":"eu"}}`,
		`{"strategy":"tag","selector":[{"key":"team","operator":"NotIn","values":["ENG/BACKEND"]},{"key":"a","operator":"Exists"}]}`,
		`{"strategy":"broadcast"}`,
		`{"strategy":"mixed","rules":[{"strategy":"role","role":"r"},{"strategy":"mixed","rules":[{"strategy":"direct","agent_id":"a"}]}]}`,
		`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":6e1,"fallback":{"strategy":"capability","capability":"go"}}`,
		`{"strategy":"direct_with_fallback","agent_id":"a","fallback_after_seconds":1}`,
		`{"strategy":"tag","selector":{"=":["/","=/"]}}`,
		`{"strategy":"role","role":"\ud800"}`, `{"strategy":"role","role":"\u2028<\u0000"}`, `{"strategy":"Direct"}`, `[[[[`, `{"strategy":"broadcast","strategy":"broadcast"}`,
		nested(5), ruleList(40), flatKeys(20),
	} {
		f.Add([]byte(raw), "Frank@Acme", "reviewer", "team", "ENG/BACKEND/go")
	}
	f.Fuzz(func(t *testing.T, raw []byte, handle, role, key, value string) {
		target, err := ParseTarget(raw, DefaultLimits())
		if err != nil {
			wantRefusal(t, err, "target", CodeInvalidParams, CodeContentTooLarge)
			return
		}
		canonical, err := json.Marshal(target)
		if err != nil {
			t.Fatal(err)
		}
		for what, lim := range map[string]Limits{"the same limits": DefaultLimits(), "none": {}} {
			again, err := ParseTarget(canonical, lim)
			if err != nil || cmp.Diff(target, again, cmp.AllowUnexported(Target{})) != "" {
				t.Fatalf("%s became %s, which with %s is %v", raw, canonical, what, err)
			}
		}
		if keys := target.Keys(); len(keys) == 0 || !slices.IsSorted(keys) || slices.Contains(keys, "") {
			t.Fatalf("%s has the keys %q", canonical, keys)
		}
		for _, a := range near(target, &Agent{ID: "id", Handle: handle, Role: role, Tags: map[string][]string{key: {value}}}) {
			wantFound(t, target, a)
		}
	})
}

// near are agents that a target may well match: the given one, and it with the names that the target
// names.
func near(target *Target, a *Agent) []*Agent {
	agents := []*Agent{a}
	vary := func(change func(*Agent)) {
		b := *a
		change(&b)
		agents = append(agents, &b)
	}
	all := Agent{ID: a.ID, Handle: a.Handle, Role: a.Role, Tags: map[string][]string{}}
	var walk func(*Target)
	walk = func(t *Target) {
		if t == nil {
			return
		}
		vary(func(b *Agent) { b.Handle = strings.ToUpper(t.AgentID) })
		vary(func(b *Agent) { b.ID = t.AgentID })
		vary(func(b *Agent) { b.Role = t.Role })
		all.Capabilities = append(all.Capabilities, t.Capabilities...)
		for _, name := range t.Capabilities {
			vary(func(b *Agent) { b.Capabilities = []string{name} })
		}
		for _, r := range t.Selector {
			for _, value := range r.Values {
				below := []string{value + "/" + a.Role, value + a.Role}
				vary(func(b *Agent) { b.Tags = map[string][]string{r.Key: below} })
				all.Tags[r.Key] = append(all.Tags[r.Key], below[0])
			}
		}
		for _, rule := range t.Rules {
			walk(rule)
		}
		walk(t.Fallback)
	}
	walk(target)
	return append(agents, &all)
}

// wantFound: whom a target matches, the index leads to it.
func wantFound(t *testing.T, target *Target, a *Agent) {
	t.Helper()
	open, closed := target.Matches(a, true), target.Matches(a, false)
	if closed && !open {
		t.Fatalf("an open fallback keeps %+v out", a)
	}
	if (open || target.NamesDirectly(a)) && !slices.ContainsFunc(AgentKeys(a), func(key string) bool { return slices.Contains(target.Keys(), key) }) {
		t.Fatalf("the keys %q of %+v miss those of the target, %q", AgentKeys(a), a, target.Keys())
	}
	indexed, scan := SplitScan(AgentKeys(a))
	if len(indexed)+len(scan) != len(AgentKeys(a)) || !slices.Equal(scan, []string{"scan"}) {
		t.Fatalf("%q is parted into %q and %q", AgentKeys(a), indexed, scan)
	}
}

func FuzzNormalizeProjectRoot(f *testing.F) {
	for _, root := range []string{
		"/", "//srv///app/./x/../", "/../..", `C:\Users\Ann`, "c:/users//ann/..", `C:`, `C:app`, `\\server\share\a`, `\\server/share\..\..`, `\\.\C:\x`, `\\?\c:\x`, `\\?\UNC\srv\share\a`, `\\?\Volume{1}\x`,
		"git+https://host/org/repo", "https://ann:secret@host/x", "file:///srv", "https://", "app", "../app", "~/app", "", " /x", "/e\u0301", "C:/J\u030c", `D:\Straße\İıſK`, "/\xff", "/a\x00", "/a\n\u202e",
		"/" + strings.Repeat("\ufb2c", 1000), `C:\` + strings.Repeat("Ⱥ", 1500),
	} {
		f.Add(root)
	}
	f.Fuzz(func(t *testing.T, root string) {
		display, comparison, err := NormalizeProjectRoot(root)
		if err != nil {
			wantRefusal(t, err, "project_root", CodeWorkspaceUnresolved, CodeInvalidParams, CodeContentTooLarge)
			if display != "" || comparison != "" {
				t.Fatalf("refused and given as %q, %q", display, comparison)
			}
			return
		}
		same := func(what, spelling string) {
			t.Helper()
			again, compared, err := NormalizeProjectRoot(spelling)
			if len(spelling) <= maxProjectRoot && (err != nil || compared != comparison) {
				t.Fatalf("%.300q is %.300q; %s, %.300q, is %.300q (%v), compared as %.300q and %.300q", root, display, what, spelling, again, err, comparison, compared)
			}
		}
		if !utf8.ValidString(display) || !norm.NFC.IsNormalString(display) || !norm.NFC.IsNormalString(comparison) || len(display) > maxProjectRoot {
			t.Fatalf("%.300q is shown as %.300q and compared as %.300q", root, display, comparison)
		}
		if again, _, err := NormalizeProjectRoot(display); err != nil || again != display {
			t.Fatalf("%q is %q and then %q (%v)", root, display, again, err)
		}
		same("as it is shown", display)
		same("as it is compared", comparison)
		same("decomposed", norm.NFD.String(root))
		top, separator := rootOf(display)
		if !strings.HasPrefix(display, top) {
			t.Fatalf("%q is %q and not below %q", root, display, top)
		}
		if separator == "" {
			return // a URI: what is behind a query is no path
		}
		for _, segment := range strings.Split(strings.Trim(display[len(top):], separator), separator) {
			if segment == "." || segment == ".." || segment == "" && strings.Trim(display[len(top):], separator) != "" {
				t.Fatalf("%q is %q", root, display)
			}
		}
		same("with a separator behind", display+separator)
		same("with a detour", display+separator+"."+separator+"x"+separator+".."+separator)
		climb := display + strings.Repeat(separator+"..", strings.Count(display, separator)+3)
		if got, _, err := NormalizeProjectRoot(climb); len(climb) <= maxProjectRoot && (err != nil || got != top) {
			t.Fatalf("above %q lies %q (%v), want %q", display, got, err, top)
		}
		if separator == `\` {
			same("with slashes", display[:2]+strings.ReplaceAll(display[2:], `\`, "/"))
		}
		if len(top) == 3 && top[1] == ':' {
			same("of the other case", swapCase(display))
			same("as a long path", `\\?\`+display)
		}
	})
}

// rootOf is what a normalised path never climbs above, and its separator; none for a URI.
func rootOf(display string) (top, separator string) {
	switch {
	case strings.HasPrefix(display, "/"):
		return "/", "/"
	case driveRoot.MatchString(display):
		return display[:3], `\`
	case strings.HasPrefix(display, `\\`):
		return `\\` + strings.Join(strings.SplitN(display[2:], `\`, 3)[:2], `\`), `\`
	}
	scheme, rest, _ := strings.Cut(display, "://")
	authority, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + authority, ""
}

// swapCase turns small ASCII letters into large ones and the other way round.
func swapCase(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r ^ 0x20
		}
		return r
	}, s)
}

func FuzzParseVerifyBy(f *testing.F) {
	for _, raw := range []string{
		``, `null`, ` null `, `{"kind":"creator"}`, `{"kind":"agent","agent_id":"A@b"}`, `{"kind":"capability","capability":"review"}`, `{"kind":"capability","capability":["review"]}`,
		`{"kind":"creator","agent_id":null}`, `{"kind":"Agent"}`, `{"kind":"agent","agent_id":" "}`, `"creator"`, `{"kind":"creator","kind":"agent"}`, `{"kind":"agent","agent_id":"\ud800"}`, `{"kind":7}`, `nul`,
	} {
		f.Add([]byte(raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := ParseVerifyBy(raw, DefaultLimits())
		if err != nil {
			wantRefusal(t, err, "verify_by", CodeInvalidParams, CodeContentTooLarge)
			return
		}
		if !slices.Contains(verifyByKinds, string(v.Kind)) || (v.AgentID != "") != (v.Kind == VerifyByAgent) || (v.Capability != "") != (v.Kind == VerifyByCapability) {
			t.Fatalf("%q is %+v", raw, v)
		}
		canonical, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseVerifyBy(canonical, DefaultLimits()); err != nil || *again != *v {
			t.Fatalf("%q is %s and then %+v (%v)", raw, canonical, again, err)
		}
	})
}

func FuzzParseCriteria(f *testing.F) {
	for _, list := range []string{"it works", "a|b|c", "a| a", "a|", "|", " |\t", "é|e\u0301", "a\x00|b", "\xff", strings.Repeat("x|", 21), strings.Repeat("é", 501), strings.Repeat("é", 500) + "|" + strings.Repeat("🤝", 500)} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		list := strings.Split(joined, "|")
		fits, seen := len(list) <= 20, map[string]bool{}
		for _, c := range list {
			trimmed := strings.TrimSpace(c)
			fits = fits && trimmed != "" && !seen[trimmed] && utf8.ValidString(c) && !strings.Contains(c, "\x00") && utf8.RuneCountInString(c) <= 500
			seen[trimmed] = true
		}
		got, err := ParseCriteria(list, DefaultLimits())
		if (err == nil) != fits {
			t.Fatalf("%q gave %v", list, err)
		}
		if err != nil {
			wantRefusal(t, err, "acceptance_criteria", CodeInvalidParams)
		} else if !slices.Equal(got, list) {
			t.Fatalf("%q became %q", list, got)
		}
	})
}
