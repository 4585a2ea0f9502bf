package mcpserver_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// limit is one bound of the contract (errors, "Limits") on an argument of a team tool. make gives
// the arguments with the bounded thing at size n; the fixture's ids are filled in.
type limit struct {
	name, tool string
	most       int
	over       handoff.Code
	make       func(l *limitWorld, n int) map[string]any
}

type limitWorld struct {
	*wire
	anna, frank *caller
}

func text(n int) string { return strings.Repeat("x", n) }

func repeat(n int, v any) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// nested is JSON objects within each other, n levels deep.
func nested(n int) map[string]any {
	m := map[string]any{}
	for range n - 1 {
		m = map[string]any{"k": m}
	}
	return m
}

// in is the arguments of a handoff from anna to frank with more of them.
func in(more map[string]any) map[string]any {
	m := map[string]any{"to": "frank@acme", "intent": "inform", "summary": "s"}
	for k, v := range more {
		m[k] = v
	}
	return m
}

func action(more map[string]any) map[string]any {
	a := map[string]any{"description": "d", "target_files": []any{"main.go"}, "rationale": "r"}
	for k, v := range more {
		a[k] = v
	}
	return in(map[string]any{"intent": "propose_action", "proposed_action": a})
}

func artifact(kind string, more map[string]any) map[string]any {
	a := map[string]any{"type": kind}
	for k, v := range more {
		a[k] = v
	}
	return in(map[string]any{"artifacts": []any{a}})
}

const (
	kib   = 1 << 10
	large = handoff.CodeContentTooLarge
	wrong = handoff.CodeInvalidParams
)

var link = map[string]any{"type": "link", "url": "https://example.com/x"}

// sent is a handoff from anna to frank, accepted if need be, for a limit on a later verb.
func (l *limitWorld) sent(accepted bool, more ...map[string]any) string {
	id := l.anna.hand(l.frank, more...)
	if accepted {
		l.frank.ok("accept_handoff", map[string]any{"thread_id": id})
	}
	return id
}

func (l *limitWorld) proposal() string { return l.sent(true, action(nil)) }

// create is a limit on handoff_to_teammate.
func create(name string, most int, over handoff.Code, args func(n int) map[string]any) limit {
	return limit{name, "handoff_to_teammate", most, over, func(_ *limitWorld, n int) map[string]any { return args(n) }}
}

