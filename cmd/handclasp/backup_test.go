package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/config"
	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
	"handclasp/internal/store"
)

func TestAHubMovesFromOneDatabaseToTheOtherWithItsAgents(t *testing.T) {
	t.Parallel()
	for _, from := range hubtest.Kinds() {
		for _, to := range hubtest.Kinds() {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				file := filepath.Join(t.TempDir(), "hub.backup")
				at := where(t, from)
				ok(t, append([]string{"agent", "add", "anna@acme", "--capability", "deploy"}, at...)...)
				made := runJSON[saved](t, append([]string{"backup", file}, at...)...)
				info, err := os.Stat(file)
				if err != nil || info.Mode().Perm() != 0o600 || info.Size() != made.Bytes || made.Tables["agents"] != 1 || made.Database != from || made.Schema != store.SchemaVersion {
					t.Errorf("%v, %+v", err, made)
				}
				wantOnly(t, filepath.Dir(file), "hub.backup")

				there := where(t, to)
				restored := runJSON[saved](t, append([]string{"restore", file}, there...)...)
				if restored.Rows != made.Rows || restored.CreatedAt != made.CreatedAt || restored.Database != from {
					t.Errorf("restored %+v of %+v", restored, made)
				}
				if out := ok(t, append([]string{"agent", "list"}, there...)...).stdout.String(); !strings.Contains(out, "anna@acme") {
					t.Errorf("the agents are\n%s", out)
				}
				refused(t, 1, "new database only", append([]string{"restore", file}, there...)...)
				startServe(t, there...)
			})
		}
	}
}

func TestABackupIsTakenFromTheHubThatServes(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := where(t, kind)
			startServe(t, at...)
			ok(t, append([]string{"agent", "add", "anna@acme"}, at...)...)
			p := ok(t, append([]string{"backup", "-"}, at...)...)
			info, err := store.CheckBackup(&p.stdout, nil)
			if err != nil || info.Rows["agents"] != 1 || info.Program != version() || p.stderr.Len() > 0 {
				t.Errorf("%v, %+v, %s", err, info, p.stderr.String())
			}
			file := filepath.Join(t.TempDir(), "hub.backup")
			ok(t, append([]string{"backup", file}, at...)...)
			if kind == "sqlite" {
				refused(t, 1, "in use by process", append([]string{"restore", file}, at...)...)
			} else {
				refused(t, 1, "new database only", append([]string{"restore", file}, at...)...)
			}
		})
	}
}

func TestAFileIsReplacedOnlyWithForceAndOnlyByAWholeOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := where(t, "sqlite")
	file := filepath.Join(dir, "hub.backup")
	ok(t, append([]string{"agent", "add", "anna@acme"}, at...)...)
	writeFile(t, file, "something else")
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	refused(t, 1, "replace it with --force", append([]string{"backup", file}, at...)...)
	refused(t, 1, "replace it with --force", append([]string{"export", "-o", file}, at...)...)
	refused(t, 1, "there is no hub in", "backup", file, "--force", "--data", filepath.Join(dir, "typo"))
	if b, err := os.ReadFile(file); err != nil || string(b) != "something else" {
		t.Errorf("the file holds %q (%v)", b, err)
	}
	writeFile(t, file+".partial", strings.Repeat("left behind by one that was killed ", 1000))
	ok(t, append([]string{"backup", file, "--force"}, at...)...)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	wantOnly(t, dir, "hub.backup")
	ok(t, "restore", file, "--data", filepath.Join(t.TempDir(), "new"))
	// Two that write one file do not mix.
	held, err := newOutFile(filepath.Join(dir, "held"), false)
	if err != nil {
		t.Fatal(err)
	}
	refused(t, 1, "being written by another process", append([]string{"backup", filepath.Join(dir, "held")}, at...)...)
	held.discard()
	wantOnly(t, dir, "hub.backup")
}

func TestBackupAndRestoreSayWhatToTypeInstead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := where(t, "sqlite")
	ok(t, append([]string{"agent", "add", "anna@acme"}, at...)...)
	file := filepath.Join(dir, "hub.backup")
	ok(t, append([]string{"backup", file}, at...)...)
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	cut, altered, notes := filepath.Join(dir, "cut"), filepath.Join(dir, "altered"), filepath.Join(dir, "notes")
	writeFile(t, cut, string(whole[:len(whole)-20]))
	changed := bytes.Clone(whole)
	changed[len(changed)/2] ^= 1
	writeFile(t, altered, string(changed))
	writeFile(t, notes, "my notes")
	link := filepath.Join(dir, "link")
	if err := os.Symlink(notes, link); err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty")
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{1, "Name a file in it, such as", append([]string{"backup", dir}, at...)},
		{1, "not a regular file", append([]string{"backup", link, "--force"}, at...)},
		{1, "no such file or directory", append([]string{"backup", filepath.Join(dir, "none", "hub.backup")}, at...)},
		{2, "leave one of them out", append([]string{"backup", "-", "--json"}, at...)},
		{2, "leave one of them out", append([]string{"export", "--json"}, at...)},
		{2, "exclude each other", append([]string{"backup", "x", "--database-url", "postgres://h/d"}, at...)},
		{1, "pass next_cursor of an earlier answer", append([]string{"export", "--after", "nonsense"}, at...)},
		{1, "there is no file", []string{"restore", filepath.Join(dir, "none"), "--data", empty}},
		{1, "is a folder. Name a file", []string{"restore", dir, "--data", empty}},
		{1, "not a backup of Handclasp", []string{"restore", notes, "--data", empty}},
		{1, "cut short; take another backup. Nothing was changed", []string{"restore", cut, "--data", empty}},
		{1, "damaged", []string{"restore", altered, "--data", empty}},
		{2, "postgres://user:password@host:5432/name", []string{"restore", file, "--database-url", "mysql://x"}},
		{1, "Name another folder with --data", append([]string{"restore", file}, at...)},
	} {
		refused(t, c.code, c.says, c.args...)
	}
	if _, err := os.Stat(empty); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused restore made the folder: %v", err)
	}
	wantOnly(t, dir, "hub.backup", "cut", "altered", "notes", "link")
	if os.Geteuid() == 0 {
		return // root may read and write everywhere
	}
	if err := os.Chmod(file, 0); err != nil {
		t.Fatal(err)
	}
	refused(t, 1, "permission denied. Name a file that you may read", "restore", file, "--data", empty)
}

