package bridge_test

import (
	"net/http"
	"strings"
	"testing"

	"handclasp/internal/bridge"
)

func TestAMessageReachesTheHubByteForByte(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{
		"big integers":     tool("1", `{"n":123456789012345678901234567890,"m":-0}`),
		"trailing zeros":   tool("1", `{"n":1.10,"e":1E+2}`),
		"double spaces":    `{ "jsonrpc" :  "2.0", "id":1,  "method":"tools/call","params":{"name":"x",  "arguments":{ "a" :  [ 1,  2 ] }}}`,
		"unicode":          tool("1", `{"t":"Grüße 你好 🙂 `+"\u2028\u2029\u00a0"+`"}`),
		"escapes":          tool("1", `{"t":"\u0041\/\b\ud83d\ude42\"\\ <&>"}`),
		"lone surrogates":  tool("1", `{"t":"\ud800"}`),
		"duplicate names":  tool("1", `{"a":1,"a":2}`),
		"names of a case":  `{"jsonrpc":"2.0","id":1,"Id":2,"method":"ping","Method":"other"}`,
		"an unknown field": `{"jsonrpc":"2.0","id":1,"method":"ping","extra":[null]}`,
		"another version":  `{"jsonrpc":"1.0","id":1,"method":"ping"}`,
		"params of a list": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[1,{"name":"x"}]}`,
		"params of a word": `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":"x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hub := &recorder{}
			s := open(t, hub)
			s.send(line)
			if got := s.next(); got.Result == nil || string(got.ID) != "1" {
				t.Errorf("answered with %s", got.line)
			}
			if came := hub.all(); len(came) != 1 || came[0].body != line {
				t.Errorf("sent     %s\nthe hub got %v", line, came)
			}
		})
	}
}

func TestAnAnswerIsOneLineWhateverTheHubsSpacing(t *testing.T) {
	t.Parallel()
	pretty := "{\r\n  \"jsonrpc\": \"2.0\",\n\t\"id\": 1,\n  \"result\": {\n    \"n\": 1.10, \"big\": 123456789012345678901234567890,\n    \"t\": \"a  b\\n<&>\\u0041\"\n  }\n}\n\n"
	s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return jsonReply(pretty) }))
	s.send(ping)
	want := `{"jsonrpc":"2.0","id":1,"result":{"n":1.10,"big":123456789012345678901234567890,"t":"a  b\n<&>\u0041"}}`
	if got := s.next(); got.line != want {
		t.Errorf("got  %s\nwant %s", got.line, want)
	}
}

func TestAnAnswerCarriesTheIDThatTheClientWrote(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ id, answered string }{
		{`1`, `1`}, {`"x"`, `"x"`}, {`"<a>\u0041"`, `"<a>A"`}, {`1.0`, `1`}, {`12345678901234567890`, `12345678901234567000`}, {`-7`, `-7`}, {`""`, `""`}, {`0`, `0`},
	} {
		for member, value := range map[string]string{"result": `{"n":1.10}`, "error": `{"code":-1,"message":"m","data":{"code":"x"}}`} {
			s := open(t, hubFunc(func(*http.Request) (*http.Response, error) {
				return jsonReply(`{"jsonrpc":"2.0","id":` + c.answered + `,"` + member + `":` + value + `}`)
			}))
			s.send(`{"jsonrpc":"2.0","id":` + c.id + `,"method":"ping"}`)
			if got, want := s.next().line, `{"jsonrpc":"2.0","id":`+c.id+`,"`+member+`":`+value+`}`; got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		}
	}
	// A hub that could not read the id refuses the message without it.
	for _, answer := range []string{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`, `{"jsonrpc":"2.0","error":{"code":-32700,"message":"m"}}`} {
		s := open(t, hubFunc(func(*http.Request) (*http.Response, error) {
			return reply(http.StatusBadRequest, "application/json", answer)
		}))
		s.send(ping)
		if got := s.next(); string(got.ID) != "1" || got.Error == nil || got.Error.Code != -32700 {
			t.Errorf("%s became %s", answer, got.line)
		}
	}
}

func TestTheHeadersSayWhatTheBodySays(t *testing.T) {
	t.Parallel()
	const newest = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}`
	call := func(name string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":` + name + `,"arguments":{}}}`
	}
	for what, c := range map[string]struct {
		line          string
		method, name_ string
		version       string
	}{
		"a request":             {ping, "ping", "", ""},
		"a tool":                {inboxCall, "tools/call", "check_inbox", ""},
		"a revision per call":   {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + newest + `}}`, "tools/list", "", "2026-07-28"},
		"a prompt":              {`{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"hand_off",` + newest + `}}`, "prompts/get", "hand_off", "2026-07-28"},
		"a resource":            {`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"handclasp://handoffs/1","name":"no"}}`, "resources/read", "handclasp://handoffs/1", ""},
		"a name of another one": {`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"name":"x"}}`, "tools/list", "", ""},
		"a name in any case":    {call(`"a","Name":"b"`), "tools/call", "a", ""},
		"umlauts":               {call(`"grüße"`), "tools/call", "=?base64?Z3LDvMOfZQ==?=", ""},
		"a space at the end":    {call(`"x "`), "tools/call", "=?base64?eCA=?=", ""},
		"what looks encoded":    {call(`"=?base64?eCA=?="`), "tools/call", "=?base64?PT9iYXNlNjQ/ZUNBPT89?=", ""},
		"a newline":             {call(`"x\r\nAuthorization: Bearer y"`), "tools/call", "=?base64?eA0KQXV0aG9yaXphdGlvbjogQmVhcmVyIHk=?=", ""},
		"NUL":                   {call(`"x\u0000"`), "tools/call", "=?base64?eAA=?=", ""},
		"a method of two lines": {`{"jsonrpc":"2.0","id":1,"method":"a\nB: c"}`, "=?base64?YQpCOiBj?=", "", ""},
		"a revision of two":     {`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"a\nB: c"}}}`, "ping", "", "=?base64?YQpCOiBj?="},
		"a name that is none":   {call(`7`), "tools/call", "", ""},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			hub := &recorder{}
			s := open(t, hub)
			s.send(c.line)
			s.next()
			h := hub.all()[0].header
			for name, want := range map[string]string{"Mcp-Method": c.method, "Mcp-Name": c.name_, "Mcp-Protocol-Version": c.version} {
				if got := strings.Join(h.Values(name), ","); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
			for name, values := range h {
				known := strings.Contains(" Content-Type Accept Mcp-Method Mcp-Name Mcp-Protocol-Version Idempotency-Key ", " "+name+" ")
				if !known || len(values) != 1 || strings.ContainsAny(values[0], "\r\n\x00") {
					t.Errorf("the header %s: %q", name, values)
				}
			}
			if h.Get("Content-Type") != "application/json" || h.Get("Accept") != "application/json, text/event-stream" {
				t.Errorf("header %v", h)
			}
		})
	}
}

