package hub_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

func TestACustomerIsHandedToAPersonWhoAnswersAndCompletes(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot, stranger := f.Agent("bot@shop"), f.Agent("eve@shop")
		box := f.Post(f.Hub, nil)
		out := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "c-1", Reason: "wants a refund", ContactName: "Carl", ContactEmail: "carl@example.com", Urgency: "high"})
		if out.Delivery == nil || out.Delivery.State != handoff.DeliverySent || out.Delivery.Channel != handoff.ChannelEmail || out.Replay {
			t.Fatalf("%+v", out)
		}
		n := box.All()[0]
		if n.To != "ann@shop.example" || n.Business != "The Shop" || n.Reason != "wants a refund" || n.ContactName != "Carl" || n.Urgency != handoff.UrgencyHigh || n.Attempt != 1 ||
			!strings.HasPrefix(n.Link, "https://hub.example/h/") {
			t.Errorf("the person gets %+v", n)
		}
		token := tokenIn(n.Link)

		for range 3 { // opening changes nothing
			page, err := f.Hub.PersonView(bg, token)
			noError(t, err)
			if !page.Open() || page.Taken() || page.Desk.Reason != "wants a refund" || page.Contact.Email != "carl@example.com" || page.Thread.Handoff.State != handoff.Open {
				t.Errorf("the page shows %+v", page)
			}
		}
		if s := deskStatus(f, bot, out.HandoffID); s.Handoff.Status() != "OPEN" || len(s.Messages) != 0 || len(s.Deliveries) != 1 {
			t.Errorf("the status is %+v", s)
		}
		_, err := f.Hub.DeskStatus(bg, stranger, hub.StatusInput{HandoffID: out.HandoffID})
		hubtest.WantCode(t, err, handoff.CodeNotFound)

		known := deskStatus(f, bot, out.HandoffID).UpdatedAt
		f.Clock.Advance(time.Second)
		answer := make(chan hub.DeskStatus)
		go func() {
			s, err := f.Hub.DeskStatus(bg, bot, hub.StatusInput{HandoffID: out.HandoffID, Known: known, Wait: 20 * time.Second})
			if err != nil {
				t.Error(err)
			}
			answer <- s
		}()
		does(f, token, hub.PersonAnswers, "I will call him.")
		s := <-answer
		if s.Handoff.Status() != "CLAIMED" || s.Handoff.Holder != "person:shop" || len(s.Messages) != 1 || s.Messages[0].Body != "I will call him." || s.Messages[0].Author != "person:shop" {
			t.Errorf("the agent that waits sees %+v", s)
		}

		replied, err := f.Hub.Reply(bg, bot, hub.ReplyInput{HandoffID: out.HandoffID, Body: "His number is in the thread."})
		noError(t, err)
		if replied.Delivery.State != handoff.DeliverySent || replied.MessageID == "" {
			t.Errorf("the reply is %+v", replied)
		}
		if all := box.All(); len(all) != 2 || all[1].Kind != handoff.NotifyReply || all[1].Body != "His number is in the thread." || all[1].First != n.ID || all[1].Link != n.Link {
			t.Errorf("the person gets %+v", all[1:])
		}
		_, err = f.Hub.Reply(bg, stranger, hub.ReplyInput{HandoffID: out.HandoffID, Body: "x"})
		hubtest.WantCode(t, err, handoff.CodeNotFound)

		does(f, token, hub.PersonCompletes, "Refunded.")
		thread := view(f, bot, out.HandoffID)
		if thread.Handoff.State != handoff.Completed || thread.Handoff.ResultSummary != "Refunded." || len(thread.Messages) != 3 || thread.Party("person:shop").Name != "The Shop" {
			t.Errorf("the thread is %+v", thread)
		}
		err = f.Hub.PersonDoes(bg, hub.PersonInput{Token: token, Act: hub.PersonAnswers, Text: "too late"})
		hubtest.WantCode(t, err, handoff.CodeThreadTerminal)
		page, err := f.Hub.PersonView(bg, token)
		noError(t, err)
		if page.Open() {
			t.Error("the page of what has ended can still be acted on")
		}
		f.Clock.Advance(31 * 24 * time.Hour)
		if _, err := f.Hub.PersonView(bg, token); !hub.IsNoPage(err) {
			t.Errorf("a month later: %v", err)
		}
	}, hubtest.WithMail())
}

