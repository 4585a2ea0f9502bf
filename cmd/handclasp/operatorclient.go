package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

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
	var body bytes.Buffer
	if in != nil {
		if err := json.NewEncoder(&body).Encode(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(c.ctx, method, "http://owner"+path, &body)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachableError{err}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode >= 400 {
		var p restapi.Problem
		if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
			return fmt.Errorf("the hub answered with status %d", resp.StatusCode)
		}
		if p.Hint != "" {
			return fmt.Errorf("%s. %s", p.Detail, p.Hint)
		}
		return errors.New(p.Detail)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

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

func printJSON(e *env, v any) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
