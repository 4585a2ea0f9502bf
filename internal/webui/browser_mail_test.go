package webui

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/http"
	"net/http/httptest"
	netmail "net/mail"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/emersion/go-smtp"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/notify"
)

// mailbox is a mail server that keeps what it gets.
type mailbox struct {
	mu   sync.Mutex
	mail [][]byte
}

// mailboxOf has the hub send real mail, by SMTP, to a server of the test.
func mailboxOf(t *testing.T, f *hubtest.Fixture) *mailbox {
	t.Helper()
	box := &mailbox{}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := smtp.NewServer(smtp.BackendFunc(func(*smtp.Conn) (smtp.Session, error) { return box, nil }))
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close(); <-done })
	email, err := notify.NewEmail(notify.EmailConfig{
		Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, TLS: notify.TLSNone,
		From: netmail.Address{Name: "Handclasp", Address: "hub@example.com"}, ReplyTo: "reply+{token}@example.com",
	})
	if err != nil {
		t.Fatal(err)
	}
	f.Post(f.Hub, func(n handoff.Notification) handoff.Outcome { return email.Send(context.Background(), n) })
	return box
}

func (*mailbox) Mail(string, *smtp.MailOptions) error { return nil }
func (*mailbox) Rcpt(string, *smtp.RcptOptions) error { return nil }
func (*mailbox) Reset()                               {}
func (*mailbox) Logout() error                        { return nil }

func (m *mailbox) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mail = append(m.mail, b)
	return err
}

// letter is a mail as a client has it.
type letter struct {
	header     netmail.Header
	text, html string
	link       string // of the person, from the text
}

var ownLink = regexp.MustCompile(`(?m)^https?://\S+/h/[a-z2-7]+$`)

// read waits for the n-th mail and takes it apart.
func (m *mailbox) read(t *testing.T, n int) letter {
	t.Helper()
	var raw []byte
	hubtest.Eventually(t, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		if len(m.mail) < n {
			return false
		}
		raw = m.mail[n-1]
		return true
	})
	msg, err := netmail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	_, params, err := mime.ParseMediaType(msg.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	l := letter{header: msg.Header}
	parts := multipart.NewReader(msg.Body, params["boundary"])
	for {
		p, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(p))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(p.Header.Get("Content-Type"), "text/html") {
			l.html = string(body)
		} else {
			l.text = string(body)
		}
	}
	links := ownLink.FindAllString(strings.ReplaceAll(l.text, "\r\n", "\n"), -1)
	if l.html == "" || len(links) != 1 {
		t.Fatalf("the mail has %d bytes of HTML and the links %q:\n%s", len(l.html), links, l.text)
	}
	l.link = links[0]
	return l
}

// What the next test looks for is there to be seen, where nobody made it harmless.
func TestAMailThatIsNotMadeHarmlessWouldBeNoticed(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	client := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, `<!DOCTYPE html>`+hostile[:strings.Index(hostile, "<style>")])
	}))
	defer client.Close()
	all := b.requests(client.URL)
	b.do(chromedp.Navigate(client.URL + "/"))
	if acted := eval[string](b, `typeof window.ran`); acted != "number" {
		t.Errorf("window.ran is %s", acted)
	}
	if got := all(); !slices.Contains(got, "https://evil.example/p.png") {
		t.Errorf("the browser asked for %q only", got)
	}
}

func TestTheWorstMailShowsAsAHarmlessOneOnAPhone(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f := hubtest.New(t, "sqlite", hubtest.WithMail())
	f.Shop()
	name := "The Shop of " + long(60)
	if _, err := f.Hub.EditBusiness(t.Context(), hubtest.Operator(), hub.BusinessInput{Slug: "shop", Name: &name}); err != nil {
		t.Fatal(err)
	}
	box := mailboxOf(t, f)
	bot := f.Agent("bot@shop")
	in := worst()
	in.Slug, in.Mode, in.IdempotencyKey = "shop", "human", "k"
	out, err := f.Hub.Initiate(t.Context(), bot, in)
	if err != nil {
		t.Fatal(err)
	}
	letters := map[string]letter{"/first": box.read(t, 1)}
	reply(t, f, bot, out.HandoffID, fit(hostile, 2000)+"\n\n> quoted\n"+long(3000))
	letters["/reply"] = box.read(t, 2)

	// Without a content policy, and in a browser that runs scripts: the worst of mail clients.
	client := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, letters[r.URL.Path].html)
	}))
	defer client.Close()
	all := b.requests(client.URL)
	b.do(chromedp.EmulateViewport(phoneWidth, phoneHeight, chromedp.EmulateMobile))
	var opened []string
	for _, path := range []string{"/first", "/reply"} {
		for _, scheme := range []string{"dark", "light"} {
			what := path[1:] + ", " + scheme
			b.scheme(scheme)
			b.do(chromedp.Navigate(client.URL + path))
			opened = append(opened, client.URL+path)
			b.wantFits(what)
			b.wantReadable(what)
			if links := eval[[]string](b, `[...document.querySelectorAll("[href], [src], [action], [background], [srcset], [ping]")].map(e => e.tagName + " " + e.getAttribute("href"))`); len(links) != 1 || links[0] != "A "+letters[path].link {
				t.Errorf("%s: what is live is %q, want the person's link only", what, links)
			}
			if acted := eval[string](b, `typeof window.ran + " " + document.querySelectorAll("script, style, link, iframe, img, svg, base, form, object, [http-equiv], [onerror], [onload]").length`); acted != "undefined 0" {
				t.Errorf("%s: window.ran and foreign elements: %s", what, acted)
			}
			text := eval[string](b, `document.body.innerText`)
			wantIn(t, text, "evil[.]example", "See it and answer")
			wantNotIn(t, text, "evil.example", "www.evil", "http://", "https://", "\u202e", "\u2066", "\u0007")
			if size := eval[[]float64](b, `(() => { const r = document.links[0].getBoundingClientRect(); return [r.width, r.height]; })()`); size[0] < 44 || size[1] < 44 {
				t.Errorf("%s: a thumb needs 44 pixels, and the button has %v", what, size)
			}
		}
	}
	got := slices.DeleteFunc(all(), func(address string) bool { return address == client.URL+"/favicon.ico" }) // the browser's own wish, not the mail's
	if !slices.Equal(got, opened) {
		t.Errorf("the browser asked for %q, want only the mails themselves", got)
	}
	b.wantQuiet()
}
