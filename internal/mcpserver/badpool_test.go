package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// mark stands in every payload of the world: no refusal ever shows it.
const mark = "PAYLOAD_MARK"

// badWorld is a hub in which calls go wrong. Of its handoffs, frank can claim or holds all but the
// hidden ones.
type badWorld struct {
	*wire
	anna, frank, vera, eve *caller
	ids                    map[string]string
	rows                   []string // of the database, as they stay
	texts                  func(query string) ([]string, error)
	kind                   string
}

// refusal is a call that must be refused. args patch the arguments of its tool, as JSON; $name is
// the id of a handoff. field is what the message begins with, says what else it names.
type refusal struct {
	who, tool, args string
	code            handoff.Code
	field           string
	says            []string
}

func newBadWorld(t *testing.T, kind string) *badWorld {
	w := newWire(t, kind)
	b := &badWorld{wire: w, ids: map[string]string{}, kind: kind, texts: hubtest.Texts(hubtest.Beside(t, w.Config))}
	b.anna = w.poolAgent("anna@acme")
	b.frank = w.poolAgent("frank@acme", func(in *hub.AgentInput) {
		in.Capabilities, in.Tags = []string{"code", "review"}, map[string][]string{"team": {"platform", "platform/db"}}
	})
	b.vera = w.poolAgent("vera@acme", func(in *hub.AgentInput) { in.Capabilities = []string{"review"} })
	b.eve = w.poolAgent("eve@acme")
	for _, c := range []*caller{b.anna, b.frank, b.vera, b.eve} {
		c.path = "/mcp"
	}
	b.fill()
	b.rows = b.dump()
	return b
}

