package mcpserver

import (
	"context"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Extension is what a test adds to a toolset, to be served by the same handler, middleware and
// wrapper as the tools of the hub.
type Extension struct {
	Tools []ExtraTool
	// Configure changes the options that the SDK's server is made with. It may be nil.
	Configure func(*mcp.ServerOptions)
	// Add offers further things, such as prompts. It may be nil.
	Add func(*mcp.Server)
	// Owns tells the name of a prompt or the URI of a resource that Add offers. It may be nil.
	Owns func(nameOrURI string) bool
	// Sessions keeps a session for each client, with streams that can be resumed, and lets tools
	// ask their client. The hub itself never does.
	Sessions bool
}

// ExtraTool is one tool of an [Extension].
type ExtraTool struct {
	Tool *mcp.Tool
	// Streams is set if the tool sends something before its result.
	Streams bool
	Run     mcp.ToolHandler
}

func (e *Extension) owns(nameOrURI string) bool { return e.Owns != nil && e.Owns(nameOrURI) }

func (e *Extension) streams(tool string) bool {
	for i := range e.Tools {
		if e.Tools[i].Streams && e.Tools[i].Tool.Name == tool {
			return true
		}
	}
	return false
}

// newServer makes the SDK's server, with the extension in it.
func (s *Server) newServer(impl *mcp.Implementation, opts *mcp.ServerOptions) *mcp.Server {
	e := &s.opts.Extension
	if e.Configure != nil {
		e.Configure(opts)
	}
	server := mcp.NewServer(impl, opts)
	for _, t := range e.Tools {
		server.AddTool(t.Tool, s.serve(&tool{name: t.Tool.Name, extra: t.Run}))
	}
	if e.Add != nil {
		e.Add(server)
	}
	return server
}

// runExtra runs a tool of the extension. It may also answer with an error of the protocol, which
// no tool of the hub does.
func (s *Server) runExtra(ctx context.Context, t *tool, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	out, err := t.extra(ctx, req)
	var protocol *jsonrpc.Error
	switch {
	case errors.As(err, &protocol):
		return nil, protocol
	case err != nil:
		return s.failed(ctx, t.name, err), nil
	}
	s.opts.Observe(t.name, "ok")
	return out, nil
}
