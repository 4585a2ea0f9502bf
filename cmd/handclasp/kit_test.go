package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/restapi"
)

// asProgram in the environment makes this test binary the program itself, for tests that need
// processes; with the value tied, one that ends with its stdin, that is, with the tests.
const (
	asProgram = "RUN_AS_HANDCLASP"
	tied      = "tied"
)

func TestMain(m *testing.M) {
	as := os.Getenv(asProgram)
	if as == "" {
		os.Exit(hubtest.Main(m))
	}
	if as == tied && os.Args[1] == "serve" { // stdio processes end with their stdin anyway
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
	}
	main()
}

// program is one run of the command line.
type program struct {
	stdout, stderr bytes.Buffer
	code           int
}

func runProgram(ctx context.Context, args ...string) *program {
	p := &program{}
	p.code = run(ctx, args, strings.NewReader(""), &p.stdout, &p.stderr)
	return p
}

func runWithInput(stdin string, args ...string) *program {
	p := &program{}
	p.code = run(context.Background(), args, strings.NewReader(stdin), &p.stdout, &p.stderr)
	return p
}

// ok runs the program and fails the test unless it succeeds.
func ok(t *testing.T, args ...string) *program {
	t.Helper()
	p := runProgram(context.Background(), args...)
	if p.code != 0 {
		t.Fatalf("%v: exit %d, %s", args, p.code, p.stderr.String())
	}
	return p
}

// mustRun runs a command that must succeed without a word on stderr, and gives what it prints.
func mustRun(t *testing.T, args ...string) string {
	t.Helper()
	p := ok(t, args...)
	if p.stderr.Len() > 0 {
		t.Fatalf("%q: %s", args, p.stderr.String())
	}
	return p.stdout.String()
}

// runJSON runs a command with --json, which must print one document of that type and nothing else.
func runJSON[T any](t *testing.T, args ...string) (out T) {
	t.Helper()
	oneDocument(t, mustRun(t, append(args, "--json")...), &out)
	return out
}

// oneDocument reads what a command printed with --json.
func oneDocument(t *testing.T, text string, out any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		t.Fatalf("more than one document: %s", text)
	}
}

// refused runs the program and wants one sentence that says so, exit 1 or 2, and nothing on stdout.
func refused(t *testing.T, code int, says string, args ...string) {
	t.Helper()
	p := runProgram(context.Background(), args...)
	if text := p.stderr.String(); p.code != code || !strings.Contains(text, says) || strings.Count(text, "\n") != 1 || p.stdout.Len() > 0 {
		t.Errorf("%v: exit %d, want %d saying %q:\n%s%s", args, p.code, code, says, text, p.stdout.String())
	}
}

func (p *program) wants(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if p.code != 0 || !strings.Contains(p.stdout.String(), text) {
			t.Errorf("exit %d, %q is missing in:\n%s%s", p.code, text, p.stdout.String(), p.stderr.String())
		}
	}
}

// startServe runs serve until the test ends and gives its address.
func startServe(t *testing.T, args ...string) (url string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		code := run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...), strings.NewReader(""), io.Discard, w)
		_ = w.Close()
		done <- code
	}()
	t.Cleanup(func() {
		cancel()
		if code := <-done; code != 0 {
			t.Errorf("serve ended with %d", code)
		}
	})
	line := make([]byte, 256)
	n, err := r.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	url, ok := strings.CutPrefix(strings.TrimSpace(string(line[:n])), "listening on ")
	if !ok {
		t.Fatalf("serve said %q", line[:n])
	}
	return url
}

// where is a database of either kind as flags of the command line.
func where(t *testing.T, kind string) []string {
	t.Helper()
	if kind == "postgres" {
		return []string{"--database-url", hubtest.PostgresURL(t)}
	}
	return []string{"--data", filepath.Join(t.TempDir(), "hub")}
}

// withAgents makes a folder with agents and gives their keys.
func withAgents(t *testing.T, handles ...string) (data string, keys map[string]string) {
	t.Helper()
	data = filepath.Join(t.TempDir(), "hub")
	return data, aHub(t, []string{"--data", data}, handles...)
}

// aHub makes a hub with agents at the place that the flags name, and gives their keys.
func aHub(t *testing.T, place []string, handles ...string) (keys map[string]string) {
	t.Helper()
	keys = map[string]string{}
	for _, handle := range handles {
		keys[handle] = runJSON[restapi.NewKey](t, append([]string{"agent", "add", handle}, place...)...).APIKey
	}
	return keys
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantOnly wants exactly these files in a folder.
func wantOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("in %s are %v, want %v", dir, names, want)
	}
}
