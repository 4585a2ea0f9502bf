package webui

import (
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

const (
	// sessionLifetime is how long the hub honours a session token (auth.SessionLifetime).
	sessionLifetime = 12 * time.Hour
	// maxForm bounds the body of a form in bytes.
	maxForm = 8 << 10
)

// cookieFor is the session cookie without its value. SameSite=Lax lets a link in a chat or a
// mail open the thread without signing in again; it is not sent with a form of another site.
// The __Host- prefix makes browsers refuse it from a sibling domain or over plain http.
func cookieFor(publicURL string) http.Cookie {
	c := http.Cookie{
		Name: "handclasp_session", Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode,
		MaxAge: int(sessionLifetime / time.Second),
	}
	if isHTTPS(publicURL) {
		c.Name, c.Secure = "__Host-"+c.Name, true
	}
	return c
}

// localPage is the only shape of address that a sign-in leads to. It is a list of what is
// allowed, so that there is nothing to find that it forgot to forbid.
var localPage = regexp.MustCompile(`^/inbox(/[0-9A-Za-z-]{1,64}(\?after=[0-9]{1,9})?)?$`)

// pageAfterLogin is next if that is one of our pages, else the inbox.
func pageAfterLogin(next string) string {
	if localPage.MatchString(next) {
		return next
	}
	return "/inbox"
}

// signedIn resolves the session, and asks to sign in where there is none that counts. The hub
// is asked at every request, so revoking the key ends the session.
func (s *site) signedIn(w http.ResponseWriter, r *http.Request) (hub.Call, bool) {
	var err error = handoff.Refuse(handoff.CodeUnauthenticated, "no session", "")
	if c, none := r.Cookie(s.cookie.Name); none == nil {
		var actor handoff.Actor
		if actor, err = s.hub.Session(r.Context(), c.Value); err == nil {
			return hub.Call{Actor: actor}, true
		}
	}
	if !hub.IsUnauthenticated(err) {
		s.fail(w, r, "", err)
		return hub.Call{}, false
	}
	next := r.URL.Path
	if after := r.URL.Query().Get("after"); after != "" {
		next += "?after=" + after
	}
	next = pageAfterLogin(next)
	// Slashes stay as they are for whoever reads the address; localPage leaves nothing else
	// that has a meaning inside a query but the question mark.
	http.Redirect(w, r, "/login?next="+strings.ReplaceAll(next, "?", "%3F"), http.StatusSeeOther)
	return hub.Call{}, false
}

// loginBody is what the sign-in form shows. The key is never part of it.
type loginBody struct {
	Next  string
	Fault string
}

func (s *site) loginForm(w http.ResponseWriter, r *http.Request) {
	s.showLogin(w, r, http.StatusOK, loginBody{Next: pageAfterLogin(r.URL.Query().Get("next"))})
}

func (s *site) showLogin(w http.ResponseWriter, r *http.Request, status int, body loginBody) {
	s.show(w, r, status, loginPage, page{Title: "Sign in", Body: body})
}

// login exchanges a key for a session. Guesses are not rate-limited: a key holds 192 random
// bits, so a guess costs us one hash and one index look-up and gains nothing.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			err = handoff.Refuse(handoff.CodeContentTooLarge, "The form that came is too large.", "")
		} else {
			err = handoff.Refuse(handoff.CodeInvalidRequest, "The form that came could not be read.", "")
		}
		s.fail(w, r, "", err)
		return
	}
	body := loginBody{Next: pageAfterLogin(r.PostForm.Get("next"))}
	// PostForm, not Form: a key in the address would end up in histories and logs.
	key := strings.TrimSpace(r.PostForm.Get("key"))
	if key == "" {
		body.Fault = "No key came. Enter the API key of your agent."
		s.showLogin(w, r, http.StatusUnauthorized, body)
		return
	}
	token, _, err := s.hub.SignIn(r.Context(), key)
	if hub.IsUnauthenticated(err) {
		body.Fault = "This key does not count: it is mistyped or revoked, or its agent is disabled."
		s.showLogin(w, r, http.StatusUnauthorized, body)
		return
	}
	if err != nil {
		s.fail(w, r, "", err)
		return
	}
	c := s.cookie
	c.Value = token
	http.SetCookie(w, &c)
	http.Redirect(w, r, body.Next, http.StatusSeeOther)
}

func (s *site) logout(w http.ResponseWriter, r *http.Request) {
	c := s.cookie
	c.MaxAge = -1
	http.SetCookie(w, &c)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
