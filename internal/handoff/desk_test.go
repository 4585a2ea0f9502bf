package handoff

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestADeliveryIsTriedAgainUntilItIsGivenUp(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	d := Delivery{Channel: ChannelEmail, State: DeliveryQueued, CreatedAt: now, DueAt: now}
	last := time.Duration(0)
	for d.State != DeliveryDead {
		d.Take(now)
		if d.State != DeliverySending || d.DueAt.Sub(now) != SendLease {
			t.Fatalf("taken: %+v", d)
		}
		event := d.Report(Outcome{Kind: OutcomeFailed, Reason: "provider_451"}, 0.5, now)
		if d.State == DeliveryQueued {
			if event != Repeated {
				t.Fatalf("it is tried again, and that is the event %s", event)
			}
			pause := d.DueAt.Sub(now)
			if pause < last || pause > time.Hour {
				t.Fatalf("attempt %d waits %v after %v", d.Attempts, pause, last)
			}
			last, now = pause, d.DueAt
		}
		if d.Attempts > 100 {
			t.Fatal("it never gives up")
		}
	}
	if given := now.Sub(d.CreatedAt); given > GiveUpAfter || given < GiveUpAfter-2*time.Hour {
		t.Errorf("it was given up after %v", given)
	}
	if reason, certain := d.Refusal(); reason != "provider_451" || !certain {
		t.Errorf("it says %s, %v", reason, certain)
	}
}

func TestWhatMayHaveGoneOutIsNeverSaidNotTo(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	fresh := func(c Channel) *Delivery {
		d := &Delivery{Channel: c, State: DeliveryQueued, CreatedAt: now}
		d.Take(now)
		return d
	}
	d := fresh(ChannelEmail)
	if d.Report(Outcome{Kind: OutcomeUnknown}, 0, now) != Repeated || d.State != DeliveryQueued || !d.Unknown {
		t.Errorf("a mail without an answer: %+v", d)
	}
	d.Take(now)
	if d.Report(Outcome{Kind: OutcomeRefused, Reason: "provider_550"}, 0, now) != EventDeliveryDead || d.State != DeliveryDead {
		t.Errorf("refused after that: %+v", d)
	}
	if _, certain := d.Refusal(); certain {
		t.Error("it is said that nothing went out")
	}
	d = fresh(ChannelSMS)
	if d.Report(Outcome{Kind: OutcomeUnknown}, 0, now) != EventDeliveryUnconfirmed || d.State != DeliveryUnconfirmed {
		t.Errorf("a text message without an answer: %+v", d)
	}
	d = fresh(ChannelEmail)
	d.Take(now.Add(SendLease)) // its process was killed
	if !d.Unknown || d.Attempts != 2 {
		t.Errorf("taken over: %+v", d)
	}
	d = fresh(ChannelEmail)
	if d.Report(Outcome{Kind: OutcomeRefused, Reason: "provider_550"}, 0, now) != EventDeliveryRefused {
		t.Errorf("refused at once: %+v", d)
	}
	if err := d.Resend("another", false, now); err != nil || d.State != DeliveryQueued || d.Reason != "" {
		t.Errorf("sent again: %v %+v", err, d)
	}
	d.DueAt = now.Add(time.Hour)
	if err := d.Resend("another", false, now); err != nil || !d.DueAt.Equal(now) || d.ID == "another" {
		t.Errorf("one that waits is not due now: %v %+v", err, d)
	}
	d.Take(now)
	if d.Resend("another", true, now) == nil {
		t.Error("what is being sent was sent again")
	}
	d.Report(Outcome{Kind: OutcomeSent}, 0, now)
	if d.Resend("another", false, now) == nil || d.State != DeliverySent {
		t.Errorf("what was sent was sent again: %+v", d)
	}
	if err := d.Resend("another", true, now); err != nil || d.ID != "another" || d.Attempts != 0 || d.State != DeliveryQueued {
		t.Errorf("another like it: %v %+v", err, d)
	}
}

func TestRoutingIsReadInBothShapes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Routing{
		`{"preferred_channel":"phone","phone":"+49 30 1"}`:                    {Preferred: ChannelSMS, Phone: "+49 30 1"},
		`{"preferred_channel":"TEXT","phone":"+49 30 1","email":null}`:        {Preferred: ChannelSMS, Phone: "+49 30 1"},
		`{"preferred_channel":"email","email":"a@b.example","phone":"030 1"}`: {Preferred: ChannelEmail, Email: "a@b.example", Phone: "030 1"},
		`{"preferred_channel":"form","form_url":"https://b.example/"}`:        {Preferred: ChannelForm, FormURL: "https://b.example/"},
		`{"preferred":"sms","sms_to":"+49 30 1"}`:                             {Preferred: ChannelSMS, Phone: "+49 30 1"},
		`{"preferred":"sms","sms_to":"1","phone":null,"email":null}`:          {Preferred: ChannelSMS, Phone: "1"},
		`{"preferred":"email","email_to":"a@b.example"}`:                      {Preferred: ChannelEmail, Email: "a@b.example"},
		`"{\"preferred\":\"email\",\"email_to\":\"a@b.example\"}"`:            {Preferred: ChannelEmail, Email: "a@b.example"},
		`{}`: {},
	} {
		if got, err := ParseRouting("r", json.RawMessage(text)); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for text, says := range map[string]string{
		`7`:                            "r: a number came",
		`[]`:                           "r: a list came",
		`"x"`:                          "r: ",
		`{"preferred_channel":"fax"}`:  `r.preferred_channel: "fax" came`,
		`{"preferred":"form"}`:         `r.preferred: "form" came; accepted are email, sms`,
		`{"preferred_channel":"form"}`: "r.form_url: nothing came",
		`{"preferred_channel":7}`:      "r.preferred_channel: a number came",
		`{"preferred_channel":"email","emial":"a@b.example"}`: "r.emial: is not a field here",
		`{"preferred":"sms","phone":"1"}`:                     "r: two shapes are mixed: phone of one and preferred of the other came; the fields of one are accepted, either preferred_channel, phone, email, form_url, or preferred, sms_to, email_to",
		`{"preferred":"fax","email_to":7}`:                    `r.preferred: "fax" came; accepted are email, sms` + "\ninvalid_params: r.email_to: a number came",
		`{"phone":"+49 30 1"}`:                                "r.preferred_channel: nothing came, and addresses did",
		`{"sms_to":"+49 30 1"}`:                               "r.preferred: nothing came, and addresses did",
		`{"preferred_channel":"email","email":7}`:             "r.email: a number came",
	} {
		if _, err := ParseRouting("r", json.RawMessage(text)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAnAddressIsPlainOrRefused(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"a@b.example", "ann.o'hara+x@sub.b-c.example", "1@2.co"} {
		if err := CheckEmail("email", s, 254); err != nil {
			t.Error(err)
		}
	}
	for _, s := range []string{
		"", "a", "a@b", "@b.example", ".a@b.example", "a..b@b.example", "a.@b.example", "a@b..example", "a@-b.example", "a b@c.example", "Ann <a@b.example>", "a@b.example\nBcc: x@y.example",
		"a@b.example,c@d.example", "ä@b.example", "a@b.e", `"a"@b.example`, strings.Repeat("a", 250) + "@b.example",
	} {
		err := CheckEmail("contact_email", s, 254)
		says := Quote(s) + " came"
		if s == "" {
			says = "no e-mail address came"
		} else if len(s) > 254 {
			says = "260 bytes came"
		}
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", s, err)
		}
	}
}
