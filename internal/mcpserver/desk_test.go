package mcpserver_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
)

// aDesk is a hub with some businesses, whose mail ends as the slug says, and an assistant at the desk.
func aDesk(t *testing.T, kind string) (*wire, *caller, *hubtest.Postbox) {
	t.Helper()
	w := newWire(t, kind, hubtest.WithMail())
	routing := map[string]string{
		"sent":   `{"preferred_channel":"email","email":"a@b.example"}`,
		"form":   `{"preferred_channel":"form","form_url":"https://shop.example/contact"}`,
		"nobody": `{}`,
		"shape":  `{"preferred":"sms","email_to":"a@b.example"}`,
		"text":   `{"preferred":"sms","sms_to":"+4930901820"}`,
	}
	for _, slug := range []string{"noid", "refused", "failed", "unknown", "capped"} {
		routing[slug] = strings.Replace(routing["sent"], "a@", slug+"@", 1)
	}
	for slug, r := range routing {
		in := hub.BusinessInput{Slug: slug, Routing: json.RawMessage(r)}
		if slug == "capped" {
			one := 1
			in.DailyMessages = &one
		}
		if _, err := w.Hub.AddBusiness(context.Background(), hubtest.Operator(), in); err != nil {
			t.Fatal(err)
		}
	}
	box := w.Post(w.Hub, func(n handoff.Notification) handoff.Outcome {
		switch slug, _, _ := strings.Cut(n.To, "@"); slug {
		case "noid":
			return handoff.Outcome{Kind: handoff.OutcomeSent}
		case "refused":
			return handoff.Outcome{Kind: handoff.OutcomeRefused, Reason: "provider_550"}
		case "failed":
			return handoff.Outcome{Kind: handoff.OutcomeFailed, Reason: "provider_451"}
		case "unknown":
			return handoff.Outcome{Kind: handoff.OutcomeUnknown, Reason: "provider_no_answer"}
		}
		return handoff.Outcome{Kind: handoff.OutcomeSent, ProviderID: n.ID + "@hub.example"}
	})
	bot := w.agent("bot@shop")
	bot.path = "/mcp/desk"
	return w, bot, box
}

// fieldsOf are the names of an answer but those that all have.
func fieldsOf(m map[string]any) []string {
	names := slices.Sorted(maps.Keys(m))
	return slices.DeleteFunc(names, func(n string) bool { return n == "mode" || n == "handoff_id" })
}

// The whole table of what initiate_handoff can answer: each validates against the closed schema that is
// published (ok checks that), has the fields that the table says and no others, and a replay says the same.
func TestEveryAnswerOfInitiateHandoffIsOneOfTheTable(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, bot, box := aDesk(t, kind)
			for slug, want := range map[string]map[string]any{
				"sent":    {"delivered_via": "email", "ticket_id": ""},
				"noid":    {"delivered_via": "email", "ticket_id": ""},
				"form":    {"delivered": false, "reason": "form_routing_configured", "channel": "form", "form_url": "https://shop.example/contact"},
				"nobody":  {"delivered": false, "reason": "no_recipient_configured"},
				"shape":   {"delivered": false, "reason": "routing_shape_mismatch", "channel": "sms"},
				"text":    {"delivered": false, "reason": "sms_consent_missing", "channel": "sms"},
				"refused": {"delivered": false, "reason": "provider_550"},
				"failed":  {"status": "pending"},
				"unknown": {"status": "pending"},
			} {
				args := map[string]any{"slug": slug, "mode": "human", "idempotency_key": "key of " + slug, "reason": "r", "urgency": "high"}
				first := bot.ok("initiate_handoff", args)
				sentBefore := len(box.All())
				again := bot.ok("initiate_handoff", map[string]any{"slug": "nowhere", "mode": "agent", "idempotency_key": "key of " + slug, "purpose": "other"})
				if got := fieldsOf(first); !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
					t.Errorf("%s: it has the fields %v", slug, got)
				}
				for name, v := range want {
					if v != "" && first[name] != v {
						t.Errorf("%s: %s is %v", slug, name, first[name])
					}
				}
				if slug == "noid" && first["ticket_id"] != first["handoff_id"] {
					t.Errorf("%s: the ticket is %v", slug, first["ticket_id"])
				}
				if again["idempotent_replay"] != true || len(box.All()) != sentBefore {
					t.Errorf("%s: the replay is %v, after %d mails %d", slug, again, sentBefore, len(box.All()))
				}
				delete(again, "idempotent_replay")
				if !maps.Equal(again, first) {
					t.Errorf("%s: first %v, then %v", slug, first, again)
				}
			}
			capped := func(key string) map[string]any {
				return bot.ok("initiate_handoff", map[string]any{"slug": "capped", "mode": "human", "idempotency_key": key})
			}
			if out := capped("1"); out["delivered_via"] != "email" {
				t.Errorf("the first of a day: %v", out)
			}
			if out := capped("2"); out["reason"] != "spend_cap_reached" || out["channel"] != "email" {
				t.Errorf("the second of a day: %v", out)
			}

			agent := map[string]any{"slug": "sent", "mode": "agent", "idempotency_key": "on", "purpose": "p"}
			made := bot.ok("initiate_handoff", agent)
			if got := fieldsOf(made); !slices.Equal(got, []string{"continuation_url", "expires_at", "handshake_token"}) {
				t.Errorf("agent mode has the fields %v", got)
			}
			again := bot.ok("initiate_handoff", agent)
			if got := fieldsOf(again); !slices.Equal(got, []string{"continuation_url", "expires_at", "handshake_token", "idempotent_replay"}) || again["continuation_url"] != made["continuation_url"] {
				t.Errorf("a replay of agent mode: %v", again)
			}
			w.Clock.Advance(time.Hour)
			late := bot.ok("initiate_handoff", agent)
			if late["continuation_expired"] != true || late["continuation_url"] != nil || late["expires_at"] != made["expires_at"] {
				t.Errorf("after an hour: %v", late)
			}
			// What a person did is not shown here: the notification is what it was.
			status := bot.ok("get_handoff_status", map[string]any{"handoff_id": made["handoff_id"]})
			if status["status"] != "EXPIRED" || status["mode"] != "agent" {
				t.Errorf("its status: %v", status)
			}
		})
	}
}

