package notify

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	netmail "net/mail"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"handclasp/internal/handoff"
)

// authority signs the certificate of every test server; nobody else trusts it.
var authority = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "notify test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost", "inbox.example"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
})

func listen(t *testing.T) (l net.Listener, port int) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Addr().(*net.TCPAddr).Port
}

const (
	theUser     = "desk@diner.example"
	thePassword = "s3cret-p4ss"
)

// mailServer is a real one that keeps what it gets. A refusal that is set answers that command.
type mailServer struct {
	onMail, onRcpt, onData error
	mechanisms             []string
	implicit               bool // TLS from the first byte

	mu   sync.Mutex
	mail []received
}

type received struct {
	from, to string
	utf8     bool
	raw      []byte
}

// start serves on a fresh port. adjust may be nil.
func (s *mailServer) start(t *testing.T, adjust func(*smtp.Server)) (port int) {
	t.Helper()
	cert, _ := authority()
	l, port := listen(t)
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return &mailSession{server: s}, nil }))
	server.Domain = "localhost"
	server.EnableSMTPUTF8 = true
	server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}}
	server.ErrorLog = quiet{}
	if adjust != nil {
		adjust(server)
	}
	if s.implicit {
		l = tls.NewListener(l, server.TLSConfig)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = l.Close(); _ = server.Close(); <-done })
	return port
}

func (s *mailServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mail)
}

func (s *mailServer) only(t *testing.T) received {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mail) != 1 {
		t.Fatalf("the server has %d mails, want 1", len(s.mail))
	}
	return s.mail[0]
}

func (r received) parse(t *testing.T) *netmail.Message {
	t.Helper()
	m, err := netmail.ReadMessage(bytes.NewReader(r.raw))
	if err != nil {
		t.Fatalf("not a mail: %v\n%s", err, r.raw)
	}
	return m
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
func (quiet) Println(...any)        {}

type mailSession struct {
	server *mailServer
	authed bool
	got    received
}

func (s *mailSession) AuthMechanisms() []string {
	if s.server.mechanisms != nil {
		return s.server.mechanisms
	}
	return []string{sasl.Plain}
}

func (s *mailSession) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		if user != theUser || password != thePassword {
			return &smtp.SMTPError{Code: 535, EnhancedCode: smtp.EnhancedCode{5, 7, 8}, Message: "no, not with " + password}
		}
		s.authed = true
		return nil
	}
	if mechanism == sasl.Login {
		return &loginServer{check: check}, nil
	}
	return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
}

func (s *mailSession) Mail(from string, opts *smtp.MailOptions) error {
	if !s.authed {
		return &smtp.SMTPError{Code: 530, EnhancedCode: smtp.EnhancedCode{5, 7, 0}, Message: "authenticate first"}
	}
	s.got = received{from: from, utf8: opts.UTF8}
	return s.server.onMail
}

func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.got.to = to
	return s.server.onRcpt
}

func (s *mailSession) Data(r io.Reader) (err error) {
	if s.got.raw, err = io.ReadAll(r); err != nil {
		return err
	}
	if s.server.onData != nil {
		return s.server.onData
	}
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.mail = append(s.server.mail, s.got)
	return nil
}

func (s *mailSession) Reset()        {}
func (s *mailSession) Logout() error { return nil }

// loginServer is the server side of LOGIN, which go-sasl has given up.
type loginServer struct {
	check      func(user, password string) error
	step       int
	user, pass string
}

func (l *loginServer) Next(response []byte) (challenge []byte, done bool, err error) {
	l.step++
	switch l.step {
	case 1:
		return []byte("Username:"), false, nil
	case 2:
		l.user = string(response)
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.user, string(response))
}

// emailTo returns a sender for a server on that port; adjust may be nil.
func emailTo(t *testing.T, port int, adjust func(*EmailConfig)) *Email {
	t.Helper()
	_, roots := authority()
	c := EmailConfig{
		Host: "127.0.0.1", Port: port, Username: theUser, Password: thePassword, RootCAs: roots,
		From:    netmail.Address{Name: "Handclasp Desk", Address: "desk@diner.example"},
		ReplyTo: "reply+{token}@in.diner.example", AnswersAreRead: true, Timeout: 20 * time.Second,
	}
	if adjust != nil {
		adjust(&c)
	}
	e, err := NewEmail(c)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// unprotected turns off TLS and credentials, for servers that are a script.
func unprotected(c *EmailConfig) { c.TLS, c.Username, c.Password = TLSNone, "", "" }

// script is a server of one's own: it is called with each connection, which is closed behind it.
func script(t *testing.T, play func(c *line)) (port int) {
	t.Helper()
	l, port := listen(t)
	var players sync.WaitGroup
	players.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			// A test that fails must not wait for its server.
			_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
			players.Go(func() {
				defer conn.Close()
				play(&line{conn, bufio.NewReader(conn)})
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); players.Wait() })
	return port
}

// line is a connection that speaks lines.
type line struct {
	net.Conn
	r *bufio.Reader
}

func (l *line) say(s string) { _, _ = io.WriteString(l, s+"\r\n") }

// hear reads one line; it is empty when the other side has gone.
func (l *line) hear() string {
	s, _ := l.r.ReadString('\n')
	return strings.TrimRight(s, "\r\n")
}

// hearMessage reads up to the final dot and reports whether there was one.
func (l *line) hearMessage() bool {
	for {
		s, err := l.r.ReadString('\n')
		if err != nil {
			return false
		}
		if s == ".\r\n" {
			return true
		}
	}
}

// hang waits until the other side has gone.
func (l *line) hang() { _, _ = io.Copy(io.Discard, l.r) }

// dribble says s again and again until the other side has gone.
func (l *line) dribble(s string) {
	for {
		if _, err := io.WriteString(l, s); err != nil {
			return
		}
	}
}

func wantOutcome(t *testing.T, o handoff.Outcome, kind handoff.OutcomeKind, reason string) {
	t.Helper()
	if o.Kind != kind || o.Reason != reason {
		t.Errorf("outcome %s %q (%v), want %s %q", o.Kind, o.Reason, o.Err, kind, reason)
	}
	if o.Err != nil {
		for _, secret := range []string{thePassword, "abc234", "owner@diner.example", "T0PS3CR3T"} {
			if strings.Contains(o.Err.Error(), secret) {
				t.Errorf("the error tells %q: %v", secret, o.Err)
			}
		}
	}
}

// testSecret is one in the form that the hub makes.
const testSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
