package owner_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
)

func take(t *testing.T, data string) *owner.Owner {
	t.Helper()
	own, err := owner.Take(data)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Release)
	return own
}

func serve(t *testing.T, own *owner.Owner, kind string) {
	t.Helper()
	if err := own.Serve(owner.Info{Kind: kind, Version: "v"}, http.NotFoundHandler(), 0, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
}

// dead is the id of a process that has ended.
func dead(t *testing.T) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func writeLock(t *testing.T, data, text string) string {
	t.Helper()
	path := filepath.Join(data, "owner.lock")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantOwned checks who is said to own the folder.
func wantOwned(t *testing.T, err error, pid string) {
	t.Helper()
	var owned owner.OwnedError
	if !errors.As(err, &owned) || owned.PID != pid {
		t.Fatalf("got %v, want the folder in use by %q", err, pid)
	}
	by := "process " + pid + "."
	if pid == "" {
		by = "another process."
	}
	if !strings.Contains(err.Error(), by) || !strings.Contains(err.Error(), "--data") {
		t.Errorf("the sentence is %q", err)
	}
}

func TestOfManyThatWantTheLockExactlyOneGetsIt(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	for range 100 {
		const racers = 8
		won := make(chan *owner.Owner, racers)
		ready := make(chan struct{})
		var wg sync.WaitGroup
		for range racers {
			wg.Go(func() {
				<-ready
				own, err := owner.Take(data)
				var owned owner.OwnedError
				switch {
				case err == nil:
					won <- own
				case !errors.As(err, &owned):
					t.Error(err)
				}
			})
		}
		close(ready)
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d processes own the folder", len(won))
		}
		own := <-won
		_, err := owner.Take(data)
		wantOwned(t, err, strconv.Itoa(os.Getpid()))
		own.Release()
		own.Release() // does nothing
	}
}

func TestWhatADeadOwnerLeftDoesNotHinderTheNext(t *testing.T) {
	t.Parallel()
	for name, note := range map[string]string{
		"a dead process": strconv.Itoa(dead(t)) + "\n", "garbage": strings.Repeat("\x00\xffx", 1000), "nothing": "",
		"for a dead process": fmt.Sprintf("for %d\n", dead(t)), "for nobody": "for \n", "for -1": "for -1\n", "for all": "for 0\n",
		"for ourselves": fmt.Sprintf("for %d\n", os.Getpid()),
	} {
		data := t.TempDir()
		writeLock(t, data, note)
		l, err := net.Listen("unix", owner.SocketPath(data))
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		_ = l.Close()
		if _, err := owner.Ask(t.Context(), data); err == nil {
			t.Errorf("%s: a stale socket answers", name)
		}
		own := take(t, data)
		serve(t, own, owner.MCP)
		info, err := owner.Ask(t.Context(), data)
		if err != nil || info.Kind != owner.MCP || info.PID != os.Getpid() || info.Version != "v" {
			t.Errorf("%s: %+v %v", name, info, err)
		}
		if at, err := os.Lstat(owner.SocketPath(data)); err != nil || at.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s: the socket %v %v", name, at, err)
		}
		own.Release()
		if _, err := os.Lstat(owner.SocketPath(data)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the socket stays: %v", name, err)
		}
		if left, err := os.ReadFile(filepath.Join(data, "owner.lock")); err != nil || len(left) != 0 {
			t.Errorf("%s: the lock file holds %q, %v", name, left, err)
		}
	}
}

func TestALockFileOfOddContentNamesNobody(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	take(t, data)
	writeLock(t, data, "\x1b[31mkill yourself")
	_, err := owner.Take(data)
	wantOwned(t, err, "")
}

func TestAFolderThatCannotBeOwnedIsRefusedWithASentence(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string) string
		want    string
	}{
		"the lock is a symbolic link": {func(t *testing.T, dir string) string {
			if err := os.Symlink(filepath.Join(t.TempDir(), "target"), filepath.Join(dir, "owner.lock")); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "owner.lock cannot be opened"},
		"the lock is a folder": {func(t *testing.T, dir string) string {
			if err := os.Mkdir(filepath.Join(dir, "owner.lock"), 0o700); err != nil {
				t.Fatal(err)
			}
			return dir
		}, "owner.lock cannot be opened"},
		"the folder is a file": {func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "file")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return path
		}, "cannot be"},
		"below a file": {func(t *testing.T, dir string) string {
			path := filepath.Join(dir, "file")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(path, "data")
		}, "cannot be made"},
		"on a network": {func(_ *testing.T, dir string) string { return filepath.Join(dir, owner.NetworkFolder) }, "network file system (NFS)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := owner.WaitFor(t.Context(), c.prepare(t, t.TempDir()))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "--data") {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestASymbolicLinkInPlaceOfTheLockIsNotFollowed(t *testing.T) {
	t.Parallel()
	data, target := t.TempDir(), filepath.Join(t.TempDir(), "target")
	if err := os.WriteFile(target, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(data, "owner.lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Take(data); err == nil {
		t.Error("the link was followed")
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "precious" {
		t.Errorf("the target holds %q, %v", b, err)
	}
}

func TestOnlyAHubThatBeginsMakesItsFolder(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "a", "b")
	if _, err := owner.Take(data); err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
	own, err := owner.WaitFor(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Release()
	for _, path := range []string{data, filepath.Dir(data)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", path, info, err)
		}
	}
}

func TestWhatIsNoSocketIsNotRemoved(t *testing.T) {
	t.Parallel()
	for name, make := range map[string]func(path string) error{
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a file":   func(path string) error { return os.WriteFile(path, []byte("precious"), 0o600) },
		"a link":   func(path string) error { return os.Symlink("/nowhere", path) },
	} {
		data := t.TempDir()
		path := owner.SocketPath(data)
		if err := make(path); err != nil {
			t.Fatal(err)
		}
		own := take(t, data)
		err := own.Serve(owner.Info{}, http.NotFoundHandler(), 0, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), "Move it away") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("%s: it was removed: %v", name, err)
		}
		own.Release()
	}
}

