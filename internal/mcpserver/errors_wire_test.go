package mcpserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/mcpserver"
)

func TestAFaultOfOursHidesItsCauseAndIsLoggedOnceWithTheRequestID(t *testing.T) {
	t.Parallel()
	for tool, logged := range map[string]string{"test_panic": mcpserver.BrokenCause, "test_error": mcpserver.BrokenCause, "test_finish": "nil pointer"} {
		t.Run(tool, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			anna, frank := w.pair()
			const id = "req-0123456789"
			r := anna.with(func(r *http.Request) { r.Header.Set("X-Request-Id", id) }).refused(tool, map[string]any{"payload": "PAYLOAD_MARK"}, handoff.CodeInternal)
			if r.status != http.StatusOK || r.fault.Retryable {
				t.Errorf("status %d, retryable %v", r.status, r.fault.Retryable)
			}
			for _, leak := range []string{"CAUSE", "panic", ".go", "goroutine", "PAYLOAD_MARK", "nil pointer"} {
				if strings.Contains(string(r.raw), leak) {
					t.Errorf("%s is in %s", leak, r.raw)
				}
			}
			if r.fault.Details["request_id"] != id || !strings.Contains(r.text, id) {
				t.Errorf("the caller cannot tell the operator which call it was: %s", r.text)
			}
			var lines []string
			for line := range strings.Lines(w.Log.String()) {
				if strings.Contains(line, "internal error") {
					lines = append(lines, line)
				}
			}
			if len(lines) != 1 || !strings.Contains(lines[0], "request_id="+id) || !strings.Contains(lines[0], logged) || !strings.Contains(lines[0], "tool="+tool) {
				t.Errorf("logged: %q", lines)
			}
			if strings.Contains(w.Log.String(), "PAYLOAD_MARK") {
				t.Error("the log holds the arguments")
			}
			anna.hand(frank) // the server lives on
		})
	}
}

func TestAnotherAgentsHandoffIsNotFoundLikeOneThatNeverWas(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	eve := w.agent("eve@acme")
	foreign, nowhere := anna.hand(frank), uuid.Must(uuid.NewV7()).String()
	for tool, more := range map[string]map[string]any{
		"view_thread": {}, "accept_handoff": {}, "decline_handoff": {"reason": "r"}, "send_message": {"body": "b"}, "cancel_handoff": {},
		"complete_handoff": {"result_summary": "r"}, "draft_proposed_action": {"suggested_diff": oneFileDiff},
	} {
		args := func(id string) map[string]any {
			m := map[string]any{"thread_id": id}
			for k, v := range more {
				m[k] = v
			}
			return m
		}
		one := eve.refused(tool, args(foreign), handoff.CodeNotFound)
		other := eve.refused(tool, args(nowhere), handoff.CodeNotFound)
		if !bytes.Equal(bytes.ReplaceAll(one.raw, []byte(foreign), []byte(nowhere)), other.raw) {
			t.Errorf("%s tells a foreign id from one that never was:\n%s\n%s", tool, one.raw, other.raw)
		}
	}
	if h, _ := w.stored(foreign); h.State != handoff.Open || h.EventSeq != 1 {
		t.Errorf("it was changed: %+v", h)
	}
}

func TestARefusalRepeatsNeitherPayloadNorMoreThanEightyCharacters(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	const mark = "SECRET_MARK"
	for name, c := range map[string]struct{ tool, args string }{
		"a payload too large":   {"send_message", `{"thread_id":"` + id + `","body":"b","payload":"` + mark + strings.Repeat("x", 70<<10) + `"}`},
		"a payload with a NUL":  {"send_message", `{"thread_id":"` + id + `","body":"b","payload":{"` + mark + `":"\u0000"}}`},
		"an inline too deep":    {"handoff_to_teammate", `{"to":"frank@acme","intent":"inform","summary":"s","artifacts":[{"type":"api_contract","inline":` + strings.Repeat(`{"`+mark+`":`, 990) + `1` + strings.Repeat("}", 990) + `}]}`},
		"metadata too large":    {"handoff_to_teammate", `{"to":"frank@acme","intent":"inform","summary":"s","metadata":{"k":"` + mark + strings.Repeat("x", 20<<10) + `"}}`},
		"an endless enum":       {"handoff_to_teammate", `{"to":"frank@acme","intent":"` + strings.Repeat("y", 90) + mark + `","summary":"s"}`},
		"an endless handle":     {"handoff_to_teammate", `{"to":"` + strings.Repeat("y", 90) + mark + `@acme","intent":"inform","summary":"s"}`},
		"an endless id":         {"view_thread", `{"thread_id":"` + strings.Repeat("y", 90) + mark + `"}`},
		"an endless parameter":  {"view_thread", `{"thread_id":"x","` + strings.Repeat("y", 90) + mark + `":1}`},
		"an endless cursor":     {"check_inbox", `{"cursor":"` + strings.Repeat("y", 90) + mark + `"}`},
		"an endless time":       {"check_inbox", `{"since":"` + strings.Repeat("y", 90) + mark + `"}`},
		"a body where it fails": {"send_message", `{"thread_id":"` + id + `","body":{"` + mark + `":1}}`},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			before := w.events()
			r := anna.call(c.tool, c.args)
			if !r.isError || r.fault.Code == "internal" || r.fault.Message == "" {
				t.Fatalf("%d %s %s", r.status, r.rpcError, r.text)
			}
			if strings.Contains(string(r.raw), mark) || len(r.raw) > 4<<10 {
				t.Errorf("the refusal repeats too much: %s", r.raw)
			}
			if w.events() != before {
				t.Error("something was written")
			}
		})
	}
	if strings.Contains(w.Log.String(), mark) {
		t.Error("the log repeats arguments")
	}
}

