package bridge_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"handclasp/internal/httpserver"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
)

func TestEveryToolCallGetsAKeyOfItsOwnAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	hub := &recorder{}
	s := open(t, hub)
	s.send(inboxCall)
	s.next()
	s.send(inboxCall)
	s.next()
	s.send(ping, `{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"x"}}`)
	s.next()
	s.next()
	keys := map[string]bool{}
	for _, a := range hub.all() {
		key := a.header.Get("Idempotency-Key")
		if (key != "") != strings.Contains(a.body, "tools/call") {
			t.Errorf("%s came with the key %q", a.body, key)
		}
		if key != "" && (keys[key] || !regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(key)) {
			t.Errorf("the key %q is none of its own", key)
		}
		keys[key] = true
	}
}

// keyShapes are arguments of handoff_to_teammate that name a key, or seem to.
var keyShapes = map[string]bool{ // whether the hub takes a key from them
	`{BASE}`:                                                                    false,
	`{BASE,"idempotency_key":"k"}`:                                              true,
	`{BASE,"idempotency_key":" "}`:                                              true,
	`{BASE,"idempotency_key":null}`:                                             false,
	`{BASE,"idempotency_key":"null"}`:                                           false,
	`{BASE,"idempotency_key":""}`:                                               false,
	`{BASE,"idempotency_key":["null"]}`:                                         false,
	`{BASE,"idempotency_key":[ null ]}`:                                         false,
	`{BASE,"idempotency_key":[ "null" ]}`:                                       false,
	`{BASE,"idempotency_key":"nul\u006c"}`:                                      true,
	`{BASE,"idempotency_key":"NULL"}`:                                           true,
	`{BASE,"metadata":null}`:                                                    false,
	`{BASE,"metadata":"null"}`:                                                  false,
	`{BASE,"metadata":""}`:                                                      false,
	`{BASE,"metadata":[null]}`:                                                  false,
	`{BASE,"metadata":{}}`:                                                      false,
	`{BASE,"metadata":"{}"}`:                                                    false,
	`{BASE,"metadata":{"idempotency_key":"k"}}`:                                 false,
	`{BASE,"metadata":{"Client_Idempotency_Key":"k"}}`:                          false,
	`{BASE,"metadata":{"client_idempotency_key":"k"}}`:                          true,
	`{BASE,"metadata":{"client_idempotency_key":null}}`:                         false,
	`{BASE,"metadata":{"client_idempotency_key":""}}`:                           false,
	`{BASE,"metadata":{"client_idempotency_key":"null"}}`:                       true,
	`{BASE,"metadata":" {\"client_idempotency_key\": \"k\"} "}`:                 true,
	`{BASE,"idempotency_key":"null","metadata":{"client_idempotency_key":"k"}}`: true,
	`{BASE,"idempotency_key":"k","metadata":{"client_idempotency_key":"k"}}`:    true,
}

// TestAKeyIsAddedExactlyWhereTheHubWouldTakeNone sends each shape twice through the bridge to a
// real hub, as it is and as a string of JSON. A second key beside the first would be refused, and
// a call without any would not be safe to repeat.
func TestAKeyIsAddedExactlyWhereTheHubWouldTakeNone(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	f.Agent("frank@acme")
	_, secret := f.AgentWithKey("anna@acme")
	srv := httptest.NewServer(httpserver.New(httpserver.Config{
		Hub: f.Hub, Metrics: f.Metrics, MCP: mcpserver.New(f.Hub, mcpserver.Options{}), PublicURL: "http://127.0.0.1",
	}))
	t.Cleanup(srv.Close)
	var key string
	s := open(t, hubFunc(func(r *http.Request) (*http.Response, error) {
		key = r.Header.Get("Idempotency-Key")
		to, err := http.NewRequestWithContext(r.Context(), r.Method, srv.URL+"/mcp", r.Body)
		if err != nil {
			return nil, err
		}
		to.Header = r.Header.Clone()
		to.Header.Set("Authorization", "Bearer "+secret)
		return http.DefaultTransport.RoundTrip(to)
	}))
	n := 0
	for shape, brings := range keyShapes {
		for _, asText := range []bool{false, true} {
			n++
			arguments := strings.Replace(shape, "BASE", `"to":"frank@acme","intent":"inform","summary":"`+strconv.Itoa(n)+`"`, 1)
			arguments = strings.ReplaceAll(arguments, `"k"`, `"k`+strconv.Itoa(n)+`"`)
			if asText {
				quoted, err := json.Marshal(arguments)
				if err != nil {
					t.Fatal(err)
				}
				arguments = string(quoted)
			}
			s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"handoff_to_teammate","arguments":` + arguments + `}}`)
			got := s.next()
			if got.Result == nil || got.Result.IsError && !strings.Contains(got.line, "duplicate_idempotency_key") {
				t.Errorf("%s: %s", arguments, got.line)
			}
			if (key == "") != brings {
				t.Errorf("%s got the key %q", arguments, key)
			}
		}
	}
	// What the hub refuses anyway may have any key, and must still be answered.
	for _, odd := range []string{`{"idempotency_key":[]}`, `{"idempotency_key":7}`, `{"metadata":[]}`, `null`, `"null"`, `""`, `[]`, `"x"`, `7`, `{"idempotency_key":{}}`} {
		s.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"handoff_to_teammate","arguments":` + odd + `}}`)
		if got := s.next(); got.Error == nil && (got.Result == nil || !got.Result.IsError) {
			t.Errorf("%s: %s", odd, got.line)
		}
	}
}
