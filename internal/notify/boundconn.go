package notify

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

var errTooMuch = errors.New("the other side sends too much")

// boundConn is a connection that ends with a context, whatever deadlines its users set, and that
// reads no more than a budget, whatever the other side sends.
type boundConn struct {
	net.Conn
	left   int64 // read by one goroutine at a time, as net.Conn's users here do
	cancel context.CancelFunc
	stop   func() bool

	mu    sync.Mutex
	ended bool
}

// bind makes conn end with ctx. Closing it calls cancel.
func bind(ctx context.Context, cancel context.CancelFunc, conn net.Conn, budget int64) *boundConn {
	c := &boundConn{Conn: conn, left: budget, cancel: cancel}
	c.stop = context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.ended = true
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	return c
}

// last gives what is still to be said at most d.
func (c *boundConn) last(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		_ = c.Conn.SetDeadline(time.Now().Add(d))
	}
}

func (c *boundConn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errTooMuch
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}

func (c *boundConn) Close() error {
	c.stop()
	c.cancel()
	return c.Conn.Close()
}

// The context is the only deadline; the mail library would move it on with each step.

func (c *boundConn) SetDeadline(time.Time) error      { return nil }
func (c *boundConn) SetReadDeadline(time.Time) error  { return nil }
func (c *boundConn) SetWriteDeadline(time.Time) error { return nil }

// brokenConn reports whether err is the end of a connection and no verdict of anybody.
func brokenConn(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, os.ErrDeadlineExceeded, errTooMuch, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
