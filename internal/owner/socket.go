package owner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Info is what an owner says of itself at GET /owner.
type Info struct {
	Kind    string `json:"kind"` // Serve or MCP
	PID     int    `json:"pid"`
	URL     string `json:"url,omitempty"` // of the hub's listener, if it has one
	Version string `json:"version"`
}

// SocketPath is owner.sock in the folder. A path that is too long for a socket (108 bytes on
// Linux, 104 elsewhere) is replaced by a short one that both sides derive.
func SocketPath(data string) string {
	path := filepath.Join(data, "owner.sock")
	if len(path) < 100 {
		return path
	}
	sum := sha256.Sum256([]byte(path))
	// Not the folder of TMPDIR, which is not everywhere the same for one user.
	return filepath.Join("/tmp", fmt.Sprintf("handclasp-%d-%s.sock", os.Getuid(), hex.EncodeToString(sum[:8])))
}

// own refuses a socket that somebody else put where the folder's short one would be: anybody may
// write to /tmp, and whoever answers there is believed.
func own(path, data string) error {
	if filepath.Dir(path) == filepath.Clean(data) {
		return nil
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Getuid() || info.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s belongs to another user. Choose a folder with a shorter path with --data", path)
	}
	return nil
}

// socket is the owner's listener.
type socket struct {
	path    string
	http    *http.Server
	log     *slog.Logger
	grace   time.Duration
	closing chan struct{}
	once    sync.Once
	serving sync.WaitGroup

	mu       sync.Mutex
	listener *net.UnixListener
	file     os.FileInfo
	closed   bool
	failed   string // why the socket that went missing could not be made again
}

// Serve answers on owner.sock until [Owner.CloseSocket]: what package owner itself knows, and h for
// the rest. Calls that still run then get grace to end; those of clients that repeat
// what was cut need none.
func (o *Owner) Serve(info Info, h http.Handler, grace time.Duration, log *slog.Logger) error {
	info.PID = os.Getpid()
	s := &socket{path: SocketPath(o.data), log: log, grace: grace, closing: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /owner", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, info) })
	mux.HandleFunc("GET /owner/watch", s.watch)
	mux.HandleFunc("POST /owner/handover", func(w http.ResponseWriter, r *http.Request) { o.askedToHandOver(w, r, info) })
	mux.Handle("/", h)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if err := s.listen(); err != nil {
		return err
	}
	o.srv = s
	go o.watchFolder()
	return nil
}

// listen makes the socket and answers on it.
func (s *socket) listen() error {
	if err := removeStale(s.path); err != nil {
		return err
	}
	l, err := listen(s.path)
	if err != nil {
		return fmt.Errorf("listen on %s: %w. Choose another folder with --data, or give yourself the right to write there", s.path, err)
	}
	// The path may lead to a later owner's socket by then, so it is removed with care.
	l.SetUnlinkOnClose(false)
	file, err := os.Lstat(s.path)
	if err != nil {
		_ = l.Close()
		return fmt.Errorf("listen on %s: %w", s.path, err)
	}
	s.listener, s.file = l, file
	s.serving.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.log.Error("the owner's socket ended", "error", err)
		}
	})
	return nil
}

// mend makes the socket again if somebody removed it: without it nobody reaches the owner, and
// its lock keeps everybody else from the folder.
func (s *socket) mend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now, err := os.Lstat(s.path); s.closed || err == nil && os.SameFile(s.file, now) {
		return
	}
	was := s.listener
	if err := s.listen(); err != nil {
		if s.failed != err.Error() {
			s.log.Error("the owner's socket was removed and cannot be made again", "error", err)
		}
		s.failed = err.Error()
		return
	}
	_ = was.Close()
	s.failed = ""
	s.log.Warn("the owner's socket was removed; it was made again", "path", s.path)
}

// removeStale removes what a dead owner left: holding the lock proves that it is gone.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err == nil && info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is not a socket that handclasp left there. Move it away, or choose another folder with --data", path)
	case err == nil:
		err = os.Remove(path)
	}
	if err != nil {
		return fmt.Errorf("the stale %s cannot be removed: %w. Remove it, or choose another folder with --data", path, err)
	}
	return nil
}

// umask is the process's; one listen at a time may narrow it.
var umask sync.Mutex

// listen makes the socket, which is born with mode 0600.
func listen(path string) (*net.UnixListener, error) {
	umask.Lock()
	defer umask.Unlock()
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
}

// watch is held open as long as this process owns the folder.
func (s *socket) watch(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	_ = http.NewResponseController(w).Flush()
	select {
	case <-s.closing:
	case <-r.Context().Done():
	}
}

func (o *Owner) askedToHandOver(w http.ResponseWriter, r *http.Request, info Info) {
	var who struct {
		PID int `json:"pid"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<10)).Decode(&who); err != nil || who.PID <= 0 {
		answer(w, http.StatusBadRequest, info)
		return
	}
	if info.Kind == Serve {
		answer(w, http.StatusConflict, info)
		return
	}
	answer(w, http.StatusAccepted, info)
	o.handOver(who.PID)
}

func (s *socket) close() {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		close(s.closing)
		ctx, cancel := context.WithTimeout(context.Background(), s.grace)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			_ = s.http.Close()
		}
		s.serving.Wait()
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(s.file, now) {
			_ = os.Remove(s.path)
		}
	})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the asker may be gone
}

// Base is the address under which a client of [Transport] reaches the owner.
const Base = "http://owner"

// Transport reaches the owner of the folder, whoever that is at the moment.
func Transport(data string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			path := SocketPath(data)
			if err := own(path, data); err != nil {
				return nil, &net.OpError{Op: "dial", Net: "unix", Err: err}
			}
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		},
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
	}
}

// answersWithin bounds the wait for an owner that holds the lock and does not answer.
var answersWithin = time.Second

// Ask asks the owner who it is.
func Ask(ctx context.Context, data string) (Info, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var info Info
	resp, err := do(ctx, data, http.MethodGet, "/owner", nil)
	if err != nil {
		return info, err
	}
	defer func() { _ = resp.Body.Close() }()
	// An older program answers something else: it is there, and says no more.
	_ = json.NewDecoder(resp.Body).Decode(&info)
	return info, nil
}

// AskForFolder asks a stdio owner to hand the folder over to this process. False means that the
// owner keeps it.
func AskForFolder(ctx context.Context, data string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	resp, err := do(ctx, data, http.MethodPost, "/owner/handover", map[string]int{"pid": os.Getpid()})
	if err != nil {
		return false, err
	}
	return resp.StatusCode == http.StatusAccepted, resp.Body.Close()
}

// Watch returns once the owner that answers now has gone, or nobody answers.
func Watch(ctx context.Context, data string) {
	resp, err := do(ctx, data, http.MethodGet, "/owner/watch", nil)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}

func do(ctx context.Context, data, method, path string, in any) (*http.Response, error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, Base+path, &body)
	if err != nil {
		return nil, err
	}
	t := Transport(data)
	t.DisableKeepAlives = true
	return t.RoundTrip(req)
}
