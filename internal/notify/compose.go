package notify

import (
	"embed"
	"fmt"
	htmltemplate "html/template"
	"net/url"
	"strings"
	texttemplate "text/template"

	"handclasp/internal/handoff"
)

//go:embed templates
var templateFiles embed.FS

var (
	textLetter = texttemplate.Must(texttemplate.ParseFS(templateFiles, "templates/letter.txt"))
	htmlLetter = htmltemplate.Must(htmltemplate.ParseFS(templateFiles, "templates/letter.html"))
)

// Letter is a notification in words. Subject holds nothing that a caller wrote; in Text and HTML
// that stands inert and labelled, and Link is the only address that is live.
type Letter struct{ Subject, Text, HTML string }

// How much of each field reaches a reader, in graphemes: what desk accepts, and room for brackets.
const (
	mostReason = 1200
	mostBody   = 8000
	bodyLines  = 200
	mostLine   = 300
	mostName   = 60
)

// letter is what the templates know.
type letter struct {
	Subject string
	Lead    string
	Lines   []labelled
	// Quote is the text of a message, line by line.
	QuoteLabel string
	Quote      []string
	Link       string
	Button     string
	Notes      []string
}

type labelled struct{ Label, Text string }

// Compose words n. answerable says that the notification can be answered as a mail is.
func Compose(n handoff.Notification, answerable bool) (Letter, error) {
	l := letter{Subject: subject(n), Lead: lead(n), Link: liveLink(n.Link)}
	switch n.Kind {
	case handoff.NotifyHandoff:
		l.add("Customer wrote", n.Reason, mostReason)
		l.add("Name", n.ContactName, mostLine)
		l.add("E-mail", n.ContactEmail, mostLine)
		l.add("Phone", n.ContactPhone, mostLine)
		l.add("Reservation", n.ReservationID, mostLine)
		l.add("Handed over by (unverified)", n.AgentLabel, mostLine)
		l.Button = "See it and answer"
	case handoff.NotifyReply:
		l.add("Written by (unverified)", n.AgentLabel, mostLine)
		if body := MultiLine(n.Body, mostBody, bodyLines); body != "" {
			l.QuoteLabel, l.Quote = "The message", strings.Split(body, "\n")
		}
		l.Button = "See it and answer"
	case handoff.NotifyNews:
		l.add("For", n.Business, mostLine)
		l.add("What happened", eventWords(n), mostLine)
		l.add("State now", n.Status, mostLine)
		l.add("From", n.Sender, mostLine)
		l.Button = "See it"
	default:
		return Letter{}, fmt.Errorf("compose a notification: unknown kind %q", n.Kind)
	}
	if l.Link != "" {
		note := "Opening the link changes nothing. What you do about it, you do with a button on that page."
		if !answerable {
			note += " An answer to this e-mail is not read."
		}
		l.Notes = append(l.Notes, note)
	}
	if answerable {
		l.Notes = append(l.Notes, "You can also answer this e-mail: what you write goes to whoever handed this over.")
	}
	l.Notes = append(l.Notes, "What others wrote stands here as they wrote it, with addresses made harmless. Nobody has checked it.")
	return l.render()
}

func (l *letter) add(label, text string, limit int) {
	if text = Inert(text, limit); text != "" {
		l.Lines = append(l.Lines, labelled{label, text})
	}
}

func (l letter) render() (Letter, error) {
	var text, html strings.Builder
	if err := textLetter.Execute(&text, l); err != nil {
		return Letter{}, fmt.Errorf("compose the text: %w", err)
	}
	if err := htmlLetter.Execute(&html, l); err != nil {
		return Letter{}, fmt.Errorf("compose the HTML: %w", err)
	}
	return Letter{l.Subject, text.String(), html.String()}, nil
}

// subject is the same for all letters of a thread but for "Re: ", which is how mail clients keep
// them together.
func subject(n handoff.Notification) string {
	s := businessName(n) + ": a customer asks for a person"
	if n.Kind == handoff.NotifyNews {
		s = "News of a handoff" // an agent chose its name itself
	}
	switch n.Urgency {
	case handoff.UrgencyHigh, handoff.UrgencyEmergency:
		s = "[" + strings.ToUpper(string(n.Urgency)) + "] " + s
	}
	if code := Code(n.HandoffID); code != "" {
		s += " (" + code + ")"
	}
	if n.Kind == handoff.NotifyReply {
		s = "Re: " + s
	}
	return s
}

// businessName is the operator's word, and yet one line without anything that does not show.
func businessName(n handoff.Notification) string {
	name := cut(string(shown(strings.ToValidUTF8(n.Business, "\uFFFD"))), mostName)
	if name == "" {
		return "Handclasp"
	}
	return name
}

// lead is the first line, which begins with the urgency.
func lead(n handoff.Notification) string {
	urgency := "Normal urgency"
	switch n.Urgency {
	case handoff.UrgencyLow:
		urgency = "Low urgency"
	case handoff.UrgencyHigh:
		urgency = "HIGH URGENCY"
	case handoff.UrgencyEmergency:
		urgency = "EMERGENCY"
	}
	name := Inert(businessName(n), 0)
	switch n.Kind {
	case handoff.NotifyReply:
		return urgency + ": there is a message for " + name + " about a request that you were told of."
	case handoff.NotifyNews:
		return urgency + ": there is news of a handoff."
	}
	return urgency + ": a customer of " + name + " asks for a person."
}

// Code is a short name for a handoff that people can read to each other: the last six letters and
// digits of its id. It identifies nothing by itself.
func Code(handoffID string) string {
	const length = 6
	id := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return -1
	}, handoffID)
	return id[max(0, len(id)-length):]
}

// eventWords turns handoff.lease_lapsed, which looks like an address, into words.
func eventWords(n handoff.Notification) string {
	return strings.NewReplacer(".", " ", "_", " ").Replace(string(n.Event))
}

// liveLink returns a link of ours as a client will open it, or nothing.
func liveLink(link string) string {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return ""
	}
	return u.String()
}
