package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/telemetry"
)

// asAgent gives f a session of the team toolset as the agent that the flags name.
func asAgent(e *env, id *config.Identity, f func(*session) error) error {
	conn, err := connect(e.ctx, id, false, telemetry.NewLogger(e.stderr, "text", slog.LevelError))
	if err != nil {
		return err
	}
	defer conn.close()
	if id.URL != "" { // the others were asked when they were opened
		if err := conn.check(e.ctx); err != nil {
			return err
		}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "handclasp", Version: version()}, nil)
	cs, err := client.Connect(e.ctx, &mcp.StreamableClientTransport{
		Endpoint: conn.base + "/mcp/team", HTTPClient: conn.client(), DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return errors.New(conn.explain(err))
	}
	defer func() { _ = cs.Close() }()
	s := &session{ctx: e.ctx, cs: cs, explain: conn.explain}
	if id.URL == "" {
		s.operator = &operatorClient{ctx: e.ctx, http: conn.client()}
	}
	return f(s)
}

// session calls tools as one agent.
type session struct {
	ctx     context.Context //nolint:containedctx // a session lives for one command
	cs      *mcp.ClientSession
	explain func(error) string
	// operator reaches the operator's routes too, where the data lies here; else it is nil.
	operator *operatorClient
}

// call calls a tool and decodes its structured content into out. A refusal becomes a sentence.
func (s *session) call(tool string, args map[string]any, out any) error {
	res, err := s.cs.CallTool(s.ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		return errors.New(s.explain(err))
	}
	b, err := json.Marshal(res.StructuredContent)
	if err != nil {
		return err
	}
	if !res.IsError {
		return json.Unmarshal(b, out)
	}
	var failed struct {
		Error struct {
			Code          handoff.Code
			Message, Hint string
		} `json:"error"`
	}
	if err := json.Unmarshal(b, &failed); err != nil {
		return err
	}
	return errors.New(forPerson(failed.Error.Code, failed.Error.Message, failed.Error.Hint))
}