func (b *badWorld) fill() {
	anna, frank := b.anna, b.frank
	contract := func(kind, more string) map[string]any {
		return map[string]any{"acceptance_criteria": []any{"it is green"}, "verify_by": json.RawMessage(`{"kind":"` + kind + `"` + more + `}`)}
	}
	secret := map[string]any{"payload": map[string]any{mark: []any{mark}}}
	offer := func(name string, more ...map[string]any) string {
		b.ids[name] = anna.offer(append(more, secret)...)
		return b.ids[name]
	}
	offer("open")
	offer("named", map[string]any{"target": map[string]any{"strategy": "direct", "agent_id": "frank@acme"}})
	for _, name := range []string{"held", "lost", "done", "rejected"} {
		frank.claim(offer(name))
	}
	frank.ok("handoff_complete", frank.at(b.ids["done"], "result", mark))
	frank.ok("handoff_reject", frank.at(b.ids["rejected"], "reason", mark))
	for kind, more := range map[string]string{"creator": "", "agent": `,"agent_id":"vera@acme"`, "capability": `,"capability":"review"`} {
		frank.claim(offer("by "+kind, contract(kind, more)))
		frank.ok("handoff_complete", frank.at(b.ids["by "+kind], "result", mark))
	}
	frank.claim(offer("again", contract("creator", "")))
	frank.ok("handoff_complete", frank.at(b.ids["again"], "result", mark))
	anna.ok("handoff_verify", anna.at(b.ids["again"], "verdict", "fail", "feedback", mark))
	offer("contract", contract("creator", ""))
	anna.ok("handoff_cancel", anna.at(offer("cancelled"), "reason", mark))
	offer("blocked", map[string]any{"depends_on": []any{b.ids["held"]}})
	b.ids["hidden"] = b.vera.offer(secret, map[string]any{"visibility": "private", "target": map[string]any{"strategy": "direct", "agent_id": "vera@acme"}})
	b.ids["elsewhere"] = anna.offer(secret, map[string]any{"project_root": "/srv/other"})
	b.ids["thread"] = anna.hand(frank, map[string]any{"summary": mark})
	b.ids["nowhere"] = "0192f3a4-0000-7000-8000-000000000000"
	frank.ok("handoff_get", frank.at(b.ids["named"]))
	anna.ok("handoff_create", anna.offering(secret, map[string]any{"idempotency_key": "used"}))
	frank.ok("handoff_extend", frank.at(b.ids["held"], "claim_epoch", 1, "idempotency_key", "used"))

	// A lease and a deadline that passed, and were written down: a refused call writes no clock.
	offer("expired", map[string]any{"expires_in_seconds": 60})
	frank.ok("handoff_extend", frank.at(b.ids["held"], "claim_epoch", 1, "lease_seconds", 86400))
	frank.ok("handoff_extend", frank.at(b.ids["again"], "claim_epoch", 2, "lease_seconds", 86400))
	b.Clock.Advance(10 * time.Minute)
	if _, err := b.Hub.Sweep(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

var lastUse = regexp.MustCompile(`"last_(used|seen)_at":[0-9]+`)

// dump is every row of the database but for when keys were last used.
func (b *badWorld) dump() []string {
	rows := hubtest.Dump(b.t, b.kind, b.texts)
	for i := range rows {
		rows[i] = lastUse.ReplaceAllString(rows[i], "")
	}
	return rows
}

// arguments are those of a good call of the tool, with the patch.
func (b *badWorld) arguments(t *testing.T, who *caller, tool, patch string) string {
	t.Helper()
	pairs := make([]string, 0, 2*len(b.ids))
	for name, id := range b.ids {
		pairs = append(pairs, "$"+name+"$", id)
	}
	patch = strings.NewReplacer(pairs...).Replace(patch)
	args := map[string]json.RawMessage{"project_root": json.RawMessage(`"/srv/shop"`)}
	switch tool {
	case "handoff_create":
		args["from_agent_id"] = json.RawMessage(`"` + who.handle + `"`)
		args["target"], args["visibility"] = json.RawMessage(`{"strategy":"broadcast"}`), json.RawMessage(`"public"`)
		args["payload"] = json.RawMessage(`{"` + mark + `":"` + mark + `"}`)
	case "handoff_complete":
		args["result"] = json.RawMessage(`"` + mark + `"`)
	}
	if tool != "handoff_create" {
		args["agent_id"] = json.RawMessage(`"` + who.handle + `"`)
	}
	more := map[string]json.RawMessage{}
	if err := json.Unmarshal([]byte("{"+patch+"}"), &more); err != nil {
		t.Fatalf("%v in %.200s", err, patch)
	}
	maps.Copy(args, more)
	for name, v := range args {
		if string(v) == `"left out"` {
			delete(args, name)
		}
	}
	return rawMembers(args)
}

// refuse makes the call and checks everything that a refusal promises.
func (b *badWorld) refuse(t *testing.T, c refusal) {
	t.Helper()
	who := map[string]*caller{"anna": b.anna, "frank": b.frank, "vera": b.vera, "eve": b.eve}[c.who]
	r := who.call(c.tool, b.arguments(t, who, c.tool, c.args))
	if r.status != http.StatusOK || !r.isError || r.fault.Code != string(c.code) {
		t.Errorf("want %s, got %d %s%s", c.code, r.status, r.rpcError, r.text)
		return
	}
	r.mustRefuse(t, c.tool, c.code)
	if c.field != "" && !strings.HasPrefix(r.fault.Message, c.field+":") {
		t.Errorf("%s is not what the message begins with: %s", c.field, r.fault.Message)
	}
	for _, word := range c.says {
		if !strings.Contains(r.text, word) {
			t.Errorf("%q is not in: %s", word, r.text)
		}
	}
	if strings.Contains(string(r.raw), mark) || len(r.raw) > 4<<10 {
		t.Errorf("it repeats too much: %.500s", r.raw)
	}
	if strings.Contains(r.text, "goroutine") || strings.Contains(r.text, "SQLSTATE") {
		t.Errorf("it tells of our insides: %s", r.text)
	}
	hubtest.WantSameRows(t, "after the refusal", b.dump(), b.rows)
}

// refuseAll tries each on both databases.
func refuseAll(t *testing.T, list []refusal) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBadWorld(t, kind)
			for i, c := range list {
				name := fmt.Sprintf("%03d %s %.60s", i, c.tool, c.args)
				t.Run(regexp.MustCompile(`[^a-zA-Z0-9_]+`).ReplaceAllString(name, "_"), func(t *testing.T) {
					b.refuse(t, c)
				})
			}
			if strings.Contains(b.Log.String(), mark) || strings.Contains(b.Log.String(), "internal error") {
				t.Error("the log repeats arguments, or a call failed by our fault")
			}
		})
	}
}

func TestABodyThatNestsBeyondAllMeasureIsAProtocolError(t *testing.T) {
	t.Parallel()
	b := newBadWorld(t, "sqlite")
	for _, depth := range []int{1_001, 9_000, 20_000, 100_000} {
		for _, deep := range []string{
			`"target":` + strings.Repeat(`{"strategy":"mixed","rules":[`, depth) + strings.Repeat("]}", depth),
			`"payload":` + strings.Repeat(`["`+mark+`",`, depth) + "1" + strings.Repeat("]", depth), `"target":` + strings.Repeat("[", depth),
		} {
			r := b.anna.call("handoff_create", `{"project_root":"/srv/shop","from_agent_id":"anna@acme","visibility":"public",`+deep+`}`)
			if r.status != http.StatusBadRequest || r.rpcError == "" || strings.Contains(string(r.raw), mark) || len(r.raw) > 1<<10 {
				t.Errorf("%d levels: %d %.300s", depth, r.status, r.raw)
			}
		}
	}
	hubtest.WantSameRows(t, "afterwards", b.dump(), b.rows)
}
