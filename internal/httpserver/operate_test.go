package httpserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/httpserver"
	"handclasp/internal/hub"
)

func (l *listener) handoff(t *testing.T) string {
	t.Helper()
	frank := l.Agent("frank@acme")
	made, err := l.Hub.Create(context.Background(), frank, hub.CreateInput{To: "anna@acme", Intent: handoff.Inform, Summary: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return made.ThreadID
}

func TestHealthAndReadinessAreOpenAndSayHowLongTheOldestHandoffWaits(t *testing.T) {
	t.Parallel()
	l := listen(t)
	l.handoff(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		r := l.request(http.MethodGet, path, "")
		r.Header.Del("Authorization")
		a := l.send(r)
		a.want(t, path, http.StatusOK, "")
		if !strings.HasPrefix(a.header.Get("Content-Type"), "application/json") || a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, a.header)
		}
		if got := strings.Contains(a.body, "oldest_unfetched_seconds"); got != (path == "/readyz") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

func TestMetricsNameWhatTheIssueAsksFor(t *testing.T) {
	t.Parallel()
	l := listen(t)
	l.handoff(t)
	l.send(l.request(http.MethodPost, "/mcp/team", checkInbox)).want(t, "check_inbox", http.StatusOK, "")
	l.send(l.request(http.MethodPost, "/mcp/team", strings.Replace(checkInbox, "{}", `{"x":1}`, 1))).want(t, "a refusal", http.StatusOK, "")
	a := l.get("/metrics")
	a.want(t, "/metrics", http.StatusOK, "")
	for _, want := range []string{
		`handclasp_handoffs{door="team",state="open"} 1`,
		`handclasp_transitions_total{door="team",event="handoff.created"} 1`,
		`handclasp_transition_seconds_count{verb="create"} 1`,
		`handclasp_parked_calls 0`,
		`handclasp_oldest_unfetched_age_seconds 0`, // it was fetched just now
		`handclasp_commit_batch_size_count`,
		`handclasp_database_errors_total{kind="full"} 0`,
		`handclasp_event_visibility_lag_seconds 0`,
		`handclasp_events_unsettled 0`,
		`handclasp_http_requests_total{method="POST",route="/mcp/team",status="200"} 2`,
		`handclasp_http_request_seconds_count{route="/mcp/team"} 2`,
		`handclasp_tool_calls_total{code="ok",tool="check_inbox"} 1`,
		`handclasp_tool_calls_total{code="invalid_params",tool="check_inbox"} 1`,
		`go_goroutines`, `process_resident_memory_bytes`,
	} {
		if !strings.Contains(a.body, "\n"+want) {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(a.body, l.key.Secret) || strings.Contains(a.body, l.key.AgentID) {
		t.Error("the metrics name somebody")
	}
}

func TestTheAccessLogHoldsRoutePatternsAndNoPathsOrKeys(t *testing.T) {
	t.Parallel()
	seen := ""
	l := listen(t, func(c *httpserver.Config) {
		c.Inbox = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen = r.PathValue("thread_id")
			w.WriteHeader(http.StatusNoContent)
		})
	})
	id := l.handoff(t)
	l.get("/inbox/"+id).want(t, "inbox", http.StatusNoContent, "")
	l.get("/nosuch/SECRET_PATH?token=SECRET_QUERY").want(t, "nothing", http.StatusNotFound, "not_found")
	l.send(l.request(http.MethodPost, "/mcp/team/", checkInbox)).want(t, "mcp", http.StatusOK, "")
	bad := l.request("BREW", "/mcp", "")
	bad.Host = "evil.example"
	l.send(bad).want(t, "another host", http.StatusForbidden, "permission_denied")
	if seen != id {
		t.Errorf("the inbox was asked for %q", seen)
	}
	log := l.Log.String()
	for _, route := range []string{"route=/inbox/{thread_id}", "route=/ ", "route=/mcp/team/{$}", "route=refused method=other"} {
		if !strings.Contains(log, route) {
			t.Errorf("%s is not in the log:\n%s", route, log)
		}
	}
	for _, leak := range []string{id, "SECRET", l.key.Secret, "Bearer", "BREW", "evil.example"} {
		if strings.Contains(log, leak) {
			t.Errorf("%s is in the log:\n%s", leak, log)
		}
	}
}

func TestEveryAnswerCarriesARequestIDThatTheLogKnows(t *testing.T) {
	t.Parallel()
	l := listen(t)
	made := regexp.MustCompile(`^[0-9a-f]{16}$`)
	for given, kept := range map[string]bool{"from-the-proxy.1": true, "": false, "short": false, "with space": false, strings.Repeat("a", 65): false, "a{b}c\"defgh": false} {
		for _, path := range []string{"/healthz", "/nosuch", "/mcp"} {
			r := l.request(http.MethodGet, path, "")
			if given != "" {
				r.Header.Set("X-Request-Id", given)
			}
			got := l.send(r).header.Get("X-Request-Id")
			if kept && got != given || !kept && !made.MatchString(got) {
				t.Errorf("%s with %q got %q", path, given, got)
			}
			if !strings.Contains(l.Log.String(), "request_id="+got) {
				t.Errorf("%s is not in the log", got)
			}
		}
	}
}

func TestAPanicInAHandlerIsAnswered500AndTheServerLivesOn(t *testing.T) {
	t.Parallel()
	l := listen(t, func(c *httpserver.Config) {
		c.Inbox = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.PathValue("thread_id") {
			case "before":
				panic("CAUSE_OF_IT")
			case "within":
				_, _ = io.WriteString(w, strings.Repeat("half a page ", 1000))
				panic("CAUSE_OF_IT")
			case "abort":
				panic(http.ErrAbortHandler)
			}
			panic(fmt.Errorf("CAUSE_OF_IT"))
		})
	})
	for _, id := range []string{"before", "error"} {
		a := l.get("/inbox/" + id)
		a.want(t, id, http.StatusInternalServerError, "internal")
		if strings.Contains(a.body, "CAUSE") || strings.Contains(a.body, ".go") {
			t.Errorf("%s: the cause is in the answer: %s", id, a.body)
		}
	}
	for _, id := range []string{"within", "abort"} {
		resp, err := l.srv.Client().Do(l.request(http.MethodGet, "/inbox/"+id, ""))
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if err == nil {
			t.Errorf("%s: half an answer passed for a whole one", id)
		}
	}
	log := l.Log.String()
	if n := strings.Count(log, "panic in a handler"); n != 3 || !strings.Contains(log, "CAUSE_OF_IT") {
		t.Errorf("%d panics were logged:\n%s", n, log)
	}
	l.send(l.request(http.MethodPost, "/mcp", checkInbox)).want(t, "afterwards", http.StatusOK, "")
}