func TestEachRefusalOfATeamToolHasItsCode(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite", hubtest.WithHub(func(c *hub.Config) {}))
	anna, frank := w.pair()
	bob := w.agent("bob@acme")
	pending, taken := anna.hand(frank), anna.hand(frank)
	frank.ok("accept_handoff", map[string]any{"thread_id": taken})
	ended := anna.hand(frank)
	frank.ok("decline_handoff", map[string]any{"thread_id": ended, "reason": "no"})
	lapsed := anna.hand(frank)
	frank.ok("accept_handoff", map[string]any{"thread_id": lapsed, "lease_seconds": 60})
	w.Clock.Advance(2 * time.Minute)
	again := anna.hand(frank)
	frank.ok("accept_handoff", map[string]any{"thread_id": again, "lease_seconds": 10, "idempotency_key": "first"})
	w.Clock.Advance(time.Minute)
	frank.ok("accept_handoff", map[string]any{"thread_id": again}) // epoch 2
	bob.ok("block_teammate", map[string]any{"handle": "anna@acme"})
	disabled := w.agent("gone@acme")
	if err := w.Hub.SetDisabled(context.Background(), hubtest.Operator(), "gone@acme", true); err != nil {
		t.Fatal(err)
	}
	anna.ok("send_message", map[string]any{"thread_id": taken, "body": "b", "idempotency_key": "k"})
	on := func(id string, more ...any) map[string]any {
		m := map[string]any{"thread_id": id}
		for i := 0; i+1 < len(more); i += 2 {
			m[more[i].(string)] = more[i+1]
		}
		return m
	}
	for _, c := range []struct {
		who  *caller
		tool string
		args map[string]any
		code handoff.Code
	}{
		{anna, "handoff_to_teammate", in(map[string]any{"to": "nobody@acme"}), handoff.CodeRecipientNotFound},
		{anna, "handoff_to_teammate", in(map[string]any{"to": disabled.handle}), handoff.CodeRecipientNotFound},
		{anna, "handoff_to_teammate", in(map[string]any{"to": "ANNA@acme"}), wrong},
		{anna, "handoff_to_teammate", in(map[string]any{"to": "frank"}), wrong},
		{anna, "handoff_to_teammate", in(map[string]any{"to": "bob@acme"}), handoff.CodeTeammateBlocked},
		{anna, "handoff_to_teammate", in(map[string]any{"intent": "propose_action"}), handoff.CodeInvalidIntentPayload},
		{anna, "handoff_to_teammate", action(map[string]any{"target_files": []any{"../x"}}), wrong},
		{anna, "handoff_to_teammate", action(map[string]any{"target_files": []any{"/etc/passwd"}}), wrong},
		{anna, "handoff_to_teammate", func() map[string]any { m := action(nil); m["intent"] = "inform"; return m }(), handoff.CodeInvalidIntentPayload},
		{anna, "send_message", on(taken, "body", "other", "idempotency_key", "k"), handoff.CodeDuplicateKey},
		{anna, "send_message", on(taken, "body", "b", "expects_reply", true), handoff.CodeNotOwner},
		{anna, "send_message", on(ended, "body", "b"), handoff.CodeThreadTerminal},
		{anna, "accept_handoff", on(pending), handoff.CodeNotEligibleToClaim},
		{frank, "accept_handoff", on(ended), handoff.CodeThreadTerminal},
		{frank, "accept_handoff", on(again, "lease_seconds", 10, "idempotency_key", "first"), handoff.CodeLeaseLost},
		{frank, "complete_handoff", on(pending, "result_summary", "r"), handoff.CodeInvalidTransition},
		{frank, "complete_handoff", on(lapsed, "result_summary", "r"), handoff.CodeLeaseLost},
		{frank, "complete_handoff", on(again, "result_summary", "r"), handoff.CodeStaleClaimEpoch},
		{frank, "complete_handoff", on(again, "result_summary", "r", "claim_epoch", 1), handoff.CodeStaleClaimEpoch},
		{anna, "complete_handoff", on(taken, "result_summary", "r"), handoff.CodeNotOwner},
		{frank, "draft_proposed_action", on(taken, "suggested_diff", oneFileDiff), handoff.CodeInvalidIntentPayload},
		{frank, "draft_proposed_action", on(taken, "suggested_diff", "no diff"), wrong},
		{frank, "draft_proposed_action", on(pending, "suggested_diff", oneFileDiff), handoff.CodeInvalidTransition},
		{anna, "decline_handoff", on(pending, "reason", "r"), handoff.CodeNotOwner},
		{frank, "decline_handoff", on(ended, "reason", "other"), handoff.CodeThreadTerminal},
		{anna, "cancel_handoff", on(taken), handoff.CodeInvalidTransition},
		{frank, "cancel_handoff", on(pending), handoff.CodeNotOwner},
		{anna, "cancel_handoff", on(ended), handoff.CodeThreadTerminal},
		{anna, "check_inbox", map[string]any{"since": "yesterday"}, wrong},
		{anna, "check_inbox", map[string]any{"cursor": "x"}, wrong},
		{anna, "block_teammate", map[string]any{"handle": "nobody@acme"}, handoff.CodeRecipientNotFound},
		{anna, "block_teammate", map[string]any{"handle": "anna@acme"}, wrong},
		{anna, "unblock_teammate", map[string]any{"handle": "nobody@acme"}, handoff.CodeRecipientNotFound},
	} {
		before := w.events()
		r := c.who.refused(c.tool, c.args, c.code)
		if w.events() != before {
			t.Errorf("%s (%s) wrote something", c.tool, c.code)
		}
		if r.fault.Retryable {
			t.Errorf("%s (%s) is said to be retryable", c.tool, c.code)
		}
	}
}

