package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/config"
	"handclasp/internal/hub"
	"handclasp/internal/restapi"
	"handclasp/internal/telemetry"
)

type demoCmd struct {
	Exit bool `help:"End after the story instead of leaving the hub open."`
}

// Run starts a real hub in a temporary folder and passes one handoff between two agents, each
// a real MCP client over HTTP.
func (c *demoCmd) Run(e *env) error {
	dir, err := os.MkdirTemp("", "handclasp-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	cfg := config.Embedded(config.Where{Data: filepath.Join(dir, "data")})
	cfg.Listen = "127.0.0.1:0"
	log := telemetry.NewLogger(e.stderr, "text", slog.LevelWarn)
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- serve(ctx, cfg, log, func(url string) { ready <- url }) }()
	var url string
	select {
	case url = <-ready:
	case err := <-ended:
		return err
	}
	s := &story{env: e, ctx: ctx, url: url, where: cfg.Where}
	if err := s.tell(); err != nil {
		stop()
		return errors.Join(fmt.Errorf("the demo stopped: %w", err), <-ended)
	}
	if !c.Exit {
		s.leaveOpen()
		select {
		case <-e.ctx.Done():
		case err := <-ended:
			return err
		}
	}
	stop()
	return <-ended
}

// story passes one handoff from end to end and says what is guaranteed at each step.
type story struct {
	env   *env
	ctx   context.Context //nolint:containedctx // a story lives for one command
	url   string
	where config.Where
	keys  map[string]string
	page  string // the inbox_url of the handoff
	step  int
	err   error // the first fault of writing
}

func (s *story) tell() error {
	s.say("A hub is running at %s, on SQLite in a temporary folder.\n", s.url)
	s.keys = map[string]string{}
	for _, a := range []hub.AgentInput{
		{Handle: "anna@acme", Name: "Anna's backend agent", Role: "backend"},
		{Handle: "frank@acme", Name: "Frank's Android agent", Role: "android"},
	} {
		if err := s.register(a); err != nil {
			return err
		}
	}
	s.say("Two agents are registered, each with a key of its own. Who calls is what the key says,\nnever what an argument says.\n")
	anna, err := s.connect("anna@acme")
	if err != nil {
		return err
	}
	defer func() { _ = anna.Close() }()
	frank, err := s.connect("frank@acme")
	if err != nil {
		return err
	}
	defer func() { _ = frank.Close() }()

	handoff := map[string]any{
		"to": "frank@acme", "intent": "ask_question",
		"summary":         "GET /users is paginated now: it returns {items, next_cursor}. The Android list screen still expects an array.",
		"question":        "Can the list screen follow next_cursor in this sprint?",
		"artifacts":       []any{map[string]any{"type": "file_ref", "path": "openapi.yaml", "lines": []int{42, 67}}},
		"idempotency_key": "users-pagination-1",
	}
	s.scene("anna@acme hands off", "handoff_to_teammate")
	sent, err := s.call(anna, "handoff_to_teammate", handoff)
	if err != nil {
		return err
	}
	thread, _ := sent["thread_id"].(string)
	s.page, _ = sent["inbox_url"].(string)
	s.say("  thread %s is %v. It was on disk before this answer was sent.\n", thread, sent["status"])

	s.scene("anna@acme repeats the call, as a client does after a lost answer", "handoff_to_teammate, same idempotency_key")
	again, err := s.call(anna, "handoff_to_teammate", handoff)
	if err != nil {
		return err
	}
	if again["thread_id"] != thread || again["idempotent_replay"] != true {
		return fmt.Errorf("the repeated call made something else: %v", again)
	}
	s.say("  the same thread, idempotent_replay: true. Nothing was sent twice.\n")

	s.scene("frank@acme looks into the inbox", "check_inbox")
	inbox, err := s.call(frank, "check_inbox", map[string]any{})
	if err != nil {
		return err
	}
	items, _ := inbox["items"].([]any)
	if len(items) != 1 {
		return fmt.Errorf("the inbox holds %d handoffs instead of 1", len(items))
	}
	preview := items[0].(map[string]any)["summary_preview"]
	s.say("  1 handoff, %v unread. What Anna wrote arrives between markers that her text cannot forge:\n%s\n", inbox["unread_total"], indent(fmt.Sprint(preview)))

	s.scene("frank@acme accepts", "accept_handoff")
	taken, err := s.call(frank, "accept_handoff", map[string]any{"thread_id": thread})
	if err != nil {
		return err
	}
	s.say("  %v, claim epoch %v. From now on Frank's agent holds it, and nobody else.\n", taken["status"], taken["claim_epoch"])

	s.scene("frank@acme delivers", "complete_handoff")
	if _, err := s.call(frank, "complete_handoff", map[string]any{
		"thread_id": thread, "result_summary": "The list screen follows next_cursor; merged with tests.",
		"artifacts": []any{map[string]any{"type": "test_command", "command": "./gradlew :users:test"}},
	}); err != nil {
		return err
	}
	s.say("  completed. Nothing can change it any more.\n")

	s.scene("anna@acme reads the answer", "view_thread")
	read, err := s.call(anna, "view_thread", map[string]any{"thread_id": thread})
	if err != nil {
		return err
	}
	s.say("  %v:\n%s\n", read["status"], indent(fmt.Sprint(read["result_summary"])))
	s.say("The handoff had exactly one known holder at every moment: Anna's intent, Frank's work, done.\n")
	return s.err // nobody reads on: there is no point in keeping the hub open
}

func (s *story) register(in hub.AgentInput) error {
	return operate(s.env, &s.where, func(o *operatorClient) error {
		var k restapi.NewKey
		if err := o.post("/operator/agents", in, &k); err != nil {
			return err
		}
		s.keys[k.Handle] = k.APIKey
		return nil
	})
}

func (s *story) connect(handle string) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "handclasp-demo", Version: version()}, nil)
	return client.Connect(s.ctx, &mcp.StreamableClientTransport{
		Endpoint:   s.url + "/mcp/team",
		HTTPClient: &http.Client{Transport: withHeader{"Authorization", "Bearer " + s.keys[handle], http.DefaultTransport}},
	}, nil)
}

func (s *story) call(session *mcp.ClientSession, tool string, args map[string]any) (map[string]any, error) {
	res, err := session.CallTool(s.ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tool, err)
	}
	if res.IsError {
		text := ""
		if len(res.Content) > 0 {
			if t, ok := res.Content[0].(*mcp.TextContent); ok {
				text = t.Text
			}
		}
		return nil, fmt.Errorf("%s: %s", tool, text)
	}
	out, ok := res.StructuredContent.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: no structured content came", tool)
	}
	return out, nil
}

func (s *story) scene(what, tool string) {
	s.step++
	s.say("%d. %s  [%s]", s.step, what, tool)
}

func (s *story) say(format string, args ...any) {
	if _, err := fmt.Fprintf(s.env.stdout, format+"\n", args...); err != nil && s.err == nil {
		s.err = err
	}
}

func (s *story) leaveOpen() {
	s.say("The hub stays open. Connect your own MCP client as Frank's agent:\n")
	snippet, err := json.MarshalIndent(map[string]any{"mcpServers": map[string]any{"handclasp": map[string]any{
		"type": "http", "url": s.url + "/mcp/team", "headers": map[string]string{"Authorization": "Bearer " + s.keys["frank@acme"]},
	}}}, "", "  ")
	if err == nil {
		_, _ = io.WriteString(s.env.stdout, string(snippet)+"\n\n")
	}
	s.say("Or read the thread in a browser, signing in with the key above:\n%s\n\nCtrl-C ends the hub and removes its folder.", s.page)
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}
