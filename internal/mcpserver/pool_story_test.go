package mcpserver_test

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
)

// One story of the pool, told through every way in: it leaves the same rows.

const (
	storyPayload = `{"n":1.50,"big":123456789012345678901234567890}`
	storyTrace   = "0af7651916cd43dd8448eb211c80319c"
)

// tale is what the story leaves: who was who, and which handoff came first.
type tale struct{ creator, winner, loser, first, next string }

// atOnce runs both and returns when both are done.
func atOnce(a, b func()) {
	var wg sync.WaitGroup
	wg.Go(a)
	wg.Go(b)
	wg.Wait()
}

// poolStory tells it with tools. as says how an agent calls.
func poolStory(t *testing.T, anna, cid, dora *caller, as func(*caller) do) tale {
	ok := func(who *caller, tool string, args map[string]any) map[string]any {
		t.Helper()
		return as(who)(tool, args).fields(t, tool)
	}
	made := ok(anna, "handoff_create", anna.offering(map[string]any{
		"payload": json.RawMessage(storyPayload), "acceptance_criteria": []any{"it is green"}, "trace_id": storyTrace, "priority": "high", "idempotency_key": "one",
	}))
	first, _ := made["handoff_id"].(string)
	if made["status"] != "OPEN" || made["eligible_count"] != 2.0 || made["trace_id"] != storyTrace {
		t.Fatalf("made: %v", made)
	}
	made = ok(anna, "handoff_create", anna.offering(map[string]any{"depends_on": []any{first}, "trace_id": storyTrace, "idempotency_key": "next"}))
	next, _ := made["handoff_id"].(string)
	if made["dependencies"].(map[string]any)["pending"] != 1.0 {
		t.Fatalf("made: %v", made)
	}
	list := ok(cid, "handoff_list_available", cid.at(""))["handoffs"].([]any)
	if len(list) != 1 || list[0].(map[string]any)["handoff_id"] != first || list[0].(map[string]any)["payload"] != nil {
		t.Fatalf("available: %v", list)
	}

	var byCid, byDora reply
	atOnce(
		func() { byCid = as(cid)("handoff_claim", cid.at(first, "idempotency_key", "c")) },
		func() { byDora = as(dora)("handoff_claim", dora.at(first, "idempotency_key", "c")) })
	winner, loser, won, lost := cid, dora, byCid, byDora
	if byCid.isError {
		winner, loser, won, lost = dora, cid, byDora, byCid
	}
	claimed := won.fields(t, "handoff_claim")
	if claimed["claim_epoch"] != 1.0 || !strings.Contains(won.text, `"payload":`+storyPayload) {
		t.Fatalf("claimed: %v", claimed)
	}
	lost.mustRefuse(t, "handoff_claim", handoff.CodeAlreadyClaimed)
	if lost.fault.Details["claimed_by"] != winner.handle || strings.Contains(string(lost.raw)+lost.text, "12345678901234567890") {
		t.Fatalf("the loser is told %+v", lost.fault)
	}
	as(loser)("handoff_claim", loser.at(next)).mustRefuse(t, "handoff_claim", handoff.CodeDependencyNotMet)

	done := ok(winner, "handoff_complete", winner.at(first, "result", "done", "claim_epoch", 1))
	if done["status"] != "VERIFYING" {
		t.Fatalf("delivered: %v", done)
	}
	if list := ok(anna, "handoff_list_available", anna.at("", "scope", "to_verify"))["handoffs"].([]any); len(list) != 1 {
		t.Fatalf("to verify: %v", list)
	}
	sent := ok(anna, "handoff_verify", anna.at(first, "verdict", "fail", "feedback", "not green", "claim_epoch", 1, "idempotency_key", "v"))
	if sent["status"] != "CLAIMED" || sent["claim_epoch"] != 2.0 {
		t.Fatalf("sent back: %v", sent)
	}
	as(winner)("handoff_complete", winner.at(first, "result", "redone")).mustRefuse(t, "handoff_complete", handoff.CodeStaleClaimEpoch)
	again := ok(winner, "handoff_get", winner.at(first))
	if feedback := again["verification"].(map[string]any)["feedback"].(string); !strings.Contains(feedback, "not green") {
		t.Fatalf("the winner reads %v", again)
	}
	ok(winner, "handoff_complete", winner.at(first, "result", "redone", "claim_epoch", 2))
	passed := ok(anna, "handoff_verify", anna.at(first, "verdict", "pass", "claim_epoch", 2))
	if passed["status"] != "COMPLETED" || passed["result"] != "redone" || passed["payload"] != nil {
		t.Fatalf("passed: %v", passed)
	}
	as(loser)("handoff_claim", loser.at(first)).mustRefuse(t, "handoff_claim", handoff.CodeThreadTerminal)

	if taken := ok(loser, "handoff_claim", loser.at("")); taken["handoff_id"] != next {
		t.Fatalf("unblocked: %v", taken)
	}
	ok(loser, "handoff_complete", loser.at(next, "result", nil))
	if none := ok(winner, "handoff_claim", winner.at("")); none["handoff_id"] != nil {
		t.Fatalf("something is left: %v", none)
	}
	return tale{anna.key.AgentID, winner.key.AgentID, loser.key.AgentID, first, next}
}