func TestReadinessAndCallsSayThatTheDatabaseIsGone(t *testing.T) {
	t.Parallel()
	l := listen(t)
	l.send(l.request(http.MethodPost, "/mcp", checkInbox)).want(t, "before", http.StatusOK, "")
	if err := l.Store.Close(); err != nil {
		t.Fatal(err)
	}
	a := l.get("/readyz")
	a.want(t, "/readyz", http.StatusServiceUnavailable, "")
	if !strings.Contains(a.body, `"status":"unavailable"`) {
		t.Errorf("%s", a.body)
	}
	l.get("/healthz").want(t, "/healthz", http.StatusOK, "")
	l.get("/metrics").want(t, "/metrics", http.StatusOK, "")
	known := l.send(l.request(http.MethodPost, "/mcp", checkInbox))
	if !strings.Contains(known.body, "code: unavailable") || !strings.Contains(known.body, `"retryable":true`) {
		t.Errorf("a call: %d %s", known.status, known.body)
	}
	r := l.request(http.MethodPost, "/mcp", checkInbox)
	r.Header.Set("Authorization", "Bearer hc_live_"+strings.Repeat("0", 48)) // not in the cache
	unknown := l.send(r)
	unknown.want(t, "a key that must be looked up", http.StatusServiceUnavailable, "unavailable")
	if unknown.header.Get("Retry-After") == "" || unknown.header.Get("WWW-Authenticate") != "" {
		t.Errorf("header %v", unknown.header)
	}
}

func TestRoutesOfTheInboxAreServedOnlyWhereThereIsOne(t *testing.T) {
	t.Parallel()
	var asked []string
	l := listen(t, func(c *httpserver.Config) {
		c.Inbox = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { asked = append(asked, r.URL.Path) })
	})
	paths := []string{"/inbox", "/inbox/x", "/login", "/logout", "/join", "/assets/a.css"}
	for _, p := range paths {
		l.get(p).want(t, p, http.StatusOK, "")
	}
	if !slices.Equal(asked, paths) {
		t.Errorf("the inbox was asked for %v", asked)
	}
	none := listen(t)
	for _, p := range paths {
		none.get(p).want(t, p, http.StatusNotFound, "not_found")
	}
}
