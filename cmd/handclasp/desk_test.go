package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"handclasp/internal/hubtest"
	"handclasp/internal/restapi"
)

// initiated hands a customer to a business of a hub and gives the id of the handoff.
func initiated(t *testing.T, url, key, arguments string) string {
	t.Helper()
	answer := toolAnswer(t, url+"/mcp/desk", key, "initiate_handoff", arguments)
	id := regexp.MustCompile(`"handoff_id":"([0-9a-f-]{36})"`).FindStringSubmatch(answer)
	if id == nil {
		t.Fatal(answer)
	}
	return id[1]
}

func TestTheOperatorSeesCustomersWhomNobodyWasToldAbout(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := where(t, kind)
			keys := aHub(t, at, "bot@shop", "anna@acme")
			url := startServe(t, at...)
			operator := func(args ...string) string { t.Helper(); return mustRun(t, append(args, at...)...) }
			listed := func(args ...string) (ids []string) {
				t.Helper()
				for _, h := range runJSON[restapi.Handoffs](t, append(append([]string{"handoff", "list"}, args...), at...)...).Handoffs {
					ids = append(ids, h.ThreadID)
				}
				return ids
			}
			wantIDs := func(what string, got []string, want ...string) {
				t.Helper()
				if strings.Join(got, " ") != strings.Join(want, " ") {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			operator("business", "add", "shop", "--channel", "email", "--email", "ann@shop.example")
			operator("business", "add", "salon", "--channel", "form", "--form-url", "https://salon.example/")
			ok(t, append([]string{"agent", "notify", "bot@shop", "--slack", "https://192.0.2.1/services/SECRET"}, at...)...) // nobody dials it
			untold := initiated(t, url, keys["bot@shop"], `{"slug":"shop","mode":"human","idempotency_key":"a"}`)
			form := initiated(t, url, keys["bot@shop"], `{"slug":"salon","mode":"human","idempotency_key":"b"}`)
			agent := initiated(t, url, keys["bot@shop"], `{"slug":"shop","mode":"agent","purpose":"p","idempotency_key":"c"}`)
			ended := initiated(t, url, keys["bot@shop"], `{"slug":"shop","mode":"human","idempotency_key":"d"}`)
			operator("handoff", "cancel", ended, "--reason", "a test")

			wantIDs("the desk", listed("--door", "desk"), ended, agent, form, untold)
			wantIDs("those untold", listed("--untold"), untold)
			wantIDs("to the person", listed("--to", "person:shop"), ended, untold)
			wantIDs("by state", listed("--to", "person:shop", "--status", "OPEN"), untold)
			out := operator("handoff", "list", "--door", "desk")
			if !strings.Contains(out, "  next agent of shop  ") || !strings.Contains(out, "  person:salon  ") {
				t.Error(out)
			}
			refused(t, 1, "handclasp business list", append([]string{"handoff", "list", "--to", "person:nobody"}, at...)...)
			if out := operator("handoff", "show", agent); !strings.Contains(out, "\nTo          next agent of shop\n") || strings.Contains(out, "\nDeliveries\n") {
				t.Error(out)
			}
			shown := operator("handoff", "show", untold)
			line := regexp.MustCompile(`\nDeliveries\n    ([0-9a-f-]{36})  handoff to person:shop by email, refused, 0 tries: provider_not_configured\n`).FindStringSubmatch(shown)
			if line == nil {
				t.Fatal(shown)
			}
			refused(t, 1, "provider_not_configured", append([]string{"delivery", "resend", line[1]}, at...)...)
			doctor := runProgram(context.Background(), append([]string{"doctor", "--listen", "127.0.0.1:0"}, at...)...).stdout.String()
			for _, part := range []string{
				"warning  desk           1 customer waits of whom nobody was told", "handclasp handoff list --untold --da",
				"warning  mail           1 business is reached by e-mail, and no mail server is configured",
			} {
				if !strings.Contains(doctor, part) {
					t.Errorf("doctor lacks %q: %s", part, doctor)
				}
			}
			metrics, err := hubMetrics(url)
			if err != nil || !strings.Contains(metrics, "\nhandclasp_handoffs_untold 1\n") {
				t.Errorf("%v %s", err, metrics)
			}
			list := operator("delivery", "list")
			for _, row := range []string{`KIND +TO .* NEXT TRY `, `  handoff  person:shop +email  refused  provider_not_configured  0 .*  –  `, `  news     bot@shop +slack  `} {
				if !regexp.MustCompile(row).MatchString(list) {
					t.Errorf("it lacks %q: %s", row, list)
				}
			}
			if shown := operator("agent", "show", "bot@shop"); !regexp.MustCompile(`told by +slack at https://192\.0\.2\.1/…`).MatchString(shown) || strings.Contains(shown+list, "SECRET") {
				t.Error(shown)
			}
		})
	}
}

func hubMetrics(url string) (string, error) {
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

func TestServeSaysAtItsStartThatNobodyCanBeToldByMail(t *testing.T) {
	t.Parallel()
	at := where(t, "sqlite")
	mustRun(t, append([]string{"business", "add", "shop", "--channel", "email", "--email", "ann@shop.example"}, at...)...)
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, append([]string{"serve", "--listen", "127.0.0.1:0"}, at...), strings.NewReader(""), io.Discard, w)
		_ = w.Close()
	}()
	said := ""
	for lines := bufio.NewScanner(r); lines.Scan(); said += lines.Text() + "\n" {
		if strings.HasPrefix(lines.Text(), "listening on ") {
			cancel()
		}
	}
	if code := <-done; code != 0 || !strings.Contains(said, "businesses are reached by e-mail, and no mail server is configured") || !strings.Contains(said, "businesses=1") {
		t.Errorf("exit %d: %s", code, said)
	}
	cancel()
}

