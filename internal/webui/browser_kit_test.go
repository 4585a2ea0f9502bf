package webui

import (
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"handclasp/internal/hubtest"
)

// The screen of a small phone.
const (
	phoneWidth  = 360
	phoneHeight = 740
)

// hostile is what a caller may write anywhere: markup, addresses, directions, marks that climb, and
// words that no screen is wide enough for. Each scheme of it would say so in window.ran, or fetch.
const hostile = `<script>window.ran=1</script><img src="https://evil.example/p.png" onerror="window.ran=2"><svg onload="window.ran=3">` +
	`<style>@import url(https://evil.example/s.css);*{display:none}</style><link rel=stylesheet href=//evil.example/l.css><iframe src=https://evil.example></iframe>` +
	`</bdi></p></dd></blockquote></textarea></title><a href="https://evil.example/a">press</a><form action=https://evil.example><button>Send</button></form>` +
	`<meta http-equiv=refresh content="0;url=https://evil.example"><base href=https://evil.example/>` +
	" \u202egnp.live\u202c \u2066\u0007\u0000\ufeff javascript:window.ran=4 https://evil.example/x www.evil.example owner@evil.example z\u0300\u0301\u0302\u0303\u0304\u0305\u0306\u0307 "

// long is a word without a place to break it.
func long(n int) string { return strings.Repeat("Wm", n/2) }

// fit is s without what a hub refuses (NUL), and no longer than most characters.
func fit(s string, most int) string {
	rs := []rune(strings.ReplaceAll(s, "\x00", ""))
	return string(rs[:min(most, len(rs))])
}

// eval has the browser work out an expression, also while the page itself may run no script.
func eval[T any](b *chromium, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%.120s: %v", expression, err)
	}
	return v
}

func call[P, R any](b *chromium, cmd cdp.Command[P, R], params P) R {
	b.t.Helper()
	r, err := chromedp.Call(b.ctx, cmd, params)
	if err != nil {
		b.t.Fatalf("%s: %v", cmd.Method, err)
	}
	return r
}

