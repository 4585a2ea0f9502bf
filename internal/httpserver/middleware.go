package httpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	sdkauth "github.com/modelcontextprotocol/go-sdk/auth"

	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
	"handclasp/internal/telemetry"
)

// recorder notes the status of an answer.
type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(b)
}

// Unwrap lets http.ResponseController reach flushing and deadlines.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Flush sends what was written so far; streams need it.
func (r *recorder) Flush() { _ = http.NewResponseController(r.ResponseWriter).Flush() }

// observe gives the request an id, and counts and logs it by its route pattern: never by its
// path, which may hold a token.
func (s *server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, id := telemetry.WithRequestID(r.Context(), r.Header.Get("X-Request-Id"))
		w.Header().Set("X-Request-Id", id)
		rec := &recorder{ResponseWriter: w}
		route := &routeNote{}
		r = r.WithContext(context.WithValue(ctx, routeKey{}, route))
		began := time.Now()
		// Deferred, so that an aborted answer is counted too.
		defer func() { s.account(ctx, r.Method, route.pattern, rec.status, time.Since(began)) }()
		next.ServeHTTP(rec, r)
	})
}

// account counts and logs one answer.
func (s *server) account(ctx context.Context, method, pattern string, status int, took time.Duration) {
	s.cfg.Metrics.CountServed()
	if status == 0 {
		status = http.StatusOK
	}
	if pattern == "" {
		pattern = "refused"
	}
	if !knownMethod(method) {
		method = "other"
	}
	s.cfg.Metrics.HTTPRequests.WithLabelValues(pattern, method, strconv.Itoa(status)).Inc()
	s.cfg.Metrics.HTTPSeconds.WithLabelValues(pattern).Observe(took.Seconds())
	s.cfg.Log.DebugContext(ctx, "request", "route", pattern, "method", method, "status", status, "ms", took.Milliseconds())
}

type routeKey struct{}

// routeNote carries the matched pattern from the mux out to observe.
type routeNote struct{ pattern string }

func knownMethod(m string) bool {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return true
	}
	return false
}

// recovered turns a panic into an answer; the process and the other calls go on.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if err, ok := p.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(p)
			}
			s.cfg.Log.ErrorContext(r.Context(), "panic in a handler", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			if rec, ok := w.(*recorder); ok && rec.status != 0 {
				// Half an answer is out; only a broken connection tells the client so.
				panic(http.ErrAbortHandler)
			}
			problem(w, r, http.StatusInternalServerError, "internal", "internal error")
		}()
		next.ServeHTTP(w, r)
	})
}

// trusted refuses requests that a browser was tricked into: a Host that is not ours (DNS
// rebinding), or an Origin that is not (cross-site requests).
func (s *server) trusted(next http.Handler) http.Handler {
	hosts := map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true}
	for _, h := range s.cfg.Hosts {
		hosts[strings.ToLower(h)] = true
	}
	origin := http.NewCrossOriginProtection()
	if u, err := url.Parse(s.cfg.PublicURL); err == nil && u.Host != "" {
		hosts[strings.ToLower(u.Hostname())] = true
		_ = origin.AddTrustedOrigin(u.Scheme + "://" + u.Host) // well formed, it was parsed
	}
	// A person's link is the credential of its form, and its page sends no referrer, so that a browser may
	// call the origin null.
	origin.AddInsecureBypassPattern("POST /h/{token}")
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		problem(w, r, http.StatusForbidden, "permission_denied", "the request comes from another site (Origin); it was not carried out")
	}))
	checked := origin.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hosts[hostOnly(r.Host)] {
			problem(w, r, http.StatusForbidden, "permission_denied", "this Host is not served here; the operator allows it with --public-url or --allowed-host")
			return
		}
		// A page of another site that may read (simple GET) learns nothing without a key, but
		// MCP asks that a foreign Origin is refused whatever the method.
		if o := r.Header.Get("Origin"); o != "" && strings.HasPrefix(r.URL.Path, "/mcp") && !s.ownOrigin(o, r.Host) {
			problem(w, r, http.StatusForbidden, "permission_denied", "the request comes from another site (Origin); it was not carried out")
			return
		}
		checked.ServeHTTP(w, r)
	})
}

func (s *server) ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" {
		return false
	}
	return strings.EqualFold(u.Host, host) || strings.HasPrefix(s.cfg.PublicURL+"/", origin+"/")
}

