package outbox_test

import (
	"bytes"
	"io"
	"net"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"
)

// The moments of a session at which a mail server can stand still.
const (
	atArrival = iota // the connection is there, and nothing was said
	atEHLO           // each before the answer to that
	atMail
	atRcpt
	atData
	atDot    // the whole mail is there
	atQuit   // its sender knows that it is
	inBody   // half of the mail is there
	afterDot // the answer to the mail was written
)

// mailServer is a real one that keeps what it gets and can hold a session.
type mailServer struct {
	port    int
	mu      sync.Mutex
	refusal *smtp.SMTPError // answers RCPT, if set
	// holds says whether a session is to stand still at a moment; nil for never. helo is empty before
	// that is said, and number counts from 1.
	holds    func(helo string, number, moment int) bool
	sessions int
	mail     []arrived
	held     map[string]int // by helo
	release  chan struct{}
}

// arrived is a mail.
type arrived struct {
	helo, id string
	text     string
}

func startMail(t *testing.T) *mailServer {
	t.Helper()
	s := &mailServer{held: map[string]int{}, release: make(chan struct{})}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	server := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		w := c.Conn().(*wire)
		w.helo = c.Hostname()
		return &mailSession{s, w}, nil
	}))
	server.Domain, server.ErrorLog = "localhost", silent{}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(&wires{l, s}) }()
	t.Cleanup(func() { s.letGo(); _ = server.Close(); <-done })
	return s
}

// letGo lets all sessions go on.
func (s *mailServer) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = nil
	select {
	case <-s.release:
	default:
		close(s.release)
	}
}

func (s *mailServer) hold(holds func(helo string, number, moment int) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds = holds
}

// refuses answers every recipient with a code; 0 ends that.
func (s *mailServer) refuses(code int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = nil
	if code != 0 {
		s.refusal = &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCode{code / 100, 0, 0}, Message: "not this one"}
	}
}

// standing is how many sessions of a node stand still.
func (s *mailServer) standing(helo string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[helo]
}

func (s *mailServer) all() []arrived {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]arrived(nil), s.mail...)
}

type wires struct {
	net.Listener
	s *mailServer
}

func (l *wires) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.sessions++
	return &wire{Conn: c, s: l.s, number: l.s.sessions}, nil
}

// wire is a connection that knows how far its session is.
type wire struct {
	net.Conn
	s      *mailServer
	helo   string
	number int
	said   int // answers
	cut    bool
}

// stands holds the session where that is wanted.
func (w *wire) stands(moment int) (held bool) {
	w.s.mu.Lock()
	held = w.s.holds != nil && w.s.holds(w.helo, w.number, moment)
	if held {
		w.s.held[w.helo]++
	}
	w.s.mu.Unlock()
	if held {
		<-w.s.release
	}
	return held
}

func (w *wire) Write(p []byte) (int, error) {
	if len(p) < 4 || p[3] != ' ' { // a line of an answer that goes on
		return w.Conn.Write(p)
	}
	moment := w.said
	w.said++
	w.stands(moment)
	n, err := w.Conn.Write(p)
	if moment == atDot {
		w.stands(afterDot)
	}
	return n, err
}

func (w *wire) Read(p []byte) (int, error) {
	if w.cut {
		return 0, io.ErrUnexpectedEOF
	}
	if w.said == atData+1 && len(p) > 300 {
		n, err := w.Conn.Read(p[:300])
		if w.stands(inBody) {
			w.cut = true // what was under way to the server is lost
		}
		return n, err
	}
	return w.Conn.Read(p)
}

type mailSession struct {
	s *mailServer
	w *wire
}

func (m *mailSession) Mail(string, *smtp.MailOptions) error { return nil }

func (m *mailSession) Rcpt(string, *smtp.RcptOptions) error {
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	if m.s.refusal != nil {
		return m.s.refusal
	}
	return nil
}

func (m *mailSession) Data(r io.Reader) error {
	raw, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	msg, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	id, _, _ := strings.Cut(strings.Trim(msg.Header.Get("Message-Id"), "<>"), "@")
	m.s.mu.Lock()
	defer m.s.mu.Unlock()
	m.s.mail = append(m.s.mail, arrived{m.w.helo, id, string(raw)})
	return nil
}

func (*mailSession) Reset()        {}
func (*mailSession) Logout() error { return nil }

type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}