// Each reason why nobody is told, in the order in which the first wins.
func TestAHandoverThatReachesNobodySaysWhy(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		bot := f.Agent("bot@shop")
		f.Post(f.Hub, nil)
		for slug, test := range map[string]struct {
			routing, reason string
			channel         handoff.Channel
		}{
			"form":    {`{"preferred_channel":"form","form_url":"https://shop.example/contact","email":"a@shop.example"}`, "form_routing_configured", "form"},
			"nobody":  {`{}`, "no_recipient_configured", ""},
			"neither": {`{"preferred_channel":"email"}`, "no_recipient_configured", "email"},
			"shape":   {`{"preferred_channel":"email","phone":"+4930901820"}`, "routing_shape_mismatch", "email"},
			"shape2":  {`{"preferred":"sms","email_to":"a@shop.example"}`, "routing_shape_mismatch", "sms"},
			"sms":     {`{"preferred":"sms","sms_to":"+4930901820"}`, "sms_consent_missing", "sms"},
			"text":    {`{"preferred_channel":"text","phone":"+49 30 901820"}`, "sms_consent_missing", "sms"},
		} {
			business(f, hub.BusinessInput{Slug: slug, Routing: json.RawMessage(test.routing)})
			out := initiate(f, bot, hub.InitiateInput{Slug: slug, IdempotencyKey: slug})
			d := out.Delivery
			if d.State != handoff.DeliveryRefused || d.Reason != test.reason || d.Channel != test.channel || d.Attempts != 0 {
				t.Errorf("%s: %+v", slug, d)
			}
			if wants := slug == "form"; (out.FormURL == "https://shop.example/contact") != wants {
				t.Errorf("%s: the form is at %q", slug, out.FormURL)
			}
			if s := deskStatus(f, bot, out.HandoffID); s.Handoff.Status() != "OPEN" {
				t.Errorf("%s: it is %s", slug, s.Handoff.Status())
			}
		}
		business(f, hub.BusinessInput{Slug: "capped", Channel: ptr("email"), Email: ptr("a@b.example"), DailyMessages: ptr(2)})
		var reasons []string
		for _, key := range []string{"1", "2", "3"} {
			out := initiate(f, bot, hub.InitiateInput{Slug: "capped", IdempotencyKey: "capped-" + key})
			reasons = append(reasons, out.Delivery.Reason)
		}
		if got := strings.Join(reasons, ","); got != ",,spend_cap_reached" {
			t.Errorf("the cap of two: %s", got)
		}
	}, hubtest.WithMail())
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		out := initiate(f, f.Agent("bot@shop"), hub.InitiateInput{IdempotencyKey: "k"})
		if out.Delivery.Reason != "provider_not_configured" {
			t.Errorf("without a mail server: %+v", out.Delivery)
		}
	})
}

func TestAKeyOfTheDeskReturnsTheStoredHandoffWhateverComesWithIt(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot, other := f.Agent("bot@shop"), f.Agent("ann@shop")
		box := f.Post(f.Hub, nil)
		first := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "k", Reason: "one"})
		for _, in := range []hub.InitiateInput{
			{IdempotencyKey: "k", Reason: "one"}, {IdempotencyKey: "k", Mode: "agent", Purpose: "p"}, {IdempotencyKey: "k", Slug: "unknown"},
		} {
			again := initiate(f, bot, in)
			if again.HandoffID != first.HandoffID || !again.Replay || again.Mode != handoff.HumanMode || again.Delivery.State != handoff.DeliverySent {
				t.Errorf("%+v: %+v", in, again)
			}
		}
		if mine := initiate(f, other, hub.InitiateInput{IdempotencyKey: "k"}); mine.HandoffID == first.HandoffID || mine.Replay {
			t.Error("a key belongs to its caller")
		}
		if n := len(box.All()); n != 2 {
			t.Errorf("%d notifications went out", n)
		}
	}, hubtest.WithMail())
}

