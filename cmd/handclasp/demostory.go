package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"handclasp/internal/hub"
	"handclasp/internal/restapi"
)

// The scenes of the demo, in their order. Each makes its calls, fails if one of them does not end
// as it says, and prints what came back and what that guarantees.

const (
	anna  = "anna@acme"
	frank = "frank@acme"
	sam   = "sam@acme" // has no part in the handoff
)

const openapiDiff = `--- a/openapi.yaml
+++ b/openapi.yaml
@@ -42,2 +42,2 @@
-      type: array
+      $ref: "#/components/schemas/UserPage"
       description: GET /users
`

const listScreenDiff = `--- a/UserList.kt
+++ b/UserList.kt
@@ -7 +7 @@
-users = api.users()
+users = pages { cursor -> api.users(cursor) }
`

// usersPagination is what Anna's agent hands over.
func usersPagination() map[string]any {
	return map[string]any{
		"to": frank, "intent": "propose_action",
		"summary":         "GET /users is paginated now. The Android list screen still expects one array.",
		"artifacts":       []any{map[string]any{"type": "file_diff", "path": "openapi.yaml", "diff": openapiDiff}},
		"proposed_action": map[string]any{"description": "Follow next_cursor", "target_files": []any{"UserList.kt"}, "rationale": "Only the first page is shown."},
		"idempotency_key": "users-pagination-1",
	}
}

func (s *story) tell() error {
	for _, scene := range []func() error{
		s.begin, s.handOver, s.repeat, s.keepStrangersOut, s.accept, s.draft, s.deliver, s.read,
		s.openWork, s.race, s.rework, s.bringInAPerson, s.theyAnswer, s.handOn,
	} {
		if err := scene(); err != nil {
			return err
		}
		s.say("")
	}
	s.say("Each handoff had exactly one known holder at every moment, and what was acknowledged is on disk.")
	return s.err // nobody reads on: there is no point in keeping the hub open
}

// begin registers the agents and connects each.
func (s *story) begin() error {
	for _, a := range []hub.AgentInput{
		{Handle: anna, Name: "Anna's backend agent", Role: "backend"},
		{Handle: frank, Name: "Frank's Android agent", Role: "android"},
		{Handle: sam, Name: "Sam's agent"},
	} {
		if err := s.register(a); err != nil {
			return err
		}
		if err := s.connect(a.Handle); err != nil {
			return err
		}
	}
	s.say("A hub runs at %s, on SQLite in a temporary folder. %d agents are connected:\n"+
		"Anna's, Frank's, and Sam's, which has no part in what follows. Each speaks MCP with a key of its\n"+
		"own: who calls is what the key says, never what an argument says.", s.url, len(s.sessions))
	return nil
}

// handOver shows that an answer means "stored", and that the recipient needs not ask again and again.
func (s *story) handOver() error {
	s.scene("Frank's agent waits for work", "check_inbox, wait_seconds: 30")
	type answer struct {
		inbox map[string]any
		at    time.Time
		err   error
	}
	woken := make(chan answer, 1)
	go func() {
		inbox, err := s.call(frank, "check_inbox", map[string]any{"wait_seconds": 30})
		woken <- answer{inbox, time.Now(), err}
	}()
	parked, err := s.waitUntilParked()
	if err != nil {
		return err
	}
	s.say("   The hub holds the call open (calls that wait, by its own count: %s). Nobody polls.\n", parked)

	s.scene("Anna's agent hands work to Frank's, with a diff", "handoff_to_teammate")
	sent := time.Now()
	made, err := s.call(anna, "handoff_to_teammate", usersPagination())
	if err != nil {
		return err
	}
	s.thread, _ = made["thread_id"].(string)
	s.page, _ = made["inbox_url"].(string)
	s.say("   → thread %s, %v.\n"+
		"   Text, diff and state were on disk before this answer went out: a crash now loses nothing.", s.thread, made["status"])
	got := <-woken
	if got.err != nil {
		return got.err
	}
	items, _ := got.inbox["items"].([]any)
	if len(items) != 1 {
		return fmt.Errorf("the inbox holds %d handoffs instead of 1", len(items))
	}
	item, _ := items[0].(map[string]any)
	origin, _ := item["provenance"].(map[string]any)
	s.say("   Frank's call woke %d ms after Anna's was made. What she wrote is marked %v, %v,\n"+
		"   between markers that it cannot forge:\n%s",
		got.at.Sub(sent).Milliseconds(), origin["content_trust"], origin["instruction_policy"], indent(item["summary_preview"]))
	return nil
}