func hostOnly(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// limited bounds the body and notes the matched route.
func (s *server) limited(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { // also when a handler panics
			if note, ok := r.Context().Value(routeKey{}).(*routeNote); ok {
				note.pattern = r.Pattern
			}
		}()
		if r.ContentLength > s.cfg.MaxBody {
			problem(w, r, http.StatusRequestEntityTooLarge, "content_too_large", fmt.Sprintf("the body has %d bytes, at most %d are accepted", r.ContentLength, s.cfg.MaxBody))
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		mux.ServeHTTP(w, r)
	})
}

// bearer establishes who calls by the API key in the Authorization header.
func (s *server) bearer(next http.Handler) http.Handler {
	inner := withCall(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		token = strings.TrimSpace(token)
		if !strings.EqualFold(scheme, "bearer") || token == "" {
			w.Header().Set("WWW-Authenticate", `Bearer realm="handclasp"`)
			problem(w, r, http.StatusUnauthorized, "unauthenticated", "no API key came; send Authorization: Bearer hc_live_…")
			return
		}
		actor, err := s.cfg.Hub.Authenticate(r.Context(), token)
		if err != nil {
			s.unauthenticated(w, r, err)
			return
		}
		inner.ServeHTTP(w, callOf(hub.Call{Actor: actor}, r))
	})
}

// ActAs is the header by which a process of the folder's owner names the agent it calls as.
const ActAs = "Handclasp-As"

// named takes the caller from the header [ActAs]; it is mounted on the owner's socket only.
func (s *server) named(next http.Handler) http.Handler {
	inner := withCall(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, err := s.cfg.Hub.ActAs(r.Context(), r.Header.Get(ActAs))
		switch {
		case err == nil:
			// The SDK takes identities from its own check of a bearer token only.
			r.Header.Set("Authorization", "Bearer "+ActAs)
			inner.ServeHTTP(w, callOf(hub.Call{Actor: actor}, r))
		case hub.IsUnauthenticated(err):
			problem(w, r, http.StatusUnauthorized, "unauthenticated", hub.Sentence(err))
		default:
			s.unauthenticated(w, r, err)
		}
	})
}

// callOf puts a call, with what its request says of it, into the request.
func callOf(call hub.Call, r *http.Request) *http.Request {
	call.HeaderKey = r.Header.Get("Idempotency-Key")
	call = call.WithTraceParent(r.Header.Get("traceparent"))
	return r.WithContext(context.WithValue(r.Context(), callKey{}, call))
}

type callKey struct{}

// callIn is the call that a request makes.
func callIn(r *http.Request) (hub.Call, bool) {
	call, ok := r.Context().Value(callKey{}).(hub.Call)
	return call, ok
}

// withCall hands the call of a request on as the SDK expects it.
func withCall(next http.Handler) http.Handler {
	return sdkauth.RequireBearerToken(func(ctx context.Context, _ string, _ *http.Request) (*sdkauth.TokenInfo, error) {
		call, ok := ctx.Value(callKey{}).(hub.Call)
		if !ok {
			return nil, sdkauth.ErrInvalidToken
		}
		return mcpserver.TokenInfo(call), nil
	}, &sdkauth.RequireBearerTokenOptions{AllowMissingExpiration: true})(next)
}

func (s *server) unauthenticated(w http.ResponseWriter, r *http.Request, err error) {
	if hub.IsUnauthenticated(err) {
		w.Header().Set("WWW-Authenticate", `Bearer realm="handclasp", error="invalid_token"`)
		problem(w, r, http.StatusUnauthorized, "unauthenticated", "the API key is unknown, revoked, or its agent is disabled; the operator makes a new one with: handclasp agent key rotate HANDLE")
		return
	}
	w.Header().Set("Retry-After", "1")
	problem(w, r, http.StatusServiceUnavailable, "unavailable", "the hub cannot check the API key just now; try again in a moment")
}

// drainFor is how long a refused request may still send its body, and drainMost how much of it.
const (
	drainFor  = 2 * time.Second
	drainMost = 16 << 20
)

// problem is the plain JSON answer of what is refused before a door sees it.
func problem(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	// Not for long: whoever announces a body and never sends it does not get to hold a call.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainFor))
	// What is left of a body is read, so that the client sees the answer instead of a connection that
	// breaks while it still writes.
	_, _ = io.CopyN(io.Discard, r.Body, drainMost)
	writeJSON(w, status, map[string]any{
		"code": code, "message": message, "request_id": telemetry.RequestID(r.Context()), "details": map[string]any{},
	})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may be gone
}
