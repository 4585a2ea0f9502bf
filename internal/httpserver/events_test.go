package httpserver_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/restapi"
)

// eventsOf asks for the log as the agent of the listener's key.
func (l *listener) eventsOf(query string) (page restapi.AgentEventPage) {
	l.t.Helper()
	a := l.get("/api/v1/events" + query)
	if a.status != http.StatusOK || a.header.Get("Cache-Control") != "no-store" {
		l.t.Fatalf("%s: status %d %v %s", query, a.status, a.header, a.body)
	}
	if err := json.Unmarshal([]byte(a.body), &page); err != nil {
		l.t.Fatalf("%v: %s", err, a.body)
	}
	return page
}

func TestAnAgentReadsOverHTTPTheEventsThatItMaySee(t *testing.T) {
	t.Parallel()
	l := listen(t)
	anna, err := l.Hub.Authenticate(t.Context(), l.key.Secret)
	if err != nil {
		t.Fatal(err)
	}
	frank := l.Agent("frank@acme")
	l.Agent("eve@acme")
	end := l.eventsOf("")
	if len(end.Events) != 0 || end.HasMore || end.NextCursor == "" {
		t.Fatalf("from now on: %+v", end)
	}
	mine := l.Send(hub.Call{Actor: anna}, "frank@acme")
	l.Send(frank, "eve@acme")
	page := l.eventsOf("?cursor=" + end.NextCursor)
	if len(page.Events) != 1 || page.Events[0].HandoffID != mine || page.Events[0].Actor != "anna@acme" || page.Events[0].Type != "handoff.created" || page.Events[0].Cursor == "" {
		t.Fatalf("%+v", page)
	}
	all := l.eventsOf("?cursor=0&limit=2")
	if len(all.Events) != 2 || !all.HasMore || all.Events[0].Type != "agent.added" {
		t.Fatalf("from the beginning: %+v", all)
	}
	got := make(chan restapi.AgentEventPage, 1)
	go func() { got <- l.eventsOf("?wait=50&cursor=" + page.NextCursor) }()
	hubtest.Eventually(t, func() bool { return gauge(t, l.Metrics.ParkedCalls) == 1 })
	next := l.Send(frank, "anna@acme")
	if page = <-got; len(page.Events) != 1 || page.Events[0].HandoffID != next {
		t.Fatalf("what came while it waited: %+v", page)
	}
}

func TestARefusalOfEventsIsAProblem(t *testing.T) {
	t.Parallel()
	l := listen(t)
	for query, code := range map[string]string{
		"?cursor=x": "invalid_params", "?cursor=w.x.1.2": "invalid_params", "?limit=501": "invalid_params", "?limit=-1": "invalid_params",
		"?wait=51": "invalid_params", "?wait=-1": "invalid_params", "?wait=soon": "invalid_params", "?cursor=ffff0000.1.2": "cursor_expired",
	} {
		a := l.get("/api/v1/events" + query)
		var p restapi.Problem
		if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
			t.Fatalf("%s: %v %s", query, err, a.body)
		}
		field, _, _ := strings.Cut(query[1:], "=")
		if string(p.Code) != code || p.Status != a.status || !strings.HasPrefix(p.Detail, field+":") {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
	}
	stranger := l.request(http.MethodGet, "/api/v1/events", "")
	stranger.Header.Set("Authorization", "Bearer hc_live_nobody")
	l.send(stranger).want(t, "another key", http.StatusUnauthorized, "unauthenticated")
	stranger.Header.Del("Authorization")
	l.send(stranger).want(t, "no key", http.StatusUnauthorized, "unauthenticated")
	if a := l.send(l.request(http.MethodPost, "/api/v1/events", "{}")); a.status == http.StatusOK {
		t.Errorf("a POST: %d", a.status)
	}
}

func TestEventsCountAsCalls(t *testing.T) {
	t.Parallel()
	l := listenTo(t, hubtest.WithHub(func(c *hub.Config) { c.CallsPerMinute = 2 }))
	l.eventsOf("")
	l.eventsOf("")
	if a := l.get("/api/v1/events"); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}