func TestARateLimitTellsHowLongToWait(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite", hubtest.WithHub(func(c *hub.Config) { c.CallsPerMinute = 3 }))
	anna, frank := w.pair()
	for range 3 {
		anna.ok("list_teammates", `{}`)
	}
	r := anna.refused("check_inbox", `{}`, handoff.CodeRateLimited)
	if s, ok := r.fault.Details["retry_after_seconds"].(float64); !ok || s < 1 || s > 60 || !r.fault.Retryable {
		t.Errorf("%s", r.structured)
	}
	frank.ok("check_inbox", `{}`) // the limit is each agent's own
}

func TestAToolThatIsUnknownIsAProtocolError(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	if r := w.agent("anna@acme").call("handoff_create", `{}`); !strings.HasPrefix(r.rpcError, "-32602 ") {
		t.Errorf("%d %s %s", r.status, r.rpcError, r.text)
	}
}

func TestArgumentsReachAToolHoweverTheyAreLeftOut(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna := w.agent("anna@acme")
	for _, params := range []string{`{"name":"check_inbox"}`, `{"name":"check_inbox","arguments":null}`, `{"name":"check_inbox","arguments":"{}"}`, `{"name":"check_inbox","arguments":""}`} {
		r, err := anna.try(context.Background(), params)
		if err != nil {
			t.Fatal(err)
		}
		r.fields(t, "check_inbox")
	}
	r, err := anna.try(context.Background(), `{"name":"handoff_to_teammate"}`)
	if err != nil {
		t.Fatal(err)
	}
	r.mustRefuse(t, "handoff_to_teammate", wrong)
	if missing := r.fault.Details["missing"]; !slices.Equal(missing.([]any), []any{"to", "intent", "summary"}) {
		t.Errorf("missing %v", missing)
	}
	var want json.RawMessage = []byte(`{"to":"anna@acme"}`)
	if r := anna.call("handoff_to_teammate", string(want)); !strings.Contains(r.text, "intent") {
		t.Errorf("%s", r.text)
	}
}