var limits = []limit{
	create("summary", 64*kib, large, func(n int) map[string]any { return in(map[string]any{"summary": text(n)}) }),
	create("question", 8*kib, large, func(n int) map[string]any { return in(map[string]any{"question": text(n)}) }),
	create("description", 8*kib, large, func(n int) map[string]any { return action(map[string]any{"description": text(n)}) }),
	create("rationale", 8*kib, large, func(n int) map[string]any { return action(map[string]any{"rationale": text(n)}) }),
	create("suggested_diff", 512*kib, large, func(n int) map[string]any { return action(map[string]any{"suggested_diff": text(n)}) }),
	create("target_files", 100, large, func(n int) map[string]any { return action(map[string]any{"target_files": repeat(n, "a.go")}) }),
	create("target file", 1024, large, func(n int) map[string]any { return action(map[string]any{"target_files": []any{text(n)}}) }),
	create("artifacts", 50, large, func(n int) map[string]any { return in(map[string]any{"artifacts": repeat(n, link)}) }),
	create("artifact path", 1024, large, func(n int) map[string]any { return artifact("file_ref", map[string]any{"path": text(n)}) }),
	create("artifact diff", 512*kib, large, func(n int) map[string]any { return artifact("file_diff", map[string]any{"path": "a", "diff": text(n)}) }),
	create("artifact git_sha", 4*kib, large, func(n int) map[string]any {
		return artifact("file_ref", map[string]any{"path": "a", "git_sha": text(n)})
	}),
	create("artifact command", 8*kib, large, func(n int) map[string]any { return artifact("test_command", map[string]any{"command": text(n)}) }),
	create("artifact cwd", 1024, large, func(n int) map[string]any {
		return artifact("test_command", map[string]any{"command": "a", "cwd": text(n)})
	}),
	create("artifact title", 4*kib, large, func(n int) map[string]any {
		return artifact("link", map[string]any{"url": "https://x.io", "title": text(n)})
	}),
	create("artifact url", 8*kib, large, func(n int) map[string]any {
		return artifact("link", map[string]any{"url": "https://x.io/" + text(n-len("https://x.io/"))})
	}),
	create("artifact inline", 512*kib, large, func(n int) map[string]any { return artifact("api_contract", map[string]any{"inline": text(n - 2)}) }),
	create("artifact extra fields", 16*kib, large, func(n int) map[string]any {
		return artifact("link", map[string]any{"url": "https://x.io", "k": text(n - 3)})
	}),
	create("metadata", 16*kib, large, func(n int) map[string]any {
		return in(map[string]any{"metadata": map[string]any{"k": text(n - len(`{"k":""}`))}})
	}),
	create("metadata depth", 16, large, func(n int) map[string]any { return in(map[string]any{"metadata": nested(n)}) }),
	create("idempotency_key", 255, large, func(n int) map[string]any { return in(map[string]any{"idempotency_key": text(n)}) }),
	create("metadata key", 255, large, func(n int) map[string]any {
		return in(map[string]any{"metadata": map[string]any{"client_idempotency_key": text(n)}})
	}),
	create("expires_in_seconds", 31_536_000, wrong, func(n int) map[string]any { return in(map[string]any{"expires_in_seconds": n}) }),
	create("least expires_in_seconds", -60, wrong, func(n int) map[string]any { return in(map[string]any{"expires_in_seconds": -n}) }),

	{"body", "send_message", 64 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "body": text(n)}
	}},
	{"payload", "send_message", 64 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "body": "b", "payload": text(n - 2)}
	}},
	{"payload depth", "send_message", 128, wrong, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "body": "b", "payload": nested(n)}
	}},
	{"message artifacts", "send_message", 50, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "body": "b", "artifacts": repeat(n, link)}
	}},
	{"messages of a thread", "send_message", 3, large, func(l *limitWorld, n int) map[string]any {
		id := l.sent(false)
		for range n - 2 {
			l.anna.ok("send_message", map[string]any{"thread_id": id, "body": "b"})
		}
		return map[string]any{"thread_id": id, "body": "the last"}
	}},
	{"decline reason", "decline_handoff", 4 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "reason": text(n)}
	}},
	{"result_summary", "complete_handoff", 64 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(true), "result_summary": text(n)}
	}},
	{"result artifacts", "complete_handoff", 50, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(true), "result_summary": "r", "artifacts": repeat(n, link)}
	}},
	{"cancel reason", "cancel_handoff", 4 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.frank.hand(l.anna), "reason": text(n)}
	}},
	{"draft diff", "draft_proposed_action", 512 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.proposal(), "suggested_diff": oneFileDiff + text(n-len(oneFileDiff))}
	}},
	{"draft description", "draft_proposed_action", 8 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.proposal(), "suggested_diff": oneFileDiff, "description": text(n)}
	}},
	{"draft rationale", "draft_proposed_action", 8 * kib, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.proposal(), "suggested_diff": oneFileDiff, "rationale": text(n)}
	}},
	{"draft target_files", "draft_proposed_action", 100, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.proposal(), "suggested_diff": oneFileDiff, "target_files": repeat(n, "main.go")}
	}},
	{"most lease_seconds", "accept_handoff", 86400, wrong, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "lease_seconds": n}
	}},
	{"least lease_seconds", "accept_handoff", -10, wrong, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "lease_seconds": -n}
	}},
	{"session_id", "accept_handoff", 256, large, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "session_id": text(n)}
	}},
	{"page of messages", "view_thread", 200, wrong, func(l *limitWorld, n int) map[string]any {
		return map[string]any{"thread_id": l.sent(false), "limit": n}
	}},
	{"block reason", "block_teammate", 4 * kib, large, func(_ *limitWorld, n int) map[string]any {
		return map[string]any{"handle": "anna@acme", "reason": text(n)}
	}},
	{"unblock reason", "unblock_teammate", 4 * kib, large, func(_ *limitWorld, n int) map[string]any {
		return map[string]any{"handle": "anna@acme", "reason": text(n)}
	}},
	{"page of the inbox", "check_inbox", 200, wrong, func(_ *limitWorld, n int) map[string]any { return map[string]any{"limit": n} }},
	{"wait_seconds", "check_inbox", 50, wrong, func(l *limitWorld, n int) map[string]any {
		l.sent(false) // something is unread, so nothing is waited for
		return map[string]any{"wait_seconds": n}
	}},
}

