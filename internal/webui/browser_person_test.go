package webui

import (
	"context"
	"slices"
	"strings"
	"testing"

	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// worst is a request whose every field is as hostile and as long as the hub takes it.
func worst() hub.InitiateInput {
	return hub.InitiateInput{
		Reason: fit(hostile, 700) + long(100), ContactName: fit(hostile, 60) + long(60), ContactEmail: long(60) + "@" + strings.Repeat(long(40)+".", 4) + "example",
		ContactPhone: long(40), Urgency: "emergency", ReservationID: fit(hostile, 156) + long(100), AgentLabel: long(256),
	}
}

// pressed presses a button of the person's form and waits until the browser shows what came of it.
func (b *chromium) pressed(act, says string) {
	b.t.Helper()
	loaded := chromedp.WaitEvent(cdppage.LoadEventFired, nil, chromedp.Click(chromedp.CSS(`button[value=`+act+`]`)))
	if _, err := chromedp.Run(b.ctx, loaded); err != nil {
		b.t.Fatal(err)
	}
	text, err := chromedp.Run(b.ctx, chromedp.Text(chromedp.CSS(`.said, .fault`)))
	if err != nil || !strings.Contains(text, says) {
		b.t.Fatalf("%s: the page says %q, %v, want %q", act, text, err, says)
	}
}

func TestAPersonAnswersAndCompletesOnAPhoneWithoutScripts(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f, bot, id, path := handedOver(t, hub.InitiateInput{Reason: "Wants to return a bike"})
	url := mounted(t, f)
	b.withoutScript()
	b.do(chromedp.EmulateViewport(phoneWidth, phoneHeight, chromedp.EmulateMobile), chromedp.Navigate(url+path))

	b.pressed("answer", "Write an answer first.")
	if s := state(t, f, bot, id); s.Handoff.State != handoff.Open || len(s.Messages) != 0 {
		t.Errorf("an empty answer changed it: %s, %d messages", s.Handoff.State, len(s.Messages))
	}
	b.do(chromedp.SendKeys(chromedp.ID("text"), "I will call\rat five."))
	b.pressed("answer", "Your answer was passed on.")
	s := state(t, f, bot, id)
	if len(s.Messages) != 1 || s.Messages[0].Body != "I will call\nat five." || s.Handoff.Holder != "person:shop" {
		t.Fatalf("stored: %+v, held by %q", s.Messages, s.Handoff.Holder)
	}
	b.do(chromedp.SendKeys(chromedp.ID("text"), "Called, all is well."))
	b.pressed("complete", "It is marked as done.")
	if s := state(t, f, bot, id); s.Handoff.State != handoff.Completed || s.Handoff.ResultSummary != "Called, all is well." {
		t.Errorf("completed: %s, %q", s.Handoff.State, s.Handoff.ResultSummary)
	}
	b.do(chromedp.Navigate(url + path))
	if n := eval[int](b, `document.querySelectorAll("form, button, textarea, input").length`); n != 0 {
		t.Errorf("after the end the page holds %d controls", n)
	}
	b.wantFits("after the end")
	b.wantQuiet("400 (Bad Request)") // how the browser notes the answer that was empty
}

func TestARobotThatRunsScriptsChangesNothingByLooking(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f, bot, id, path := handedOver(t, hub.InitiateInput{Reason: "Wants to return a bike"})
	url := mounted(t, f)
	before := hubtest.DumpOf(t, f.Config)
	// As previews of links do: it loads all, waits until the network is quiet, scrolls and comes again.
	for range 2 {
		b.do(chromedp.Navigate(url + path))
		if ready := eval[string](b, `document.readyState`); ready != "complete" {
			t.Fatalf("the page is %s", ready)
		}
		eval[float64](b, `(scrollTo(0, document.body.scrollHeight), scrollY)`)
		b.do(chromedp.Reload())
	}
	hubtest.WantSameRows(t, "after a robot looked", hubtest.DumpOf(t, f.Config), before)
	if s := state(t, f, bot, id); s.Handoff.State != handoff.Open {
		t.Errorf("it is %s", s.Handoff.State)
	}
	b.wantQuiet()
}

func TestTheWorstTextsFitAPersonsPhoneAndCannotAct(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f, bot, id, path := handedOver(t, worst())
	url := mounted(t, f)
	name := "The Shop of " + long(60)
	if _, err := f.Hub.EditBusiness(t.Context(), hubtest.Operator(), hub.BusinessInput{Slug: "shop", Name: &name}); err != nil {
		t.Fatal(err)
	}
	reply(t, f, bot, id, fit(hostile, 2000)+long(3000))
	token := strings.TrimPrefix(path, "/h/")
	answer(t, f, token, hub.PersonAnswers, fit(hostile, 2000)+long(3000))

	all := b.requests(url)
	b.do(chromedp.EmulateViewport(phoneWidth, phoneHeight, chromedp.EmulateMobile))
	look := func(what string) {
		t.Helper()
		for _, scheme := range []string{"dark", "light"} {
			b.scheme(scheme)
			b.do(chromedp.Navigate(url + path))
			b.wantFits(what + ", " + scheme)
			b.wantReadable(what + ", " + scheme)
			if acted := eval[string](b, `typeof window.ran + " " + document.scripts.length + " " + document.querySelectorAll("main a, main img, main svg, iframe, main style, base, [onerror], [onload]").length + " " + document.forms.length`); !strings.HasPrefix(acted, "undefined 0 0 ") {
				t.Errorf("%s: window.ran, scripts, foreign elements, forms: %s", what, acted)
			}
		}
	}
	look("taken")
	if controls := b.wantNamed(); !slices.Equal(controls, []string{
		"link Skip to the content", "textbox Your answer, what you did, or why you decline",
		"button Send the answer", "button It is done", "button Decline",
	}) {
		t.Errorf("the controls are %q", controls)
	}
	if reached := b.wantFocusSeen(); !slices.Equal(reached, []string{"Skip to the content", "text", "Send the answer", "It is done", "Decline"}) {
		t.Errorf("the Tab key reaches %q", reached)
	}
	answer(t, f, token, hub.PersonCompletes, fit(hostile, 2000)+long(3000))
	look("completed")
	for _, address := range all() {
		if !strings.HasPrefix(address, url+"/h/") && !strings.HasPrefix(address, url+"/assets/") {
			t.Errorf("the page asked for %s", address)
		}
	}
	b.wantQuiet("404 (Not Found)") // of our own last word, in requests
}

func TestALinkThatShowsNothingFitsAPhone(t *testing.T) {
	t.Parallel()
	b := startChromium(t)
	f, _, _, path := handedOver(t, hub.InitiateInput{})
	b.do(chromedp.EmulateViewport(phoneWidth, phoneHeight, chromedp.EmulateMobile), chromedp.Navigate(mounted(t, f)+path+"a"))
	b.wantFits("a link that is none")
	b.wantReadable("a link that is none")
}

func reply(t *testing.T, f *hubtest.Fixture, bot hub.Call, id, body string) {
	t.Helper()
	if _, err := f.Hub.Reply(t.Context(), bot, hub.ReplyInput{HandoffID: id, Body: body}); err != nil {
		t.Fatal(err)
	}
}

func answer(t *testing.T, f *hubtest.Fixture, token string, act hub.PersonAct, text string) {
	t.Helper()
	if err := f.Hub.PersonDoes(context.Background(), hub.PersonInput{Token: token, Act: act, Key: string(act) + "-1", Text: text}); err != nil {
		t.Fatal(err)
	}
}
