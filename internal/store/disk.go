package store

import (
	"errors"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"
)

// disk is a SQLite file system that says when the disk is full. The driver's own reports that
// as an I/O error like any other, and by then the system's reason for it is lost.
type disk struct{ vfs.VFSFilename }

// diskVFS registers the disk over the named file system and returns its name.
func diskVFS(over string) string {
	below, ok := vfs.Find(over).(vfs.VFSFilename)
	if !ok {
		return over
	}
	name := "handclasp"
	if over != "" {
		name += "-" + over
	}
	vfs.Register(name, disk{below})
	return name
}

// systemFile is what a file of the system can do; SQLite looks for each of these by itself.
type systemFile interface {
	vfs.FileSharedMemory
	vfs.FileMemoryMapper
	vfs.FileLockState
	vfs.FileHasMoved
	vfs.FileSizeHint
	vfs.FilePersistWAL
	vfs.FilePowersafeOverwrite
}

func (d disk) OpenFilename(name *vfs.Filename, flags vfs.OpenFlag) (vfs.File, vfs.OpenFlag, error) {
	file, flags, err := d.VFSFilename.OpenFilename(name, flags)
	if f, ok := file.(systemFile); err == nil && ok {
		return diskFile{f}, flags, nil
	}
	return file, flags, err
}

type diskFile struct{ systemFile }

func (f diskFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.systemFile.WriteAt(p, off)
	if noRoom(err) {
		err = vfs.SystemError(err, sqlite3.FULL)
	}
	return n, err
}

func noRoom(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