func TestEveryLimitHoldsAtItsBoundAndRefusesOneMore(t *testing.T) {
	t.Parallel()
	for _, lim := range limits {
		t.Run(strings.ReplaceAll(lim.name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite", hubtest.WithHub(func(c *hub.Config) {
				c.Limits = handoff.DefaultLimits()
				c.Limits.Messages = 3
			}))
			l := &limitWorld{wire: w}
			l.anna, l.frank = w.pair()
			who := l.frank
			if lim.tool == "handoff_to_teammate" {
				who = l.anna
			}
			over := lim.make(l, lim.most+1)
			before := w.events()
			r := who.refused(lim.tool, over, lim.over)
			if got := w.events(); got != before {
				t.Errorf("%d events were written by a refused call", got-before)
			}
			if len(r.raw) > 4*kib {
				t.Errorf("the refusal has %d bytes", len(r.raw))
			}
			who.ok(lim.tool, lim.make(l, lim.most))
		})
	}
}

func TestAHandleAboveItsLimitIsRefused(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna := w.agent("anna@acme")
	long := w.agent(text(256-len("@acme")) + "@acme")
	anna.hand(long)
	anna.ok("block_teammate", map[string]any{"handle": long.handle})
	for _, tool := range []string{"handoff_to_teammate", "block_teammate"} {
		args := in(map[string]any{"to": "x" + long.handle})
		if tool == "block_teammate" {
			args = map[string]any{"handle": "x" + long.handle}
		}
		if r := anna.refused(tool, args, large); strings.Contains(r.text, text(81)) {
			t.Errorf("the refusal repeats all of it: %s", r.text)
		}
	}
}

func TestAnIdempotencyKeyHeaderIsBoundedLikeTheArgument(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	key := func(n int) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Idempotency-Key", text(n)) }
	}
	first := anna.with(key(255)).hand(frank)
	again := anna.with(key(255)).ok("handoff_to_teammate", map[string]any{"to": "frank@acme", "intent": "inform", "summary": "a summary"})
	if again["thread_id"] != first || again["idempotent_replay"] != true {
		t.Errorf("not replayed: %v", again)
	}
	anna.with(key(256)).refused("handoff_to_teammate", in(nil), large)
	anna.with(key(3)).refused("handoff_to_teammate", in(map[string]any{"idempotency_key": "other"}), wrong)
}

func TestTextThatNoDoorMayStoreIsRefusedNamingItsField(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	for _, bad := range []string{`a\u0000b`, `a\ud800b`, `a\udc00b`} {
		for _, c := range []struct{ tool, field, args string }{
			{"handoff_to_teammate", "question", `{"to":"frank@acme","intent":"inform","summary":"s","question":"%s"}`},
			{"handoff_to_teammate", "metadata", `{"to":"frank@acme","intent":"inform","summary":"s","metadata":{"a":["%s"]}}`},
			{"handoff_to_teammate", "artifacts[0].title", `{"to":"frank@acme","intent":"inform","summary":"s","artifacts":[{"type":"link","url":"https://x.io","title":"%s"}]}`},
			{"handoff_to_teammate", "idempotency_key", `{"to":"frank@acme","intent":"inform","summary":"s","idempotency_key":"%s"}`},
			{"send_message", "body", `{"thread_id":"` + id + `","body":"%s"}`},
			{"send_message", "payload", `{"thread_id":"` + id + `","body":"b","payload":{"k":"%s"}}`},
			{"send_message", "thread_id", `{"thread_id":"%s","body":"b"}`},
			{"decline_handoff", "reason", `{"thread_id":"` + id + `","reason":"%s"}`},
			{"list_teammates", "skill", `{"skill":"%s"}`},
			{"check_inbox", "cursor", `{"cursor":"%s"}`},
		} {
			before := w.events()
			r := frank.refused(c.tool, fmt.Sprintf(c.args, bad), wrong)
			if !strings.HasPrefix(r.fault.Message, c.field+":") && !strings.HasPrefix(r.fault.Message, c.field+".") {
				t.Errorf("%s with %s in %s: %s", c.tool, bad, c.field, r.fault.Message)
			}
			if w.events() != before {
				t.Errorf("%s with %s in %s wrote something", c.tool, bad, c.field)
			}
		}
	}
}
