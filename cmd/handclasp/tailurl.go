package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/restapi"
)

// hubPause is the pause before a hub that went away is looked for again.
const hubPause = time.Second

// agentLog is the log of the hub at an address, as the agent of the key sees it.
type agentLog struct {
	ctx  context.Context //nolint:containedctx // it lives for one command
	conn *connection
	// begun: the hub has answered, so it is there and the key counts; what fails now may pass.
	begun bool
}

func (a *agentLog) close() { a.conn.close() }

// laterError is a failure that may pass.
type laterError struct {
	error
	pause time.Duration
}

func (e laterError) Unwrap() error { return e.error }

func (a *agentLog) again(err error) time.Duration {
	var later laterError
	if a.begun && errors.As(err, &later) {
		return later.pause
	}
	return 0
}

func (a *agentLog) next(cursor string, wait int) (list []tailed, next string, more bool, err error) {
	q := url.Values{"cursor": {cursor}, "wait": {strconv.Itoa(wait)}, "limit": {"500"}}
	req, err := http.NewRequestWithContext(a.ctx, http.MethodGet, a.conn.base+"/api/v1/events?"+q.Encode(), http.NoBody)
	if err != nil {
		return nil, "", false, err
	}
	resp, err := a.conn.client().Do(req)
	if err != nil {
		return nil, "", false, laterError{errors.New(a.conn.explain(err)), hubPause}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, "", false, a.refused(resp)
	}
	var page restapi.AgentEventPage
	if err := json.NewDecoder(resp.Body).Decode(&page); err != nil { // it broke off, or another program answers
		return nil, "", false, laterError{errors.New(a.conn.explain(err)), hubPause}
	}
	a.begun = true
	for i := range page.Events {
		ev := &page.Events[i]
		list = append(list, tailed{&ev.Event, ev.Actor, ev.SubjectID, ev})
	}
	return list, page.NextCursor, page.HasMore, nil
}

// refused words an answer that is none of events.
func (a *agentLog) refused(resp *http.Response) error {
	var p struct {
		restapi.Problem
		Message string // of what the hub refuses before it looks further
	}
	err := json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p)
	switch {
	case err != nil || p.Code == "" || p.Detail+p.Message == "":
		return errors.New(a.conn.explain(fmt.Errorf("no hub answers there (status %d)", resp.StatusCode)))
	case resp.StatusCode == http.StatusNotFound:
		return fmt.Errorf("the hub at %s has no log for agents: it runs an older version", a.conn.where)
	}
	refusal := errors.New(strings.Replace(forPerson(p.Code, p.Detail+p.Message, p.Hint), "--cursor:", "--after:", 1))
	if p.Code != handoff.CodeUnavailable && p.Code != handoff.CodeRateLimited {
		return refusal
	}
	pause := hubPause
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds <= 60 {
		pause = time.Duration(seconds) * time.Second
	}
	return laterError{refusal, pause}
}
