package webui

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// The page of a person, who has a link and nothing else. Opening it changes nothing, whoever does:
// what acts is a form that a button sends. The link is the credential; with it a form is as good from
// anywhere.

// maxAnswer bounds the form of an answer in bytes: a body of 64 KiB, each byte of it escaped.
const maxAnswer = 256 << 10

// personal sets what the answers to a link carry besides: the link must not leave the page.
func personal(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Referrer-Policy", "no-referrer")
		next(w, r)
	}
}

// personBody is what the page shows. Its texts stand as they were written.
type personBody struct {
	*hub.PersonPage
	Token string
	// Key makes a form that is sent twice count once.
	Key string
	// Done is what the last act came to, Fault why it came to nothing, and Text what was typed.
	Done, Fault, Text string
}

// Line is one thing that is known of the request.
type personLine struct{ Label, Text string }

// Lines are what the agent passed on, in the order in which they are read.
func (b personBody) Lines() []personLine {
	var list []personLine
	for _, l := range []personLine{
		{"Customer wrote", b.Desk.Reason},
		{"Name", b.Contact.Name},
		{"E-mail", b.Contact.Email},
		{"Phone", b.Contact.Phone},
		{"Reservation", b.Desk.ReservationID},
		{"Handed over by (unverified)", b.Desk.AgentLabel},
	} {
		if l.Text != "" {
			list = append(list, l)
		}
	}
	return list
}

// Replies are the messages behind the first, which is the request itself.
func (b personBody) Replies() []handoff.Message {
	if list := b.Thread.Messages; len(list) > 0 && list[0].SequenceNo == 1 {
		return list[1:]
	}
	return b.Thread.Messages
}

// Mine reports whether the person wrote a message.
func (b personBody) Mine(m handoff.Message) bool { return m.Author == b.Thread.Handoff.Recipient }

// State says how the request stands, in words for whoever gets it.
func (b personBody) State() string {
	switch h := &b.Thread.Handoff; h.State {
	case handoff.Open:
		return "waits for you"
	case handoff.Claimed:
		if b.Taken() {
			return "you have taken it"
		}
		return "somebody else has taken it"
	case handoff.Completed:
		return "done"
	case handoff.Rejected:
		return "declined"
	case handoff.Cancelled:
		return "taken back"
	case handoff.Expired:
		return "its time is over"
	}
	return string(b.Thread.Handoff.State)
}

// When tells a time by the clock of the business.
func (b personBody) When(t time.Time) string {
	zone, err := time.LoadLocation(b.Business.Timezone)
	if err != nil {
		zone = time.UTC // this machine knows no zones
	}
	return t.In(zone).Format("Mon 2 Jan 2006, 15:04 MST")
}

// Urgent reports whether the request stands out.
func (b personBody) Urgent() bool {
	return b.Desk.Urgency == handoff.UrgencyHigh || b.Desk.Urgency == handoff.UrgencyEmergency
}

// Erased reports whether the operator removed the texts.
func (b personBody) Erased() bool { return !b.Thread.Handoff.ErasedAt.IsZero() }

// MayAct reports whether the person can still do something.
func (b personBody) MayAct() bool {
	return b.Open() && (b.Thread.Handoff.State == handoff.Open || b.Taken())
}

// doneWords say what an act came to, where the handoff stands as it leaves it: addresses can be made up.
func doneWords(did string, b *personBody) string {
	state := b.Thread.Handoff.State
	switch replies := b.Replies(); {
	case did == string(hub.PersonTakes) && b.Taken():
		return "You have taken it. The assistant was told."
	case did == string(hub.PersonAnswers) && len(replies) > 0 && b.Mine(replies[len(replies)-1]):
		return "Your answer was passed on."
	case did == string(hub.PersonCompletes) && state == handoff.Completed:
		return "It is marked as done."
	case did == string(hub.PersonDeclines) && state == handoff.Rejected:
		return "It was declined."
	}
	return ""
}

func (s *site) person(w http.ResponseWriter, r *http.Request) {
	s.showPerson(w, r, http.StatusOK, personBody{})
}

func (s *site) showPerson(w http.ResponseWriter, r *http.Request, status int, body personBody) {
	token := r.PathValue("token")
	p, err := s.hub.PersonView(r.Context(), token)
	if err != nil {
		s.failPerson(w, r, err)
		return
	}
	body.PersonPage, body.Token, body.Key = &p, token, uuid.NewString()
	if body.Fault == "" {
		body.Done = doneWords(r.URL.Query().Get("did"), &body)
	}
	s.show(w, r, status, personPage, page{Title: "A request for " + p.Business.Name, Body: body})
}

// failPerson shows an error to somebody who knows nothing of the hub.
func (s *site) failPerson(w http.ResponseWriter, r *http.Request, err error) {
	if hub.IsNoPage(err) {
		s.show(w, r, http.StatusNotFound, errorPage, page{Title: "Nothing here", Body: trouble{"This link shows nothing", "It may have been cut off when it was copied, or its time is over. Ask whoever sent it for a new one."}})
		return
	}
	s.fail(w, r, "", err)
}

func (s *site) personActs(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxAnswer)
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			err = handoff.Refuse(handoff.CodeContentTooLarge, "What you wrote is too long.", "")
		} else {
			err = handoff.Refuse(handoff.CodeInvalidRequest, "The form that came could not be read.", "")
		}
		s.fail(w, r, "", err)
		return
	}
	in := hub.PersonInput{
		Token: r.PathValue("token"), Act: hub.PersonAct(r.PostForm.Get("act")), Key: r.PostForm.Get("key"),
		Text: strings.TrimSpace(strings.ReplaceAll(r.PostForm.Get("text"), "\r\n", "\n")),
	}
	err := s.hub.PersonDoes(r.Context(), in)
	var e *handoff.Error
	switch {
	case err == nil:
		http.Redirect(w, r, "/h/"+in.Token+"?did="+string(in.Act), http.StatusSeeOther)
	case hub.IsNoPage(err) || !errors.As(err, &e) || e.Code == handoff.CodeInternal || e.Code == handoff.CodeUnavailable:
		s.failPerson(w, r, err)
	default:
		s.showPerson(w, r, handoff.Lookup(e.Code).HTTP, personBody{Fault: sentenceFor(e), Text: in.Text})
	}
}

// sentenceFor says what was refused to somebody who knows no codes.
func sentenceFor(e *handoff.Error) string {
	switch e.Code {
	case handoff.CodeThreadTerminal:
		return "This request has ended meanwhile. Nothing was changed."
	case handoff.CodeAlreadyClaimed, handoff.CodeNotOwner, handoff.CodeLeaseLost, handoff.CodeStaleClaimEpoch:
		return "Somebody else has taken this request meanwhile. Nothing was changed."
	case handoff.CodeContentTooLarge:
		return "What you wrote is too long. Nothing was changed."
	case handoff.CodeInvalidParams:
		if e.Details["field"] == "text" {
			return "Write an answer first."
		}
	}
	return "That could not be done. Nothing was changed."
}
