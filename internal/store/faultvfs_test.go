package store_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ncruces/go-sqlite3/vfs"
)

// faultVFS is the machine's file system with faults that a test orders.
type faultVFS struct {
	vfs.VFSFilename
	name string

	mu    sync.Mutex
	fault *diskFault
	seen  int // operations that matched while armed
	hits  int
}

// diskFault says what fails. The files are "db" and "wal", the operations "write", "truncate"
// and "sync"; empty is any.
type diskFault struct {
	file, op string
	after    int // so many of them still succeed
	times    int // so many fail; 0 is all until the fault is lifted
	err      error
}

var vfsNumber atomic.Int64

// newFaultVFS registers a file system for one test. Its name goes into store.Config.VFS.
func newFaultVFS(t testing.TB) *faultVFS {
	t.Helper()
	v := &faultVFS{VFSFilename: vfs.Find("").(vfs.VFSFilename), name: fmt.Sprintf("fault%d", vfsNumber.Add(1))}
	vfs.Register(v.name, v)
	t.Cleanup(func() { vfs.Unregister(v.name) })
	return v
}

// order arms a fault; the last one counts.
func (v *faultVFS) order(f diskFault) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fault, v.seen, v.hits = &f, 0, 0
}

// lift ends the fault and returns how often it struck.
func (v *faultVFS) lift() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fault = nil
	return v.hits
}

func (v *faultVFS) strike(file, op string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := v.fault
	if f == nil || (f.file != "" && f.file != file) || (f.op != "" && f.op != op) {
		return nil
	}
	v.seen++
	if v.seen <= f.after || (f.times > 0 && v.hits >= f.times) {
		return nil
	}
	v.hits++
	return f.err
}

func (v *faultVFS) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := v.VFSFilename.OpenFilename(name, flags)
	if err != nil {
		return nil, flags, err
	}
	switch {
	case flags&vfs.OPEN_MAIN_DB != 0:
		return &faultFile{file.(systemFile), v, "db"}, flags, nil
	case flags&vfs.OPEN_WAL != 0:
		return &faultFile{file.(systemFile), v, "wal"}, flags, nil
	}
	return file, flags, nil
}

// systemFile is a file of the system; all that it can do is handed on.
type systemFile interface {
	vfs.FileSharedMemory
	vfs.FileMemoryMapper
	vfs.FileLockState
	vfs.FileHasMoved
	vfs.FileSizeHint
	vfs.FilePersistWAL
	vfs.FilePowersafeOverwrite
}

type faultFile struct {
	systemFile
	v    *faultVFS
	kind string
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.v.strike(f.kind, "write"); err != nil {
		// As on a full disk: what still fits is there.
		n, _ := f.systemFile.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.systemFile.WriteAt(p, off)
}

func (f *faultFile) Truncate(size int64) error {
	if err := f.v.strike(f.kind, "truncate"); err != nil {
		return err
	}
	return f.systemFile.Truncate(size)
}

func (f *faultFile) Sync(flags vfs.SyncFlag) error {
	if err := f.v.strike(f.kind, "sync"); err != nil {
		return err
	}
	return f.systemFile.Sync(flags)
}
