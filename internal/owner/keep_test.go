package owner_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
)

// keep runs Keep as a stdio process does, until the test ends.
func keep(t *testing.T, data string) *keeper {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	k := &keeper{owns: make(chan *owner.Owner, 100), faults: make(chan error, 100), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		owner.Keep(ctx, data, func(ctx context.Context, own *owner.Owner) error {
			serve(t, own, owner.MCP)
			k.owns <- own
			select {
			case <-ctx.Done():
			case <-own.Wanted():
			}
			return nil
		}, func(err error) {
			select {
			case k.faults <- err:
			default:
			}
		})
	}()
	t.Cleanup(k.end)
	return k
}

type keeper struct {
	owns   chan *owner.Owner
	faults chan error
	stop   context.CancelFunc
	done   chan struct{}
}

func (k *keeper) end() { k.stop(); <-k.done }

// keepEnv makes this test's program a stdio process on a folder, until its stdin ends.
const keepEnv = "HANDCLASP_TEST_KEEPS"

func TestMain(m *testing.M) {
	data := os.Getenv(keepEnv)
	if data == "" {
		os.Exit(m.Run())
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	owner.Keep(ctx, data, func(ctx context.Context, own *owner.Owner) error {
		err := own.Serve(owner.Info{Kind: owner.MCP}, http.NotFoundHandler(), 0, slog.New(slog.DiscardHandler))
		select {
		case <-ctx.Done():
		case <-own.Wanted():
		}
		return err
	}, func(error) {})
}

// keepElsewhere is [keep] in a process of its own. It gives the end of that process.
func keepElsewhere(t *testing.T, data string) (end func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), keepEnv+"="+data)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() { _ = in.Close(); _ = cmd.Wait() })
	t.Cleanup(end)
	return end
}

// ownedBy waits until an owner of that kind answers, and gives its process.
func ownedBy(t *testing.T, data, kind string) (pid int) {
	t.Helper()
	hubtest.Eventually(t, func() bool {
		info, err := owner.Ask(t.Context(), data)
		pid = info.PID
		return err == nil && info.Kind == kind
	})
	return pid
}

func TestAHubThatIsStartedGetsTheFolderFromAStdioOwner(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	ends := []func(){keepElsewhere(t, data), keepElsewhere(t, data), keepElsewhere(t, data)}
	first := ownedBy(t, data, owner.MCP)
	if first == os.Getpid() {
		t.Fatal("the owner is no other process")
	}
	hub, err := owner.WaitFor(t.Context(), data) // and none of the others was quicker
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Release)
	serve(t, hub, owner.Serve)
	// A second hub is refused, and the stdio processes wait.
	_, err = owner.WaitFor(t.Context(), data)
	wantOwned(t, err, strconv.Itoa(os.Getpid()))
	if yes, err := owner.AskForFolder(t.Context(), data); err != nil || yes {
		t.Errorf("a hub hands its folder over: %v %v", yes, err)
	}
	select {
	case <-hub.Wanted():
		t.Error("a hub was asked for its folder")
	default:
	}
	hub.Release()
	ownedBy(t, data, owner.MCP)
	for _, end := range ends {
		end()
	}
	take(t, data)
}

func TestOneOfThoseThatWaitTakesOverWhenTheOwnerEnds(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	var keepers []*keeper
	for range 4 {
		keepers = append(keepers, keep(t, data))
	}
	for left := len(keepers); left > 0; left-- {
		var owns *keeper
		hubtest.Eventually(t, func() bool {
			for _, k := range keepers {
				if len(k.owns) > 0 {
					owns = k
				}
			}
			return owns != nil
		})
		owns.end()
		<-owns.owns
	}
	if _, err := owner.Ask(t.Context(), data); err == nil {
		t.Error("somebody still answers")
	}
	take(t, data)
}

