package httpserver_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"handclasp/internal/httpserver"
	"handclasp/internal/hubtest"
)

func TestACallWithoutACredentialIsChallengedAndOneWithAWrongOneIsToldSo(t *testing.T) {
	t.Parallel()
	l := listen(t)
	revoked, err := l.Hub.AddKey(context.Background(), hubtest.Operator(), "anna@acme", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Hub.RevokeKey(context.Background(), hubtest.Operator(), revoked.KeyID); err != nil {
		t.Fatal(err)
	}
	unknown := "hc_live_" + strings.Repeat("0", 48)
	for name, c := range map[string]struct {
		header string
		error  bool
	}{
		"none": {"", false}, "another scheme": {"Basic YTpi", false}, "no token": {"Bearer ", false},
		"an unknown key": {"Bearer " + unknown, true}, "no key at all": {"Bearer x", true}, "a revoked key": {"Bearer " + revoked.Secret, true},
		"a key and more": {"Bearer " + l.key.Secret + " x", true},
	} {
		for _, path := range []string{"/mcp", "/mcp/team", "/mcp/"} {
			for _, method := range []string{http.MethodPost, http.MethodGet} {
				r := l.request(method, path, checkInbox)
				r.Header.Set("Authorization", c.header)
				if c.header == "" {
					r.Header.Del("Authorization")
				}
				a := l.send(r)
				a.want(t, name+" "+path, http.StatusUnauthorized, "unauthenticated")
				challenge := a.header.Get("WWW-Authenticate")
				if !strings.HasPrefix(challenge, "Bearer realm=") || strings.Contains(challenge, "error=") != c.error {
					t.Errorf("%s %s: challenge %q", name, path, challenge)
				}
				if c.error && !strings.Contains(challenge, `error="invalid_token"`) {
					t.Errorf("%s: challenge %q", name, challenge)
				}
				if strings.Contains(a.body, unknown) || strings.Contains(a.body, revoked.Secret) {
					t.Errorf("%s: the answer repeats the key", name)
				}
			}
		}
	}
	for _, scheme := range []string{"Bearer", "bearer", "BEARER"} {
		r := l.request(http.MethodPost, "/mcp", checkInbox)
		r.Header.Set("Authorization", scheme+" "+l.key.Secret)
		l.send(r).want(t, scheme, http.StatusOK, "")
	}
}

func TestAHostThatIsNotOursIsForbiddenEverywhere(t *testing.T) {
	t.Parallel()
	l := listen(t)
	for host, status := range map[string]int{
		"evil.example": 403, "127.0.0.1.evil.example": 403, "hub.example.evil.example": 403, "evil.example:80": 403, "192.0.2.1": 403, "[2001:db8::1]": 403,
		"localhost": 200, "LOCALHOST:8080": 200, "127.0.0.1:1": 200, "[::1]:8080": 200, "hub.example": 200, "Hub.Example:443": 200, "hub.example.": 200, "other.example": 200,
	} {
		for _, path := range []string{"/mcp", "/healthz", "/metrics"} {
			method, code := http.MethodPost, ""
			if path != "/mcp" {
				method = http.MethodGet
			}
			if status == http.StatusForbidden {
				code = "permission_denied"
			}
			r := l.request(method, path, checkInbox)
			r.Host = host
			l.send(r).want(t, host+path, status, code)
		}
	}
}

func TestAForeignOriginIsForbiddenWhateverTheMethod(t *testing.T) {
	t.Parallel()
	l := listen(t)
	own := l.srv.URL
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete, http.MethodOptions} {
		fine := http.StatusMethodNotAllowed
		if method == http.MethodPost {
			fine = http.StatusOK
		}
		for origin, status := range map[string]int{
			"https://evil.example": 403, "null": 403, "http://127.0.0.1:1": 403, "https://hub.example.evil.example": 403, "file://": 403,
			"https://hub.exampl": 403, "http://hub.example": 403, "https://": 403,
			own: fine, "https://hub.example": fine, "": fine,
		} {
			for _, path := range []string{"/mcp", "/mcp/team", "/mcp/team/"} {
				r := l.request(method, path, checkInbox)
				if origin != "" {
					r.Header.Set("Origin", origin)
				}
				code := ""
				if status == http.StatusForbidden {
					code = "permission_denied"
				}
				l.send(r).want(t, fmt.Sprintf("%s %s from %q", method, path, origin), status, code)
			}
		}
	}
	r := l.request(http.MethodPost, "/mcp", checkInbox)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	l.send(r).want(t, "a cross-site request", http.StatusForbidden, "permission_denied")
}

