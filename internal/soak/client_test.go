//go:build soak

package soak

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// client speaks MCP over one connection that it keeps open.
type client struct {
	url  string
	http *http.Client
}

func newClient(hub string) *client {
	return &client{hub + "/mcp/team", &http.Client{
		Timeout:   60 * time.Second,
		Transport: &http.Transport{MaxConnsPerHost: 1, MaxIdleConnsPerHost: 1},
	}}
}

// dial is a connection to a hub for a writer.
func (p *process) dial(int) caller { return newClient(p.url) }

func (c *client) close() { c.http.CloseIdleConnections() }

// refusal is an answer of the hub that says no.
type refusal struct{ code, text string }

func (r *refusal) Error() string { return r.code + ": " + r.text }

// unavailable reports whether the hub said that it cannot just now.
func unavailable(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == "unavailable"
}

// surelyNothing reports whether a failed call was told that it has no effect. One that got no
// answer was told nothing.
func surelyNothing(err error) bool {
	var r *refusal
	return errors.As(err, &r) && !strings.Contains(r.text, "not known")
}

// call implements caller; where no answer came its error is the transport's.
func (c *client) call(as agent, tool string, args map[string]any, out any) error {
	body, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": tool, "arguments": args},
	})
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+as.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("MCP-Protocol-Version", "2025-11-25")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	return decode(resp.StatusCode, answer, out)
}

func decode(status int, answer []byte, out any) error {
	if status != http.StatusOK {
		var problem struct{ Code, Message string }
		_ = json.Unmarshal(answer, &problem)
		return &refusal{problem.Code, fmt.Sprintf("HTTP status %d: %s", status, problem.Message)}
	}
	var envelope struct {
		Result *struct {
			IsError    bool            `json:"isError"`
			Structured json.RawMessage `json:"structuredContent"`
		} `json:"result"`
	}
	if err := json.Unmarshal(answer, &envelope); err != nil || envelope.Result == nil {
		return &refusal{"protocol_error", string(answer)}
	}
	if !envelope.Result.IsError {
		return json.Unmarshal(envelope.Result.Structured, out)
	}
	var failed struct {
		Error struct{ Code, Message string } `json:"error"`
	}
	if err := json.Unmarshal(envelope.Result.Structured, &failed); err != nil {
		return &refusal{"protocol_error", string(answer)}
	}
	return &refusal{failed.Error.Code, failed.Error.Message}
}