func TestAFolderWithALongPathHasAShortSocketOfItsOwn(t *testing.T) {
	t.Parallel()
	long := filepath.Join(t.TempDir(), strings.Repeat("long", 40))
	own, err := owner.WaitFor(t.Context(), long)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(own.Release)
	path := owner.SocketPath(long)
	if len(path) > 100 || path == owner.SocketPath(long+"x") {
		t.Errorf("the socket is %s", path)
	}
	serve(t, own, owner.Serve)
	if info, err := owner.Ask(t.Context(), long); err != nil || info.PID != os.Getpid() {
		t.Errorf("%+v %v", info, err)
	}
	own.Release()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s stays: %v", path, err)
	}
}

func TestASocketOfSomebodyElseIsNotBelieved(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		hubtest.Require(t, "root", errors.New("only root may give a file away"))
	}
	long := filepath.Join(t.TempDir(), strings.Repeat("evil", 40))
	path := owner.SocketPath(long)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	srv := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the stranger was asked") })}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	if err := os.Lchown(path, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Ask(t.Context(), long); err == nil || !strings.Contains(err.Error(), "belongs to another user") {
		t.Errorf("got %v", err)
	}
}

func TestAnOwnerWhoseSocketIsRemovedMakesItAgain(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	own := take(t, data)
	serve(t, own, owner.MCP)
	path := owner.SocketPath(data)
	for name, meanwhile := range map[string]func() error{
		"removed": func() error { return nil },
		"another socket in its place": func() error {
			l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
			if err == nil {
				l.SetUnlinkOnClose(false)
				err = l.Close()
			}
			return err
		},
	} {
		if err := errors.Join(os.Remove(path), meanwhile()); err != nil {
			t.Fatal(err)
		}
		hubtest.Eventually(t, func() bool {
			info, err := owner.Ask(t.Context(), data)
			return err == nil && info.PID == os.Getpid()
		})
		if at, err := os.Lstat(path); err != nil || at.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%s: the socket %v %v", name, at, err)
		}
	}
	own.Release()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket stays: %v", err)
	}
}

func TestAReservationDoesNotOutlastAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	path := writeLock(t, data, fmt.Sprintf("for %d\n", hubtest.OtherProcess(t)))
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	take(t, data)
}

func TestAReservationHoldsForTheOneWhoAskedAndForFiveSeconds(t *testing.T) {
	t.Parallel()
	data, pid := t.TempDir(), hubtest.OtherProcess(t)
	path := writeLock(t, data, fmt.Sprintf("for %d\n", pid))
	_, err := owner.Take(data)
	wantOwned(t, err, strconv.Itoa(pid))
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-6*time.Second)); err != nil {
		t.Fatal(err)
	}
	take(t, data).Release()
	// The refusal did not keep the lock, nor change the note.
	writeLock(t, data, fmt.Sprintf("for %d\n", os.Getpid()))
	take(t, data).Release()
}

func TestNetworkFileSystemsAreKnownByTheirNumbers(t *testing.T) {
	t.Parallel()
	for magic, want := range map[uint32]string{
		0x6969: "NFS", 0xff534d42: "SMB", 0xfe534d42: "SMB", 0x517b: "SMB", 0x5346414f: "AFS", 0x00c36400: "Ceph",
		0xef53: "", 0x58465342: "", 0x9123683e: "", 0x01021994: "", 0x794c7630: "", 0: "", // ext4, XFS, Btrfs, tmpfs, overlayfs
	} {
		if got := owner.NetworkKind(magic); got != want {
			t.Errorf("%#x is taken for %q, want %q", magic, got, want)
		}
	}
}

func post(t *testing.T, data, path, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, owner.Base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	tr := owner.Transport(data)
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}
