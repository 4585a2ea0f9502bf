package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/mail"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/emersion/go-smtp"

	"handclasp/internal/hub"
)

// The part of the demo about people: a shop's assistant brings in a human, and hands on to an agent that
// nobody knows yet.

const bot = "bot@acme"

// mailbox stands for the mail server of the one who is told: it takes mail on this machine and keeps it.
type mailbox struct {
	address string
	arrived chan []byte
	server  *smtp.Server
}

// openMailbox listens until it is closed.
func openMailbox(ctx context.Context) (*mailbox, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &mailbox{address: listener.Addr().String(), arrived: make(chan []byte, 16)}
	m.server = smtp.NewServer(m)
	m.server.Domain, m.server.MaxMessageBytes, m.server.ErrorLog = "demo.example", 1<<20, silent{}
	go func() { _ = m.server.Serve(listener) }() // it ends with Close
	return m, nil
}

func (m *mailbox) close() { _ = m.server.Close() }

// NewSession is called for each connection.
func (m *mailbox) NewSession(*smtp.Conn) (smtp.Session, error) { return mailSession{m}, nil }

type mailSession struct{ to *mailbox }

func (mailSession) Mail(string, *smtp.MailOptions) error { return nil }
func (mailSession) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (mailSession) Reset()                               {}
func (mailSession) Logout() error                        { return nil }

func (s mailSession) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	if err == nil {
		s.to.arrived <- b
	}
	return err
}

type silent struct{}

func (silent) Printf(string, ...any) {}
func (silent) Println(...any)        {}

// next is the plain text of the next mail, with its subject on top.
func (m *mailbox) next(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	select {
	case <-ctx.Done():
		return "", errors.New("no mail arrived")
	case raw := <-m.arrived:
		return plainText(raw)
	}
}

func plainText(raw []byte) (string, error) {
	msg, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		return "", err
	}
	subject, err := new(mime.WordDecoder).DecodeHeader(msg.Header.Get("Subject"))
	if err != nil {
		return "", err
	}
	_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil {
		return "", err
	}
	part, err := multipart.NewReader(msg.Body, params["boundary"]).NextPart() // the text comes first
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(part)
	return "Subject: " + subject + "\n\n" + strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")), err
}

// wrapped breaks lines at spaces that are wider than a terminal.
func wrapped(text string, width int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		for len(line) > width {
			at := strings.LastIndexByte(line[:width], ' ')
			if at <= 0 {
				break
			}
			b.WriteString(line[:at] + "\n")
			line = line[at+1:]
		}
		b.WriteString(line)
	}
	return b.String()
}

var personLink = regexp.MustCompile(`http://[^\s]+/h/[a-z2-7]+`)

// bringInAPerson shows how a customer reaches a human, and how the answer comes back.
func (s *story) bringInAPerson() error {
	if err := inTurn(
		func() error { return s.register(hub.AgentInput{Handle: bot, Name: "The shop's assistant"}) },
		func() error { return s.connect(bot) },
		func() error {
			return operate(s.env, &s.where, func(o *operatorClient) error {
				name, channel, email := "The Corner Shop", "email", "ann@shop.example"
				return o.post("/operator/businesses", hub.BusinessInput{Slug: "corner-shop", Name: &name, Channel: &channel, Email: &email}, &map[string]any{})
			})
		}); err != nil {
		return err
	}
	s.scene("The shop's assistant brings in a person by e-mail", "initiate_handoff")
	made, err := s.call(bot, "initiate_handoff", map[string]any{
		"slug": "corner-shop", "mode": "human", "idempotency_key": "chat-7", "urgency": "high",
		"reason": "Wants to return a bike; see www.evil.example for how to pay me", "contact_name": "Carl", "contact_email": "carl@example.com",
	})
	if err != nil {
		return err
	}
	text, err := s.mailbox.next(s.ctx)
	if err != nil {
		return err
	}
	s.thread, _ = made["handoff_id"].(string)
	if s.link = personLink.FindString(text); s.link == "" {
		return errors.New("the mail holds no link")
	}
	s.say("   → delivered_via %v. This is the mail that the person gets. What the customer wrote is\n"+
		"     quoted, and its link is dead:\n%s", made["delivered_via"], indent(wrapped(text, 94)))
	again, err := s.call(bot, "initiate_handoff", map[string]any{"slug": "corner-shop", "mode": "human", "idempotency_key": "chat-7"})
	if err != nil {
		return err
	}
	if len(s.mailbox.arrived) > 0 || again["idempotent_replay"] != true {
		return errors.New("a repeat sent a second mail")
	}
	s.say("   → the same call again: idempotent_replay %v, and no second mail.", again["idempotent_replay"])
	return nil
}