func TestWhatIsWrongWithAHandoverIsRefusedAndNothingIsStored(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		before := hubtest.DumpOf(t, f.Config)
		for field, in := range map[string]hub.InitiateInput{
			"idempotency_key": {Slug: "shop", Mode: "human"},
			"mode":            {Slug: "shop", Mode: "robot", IdempotencyKey: "k"},
			"message":         {Slug: "shop", Mode: "human", IdempotencyKey: "k", Reason: "a", Message: "b"},
			"reason":          {Slug: "shop", Mode: "human", IdempotencyKey: "k", Reason: strings.Repeat("ä", 801)},
			"urgency":         {Slug: "shop", Mode: "human", IdempotencyKey: "k", Urgency: "very"},
			"contact_email":   {Slug: "shop", Mode: "human", IdempotencyKey: "k", ContactEmail: "a..b@example.com"},
			"contact_name":    {Slug: "shop", Mode: "human", IdempotencyKey: "k", ContactName: strings.Repeat("x", 121)},
			"contact_phone":   {Slug: "shop", Mode: "human", IdempotencyKey: "k", ContactPhone: strings.Repeat("1", 41)},
		} {
			_, err := f.Hub.Initiate(bg, bot, in)
			e := hubtest.WantCode(t, err, handoff.CodeInvalidParams)
			if e.Details["field"] != field && !strings.HasPrefix(e.Message, field) {
				t.Errorf("%s: %s", field, e.Message)
			}
		}
		_, err := f.Hub.Initiate(bg, bot, hub.InitiateInput{Slug: "unknown", Mode: "human", IdempotencyKey: "k"})
		hubtest.WantCode(t, err, handoff.CodeBusinessNotFound)
		hubtest.WantSameRows(t, "after refusals", withoutSecrets(hubtest.DumpOf(t, f.Config)), withoutSecrets(before))
	}, hubtest.WithMail())
}

// What kept failing for a day is given up, and then it is said that nothing went out; what may have gone
// out is never said not to.
func TestWhatKeepsFailingIsGivenUpAfterADay(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		outcome := func(n handoff.Notification) handoff.Outcome {
			if n.Reason == "unknown" && n.Attempt == 2 {
				return handoff.Outcome{Kind: handoff.OutcomeUnknown, Reason: "provider_no_answer"}
			}
			return handoff.Outcome{Kind: handoff.OutcomeFailed, Reason: "provider_451"}
		}
		f.Post(f.Hub, outcome)
		failed := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "failed", Reason: "failed"})
		unknown := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "unknown", Reason: "unknown"})
		if failed.Delivery.State != handoff.DeliveryQueued || failed.Delivery.Attempts != 1 {
			t.Fatalf("after its first attempt: %+v", failed.Delivery)
		}
		for hours := 0; hours < 26*6; hours++ {
			f.Clock.Advance(10 * time.Minute)
			list, err := f.Hub.TakeDeliveries(bg, hub.Lane{Channel: handoff.ChannelEmail}, 10)
			noError(t, err)
			for i := range list {
				noError(t, f.Hub.ReportDelivery(bg, &list[i], outcome(list[i].Notification)))
			}
		}
		for key, certain := range map[string]bool{"failed": true, "unknown": false} {
			d := initiate(f, bot, hub.InitiateInput{IdempotencyKey: key}).Delivery
			if reason, is := d.Refusal(); d.State != handoff.DeliveryDead || is != certain || reason != "provider_451" || d.Attempts < 20 {
				t.Errorf("%s: %+v", key, d)
			}
		}
		dead, err := f.Hub.Deliveries(bg, hubtest.Operator(), hub.DeliveryQuery{States: []string{"dead"}})
		noError(t, err)
		if len(dead) != 2 || !slices.Contains(eventsOf(f, failed.HandoffID), handoff.EventDeliveryDead) || !slices.Contains(eventsOf(f, unknown.HandoffID), handoff.EventDeliveryDead) {
			t.Errorf("the operator sees %+v", dead)
		}
		news := inbox(f, bot, hub.InboxInput{})
		if len(news.Items) != 2 || !slices.Contains(news.Items[0].News, handoff.EventDeliveryDead) {
			t.Errorf("its creator's inbox: %+v", news.Items)
		}
		d, err := f.Hub.Resend(bg, hubtest.Operator(), dead[0].ID, false)
		noError(t, err)
		if d.State != handoff.DeliveryQueued {
			t.Errorf("sent again: %+v", d)
		}
		if d, err = f.Hub.Resend(bg, hubtest.Operator(), dead[0].ID, true); err != nil || d.ID != dead[0].ID || d.DueAt.After(f.Clock.Now()) {
			t.Errorf("one that waits is due now: %+v %v", d, err)
		}
	}, hubtest.WithMail())
}

