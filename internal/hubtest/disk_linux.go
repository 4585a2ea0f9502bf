package hubtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
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
		if err := free(dir, syscall.Unmount); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
		}
	})
	return dir
}

// free does what needs a file system that nobody uses. A child that another test just starts holds
// a copy of every open file until it runs its own program, so that busy is asked again for a while;
// a file that was left open stays an error.
func free(dir string, do func(dir string, flags int) error) error {
	give := time.Now().Add(10 * time.Second)
	for {
		err := do(dir, 0)
		if !errors.Is(err, syscall.EBUSY) || time.Now().After(give) {
			return err
		}
		runtime.Gosched()
	}
}

// LockDisk makes a file system of [SmallDisk] one that cannot be written, as a folder without
// permission is for those who are not root.
func LockDisk(t testing.TB, dir string) {
	t.Helper()
	if err := free(dir, func(dir string, _ int) error {
		return syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	}); err != nil {
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
