package notify

import (
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"handclasp/internal/handoff"
)

func TestAnSMTPAddressIsRead(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]EmailConfig{
		"smtp://user@mail.example.com:587?tls=starttls":            {Host: "mail.example.com", Port: 587, TLS: TLSStart, Username: "user", Password: "p"},
		"smtp://desk%40example.com@mail.example.com":               {Host: "mail.example.com", TLS: TLSStart, Username: "desk@example.com", Password: "p"},
		"smtps://u@mail.example.com":                               {Host: "mail.example.com", TLS: TLSImplicit, Username: "u", Password: "p"},
		"smtps://u@mail.example.com:2465/?tls=tls":                 {Host: "mail.example.com", Port: 2465, TLS: TLSImplicit, Username: "u", Password: "p"},
		"smtp://u@[::1]:25?tls=none&helo=desk.example&timeout=10s": {Host: "::1", Port: 25, TLS: TLSNone, Username: "u", Password: "p", HELO: "desk.example", Timeout: 10 * time.Second},
	} {
		got, err := ParseSMTP(address, "p")
		if err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", address, diff)
		}
	}
	if _, err := ParseSMTP("smtp://10.0.0.5:25?tls=none", ""); err != nil {
		t.Errorf("a relay without credentials: %v", err)
	}
}

func TestAWrongSMTPAddressIsNamedWithoutTheSecretInIt(t *testing.T) {
	t.Parallel()
	tests := []struct{ address, password, want string }{
		{"", "p", "scheme"},
		{"mail.example.com:587", "p", "scheme"},
		{"http://mail.example.com", "p", "scheme"},
		{"smtp://", "p", "host is missing"},
		{"smtp://user:hunter2@mail.example.com", "", "password"},
		{"smtp://user:hunter2/x@mail.example.com", "", "cannot be read"},
		{"smtp://user:12#hunter2@mail.example.com", "", "behind the host"},
		{"smtp://user@mail.example.com:99999", "p", "port"},
		{"smtp://user@mail.example.com:0", "p", "port"},
		{"smtp://user@mail.example.com:smtp", "p", "cannot be read"},
		{"smtp://user@mail.example.com/hunter2", "p", "behind the host"},
		{"smtp://user@mail.example.com?tls=maybe", "p", "tls must be"},
		{"smtps://user@mail.example.com?tls=starttls", "p", "smtps"},
		{"smtp://user@mail.example.com?hunter2=1", "p", "parameters"},
		{"smtp://user@mail.example.com?tls=tls&tls=none", "p", "twice"},
		{"smtp://user@mail.example.com?timeout=soon", "p", "timeout"},
		{"smtp://user@mail.example.com?timeout=10m", "p", "timeout"},
		{"smtp://user@mail.example.com?helo=a+b", "p", "helo"},
		{"smtp://user@mail.example.com", "", "no password"},
		{"smtp://mail.example.com", "hunter2", "no user"},
		{"smtp://user@mail.example.com?tls=none", "hunter2", "tls is none"},
		{"smtp://user@mail.example.com", "hunter2\n", "control characters"},
		{"smtp://user@a..b", "hunter2", "host"},
		{"smtp://user@mail example", "hunter2", "cannot be read"},
	}
	for _, tt := range tests {
		_, err := ParseSMTP(tt.address, tt.password)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q, %q: %v, want something with %q", tt.address, tt.password, err, tt.want)
		}
	}
}

func TestASenderIsNotMadeOfWrongSettings(t *testing.T) {
	t.Parallel()
	good := EmailConfig{Host: "mail.example.com", From: netmail.Address{Name: "Desk", Address: "desk@example.com"}}
	if _, err := NewEmail(good); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*EmailConfig){
		"host":                    func(c *EmailConfig) { c.Host = "" },
		"port":                    func(c *EmailConfig) { c.Port = -1 },
		"tls must be":             func(c *EmailConfig) { c.TLS = "ssl" },
		"sender's address":        func(c *EmailConfig) { c.From.Address = "desk" },
		"sender's name":           func(c *EmailConfig) { c.From.Name = "Desk\r\nBcc: x" },
		"{token} once":            func(c *EmailConfig) { c.ReplyTo = "reply@example.com" },
		"must hold {token} once,": func(c *EmailConfig) { c.ReplyTo = "{token}+{token}@example.com" },
		"reply address":           func(c *EmailConfig) { c.ReplyTo = "a b{token}@example.com" },
		"helo":                    func(c *EmailConfig) { c.HELO = "a\r\nb" },
		"timeout":                 func(c *EmailConfig) { c.Timeout = handoff.SendLease },
	} {
		c := good
		spoil(&c)
		if _, err := NewEmail(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want something with %q", err, want)
		}
	}
}
