package mcpserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
)

const (
	handoffs     = "handclasp://handoffs/"
	referenceDoc = "handclasp://reference/tool-docs/team"
)

// read gets one resource with the official client.
func (c *caller) read(cs *mcp.ClientSession, uri string) *mcp.ResourceContents {
	c.t.Helper()
	res, err := cs.ReadResource(c.t.(*testing.T).Context(), &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		c.t.Fatalf("%s: %v", uri, err)
	}
	if len(res.Contents) != 1 || res.Contents[0].URI != uri {
		c.t.Fatalf("%s: %+v", uri, res)
	}
	return res.Contents[0]
}

func TestAHandoffIsAResourceThatReadsLikeViewThreadAndLeavesNoTrace(t *testing.T) {
	t.Parallel()
	onEachWay(t, []string{"/mcp/team", "/mcp"}, func(t *testing.T, w *wire, version, path string) {
		anna, frank := w.pair()
		id := anna.hand(frank, map[string]any{"metadata": json.RawMessage(`{"n":12345678901234567890}`)})
		anna.ok("send_message", map[string]any{"thread_id": id, "body": "second"})
		frank.path, frank.t = path, t
		cs := frank.session(version)
		got := frank.read(cs, handoffs+id)
		if got.MIMEType != "application/json" || !strings.Contains(got.Text, `"metadata":{"n":12345678901234567890}`) {
			t.Errorf("%s %s", got.MIMEType, got.Text)
		}
		if h, _ := w.stored(id); !h.FetchedAt.IsZero() || h.EventSeq != 2 {
			t.Errorf("reading left a trace: fetched %v, event %d", h.FetchedAt, h.EventSeq)
		}
		if unread := frank.ok("check_inbox", `{}`)["unread_total"]; unread != 2.0 {
			t.Errorf("%v are unread after reading a resource", unread)
		}
		var page map[string]any
		if err := json.Unmarshal([]byte(got.Text), &page); err != nil {
			t.Fatal(err)
		}
		view := frank.ok("view_thread", map[string]any{"thread_id": id})
		missing := slices.DeleteFunc(slices.Sorted(maps.Keys(view)), func(k string) bool { _, ok := page[k]; return ok })
		if !slices.Equal(missing, []string{"recipient_fetched_at"}) || len(page["messages"].([]any)) != 2 || !strings.HasPrefix(page["summary"].(string), "«untrusted ") {
			t.Errorf("missing %v in %s", missing, got.Text)
		}
		if doc := frank.read(cs, referenceDoc); doc.MIMEType != "text/markdown" || !strings.HasPrefix(doc.Text, "# The team toolset\n") {
			t.Errorf("%s %.80s", doc.MIMEType, doc.Text)
		}
	})
}