// theyAnswer shows the person's page at work.
func (s *story) theyAnswer() error {
	s.scene("Ann opens the link, as robots that look at mails do; then she answers", "GET and POST /h/…")
	known, err := s.call(bot, "get_handoff_status", map[string]any{"handoff_id": s.thread})
	if err != nil {
		return err
	}
	for range 3 {
		if err := s.web(http.MethodGet, s.link, nil); err != nil {
			return err
		}
	}
	still, err := s.call(bot, "get_handoff_status", map[string]any{"handoff_id": s.thread})
	if err != nil {
		return err
	}
	s.say("   → opened three times, it is still %v.", still["status"])
	type answer struct {
		status map[string]any
		err    error
	}
	waits := make(chan answer, 1)
	go func() {
		status, err := s.call(bot, "get_handoff_status", map[string]any{"handoff_id": s.thread, "known_updated_at": known["updated_at"], "wait_seconds": 30})
		waits <- answer{status, err}
	}()
	if err := s.web(http.MethodPost, s.link, url.Values{"act": {"answer"}, "text": {"He can bring it tomorrow. I keep the receipt here."}, "key": {"demo"}}); err != nil {
		return err
	}
	got := <-waits
	if got.err != nil {
		return got.err
	}
	list, _ := got.status["messages"].([]any)
	if len(list) != 1 {
		return fmt.Errorf("the assistant sees %d answers", len(list))
	}
	s.say("   → the assistant's get_handoff_status, which waited, returns %v by %v,\n     with the answer as data:\n%s",
		got.status["status"], field(list[0].(map[string]any), "from"), indent(field(list[0].(map[string]any), "body")))
	return nil
}

// handOn shows a link that counts once.
func (s *story) handOn() error {
	s.scene("The assistant hands another customer on to an agent that nobody knows yet", "initiate_handoff")
	made, err := s.call(bot, "initiate_handoff", map[string]any{
		"slug": "corner-shop", "mode": "agent", "idempotency_key": "chat-8", "purpose": "Book the test ride on Friday.", "reservation_id": "R-2041",
	})
	if err != nil {
		return err
	}
	link, _ := made["continuation_url"].(string)
	if err := s.web(http.MethodGet, link, nil); err != nil {
		return err
	}
	codes := map[int]int{}
	for range 3 {
		req, err := http.NewRequestWithContext(s.ctx, http.MethodPost, link, nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		codes[resp.StatusCode]++
		var out struct {
			Purpose string `json:"purpose"`
			Detail  string `json:"detail"`
		}
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&out), resp.Body.Close())
		if err != nil {
			return err
		}
		s.say("   → POST to the link: %d %s", resp.StatusCode, out.Purpose+out.Detail)
	}
	if codes[http.StatusOK] != 1 || codes[http.StatusConflict] != 2 {
		return fmt.Errorf("three redemptions ended with %v", codes)
	}
	return nil
}

// web makes a request as a browser would, which has to succeed.
func (s *story) web(method, address string, form url.Values) error {
	req, err := http.NewRequestWithContext(s.ctx, method, address, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("%s: status %d", method, resp.StatusCode), err)
	}
	return nil
}

// inTurn runs steps until one fails.
func inTurn(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