// The schemas are public since before this hub: its names, bounds and closedness are not ours to change.
func TestTheSchemasOfInitiateHandoffAreThePublishedOnes(t *testing.T) {
	t.Parallel()
	tools := mcpserver.Definitions("desk")
	d := tools[slices.IndexFunc(tools, func(d *mcp.Tool) bool { return d.Name == "initiate_handoff" })]
	var in, out struct {
		Properties           map[string]map[string]any
		Required             []string
		AdditionalProperties *bool
	}
	for _, schema := range []struct{ from, to any }{{d.InputSchema, &in}, {d.OutputSchema, &out}} {
		if err := json.Unmarshal([]byte(rawJSON(t, schema.from)), schema.to); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(out.Properties)), []string{
		"channel", "continuation_expired", "continuation_url", "delivered", "delivered_via", "expires_at", "form_url", "handoff_id", "handshake_token", "idempotent_replay", "mode", "reason", "status", "ticket_id",
	}) || !slices.Equal(out.Required, []string{"mode", "handoff_id"}) || out.AdditionalProperties == nil || *out.AdditionalProperties {
		t.Errorf("the output schema: %+v", out)
	}
	for _, name := range []string{"channel", "delivered_via", "form_url", "reason", "ticket_id"} {
		if out.Properties[name]["anyOf"] == nil {
			t.Errorf("%s cannot be null", name)
		}
	}
	if !slices.Equal(slices.Sorted(maps.Keys(in.Properties)), []string{
		"agent_id", "contact_email", "contact_name", "contact_phone", "idempotency_key", "message", "mode", "purpose", "reason", "reservation_id", "slug", "urgency",
	}) || !slices.Equal(in.Required, []string{"slug", "mode", "idempotency_key"}) {
		t.Errorf("the input schema: %+v", in)
	}
	for name, bounds := range map[string]map[string]any{
		"reason": {"maxLength": 800.0}, "message": {"minLength": 1.0, "maxLength": 800.0}, "contact_name": {"maxLength": 120.0}, "contact_phone": {"maxLength": 40.0},
		"contact_email": {"format": "email", "pattern": `^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`},
	} {
		for bound, want := range bounds {
			if got := in.Properties[name][bound]; got != want {
				t.Errorf("%s: %s is %v", name, bound, got)
			}
		}
	}
}

// A refusal has no structured content, which the closed schema would not admit; its text has the code.
func TestARefusedHandoverSaysWhyInItsText(t *testing.T) {
	t.Parallel()
	w, bot, _ := aDesk(t, "sqlite")
	before := w.events()
	for want, args := range map[string]map[string]any{
		"code: business_not_found\nslug: ":                              {"slug": "nowhere", "mode": "human", "idempotency_key": "k"},
		"code: invalid_params\nmessage: ":                               {"slug": "sent", "mode": "human", "idempotency_key": "k", "reason": "a", "message": "b"},
		"code: content_too_large\nreason: ":                             {"slug": "sent", "mode": "human", "idempotency_key": "k", "reason": strings.Repeat("ä", 801)},
		"code: invalid_params\nbody: ":                                  {"slug": "sent", "mode": "human", "idempotency_key": "k", "body": "what to send"},
		"code: invalid_params\nmode: ":                                  {"slug": "sent", "mode": "sms", "idempotency_key": "k"},
		"code: invalid_params\nidempotency_key: ":                       {"slug": "sent", "mode": "human"},
		"code: invalid_params\ncontact_email: \"carl@b..example\" came": {"slug": "sent", "mode": "human", "idempotency_key": "k", "contact_email": "carl@b..example"},
		"code: content_too_large\nidempotency_key: ":                    {"slug": "sent", "mode": "human", "idempotency_key": strings.Repeat("k", 256)},
	} {
		r := bot.call("initiate_handoff", args)
		if !r.isError || len(r.structured) != 0 || !strings.HasPrefix(r.text, want) {
			t.Errorf("%v: %s", args, r.text)
		}
	}
	if after := w.events(); after != before {
		t.Errorf("%d events were written", after-before)
	}
}

