// Package owner keeps a SQLite data folder in the hands of one process at a time. The owner
// holds owner.lock (flock, so the kernel ends it with the process) and answers on owner.sock;
// reaching that socket (mode 0600) is the operator's credential. Others work through the
// socket, notice when the owner is gone, and one of them takes over. A hub that is started on
// purpose (`serve`) asks an owner that only happens to be one (`mcp`) to hand the folder over.
package owner

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Kinds of owners.
const (
	Serve = "serve" // a hub that was started on purpose; it keeps the folder
	MCP   = "mcp"   // a stdio process; it hands the folder over when a hub asks
)

// Owner holds a folder.
type Owner struct {
	data string
	lock *os.File
	srv  *socket

	asked   sync.Once
	wanted  chan struct{} // closed when a hub asked for the folder
	wantPID int

	guarded []guarded
	lost    chan struct{} // closed when the folder is no longer the one that was taken
	ended   chan struct{}

	release sync.Once
}

// OwnedError says that another process owns the folder.
type OwnedError struct {
	Data string
	PID  string // empty if it is not known
}

func (e OwnedError) Error() string {
	by := "another process"
	if e.PID != "" {
		by = "process " + e.PID
	}
	return fmt.Sprintf("the data folder %s is in use by %s. Stop that first, or choose another folder with --data", e.Data, by)
}

// reservedFor is how long a folder that was handed over waits for the hub that asked for it.
const reservedFor = 5 * time.Second

// Make makes the folder if need be, for a hub that begins. [Take] does not: a folder that was
// removed stays so.
func Make(data string) error {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("the data folder %s cannot be made: %w. Choose another with --data, or give yourself the right to write there", data, err)
	}
	return nil
}

// Take makes this process the owner of the folder, or says who is (an [OwnedError]). Other errors
// are sentences for the person who named the folder.
func Take(data string) (*Owner, error) {
	if kind := networkFileSystem(data); kind != "" {
		return nil, fmt.Errorf("the data folder %s is on a network file system (%s), where locks cannot be relied on. Choose a folder on a local disk with --data, or share one hub with handclasp serve", data, kind)
	}
	path := filepath.Join(data, "owner.lock")
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be opened: %w. Choose another folder with --data, or give yourself the right to write there", path, err)
		}
		o, err := lock(data, f)
		if err != nil {
			unlock(f)
			return nil, err
		}
		if replaced(f) { // meanwhile; the lock of a file that is not there keeps nobody away
			unlock(f)
			continue
		}
		return o, nil
	}
}

// replaced reports whether the lock file was removed, or another put in its place.
func replaced(f *os.File) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	return another(held, f.Name(), os.Lstat)
}

// another reports whether path does not lead to the file any more.
func another(file os.FileInfo, path string, look func(string) (os.FileInfo, error)) bool {
	there, err := look(path)
	return errors.Is(err, os.ErrNotExist) || err == nil && !os.SameFile(file, there)
}

func lock(data string, f *os.File) (*Owner, error) {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, OwnedError{data, holder(f)}
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if pid := reservation(f); pid != 0 && pid != os.Getpid() && !ignoreReservation {
		return nil, OwnedError{data, strconv.Itoa(pid)}
	}
	// Who holds it, for the one who is refused. The lock itself is the kernel's and ends with
	// the process, whatever the file says.
	write(f, strconv.Itoa(os.Getpid()))
	return &Owner{data: data, lock: f, wanted: make(chan struct{}), lost: make(chan struct{}), ended: make(chan struct{})}, nil
}

// unlock ends the lock, if there is one, and closes the file. Closing alone would leave the lock to
// a child that is just being started, until it runs its own program.
func unlock(f *os.File) {
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
	_ = f.Close()
}

// holder is the process that the file names, or "".
func holder(f *os.File) string {
	pid := strings.TrimPrefix(note(f), "for ")
	if n, err := strconv.Atoi(pid); err != nil || n <= 0 {
		return ""
	}
	return pid
}

// reservation is the process for which the last owner left the folder free, or 0.
func reservation(f *os.File) int {
	text, ok := strings.CutPrefix(note(f), "for ")
	pid, err := strconv.Atoi(text)
	if !ok || err != nil || pid <= 0 {
		return 0
	}
	info, err := f.Stat()
	if err != nil || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return 0
	}
	// From the future when the clock was set back since; that must not make it last.
	if age := time.Since(info.ModTime()); age > reservedFor || age < -reservedFor {
		return 0
	}
	return pid
}

func note(f *os.File) string {
	b := make([]byte, 32)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	return strings.TrimSpace(string(b[:n]))
}

func write(f *os.File, text string) {
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(text+"\n"), 0)
	}
}

// Wanted is closed once a hub has asked for the folder: end what runs and call [Owner.Release].
func (o *Owner) Wanted() <-chan struct{} { return o.wanted }

// Guard watches a file too that the owner has opened; call it before [Owner.Serve].
func (o *Owner) Guard(path string) error {
	file, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	o.guarded = append(o.guarded, guarded{path, file})
	return nil
}

// guarded is a file as it was when the owner opened it.
type guarded struct {
	path string
	file os.FileInfo
}

// Lost is closed once the folder or a guarded file was removed, or another put in its place, while
// the owner serves: end what runs, for whatever it writes is lost.
func (o *Owner) Lost() <-chan struct{} { return o.lost }

// stillThere is how often the owner looks whether the folder is.
const stillThere = 500 * time.Millisecond

func (o *Owner) watchFolder() {
	tick := time.NewTicker(stillThere)
	defer tick.Stop()
	for {
		select {
		case <-o.ended:
			return
		case <-tick.C:
		}
		gone := replaced(o.lock)
		for _, g := range o.guarded {
			gone = gone || another(g.file, g.path, os.Stat)
		}
		if gone {
			close(o.lost)
			return
		}
		o.srv.mend()
	}
}

// handOver notes who asked.
func (o *Owner) handOver(pid int) {
	o.asked.Do(func() {
		o.wantPID = pid
		close(o.wanted)
	})
}

// CloseSocket ends the calls of others: they find the next owner, or nobody.
func (o *Owner) CloseSocket() {
	if o.srv != nil {
		o.srv.close()
	}
}

// Release lets the folder go, to the hub that asked for it or to whoever comes. The database must
// be closed by then.
func (o *Owner) Release() {
	o.CloseSocket()
	o.release.Do(func() {
		close(o.ended)
		select {
		case <-o.wanted:
			write(o.lock, "for "+strconv.Itoa(o.wantPID))
		default:
			_ = o.lock.Truncate(0)
		}
		unlock(o.lock)
	})
}