func TestTheRevisionOfTheHandshakeGoesWithEverythingAfterIt(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	hub := &recorder{}
	s := open(t, hubFunc(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Mcp-Method") != "initialize" {
			return hub.RoundTrip(r)
		}
		<-goOn
		a := ask(r)
		if a.header.Get("Mcp-Protocol-Version") != "" {
			t.Errorf("the handshake named a revision: %v", a.header)
		}
		return a.result(`{"protocolVersion":"2025-11-25"}`)
	}))
	// A client that does not wait for the answer is served all the same.
	s.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":2,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":3,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	close(goOn)
	for range 3 {
		s.next()
	}
	s.send(`{"jsonrpc":"2.0","id":4,"method":"initialize","params":{}}`)
	s.next()
	_ = s.in.Close()
	s.end()
	came := hub.all()
	if len(came) != 3 {
		t.Fatalf("the hub got %v", came)
	}
	for _, a := range came {
		want := "2025-11-25"
		if a.id == "3" {
			want = "2026-07-28"
		}
		if got := a.header.Get("Mcp-Protocol-Version"); got != want {
			t.Errorf("%s named the revision %q, want %q", a.body, got, want)
		}
	}
}

func TestAnErrorOfTheBridgeNamesTheKindOfItsResultWhereTheRevisionDoes(t *testing.T) {
	t.Parallel()
	s := open(t, hubFunc(func(*http.Request) (*http.Response, error) { return refused() }))
	s.send(inboxCall)
	if got := s.next(); got.Result == nil || got.Result.ResultType != "" {
		t.Errorf("before 2026: %s", got.line)
	}
	s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)
	if got := s.next(); got.Result == nil || got.Result.ResultType != "complete" {
		t.Errorf("2026-07-28: %s", got.line)
	}
}

func TestNothingButProtocolIsEverWrittenToStdout(t *testing.T) {
	t.Parallel()
	// The log of the kit is at debug, and every line of a session is checked there.
	hub := &recorder{}
	s := open(t, hub, func(c *bridge.Config) { c.MaxLine = 4096 })
	s.send("", "{", `{"jsonrpc":"2.0","id":9,"result":{}}`, ping, strings.Repeat("x", 5000), inboxCall)
	for range 4 {
		s.next()
	}
	_ = s.in.Close()
	if rest := s.end(); len(rest) != 0 {
		t.Errorf("it also wrote %v", rest)
	}
	if !strings.Contains(s.log.String(), "level=DEBUG") {
		t.Errorf("the log: %s", s.log)
	}
}
