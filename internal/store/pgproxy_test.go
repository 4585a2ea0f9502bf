package store_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
)

// pgProxy stands between a store and its PostgreSQL server. It counts round trips and cuts the
// connection where a test wants it.
type pgProxy struct {
	url    string
	server string
	// trips counts what makes a client wait for the server: Sync, Flush and simple queries.
	trips atomic.Int64

	mu sync.Mutex
	// cut is asked about each message; when it says so, the connection ends: an answer of the
	// server is swallowed with all that follows it, up to the end of that round trip.
	cut func(fromServer bool, kind byte, body []byte) bool
}

// throughProxy puts a proxy in front of the database at the URL.
func throughProxy(t testing.TB, to string) *pgProxy {
	t.Helper()
	u, err := url.Parse(to)
	must(t, err)
	q := u.Query()
	dir, err := os.MkdirTemp("/tmp", "handclasp-proxy-") // a socket's path must be short
	must(t, err)
	p := &pgProxy{server: filepath.Join(q.Get("host"), ".s.PGSQL.5432")}
	listener, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	must(t, err)
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		wg.Wait()
		_ = os.RemoveAll(dir)
	})
	wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.serve(client) })
		}
	})
	q.Set("host", dir)
	u.RawQuery = q.Encode()
	p.url = u.String()
	return p
}

func (p *pgProxy) cutWhen(cut func(fromServer bool, kind byte, body []byte) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
}

func (p *pgProxy) cuts(fromServer bool, kind byte, body []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut != nil && p.cut(fromServer, kind, body)
}

func (p *pgProxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("unix", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer client.Close()
		from := bufio.NewReader(server)
		for swallow := false; ; {
			kind, message, err := readMessage(from, true)
			if err != nil {
				return
			}
			swallow = swallow || p.cuts(true, kind, message[5:])
			if swallow && kind == 'Z' {
				return
			}
			if !swallow {
				if _, err := client.Write(message); err != nil {
					return
				}
			}
		}
	}()
	from := bufio.NewReader(client)
	for started := false; ; started = true {
		kind, message, err := readMessage(from, started)
		if err != nil || (started && p.cuts(false, kind, message[5:])) {
			break
		}
		if started && bytes.IndexByte([]byte("SHQ"), kind) >= 0 {
			p.trips.Add(1)
		}
		if _, err := server.Write(message); err != nil {
			break
		}
	}
	_ = server.Close()
	<-done
}

// readMessage reads one message of the protocol; the first of a client has no kind.
func readMessage(r io.Reader, hasKind bool) (kind byte, message []byte, err error) {
	head := make([]byte, 5)
	if !hasKind {
		head = head[:4]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	message = append(head, make([]byte, length-4)...)
	_, err = io.ReadFull(r, message[len(head):])
	return head[0], message, err
}
