package owner

import (
	"errors"
	"log/slog"
	"net/http"
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

func TestAHubAsksTheNextOwnerWhenTheOneThatItAskedDies(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	serve := func(o *Owner, err error) *Owner {
		if err == nil {
			err = o.Serve(Info{Kind: MCP}, http.NotFoundHandler(), 0, slog.New(slog.DiscardHandler))
		}
		if err != nil {
			t.Error(err)
		}
		return o
	}
	first := serve(Take(data))
	go func() {
		<-first.Wanted()
		// It dies without handing over, and another stdio process has the lock before the hub.
		_ = first.srv.http.Close()
		second := serve(lock(data, first.lock))
		<-second.Wanted()
		second.Release()
	}()
	hub, err := WaitFor(t.Context(), data)
	if err != nil {
		t.Fatal(err)
	}
	hub.Release()
}

func TestALockOnAFileThatIsNotThereAnyMoreIsNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		meanwhile func(path string) error
		want      bool
	}{
		"nothing":  {func(string) error { return nil }, false},
		"removed":  {os.Remove, true},
		"replaced": {func(path string) error { return errors.Join(os.Remove(path), os.WriteFile(path, nil, 0o600)) }, true},
	} {
		own, err := Take(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(own.Release)
		if err := c.meanwhile(own.lock.Name()); err != nil {
			t.Fatal(err)
		}
		if got := replaced(own.lock); got != c.want {
			t.Errorf("%s: replaced %v", name, got)
		}
	}
}