func TestWatchReturnsWhenTheOwnerEndsAndWhenThereIsNone(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	owner.Watch(t.Context(), data)
	own := take(t, data)
	serve(t, own, owner.Serve)
	for _, end := range []func(context.CancelFunc){func(stop context.CancelFunc) { stop() }, func(context.CancelFunc) { own.CloseSocket() }} {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { owner.Watch(ctx, data); close(done) }()
		end(stop)
		<-done
		stop()
	}
}

func TestKeepGoesOnTryingAndTheLockIsFreeMeanwhile(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	broken := errors.New("the disk is full")
	var mu sync.Mutex
	ctx, stop := context.WithCancel(context.Background())
	faults, runs, done := make(chan error, 100), make(chan struct{}, 100), make(chan struct{})
	go func() {
		defer close(done)
		owner.Keep(ctx, data, func(ctx context.Context, _ *owner.Owner) error {
			mu.Lock()
			err := broken
			mu.Unlock()
			if err == nil {
				runs <- struct{}{}
				<-ctx.Done()
			}
			return err
		}, func(err error) { faults <- err })
	}()
	if err := <-faults; !errors.Is(err, broken) {
		t.Errorf("told of %v", err)
	}
	own, err := owner.WaitFor(t.Context(), data) // another process goes on
	if err != nil {
		t.Fatal(err)
	}
	own.Release()
	mu.Lock()
	broken = nil
	mu.Unlock()
	<-runs
	stop()
	<-done
}

// frozen is an owner that holds the lock, whose socket takes connections and which never answers.
func frozen(t *testing.T, data string) {
	t.Helper()
	take(t, data)
	l, err := net.Listen("unix", owner.SocketPath(data))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
}

func TestAFrozenOwnerHoldsNobodyUpForever(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	frozen(t, data)
	if _, err := owner.Ask(t.Context(), data); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asking: %v", err)
	}
	if _, err := owner.AskForFolder(t.Context(), data); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("asking for the folder: %v", err)
	}
	_, err := owner.WaitFor(t.Context(), data)
	wantOwned(t, err, strconv.Itoa(os.Getpid()))
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = owner.WaitFor(ctx, data)
	wantOwned(t, err, strconv.Itoa(os.Getpid()))
	k := keep(t, data)
	k.end()
}

func TestAnOwnerWhoseFolderIsRemovedOrReplacedIsTold(t *testing.T) {
	t.Parallel()
	for name, replace := range map[string]func(data string) error{
		"removed": os.RemoveAll,
		"emptied": func(data string) error { return os.Remove(filepath.Join(data, "owner.lock")) },
		"moved":   func(data string) error { return os.Rename(data, data+"2") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "data")
			own, err := owner.WaitFor(t.Context(), data)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(own.Release)
			serve(t, own, owner.Serve)
			if err := replace(data); err != nil {
				t.Fatal(err)
			}
			<-own.Lost()
			// Ending, it leaves the next owner's socket alone.
			next, err := owner.WaitFor(t.Context(), data)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(next.Release)
			serve(t, next, owner.MCP)
			own.Release()
			if info, err := owner.Ask(t.Context(), data); err != nil || info.Kind != owner.MCP {
				t.Errorf("the next owner: %+v %v", info, err)
			}
		})
	}
}

func TestAHandOverThatNobodyCanReadIsRefused(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	own := take(t, data)
	serve(t, own, owner.MCP)
	for _, body := range []string{"", "{}", `{"pid":0}`, `{"pid":-1}`, `{"pid":"x"}`, "\x00"} {
		if status := post(t, data, "/owner/handover", body); status != 400 {
			t.Errorf("%q: status %d", body, status)
		}
	}
	select {
	case <-own.Wanted():
		t.Error("it was taken for a request")
	default:
	}
	if yes, err := owner.AskForFolder(t.Context(), data); err != nil || !yes {
		t.Fatalf("%v %v", yes, err)
	}
	<-own.Wanted()
	own.Release()
	b, err := os.ReadFile(filepath.Join(data, "owner.lock"))
	if err != nil || string(b) != "for "+strconv.Itoa(os.Getpid())+"\n" {
		t.Errorf("the lock file holds %q, %v", b, err)
	}
}