// A mail that did not arrive, or whose link was revoked, is sent as another, with the link as it is now.
func TestWhatWasSentIsSentAgainOnlyAtTheOperatorsWord(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		business(f, hub.BusinessInput{Slug: "shop", Channel: ptr("email"), Email: ptr("a@b.example"), DailyMessages: ptr(2)})
		bot := f.Agent("bot@shop")
		box := f.Post(f.Hub, nil)
		out := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "k"})
		_, err := f.Hub.RevokeContinuation(bg, hubtest.Operator(), out.HandoffID)
		noError(t, err)
		_, err = f.Hub.Resend(bg, hubtest.Operator(), out.Delivery.ID, false)
		hubtest.WantCode(t, err, handoff.CodeInvalidTransition)
		again, err := f.Hub.Resend(bg, hubtest.Operator(), out.Delivery.ID, true)
		noError(t, err)
		if again.ID == out.Delivery.ID || again.Attempts != 0 {
			t.Errorf("the other one is %+v", again)
		}
		eventually(t, "it goes out", func() bool { return len(box.All()) == 2 })
		first, second := box.All()[0], box.All()[1]
		if first.Link == second.Link || second.Kind != handoff.NotifyHandoff || second.ID != again.ID {
			t.Errorf("sent %+v and then %+v", first, second)
		}
		if _, err := f.Hub.PersonView(bg, strings.TrimPrefix(second.Link, "https://hub.example/h/")); err != nil {
			t.Errorf("its link: %v", err)
		}
		eventually(t, "its outcome is known", func() bool { return len(deskStatus(f, bot, out.HandoffID).Deliveries) == 2 })
		_, err = f.Hub.Resend(bg, hubtest.Operator(), again.ID, true)
		if e := handoff.CodeOf(err); e != handoff.CodeInvalidTransition {
			t.Errorf("beyond the cap: %v", err)
		}
		if replay := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "k"}); replay.Delivery.State != handoff.DeliverySent {
			t.Errorf("a replay says %+v", replay.Delivery)
		}
	}, hubtest.WithMail())
}

// A definite refusal gives back what it reserved.
func TestARefusalReleasesWhatItReservedOfTheCap(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		business(f, hub.BusinessInput{Slug: "shop", Channel: ptr("email"), Email: ptr("a@b.example"), DailyMessages: ptr(2), Timezone: ptr("Pacific/Kiritimati")})
		bot := f.Agent("bot@shop")
		f.Post(f.Hub, func(n handoff.Notification) handoff.Outcome {
			if n.Reason == "refuse" {
				return handoff.Outcome{Kind: handoff.OutcomeRefused, Reason: "provider_550"}
			}
			return handoff.Outcome{Kind: handoff.OutcomeSent}
		})
		var got []string
		for i, reason := range []string{"refuse", "refuse", "refuse", "send", "send", "send"} {
			d := initiate(f, bot, hub.InitiateInput{IdempotencyKey: string(rune('a' + i)), Reason: reason}).Delivery
			got = append(got, string(d.State)+" "+d.Reason)
		}
		if want := []string{"refused provider_550", "refused provider_550", "refused provider_550", "sent ", "sent ", "refused spend_cap_reached"}; !slices.Equal(got, want) {
			t.Errorf("got %q", got)
		}
		f.Clock.Advance(24 * time.Hour) // another day there
		if d := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "next day"}).Delivery; d.State != handoff.DeliverySent {
			t.Errorf("the next day: %+v", d)
		}
	}, hubtest.WithMail())
}