// A hub that fails in the middle of its answer must not leave a file that looks whole.
func TestABackupThatBreaksOffLeavesNoFile(t *testing.T) {
	t.Parallel()
	at := where(t, "sqlite")
	ok(t, append([]string{"agent", "add", "anna@acme"}, at...)...)
	whole := ok(t, append([]string{"backup", "-"}, at...)...).stdout.Bytes()
	for name, answer := range map[string]func(http.ResponseWriter){
		"the connection breaks": func(w http.ResponseWriter) {
			_, _ = w.Write(whole[:len(whole)/2])
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		},
		"it ends too soon":       func(w http.ResponseWriter) { _, _ = w.Write(whole[:len(whole)-9]) },
		"it is something else":   func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") },
		"it comes and is broken": func(w http.ResponseWriter) { _, _ = w.Write(append(bytes.Clone(whole[:60]), whole[61:]...)) },
	} {
		data, dir := t.TempDir(), t.TempDir()
		writeFile(t, databaseFile(data), "")
		own, err := owner.Take(data)
		if err != nil {
			t.Fatal(err)
		}
		broken := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w) })
		if err := own.Serve(owner.Info{Kind: owner.Serve}, broken, 0, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		p := runProgram(context.Background(), "backup", filepath.Join(dir, "hub.backup"), "--data", data)
		if p.code != 1 || !strings.Contains(p.stderr.String(), "broke off") {
			t.Errorf("%s: exit %d, %s", name, p.code, p.stderr.String())
		}
		wantOnly(t, dir)
		own.Release()
	}
}

func TestACancelledBackupLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := where(t, "sqlite")
	ok(t, append([]string{"agent", "add", "anna@acme"}, at...)...)
	ctx, cancel := context.WithCancel(context.Background())
	e := &env{ctx: ctx, stdout: io.Discard, stderr: io.Discard}
	out, err := newOutFile(filepath.Join(dir, "hub.backup"), false)
	if err != nil {
		t.Fatal(err)
	}
	err = operate(e, &config.Where{Data: at[1]}, func(o *operatorClient) error {
		o.ctx = ctx
		cancel()
		_, err := o.backup(e, out, true)
		return err
	})
	out.discard()
	if err == nil {
		t.Error("it went on")
	}
	wantOnly(t, dir)
}

func TestTheLogIsExportedToItsEndAndGoesOnFromACursor(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := where(t, kind)
			var events []map[string]any
			count := func(args ...string) int {
				events = nil
				for line := range strings.Lines(ok(t, append(append([]string{"export"}, args...), at...)...).stdout.String()) {
					var event map[string]any
					if err := json.Unmarshal([]byte(line), &event); err != nil {
						t.Fatalf("%q: %v", line, err)
					}
					events = append(events, event)
				}
				return len(events)
			}
			for i := range 3 {
				ok(t, append([]string{"agent", "add", fmt.Sprintf("agent%d@acme", i)}, at...)...)
			}
			hubtest.Eventually(t, func() bool { return count() == 6 }) // each is added and gets a key
			if events[0]["type"] != "agent.added" || events[5]["cursor"] == "" {
				t.Errorf("%v", events)
			}
			fourth := events[3]["cursor"].(string)
			hubtest.Eventually(t, func() bool { return count("--after", fourth) == 2 })
			last := events[1]["cursor"]
			if count("--after", last.(string)) != 0 {
				t.Errorf("behind the end are %v", events)
			}
			file := filepath.Join(t.TempDir(), "events.ndjson")
			out := runJSON[struct {
				File   string `json:"file"`
				Bytes  int64  `json:"bytes"`
				Events int    `json:"events"`
				Next   string `json:"next_cursor"`
			}](t, append([]string{"export", "-o", file}, at...)...)
			text, err := os.ReadFile(file)
			if err != nil || out.Events != 6 || out.Next != last || bytes.Count(text, []byte("\n")) != 6 {
				t.Errorf("%v, %+v, %s", err, out, text)
			}
		})
	}
}
