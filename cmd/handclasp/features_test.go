package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"handclasp/internal/restapi"
)

// toolAnswer is what a tool of a hub answers to the agent of a key, as it came.
func toolAnswer(t *testing.T, url, key, tool, arguments string) string {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestTheFlagsOfServeTurnFeaturesOffAndTrustStrict(t *testing.T) {
	t.Parallel()
	const base = `"project_root":"/srv/shop","from_agent_id":"anna@acme","target":{"strategy":"broadcast"},"visibility":"public"`
	cases := []struct{ flag, tool, args, on, off string }{
		{"--trust-mode=strict", "handoff_claim", `{"project_root":"/srv/shop","agent_id":"anna@acme"}`, "session_required", `"handoff_id":null`}, // before there is one
		{"--no-feature-trace", "handoff_create", `{` + base + `,"trace_id":"trace-7"}`, `Z","eligible_count"`, `Z","trace_id":"trace-7","eligible_count"`},
		{"--no-feature-verification", "handoff_create", `{` + base + `,"acceptance_criteria":["x"]}`, "feature_disabled", `"status":"OPEN"`},
		{"--no-feature-dag", "handoff_create", `{` + base + `,"depends_on":["x"]}`, "feature_disabled", "dependency_not_found"},
	}
	var flags []string
	for _, c := range cases {
		flags = append(flags, c.flag)
	}
	for what, flags := range map[string][]string{"with": flags, "without": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			data := filepath.Join(t.TempDir(), "hub")
			url := startServe(t, append([]string{"--data", data}, flags...)...)
			key := runJSON[restapi.NewKey](t, "agent", "add", "anna@acme", "--data", data).APIKey
			for _, c := range cases {
				want := c.off
				if flags != nil {
					want = c.on
				}
				if got := toolAnswer(t, url+"/mcp/pool", key, c.tool, c.args); !strings.Contains(got, want) {
					t.Errorf("%s %s, want %s: %s", what, c.flag, want, got)
				}
			}
			if got := toolAnswer(t, url+"/mcp/pool", key, "session_open", `{}`); strings.Contains(got, "project_root") != (flags != nil) {
				t.Errorf("%s: session_open at the pool answers %s", what, got)
			}
		})
	}
}

func TestTheLogSaysInWhichSessionSomethingWasDone(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "hub")
	url := startServe(t, "--data", data)
	key := runJSON[restapi.NewKey](t, "agent", "add", "anna@acme", "--data", data).APIKey
	opened := toolAnswer(t, url+"/mcp", key, "session_open", `{"project_root":"/srv/shop","agent_id":"anna@acme"}`)
	_, id, _ := strings.Cut(opened, `"session_id":"`)
	id, _, _ = strings.Cut(id, `"`)
	made := toolAnswer(t, url+"/mcp", key, "handoff_create",
		`{"project_root":"/srv/shop","from_agent_id":"anna@acme","target":{"strategy":"broadcast"},"visibility":"public","session_id":"`+id+`"}`)
	if !strings.Contains(made, `"status":"OPEN"`) {
		t.Fatal(made)
	}
	log := mustRun(t, "tail", "--data", data, "--after", "0", "--no-follow", "--json")
	for _, want := range []string{`"type":"session.opened","actor_id":"`, `"subject_id":"` + id + `"`, `"session_id":"` + id + `"`} {
		if strings.Count(log, want) != 1 {
			t.Errorf("%s should stand once in\n%s", want, log)
		}
	}
	if strings.Contains(log, "hcs_") {
		t.Error("the log holds the secret")
	}
	ok(t, "tail", "--data", data, "--after", "0", "--no-follow").wants(t, "session.opened", id)
}
