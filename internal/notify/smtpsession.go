package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

const (
	// mostFromServer bounds what a server may say in one session, its certificates included: the
	// libraries collect lines for as long as they come.
	mostFromServer = 256 << 10
	// quitWait is for courtesy only: all is decided before.
	quitWait = time.Second
)

// fault is why no session came about. Its text holds nothing secret.
type fault struct {
	reason string
	doing  string
	err    error
}

func (f *fault) Error() string { return f.doing + ": " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// session is a connection to the mail server, ready for MAIL FROM.
type session struct {
	client *smtp.Client
	conn   *boundConn
}

// connect dials, protects the connection as configured and authenticates. Whoever gets a session
// ends it with quit or drop.
func (e *Email) connect(ctx context.Context) (*session, *fault) {
	c := e.config
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(c.Host, strconv.Itoa(c.Port)))
	if err != nil {
		cancel()
		return nil, &fault{ReasonUnreachable, "connect to the mail server", err}
	}
	s := &session{conn: bind(ctx, cancel, raw, mostFromServer)}
	if f := s.begin(ctx, c); f != nil {
		s.drop()
		return nil, f
	}
	return s, nil
}

func (s *session) begin(ctx context.Context, c EmailConfig) *fault {
	secure := &tls.Config{ServerName: c.Host, RootCAs: c.RootCAs, MinVersion: tls.VersionTLS12}
	var conn net.Conn = s.conn
	if c.TLS == TLSImplicit {
		protected := tls.Client(conn, secure)
		if err := protected.HandshakeContext(ctx); err != nil {
			return faultOf("begin TLS with the mail server", ReasonTLS, err)
		}
		conn = protected
	}
	var err error
	if s.client, err = smtp.NewClient(conn, c.Host); err != nil {
		return faultOf("read the mail server's greeting", ReasonUnreachable, err)
	}
	s.client.SkipSMTPUTF8(true) // our addresses are plain, and the flag keeps a mail from older servers
	if err := s.client.Hello(c.HELO); err != nil {
		return faultOf("introduce ourselves to the mail server", ReasonUnreachable, err)
	}
	if c.TLS == TLSStart {
		if offered, _ := s.client.Extension("STARTTLS"); !offered {
			return &fault{ReasonTLS, "begin TLS with the mail server", errors.New("it does not offer STARTTLS")}
		}
		if err := s.client.StartTLS(secure); err != nil {
			return faultOf("begin TLS with the mail server", ReasonTLS, err)
		}
	}
	if c.Username == "" {
		return nil
	}
	return s.authenticate(c)
}

// authenticate leaves SCRAM out: there a server says how long we are to calculate, and inside of TLS
// it protects from nothing that PLAIN does not.
func (s *session) authenticate(c EmailConfig) *fault {
	const doing = "authenticate at the mail server"
	_, offered := s.client.Extension("AUTH")
	mechanisms := strings.Fields(strings.ToUpper(offered))
	var auth smtp.Auth
	switch {
	case slices.Contains(mechanisms, "PLAIN"):
		auth = smtp.PlainAuth("", c.Username, c.Password, c.Host, c.TLS == TLSNone)
	case slices.Contains(mechanisms, "LOGIN"):
		auth = smtp.LoginAuth(c.Username, c.Password, c.Host, c.TLS == TLSNone)
	case slices.Contains(mechanisms, "CRAM-MD5"):
		auth = smtp.CRAMMD5Auth(c.Username, c.Password)
	default:
		return &fault{ReasonAuth, doing, errors.New("it offers none of PLAIN, LOGIN and CRAM-MD5")}
	}
	err := s.client.Auth(auth)
	if err == nil {
		return nil
	}
	// What a server says here may repeat what we said.
	f := faultOf(doing, ReasonAuth, err)
	var answer *textproto.Error
	switch {
	case errors.As(err, &answer):
		if answer.Code >= 500 {
			f.reason = ReasonAuth
		}
		f.err = fmt.Errorf("it answered %d", answer.Code)
	case f.reason == ReasonAuth:
		f.err = errors.New("it did not keep to the protocol")
	}
	return f
}

// faultOf sorts err: an answer of the server has its code, a broken connection is unreachable, and
// what is left is what the step was about.
func faultOf(doing, reason string, err error) *fault {
	var answer *textproto.Error
	var network net.Error
	var op *net.OpError
	switch {
	case errors.As(err, &answer):
		if answer.Code >= 400 {
			return &fault{reasonCode(answer.Code), doing, err}
		}
		return &fault{ReasonUnreachable, doing, err}
	case errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error"): // how crypto/tls reports alerts
		return &fault{reason, doing, err}
	case brokenConn(err), errors.As(err, &network):
		return &fault{ReasonUnreachable, doing, err}
	}
	return &fault{reason, doing, err}
}

func (s *session) quit() {
	s.conn.last(quitWait)
	_ = s.client.Quit()
	s.drop()
}

// drop ends the connection without another word.
func (s *session) drop() { _ = s.conn.Close() }
