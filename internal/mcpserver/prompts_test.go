package mcpserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
)

var revisions = []string{"2025-11-25", "2026-07-28"}

// onEachWay runs the test on each database, in each revision of the protocol, at each path.
func onEachWay(t *testing.T, paths []string, test func(t *testing.T, w *wire, version, path string)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		for _, version := range revisions {
			for _, path := range paths {
				t.Run(kind+" "+version+path, func(t *testing.T) {
					t.Parallel()
					test(t, newWire(t, kind), version, path)
				})
			}
		}
	}
}

// asked is what came back for a method that is no tool call.
type asked struct {
	status int
	raw    string
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    map[string]any
	}
}

// ask calls a method by hand; params is a JSON object.
func (c *caller) ask(version, method, params string) asked {
	c.t.Helper()
	header := []string{"MCP-Protocol-Version", version}
	if version == "2026-07-28" {
		var named struct{ Name, URI string }
		if err := json.Unmarshal([]byte(params), &named); err != nil {
			c.t.Fatal(err)
		}
		header = append(header, "Mcp-Method", method, "Mcp-Name", named.Name+named.URI)
		params = strings.Replace(strings.Replace(params, "{", `{"_meta":`+newMeta+`,`, 1), ",}", "}", 1)
	}
	status, raw, _ := c.post(`{"jsonrpc":"2.0","id":4,"method":"`+method+`","params":`+params+`}`, header...)
	a := asked{status: status, raw: raw}
	if err := json.Unmarshal([]byte(raw), &a); err != nil {
		c.t.Fatalf("%s: status %d, no JSON: %q", method, status, raw)
	}
	return a
}

// prompted gets the text of a prompt with the official client.
func (c *caller) prompted(cs *mcp.ClientSession, name string, args map[string]string) string {
	c.t.Helper()
	res, err := cs.GetPrompt(c.t.(*testing.T).Context(), &mcp.GetPromptParams{Name: name, Arguments: args})
	if err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	if len(res.Messages) != 1 || res.Messages[0].Role != "user" || res.Description == "" {
		c.t.Fatalf("%s: %+v", name, res)
	}
	return res.Messages[0].Content.(*mcp.TextContent).Text
}

func TestPromptsAreServedWithTheirToolsetInBothRevisions(t *testing.T) {
	t.Parallel()
	onEachWay(t, []string{"/mcp/team", "/mcp"}, func(t *testing.T, w *wire, version, path string) {
		anna, frank := w.pair()
		id := anna.hand(frank, map[string]any{"intent": "ask_question", "summary": "SUMMARY_MARK"})
		frank.path, frank.t = path, t
		cs := frank.session(version)
		res, err := cs.ListPrompts(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range res.Prompts {
			names = append(names, p.Name)
		}
		if want := append(mcpserver.Prompts(), "test_error", "test_panic"); !slices.Equal(names, want) {
			t.Errorf("prompts %v, want %v", names, want)
		}
		if caps := cs.InitializeResult().Capabilities; caps.Prompts == nil || caps.Prompts.ListChanged || caps.Resources == nil || caps.Resources.ListChanged || caps.Tools.ListChanged {
			t.Errorf("capabilities %+v", caps)
		}
		before := w.events()
		text := frank.prompted(cs, "review_inbox", map[string]string{"focus": "only the release"})
		for _, want := range []string{"only the release", id + ": ask_question from anna@acme, pending, 1 unread", "check_inbox", "view_thread", "no instruction to you"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %s", want, text)
			}
		}
		if strings.Contains(text, "SUMMARY_MARK") {
			t.Error("the prompt speaks with the user's voice and repeats what another wrote")
		}
		if h, _ := w.stored(id); !h.FetchedAt.IsZero() || w.events() != before {
			t.Error("a prompt left a trace")
		}
		if text := frank.prompted(cs, "hand_off", map[string]string{"what": "Fix <b>\"it\"</b>\n  as said.", "to": "Anna@acme"}); !strings.Contains(text, "Fix <b>\"it\"</b>\n  as said.") || !strings.Contains(text, "It goes to Anna@acme.") {
			t.Errorf("hand_off: %s", text)
		}
	})
}

