package notify

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	mail "github.com/wneessen/go-mail"

	netmail "net/mail"

	"handclasp/internal/handoff"
)

// Email sends notifications as mail.
type Email struct {
	config EmailConfig
	mailer *mail.Client
}

// NewEmail returns a sender for c, or says which setting is wrong. It does not connect; see
// [Email.Check].
func NewEmail(c EmailConfig) (*Email, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	// We connect ourselves; the library speaks from MAIL FROM on. It would greet with NOOP and leave
	// with RSET, two more chances for a server to hang.
	mailer, err := mail.NewClient(c.Host, mail.WithHELO(c.HELO), mail.WithTimeout(c.Timeout), mail.WithoutNoop(), mail.WithoutRset())
	if err != nil {
		return nil, fmt.Errorf("e-mail: %w", err)
	}
	return &Email{config: c, mailer: mailer}, nil
}

// Authenticates reports whether the mail server is given credentials.
func (e *Email) Authenticates() bool { return e.config.Username != "" }

// Check connects as for a delivery, authenticates and leaves.
func (e *Email) Check(ctx context.Context) error {
	s, fault := e.connect(ctx)
	if fault != nil {
		return fault
	}
	s.quit()
	return nil
}

// Send delivers n. A refusal is what the server says of this mail or its recipient; trouble with the
// connection, with TLS or with our own credentials is a failure that another attempt may not meet.
func (e *Email) Send(ctx context.Context, n handoff.Notification) handoff.Outcome {
	if !plainAddress(n.To) {
		return refused(handoff.ReasonInvalid, errors.New("the recipient's address is none that every mail server accepts"))
	}
	msg, id, err := e.message(n)
	if err != nil {
		return refused(ReasonMessage, err)
	}
	s, fault := e.connect(ctx)
	if fault != nil {
		return failed(fault.reason, fault)
	}
	err = e.mailer.SendWithSMTPClient(s.client, msg)
	if err == nil || msg.IsDelivered() {
		s.quit()
		return handoff.Outcome{Kind: handoff.OutcomeSent, ProviderID: id}
	}
	var refusal *mail.SendError
	if !errors.As(err, &refusal) {
		s.drop()
		return unknown(scrub(err, n))
	}
	// ErrSMTPDataClose is reported from the moment on that the library writes the final dot, and for
	// nothing before; without a code behind it, nobody knows what became of the message.
	code := refusal.ErrorCode()
	if code == 0 {
		// Any further command would end the message with a dot and so send half of it.
		s.drop()
	} else {
		s.quit()
	}
	switch {
	case code == 0 && refusal.Reason == mail.ErrSMTPDataClose:
		return unknown(scrub(err, n))
	case code == 0:
		return failed(ReasonUnreachable, scrub(err, n))
	case code == 530 || code == 534 || code == 535 || code == 538: // it wants credentials, or better ones
		return failed(ReasonAuth, scrub(err, n))
	case code >= 500:
		return refused(reasonCode(code), scrub(err, n))
	}
	return failed(reasonCode(code), scrub(err, n))
}

// scrub takes out of a server's words what must not stand in a log: addresses and links of any kind, since
// servers quote what they refuse, and what the mail says of the customer.
func scrub(err error, n handoff.Notification) error {
	s := anyLink.ReplaceAllLiteralString(err.Error(), "(a link)")
	s = anyAddress.ReplaceAllLiteralString(s, "(an address)")
	s = anyToken.ReplaceAllLiteralString(s, "(a token)")
	var words []string
	for _, text := range []string{n.ReplyToken, path.Base(n.Link), n.ContactName, n.ContactPhone, n.ReservationID, n.AgentLabel, n.Reason, strings.ToValidUTF8(n.Body[:min(len(n.Body), mostBody)], "")} {
		for _, word := range strings.Fields(text) {
			if len(word) > 2 {
				words = append(words, regexp.QuoteMeta(word))
			}
		}
	}
	if len(words) > 0 {
		s = regexp.MustCompile(`(?i)(?:`+strings.Join(words, "|")+`)`).ReplaceAllLiteralString(s, "…")
	}
	return errors.New(Inert(s, mostLine))
}

var (
	anyLink    = regexp.MustCompile(`(?i)[a-z][a-z0-9+.-]*://\S+|/h/\S+`)
	anyAddress = regexp.MustCompile(`[^\s<>"'()]+@[^\s<>"'(),;]+`)
	anyToken   = regexp.MustCompile(`(?i)[a-z2-7]{26,}`)
)

// message returns n as a mail, and its Message-ID, which is the same at each attempt.
func (e *Email) message(n handoff.Notification) (msg *mail.Msg, id string, err error) {
	id = e.messageID(n.ID)
	if id == "" {
		return nil, "", errors.New("the delivery has no id")
	}
	reply := e.replyTo(n)
	letter, err := Compose(n, reply != "" && e.config.AnswersAreRead)
	if err != nil {
		return nil, "", err
	}
	msg = mail.NewMsg(mail.WithNoDefaultUserAgent(), mail.WithEncoding(mail.EncodingQP))
	msg.FromMailAddress(&netmail.Address{Name: e.config.From.Name, Address: e.config.From.Address})
	msg.ToMailAddress(&netmail.Address{Address: n.To})
	if reply != "" {
		msg.ReplyToMailAddress(&netmail.Address{Name: e.config.From.Name, Address: reply})
	}
	msg.SetGenHeader(mail.HeaderSubject, letter.Subject)
	msg.SetMessageIDWithValue(id)
	if first := e.messageID(n.First); n.Kind == handoff.NotifyReply && first != "" && first != id {
		msg.SetGenHeader(mail.HeaderInReplyTo, "<"+first+">")
		msg.SetGenHeader(mail.HeaderReferences, "<"+first+">")
	}
	date := n.CreatedAt
	if date.IsZero() {
		date = time.Now()
	}
	msg.SetDateWithValue(date.UTC())
	msg.SetGenHeader("Auto-Submitted", "auto-generated")
	msg.SetGenHeader(mail.HeaderXAutoResponseSuppress, "All")
	msg.SetBodyString(mail.TypeTextPlain, letter.Text)
	msg.AddAlternativeString(mail.TypeTextHTML, letter.HTML)
	return msg, id, nil
}

// messageID names a delivery in mail; empty where there is none.
func (e *Email) messageID(delivery string) string {
	if !token.MatchString(delivery) {
		return ""
	}
	return delivery + "@" + domainOf(e.config.From.Address)
}

// replyTo is the address by which an answer finds its thread; empty where mail does not come back.
func (e *Email) replyTo(n handoff.Notification) string {
	if e.config.ReplyTo == "" || !token.MatchString(n.ReplyToken) {
		return ""
	}
	if address := replyAddress(e.config.ReplyTo, n.ReplyToken); plainAddress(address) {
		return address
	}
	return ""
}
