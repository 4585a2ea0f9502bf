package main

import (
	"path/filepath"
	"testing"

	"handclasp/internal/hubtest"
)

func TestAFullDiskLeavesNeitherBackupNorHub(t *testing.T) {
	t.Parallel()
	dir := hubtest.SmallDisk(t, 64<<10)
	at := where(t, "sqlite")
	for _, name := range []string{"a", "b", "c", "d"} {
		ok(t, append([]string{"agent", "add", name + "@acme"}, at...)...)
	}
	file := filepath.Join(t.TempDir(), "hub.backup")
	ok(t, append([]string{"backup", file}, at...)...)
	refused(t, 1, "is full", "restore", file, "--data", filepath.Join(dir, "hub")) // a database takes more
	wantOnly(t, filepath.Join(dir, "hub"), "owner.lock")
	small := hubtest.SmallDisk(t, 4096)
	for _, args := range [][]string{{"backup", filepath.Join(small, "hub.backup")}, {"export", "-o", filepath.Join(small, "events")}} {
		writeFile(t, filepath.Join(small, "ballast"), string(make([]byte, 4096)))
		refused(t, 1, "is full. Make room", append(args, at...)...)
		wantOnly(t, small, "ballast")
	}
}
