package mcpserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// What prompts and resources share. They have no tool errors: a refusal is an error of the
// protocol.

// answered surrounds a prompt or a resource with what [Server.serve] is to a tool: identity,
// recovery and the one translation of errors. The rate was counted before (see [Server.counted]).
func answered[Out any](ctx context.Context, s *Server, what slog.Attr, extra *mcp.RequestExtra, f func(context.Context, hub.Call) (Out, error)) (out Out, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.protocolError(ctx, what, fmt.Errorf("panic in %s: %v\n%s", what, p, debug.Stack()))
		}
	}()
	ctx, cancel := tied(ctx)
	defer cancel()
	call, ok := callIn(extra)
	if !ok {
		return out, s.protocolError(ctx, what, noCredential())
	}
	out, err = f(ctx, call)
	var ready *jsonrpc.Error
	if err == nil || errors.As(err, &ready) {
		return out, err
	}
	return out, s.protocolError(ctx, what, err)
}

// protocolError makes a JSON-RPC error of err: sentence and advice in its message, because most
// clients show nothing else, and the code and the details in its data.
func (s *Server) protocolError(ctx context.Context, what slog.Attr, err error) error {
	e := s.translate(ctx, what, err)
	data := map[string]any{"code": e.Code, "hint": e.Hint, "retryable": e.Retryable()}
	maps.Copy(data, e.Details)
	out := &jsonrpc.Error{Code: rpcCode(e.Code), Message: e.Message}
	if e.Hint != "" {
		out.Message += "\n" + e.Hint
	}
	out.Data, _ = json.Marshal(data) // numbers and texts
	return out
}

// rpcCode is the JSON-RPC code of a refusal outside of tools.
func rpcCode(code handoff.Code) int64 {
	switch relay := handoff.Lookup(code).Relay; {
	case code == handoff.CodeInternal || code == handoff.CodeUnavailable:
		return jsonrpc.CodeInternalError
	case relay == 0:
		return jsonrpc.CodeInvalidRequest
	default:
		return int64(relay)
	}
}