func TestABodyAboveTheLimitIsRefusedHoweverItIsSent(t *testing.T) {
	t.Parallel()
	l := listen(t)
	fill := func(n int) string {
		const frame = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"list_teammates","arguments":{"role":""}}}`
		return strings.Replace(frame, `"role":""`, `"role":"`+strings.Repeat("x", n-len(frame))+`"`, 1)
	}
	const most = 4 << 20
	for name, wrap := range map[string]func(string) io.Reader{
		"with its length": func(s string) io.Reader { return strings.NewReader(s) },
		"in chunks":       func(s string) io.Reader { return struct{ io.Reader }{strings.NewReader(s)} },
	} {
		for _, path := range []string{"/mcp", "/mcp/team"} {
			r := l.request(http.MethodPost, path, "")
			send := func(body string) answer {
				req, err := http.NewRequest(http.MethodPost, r.URL.String(), wrap(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header = r.Header
				return l.send(req)
			}
			send(fill(most)).want(t, name+", at the limit", http.StatusOK, "")
			send(fill(most+1)).want(t, name+", above it", http.StatusRequestEntityTooLarge, "content_too_large")
			send(fill(3*most)).want(t, name+", far above it", http.StatusRequestEntityTooLarge, "content_too_large")
		}
	}
}

func TestALowerBodyLimitHoldsForItsWholeListener(t *testing.T) {
	t.Parallel()
	l := listen(t, func(c *httpserver.Config) { c.MaxBody = 1000 })
	l.send(l.request(http.MethodPost, "/mcp", checkInbox)).want(t, "small", http.StatusOK, "")
	body := strings.Repeat(" ", 1000) + checkInbox
	l.send(l.request(http.MethodPost, "/mcp", body)).want(t, "large", http.StatusRequestEntityTooLarge, "content_too_large")
	r := l.request(http.MethodPost, "/mcp", "")
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader([]byte(body))), -1
	l.send(r).want(t, "large in chunks", http.StatusRequestEntityTooLarge, "content_too_large")
}

func TestAnMCPAddressTakesOnlyPostsWithAndWithoutASlash(t *testing.T) {
	t.Parallel()
	l := listen(t)
	for _, path := range []string{"/mcp", "/mcp/", "/mcp/team", "/mcp/team/"} {
		l.send(l.request(http.MethodPost, path, checkInbox)).want(t, path, http.StatusOK, "")
		for _, method := range []string{http.MethodGet, http.MethodDelete, http.MethodPut} {
			a := l.send(l.request(method, path, ""))
			a.want(t, method+" "+path, http.StatusMethodNotAllowed, "invalid_request")
			if a.header.Get("Allow") != "POST" {
				t.Errorf("Allow is %q", a.header.Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/mcp/nosuch", "/mcp/team/more", "/nosuch", "/", "/.well-known/oauth-protected-resource"} {
		l.send(l.request(http.MethodPost, path, checkInbox)).want(t, path, http.StatusNotFound, "not_found")
	}
}

func TestAnotherContentTypeOrAcceptIsRefused(t *testing.T) {
	t.Parallel()
	l := listen(t)
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"Content-Type", "text/plain", 415}, {"Content-Type", "", 415}, {"Accept", "text/html", 400}, {"Accept", "application/json", 400}, {"Accept", "*/*", 200},
	} {
		r := l.request(http.MethodPost, "/mcp", checkInbox)
		r.Header.Set(c.name, c.value)
		code := "invalid_request"
		if c.status == http.StatusOK {
			code = ""
		}
		l.send(r).want(t, c.name+" "+c.value, c.status, code)
	}
}
