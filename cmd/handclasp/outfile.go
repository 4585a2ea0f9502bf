package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// outFile is a file that is there when it is whole, and not before: it grows as FILE.partial, which
// is its user's alone, and gets its name at the end.
type outFile struct {
	path  string
	force bool
	f     *os.File
	size  int64
	// failed is the first error of writing, in contrast to one of what is written.
	failed error
}

// newOutFile begins the file. One that exists is replaced only with force, and only when the new one
// is whole.
func newOutFile(path string, force bool) (*outFile, error) {
	o := &outFile{path: path, force: force}
	if err := o.free(); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(o.partial(), os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, fmt.Errorf("%s cannot be written: %w. Name a file in a folder where you may write", path, plainError(err))
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("%s is being written by another process. Wait for it, or name another file", o.partial())
		}
		// Whoever held the lock before may have renamed the file meanwhile.
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Lstat(o.partial()); err != nil || !os.SameFile(mine, there) {
			_ = f.Close()
			continue
		}
		o.f = f
		if err := errors.Join(f.Chmod(0o600), f.Truncate(0)); err != nil { // one that was killed may have left it
			o.discard()
			return nil, err
		}
		return o, nil
	}
}

// intoFile lets write fill a new file, which is there only when all of it is, and gives its size.
func intoFile(path string, force bool, write func(io.Writer) error) (int64, error) {
	o, err := newOutFile(path, force)
	if err != nil {
		return 0, err
	}
	if err := write(o); err != nil {
		o.discard()
		if o.failed != nil {
			return 0, o.explain(o.failed)
		}
		return 0, err
	}
	return o.size, o.finish()
}

func (o *outFile) partial() string { return o.path + ".partial" }

// free reports whether the name may be taken.
func (o *outFile) free() error {
	info, err := os.Lstat(o.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("%s cannot be written: %w. Name a file in a folder where you may write", o.path, plainError(err))
	case info.IsDir():
		return fmt.Errorf("%s is a folder. Name a file in it, such as %s", o.path, filepath.Join(o.path, "handclasp.backup"))
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file. Name another, or - for the standard output", o.path)
	case !o.force:
		return fmt.Errorf("%s exists. Name another file, or replace it with --force", o.path)
	}
	return nil
}

// Write writes to the partial file.
func (o *outFile) Write(p []byte) (int, error) {
	n, err := o.f.Write(p)
	o.size += int64(n)
	if err != nil && o.failed == nil {
		o.failed = err
	}
	return n, err
}

// finish gives the file its name, durably.
func (o *outFile) finish() error {
	err := o.failed
	if err == nil {
		err = o.f.Sync()
	}
	if err == nil {
		err = o.free()
	}
	if err == nil {
		err = os.Rename(o.partial(), o.path)
	}
	if err != nil {
		o.discard()
		return o.explain(err)
	}
	_ = o.f.Close()
	if dir, err := os.Open(filepath.Dir(o.path)); err == nil {
		_ = dir.Sync() // not every file system can
		_ = dir.Close()
	}
	return nil
}

// discard removes what was written.
func (o *outFile) discard() {
	_ = os.Remove(o.partial())
	_ = o.f.Close()
}

// explain words an error of writing.
func (o *outFile) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("the disk that holds %s is full. Make room, or name a file on another disk; nothing was left behind", o.path)
	}
	var path *os.PathError
	if errors.As(err, &path) {
		return fmt.Errorf("%s cannot be written: %w. Nothing was left behind", o.path, path.Err)
	}
	return err
}

// plainError is the reason of a failed open without the path, which stands beside it anyway.
func plainError(err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
