package bridge_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"handclasp/internal/bridge"
)

// patient lets a hub take its time to come back.
func patient(c *bridge.Config) { c.Patience = 20 * time.Second }

// failing is a hub that fails as often as there are failures, and then is content.
type failing struct {
	recorder
	failures []func() (*http.Response, error)
}

func (h *failing) RoundTrip(r *http.Request) (*http.Response, error) {
	h.mu.Lock()
	n := len(h.came)
	h.mu.Unlock()
	answer, err := h.recorder.RoundTrip(r)
	if n < len(h.failures) {
		return h.failures[n]()
	}
	return answer, err
}

// halfBody breaks off.
func halfBody(kind, begin string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		r, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, begin)
			_ = w.CloseWithError(io.ErrUnexpectedEOF)
		}()
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {kind}}, Body: r}, nil
	}
}

func status(code int, kind, body string) func() (*http.Response, error) {
	return func() (*http.Response, error) { return reply(code, kind, body) }
}

const notNow = `{"jsonrpc":"2.0","id":1,"result":{"isError":true,"content":[],"structuredContent":{"error":{"code":"unavailable","message":"the disk is full"}}}}`

func TestACallWhoseTransportFailedIsRepeatedWithItsKey(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func() (*http.Response, error){
		"a refused connection":     refused,
		"a broken connection":      func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF },
		"half an answer":           halfBody("application/json", `{"jsonrpc":"2.0","id":1,"res`),
		"half a stream":            halfBody("text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n"),
		"a stream without an end":  status(http.StatusOK, "text/event-stream", ": hello\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n"),
		"an empty stream":          status(http.StatusOK, "text/event-stream", ""),
		"500":                      status(http.StatusInternalServerError, "text/plain", "oh"),
		"502 of a proxy":           status(http.StatusBadGateway, "text/html", "<html>"),
		"503 of a hub":             status(http.StatusServiceUnavailable, "application/json", `{"code":"unavailable","message":"the database is away"}`),
		"a hub that cannot now":    func() (*http.Response, error) { return jsonReply(notNow) },
		"the same within a stream": status(http.StatusOK, "text/event-stream", "data: "+notNow+"\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := &failing{failures: []func() (*http.Response, error){fail, fail, fail}}
			s := open(t, hub, patient)
			s.send(inboxCall)
			if got := s.next(); got.Result == nil || got.Result.IsError {
				t.Errorf("got %s", got.line)
			}
			came := hub.all()
			if len(came) != 4 {
				t.Fatalf("the hub was asked %d times", len(came))
			}
			for _, a := range came {
				if a.body != inboxCall || a.header.Get("Idempotency-Key") == "" || a.header.Get("Idempotency-Key") != came[0].header.Get("Idempotency-Key") {
					t.Errorf("repeated as %v", a)
				}
			}
			_ = s.in.Close()
			if rest := s.end(); len(rest) != 0 {
				t.Errorf("answered twice: %v", rest)
			}
		})
	}
}