// hubStory tells it with the hub's own methods.
func hubStory(t *testing.T, f *hubtest.Fixture, anna, cid, dora hub.Call) tale {
	ctx := context.Background()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	epochs := []*int{nil, new(int), new(int)}
	*epochs[1], *epochs[2] = 1, 2
	hold := func(call hub.Call, id string, epoch int, key string) hub.HoldInput {
		return hub.HoldInput{ProjectRoot: shop, AgentID: call.Actor.Handle, ThreadID: id, ClaimEpoch: epochs[epoch], IdempotencyKey: key}
	}
	claim := func(call hub.Call, id, key string) (hub.ClaimResult, error) {
		return f.Hub.Claim(ctx, call, hub.ClaimInput{ProjectRoot: shop, AgentID: call.Actor.Handle, ThreadID: id, IdempotencyKey: key})
	}
	offer := hub.OpenInput{ProjectRoot: shop, From: anna.Actor.Handle, Target: json.RawMessage(`{"capability":"code","strategy":"capability"}`), Visibility: "public", TraceID: storyTrace}
	one := offer
	one.Payload, one.Criteria, one.Priority, one.IdempotencyKey = json.RawMessage(storyPayload), []string{"it is green"}, "high", "one"
	first, err := f.Hub.Open(ctx, anna, one)
	must(err)
	two := offer
	two.DependsOn, two.IdempotencyKey = []string{first.HandoffID}, "next"
	next, err := f.Hub.Open(ctx, anna, two)
	must(err)

	var errCid, errDora error
	atOnce(
		func() { _, errCid = claim(cid, first.HandoffID, "c") },
		func() { _, errDora = claim(dora, first.HandoffID, "c") })
	winner, loser, won, lost := cid, dora, errCid, errDora
	if errCid != nil {
		winner, loser, won, lost = dora, cid, errDora, errCid
	}
	must(won)
	hubtest.WantCode(t, lost, handoff.CodeAlreadyClaimed)
	_, err = claim(loser, next.HandoffID, "")
	hubtest.WantCode(t, err, handoff.CodeDependencyNotMet)

	_, err = f.Hub.Deliver(ctx, winner, hub.DeliverInput{HoldInput: hold(winner, first.HandoffID, 1, ""), Result: json.RawMessage(`"done"`)})
	must(err)
	_, err = f.Hub.Verify(ctx, anna, hub.VerifyInput{HoldInput: hold(anna, first.HandoffID, 1, "v"), Verdict: "fail", Feedback: "not green"})
	must(err)
	_, err = f.Hub.Deliver(ctx, winner, hub.DeliverInput{HoldInput: hold(winner, first.HandoffID, 0, ""), Result: json.RawMessage(`"redone"`)})
	hubtest.WantCode(t, err, handoff.CodeStaleClaimEpoch)
	_, err = f.Hub.Get(ctx, winner, hub.GetInput{ProjectRoot: shop, HandoffID: first.HandoffID, AgentID: winner.Actor.Handle})
	must(err)
	_, err = f.Hub.Deliver(ctx, winner, hub.DeliverInput{HoldInput: hold(winner, first.HandoffID, 2, ""), Result: json.RawMessage(`"redone"`)})
	must(err)
	_, err = f.Hub.Verify(ctx, anna, hub.VerifyInput{HoldInput: hold(anna, first.HandoffID, 2, ""), Verdict: "pass"})
	must(err)
	_, err = claim(loser, first.HandoffID, "")
	hubtest.WantCode(t, err, handoff.CodeThreadTerminal)

	taken, err := claim(loser, "", "")
	must(err)
	if taken.Work == nil || taken.Work.Handoff.ID != next.HandoffID {
		t.Fatalf("unblocked: %+v", taken)
	}
	_, err = f.Hub.Deliver(ctx, loser, hub.DeliverInput{HoldInput: hold(loser, next.HandoffID, 0, ""), Result: json.RawMessage(`null`)})
	must(err)
	return tale{anna.Actor.ID, winner.Actor.ID, loser.Actor.ID, first.HandoffID, next.HandoffID}
}

