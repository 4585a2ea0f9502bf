package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"handclasp/internal/handoff"
	"handclasp/internal/owner"
	"handclasp/internal/restapi"
)

// operatorClient calls the operator's routes.
type operatorClient struct {
	ctx  context.Context //nolint:containedctx // a client lives for one command
	http *http.Client
}

func (c *operatorClient) get(path string, out any) error {
	return c.do(http.MethodGet, path, nil, out)
}

func (c *operatorClient) post(path string, in, out any) error {
	return c.do(http.MethodPost, path, in, out)
}

func (c *operatorClient) do(method, path string, in, out any) error {
	resp, err := c.open(method, path, in)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return json.NewDecoder(resp.Body).Decode(out)
}

// open makes a call and returns its answer with the body still to be read, or the refusal.
func (c *operatorClient) open(method, path string, in any) (*http.Response, error) {
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(c.ctx, method, owner.Base+path, &body)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachableError{err}
	}
	if resp.StatusCode < 400 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	var p restapi.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		return nil, fmt.Errorf("the hub answered with status %d", resp.StatusCode)
	}
	return nil, refusedError{p.Code, forPerson(p.Code, p.Detail, p.Hint)}
}

// refusedError is a refusal of the hub, worded for a terminal.
type refusedError struct {
	code handoff.Code
	text string
}

func (e refusedError) Error() string { return e.text }

// unreachableError says that the owner of the folder went away during a call.
type unreachableError struct{ err error }

func (e unreachableError) Error() string {
	return fmt.Sprintf("the hub that owns the folder did not answer: %v. Whether the command took effect is not known; list before you repeat it", e.err)
}

func (e unreachableError) Unwrap() error { return e.err }

// escape makes one segment of a path of any word: dots would be taken for folders, and nothing for
// the path above.
func escape(s string) string {
	if s == "" {
		s = " "
	}
	return strings.ReplaceAll(url.PathEscape(s), ".", "%2E")
}
