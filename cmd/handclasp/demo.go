package main

import (
	"context"
	"errors"
	"fmt"
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

// Help is printed by --help.
func (*demoCmd) Help() string {
	return `Changes nothing of yours: the hub and its folder are gone when it ends.

Examples:

  handclasp demo
  handclasp demo --exit`
}

// Run starts a real hub in a temporary folder, passes one handoff between two agents and others
// through the pool. Each agent is a real MCP client over HTTP.
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
	box, err := openMailbox(ctx)
	if err != nil {
		return err
	}
	defer box.close()
	cfg.SMTPURL, cfg.MailFrom = "smtp://"+box.address+"?tls=none", "Handclasp <hub@demo.example>"
	log := telemetry.NewLogger(e.stderr, "text", slog.LevelWarn)
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() { ended <- serve(ctx, cfg, log, func(url string) { ready <- url }) }()
	var url string
	select {
	case url = <-ready:
	case err := <-ended:
		return err
	}
	s := &story{mailbox: box, env: e, ctx: ctx, url: url, where: cfg.Where, keys: map[string]string{}, sessions: map[string]*mcp.ClientSession{}}
	defer s.disconnect()
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

// story passes handoffs from end to end and says what is guaranteed at each step.
type story struct {
	env      *env
	ctx      context.Context //nolint:containedctx // a story lives for one command
	url      string
	where    config.Where
	keys     map[string]string             // by handle
	sessions map[string]*mcp.ClientSession // by handle
	thread   string
	page     string // the inbox_url of the thread
	// Of the open handoffs: the one that waits for s.thread, who won that one, and who did not.
	next, holder, loser string
	// Of the desk: where the person's mail arrives, and the link in it.
	mailbox *mailbox
	link    string
	step    int
	err     error // the first fault of writing
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

// connect opens an MCP session as the agent.
func (s *story) connect(handle string) error {
	client := mcp.NewClient(&mcp.Implementation{Name: "handclasp-demo", Version: version()}, nil)
	session, err := client.Connect(s.ctx, &mcp.StreamableClientTransport{
		Endpoint:   s.url + "/mcp",
		HTTPClient: &http.Client{Transport: withHeader{"Authorization", "Bearer " + s.keys[handle], http.DefaultTransport}},
	}, nil)
	if err != nil {
		return fmt.Errorf("connect as %s: %w", handle, err)
	}
	s.sessions[handle] = session
	return nil
}

func (s *story) disconnect() {
	for _, session := range s.sessions {
		_ = session.Close()
	}
}

// call makes a tool call as the agent, which has to succeed.
func (s *story) call(handle, tool string, args map[string]any) (map[string]any, error) {
	out, refused, err := s.try(handle, tool, args)
	if err == nil && refused {
		err = fmt.Errorf("%s: %v", tool, out["error"])
	}
	return out, err
}

// refused makes a tool call as the agent, which has to be refused, and gives the error.
func (s *story) refused(handle, tool string, args map[string]any) (map[string]any, error) {
	out, refused, err := s.try(handle, tool, args)
	if err != nil {
		return nil, err
	}
	fault, ok := out["error"].(map[string]any)
	if !refused || !ok {
		return nil, fmt.Errorf("%s by %s was not refused: %v", tool, handle, out)
	}
	return fault, nil
}

func (s *story) try(handle, tool string, args map[string]any) (out map[string]any, refused bool, err error) {
	res, err := s.sessions[handle].CallTool(s.ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", tool, err)
	}
	out, ok := res.StructuredContent.(map[string]any)
	if !ok {
		return nil, false, fmt.Errorf("%s: no structured content came", tool)
	}
	return out, res.IsError, nil
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

func indent(text any) string {
	return "     " + strings.ReplaceAll(fmt.Sprint(text), "\n", "\n     ")
}
