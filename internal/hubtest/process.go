package hubtest

import (
	"os/exec"
	"testing"
)

// OtherProcess is the id of a process that lives until the test ends.
func OtherProcess(t testing.TB) int {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	return cmd.Process.Pid
}
