package webui

import (
	"context"
	"net/http/httptest"
	"os"
	"testing"
	"time"
	"fmt"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestShots(t *testing.T) {
	f := hubtest.New(t, "sqlite")
	anna, key := f.AgentWithKey("anna@acme")
	frank := f.Agent("frank@acme")
	id := travelled(t, f, anna, frank)
	id2 := send(t, f, frank, hub.CreateInput{To: "anna@acme", Intent: handoff.AskQuestion, Question: "Which \u202ekey\u202c?",
		Summary: "مرحبا <script>alert(1)</script>\u202egpj.exe\u200b\x01\x01\x1b[31m\nsecond line </pre> long: " + string(make2(300)),
		Artifacts: raw(t, object{"type": "link", "url": "https://bank.example@evil.example/x", "title": "a\u202eb"}, object{"type":"file_diff","path":"a/\u200db.go","diff":"not a diff\r\n+x\r\n"})})
	srv := httptest.NewServer(New(f.Hub, Options{}))
	defer srv.Close()
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath("/usr/bin/chromium"))...)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx)
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, time.Minute)
	defer cancel()
	do := func(steps ...chromedp.Action[chromedp.Void]) { t.Helper(); if err := chromedp.Do(ctx, steps...); err != nil { t.Fatal(err) } }
	shot := func(name string) {
		for _, scheme := range []string{"light", "dark"} {
			for _, w := range []int64{1280, 360} {
				if _, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}); err != nil { t.Fatal(err) }
				do(chromedp.EmulateViewport(w, 800))
				b, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
				if err != nil { t.Fatal(err) }
				os.WriteFile(fmt.Sprintf("/tmp/shot-%s-%d-%s.png", name, w, scheme), b, 0o600)
				sw, _ := chromedp.Run(ctx, chromedp.Evaluate[int]("document.documentElement.scrollWidth"))
				if int64(sw) > w { t.Errorf("%s at %d scrolls: %d", name, w, sw) }
			}
		}
	}
	do(chromedp.Navigate(srv.URL+"/inbox/"+id)); shot("login")
	do(chromedp.SendKeys(chromedp.ID("key"), key), chromedp.Submit(chromedp.ID("key")), chromedp.WaitVisible(chromedp.ID("messages"))); shot("thread")
	do(chromedp.Navigate(srv.URL+"/inbox/"+id2)); shot("hostile")
	do(chromedp.Navigate(srv.URL+"/inbox/nope")); shot("missing")
	do(chromedp.Navigate(srv.URL+"/inbox")); shot("inbox")
}
func make2(n int) []byte { b := make([]byte, n); for i := range b { b[i] = 'x' }; return b }
