package owner

import (
	"errors"
	"os"
	"strconv"
	"testing"
)

func TestAFolderThatWasHandedOverWaitsForTheHubThatAsked(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	first, err := Take(data)
	if err != nil {
		t.Fatal(err)
	}
	hub := os.Getppid() // some process that lives and is not this one
	first.handOver(hub)
	first.Release()
	var owned OwnedError
	if _, err := Take(data); !errors.As(err, &owned) || owned.PID != strconv.Itoa(hub) {
		t.Fatalf("the folder was taken by another than the hub that had asked: %v", err)
	}
}
