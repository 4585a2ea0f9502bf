package hubtest

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// SmallDisk mounts a file system of that many bytes, which needs root.
func SmallDisk(t *testing.T, size int) string {
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
