package notify

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"handclasp/internal/handoff"
)

const aHandoff = "019370a1-7c2e-7d11-9a4b-0c5d6e3fa9c1"

func aNotification() handoff.Notification {
	return handoff.Notification{
		ID: "delivery-1", HandoffID: aHandoff, Kind: handoff.NotifyHandoff, Channel: handoff.ChannelEmail,
		To: "owner@diner.example", Business: "Joe's Diner", Link: "https://hub.example/h/tok_en-1", ReplyToken: "abc234",
		Urgency: handoff.UrgencyEmergency, Reason: "My table burns,\nsee http://evil.example/x", ContactName: "Ann <b>Lee</b>",
		ContactEmail: "ann@mail.example", ContactPhone: "+1 555 0100", ReservationID: "R-17", AgentLabel: "concierge.bot",
	}
}

func compose(t *testing.T, n handoff.Notification, answerable bool) Letter {
	t.Helper()
	l, err := Compose(n, answerable)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestAPersonIsToldWhoWantsThemAndHowUrgently(t *testing.T) {
	t.Parallel()
	l := compose(t, aNotification(), true)
	if want := "[EMERGENCY] Joe's Diner: a customer asks for a person (3FA9C1)"; l.Subject != want {
		t.Errorf("subject %q, want %q", l.Subject, want)
	}
	want := `EMERGENCY: a customer of Joe's Diner asks for a person.

Customer wrote: My table burns, see http[://]evil[.]example/x
Name: Ann <b>Lee</b>
E-mail: ann[@]mail[.]example
Phone: +1 555 0100
Reservation: R-17
Handed over by (unverified): concierge[.]bot

See it and answer:
https://hub.example/h/tok_en-1

Opening the link changes nothing. What you do about it, you do with a button on that page.

You can also answer this e-mail: what you write goes to whoever handed this over.

What others wrote stands here as they wrote it, with addresses made harmless. Nobody has checked it.
`
	if diff := cmp.Diff(want, l.Text); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
	for _, part := range []string{
		"<bdi>Ann &lt;b&gt;Lee&lt;/b&gt;</bdi>", `<a href="https://hub.example/h/tok_en-1"`, "color-scheme", "EMERGENCY: a customer",
	} {
		if !strings.Contains(l.HTML, part) {
			t.Errorf("the HTML lacks %s:\n%s", part, l.HTML)
		}
	}
	if strings.Contains(compose(t, aNotification(), false).Text, "answer this e-mail") {
		t.Error("a letter without an address to answer to asks for an answer")
	}
}

func TestAReplyKeepsItsSubjectAndQuotesTheMessage(t *testing.T) {
	t.Parallel()
	n := aNotification()
	n.Kind, n.Body = handoff.NotifyReply, "Hello,\n\nName: Police\nsee evil.example"
	l := compose(t, n, false)
	if want := "Re: " + compose(t, aNotification(), false).Subject; l.Subject != want {
		t.Errorf("subject %q, want %q", l.Subject, want)
	}
	if want := "The message:\n> Hello,\n> \n> Name: Police\n> see evil[.]example\n"; !strings.Contains(l.Text, want) {
		t.Errorf("text:\n%s", l.Text)
	}
	if !strings.Contains(l.HTML, "<bdi>see evil[.]example</bdi>") {
		t.Errorf("HTML:\n%s", l.HTML)
	}
}

func TestNewsSaysWhatHappenedInWords(t *testing.T) {
	t.Parallel()
	n := handoff.Notification{
		HandoffID: aHandoff, Kind: handoff.NotifyNews, Business: "Evil\r\nBcc: x", Event: handoff.EventLeaseLapsed, Status: "open",
		Sender: "a.b@team", Link: "https://hub.example/handoffs/1",
	}
	l := compose(t, n, false)
	if want := "News of a handoff (3FA9C1)"; l.Subject != want {
		t.Errorf("subject %q, want %q", l.Subject, want)
	}
	if want := "Normal urgency: there is news of a handoff.\n\nFor: Evil Bcc: x\nWhat happened: handoff lease lapsed\nState now: open\nFrom: a[.]b[@]team\n\nSee it:\n"; !strings.HasPrefix(l.Text, want) {
		t.Errorf("text:\n%s", l.Text)
	}
}

func TestAnUnknownKindIsNotWorded(t *testing.T) {
	t.Parallel()
	if _, err := Compose(handoff.Notification{Kind: "else"}, false); err == nil {
		t.Error("a letter came of an unknown kind")
	}
}

func TestOnlyHighUrgencyLeadsTheSubject(t *testing.T) {
	t.Parallel()
	for urgency, want := range map[handoff.Urgency][2]string{
		"":                       {"Joe's Diner: ", "Normal urgency: "},
		handoff.UrgencyLow:       {"Joe's Diner: ", "Low urgency: "},
		handoff.UrgencyNormal:    {"Joe's Diner: ", "Normal urgency: "},
		handoff.UrgencyHigh:      {"[HIGH] Joe's Diner: ", "HIGH URGENCY: "},
		handoff.UrgencyEmergency: {"[EMERGENCY] Joe's Diner: ", "EMERGENCY: "},
	} {
		n := aNotification()
		n.Urgency = urgency
		l := compose(t, n, false)
		if !strings.HasPrefix(l.Subject, want[0]) || !strings.HasPrefix(l.Text, want[1]) {
			t.Errorf("%q: subject %q, text %q", urgency, l.Subject, l.Text[:40])
		}
	}
}

func TestALinkThatIsNotOfTheWebIsLeftOut(t *testing.T) {
	t.Parallel()
	for _, link := range []string{"", "javascript:alert(1)", "//host/x", "https://u:p@host/x", "https:///x", "http://a b/"} {
		n := aNotification()
		n.Link = link
		l := compose(t, n, false)
		if strings.Contains(l.HTML, "href") || strings.Contains(l.Text, "See it") || strings.Contains(l.Text, "Opening") {
			t.Errorf("%q became a link", link)
		}
	}
}

var (
	tagOfHTML  = regexp.MustCompile(`<[a-z!/][^>]*>`)
	remoteHTML = regexp.MustCompile(`(?i)<(img|script|style|link|iframe|form|input|video|audio|object|embed|svg|base)|\bsrc=|url\(|\bon[a-z]+=|@import`)
)

// Whatever callers write, a letter has the same elements, one link, and one line for each field.
func TestNothingThatCallersWriteChangesTheShapeOfALetter(t *testing.T) {
	t.Parallel()
	words := rapid.SliceOfN(rapid.OneOf(pieces, rapid.String(), rapid.SampledFrom([]string{
		"<a href=", "</bdi>", "\">", "<script>", "{{.Link}}", "javascript:", "Name: x", "\nE-mail: ", "<!--", "]]>", "&#x2e;",
	})), 0, 8)
	hostile := rapid.Custom(func(t *rapid.T) string { return strings.Join(words.Draw(t, "words"), "") })
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]handoff.NotificationKind{handoff.NotifyHandoff, handoff.NotifyReply, handoff.NotifyNews}).Draw(t, "kind")
		word := func(name string) string { return "x" + hostile.Draw(t, name) }
		n := aNotification()
		n.Kind = kind
		n.Reason, n.ContactName, n.ContactEmail, n.ContactPhone = word("reason"), word("name"), word("email"), word("phone")
		n.ReservationID, n.AgentLabel, n.Sender = word("reservation"), word("label"), word("sender")
		n.Status = "open"
		n.Body = "x" + strings.NewReplacer("\r", "", "\n", "", "\v", "", "\f", "", "\u0085", "", "\u2028", "", "\u2029", "").Replace(hostile.Draw(t, "body"))
		got, err := Compose(n, true)
		if err != nil {
			t.Fatal(err)
		}
		plain := n
		plain.Reason, plain.ContactName, plain.ContactEmail, plain.ContactPhone = "x", "x", "x", "x"
		plain.ReservationID, plain.AgentLabel, plain.Sender, plain.Body = "x", "x", "x", "x"
		want, err := Compose(plain, true)
		if err != nil {
			t.Fatal(err)
		}
		if got.Subject != want.Subject {
			t.Fatalf("the subject became %q", got.Subject)
		}
		if g, w := strings.Count(got.Text, "\n"), strings.Count(want.Text, "\n"); g != w {
			t.Fatalf("%d lines, want %d:\n%s", g, w, got.Text)
		}
		if diff := cmp.Diff(tagOfHTML.FindAllString(want.HTML, -1), tagOfHTML.FindAllString(got.HTML, -1)); diff != "" {
			t.Fatalf("the elements changed:\n%s", diff)
		}
		if strings.Count(got.HTML, "href=\"") != 1 || strings.Count(got.HTML, "<a ") != 1 {
			t.Fatalf("not one link:\n%s", got.HTML)
		}
		if found := remoteHTML.FindString(tags(got.HTML)); found != "" {
			t.Fatalf("the HTML holds %s", found)
		}
		if !utf8.ValidString(got.Text) || !utf8.ValidString(got.HTML) {
			t.Fatal("a letter is not UTF-8")
		}
		if found := linked.FindString(strings.Replace(got.Text, n.Link, "", 1)); found != "" {
			t.Fatalf("%q looks like an address:\n%s", found, got.Text)
		}
	})
}

func tags(html string) string { return strings.Join(tagOfHTML.FindAllString(html, -1), "\n") }
