package notify

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"handclasp/internal/handoff"
)

// TLSMode is how a connection to a mail server is protected.
type TLSMode string

// The modes. With STARTTLS the connection ends where the server does not offer it; none is for a
// server on the same machine or network, and has to be asked for.
const (
	TLSStart    TLSMode = "starttls"
	TLSImplicit TLSMode = "tls"
	TLSNone     TLSMode = "none"
)

// defaultSMTPTimeout bounds one attempt from the first packet to the last; it must end before
// [handoff.SendLease] does.
const defaultSMTPTimeout = time.Minute

// tokenPlace is what [EmailConfig.ReplyTo] holds where the token of a thread goes.
const tokenPlace = "{token}"

// EmailConfig is what the operator sets for e-mail.
type EmailConfig struct {
	Host string
	// Port 0 is 587, or 465 with implicit TLS.
	Port int
	// TLS is [TLSStart] when empty.
	TLS                TLSMode
	Username, Password string
	// From is the sender for readers and for servers alike.
	From mail.Address
	// ReplyTo is an address such as reply+{token}@mail.example.com; empty where no mail comes back.
	ReplyTo string
	// AnswersAreRead says that the hub takes in what comes back to ReplyTo, so that a mail may ask for it.
	AnswersAreRead bool
	// HELO is how we introduce ourselves; empty is the domain of From.
	HELO string
	// Timeout bounds one attempt; 0 is a minute.
	Timeout time.Duration
	// RootCAs is who signs the server's certificate; nil is whom the system trusts.
	RootCAs *x509.CertPool
}

// ParseSMTP reads the address of a mail server: smtp://user@mail.example.com:587?tls=starttls, or
// smtps:// for implicit TLS. Further parameters are helo and timeout. The password comes apart,
// because addresses end up in process lists; no error repeats any part of either.
func ParseSMTP(address, password string) (EmailConfig, error) {
	fault := func(what string) (EmailConfig, error) { return EmailConfig{}, errors.New("SMTP address: " + what) }
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return fault("it cannot be read; the form is smtp://user@mail.example.com:587, with an @ inside the user as %40")
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return fault("the scheme must be smtp or smtps")
	case u.Hostname() == "":
		return fault("the host is missing")
	case u.Path != "" && u.Path != "/", u.Fragment != "", u.Opaque != "":
		return fault("something stands behind the host; only ?tls=, ?helo= and ?timeout= may")
	}
	c := EmailConfig{Host: u.Hostname(), TLS: TLSStart, Username: u.User.Username(), Password: password}
	if _, inURL := u.User.Password(); inURL {
		return fault("it holds a password; give that in its own setting")
	}
	if u.Scheme == "smtps" {
		c.TLS = TLSImplicit
	}
	if u.Port() != "" {
		if c.Port, err = strconv.Atoi(u.Port()); err != nil || c.Port < 1 || c.Port > 65535 {
			return fault("the port must be a number from 1 to 65535")
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return fault("the parameters behind ? cannot be read")
	}
	for name, values := range query {
		if len(values) != 1 {
			return fault("a parameter is given twice")
		}
		switch value := values[0]; name {
		case "tls":
			mode := TLSMode(value)
			if mode != TLSStart && mode != TLSImplicit && mode != TLSNone {
				return fault("tls must be starttls, tls or none")
			}
			if u.Scheme == "smtps" && mode != TLSImplicit {
				return fault("smtps is implicit TLS; leave tls out, or write smtp")
			}
			c.TLS = mode
		case "helo":
			c.HELO = value
		case "timeout":
			if c.Timeout, err = time.ParseDuration(value); err != nil || c.Timeout <= 0 {
				return fault("timeout must be a duration such as 30s")
			}
		default:
			return fault("only the parameters tls, helo and timeout are accepted")
		}
	}
	return c, c.checkServer()
}

// complete checks c and fills in what it leaves open.
func (c EmailConfig) complete() (EmailConfig, error) {
	if c.TLS == "" {
		c.TLS = TLSStart
	}
	if c.Port == 0 {
		c.Port = 587
		if c.TLS == TLSImplicit {
			c.Port = 465
		}
	}
	if c.Timeout == 0 {
		c.Timeout = defaultSMTPTimeout
	}
	if !plainAddress(c.From.Address) {
		return c, errors.New("e-mail: the sender's address must be one such as desk@mail.example.com, of plain letters")
	}
	if strings.ContainsFunc(c.From.Name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return c, errors.New("e-mail: the sender's name holds characters that do not show")
	}
	if c.ReplyTo != "" && (strings.Count(c.ReplyTo, tokenPlace) != 1 || !plainAddress(replyAddress(c.ReplyTo, "a"))) {
		return c, errors.New("e-mail: the reply address must hold {token} once, such as reply+{token}@mail.example.com")
	}
	if c.HELO == "" {
		c.HELO = domainOf(c.From.Address)
	}
	return c, c.checkServer()
}

// checkServer checks what concerns the server alone. Nothing in its errors comes from a setting.
func (c EmailConfig) checkServer() error {
	switch {
	case !isHost(c.Host):
		return errors.New("e-mail: the host of the mail server must be a name or an IP address")
	case c.Port < 0 || c.Port > 65535:
		return errors.New("e-mail: the port of the mail server must be from 1 to 65535")
	case c.TLS != "" && c.TLS != TLSStart && c.TLS != TLSImplicit && c.TLS != TLSNone:
		return errors.New("e-mail: tls must be starttls, tls or none")
	case c.HELO != "" && !isHost(strings.Trim(c.HELO, "[]")):
		return errors.New("e-mail: helo must be the name of a host")
	case c.Timeout < 0 || c.Timeout >= handoff.SendLease:
		return fmt.Errorf("e-mail: timeout must be shorter than %v, when the next attempt may begin", handoff.SendLease)
	case c.Username == "" && c.Password != "":
		return errors.New("e-mail: there is a password and no user")
	case c.Username != "" && c.Password == "":
		return errors.New("e-mail: there is a user and no password")
	case strings.ContainsFunc(c.Username+c.Password, unicode.IsControl):
		return errors.New("e-mail: the user or the password holds control characters")
	case c.TLS == TLSNone && c.Username != "" && !isLoopback(c.Host):
		return errors.New("e-mail: tls is none, and the password would travel for all to read; use starttls or tls")
	}
	return nil
}

var (
	hostName = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	mailbox  = regexp.MustCompile(`^[A-Za-z0-9#$&'*+=?^_{}~-]+(\.[A-Za-z0-9#$&'*+=?^_{}~-]+)*$`)
	token    = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

func isHost(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil || len(s) <= 253 && hostName.MatchString(s)
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.Unmap().IsLoopback()
}

// plainAddress reports whether s is an address of the kind that every server knows: no quotes, no
// routes, no comments, no letters beyond ASCII, and nothing that ends a line of the protocol.
func plainAddress(s string) bool {
	local, domain, ok := strings.Cut(s, "@")
	return ok && len(s) <= 254 && len(local) <= 64 && mailbox.MatchString(local) && hostName.MatchString(domain)
}

func domainOf(address string) string {
	_, domain, _ := strings.Cut(address, "@")
	return domain
}

func replyAddress(template, token string) string {
	return strings.Replace(template, tokenPlace, token, 1)
}