func TestWhatARepetitionCannotMendIsNotRepeated(t *testing.T) {
	t.Parallel()
	ours := func(code string) string { return `{"code":"` + code + `","message":"M"}` }
	for name, c := range map[string]struct {
		answer func() (*http.Response, error)
		code   string
		names  string // what the message says
	}{
		"401":               {status(401, "application/json", ours("unauthenticated")), "unauthenticated", "M"},
		"403":               {status(403, "application/json", ours("permission_denied")), "permission_denied", "M"},
		"404 of a hub":      {status(404, "application/json", ours("not_found")), "not_found", "M"},
		"413":               {status(413, "application/json", ours("content_too_large")), "content_too_large", "M"},
		"404 of a stranger": {status(404, "text/plain", "404 page not found"), "invalid_request", "status 404, text that is no JSON"},
		"a redirect":        {status(302, "text/html", ""), "invalid_request", "status 302, an empty body"},
		"HTML":              {status(200, "text/html", "  <!doctype html><p>SECRET"), "invalid_request", "a page of HTML"},
		"an empty body":     {status(200, "application/json", ""), "invalid_request", "an empty body"},
		"202 and no answer": {status(202, "", ""), "invalid_request", "status 202"},
		"204 and no answer": {status(204, "", ""), "invalid_request", "status 204"},
		"garbage":           {status(200, "application/json", "\x00\xff SECRET"), "invalid_request", "text that is no JSON"},
		"another document":  {status(200, "application/json", `{"SECRET":[1]}`), "invalid_request", "another JSON document"},
		"another version":   {status(200, "application/json", `{"jsonrpc":"1.0","id":1,"result":{}}`), "invalid_request", "another JSON document"},
		"no result":         {status(200, "application/json", `{"jsonrpc":"2.0","id":1}`), "invalid_request", "another JSON document"},
		"two results":       {status(200, "application/json", `{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`), "invalid_request", "another JSON document"},
		"a question":        {status(200, "application/json", `{"jsonrpc":"2.0","id":1,"method":"ping"}`), "invalid_request", "another JSON document"},
		"a foreign answer":  {status(200, "application/json", `{"jsonrpc":"2.0","id":"1","result":{}}`), "invalid_request", "another JSON document"},
		"a nameless answer": {status(200, "application/json", `{"jsonrpc":"2.0","id":null,"result":{}}`), "invalid_request", "another JSON document"},
		"a batch":           {status(200, "application/json", `[{"jsonrpc":"2.0","id":1,"result":{}}]`), "invalid_request", "another JSON document"},
		"two documents":     {status(200, "application/json", `{"jsonrpc":"2.0","id":1,"result":{}}{}`), "invalid_request", "text that is no JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := &failing{failures: []func() (*http.Response, error){c.answer}}
			s := open(t, hub, patient)
			s.send(inboxCall)
			got := s.next()
			got.wantToolError(t, "1", c.code, "")
			if got.Result != nil && !strings.Contains(got.Result.Structured.Error.Message, c.names) || strings.Contains(got.line+s.log.String(), "SECRET") {
				t.Errorf("got %s, want it to say %q", got.line, c.names)
			}
			_ = s.in.Close()
			s.end()
			if n := len(hub.all()); n != 1 {
				t.Errorf("the hub was asked %d times", n)
			}
		})
	}
}