func TestResourcesListNamesWhatWaitsForItsCallerAndNobodyElse(t *testing.T) {
	t.Parallel()
	onEachWay(t, []string{"/mcp/team"}, func(t *testing.T, w *wire, version, _ string) {
		anna, frank := w.pair()
		eve := w.agent("eve@acme")
		for _, c := range []*caller{anna, frank, eve} {
			c.t = t
		}
		var ids []string
		for range mcpserver.ListedHandoffs + 2 {
			ids = append(ids, anna.hand(frank, map[string]any{"summary": "SUMMARY_MARK"}))
		}
		listed := func(c *caller) []*mcp.Resource {
			res, err := c.session(version).ListResources(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if len(res.Resources) == 0 || res.Resources[0].URI != referenceDoc || res.NextCursor != "" {
				t.Fatalf("%+v", res)
			}
			return res.Resources[1:]
		}
		mine := listed(frank)
		if len(mine) != mcpserver.ListedHandoffs {
			t.Fatalf("%d are listed", len(mine))
		}
		for i, r := range mine {
			id := ids[len(ids)-1-i]
			if r.URI != handoffs+id || r.Title != "inform from anna@acme, pending, 1 unread" || r.Annotations.LastModified == "" || r.Description != "" {
				t.Errorf("%+v", r)
			}
		}
		if h, _ := w.stored(ids[len(ids)-1]); !h.FetchedAt.IsZero() {
			t.Error("listing counts as fetching")
		}
		if n := len(listed(eve)) + len(listed(anna)); n != 0 {
			t.Errorf("%d are listed for others", n)
		}
		frank.ok("send_message", map[string]any{"thread_id": ids[0], "body": "b"})
		if hers := listed(anna); len(hers) != 1 || hers[0].Title != "inform to frank@acme, pending, 1 unread" {
			t.Errorf("the sender's news: %+v", hers)
		}
		templates, err := frank.session(version).ListResourceTemplates(t.Context(), nil)
		if err != nil || len(templates.ResourceTemplates) != 2 || templates.ResourceTemplates[0].URITemplate != handoffs+"{id}" {
			t.Errorf("%+v %v", templates, err)
		}
	})
}

func TestAResourceOfOthersIsNotFoundLikeOneThatNeverWas(t *testing.T) {
	t.Parallel()
	for version, code := range map[string]int{"2025-06-18": -32002, "2025-11-25": -32002, "2026-07-28": -32602} {
		for _, kind := range hubtest.Kinds() {
			t.Run(kind+" "+version, func(t *testing.T) {
				t.Parallel()
				w := newWire(t, kind)
				anna, frank := w.pair()
				eve := w.agent("eve@acme")
				eve.t = t
				foreign, nowhere := anna.hand(frank), uuid.Must(uuid.NewV7()).String()
				for _, page := range []string{"", "?after_sequence_no=1"} {
					one := eve.ask(version, "resources/read", `{"uri":"`+handoffs+foreign+page+`"}`)
					other := eve.ask(version, "resources/read", `{"uri":"`+handoffs+nowhere+page+`"}`)
					if one.Error == nil || one.Error.Code != code || one.Error.Data["uri"] != handoffs+foreign+page || one.Error.Data["code"] != "not_found" {
						t.Errorf("%s", one.raw)
					}
					if strings.ReplaceAll(one.raw, foreign, nowhere) != other.raw {
						t.Errorf("a foreign id differs from one that never was:\n%s\n%s", one.raw, other.raw)
					}
				}
				if _, got, _ := eve.post(`{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"` + handoffs + foreign + `"}}`); !strings.Contains(got, `"code":-32002`) {
					t.Errorf("a client that names no revision is an old one: %s", got)
				}
				_, err := eve.session(version).ReadResource(t.Context(), &mcp.ReadResourceParams{URI: handoffs + foreign})
				var rpc *jsonrpc.Error
				if !errors.As(err, &rpc) || rpc.Code != int64(code) {
					t.Errorf("the official client got %v", err)
				}
			})
		}
	}
}

func TestAURIThatIsNotOursIsRefusedWithoutRepeatingIt(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	const mark = "SECRET_MARK"
	for _, uri := range []string{
		"", "x", "file:///etc/passwd", "handclasp://handoffs", handoffs, handoffs + id + "/", handoffs + id + "/messages", handoffs + "../" + id, handoffs + id + "?x=1",
		handoffs + id + "?after_sequence_no=", handoffs + id + "#a", "HANDCLASP://handoffs/" + id, "handclasp://reference/tool-docs/none", referenceDoc + "?",
		handoffs + "{id}", handoffs + "%00", handoffs + strings.Repeat("%61", 40), `a"b\c` + "\n\t\u0007\u2028\U0001F600", strings.Repeat("y", 90) + mark, strings.Repeat(handoffs, 30_000) + mark,
	} {
		a := anna.ask("2025-11-25", "resources/read", `{"uri":`+rawJSON(t, uriText(uri))+`}`)
		if a.Error == nil || a.Error.Code != -32002 || strings.Contains(a.raw, mark) || len(a.raw) > 2<<10 {
			t.Errorf("%.60q: %.400s", uri, a.raw)
		}
	}
	for after, want := range map[string]string{"x": `"x" came`, "-1": "-1", "99999999999": "came", "1.5": "came"} {
		a := anna.ask("2025-11-25", "resources/read", `{"uri":"`+handoffs+id+"?after_sequence_no="+after+`"}`)
		if a.Error == nil || a.Error.Code != -32602 || !strings.Contains(a.Error.Message, "after_sequence_no") || !strings.Contains(a.Error.Message, want) || a.Error.Data["code"] != "invalid_params" {
			t.Errorf("%s: %s", after, a.raw)
		}
	}
}

// uriText is marshalled, where a plain string would be taken as JSON.
type uriText string

func TestTheNextPagesOfALongHandoffShowEachMessageOnce(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	from := anna.asHub(t)
	const total = 80
	for i := range total - 1 {
		if _, err := w.Hub.Send(context.Background(), from, hub.SendInput{ThreadID: id, Body: of(textures[[]string{"quotes", "markup", "emoji"}[i%3]], 2000)}); err != nil {
			t.Fatal(err)
		}
	}
	cs := frank.session("")
	shown := 0
	for uri := handoffs + id; uri != ""; {
		got := frank.read(cs, uri)
		if len(got.Text) > mcpserver.PageBytes {
			t.Errorf("a page has %d bytes", len(got.Text))
		}
		var page struct {
			Messages []struct {
				SequenceNo int `json:"sequence_no"`
			}
			HasMore  bool   `json:"has_more"`
			NextPage string `json:"next_page"`
			Summary  *string
		}
		if err := json.Unmarshal([]byte(got.Text), &page); err != nil {
			t.Fatal(err)
		}
		if page.HasMore != (page.NextPage != "") || (page.Summary != nil) != (shown == 0) {
			t.Fatalf("has_more %v, next_page %q, a summary %v after %d", page.HasMore, page.NextPage, page.Summary != nil, shown)
		}
		for _, m := range page.Messages {
			if shown++; m.SequenceNo != shown {
				t.Fatalf("message %d came where %d is due", m.SequenceNo, shown)
			}
		}
		uri = page.NextPage
	}
	if unread := frank.ok("check_inbox", `{}`)["unread_total"]; shown != total || unread != float64(total) {
		t.Errorf("%d of %d were shown, %v are unread", shown, total, unread)
	}
}