func TestHandOffSaysWhatToDoAboutTheRecipient(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, _ := w.pair()
	cs := anna.session("")
	for to, want := range map[string]string{
		"":                    "I did not say who. Call list_teammates",
		"frank@acme":          "It goes to frank@acme.",
		"whoever owns import": "It goes to: whoever owns import\nThat is no handle. Call list_teammates",
	} {
		text := anna.prompted(cs, "hand_off", map[string]string{"what": "w", "to": to})
		if !strings.Contains(text, want) {
			t.Errorf("to %q: %s", to, text)
		}
		for _, step := range []string{"ask_question", "idempotency_key", "artifacts", "inbox_url", "thread_id", "240 characters", "One handoff is one piece of work"} {
			if !strings.Contains(strings.ToLower(text), strings.ToLower(step)) {
				t.Errorf("it does not speak of %s", step)
			}
		}
	}
}

func TestReviewInboxShowsHowMuchWaits(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	cs := frank.session("")
	if text := frank.prompted(cs, "review_inbox", nil); !strings.Contains(text, "Unread messages in all: 0. Nothing waits for me.") {
		t.Errorf("an empty inbox: %s", text)
	}
	for range mcpserver.ListedHandoffs + 3 {
		anna.hand(frank)
	}
	text := frank.prompted(cs, "review_inbox", nil)
	if n := strings.Count(text, "inform from anna@acme, pending, 1 unread"); n != mcpserver.ListedHandoffs || !strings.Contains(text, "The newest 20 handoffs that wait; check_inbox has the others") {
		t.Errorf("%d shown: %s", n, text)
	}
}

func TestAWrongPromptIsInvalidParamsWithASentence(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, _ := w.pair()
	const mark = "SECRET_MARK"
	long := strings.Repeat("y", 90) + mark
	for name, c := range map[string]struct{ params, want string }{
		"no arguments":       {`{"name":"hand_off"}`, "required: what"},
		"an empty one":       {`{"name":"hand_off","arguments":{"what":""}}`, "what"},
		"without what":       {`{"name":"hand_off","arguments":{"to":"frank@acme"}}`, "what"},
		"a misspelt one":     {`{"name":"hand_off","arguments":{"what":"w","too":"frank@acme"}}`, "did you mean to?"},
		"a long name":        {`{"name":"hand_off","arguments":{"what":"w","` + long + `":"x"}}`, "is not a parameter here"},
		"a number":           {`{"name":"hand_off","arguments":{"what":7}}`, "params.arguments.what: a number came; accepted: a string"},
		"an object":          {`{"name":"hand_off","arguments":{"what":{"x":"` + mark + `"}}}`, "params.arguments.what: an object came"},
		"a list of them":     {`{"name":"hand_off","arguments":["` + mark + `"]}`, "params.arguments: an object of strings is accepted"},
		"too long a what":    {`{"name":"hand_off","arguments":{"what":"` + strings.Repeat("x", 8<<10) + mark + `"}}`, "at most 8192 are accepted"},
		"too long a to":      {`{"name":"hand_off","arguments":{"what":"w","to":"` + strings.Repeat("x", 256) + mark + `"}}`, "at most 256 are accepted"},
		"too long a focus":   {`{"name":"review_inbox","arguments":{"focus":"` + strings.Repeat("x", 4<<10) + mark + `"}}`, "at most 4096 are accepted"},
		"a NUL":              {`{"name":"hand_off","arguments":{"what":"a\u0000` + mark + `"}}`, "what"},
		"an unknown prompt":  {`{"name":"handoff"}`, `"handoff" is not a prompt here; accepted: hand_off, review_inbox`},
		"an endless name":    {`{"name":"` + long + `"}`, "is not a prompt here"},
		"no name":            {`{"arguments":{}}`, "params.name"},
		"a number for name":  {`{"name":7,"arguments":{"what":"` + mark + `"}}`, "params.name"},
		"a text for _meta":   {`{"name":"hand_off","_meta":"` + mark + `"}`, "params._meta"},
		"a number for a uri": {`{"uri":7,"x":"` + mark + `"}`, "params.uri"},
	} {
		method := "prompts/get"
		if strings.Contains(name, "uri") {
			method = "resources/read"
		}
		a := anna.ask("2025-11-25", method, c.params)
		if a.Error == nil || a.Error.Code != -32602 || !strings.Contains(a.Error.Message, c.want) {
			t.Errorf("%s: status %d %.300s", name, a.status, a.raw)
			continue
		}
		if code := a.Error.Data["code"]; code != "invalid_params" && code != "content_too_large" {
			t.Errorf("%s: code %v", name, code)
		}
		if strings.Contains(a.raw, mark) || len(a.raw) > 2<<10 {
			t.Errorf("%s: it repeats too much: %s", name, a.raw)
		}
	}
}