// scheme makes the browser prefer dark or light.
func (b *chromium) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// withoutScript turns the scripts of pages off from the next one on.
func (b *chromium) withoutScript() {
	b.t.Helper()
	call(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}

// requests listens from now on. What it returns ends the listening with a request of its own, which
// comes after all others, and lists the addresses before it.
func (b *chromium) requests(hub string) (all func() []string) {
	b.t.Helper()
	call(b, network.Enable, network.EnableParams{})
	events := chromedp.Events(b.ctx, network.RequestWillBeSent)
	return func() []string {
		b.t.Helper()
		last := hub + "/end-of-test"
		b.do(chromedp.Navigate(last))
		return until(b.t, events, last)
	}
}

func until(t *testing.T, events iter.Seq2[network.EventRequestWillBeSent, error], last string) []string {
	t.Helper()
	var list []string
	for e, err := range events {
		if err != nil {
			t.Fatal(err)
		}
		if e.Request.URL == last {
			break
		}
		list = append(list, e.Request.URL)
	}
	return list
}

// wantFits fails the test if the page scrolls sideways, or if a part of it is cut off at its side.
func (b *chromium) wantFits(what string) {
	b.t.Helper()
	const measure = `(() => {
		const root = document.documentElement, out = [];
		if (innerWidth !== WIDTH) out.push("the window is " + innerWidth + " wide");
		if (root.scrollWidth > WIDTH) out.push("the page is " + root.scrollWidth + " wide");
		for (const e of document.body.querySelectorAll("*")) {
			const box = e.getBoundingClientRect(), name = e.tagName + "." + e.className;
			if (e.closest(".skip") || !box.width) continue;
			if (box.right > WIDTH + 1 || box.left < -1) out.push(name + " reaches from " + box.left + " to " + box.right);
			if (getComputedStyle(e).display !== "inline" && e.scrollWidth > e.clientWidth + 1) out.push(name + " hides what is " + e.scrollWidth + " wide in " + e.clientWidth);
		}
		return out;
	})()`
	for _, fault := range eval[[]string](b, strings.ReplaceAll(measure, "WIDTH", fmt.Sprint(phoneWidth))) {
		b.t.Errorf("%s: %s", what, fault)
	}
}

// wantReadable fails the test if a text stands out from what is behind it by less than 4.5:1
// (WCAG 2.2, 1.4.3). Opacity counts; pictures there are none of.
func (b *chromium) wantReadable(what string) {
	b.t.Helper()
	const measure = `(() => {
		const probe = document.createElement("div");
		probe.style.backgroundColor = "Canvas";
		document.body.append(probe);
		const parse = s => { const n = s.match(/[\d.]+/g).map(Number); return [n[0], n[1], n[2], n.length > 3 ? n[3] : 1]; };
		const canvas = parse(getComputedStyle(probe).backgroundColor);
		probe.remove();
		const over = (a, b) => [0, 1, 2].map(i => a[i] * a[3] + b[i] * (1 - a[3])).concat(1);
		const faded = (c, alpha) => [c[0], c[1], c[2], c[3] * alpha];
		const path = e => e ? path(e.parentElement).concat(e) : [];
		const light = c => { const [r, g, b] = c.map(v => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; }); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
		const out = [];
		let texts = 0;
		for (const e of document.body.querySelectorAll("*")) {
			const own = [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim());
			if (!own || !e.getClientRects().length) continue;
			texts++;
			let behind = canvas, alpha = 1;
			for (const p of path(e)) {
				const s = getComputedStyle(p);
				alpha *= Number(s.opacity);
				behind = over(faded(parse(s.backgroundColor), alpha), behind);
			}
			const text = over(faded(parse(getComputedStyle(e).color), alpha), behind);
			const [high, low] = [light(text), light(behind)].sort((a, b) => b - a);
			const contrast = (high + 0.05) / (low + 0.05);
			if (contrast < 4.5) out.push(e.tagName + "." + e.className + " has a contrast of " + contrast.toFixed(2));
		}
		if (texts < 3) out.push("only " + texts + " texts were found");
		return out;
	})()`
	for _, fault := range eval[[]string](b, measure) {
		b.t.Errorf("%s: %s", what, fault)
	}
}

// wantNamed fails the test if a control has no name that a screen reader could say. It returns the
// names, each behind its role.
func (b *chromium) wantNamed() []string {
	b.t.Helper()
	call(b, accessibility.Enable, cdp.Empty{})
	var list []string
	for _, n := range call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{}).Nodes {
		role := axText(n.Role)
		switch role {
		case "button", "link", "textbox", "checkbox", "combobox", "image":
		default:
			continue
		}
		name := axText(n.Name)
		if !n.Ignored && name == "" {
			b.t.Errorf("a %s has no name", role)
		}
		list = append(list, role+" "+name)
	}
	return list
}

func axText(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

// wantFocusSeen goes through the page by the Tab key and fails the test if a control shows no ring.
// It returns what was reached, by id or text.
func (b *chromium) wantFocusSeen() []string {
	b.t.Helper()
	var list []string
	for range 50 {
		b.do(chromedp.KeyEvent(kb.Tab))
		seen := eval[[]string](b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e);
			if (e === document.body) return [];
			const box = e.getBoundingClientRect(), shown = box.width > 0 && box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight;
			return [e.id || e.textContent.trim(), s.outlineStyle + " " + s.outlineWidth + " " + shown];
		})()`)
		if len(seen) == 0 {
			return list
		}
		if seen[1] != "solid 3px true" {
			b.t.Errorf("the focus on %q is %s", seen[0], seen[1])
		}
		if len(list) > 0 && list[0] == seen[0] {
			return list
		}
		list = append(list, seen[0])
	}
	return list
}

// mounted serves the pages as the hub does: behind the check that keeps other sites from posting,
// which lets a person's form pass (httpserver).
func mounted(t *testing.T, f *hubtest.Fixture) (url string) {
	t.Helper()
	check := http.NewCrossOriginProtection()
	check.AddInsecureBypassPattern("POST /h/{token}")
	hub := httptest.NewServer(check.Handler(New(f.Hub, Options{})))
	t.Cleanup(hub.Close)
	// By a plain name over plain HTTP, as in an office: there browsers tell less of where a request
	// comes from.
	return strings.Replace(hub.URL, "127.0.0.1", "hub.example", 1)
}
