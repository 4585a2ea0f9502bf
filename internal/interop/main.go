// Command interop is the client of the official Go SDK in scripts/interop. Without an argument it
// passes a handoff on from end to end, at both revisions of the protocol, over HTTP and over stdio;
// HUB_URL, HUB_BINARY, HUB_DATA, ANNA_KEY and FRANK_KEY say where and who. "interop drain sqlite"
// and "interop drain postgres" let worker processes in other languages empty one pool, and count.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:])
	cancel()
	os.Exit(code)
}

// run gives the exit code. A check that fails unwinds it, so that all that was begun is ended.
func run(ctx context.Context, args []string) (code int) {
	defer func() {
		switch what := recover().(type) {
		case nil:
		case failure:
			fmt.Fprintln(os.Stderr, "NOT ok:", what)
			code = 1
		default:
			panic(what)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if len(args) == 2 && args[0] == "drain" {
		return drain(ctx, args[1])
	}
	stories(ctx)
	return 0
}

func stories(ctx context.Context) {
	url := os.Getenv("HUB_URL") + "/mcp/team"
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		stdio := func(who string) mcp.Transport {
			cmd := exec.CommandContext(ctx, os.Getenv("HUB_BINARY"), "mcp", "--as", who, "--data", os.Getenv("HUB_DATA"), "--toolset", "team")
			cmd.Stderr = os.Stderr
			return &mcp.CommandTransport{Command: cmd}
		}
		story(ctx, "Go SDK over HTTP, "+revision, revision, overHTTP(url, os.Getenv("ANNA_KEY")), overHTTP(url, os.Getenv("FRANK_KEY")))
		story(ctx, "Go SDK over stdio, "+revision, revision, stdio("anna@acme"), stdio("frank@acme"))
	}
}

func overHTTP(url, key string) mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: keyed(key)}, DisableStandaloneSSE: true}
}

// keyed adds a key to every request.
type keyed string

func (k keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(k))
	return http.DefaultTransport.RoundTrip(r)
}

// failure is a check that failed.
type failure string

// check prints a line for what holds; what does not ends run.
func check(what string, holds bool, seen ...any) {
	must(what, holds, seen...)
	ok(what)
}

// ok prints the line of a check; by itself, for what many calls of must have found.
func ok(what string) { fmt.Println("ok ", what) }

// must is check for what is no news as long as it holds.
func must(what string, holds bool, seen ...any) {
	if !holds {
		panic(failure(what + " " + fmt.Sprint(seen...)))
	}
}

func story(ctx context.Context, how, revision string, toAnna, toFrank mcp.Transport) {
	anna, frank := connect(ctx, how, revision, toAnna), connect(ctx, how, revision, toFrank)
	defer func() { _, _ = anna.Close(), frank.Close() }()
	check(how+": the client negotiates that revision", anna.InitializeResult().ProtocolVersion == revision, anna.InitializeResult())
	tools, err := anna.ListTools(ctx, nil)
	check(how+": tools/list names the twelve tools", err == nil && len(tools.Tools) == 12, err)
	prompts, err := anna.ListPrompts(ctx, nil)
	check(how+": prompts/list", err == nil && len(prompts.Prompts) > 0, err)
	resources, err := anna.ListResources(ctx, nil)
	check(how+": resources/list", err == nil && len(resources.Resources) > 0, err)
	read, err := anna.ReadResource(ctx, &mcp.ReadResourceParams{URI: resources.Resources[0].URI})
	check(how+": resources/read", err == nil && read.Contents[0].Text != "", err)

	sent := call(ctx, anna, "handoff_to_teammate", map[string]any{"to": "frank@acme", "intent": "inform", "summary": "By the Go SDK."})
	thread := sent["thread_id"]
	check(how+": hand off", sent["status"] == "pending", sent)
	check(how+": accept", call(ctx, frank, "accept_handoff", map[string]any{"thread_id": thread})["status"] == "accepted")
	done := call(ctx, frank, "complete_handoff", map[string]any{"thread_id": thread, "result_summary": "Done."})
	check(how+": complete", done["status"] == "completed", done)
	check(how+": the sender sees it", call(ctx, anna, "view_thread", map[string]any{"thread_id": thread})["status"] == "completed")
	late, err := frank.CallTool(ctx, &mcp.CallToolParams{Name: "decline_handoff", Arguments: map[string]any{"thread_id": thread, "reason": "Too late."}})
	check(how+": a refusal is a tool error", err == nil && late.IsError, err)
}

func connect(ctx context.Context, how, revision string, to mcp.Transport) *mcp.ClientSession {
	session, err := mcp.NewClient(&mcp.Implementation{Name: "handclasp-interop", Version: "0.0.0"}, nil).
		Connect(ctx, to, &mcp.ClientSessionOptions{ProtocolVersion: revision})
	check(how+": connect", err == nil, err)
	return session
}

// call is a tool call that must succeed.
func call(ctx context.Context, as *mcp.ClientSession, tool string, args map[string]any) map[string]any {
	result, err := as.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil || result.IsError {
		text, _ := json.Marshal(result)
		must(tool, false, err, string(text))
	}
	out, _ := result.StructuredContent.(map[string]any)
	return out
}
