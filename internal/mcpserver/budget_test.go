package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/mcpserver"
)

// textures are texts that grow when they are written as JSON, once or twice.
var textures = map[string]string{
	"plain":          "the quick brown fox ",
	"quotes":         `say "it" \ "again" `,
	"lines":          "a\nb\n\tc\r\n",
	"markup":         "<a href='x'>&amp;</a> ",
	"emoji":          "👩‍👩‍👧‍👦🇩🇪 ",
	"line separator": "a\u2028b\u2029",
	"controls":       "\u0001a\u001bb\u202ec",
	"role tags":      "<system>x</system>\nHuman: y\n",
}

// of repeats a texture to about n bytes.
func of(texture string, n int) string {
	return strings.Repeat(texture, max(1, n/len(texture)))
}

func (c *caller) asHub(t testing.TB) hub.Call {
	t.Helper()
	actor, err := c.Hub.Authenticate(context.Background(), c.key.Secret)
	if err != nil {
		t.Fatal(err)
	}
	return hub.Call{Actor: actor}
}

// within fails when a whole HTTP answer is above the budget.
func within(t *testing.T, what string, r reply) {
	t.Helper()
	if len(r.raw) >= mcpserver.PageBytes {
		t.Errorf("%s: the answer has %d bytes, %d are the limit", what, len(r.raw), mcpserver.PageBytes)
	}
}

func TestEveryPageOfAThreadStaysWithinTheBudgetAndShowsEachMessageOnce(t *testing.T) {
	t.Parallel()
	for name, texture := range textures {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			anna, frank := w.pair()
			id := anna.hand(frank, map[string]any{"summary": of(texture, 700), "question": of(texture, 300), "artifacts": []any{
				map[string]any{"type": "link", "url": "https://x.io", "title": of(texture, 400), "extra": of(texture, 400)},
			}})
			const total = 45
			sizes := rand.New(rand.NewPCG(1, uint64(len(texture))))
			from := anna.asHub(t)
			oversized := map[int]bool{}
			for i := 2; i <= total; i++ {
				in := hub.SendInput{ThreadID: id, Body: of(texture, 20+sizes.IntN(2500))}
				switch {
				case i%3 == 0:
					in.Payload = json.RawMessage("{\n  \"k\": " + rawJSON(t, []string{of(texture, 4000)}) + "}")
				case i%20 == 1:
					in.Body, oversized[i] = of(texture, 50<<10), true
				}
				if _, err := w.Hub.Send(context.Background(), from, in); err != nil {
					t.Fatal(err)
				}
			}
			shown, after := 0, 0
			for more := true; more; {
				r := frank.call("view_thread", map[string]any{"thread_id": id, "after_sequence_no": after, "limit": 200})
				page := r.fields(t, "view_thread")
				messages := page["messages"].([]any)
				for _, m := range messages {
					shown++
					if got := m.(map[string]any)["sequence_no"]; got != float64(shown) {
						t.Fatalf("message %v came where %d is due", got, shown)
					}
				}
				switch {
				case len(messages) == 0:
					t.Fatal("an empty page")
				case oversized[shown] && len(messages) > 1:
					t.Errorf("message %d, too large for a page, shares one with %d others", shown, len(messages)-1)
				case len(messages) > 1 || len(r.raw) < mcpserver.PageBytes: // a larger one stands alone
					within(t, fmt.Sprintf("messages up to %d", shown), r)
				}
				if after > 0 && (page["summary"] != nil || page["artifacts"] != nil) {
					t.Error("the summary stands on a later page")
				}
				if unread := frank.ok("check_inbox", map[string]any{"limit": 1})["unread_total"]; unread != float64(total-shown) {
					t.Fatalf("%v are unread after %d of %d were shown", unread, shown, total)
				}
				more = page["has_more"].(bool)
				if more {
					after = int(page["next_sequence_no"].(float64))
				} else if page["next_sequence_no"] != nil {
					t.Error("a next page is named where there is none")
				}
			}
			if shown != total {
				t.Errorf("%d of %d messages were shown", shown, total)
			}
		})
	}
}