func TestWhatIsNoToolCallFailsAsTheProtocolDoes(t *testing.T) {
	t.Parallel()
	for code, answer := range map[string]func() (*http.Response, error){
		"unavailable":     refused,
		"unauthenticated": status(401, "application/json", `{"code":"unauthenticated","message":"M"}`),
		"invalid_request": status(200, "text/html", "<p>"),
	} {
		s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return answer() }))
		s.send(`{"jsonrpc":"2.0","id":"i","method":"initialize","params":{}}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ping)
		s.next().wantError(t, `"i"`, code)
		s.next().wantError(t, "1", code) // and nothing for the notification
	}
}

func TestGivingUpSaysTrulyWhetherSomethingWasSent(t *testing.T) {
	t.Parallel()
	once := func(first func() (*http.Response, error)) hubFunc {
		var mu sync.Mutex
		return func(*http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			answer := first
			first = refused
			return answer()
		}
	}
	broken := func() (*http.Response, error) { return nil, errors.New("connection reset by peer") }
	for name, c := range map[string]struct {
		hub  hubFunc
		line string
		hint string
	}{
		"never reached":           {once(refused), tool("1", `{}`), "Nothing was sent."},
		"reached once":            {once(broken), tool("1", `{}`), "is not known: look with check_inbox or view_thread"},
		"reached with its own":    {once(broken), tool("1", `{"idempotency_key":"k"}`), "is not known: repeat it with the same idempotency_key"},
		"refused for the moment":  {func(*http.Request) (*http.Response, error) { return jsonReply(notNow) }, tool("1", `{}`), "is not known"},
		"the answer was too long": {once(status(200, "application/json", strings.Repeat(" ", 2048)+"{}")), tool("1", `{}`), "is not known"},
		"a stream too long":       {once(status(200, "text/event-stream", strings.Repeat(": keep alive\n", 200))), tool("1", `{}`), "is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, c.hub, func(cfg *bridge.Config) { cfg.MaxAnswer = 1024 })
			s.send(c.line)
			s.next().wantToolError(t, "1", "unavailable", c.hint)
		})
	}
}

func TestAHubThatAnsweredSomethingElseMayHaveDoneTheCall(t *testing.T) {
	t.Parallel()
	s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return jsonReply(`{"jsonrpc":"2.0","id":2,"result":{}}`) }))
	s.send(tool("1", `{}`))
	s.next().wantToolError(t, "1", "invalid_request", "is not known: look with check_inbox or view_thread")
}

func TestWhatAHubSaysOfARefusalIsCutAndHoldsNoKey(t *testing.T) {
	t.Parallel()
	const key = "hc_live_5e5e5e5e"
	for name, message := range map[string]string{"the key": "no such key: " + key, "the key at the cut": strings.Repeat("x", 995) + key, "too long": strings.Repeat("x", 1_000_000)} {
		body := `{"code":"permission_denied","message":"` + message + `"}`
		s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return reply(403, "application/json", body) }))
		s.send(tool("1", `{}`))
		m := s.next()
		m.wantToolError(t, "1", "permission_denied", "")
		if text := m.line; strings.Contains(text, "5e") || len(text) > 4000 {
			t.Errorf("%s: %.200s", name, text)
		}
	}
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func (endless) Close() error { return nil }

func TestALargeAnswerPassesAndAnEndlessOneIsCut(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 10<<20)
	answers := map[string]func() (*http.Response, error){
		"large": func() (*http.Response, error) {
			return jsonReply(`{"jsonrpc":"2.0","id":1,"result":{"t":"` + large + `"}}`)
		},
		"stream": status(200, "text/event-stream; charset=utf-8", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"t\":\""+large+"\"}}\n\n"),
	}
	for name, answer := range answers {
		s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return answer() }))
		s.send(ping)
		if got := s.next(); len(got.line) < len(large) || got.Result == nil {
			t.Errorf("%s: %d bytes came", name, len(got.line))
		}
	}
	for _, kind := range []string{"application/json", "text/event-stream"} {
		n := 0
		s := open(t, hubFunc(func(*http.Request) (*http.Response, error) {
			n++
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {kind}}, Body: endless{}}, nil
		}), patient, func(c *bridge.Config) { c.MaxAnswer = 1 << 20 })
		s.send(inboxCall)
		got := s.next()
		got.wantToolError(t, "1", "unavailable", "is not known")
		if !strings.Contains(got.line, "1048576") || n != 1 {
			t.Errorf("%s: asked %d times, %s", kind, n, got.line)
		}
	}
}

func TestASlowHubIsWaitedForAndOthersAreAnsweredMeanwhile(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	s := open(t, hubFunc(func(r *http.Request) (*http.Response, error) {
		a := ask(r)
		if a.id == "1" {
			<-goOn
		}
		return a.result("{}")
	}))
	s.send(inboxCall, strings.Replace(ping, `"id":1`, `"id":2`, 1))
	if got := s.next(); string(got.ID) != "2" {
		t.Errorf("got %s", got.line)
	}
	close(goOn)
	if got := s.next(); string(got.ID) != "1" {
		t.Errorf("got %s", got.line)
	}
}

func TestARefusalAfterATryThatMayHaveSucceededSaysSo(t *testing.T) {
	t.Parallel()
	no := status(401, "application/json", `{"code":"unauthenticated","message":"M"}`)
	for _, c := range []struct {
		first func() (*http.Response, error)
		hint  string
	}{{refused, ""}, {status(502, "", ""), "is not known: look with"}} {
		s := open(t, &failing{failures: []func() (*http.Response, error){c.first, no}}, patient)
		s.send(inboxCall)
		got := s.next()
		got.wantToolError(t, "1", "unauthenticated", c.hint)
		if c.hint == "" && strings.Contains(got.line, "not known") {
			t.Errorf("nothing was sent: %s", got.line)
		}
	}
}

func TestAHubThatNeverAnswersIsGivenUpBeforeTheClientDoes(t *testing.T) {
	t.Parallel()
	for name, hub := range map[string]hubFunc{
		"no answer": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"no end of it": func(r *http.Request) (*http.Response, error) {
			body, w := io.Pipe()
			go func() {
				_, _ = io.WriteString(w, ": keep alive\n\n")
				<-r.Context().Done()
				_ = w.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
		},
		"no connection": func(*http.Request) (*http.Response, error) { return refused() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, hub, patient, func(c *bridge.Config) { c.Longest = 20 * time.Millisecond })
			s.send(inboxCall)
			s.next().wantToolError(t, "1", "unavailable", "")
		})
	}
}

func TestAStreamIsPassedOnEventByEvent(t *testing.T) {
	t.Parallel()
	const progress = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`
	stream := strings.Join([]string{
		": a comment", "", "id: 7", "retry: 100", "event: message", "data:" + progress, "", // no space after the colon
		"data: {\"jsonrpc\":\"2.0\",", "data:  \"method\":\"notifications/message\"", "data: }", "", // three lines
		"data: garbage", "", "data: [1]", "", "data: {\"a\":1}", "", "data", "", "data:", "", "nonsense", "", // nothing to pass on
		"data: {\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}", "", // somebody else's
		"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"n\":1.10}}", "",
		"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/late\"}", "", "",
	}, "\n")
	for _, ends := range []string{"\n", "\r\n"} {
		s := open(t, hubFunc(func(*http.Request) (*http.Response, error) {
			return reply(200, "Text/Event-Stream; charset=utf-8", strings.ReplaceAll(stream, "\n", ends))
		}))
		s.send(ping)
		for _, want := range []string{progress, `{"jsonrpc":"2.0","method":"notifications/message"}`, `{"jsonrpc":"2.0","id":1,"result":{"n":1.10}}`} {
			if got := s.next(); got.line != want {
				t.Errorf("got %s, want %s", got.line, want)
			}
		}
		_ = s.in.Close()
		if rest := s.end(); len(rest) != 0 {
			t.Errorf("after the answer came %v", rest)
		}
	}
}

