// Package webui serves the pages for people: sign in with an agent's key, read one thread, join by
// a link. The pages change nothing and, but for the one to join by, hold no script. All text that
// agents wrote is shown as text, see text.go.
package webui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// Options are what the pages need besides the hub.
type Options struct {
	// PublicURL is the address people reach the hub by. Where it is https, the session cookie
	// is sent over https only.
	PublicURL string
	// Log receives unexpected faults, each once; nil discards them.
	Log *slog.Logger
}

// New serves /inbox, /inbox/{thread_id}, /login, /logout, /join, /h/{token} and /assets/. Mount it at these paths
// behind a check of Host and Origin ([http.CrossOriginProtection]), which is what keeps other
// sites from posting the two forms.
func New(h *hub.Hub, opts Options) http.Handler {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &site{hub: h, log: opts.Log, cookie: cookieFor(opts.PublicURL)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /inbox", s.inbox)
	mux.HandleFunc("GET /inbox/{thread_id}", s.thread)
	mux.HandleFunc("GET /login", s.loginForm)
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /join", s.join(opts.PublicURL))
	mux.HandleFunc("GET /h/{token}", personal(s.person))
	mux.HandleFunc("POST /h/{token}", personal(s.personActs))
	mux.HandleFunc("GET /assets/{name}", s.asset)
	return guarded(mux)
}

type site struct {
	hub    *hub.Hub
	log    *slog.Logger
	cookie http.Cookie // name and flags of the session cookie
}

// contentPolicy lets a page load its own style sheet and icon, and post to us. Nothing else
// loads or runs, whatever a text manages to smuggle in.
const contentPolicy = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// guarded sets what every answer carries, the mux's own refusals included.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// Not no-referrer: a form would then post with the Origin null, which is refused.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Robots-Tag", "noindex")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

var (
	threadPage = parse("thread.html", "pool.html", "artifact.html")
	loginPage  = parse("login.html")
	inboxPage  = parse("inbox.html")
	joinPage   = parse("join.html")
	personPage = parse("person.html")
	errorPage  = parse("error.html")
)

func parse(files ...string) *template.Template {
	names := []string{"templates/layout.html"}
	for _, f := range files {
		names = append(names, "templates/"+f)
	}
	return template.Must(template.New("layout.html").Funcs(template.FuncMap{
		"asset":    assetURL,
		"prose":    prose,
		"code":     code,
		"json":     jsonText,
		"diff":     diff,
		"link":     link,
		"artifact": newArtifact,
		"utc":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") },
		"rfc3339":  func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") },
	}).ParseFS(templateFiles, names...))
}

// page is what a template gets.
type page struct {
	Title string
	// Viewer is the handle of who is signed in; empty when nobody is, or when it is not known.
	Viewer string
	Body   any
	// Outside is the page of somebody who has a link and nothing else, so that no way leads to the
	// inbox; show sets it.
	Outside bool
}

// show renders the page as a whole before anything is sent, so that a fault in a template is a
// proper 500 and never half a page.
func (s *site) show(w http.ResponseWriter, r *http.Request, status int, t *template.Template, p page) {
	p.Outside = strings.HasPrefix(r.URL.Path, "/h/")
	var b bytes.Buffer
	if err := t.Execute(&b, p); err != nil {
		s.log.ErrorContext(r.Context(), "a page could not be rendered", "route", r.Pattern, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = b.WriteTo(w) // the browser may be gone
}

// trouble is what an error page says.
type trouble struct{ Heading, Text string }

// fail shows an error as a page. viewer is the handle of who is signed in, if anyone is. What
// does not exist and what one may not see give the same bytes.
func (s *site) fail(w http.ResponseWriter, r *http.Request, viewer string, err error) {
	e := handoff.Refuse(handoff.CodeInternal, "", "")
	if !errors.As(err, &e) || e.Code == handoff.CodeInternal {
		// A fault of the database is unavailable, and the store has logged it.
		s.log.ErrorContext(r.Context(), "internal error", "route", r.Pattern, "error", err)
	}
	status := handoff.Lookup(e.Code).HTTP
	t := trouble{"This did not work", e.Message}
	switch status {
	case http.StatusNotFound:
		t = trouble{"Not found", "There is no such handoff, or it is not one that you may see."}
	case http.StatusServiceUnavailable:
		t = trouble{"Not available just now", "The hub cannot read its database at the moment. Nothing is lost; try again in a little while."}
		w.Header().Set("Retry-After", "5")
	case http.StatusInternalServerError:
		t = trouble{"Internal error", "Something went wrong inside the hub. The operator finds it in the log."}
	}
	s.show(w, r, status, errorPage, page{Title: t.Heading, Viewer: viewer, Body: t})
}

// asset is an embedded file with the tag of its content.
type asset struct {
	body []byte
	tag  string
}

var assets = func() map[string]asset {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // embedded
	}
	m := map[string]asset{}
	for _, e := range entries {
		body, err := assetFiles.ReadFile(path.Join("assets", e.Name()))
		if err != nil {
			panic(err) // embedded
		}
		sum := sha256.Sum256(body)
		m[e.Name()] = asset{body, hex.EncodeToString(sum[:8])}
	}
	return m
}()

// assetURL names an asset together with its content, so that a browser that has kept the old
// one asks for the new one after an update of the hub.
func assetURL(name string) string { return "/assets/" + name + "?v=" + assets[name].tag }

func (s *site) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=86400")
	w.Header().Set("ETag", `"`+a.tag+`"`)
	http.ServeContent(w, r, r.PathValue("name"), time.Time{}, bytes.NewReader(a.body))
}

// isHTTPS reports whether the hub is reached over TLS.
func isHTTPS(publicURL string) bool {
	return strings.HasPrefix(strings.ToLower(publicURL), "https://")
}
