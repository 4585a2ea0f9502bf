package handoff

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func TestProjectRootsAreNormalisedLexically(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, display, comparison string }{
		{"/", "/", "/"},
		{"/srv/app", "/srv/app", "/srv/app"},
		{"//srv///app/./x/../", "/srv/app", "/srv/app"},
		{"/../..", "/", "/"},
		{`/home/a\b`, `/home/a\b`, `/home/a\b`}, // a backslash is a letter there
		{"/mnt/c/Users/Ann", "/mnt/c/Users/Ann", "/mnt/c/Users/Ann"},
		{"/cafe\u0301", "/caf\u00e9", "/caf\u00e9"},
		{`c:\Users\Ann`, `C:\Users\Ann`, `c:\users\ann`},
		{`C:/Users//Ann/.\x\..\`, `C:\Users\Ann`, `c:\users\ann`},
		{`C:\`, `C:\`, `c:\`},
		{`c:/..`, `C:\`, `c:\`},
		{`\\?\C:\Users\Ann`, `C:\Users\Ann`, `c:\users\ann`},
		{`D:\Straße\İı`, `D:\Straße\İı`, `d:\straße\İı`},
		{`\\Server\Share`, `\\Server\Share`, `\\Server\Share`},
		{`\\Server/Share\\a\..\b\`, `\\Server\Share\b`, `\\Server\Share\b`},
		{`\\Server\Share\..\..`, `\\Server\Share`, `\\Server\Share`},
		{`\\?\UNC\Server\Share\a`, `\\Server\Share\a`, `\\Server\Share\a`},
		{`\\wsl$\Ubuntu\home\Ann`, `\\wsl$\Ubuntu\home\Ann`, `\\wsl$\Ubuntu\home\Ann`},
		{"git+https://Host/org/Repo/", "git+https://Host/org/Repo", "git+https://Host/org/Repo"},
		{"https://host//a/./b/../c?ref=x/../y#z", "https://host/a/c?ref=x/../y#z", "https://host/a/c?ref=x/../y#z"},
		{"https://host", "https://host", "https://host"},
		{"https://host/..", "https://host", "https://host"},
		{"ssh://git@host/repo", "ssh://git@host/repo", "ssh://git@host/repo"},
		{"file:///srv/app", "file:///srv/app", "file:///srv/app"},
	}
	for _, test := range tests {
		display, comparison, err := NormalizeProjectRoot(test.in)
		if err != nil || display != test.display || comparison != test.comparison {
			t.Errorf("%q gave %q, %q, %v; want %q, %q", test.in, display, comparison, err, test.display, test.comparison)
		}
	}
}

func TestRelativeOrEmptyProjectRootIsUnresolved(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", " ", ".", "app", "./app", "../app", "~/app", "$HOME/app", " /app", `C:`, `C:app`, `\app`, `\\server`, `\\`,
		`\\.\C:\app`, `\\?\Volume{1}\x`, `\\..\share`, "git@host:org/repo", "://x", "https://", "https:///", "mailto:x", "x:y",
	} {
		_, _, err := NormalizeProjectRoot(s)
		if err == nil {
			t.Errorf("%q was accepted", s)
			continue
		}
		wantCode(t, err, CodeWorkspaceUnresolved, "project_root")
	}
	_, _, err := NormalizeProjectRoot("/a\x00")
	wantCode(t, err, CodeInvalidParams, "project_root")
	_, _, err = NormalizeProjectRoot("/\xff")
	wantCode(t, err, CodeInvalidParams, "project_root")
	_, _, err = NormalizeProjectRoot("/" + strings.Repeat("a", 4096))
	wantCode(t, err, CodeContentTooLarge, "project_root")
}

func TestPasswordInAProjectRootIsRefusedAndNotRepeated(t *testing.T) {
	t.Parallel()
	_, _, err := NormalizeProjectRoot("https://ann:s3cret@host/repo")
	wantCode(t, err, CodeWorkspaceUnresolved, "password")
	if strings.Contains(err.Error(), "s3cret") {
		t.Errorf("the error repeats the password: %v", err)
	}
}

func TestTwoSpellingsOfOneDriveAreOneWorkspace(t *testing.T) {
	t.Parallel()
	id := func(root string) string {
		_, comparison, err := NormalizeProjectRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		return WorkspaceID(comparison)
	}
	if id(`C:\Dev\App`) != id(`c:/dev/app/`) {
		t.Error("two spellings of one drive path are two workspaces")
	}
	if id(`C:\Σίσυφος`) != id(`C:\ΣΊΣΥΦΟΣ`) || id("C:/J\u030c") != id("C:/\u01f0") {
		t.Error("folding misses letters that have three forms or compose in one case only")
	}
	if id("/mnt/c/Dev") == id("/mnt/c/dev") || id(`\\wsl$\Ubuntu\Dev`) == id(`\\wsl$\Ubuntu\dev`) {
		t.Error("two directories of WSL are one workspace")
	}
	// printf /srv/app | sha256sum | cut -c1-32
	if got := id("/srv/app"); got != "dae668e4084f07b6cb946fb2809f0f82" {
		t.Errorf("got %q", got)
	}
}

func TestNormalisingTwiceChangesNothing(t *testing.T) {
	t.Parallel()
	head := rapid.SampledFrom([]string{"/", "//", `C:\`, "z:/", `\\`, `\\?\`, `\\?\UNC\`, `\\srv\share\`, "https://", "git+ssh://Host/", ""})
	piece := rapid.SampledFrom([]string{
		"a", "B", ".", "..", "...", "/", `\`, "//", "?", "#", "@", ":", "é", "e\u0301", "\u0301", "\u212a", "ß", "ẞ", "ı", "İ", "Σ", "ς",
		"α\u0345", "\u0345", "ſ", "ﬃ", "Ǆ", "ǅ", "한", "ᄒ", "ᅡ", "\u1e9e", "C:", "UNC", " ",
	})
	rapid.Check(t, func(t *rapid.T) {
		root := head.Draw(t, "head") + strings.Join(rapid.SliceOfN(piece, 0, 10).Draw(t, "pieces"), "")
		if rapid.Bool().Draw(t, "anything") {
			root = head.Draw(t, "head") + rapid.String().Draw(t, "rest")
		}
		display, comparison, err := NormalizeProjectRoot(root)
		if err != nil {
			return
		}
		if !norm.NFC.IsNormalString(display) || !norm.NFC.IsNormalString(comparison) {
			t.Fatalf("%q is not NFC", display)
		}
		again, compared, err := NormalizeProjectRoot(display)
		if err != nil || again != display || compared != comparison {
			t.Fatalf("%q: display %q became %q (%q, was %q), %v", root, display, again, compared, comparison, err)
		}
		if _, compared, err = NormalizeProjectRoot(comparison); err != nil || compared != comparison {
			t.Fatalf("%q: comparison %q became %q, %v", root, comparison, compared, err)
		}
	})
}