func TestANotificationIsNeverAnswered(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func() (*http.Response, error){
		"202":       status(202, "", ""),
		"204":       status(204, "", ""),
		"200":       status(200, "application/json", ""),
		"a refusal": status(400, "application/json", `{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"SECRET"}}`),
		"401":       status(401, "application/json", `{"code":"unauthenticated","message":"M"}`),
		"HTML":      status(404, "text/html", "<p>"),
		"a stream":  status(200, "text/event-stream", ": nothing\n\n"),
		"no hub":    refused,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return answer() }))
			s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			_ = s.in.Close()
			if rest := s.end(); len(rest) != 0 {
				t.Errorf("answered with %v", rest)
			}
			if strings.Contains(s.log.String(), "SECRET") {
				t.Errorf("the hub's text is in the log: %s", s.log)
			}
		})
	}
}

func TestACallThatIsRepeatedCanStillBeCancelled(t *testing.T) {
	t.Parallel()
	tries := make(chan context.Context, 1000)
	s := open(t, hubFunc(func(r *http.Request) (*http.Response, error) {
		select {
		case tries <- r.Context():
		default:
		}
		return refused()
	}), patient)
	s.send(inboxCall)
	for range 3 {
		<-tries
	}
	s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	_ = s.in.Close()
	if rest := s.end(); len(rest) != 0 {
		t.Errorf("a cancelled call was answered: %v", rest)
	}
}
