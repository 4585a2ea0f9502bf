package mcpserver_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/mcpserver"
)

// newMeta is what every request of the revision 2026-07-28 carries in place of a handshake.
const newMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"t","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// newRevision sets the headers of a tools/call of that revision.
func newRevision(r *http.Request, tool string) {
	r.Header.Set("MCP-Protocol-Version", "2026-07-28")
	r.Header.Set("Mcp-Method", "tools/call")
	r.Header.Set("Mcp-Name", tool)
}

// post sends a body as it is and returns status and answer.
func (c *caller) post(body string, header ...string) (int, string, http.Header) {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodPost, c.srv.URL+c.path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.key.Secret)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.srv.Client().Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

func TestBothRevisionsAreServedSideBySide(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	old := anna.call("handoff_to_teammate", in(nil))
	old.fields(t, "handoff_to_teammate")
	next, err := anna.with(func(r *http.Request) { newRevision(r, "handoff_to_teammate") }).
		try(t.Context(), `{"name":"handoff_to_teammate","arguments":`+rawJSON(t, in(nil))+`,"_meta":`+newMeta+`}`)
	if err != nil {
		t.Fatal(err)
	}
	next.fields(t, "handoff_to_teammate")
	if !strings.Contains(string(next.raw), `"resultType":"complete"`) || strings.Contains(string(old.raw), "resultType") {
		t.Errorf("old %s\nnew %s", old.raw, next.raw)
	}
	if n := len(frank.ok("check_inbox", `{}`)["items"].([]any)); n != 2 {
		t.Errorf("%d handoffs arrived", n)
	}
}

func TestTheNewRevisionChecksItsHeaders(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, _ := w.pair()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"check_inbox","arguments":{},"_meta":` + newMeta + `}}`
	for name, c := range map[string]struct {
		status int
		header []string
	}{
		"all":           {http.StatusOK, []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "check_inbox"}},
		"no version":    {http.StatusBadRequest, nil},
		"no method":     {http.StatusBadRequest, []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Name", "check_inbox"}},
		"another tool":  {http.StatusBadRequest, []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "view_thread"}},
		"other version": {http.StatusBadRequest, []string{"MCP-Protocol-Version", "2025-11-25", "Mcp-Method", "tools/call", "Mcp-Name", "check_inbox"}},
		"no such one":   {http.StatusBadRequest, []string{"MCP-Protocol-Version", "1999-01-01"}},
	} {
		status, got, _ := anna.post(body, c.header...)
		var msg struct {
			JSONRPC string
			Error   *struct{ Code int }
		}
		if err := json.Unmarshal([]byte(got), &msg); err != nil || msg.JSONRPC != "2.0" {
			t.Errorf("%s: no JSON-RPC: %q", name, got)
		}
		if status != c.status || (msg.Error == nil) != (c.status == http.StatusOK) {
			t.Errorf("%s: status %d %s", name, status, got)
		}
	}
}

func TestListsMayNotBeSharedBetweenCallers(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, _ := w.pair()
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":` + newMeta + `}}`
	status, got, header := anna.post(list, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/list")
	if status != http.StatusOK || !strings.Contains(got, `"cacheScope":"private"`) || strings.Contains(got, `"public"`) {
		t.Errorf("status %d: %.200s", status, got)
	}
	if cc := header.Get("Cache-Control"); strings.Contains(cc, "public") {
		t.Errorf("Cache-Control %q", cc)
	}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for _, path := range []string{"/mcp/team", "/mcp"} {
			anna.path = path
			cs := anna.session(version)
			res, err := cs.ListTools(t.Context(), &mcp.ListToolsParams{})
			if err != nil {
				t.Fatal(err)
			}
			if n, want := len(res.Tools), len(mcpserver.Definitions(strings.TrimPrefix(strings.TrimPrefix(path, "/mcp"), "/")))+3; n != want { // with the broken ones
				t.Errorf("%s %s: %d tools, want %d", path, version, n, want)
			}
		}
	}
}

