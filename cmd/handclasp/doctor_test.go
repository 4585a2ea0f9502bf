package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// patient is a hub with a fault, examined by the real program from a shell.
type patient struct {
	t    *testing.T
	data string
	env  []string
	args []string // of doctor, beside the folder
	bin  string   // folder that holds the program under its name
}

func newPatient(t *testing.T) *patient {
	t.Helper()
	data, _ := withAgents(t, "anna@acme")
	return &patient{t: t, data: data, env: append(cleanEnv(), "HOME="+t.TempDir()), bin: shim(t), args: []string{"--listen", "127.0.0.1:0"}}
}

func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HANDCLASP_") || strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "HOME=")
	})
}

// shim is a folder with a program named handclasp: this test binary, see TestMain.
func shim(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := "#!/bin/sh\n" + asProgram + "=1 exec " + shellWords(self) + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "handclasp"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return dir
}

// shell runs a line as a person would, after the exports of earlier advice.
func (p *patient) shell(line string) (string, error) {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "sh", "-c", line)
	cmd.Env = append(slices.Clone(p.env), "PATH="+p.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// examine runs doctor; before is what the person did in the same shell.
func (p *patient) examine(before string) map[string]finding {
	p.t.Helper()
	where := []string{"--data", p.data}
	if slices.ContainsFunc(p.env, func(v string) bool { return strings.HasPrefix(v, "HANDCLASP_DATABASE_URL=") }) {
		where = nil
	}
	line := shellWords(slices.Concat([]string{"handclasp", "doctor", "--json"}, where, p.args)...)
	if before != "" {
		line = before + "; " + line
	}
	out, err := p.shell(line)
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	if i := strings.Index(out, "{"); i >= 0 {
		out = out[i:]
	}
	var got struct{ Checks []finding }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&got); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	faults := map[string]finding{}
	for _, f := range got.Checks {
		if f.Status != fine {
			faults[f.Check] = f
		}
	}
	return faults
}

// mends finds the fault, follows its advice to the letter, and finds it gone. edit turns a blank
// of the advice into what the person knows.
func (p *patient) mends(check, finding string, edit func(advice string) string) {
	p.t.Helper()
	f, found := p.examine("")[check]
	if !found || !strings.Contains(f.Finding, finding) || f.Advice == "" {
		p.t.Fatalf("%s: %+v, want %q", check, f, finding)
	}
	advice := f.Advice
	if edit != nil {
		advice = edit(advice)
	}
	if after, still := p.examine(advice)[check]; still {
		p.t.Errorf("after %q: %+v", advice, after)
	}
}

// before cuts advice down to its command.
func before(mark string) func(string) string {
	return func(advice string) string { command, _, _ := strings.Cut(advice, mark); return command }
}

func TestDoctorIsContentWithAHealthyHub(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	if faults := p.examine(""); len(faults) > 0 {
		t.Errorf("%+v", faults)
	}
	url := startServe(t, "--data", p.data)
	p.args = []string{"--listen", strings.TrimPrefix(url, "http://")}
	if faults := p.examine(""); len(faults) > 0 {
		t.Errorf("while it serves: %+v", faults)
	}
}

func TestDoctorFindsAMissingHub(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.data = filepath.Join(t.TempDir(), "it's new")
	p.mends("data folder", "does not exist", before(" makes it"))
}

func TestDoctorFindsAFolderOpenToOthers(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	chmod(t, p.data, 0o755)
	p.mends("data folder", "can enter", nil)
}

