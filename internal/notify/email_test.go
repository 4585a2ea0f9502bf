package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	netmail "net/mail"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
	"github.com/google/go-cmp/cmp"

	"handclasp/internal/handoff"
)

func TestAMailArrivesWholeAndSaysThatAMachineWroteIt(t *testing.T) {
	t.Parallel()
	server := &mailServer{}
	e := emailTo(t, server.start(t, nil), nil)
	n := aNotification()
	n.Business, n.ContactName = "Café Zoë — 日本", "Zoë 👩‍💻"
	n.CreatedAt = time.Date(2026, 3, 1, 12, 30, 0, 0, time.FixedZone("", 3600))

	o := e.Send(t.Context(), n)
	wantOutcome(t, o, handoff.OutcomeSent, "")
	if o.ProviderID != "delivery-1@diner.example" {
		t.Errorf("provider id %q", o.ProviderID)
	}
	got := server.only(t)
	if got.from != "desk@diner.example" || got.to != "owner@diner.example" || got.utf8 {
		t.Errorf("envelope from %q to %q, SMTPUTF8 %v", got.from, got.to, got.utf8)
	}
	m := got.parse(t)
	subject, err := new(mime.WordDecoder).DecodeHeader(m.Header.Get("Subject"))
	if err != nil {
		t.Fatal(err)
	}
	headers := map[string]string{"Subject": subject}
	for _, name := range []string{"From", "To", "Reply-To", "Message-Id", "Date", "Auto-Submitted", "X-Auto-Response-Suppress", "In-Reply-To", "References", "Mime-Version", "Bcc", "X-Mailer"} {
		headers[name] = m.Header.Get(name)
	}
	want := map[string]string{
		"Subject": "[EMERGENCY] Café Zoë — 日本: a customer asks for a person (3FA9C1)",
		"From":    `"Handclasp Desk" <desk@diner.example>`, "To": "<owner@diner.example>",
		"Reply-To":   `"Handclasp Desk" <reply+abc234@in.diner.example>`,
		"Message-Id": "<delivery-1@diner.example>", "Date": "Sun, 01 Mar 2026 11:30:00 +0000",
		"Auto-Submitted": "auto-generated", "X-Auto-Response-Suppress": "All",
		"In-Reply-To": "", "References": "", "Mime-Version": "1.0", "Bcc": "", "X-Mailer": "",
	}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	letter := compose(t, n, true)
	if diff := cmp.Diff([]part{{"text/plain", letter.Text}, {"text/html", letter.HTML}}, parts(t, m)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

type part struct{ Type, Text string }

// parts are those of a multipart/alternative, decoded, with lines as they were composed.
func parts(t *testing.T, m *netmail.Message) []part {
	t.Helper()
	kind, params, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("content type %q: %v", m.Header.Get("Content-Type"), err)
	}
	var out []part
	for r := multipart.NewReader(m.Body, params["boundary"]); ; {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		kind, params, err := mime.ParseMediaType(p.Header.Get("Content-Type"))
		if err != nil || !strings.EqualFold(params["charset"], "utf-8") || p.Header.Get("Content-Transfer-Encoding") != "quoted-printable" {
			t.Fatalf("a part with %v: %v", p.Header, err)
		}
		text, err := io.ReadAll(quotedprintable.NewReader(p))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, part{kind, strings.ReplaceAll(string(text), "\r\n", "\n")})
	}
}

func TestEachAttemptHasTheSameMessageID(t *testing.T) {
	t.Parallel()
	server := &mailServer{}
	e := emailTo(t, server.start(t, nil), nil)
	first, second := aNotification(), aNotification()
	second.Attempt = 2
	a, b := e.Send(t.Context(), first), e.Send(t.Context(), second)
	if a.Kind != handoff.OutcomeSent || a.ProviderID != b.ProviderID {
		t.Errorf("the attempts are %+v and %+v", a, b)
	}
}

