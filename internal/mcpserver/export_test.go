package mcpserver

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/hub"
)

// What the tests over HTTP, in package mcpserver_test, need from inside.

// PageBytes is the byte budget of one result.
const PageBytes = pageBytes

// OutsideFences is [outsideFences].
func OutsideFences(s string) string { return outsideFences(s) }

// Definitions are the tools of a set as a hub that is not strict publishes them.
func Definitions(set string) []*mcp.Tool {
	tools := ofSet(allTools, set, false)
	out := make([]*mcp.Tool, len(tools))
	for i := range tools {
		out[i] = tools[i].definition()
	}
	return out
}

// The secret that the broken tools carry in their cause.
const brokenCause = "CAUSE_OF_THE_FAULT select * from api_keys"

// BrokenCause must never reach a caller.
const BrokenCause = brokenCause

// Prompts are the names of the prompts that are published.
func Prompts() []string {
	var out []string
	for i := range teamPrompts {
		out = append(out, teamPrompts[i].name)
	}
	return out
}

// ListedHandoffs is how many handoffs resources/list names at most.
const ListedHandoffs = listedHandoffs

// AddBroken gives the server tools and prompts that fail as our own faults do.
func AddBroken(s *Server) {
	fails := func(name string, run func(context.Context, *Server, hub.Call, json.RawMessage) (*result, error)) tool {
		return tool{set: "team", name: name, title: "A tool that fails", desc: "For tests.", params: []param{raw("payload", "Any.")}, run: run}
	}
	s.tools = append(s.tools[:len(s.tools):len(s.tools)],
		fails("test_panic", func(context.Context, *Server, hub.Call, json.RawMessage) (*result, error) { panic(brokenCause) }),
		fails("test_error", func(context.Context, *Server, hub.Call, json.RawMessage) (*result, error) {
			return nil, errors.New(brokenCause)
		}),
		fails("test_finish", func(context.Context, *Server, hub.Call, json.RawMessage) (*result, error) { return nil, nil }),
	)
	broken := func(name string, run func(context.Context, *Server, hub.Call, json.RawMessage) (string, error)) prompt {
		return prompt{set: "team", name: name, title: "A prompt that fails", desc: "For tests.", params: []param{str("what", "Any.")}, run: run}
	}
	s.prompts = append(s.prompts[:len(s.prompts):len(s.prompts)],
		broken("test_panic", func(context.Context, *Server, hub.Call, json.RawMessage) (string, error) { panic(brokenCause) }),
		broken("test_error", func(context.Context, *Server, hub.Call, json.RawMessage) (string, error) {
			return "", errors.New(brokenCause)
		}),
	)
}