var (
	anyTime  = regexp.MustCompile(`\b1[0-9]{15}\b|2026-[0-9-]+T[0-9:.]+Z`)
	anyEvent = regexp.MustCompile(`("id":)[0-9]+`) // a rollback may leave a gap
	// Of the inputs that are fingerprinted, one names no id.
	anyPrint = regexp.MustCompile(`("fingerprint":")[0-9a-f]+(".*"key":"[cnv])`)
	anyID    = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)
)

// told are the rows that a story leaves, with names for its ids. Which agent won, when it happened
// and who was registered are no part of it.
func told(t *testing.T, kind string, f *hubtest.Fixture, s tale) []string {
	t.Helper()
	names := strings.NewReplacer(s.creator, "CREATOR", s.winner, "WINNER", s.loser, "LOSER", s.first, "FIRST", s.next, "NEXT")
	var rows []string
	for _, row := range hubtest.Dump(t, kind, hubtest.Texts(hubtest.Beside(t, f.Config))) {
		if strings.Contains(row, `"type":"agent.added"`) {
			continue
		}
		switch table, _, _ := strings.Cut(row, " "); table {
		case "handoffs", "events", "notices", "offers", "dependencies", "idempotency", "messages", "workspaces":
			row = anyEvent.ReplaceAllString(row, "${1}0")
			rows = append(rows, anyPrint.ReplaceAllString(anyID.ReplaceAllString(anyTime.ReplaceAllString(names.Replace(row), "TIME"), "ID"), "${1}PRINT$2"))
		}
	}
	slices.Sort(rows)
	if len(rows) < 15 {
		t.Fatalf("a story of %d rows: %q", len(rows), rows)
	}
	return rows
}

func TestTheStoryOfThePoolLeavesTheSameRowsThroughEveryWayIn(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newWire(t, kind).Fixture
			called := func(handle string, change ...func(*hub.AgentInput)) hub.Call {
				c := (&wire{Fixture: f, t: t}).agent(handle, change...)
				return hub.Call{Actor: handoff.Actor{Kind: handoff.KindAgent, ID: c.key.AgentID, Handle: handle, KeyID: c.key.KeyID}}
			}
			want := told(t, kind, f, hubStory(t, f, called("anna@acme"), called("cid@acme", coder), called("dora@acme", coder)))
			for _, how := range []struct{ path, version string }{{"/mcp/pool", ""}, {"/mcp", ""}, {"/mcp/pool", "2025-11-25"}, {"/mcp", "2026-07-28"}} {
				t.Run(strings.TrimPrefix(how.path, "/")+" "+how.version, func(t *testing.T) {
					w := newWire(t, kind)
					anna, cid, dora := w.agent("anna@acme"), w.agent("cid@acme", coder), w.agent("dora@acme", coder)
					calls := map[*caller]do{}
					for _, c := range []*caller{anna, cid, dora} {
						c.path = how.path
						calls[c] = func(tool string, args map[string]any) reply { return c.call(tool, args) }
						if how.version != "" {
							calls[c] = sdkCalls(t, c.session(how.version), how.version)
						}
					}
					s := poolStory(t, anna, cid, dora, func(c *caller) do { return calls[c] })
					hubtest.WantSameRows(t, "through "+how.path, told(t, kind, w.Fixture, s), want)
				})
			}
		})
	}
}