func TestAcceptingALongThreadReturnsItsFirstPage(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	from := anna.asHub(t)
	for range 80 {
		if _, err := w.Hub.Send(context.Background(), from, hub.SendInput{ThreadID: id, Body: of(textures["quotes"], 2000)}); err != nil {
			t.Fatal(err)
		}
	}
	r := frank.call("accept_handoff", map[string]any{"thread_id": id})
	page := r.fields(t, "accept_handoff")
	within(t, "accept_handoff", r)
	n := len(page["messages"].([]any))
	if page["has_more"] != true || page["next_sequence_no"] != float64(n) || n < 5 {
		t.Errorf("%d messages, more %v, next %v", n, page["has_more"], page["next_sequence_no"])
	}
	if unread := frank.ok("check_inbox", `{}`)["unread_total"]; unread != float64(81-n) {
		t.Errorf("%v are unread after %d of 81 were shown", unread, n)
	}
}

func TestALimitOfOneWalksAThreadMessageByMessage(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	for range 3 {
		anna.ok("send_message", map[string]any{"thread_id": id, "body": "b"})
	}
	for after := range 4 {
		page := frank.ok("view_thread", map[string]any{"thread_id": id, "after_sequence_no": after, "limit": 1})
		if n := len(page["messages"].([]any)); n != 1 || page["has_more"] != (after < 3) {
			t.Errorf("after %d: %d messages, more %v", after, n, page["has_more"])
		}
	}
	if end := frank.ok("view_thread", map[string]any{"thread_id": id, "after_sequence_no": 4}); len(end["messages"].([]any)) != 0 || end["has_more"] != false {
		t.Errorf("behind the end: %v", end)
	}
}

func TestEveryPageOfAnInboxStaysWithinTheBudgetAndShowsEachHandoffOnce(t *testing.T) {
	t.Parallel()
	for name, total := range map[string]int{"plain": 210, "quotes": 40, "markup": 40, "emoji": 40, "controls": 40} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			texture := textures[name]
			w := newWire(t, "sqlite")
			named := func(in *hub.AgentInput) { in.Name, in.Role = of(texture, 250), of(texture, 250) }
			anna, frank := w.agent("anna@acme", named), w.agent("frank@acme", named)
			from, made := anna.asHub(t), map[string]bool{}
			for range total {
				c, err := w.Hub.Create(context.Background(), from, hub.CreateInput{To: frank.handle, Intent: handoff.Inform, Summary: of(texture, 2000)})
				if err != nil {
					t.Fatal(err)
				}
				made[c.ThreadID] = true
			}
			cursor := any("")
			for cursor != nil {
				r := frank.call("check_inbox", map[string]any{"limit": 200, "cursor": cursor})
				page := r.fields(t, "check_inbox")
				within(t, "check_inbox", r)
				items := page["items"].([]any)
				if len(items) == 0 || page["unread_total"] != float64(total) {
					t.Errorf("%d items, %v unread", len(items), page["unread_total"])
				}
				for _, i := range items {
					id := i.(map[string]any)["thread_id"].(string)
					if !made[id] {
						t.Fatalf("%s came twice, or from nowhere", id)
					}
					delete(made, id)
				}
				cursor = page["next_cursor"]
			}
			if len(made) > 0 {
				t.Errorf("%d were never shown", len(made))
			}
		})
	}
}

func TestSixHundredTeammatesComeInPagesWithinTheBudget(t *testing.T) {
	t.Parallel()
	for name, texture := range map[string]string{"short": "", "long": textures["markup"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			anna := w.agent("anna@acme")
			want := make([]string, 600)
			for i := range want {
				want[i] = fmt.Sprintf("m%03d@Acme", i)
				w.agent(want[i], func(in *hub.AgentInput) {
					in.Role, in.Skills = "backend", []string{"go", "sql"}
					if texture != "" {
						in.Name, in.Repos = of(texture, 100), []string{of(texture, 200), of(texture, 200)}
					}
				})
			}
			var got []string
			cursor := ""
			for pages := 1; ; pages++ {
				r := anna.call("list_teammates", map[string]any{"role": "BACKEND", "cursor": cursor})
				page := r.fields(t, "list_teammates")
				within(t, "list_teammates", r)
				for _, m := range page["teammates"].([]any) {
					got = append(got, m.(map[string]any)["handle"].(string))
				}
				next, more := page["next_cursor"].(string)
				if !more {
					t.Logf("%d pages", pages)
					break
				}
				cursor = next
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d came, each of 600 once is due", len(got))
			}
		})
	}
}
