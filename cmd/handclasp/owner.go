package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/restapi"
	"handclasp/internal/telemetry"
)

// One process owns a SQLite folder: it holds owner.lock and answers operator commands on
// owner.sock. Reaching that socket (mode 0600) is the operator's credential. A command finds
// the owner there, or owns the folder itself for as long as it runs.

type owner struct {
	data string
	lock *os.File
}

// errOwned says that another process owns the folder.
type errOwned struct{ data, pid string }

func (e errOwned) Error() string {
	by := "another process"
	if e.pid != "" {
		by = "process " + e.pid
	}
	return fmt.Sprintf("the data folder %s is in use by %s. Stop that first, or choose another folder with --data", e.data, by)
}

// takeFolder makes this process the owner of the folder, or says who is.
func takeFolder(data string) (*owner, error) {
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, fmt.Errorf("the data folder %s cannot be made: %w. Choose another with --data, or give yourself the right to write there", data, err)
	}
	path := filepath.Join(data, "owner.lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be opened: %w. Choose another folder with --data, or give yourself the right to write there", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		pid, _ := io.ReadAll(io.LimitReader(f, 32))
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errOwned{data, strings.TrimSpace(string(pid))}
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// Who holds it, for the one who is refused. The lock itself is the kernel's and ends with
	// the process, whatever the file says.
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
	}
	return &owner{data: data, lock: f}, nil
}

// waitForFolder is takeFolder for a hub: an operator's command that owns the folder for the moment
// is waited for, another hub is not. A hub answers on its socket, a command does not.
func waitForFolder(ctx context.Context, data string) (*owner, error) {
	for give := time.Now().Add(5 * time.Second); ; {
		own, err := takeFolder(data)
		var owned errOwned
		if err == nil || !errors.As(err, &owned) || time.Now().After(give) || socketClient(socketPath(data)).reachable(ctx) {
			return own, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (o *owner) release() {
	_ = o.lock.Truncate(0)
	_ = o.lock.Close()
}

// socketPath is owner.sock in the folder. A path that is too long for a socket (108 bytes on
// Linux, 104 elsewhere) is replaced by a short one that both sides derive.
func socketPath(data string) string {
	path := filepath.Join(data, "owner.sock")
	if len(path) < 100 {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	return filepath.Join(os.TempDir(), fmt.Sprintf("handclasp-%d-%s.sock", os.Getuid(), hex.EncodeToString(sum[:8])))
}

// serveOperator answers on owner.sock until stop is called.
func (o *owner) serveOperator(h http.Handler, log *slog.Logger) (stop func(), err error) {
	path := socketPath(o.data)
	// Holding the lock proves that whoever left a socket here is gone.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the stale %s: %w", path, err)
	}
	old := syscall.Umask(0o177) // the socket is born with mode 0600
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
	syscall.Umask(old)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the operator's socket ended", "error", err)
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if srv.Shutdown(ctx) != nil {
			_ = srv.Close() // a backup goes on for longer than that, and its reader may be stuck
		}
		<-done
	}, nil
}

// operate gives f a client of the operator's routes: those of the process that owns the
// folder, or of a hub that this command opens for the moment. A folder without a hub is refused,
// for it is mistyped more often than meant.
func operate(e *env, where *config.Where, f func(*operatorClient) error) error {
	return operateOn(e, where, false, f)
}

// operateOn is operate; founding makes a hub where there is none.
func operateOn(e *env, where *config.Where, founding bool, f func(*operatorClient) error) error {
	if err := where.Check(); err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
	defer cancel()
	if where.DatabaseURL != "" {
		return operateHere(ctx, where, f)
	}
	if _, err := os.Stat(databaseFile(where.Data)); errors.Is(err, os.ErrNotExist) && !founding {
		return fmt.Errorf("there is no hub in %s. Name its folder with --data, or begin one with handclasp agent add or handclasp serve", where.Data)
	}
	for {
		own, err := takeFolder(where.Data)
		if err == nil {
			defer own.release()
			return operateHere(ctx, where, f)
		}
		var owned errOwned
		if !errors.As(err, &owned) {
			return err
		}
		client := socketClient(socketPath(where.Data))
		if client.reachable(ctx) {
			return f(client)
		}
		// The owner is starting or ending; a moment later it is one or the other.
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w. It does not answer on %s", owned, socketPath(where.Data))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func operateHere(ctx context.Context, where *config.Where, f func(*operatorClient) error) error {
	log := telemetry.NewLogger(os.Stderr, "text", slog.LevelWarn)
	cfg := &config.Serve{Where: *where, MaxDatabaseConns: 4, FeatureProposedActions: true}
	st, h, err := openHub(ctx, cfg, "", log, telemetry.New())
	if err != nil {
		return err
	}
	err = f(&operatorClient{ctx: ctx, http: &http.Client{Transport: inProcess{restapi.Operator(h, log)}}})
	return errors.Join(err, st.Close())
}

func socketClient(path string) *operatorClient {
	return &operatorClient{http: &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
	}}}
}