// repeat shows that one key has one effect.
func (s *story) repeat() error {
	s.scene("Anna's agent repeats the call, as after an answer that got lost", "handoff_to_teammate")
	again, err := s.call(anna, "handoff_to_teammate", usersPagination())
	if err != nil {
		return err
	}
	if again["thread_id"] != s.thread || again["idempotent_replay"] != true {
		return fmt.Errorf("the repeated call made something else: %v", again)
	}
	s.say("   → the same thread, idempotent_replay: %v. Nothing was sent twice.", again["idempotent_replay"])
	other := usersPagination()
	other["summary"] = "Something else."
	fault, err := s.refused(anna, "handoff_to_teammate", other)
	if err != nil {
		return err
	}
	s.say("   → same idempotency_key, other text: refused, %v. One key, one effect.", fault["code"])
	return nil
}

// keepStrangersOut shows that an id opens nothing, and does not even tell whether it exists.
func (s *story) keepStrangersOut() error {
	s.scene("Sam's agent has got hold of the thread's id", "view_thread, accept_handoff")
	const nothing = "00000000-0000-7000-8000-000000000000"
	var codes []any
	for _, tool := range []string{"view_thread", "accept_handoff"} {
		there, err := s.refused(sam, tool, map[string]any{"thread_id": s.thread})
		if err != nil {
			return err
		}
		made, err := s.refused(sam, tool, map[string]any{"thread_id": nothing})
		if err != nil {
			return err
		}
		if fmt.Sprint(made) != strings.ReplaceAll(fmt.Sprint(there), s.thread, nothing) {
			return fmt.Errorf("a stranger can tell a thread from none: %v, %v", there, made)
		}
		codes = append(codes, there["code"])
	}
	s.say("   → refused, %v and %v: word for word as for an id that does not exist.", codes...)
	return nil
}

// accept shows that there is one holder.
func (s *story) accept() error {
	s.scene("Frank's agent accepts", "accept_handoff")
	taken, err := s.call(frank, "accept_handoff", map[string]any{"thread_id": s.thread})
	if err != nil {
		return err
	}
	fault, err := s.refused(anna, "cancel_handoff", map[string]any{"thread_id": s.thread})
	if err != nil {
		return err
	}
	s.say("   → %v, claim epoch %v: from now on Frank's agent holds it, and nobody else.\n"+
		"   → Anna's agent wants it back (cancel_handoff): refused, %v.", taken["status"], taken["claim_epoch"], fault["code"])
	return nil
}

// draft shows that a proposed change waits for a person, and that the hub applies nothing.
func (s *story) draft() error {
	s.scene("Frank's agent offers its change; a person decides", "draft_proposed_action")
	made, err := s.call(frank, "draft_proposed_action", map[string]any{"thread_id": s.thread, "suggested_diff": listScreenDiff})
	if err != nil {
		return err
	}
	var decided restapi.Draft
	id, _ := made["draft_id"].(string)
	if err := operate(s.env, &s.where, func(o *operatorClient) error {
		return o.post("/operator/drafts/"+escape(id)+"/decision", map[string]any{"approve": true}, &decided)
	}); err != nil {
		return err
	}
	s.say("   → %v: it parses, and touches only the file that Anna named.\n"+
		"   → the operator (handclasp handoff draft approve): %s. Both sides see it; the hub itself\n"+
		"     applies no diff and runs no command.", made["status"], decided.Status)
	return nil
}