func TestAReplyStandsInItsThread(t *testing.T) {
	t.Parallel()
	server := &mailServer{}
	e := emailTo(t, server.start(t, nil), nil)
	n := aNotification()
	n.Kind, n.ID, n.First, n.Body = handoff.NotifyReply, "delivery-2", "delivery-1", "We can seat you at eight."
	wantOutcome(t, e.Send(t.Context(), n), handoff.OutcomeSent, "")
	m := server.only(t).parse(t)
	for _, name := range []string{"In-Reply-To", "References"} {
		if got := m.Header.Get(name); got != "<delivery-1@diner.example>" {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := m.Header.Get("Message-Id"); got != "<delivery-2@diner.example>" {
		t.Errorf("Message-Id: %q", got)
	}
}

func TestWithoutAReplyAddressNobodyIsAskedToAnswer(t *testing.T) {
	t.Parallel()
	for name, adjust := range map[string]struct {
		config func(*EmailConfig)
		token  string
	}{
		"no address configured": {func(c *EmailConfig) { c.ReplyTo = "" }, "abc234"},
		"no token":              {nil, ""},
		"a token that is none":  {nil, "a>\r\nBcc: x"},
		"a token too long":      {nil, strings.Repeat("a", 70)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &mailServer{}
			e := emailTo(t, server.start(t, nil), adjust.config)
			n := aNotification()
			n.ReplyToken = adjust.token
			wantOutcome(t, e.Send(t.Context(), n), handoff.OutcomeSent, "")
			got := server.only(t)
			if m := got.parse(t); m.Header.Get("Reply-To") != "" || bytes.Contains(got.raw, []byte("answer this e-mail")) {
				t.Errorf("an answer is asked for:\n%s", got.raw)
			}
		})
	}
}

func TestNoFieldAddsAHeaderOrALine(t *testing.T) {
	t.Parallel()
	const evil = "x\r\nBcc: evil@evil.example\r\n\r\n.\r\nMAIL FROM:<evil@evil.example>\r\n"
	server := &mailServer{}
	e := emailTo(t, server.start(t, nil), nil)
	n := aNotification()
	n.Business, n.HandoffID, n.Reason, n.ContactName, n.ContactEmail, n.ContactPhone = evil, evil, evil, evil, evil, evil
	n.ReservationID, n.AgentLabel, n.Body, n.Urgency = evil, evil, evil, handoff.Urgency(evil)
	n.First, n.ReplyToken, n.Kind = evil, evil, handoff.NotifyReply
	n.Reason += strings.Repeat("wörd ", 1000) + strings.Repeat("ü", 5000)
	wantOutcome(t, e.Send(t.Context(), n), handoff.OutcomeSent, "")
	got := server.only(t)
	m := got.parse(t)
	for name := range m.Header {
		switch name {
		case "From", "To", "Subject", "Date", "Message-Id", "Auto-Submitted", "X-Auto-Response-Suppress", "Mime-Version", "Content-Type":
		default:
			t.Errorf("there is a header %s: %q", name, m.Header[name])
		}
	}
	for _, l := range bytes.Split(got.raw, []byte("\n")) {
		if len(l) > 998 {
			t.Errorf("a line of %d bytes", len(l))
		}
	}
	for _, id := range []string{evil, "", "a b", "a@b", "<a>"} {
		n.ID = id
		wantOutcome(t, e.Send(t.Context(), n), handoff.OutcomeRefused, ReasonMessage)
	}
}

func TestAnAddressWithOddCharactersIsRefusedBeforeAnythingIsSent(t *testing.T) {
	t.Parallel()
	server := &mailServer{}
	e := emailTo(t, server.start(t, nil), nil)
	for _, to := range []string{
		"", "a", "@b.example", "a@", "a@b@c.example", `"a b"@c.example`, "a b@c.example", "a@b.example>", "<a@b.example>", "a@b.example\r\nRCPT TO:<c@d.example>",
		"a@b.example, c@d.example", "a%c@b.example", "a!b@c.example", "ä@b.example", "a@bücher.example", "a@[127.0.0.1]", "a..b@c.example", ".a@b.example",
		"a@-b.example", "a@b..example", "a\x00@b.example", strings.Repeat("a", 65) + "@b.example", "a@" + strings.Repeat("b.", 130) + "example",
	} {
		n := aNotification()
		n.To = to
		if o := e.Send(t.Context(), n); o.Kind != handoff.OutcomeRefused || o.Reason != handoff.ReasonInvalid {
			t.Errorf("to %q: %+v", to, o)
		}
	}
	if n := server.count(); n != 0 {
		t.Errorf("%d mails went out", n)
	}
}

func TestWhatTheServerAnswersIsTheOutcome(t *testing.T) {
	t.Parallel()
	answer := func(code int) error {
		return &smtp.SMTPError{Code: code, EnhancedCode: smtp.EnhancedCodeNotSet, Message: "owner@diner.example, abc234"}
	}
	tests := []struct {
		name   string
		server *mailServer
		kind   handoff.OutcomeKind
		reason string
	}{
		{"a sender refused", &mailServer{onMail: answer(553)}, handoff.OutcomeRefused, "provider_553"},
		{"a sender for later", &mailServer{onMail: answer(451)}, handoff.OutcomeFailed, "provider_451"},
		{"a sender that has to authenticate", &mailServer{onMail: answer(530)}, handoff.OutcomeFailed, ReasonAuth},
		{"a recipient refused", &mailServer{onRcpt: answer(550)}, handoff.OutcomeRefused, "provider_550"},
		{"a recipient for later", &mailServer{onRcpt: answer(450)}, handoff.OutcomeFailed, "provider_450"},
		{"a message refused", &mailServer{onData: answer(554)}, handoff.OutcomeRefused, "provider_554"},
		{"a message for later", &mailServer{onData: answer(452)}, handoff.OutcomeFailed, "provider_452"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := emailTo(t, tt.server.start(t, nil), nil)
			wantOutcome(t, e.Send(t.Context(), aNotification()), tt.kind, tt.reason)
		})
	}
}