func TestDoctorFindsADatabaseOpenToOthers(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	chmod(t, databaseFile(p.data), 0o644)
	p.mends("database", "can read", nil)
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorFindsAFolderInsideARepository(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	if out, err := exec.CommandContext(t.Context(), "git", "init", "-q", filepath.Dir(p.data)).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	p.mends("data folder", "git repository", before(", or move"))
}

func TestDoctorFindsAMisspelledSetting(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.env = append(p.env, "HANDCLASP_PUBLIC_ULR=https://hub.example.com")
	p.mends("environment", "HANDCLASP_PUBLIC_ULR", nil)
}

func TestDoctorFindsAnAddressForOthersWithoutAName(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.args, p.env = nil, append(p.env, "HANDCLASP_LISTEN=0.0.0.0:0")
	p.mends("public-url", "for other machines", func(advice string) string {
		command, _, _ := strings.Cut(advice, ", with the name")
		return strings.Replace(command, "http://127.0.0.1", "https://hub.example.com", 1)
	})
}

func TestDoctorFindsAnAddressInUse(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	p.args, p.env = nil, append(p.env, "HANDCLASP_LISTEN="+l.Addr().String())
	p.mends("listen", "another program", before(", or end"))
}

func TestDoctorFindsAKeyThatOthersCanRead(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	home := t.TempDir()
	p.env = append(p.env, "HOME="+home)
	dir := filepath.Join(home, ".config", "handclasp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config.json": `{"url":"http://127.0.0.1:7433","key_file":"frank.key"}`, "frank.key": "hc_live_x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil { //nolint:gosec // the fault
			t.Fatal(err)
		}
	}
	p.mends("client-config", "can read the key", nil)
}

func TestDoctorFindsAnOwnerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	cmd := exec.CommandContext(t.Context(), filepath.Join(p.bin, "handclasp"), "serve", "--listen", "127.0.0.1:0", "--data", p.data)
	cmd.Env = p.env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := stderr.Read(make([]byte, 1)); err != nil { // it listens
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.mends("owner", "does not answer", func(advice string) string {
		// The kernel takes the lock back a moment after the signal.
		return advice + "; while kill -0 " + strings.Fields(advice)[2] + " 2>/dev/null && ! grep -q '^State:.Z' /proc/" + strings.Fields(advice)[2] + "/status; do :; done"
	})
}

func TestDoctorFindsADamagedDatabase(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	backup := filepath.Join(t.TempDir(), "hub.backup")
	if out, err := p.shell(shellWords("handclasp", "backup", backup, "--data", p.data)); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if err := os.WriteFile(databaseFile(p.data), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	p.mends("database", "damaged", func(advice string) string {
		advice = strings.NewReplacer("put it aside, ", "", ", and restore your last backup: ", " && ").Replace(advice)
		return strings.Replace(advice, "restore FILE", "restore "+shellWords(backup), 1)
	})
}

func TestDoctorFindsAHubWithoutAgents(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.data = filepath.Join(t.TempDir(), "hub")
	st, err := store.Open(t.Context(), store.Config{Path: databaseFile(p.data)})
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	p.mends("agents", "no agent", nil)
}

func TestDoctorFindsWhatIsWrongWithPostgreSQL(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	url := hubtest.PostgresURL(t)
	missing := url[:strings.LastIndex(url, "/")] + "/not_made_yet" + url[strings.IndexByte(url, '?'):]
	p.env = append(p.env, "HANDCLASP_DATABASE_URL="+missing)
	f := p.examine("")["database"]
	if !strings.Contains(f.Finding, "Create it: createdb") {
		t.Errorf("a missing database: %+v", f)
	}
	p.env[len(p.env)-1] = "HANDCLASP_DATABASE_URL=" + url
	if f := p.examine("")["migrations"]; !strings.Contains(f.Finding, "the database is empty") {
		t.Errorf("a new database: %+v", f)
	}
	if out, err := p.shell("handclasp agent add anna@acme"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	faults := p.examine("")
	delete(faults, "durability") // the tests' cluster trades it for speed
	if len(faults) > 0 {
		t.Errorf("%+v", faults)
	}
	p.env[len(p.env)-1] = "HANDCLASP_DATABASE_URL=postgres://u@127.0.0.1:1/x"
	if f := p.examine("")["database"]; !strings.Contains(f.Finding, "does not answer") {
		t.Errorf("no server: %+v", f)
	}
}
