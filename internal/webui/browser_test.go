package webui

import (
	"context"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"handclasp/internal/hubtest"
)

// chromium is a real browser.
type chromium struct {
	t       *testing.T
	ctx     context.Context
	console iter.Seq2[chromedp.ConsoleMessage, error]
}

// startChromium starts a browser that ends with the test, or skips the test where there is none.
func startChromium(t *testing.T) *chromium {
	t.Helper()
	path, err := exec.LookPath("chromium")
	hubtest.Require(t, "chromium", err)
	// Chromium's own folder, as the browser still writes into it while it ends.
	dir, err := os.MkdirTemp("", "handclasp-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	options := append(chromedp.DefaultExecAllocatorOptions[:], // headless, no background networking
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(dir),
		chromedp.Flag("host-resolver-rules", "MAP hub.example 127.0.0.1, MAP evil.example ~NOTFOUND"))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &chromium{t: t, ctx: ctx}
	b.do()
	b.console = chromedp.Console(ctx) // from here on; violations of the content policy are in it
	return b
}

func (b *chromium) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// wantQuiet fails the test if the browser's console holds anything but what matches one of allowed.
func (b *chromium) wantQuiet(allowed ...string) {
	b.t.Helper()
	// A last word of our own ends the listening: what the browser had to say came before it.
	const done = "end of test"
	if _, err := chromedp.Run(b.ctx, chromedp.Evaluate[*string](`console.log("`+done+`")`)); err != nil {
		b.t.Fatal(err)
	}
	for m, err := range b.console {
		if err != nil {
			b.t.Fatal(err)
		}
		if m.Text == done {
			break
		}
		if !slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(m.Text, a) }) {
			b.t.Errorf("the browser's console: %s %s (%s)", m.Type, m.Text, m.URL)
		}
	}
}

func TestARealBrowserShowsTheThreadWithoutComplaint(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f := hubtest.New(t, "sqlite")
	anna, key := f.AgentWithKey("anna@acme")
	id := travelled(t, f, anna, f.Agent("frank@acme"))
	// As it is mounted: behind the check that keeps other sites from posting.
	hub := httptest.NewServer(http.NewCrossOriginProtection().Handler(New(f.Hub, Options{})))
	defer hub.Close()
	// By a plain name over plain HTTP, as in an office: there browsers tell less of where a request
	// comes from.
	url := strings.Replace(hub.URL, "127.0.0.1", "hub.example", 1)

	field := chromedp.ID("key")
	b.do(chromedp.EmulateViewport(360, 740),
		chromedp.Navigate(url+"/inbox/"+id), chromedp.SendKeys(field, key), chromedp.Submit(field),
		chromedp.WaitVisible(chromedp.ID("messages")))
	at, err := chromedp.Run(b.ctx, chromedp.Location())
	if err != nil || at != url+"/inbox/"+id {
		t.Errorf("signed in, the browser is at %s, %v", at, err)
	}
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS("main")))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Proposed action from anna@acme", "The orders table still has its old key.", "Does the reporting job", "the migration ran on staging"} {
		if !strings.Contains(text, part) {
			t.Errorf("the page does not show %q", part)
		}
	}
	// The style sheet is there and in force, and nothing is wider than a small screen.
	looks, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](
		`getComputedStyle(document.querySelector(".prose")).whiteSpace + " " + (document.documentElement.scrollWidth <= 360) + " " + document.cookie`))
	if err != nil || looks != "pre-wrap true " {
		t.Errorf("white-space, fits, cookies that a script sees: %q, %v", looks, err)
	}
	b.wantQuiet()
}
