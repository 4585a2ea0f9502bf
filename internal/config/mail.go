package config

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// Mail says by which server notifications go out as e-mail. Without an address there is no e-mail.
type Mail struct {
	SMTPURL          string `name:"smtp-url" help:"Mail server for notifications: smtp://user@mail.example.com:587 with STARTTLS, smtps://… with TLS from the start." placeholder:"URL"`
	SMTPPasswordFile string `name:"smtp-password-file" help:"File with one line, the password for the mail server; addresses hold none." type:"path" placeholder:"FILE"`
	MailFrom         string `name:"mail-from" help:"Who notifications are from, such as \"Handclasp <hub@example.com>\"." placeholder:"ADDRESS"`
	MailReplyTo      string `name:"mail-reply-to" help:"Where answers to a notification go, with {token}: reply+{token}@example.com." placeholder:"ADDRESS"`
}

// Configured reports whether e-mail can be sent.
func (m *Mail) Configured() bool { return m.SMTPURL != "" }

// Check refuses half a configuration.
func (m *Mail) Check() error {
	switch {
	case m.SMTPURL == "" && m.MailFrom == "" && m.MailReplyTo == "" && m.SMTPPasswordFile == "":
		return nil
	case m.SMTPURL == "":
		return errors.New("--smtp-url: nothing came, and another setting of mail did; name the server, such as smtp://user@mail.example.com:587")
	case m.MailFrom == "":
		return errors.New("--mail-from: nothing came; name who notifications are from, such as \"Handclasp <hub@example.com>\"")
	case m.MailReplyTo != "" && strings.Count(m.MailReplyTo, "{token}") != 1:
		return errors.New("--mail-reply-to: an address with {token} in it is accepted, such as reply+{token}@example.com")
	}
	return nil
}

// Password is what the file holds; empty where there is none.
func (m *Mail) Password() (string, error) {
	if m.SMTPPasswordFile == "" {
		return "", nil
	}
	const most = 4 << 10
	b, err := os.ReadFile(m.SMTPPasswordFile)
	if err != nil {
		return "", fmt.Errorf("--smtp-password-file: %w", err)
	}
	password := strings.TrimRight(string(b), "\r\n")
	if password == "" || len(b) > most || strings.ContainsAny(password, "\r\n\x00") {
		return "", errors.New("--smtp-password-file: a file with one line, the password, is accepted")
	}
	return password, nil
}