func TestWhatIsNoJSONRPCIsAnsweredInJSONRPC(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, _ := w.pair()
	call := `{"jsonrpc":"2.0","id":%ID,"method":"tools/call","params":{"name":"check_inbox","arguments":{}}}`
	one, two := strings.Replace(call, "%ID", "1", 1), strings.Replace(call, "%ID", `"b"`, 1)
	for name, c := range map[string]struct {
		body   string
		header []string
		status int
		want   string
	}{
		"garbage":                   {"garbage SECRET_MARK", nil, 400, `"code":-32700`},
		"half of it":                {one[:30], nil, 400, `"code":-32700`},
		"nothing":                   {"", nil, 400, `"code":-32600`},
		"another shape":             {`{"SECRET_MARK":1}`, nil, 400, `"code":-32600`},
		"a string":                  {`"SECRET_MARK"`, nil, 400, `"code":-32600`},
		"JSON-RPC 1.0":              {`{"jsonrpc":"1.0","id":1,"method":"ping"}`, nil, 400, `"code":-32600`},
		"an empty batch":            {`[]`, nil, 400, `"code":-32600`},
		"a batch of the old":        {"[" + one + "," + two + "]", []string{"MCP-Protocol-Version", "2025-03-26"}, 400, `"code":-32600`},
		"a batch without a version": {"[" + one + "," + two + "]", nil, 400, `"code":-32600`},
		"two documents":             {one + "\n" + two, nil, 400, `"code":-32700`},
		"something behind it":       {one + "}}SECRET_MARK", nil, 400, `"code":-32700`},
		"a number for the tool":     {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":7,"arguments":{"payload":"SECRET_MARK"}}}`, nil, 400, `"code":-32602`},
		"a text for _meta":          {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"send_message","_meta":"x","arguments":{"payload":"SECRET_MARK"}}}`, nil, 400, `"code":-32602`},
		"a name in other case":      {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":7,"arguments":{"payload":"SECRET_MARK"}},"Method":"x"}`, nil, 200, `"id":9`},
		"a wrong type elsewhere":    {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"check_inbox","inputResponses":"SECRET_MARK","arguments":{}}}`, nil, 200, `"code":-32602`},
		"a cursor of another type":  {`{"jsonrpc":"2.0","id":9,"method":"tools/list","params":{"cursor":{"x":"SECRET_MARK"}}}`, nil, 200, `"code":-32602`},
		"a list for params":         {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":["SECRET_MARK"]}`, nil, 400, `"code":-32602`},
		"a fraction for the id":     {strings.Replace(call, "%ID", "1.5", 1), nil, 400, `"id":1.5`},
		"an id of 30 digits":        {strings.Replace(call, "%ID", strings.Repeat("9", 30), 1), nil, 400, strings.Repeat("9", 30)},
		"an id beyond 64 bits":      {strings.Replace(call, "%ID", "9223372036854775808", 1), nil, 400, `"id":9223372036854775808`},
		"a large id":                {strings.Replace(call, "%ID", "9007199254740991", 1), nil, 200, `"id":9007199254740991`},
		"an endless name":           {`{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"` + strings.Repeat("n", 100) + `SECRET_MARK` + strings.Repeat("n", 100) + `"}}`, nil, 400, `"code":-32602`},
		"a batch of the new":        {"[" + one + "," + two + "]", []string{"MCP-Protocol-Version", "2025-11-25"}, 400, `"code":-32600`},
		"an unknown method":         {`{"jsonrpc":"2.0","id":9,"method":"tools/SECRET"}`, []string{"MCP-Protocol-Version", "2025-11-25"}, 400, `"code":-32601`},
		"no params":                 {`{"jsonrpc":"2.0","id":9,"method":"tools/call"}`, nil, 400, `"id":9`},
		"another content type":      {one, []string{"Content-Type", "text/plain"}, 415, `"code":-32600`},
		"a narrow Accept":           {one, []string{"Accept", "text/html"}, 400, `"code":-32600`},
		"a notification":            {`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, nil, 202, ""},
		"parameters on the type":    {one, []string{"Content-Type", "application/json; charset=utf-8"}, 200, `"id":1`},
	} {
		status, got, header := anna.post(c.body, c.header...)
		if status != c.status || !strings.Contains(got, c.want) {
			t.Errorf("%s: status %d %s", name, status, got)
		}
		if strings.Contains(got, "SECRET_MARK") {
			t.Errorf("%s: the answer repeats the body: %s", name, got)
		}
		if status >= 400 {
			var msg struct{ JSONRPC string }
			if err := json.Unmarshal([]byte(got), &msg); err != nil || msg.JSONRPC != "2.0" || header.Get("Content-Type") != "application/json" {
				t.Errorf("%s: %s %q", name, header.Get("Content-Type"), got)
			}
		}
	}
}
