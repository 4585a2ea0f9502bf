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
	return filepath.Join(os.TempDir(), fmt.Sprintf("handclasp-%d-%s.sock", os.Getuid(), hex.EncodeToString(sum[:8])))
}

// socket is the owner's listener.
type socket struct {
	http    *http.Server
	grace   time.Duration
	closing chan struct{}
	once    sync.Once
	done    chan struct{}
}

// Serve answers on owner.sock until [Owner.CloseSocket]: what package owner itself knows, and h for
// the rest. Calls that still run then get grace to end; those of clients that repeat
// what was cut need none.
func (o *Owner) Serve(info Info, h http.Handler, grace time.Duration, log *slog.Logger) error {
	path := SocketPath(o.data)
	// Holding the lock proves that whoever left a socket here is gone.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the stale %s: %w", path, err)
	}
	l, err := listen(path)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	info.PID = os.Getpid()
	s := &socket{grace: grace, closing: make(chan struct{}), done: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /owner", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, info) })
	mux.HandleFunc("GET /owner/watch", s.watch)
	mux.HandleFunc("POST /owner/handover", func(w http.ResponseWriter, r *http.Request) { o.askedToHandOver(w, r, info) })
	mux.Handle("/", h)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	o.srv = s
	go func() {
		defer close(s.done)
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the owner's socket ended", "error", err)
		}
	}()
	return nil
}

// umask is the process's; one listen at a time may narrow it.
var umask sync.Mutex

// listen makes the socket, which is born with mode 0600.
func listen(path string) (net.Listener, error) {
	umask.Lock()
	defer umask.Unlock()
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return (&net.ListenConfig{}).Listen(context.Background(), "unix", path)
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
		close(s.closing)
		ctx, cancel := context.WithTimeout(context.Background(), s.grace)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			_ = s.http.Close()
		}
		<-s.done
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
			return (&net.Dialer{}).DialContext(ctx, "unix", SocketPath(data))
		},
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     30 * time.Second,
	}
}

// answersWithin bounds the wait for an owner that holds the lock and does not answer.
const answersWithin = time.Second

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
