// Package archtest keeps the rooms of this program apart: it reads the imports of every package
// and fails on one that the table in docs/architecture.md does not allow.
package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "handclasp"

// rooms says for each package of the program which others of ours it may import. The same table,
// with what each room is for, stands in docs/architecture.md: change both together.
var rooms = map[string][]string{
	"internal/handoff":   {},
	"internal/telemetry": {},
	"internal/config":    {},
	"internal/owner":     {},
	"internal/bridge":    {"internal/handoff"},
	"internal/auth":      {"internal/handoff"},
	"internal/notify":    {"internal/handoff"},
	"internal/store":     {"internal/handoff", "internal/telemetry"},
	"internal/hub":       {"internal/handoff", "internal/store", "internal/auth", "internal/telemetry"},
	"internal/outbox":    {"internal/handoff", "internal/hub", "internal/notify", "internal/telemetry"},

	"internal/mcpserver": doorMay,
	"internal/a2aserver": doorMay,
	"internal/relaywire": doorMay,
	"internal/restapi":   doorMay,
	"internal/webui":     doorMay,

	"internal/httpserver": append([]string{"internal/auth", "internal/telemetry", "internal/hub"}, doors...),
}

// doors translate a protocol into calls of the hub, and the answers back.
var doors = []string{
	"internal/mcpserver", "internal/a2aserver", "internal/relaywire", "internal/restapi", "internal/webui",
}

// doorMay is all that a door needs; what it lacks is a method of the hub.
var doorMay = []string{"internal/handoff", "internal/hub"}

// mains wire the rooms together and may import any of them, but none of the tooling: test kits
// do not belong into the program that people run.
var mains = []string{"cmd/handclasp"}

// tooling tests and measures the program, and may import all of it. A folder below one of these
// belongs to it.
var tooling = []string{
	"internal/archtest", "internal/bench", "internal/conformance", "internal/hubtest", "internal/interop", "internal/poolmodel", "internal/secrecy", "internal/soak",
}

// outside lists what a pure room may import besides the standard library (a path and what is
// below it). Rooms without an entry choose their own dependencies.
var outside = map[string][]string{
	"internal/handoff": {"golang.org/x/text", "github.com/rivo/uniseg"},
}

// pkg is the part of one document of `go list -json` that this test needs. Imports leaves out
// those of test files on purpose: a test of a door may build a whole hub.
type pkg struct {
	ImportPath string
	Imports    []string
}

func TestEveryImportIsAllowedByTheRoomsTable(t *testing.T) {
	t.Parallel()
	// The soak tests stand behind a build tag, which hides their packages from a plain list.
	for _, tags := range []string{"", "soak"} {
		pkgs := list(t, tags)
		if len(pkgs) < 2 {
			t.Fatalf("go list -tags %q ./... names %d packages; is this the module %s?", tags, len(pkgs), module)
		}
		for _, violation := range check(pkgs) {
			t.Error(violation)
		}
	}
}

func TestForbiddenImportsAreNamed(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, from, imports, want string
	}{
		{"a door and the store", "internal/mcpserver", "handclasp/internal/store", "internal/mcpserver must not import internal/store"},
		{"a door and a sender", "internal/webui", "handclasp/internal/notify", "internal/webui must not import internal/notify"},
		{"two doors", "internal/restapi", "handclasp/internal/webui", "internal/restapi must not import internal/webui"},
		{"a door and the hub", "internal/mcpserver", "handclasp/internal/hub", ""},
		{"the core upwards", "internal/handoff", "handclasp/internal/hub", "internal/handoff must not import internal/hub"},
		{"the core and a driver", "internal/handoff", "github.com/jackc/pgx/v5", "internal/handoff must not import github.com/jackc/pgx/v5"},
		{"the core and a name that only begins alike", "internal/handoff", "golang.org/x/textual", "internal/handoff must not import golang.org/x/textual"},
		{"the core and text", "internal/handoff", "golang.org/x/text/unicode/norm", ""},
		{"the core and the standard library", "internal/handoff", "encoding/json", ""},
		{"the store and a driver", "internal/store", "github.com/jackc/pgx/v5", ""},
		{"the store upwards", "internal/store", "handclasp/internal/hub", "internal/store must not import internal/hub"},
		{"a room and the test kit", "internal/hub", "handclasp/internal/hubtest", "internal/hub must not import internal/hubtest"},
		{"the program and a room", "cmd/handclasp", "handclasp/internal/store", ""},
		{"the program and the test kit", "cmd/handclasp", "handclasp/internal/hubtest", "cmd/handclasp must not import internal/hubtest"},
		{"tooling and anything", "internal/soak/kill", "handclasp/internal/store", ""},
		{"a package without a line", "internal/misc", "fmt", "internal/misc is not in the rooms table"},
		{"a package below a room", "internal/store/sqlite", "fmt", "internal/store/sqlite is not in the rooms table"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(check([]pkg{{ImportPath: module + "/" + tt.from, Imports: []string{tt.imports}}}), "\n")
			if tt.want == "" && got != "" || !strings.HasPrefix(got, tt.want) {
				t.Errorf("%s imports %s: got %q, want %q", tt.from, tt.imports, got, tt.want)
			}
		})
	}
}

// check returns one sentence for each import, or package, that the tables above do not allow.
func check(pkgs []pkg) []string {
	var violations []string
	for _, p := range pkgs {
		room := strings.TrimPrefix(p.ImportPath, module+"/")
		allowed, known := allowance(room)
		if !known {
			violations = append(violations, fmt.Sprintf(
				"%s is not in the rooms table: give it a line in docs/architecture.md and in internal/archtest, or move its code into a room that exists", room))
			continue
		}
		for _, imported := range p.Imports {
			target, ours := strings.CutPrefix(imported, module+"/")
			if ours && !allowed(target) {
				may := "any room, but no test kit or tool"
				if list, isRoom := rooms[room]; isRoom {
					may = choice(list)
				}
				violations = append(violations, fmt.Sprintf(
					"%s must not import %s: of this module it may import %s (docs/architecture.md, Rooms)", room, target, may))
			}
			if extra, pure := outside[room]; pure && !ours && !standard(imported) && !within(imported, extra) {
				violations = append(violations, fmt.Sprintf(
					"%s must not import %s: it is pure, the standard library and %s are all it may use", room, imported, choice(extra)))
			}
		}
	}
	return violations
}

// allowance returns which packages of ours a room may import; known is false for a package that
// has no place in the tables.
func allowance(room string) (allowed func(target string) bool, known bool) {
	list, isRoom := rooms[room]
	switch {
	case isRoom:
		return func(target string) bool { return slices.Contains(list, target) }, true
	case slices.Contains(mains, room):
		return func(target string) bool { return !within(target, tooling) }, true
	case within(room, tooling):
		return func(string) bool { return true }, true
	}
	return nil, false
}

// within reports whether path is one of roots or below one.
func within(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool {
		return path == root || strings.HasPrefix(path, root+"/")
	})
}

// standard reports whether an import path belongs to the standard library: only those have no
// dot in their first element.
func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

// choice words a list for a sentence.
func choice(list []string) string {
	if len(list) == 0 {
		return "nothing"
	}
	return strings.Join(list, ", ")
}

// list asks the go command for every package of the module. With -e it lists packages that do
// not compile too: that is for the compiler to say, and no reason to miss a forbidden import.
func list(t *testing.T, tags string) []pkg {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-json=ImportPath,Imports", "-tags", tags, "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			return pkgs
		}
		if err != nil {
			t.Fatalf("go list printed something else than JSON: %v", err)
		}
		pkgs = append(pkgs, p)
	}
}
