package webui

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"handclasp/internal/hubtest"
)

func TestARealBrowserShowsTheThreadWithoutComplaint(t *testing.T) {
	t.Parallel()
	chromium, err := exec.LookPath("chromium")
	hubtest.Require(t, "chromium", err)
	f := hubtest.New(t, "sqlite")
	anna, key := f.AgentWithKey("anna@acme")
	id := travelled(t, f, anna, f.Agent("frank@acme"))
	// As it is mounted: behind the check that keeps other sites from posting.
	hub := httptest.NewServer(http.NewCrossOriginProtection().Handler(New(f.Hub, Options{})))
	defer hub.Close()

	// Chromium's own folder, as the browser still writes into it while it ends.
	dir, err := os.MkdirTemp("", "handclasp-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	options := append(chromedp.DefaultExecAllocatorOptions[:], // headless, no background networking
		chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(dir))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
	}
	do()
	console := chromedp.Console(ctx) // from here on; violations of the content policy are in it

	field := chromedp.ID("key")
	do(chromedp.EmulateViewport(360, 740),
		chromedp.Navigate(hub.URL+"/inbox/"+id), chromedp.SendKeys(field, key), chromedp.Submit(field),
		chromedp.WaitVisible(chromedp.ID("messages")))
	at, err := chromedp.Run(ctx, chromedp.Location())
	if err != nil || at != hub.URL+"/inbox/"+id {
		t.Errorf("signed in, the browser is at %s, %v", at, err)
	}
	text, err := chromedp.Run(ctx, chromedp.Text(chromedp.CSS("main")))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"Proposed action from anna@acme", "The orders table still has its old key.", "Does the reporting job", "the migration ran on staging"} {
		if !strings.Contains(text, part) {
			t.Errorf("the page does not show %q", part)
		}
	}
	// The style sheet is there and in force, and nothing is wider than a small screen.
	looks, err := chromedp.Run(ctx, chromedp.Evaluate[string](
		`getComputedStyle(document.querySelector(".prose")).whiteSpace + " " + (document.documentElement.scrollWidth <= 360) + " " + document.cookie`))
	if err != nil || looks != "pre-wrap true " {
		t.Errorf("white-space, fits, cookies that a script sees: %q, %v", looks, err)
	}
	// A last word of our own ends the listening: what the browser had to say came before it.
	const done = "end of test"
	if _, err := chromedp.Run(ctx, chromedp.Evaluate[*string](`console.log("`+done+`")`)); err != nil {
		t.Fatal(err)
	}
	for m, err := range console {
		if err != nil {
			t.Fatal(err)
		}
		if m.Text == done {
			break
		}
		t.Errorf("the browser's console: %s %s (%s)", m.Type, m.Text, m.URL)
	}
}