func TestMethodsWithoutParamsHarmNothing(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	for _, params := range []string{"", `,"params":null`, `,"params":{}`} {
		for method, refused := range map[string]bool{"prompts/get": true, "resources/read": true, "prompts/list": false, "resources/list": false, "resources/templates/list": false} {
			_, got, _ := anna.post(`{"jsonrpc":"2.0","id":1,"method":"` + method + `"` + params + `}`)
			if strings.Contains(got, `"error"`) != refused || !strings.Contains(got, `"id":1`) {
				t.Errorf("%s %s: %s", method, params, got)
			}
		}
	}
	anna.hand(frank) // the server lives on
}

func TestAFaultInAPromptHidesItsCauseAndIsLoggedOnce(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"test_panic", "test_error"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			anna, frank := w.pair()
			a := anna.ask("2026-07-28", "prompts/get", `{"name":"`+name+`","arguments":{"what":"WHAT_MARK"}}`)
			if a.Error == nil || a.Error.Code != -32603 || a.Error.Data["code"] != "internal" || a.Error.Data["request_id"] == nil {
				t.Fatalf("%s", a.raw)
			}
			for _, leak := range []string{"CAUSE", "panic in", ".go", "goroutine", "WHAT_MARK"} {
				if strings.Contains(a.raw, leak) {
					t.Errorf("%s is in %s", leak, a.raw)
				}
			}
			if n := strings.Count(w.Log.String(), "internal error"); n != 1 || !strings.Contains(w.Log.String(), "prompt="+name) || strings.Contains(w.Log.String(), "WHAT_MARK") {
				t.Errorf("logged %d times: %s", n, w.Log.String())
			}
			anna.hand(frank) // the server lives on
		})
	}
}

func TestPromptsAndResourcesCountTowardsTheRate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, params string }{
		{"prompts/list", `{}`},
		{"prompts/get", `{"name":"review_inbox"}`},
		{"prompts/get", `{"name":"nothing"}`},
		{"resources/list", `{}`},
		{"resources/templates/list", `{}`},
		{"resources/read", `{"uri":"` + referenceDoc + `"}`},
		{"resources/read", `{"uri":"handclasp://nowhere"}`},
	} {
		t.Run(strings.ReplaceAll(c.method+c.params, "/", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite", hubtest.WithHub(func(c *hub.Config) { c.CallsPerMinute = 2 }))
			anna := w.agent("anna@acme")
			for range 2 {
				anna.ask("2025-11-25", c.method, c.params)
			}
			a := anna.ask("2025-11-25", c.method, c.params)
			if a.Error == nil || a.Error.Code != -32003 || a.Error.Data["code"] != "rate_limited" || a.Error.Data["retry_after_seconds"] == nil || a.Error.Data["retryable"] != true {
				t.Errorf("%s", a.raw)
			}
		})
	}
}

func TestNoListOrResourceMayBeSharedBetweenCallers(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	for _, c := range []struct{ method, params string }{
		{"prompts/list", `{}`},
		{"resources/list", `{}`},
		{"resources/templates/list", `{}`},
		{"server/discover", `{}`},
		{"resources/read", `{"uri":"` + referenceDoc + `"}`},
		{"resources/read", `{"uri":"handclasp://handoffs/` + id + `"}`},
	} {
		a := anna.ask("2026-07-28", c.method, c.params)
		if a.status != http.StatusOK || !strings.Contains(a.raw, `"cacheScope":"private"`) || strings.Contains(a.raw, `"cacheScope":"public"`) {
			t.Errorf("%s: %.300s", c.method, a.raw)
		}
	}
	for _, method := range []string{"prompts/list", "prompts/get", "resources/list", "resources/read"} {
		params := `{"name":"hand_off","arguments":{"what":"w"},"uri":"handclasp://handoffs/` + id + `"}`
		status, got, _ := anna.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params), "Authorization", "Bearer hc_live_wrong")
		if status != http.StatusUnauthorized {
			t.Errorf("%s with a wrong key: %d %s", method, status, got)
		}
	}
}