// A whole conversation over the wire, then the same handoff at the other doors: what is foreign to its own
// is absent there.
func TestAConversationWithAPersonIsReadAtEveryDoor(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, kind, hubtest.WithMail())
			w.Shop()
			box := w.Post(w.Hub, nil)
			bot, eve := w.agent("bot@shop"), w.agent("eve@shop")
			bot.path, eve.path = "/mcp", "/mcp"
			made := bot.ok("initiate_handoff", map[string]any{"slug": "shop", "mode": "human", "idempotency_key": "k", "reason": "Wants a call", "contact_name": "Carl"})
			id := made["handoff_id"]
			known := bot.ok("get_handoff_status", map[string]any{"handoff_id": id})["updated_at"]
			w.Clock.Advance(time.Second)
			waiting := make(chan map[string]any)
			go func() {
				waiting <- bot.ok("get_handoff_status", map[string]any{"handoff_id": id, "known_updated_at": known, "wait_seconds": 30})
			}()
			if err := w.Hub.PersonDoes(t.Context(), hub.PersonInput{Token: box.Token(), Act: hub.PersonAnswers, Text: "I call him."}); err != nil {
				t.Fatal(err)
			}
			status := <-waiting
			messages, _ := status["messages"].([]any)
			if status["status"] != "CLAIMED" || len(messages) != 1 {
				t.Fatalf("the agent that waited sees %v", status)
			}
			first := messages[0].(map[string]any)
			from := first["provenance"].(map[string]any)
			if first["from"] != "person:shop" || from["origin"] != "person" || from["content_trust"] != "untrusted" || !strings.Contains(first["body"].(string), "I call him.") {
				t.Errorf("the answer is %v", first)
			}
			replied := bot.ok("reply_to_person", map[string]any{"handoff_id": id, "body": "Thank you."})
			if replied["delivered_via"] != "email" || len(box.All()) != 2 {
				t.Errorf("the reply is %v", replied)
			}
			if err := w.Hub.PersonDoes(t.Context(), hub.PersonInput{Token: box.Token(), Act: hub.PersonCompletes, Text: "Called."}); err != nil {
				t.Fatal(err)
			}
			thread := bot.ok("view_thread", map[string]any{"thread_id": id})
			if thread["door"] != "desk" || thread["status"] != "completed" || len(thread["messages"].([]any)) != 3 || !strings.Contains(thread["result_summary"].(string), "Called.") {
				t.Errorf("view_thread shows %v", thread)
			}
			got := bot.ok("handoff_get", map[string]any{"project_root": "/srv/shop", "agent_id": "bot@shop", "handoff_id": id})
			for _, foreign := range []string{"workspace_id", "target", "visibility", "priority", "payload", "acceptance_criteria", "lease_expires_at", "verify_by"} {
				if v, there := got[foreign]; there {
					t.Errorf("handoff_get shows %s: %v", foreign, v)
				}
			}
			if got["status"] != "COMPLETED" || got["claimed_by"] != "person:shop" {
				t.Errorf("handoff_get shows %v", got)
			}
			for tool, args := range map[string]map[string]any{
				"view_thread": {"thread_id": id}, "get_handoff_status": {"handoff_id": id}, "reply_to_person": {"handoff_id": id, "body": "b"},
				"handoff_get": {"project_root": "/srv/shop", "agent_id": "eve@shop", "handoff_id": id},
			} {
				if r := eve.call(tool, args); r.fault.Code != "not_found" {
					t.Errorf("%s shows it to a stranger: %s", tool, r.text)
				}
			}
			inbox := bot.ok("check_inbox", map[string]any{"role": "sender", "status": []any{"completed"}})
			if items := inbox["items"].([]any); len(items) != 1 || items[0].(map[string]any)["recipient"].(map[string]any)["handle"] != "person:shop" {
				t.Errorf("its inbox: %v", inbox)
			}
		})
	}
}