// deliver shows that the end is final, and reached once.
func (s *story) deliver() error {
	s.scene("Frank's agent delivers, and its client repeats the call", "complete_handoff")
	result := map[string]any{
		"thread_id": s.thread, "result_summary": "The list screen follows next_cursor; merged with tests.",
		"artifacts":       []any{map[string]any{"type": "test_command", "command": "./gradlew :users:test"}},
		"idempotency_key": "users-pagination-done",
	}
	done, err := s.call(frank, "complete_handoff", result)
	if err != nil {
		return err
	}
	again, err := s.call(frank, "complete_handoff", result)
	if err != nil {
		return err
	}
	fault, err := s.refused(frank, "decline_handoff", map[string]any{"thread_id": s.thread, "reason": "Changed my mind."})
	if err != nil {
		return err
	}
	s.say("   → %v; repeated: idempotent_replay: %v. Delivered once.\n"+
		"   → and a change of mind (decline_handoff): refused, %v. What is done stays done.",
		done["status"], again["idempotent_replay"], fault["code"])
	return nil
}

// read shows what the sender has in the end, and what the hub wrote down.
func (s *story) read() error {
	s.scene("Anna's agent reads the result", "view_thread")
	thread, err := s.call(anna, "view_thread", map[string]any{"thread_id": s.thread})
	if err != nil {
		return err
	}
	events, err := s.log()
	if err != nil {
		return err
	}
	s.say("   → %v, again as marked text of another:\n%s\n"+
		"   The hub's log of the thread, one entry for each thing that happened, whatever was repeated:\n   %s",
		thread["status"], indent(thread["result_summary"]), strings.Join(events, ", "))
	return nil
}

// log is what the hub wrote down of the thread, numbered.
func (s *story) log() ([]string, error) {
	var out restapi.Events
	if err := operate(s.env, &s.where, func(o *operatorClient) error { return o.get("/operator/events", &out) }); err != nil {
		return nil, err
	}
	var lines []string
	for _, e := range out.Events {
		if e.HandoffID != s.thread {
			continue
		}
		if e.Seq != len(lines)+1 {
			return nil, fmt.Errorf("event %d of the thread has the number %d", len(lines)+1, e.Seq)
		}
		lines = append(lines, fmt.Sprintf("%d %s", e.Seq, e.Type))
	}
	return lines, nil
}

// waitUntilParked is the number of calls that wait, once there is one: as /metrics tells it.
func (s *story) waitUntilParked() (string, error) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for give := time.Now().Add(10 * time.Second); time.Now().Before(give); {
		n, err := s.metric("handclasp_parked_calls")
		if err != nil || n != "0" {
			return n, err
		}
		select {
		case <-s.ctx.Done():
			return "", s.ctx.Err()
		case <-tick.C:
		}
	}
	return "", errors.New("the waiting call did not arrive at the hub")
}

func (s *story) metric(name string) (string, error) {
	req, err := http.NewRequestWithContext(s.ctx, http.MethodGet, s.url+"/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("the hub's metrics have no %s", name)
}

// leaveOpen says what a person can do with the running hub.
func (s *story) leaveOpen() {
	s.say("\nThe hub stays open. Connect a client of yours as Frank's agent, and take it out again afterwards:")
	conn := access{url: s.url, key: s.keys[frank]}
	for _, client := range mcpClients {
		conf, _, err := configFor(client.name, conn)
		if err != nil {
			s.err = errors.Join(s.err, err)
			return
		}
		where, text := client.file, short(conf.Config)
		if conf.Command != "" {
			where, text = "in a terminal", conf.Command
		}
		s.say("\n%s, %s:\n%s", client.title, where, text)
	}
	s.say("\nThe thread in a browser: %s\nsign in with the key of Frank's agent: %s\n\n"+
		"The agents: %s\nCtrl-C ends the hub and removes its folder.",
		s.page, s.keys[frank], shellWords(append(thisProgram(), "agent", "list", "--data", s.where.Data)...))
}

// short makes JSON short; other text it leaves as it is.
func short(text string) string {
	if !json.Valid([]byte(text)) {
		return text
	}
	compact, err := jsonText(json.RawMessage(text), "")
	if err != nil {
		return text
	}
	return compact
}