func TestAnAddressThatTheHubWillNotDialIsWarnedOf(t *testing.T) {
	t.Parallel()
	at := where(t, "sqlite")
	aHub(t, at, "frank@acme")
	set := func(flags ...string) *program {
		return ok(t, append(append([]string{"agent", "notify", "frank@acme"}, flags...), at...)...)
	}
	inside := set("--webhook", "http://127.0.0.1:9/hook")
	if says := inside.stderr.String(); !strings.HasPrefix(says, "warning: 127.0.0.1 is a loopback address") || !strings.Contains(says, "--notify-allow-network") || strings.Count(says, "\n") != 1 {
		t.Error(says)
	}
	inside.wants(t, "frank@acme is told by webhook at http://127.0.0.1:9/hook\n", "secret   whsec_")
	if says := set("--slack", "https://192.0.2.1/x").stderr.String(); !strings.Contains(says, "192.0.2.1 is an address for documentation") || strings.Contains(says, "127.0.0.1") {
		t.Error(says)
	}
	if says := set("--webhook", "https://8.8.8.8/hook").stderr.String(); says != "" {
		t.Error(says)
	}
	startServe(t, append([]string{"--notify-allow-network", "127.0.0.0/8"}, at...)...)
	if says := set("--webhook", "http://127.0.0.1:9/hook").stderr.String(); says != "" {
		t.Errorf("a hub that allows it: %s", says)
	}
}

func TestDoctorSaysWhatMailNeeds(t *testing.T) {
	t.Parallel()
	at := where(t, "sqlite")
	aHub(t, at, "frank@acme")
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go greet(c)
		}
	}()
	mail := []string{"doctor", "--listen", "127.0.0.1:0", "--smtp-url", "smtp://" + l.Addr().String() + "?tls=none", "--mail-from", "hub@example.com"}
	out := mustRun(t, append(mail, at...)...)
	for _, part := range []string{"the mail server answers, and is asked without credentials", "warning  mail           the links in mails lead to this machine only", "--public-url"} {
		if !strings.Contains(out, part) {
			t.Errorf("it lacks %q: %s", part, out)
		}
	}
	if out := mustRun(t, append(append(mail, "--public-url", "https://hub.example.com"), at...)...); strings.Contains(out, "this machine only") {
		t.Error(out)
	}
}

// greet is as much of a mail server as a check needs.
func greet(c net.Conn) {
	defer func() { _ = c.Close() }()
	answer := func(s string) { _, _ = io.WriteString(c, s+"\r\n") }
	answer("220 mail.example.com ESMTP")
	for lines := bufio.NewScanner(c); lines.Scan(); {
		switch word, _, _ := strings.Cut(strings.ToUpper(lines.Text()), " "); word {
		case "EHLO":
			answer("250-mail.example.com\r\n250 8BITMIME")
		case "QUIT":
			answer("221 bye")
			return
		default:
			answer("250 ok")
		}
	}
}

func TestATestGoesToAWebhookSignedAndToSlack(t *testing.T) {
	t.Parallel()
	type post struct {
		headers http.Header
		body    []byte
	}
	posts := make(chan post, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		posts <- post{r.Header, body}
	}))
	t.Cleanup(server.Close)
	allowed := []string{"--notify-allow-network", "127.0.0.0/8", "--data", t.TempDir()}
	run := func(flags ...string) *program {
		return runProgram(t.Context(), append(append([]string{"notify", "test"}, flags...), allowed...)...)
	}
	p := run("--webhook", server.URL+"/hook", "--json")
	var out struct{ State, Secret string }
	if err := json.Unmarshal(p.stdout.Bytes(), &out); err != nil || out.State != "sent" {
		t.Fatalf("%d %s %s", p.code, p.stdout.String(), p.stderr.String())
	}
	got := <-posts
	verify, err := standardwebhooks.NewWebhook(out.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := verify.Verify(got.body, got.headers); err != nil {
		t.Errorf("%s: %v", got.body, err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(out.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p := run("--webhook", server.URL, "--secret-file", secret); p.code != 0 || strings.Contains(p.stdout.String(), "whsec_") {
		t.Errorf("%d %s %s", p.code, p.stdout.String(), p.stderr.String())
	}
	if got = <-posts; verify.Verify(got.body, got.headers) != nil {
		t.Errorf("with the secret of a file: %s", got.body)
	}
	if p := run("--slack", server.URL); p.code != 0 || !strings.HasPrefix(string((<-posts).body), `{"text":`) {
		t.Errorf("%d %s %s", p.code, p.stdout.String(), p.stderr.String())
	}
	allowed = allowed[2:]
	if p := run("--webhook", server.URL); p.code != 1 || !strings.Contains(p.stderr.String(), "loopback") {
		t.Errorf("inside the network: %d %s", p.code, p.stderr.String())
	}
	for flags, want := range map[string]string{
		"": "--webhook", "--webhook gopher://x": "--webhook: the address must begin", "--webhook http://x.example --slack http://x.example": "can't be used together",
		"--webhook http://x.example --secret-file /none/secret": "--secret-file", "--email x --smtp-url smtp://127.0.0.1:1 --mail-from a@b.example": `--email: "x" came`,
		"--email a@b.example": "--smtp-url",
	} {
		if p := run(strings.Fields(flags)...); p.code != 2 || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%q: %d %s", flags, p.code, p.stderr.String())
		}
	}
}