func TestCredentialsAndTLSAreOursToMend(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		server *mailServer
		adjust func(*smtp.Server)
		config func(*EmailConfig)
		reason string // empty: it is sent
	}{
		{"the right password", &mailServer{}, nil, nil, ""},
		{"LOGIN alone", &mailServer{mechanisms: []string{sasl.Login}}, nil, nil, ""},
		{"a wrong password", &mailServer{}, nil, func(c *EmailConfig) { c.Password += "x" }, ReasonAuth},
		{"a wrong password by LOGIN", &mailServer{mechanisms: []string{sasl.Login}}, nil, func(c *EmailConfig) { c.Password += "x" }, ReasonAuth},
		{"no mechanism that we know", &mailServer{mechanisms: []string{"SCRAM-SHA-256"}}, nil, nil, ReasonAuth},
		{"no credentials", &mailServer{}, nil, func(c *EmailConfig) { c.Username, c.Password = "", "" }, ReasonAuth},
		{"a certificate that nobody trusts", &mailServer{}, nil, func(c *EmailConfig) { c.RootCAs = nil }, ReasonTLS},
		{"no STARTTLS", &mailServer{}, func(s *smtp.Server) { s.TLSConfig = nil; s.AllowInsecureAuth = true }, nil, ReasonTLS},
		{"no STARTTLS, and none asked for", &mailServer{}, func(s *smtp.Server) { s.TLSConfig = nil; s.AllowInsecureAuth = true }, func(c *EmailConfig) { c.TLS = TLSNone }, ""},
		{"a TLS of the last century", &mailServer{}, func(s *smtp.Server) { s.TLSConfig.MaxVersion = tls.VersionTLS11 }, nil, ReasonTLS},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			e := emailTo(t, tt.server.start(t, tt.adjust), tt.config)
			o, err := e.Send(t.Context(), aNotification()), e.Check(t.Context())
			if tt.reason == "" {
				wantOutcome(t, o, handoff.OutcomeSent, "")
				if err != nil {
					t.Errorf("the check says %v", err)
				}
				return
			}
			wantOutcome(t, o, handoff.OutcomeFailed, tt.reason)
			if tt.name != "no credentials" && (err == nil || strings.Contains(err.Error(), thePassword)) {
				t.Errorf("the check says %v", err)
			}
		})
	}
}

func TestImplicitTLSIsSpokenFromTheFirstByte(t *testing.T) {
	t.Parallel()
	implicit := func(c *EmailConfig) { c.TLS = TLSImplicit }
	server, plain := &mailServer{implicit: true}, &mailServer{}
	port := server.start(t, nil)
	e := emailTo(t, port, implicit)
	wantOutcome(t, e.Send(t.Context(), aNotification()), handoff.OutcomeSent, "")
	if err := e.Check(t.Context()); err != nil {
		t.Error(err)
	}
	server.only(t)
	distrusting := emailTo(t, port, func(c *EmailConfig) { c.TLS, c.RootCAs = TLSImplicit, nil })
	wantOutcome(t, distrusting.Send(t.Context(), aNotification()), handoff.OutcomeFailed, ReasonTLS)
	wantOutcome(t, emailTo(t, plain.start(t, nil), implicit).Send(t.Context(), aNotification()), handoff.OutcomeFailed, ReasonTLS)
}

func TestNobodyListening(t *testing.T) {
	t.Parallel()
	l, port := listen(t)
	l.Close()
	e := emailTo(t, port, nil)
	wantOutcome(t, e.Send(t.Context(), aNotification()), handoff.OutcomeFailed, ReasonUnreachable)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantOutcome(t, e.Send(ctx, aNotification()), handoff.OutcomeFailed, ReasonUnreachable)
}

func TestWhatAServerSaysIsLoggedWithoutWhatItQuotes(t *testing.T) {
	t.Parallel()
	n := handoff.Notification{
		To: "ann@shop.example", Link: "https://hub.example/h/abcdefghijklmnopqrstuvwxyz234567", ReplyToken: "zyxwvutsrqponmlkjihgfedcba765432",
		Reason: "the brake (rear) rubs* [a", ContactName: "Carl Customer", ContactEmail: "carl@example.com", ContactPhone: "030 901820", ReservationID: "R-7",
	}
	for said, want := range map[string]string{
		"550 5.1.1 <ANN@Shop.Example>: no such user":                                                "550 5.1.1 <(an address)>: no such user",
		"554 blocked URL https://hub.example/h/abcdefghijklmnopqrstuvwxyz234567 from Carl CUSTOMER": "554 blocked URL (a link) from … …",
		"554 token ABCDEFGHIJKLMNOPQRSTUVWXYZ234567":                                                "554 token (a token)",
		"554 /h/abcdefghijklmnopqrstuvwxyz234567":                                                   "554 (a link)",
		"554 carl@example.com called 030 901820 of R-7: RUBS*":                                      "554 (an address) called … … of …: …",
		"554 5.7.1 relay access denied":                                                             "554 5.7.1 relay access denied",
		"451 reply+zyxwvutsrqponmlkjihgfedcba765432@hub":                                            "451 (an address)",
	} {
		if got := scrub(errors.New(said), n).Error(); got != Inert(want, mostLine) {
			t.Errorf("%s\n is logged as %s\n       want %s", said, got, want)
		}
	}
}