func TestManyAtOnceDoNotOvershootACap(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		business(f, hub.BusinessInput{Slug: "shop", Channel: ptr("email"), Email: ptr("a@b.example"), DailyMessages: ptr(7)})
		box := f.Post(f.Hub, nil)
		var wg sync.WaitGroup
		for i := range 40 {
			call := f.Agent(fmt.Sprintf("bot%d@shop", i))
			wg.Go(func() {
				if _, err := f.Hub.Initiate(bg, call, hub.InitiateInput{Slug: "shop", Mode: "human", IdempotencyKey: "k"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := len(box.All()); n != 7 {
			t.Errorf("%d mails went out", n)
		}
	}, hubtest.WithMail())
}

// What has ended is not told any more, and what a business is reached by is looked at when it goes out.
func TestANotificationThatIsLateIsNotSent(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		bot := f.Agent("bot@shop")
		box := f.Post(f.Hub, func(handoff.Notification) handoff.Outcome {
			return handoff.Outcome{Kind: handoff.OutcomeFailed, Reason: "provider_451"}
		})
		ended := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "ended"})
		moved := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "moved"})
		_, err := f.Hub.Cancel(bg, bot, hub.CancelInput{ThreadID: ended.HandoffID})
		noError(t, err)
		_, err = f.Hub.EditBusiness(bg, hubtest.Operator(), hub.BusinessInput{Slug: "shop", Channel: ptr("form"), FormURL: ptr("https://shop.example/")})
		noError(t, err)
		f.Clock.Advance(time.Hour)
		list, err := f.Hub.TakeDeliveries(bg, hub.Lane{Channel: handoff.ChannelEmail}, 10)
		noError(t, err)
		for i := range list {
			noError(t, f.Hub.ReportDelivery(bg, &list[i], handoff.Outcome{Kind: handoff.OutcomeRefused, Reason: list[i].Refused}))
		}
		for id, reason := range map[string]string{ended.HandoffID: "handoff_ended", moved.HandoffID: "form_routing_configured"} {
			eventually(t, "it is refused", func() bool {
				s := deskStatus(f, bot, id)
				return s.Deliveries[0].State == handoff.DeliveryRefused && s.Deliveries[0].Reason == reason
			})
		}
		if n := len(box.All()); n != 2 {
			t.Errorf("%d attempts were made", n)
		}
	}, hubtest.WithMail())
}

func TestWhomNobodyIsToldOfStandsInTheLogWithoutWhatTheCustomerSaid(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	f := hubtest.New(t, "sqlite", hubtest.WithMail(), hubtest.WithHub(func(c *hub.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) }))
	f.Post(f.Hub, nil)
	business(f, hub.BusinessInput{Slug: "shop", Channel: ptr("email"), Email: ptr("ann@shop.example"), DailyMessages: ptr(1)})
	bot := f.Agent("bot@shop")
	initiate(f, bot, hub.InitiateInput{IdempotencyKey: "told", Reason: "MARK"})
	if strings.Contains(log.String(), "nobody") {
		t.Errorf("of one that was told: %s", log.String())
	}
	id := initiate(f, bot, hub.InitiateInput{IdempotencyKey: "untold", Reason: "MARK", ContactName: "MARK", ContactEmail: "MARK@example.com"}).HandoffID
	for _, part := range []string{"level=INFO msg=\"nobody is told\"", "handoff=" + id, "business=shop", "kind=handoff", "reason=spend_cap_reached"} {
		if !strings.Contains(log.String(), part) {
			t.Errorf("it lacks %s: %s", part, log.String())
		}
	}
	if strings.Contains(log.String(), "MARK") || strings.Contains(log.String(), "ann@") {
		t.Error(log.String())
	}
}
