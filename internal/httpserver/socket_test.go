package httpserver_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"handclasp/internal/httpserver"
	"handclasp/internal/hubtest"
)

// onSocket is the same hub as the owner's socket serves it.
func onSocket(t *testing.T, change ...func(*httpserver.Config)) *listener {
	t.Helper()
	l := listen(t, change...)
	l.cfg.Operator = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil || n > 0 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	l.srv = httptest.NewServer(httpserver.NewSocket(l.cfg))
	t.Cleanup(l.srv.Close)
	return l
}

// as is a request of a process on the data folder.
func (l *listener) as(handle, path, body string) *http.Request {
	r := l.request(http.MethodPost, path, body)
	r.Header.Del("Authorization")
	if handle != "" {
		r.Header.Set(httpserver.ActAs, handle)
	}
	return r
}

func TestOnTheSocketTheCallerIsWhoTheHeaderNames(t *testing.T) {
	t.Parallel()
	l := onSocket(t)
	l.Send(l.Agent("frank@acme"), "anna@acme")
	for _, path := range []string{"/mcp", "/mcp/", "/mcp/team", "/mcp/team/"} {
		a := l.send(l.as("anna@acme", path, checkInbox))
		if a.want(t, path, http.StatusOK, ""); !strings.Contains(a.body, `"unread_total":1`) {
			t.Errorf("%s: not anna's inbox: %s", path, a.body)
		}
	}
	a := l.send(l.as("Frank@ACME", "/mcp", checkInbox)) // handles compare without case
	if a.want(t, "frank", http.StatusOK, ""); !strings.Contains(a.body, `"unread_total":0`) {
		t.Errorf("not frank's inbox: %s", a.body)
	}
	// A key counts for nothing beside the header.
	r := l.as("frank@acme", "/mcp", checkInbox)
	r.Header.Set("Authorization", "Bearer "+l.key.Secret)
	if a := l.send(r); !strings.Contains(a.body, `"unread_total":0`) {
		t.Errorf("the key won over the header: %s", a.body)
	}
	if log := l.Log.String(); !strings.Contains(log, "route=/mcp/team/{$}") || strings.Contains(log, "anna") || strings.Contains(log, "frank") {
		t.Errorf("the log: %s", log)
	}
}

func TestOnTheSocketNobodyIsRefusedWithWhatToType(t *testing.T) {
	t.Parallel()
	l := onSocket(t)
	if err := l.Hub.SetDisabled(context.Background(), hubtest.Operator(), l.Agent("off@acme").Actor.Handle, true); err != nil {
		t.Fatal(err)
	}
	for handle, want := range map[string]string{
		"":                        "no agent is named",
		"ana@acme":                "did you mean anna@acme?",
		"zzz":                     "handclasp agent add NAME@TEAM",
		"off@acme":                "handclasp agent enable off@acme",
		"operator":                "no agent is registered",
		strings.Repeat("x", 5000): "no agent is registered",
		"a' OR '1'='1":            "no agent is registered",
		"\xff\xfe":                "no agent is registered",
	} {
		for _, path := range []string{"/mcp", "/mcp/team"} {
			a := l.send(l.as(handle, path, checkInbox))
			if a.want(t, handle, http.StatusUnauthorized, "unauthenticated"); !strings.Contains(a.body, want) || len(a.body) > 1000 {
				t.Errorf("%.20q: %s", handle, a.body)
			}
		}
	}
	// With a key and no header, too: the socket knows no keys.
	l.send(l.request(http.MethodPost, "/mcp", checkInbox)).want(t, "a key", http.StatusUnauthorized, "unauthenticated")
}

func TestOnTheSocketBodiesAreBoundedAndTheRestIsTheOperators(t *testing.T) {
	t.Parallel()
	l := onSocket(t, func(c *httpserver.Config) { c.MaxBody = 1024 })
	large := strings.Repeat(" ", 2048)
	for _, path := range []string{"/mcp", "/operator/agents"} {
		l.send(l.as("anna@acme", path, large)).want(t, path, http.StatusRequestEntityTooLarge, "content_too_large")
	}
	l.send(l.as("", "/operator/agents", "")).want(t, "operator", http.StatusNoContent, "")
	l.send(l.as("", "/anything", "")).want(t, "anything", http.StatusNoContent, "")
}

func TestOverTCPTheHeaderThatNamesACallerMeansNothing(t *testing.T) {
	t.Parallel()
	l := listen(t, func(c *httpserver.Config) {
		c.Operator = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the operator's routes are served over TCP") })
	})
	l.Agent("frank@acme")
	l.Send(l.Agent("gina@acme"), "frank@acme")
	for _, path := range []string{"/mcp", "/mcp/", "/mcp/team", "/mcp/team/"} {
		for _, handle := range []string{"frank@acme", "anna@acme", "operator", ""} {
			for _, bearer := range []string{"", "Bearer " + httpserver.ActAs, "Bearer", "Bearer hc_live_" + strings.Repeat("0", 48)} {
				r := l.as(handle, path, checkInbox)
				if bearer != "" {
					r.Header.Set("Authorization", bearer)
				}
				l.send(r).want(t, path+" "+handle+" "+bearer, http.StatusUnauthorized, "unauthenticated")
			}
			r := l.request(http.MethodPost, path, checkInbox)
			r.Header.Set(httpserver.ActAs, handle)
			if a := l.send(r); a.status != http.StatusOK || !strings.Contains(a.body, `"unread_total":0`) {
				t.Errorf("anna with her key got %d %s", a.status, a.body)
			}
		}
	}
	r := l.as("frank@acme", "/operator/agents", "")
	l.send(r).want(t, "the operator's routes", http.StatusNotFound, "not_found")
}

func TestACallThatIsParkedOnTheSocketEndsWhenItsAgentIsDisabled(t *testing.T) {
	t.Parallel()
	l := onSocket(t)
	done := make(chan answer, 1)
	go func() {
		done <- l.send(l.as("anna@acme", "/mcp", strings.Replace(checkInbox, `{}`, `{"wait_seconds":50}`, 1)))
	}()
	hubtest.Eventually(t, func() bool { return gauge(t, l.Metrics.ParkedCalls) == 1 })
	if err := l.Hub.SetDisabled(context.Background(), hubtest.Operator(), "anna@acme", true); err != nil {
		t.Fatal(err)
	}
	if a := <-done; !strings.Contains(a.body, "unauthenticated") {
		t.Errorf("got %d %s", a.status, a.body)
	}
	l.send(l.as("anna@acme", "/mcp", checkInbox)).want(t, "afterwards", http.StatusUnauthorized, "unauthenticated")
}
