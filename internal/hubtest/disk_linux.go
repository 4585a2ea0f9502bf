package hubtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system of that many bytes, which needs root.
func SmallDisk(t testing.TB, size int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		Require(t, "tmpfs", errors.New("only root may mount a file system"))
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		Require(t, "tmpfs", fmt.Errorf("mount tmpfs: %w", err))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return dir
}

// LockDisk makes a file system of [SmallDisk] one that cannot be written, as a folder without
// permission is for those who are not root.
func LockDisk(t testing.TB, dir string) {
	t.Helper()
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		Require(t, "tmpfs", fmt.Errorf("remount tmpfs: %w", err))
	}
}

// FillDisk takes all the room that is left and returns what gives it back.
func FillDisk(t testing.TB, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for block := make([]byte, 4096); ; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return func() {
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
			}
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
