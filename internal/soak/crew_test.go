//go:build soak

package soak

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
)

// crew is the processes that share a data folder: a stdio process for each agent and, at times, a
// hub.
type crew struct {
	t     *testing.T
	where []string

	mu    sync.Mutex
	stdio map[string]*process // by handle
	hub   *process
}

// errGone says that the process which had the call was killed before it answered. Only the
// writers that used this very process may ever see that.
var errGone = errors.New("the process was killed")

// startStdio starts the stdio process of an agent, as its client does.
func (c *crew) startStdio(a agent) *process {
	c.t.Helper()
	p := launch(c.t, func(string) {}, append([]string{"mcp", "--as", a.Handle, "--toolset", "team", "--log-level", "info"}, c.where...)...)
	if err := p.mcp.Initialize(); err != nil {
		c.t.Fatalf("the stdio process of %s: %v\n%s", a.Handle, err, p.log)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stdio[a.Handle] = p
	return p
}

// startHub starts a hub, to which a stdio owner hands the folder over.
func (c *crew) startHub() *process {
	c.t.Helper()
	p := serve(c.t, c.where...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hub = p
	return p
}

// owner is the process that owns the folder, by its own word.
func (c *crew) owner() (*process, string) {
	c.t.Helper()
	info, err := owner.Ask(c.t.Context(), c.where[1])
	if err != nil {
		c.t.Fatalf("nobody owns the folder: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.hub != nil && c.hub.cmd.Process.Pid == info.PID {
		return c.hub, info.Kind
	}
	for _, p := range c.stdio {
		if p.cmd.Process.Pid == info.PID {
			return p, info.Kind
		}
	}
	c.t.Fatalf("%+v owns the folder, which is none of ours", info)
	return nil, ""
}

// stop ends all, the hub last, as their users do.
func (c *crew) stop() {
	c.t.Helper()
	for _, p := range c.stdio {
		p.stop(c.t)
		if strays := p.mcp.Strays(); len(strays) > 0 {
			c.t.Errorf("%d lines on stdout answered nothing that was open: %s", len(strays), some(strays))
		}
	}
	c.hub.stop(c.t)
	c.hub, c.stdio = nil, map[string]*process{}
}

// living waits for the process that get finds: one that was killed is started again.
func (c *crew) living(get func() *process) (*process, error) {
	for ; !c.t.Failed(); time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		p := get()
		c.mu.Unlock()
		if p != nil && !p.killed.Load() {
			return p, nil
		}
	}
	return nil, errors.New("the test has failed, and the process is not there")
}

// overStdio calls as an agent through its stdio process.
type overStdio struct{ *crew }

func (c overStdio) call(as agent, tool string, args map[string]any, out any) error {
	p, err := c.living(func() *process { return c.stdio[as.Handle] })
	if err != nil {
		return err
	}
	answer, ok := <-p.mcp.Call(tool, args)
	switch {
	case ok:
		return decode(http.StatusOK, answer, out)
	case p.killed.Load():
		return errGone
	}
	return fmt.Errorf("the stdio process of %s, which nobody killed: %w\n%s", as.Handle, hubtest.ErrEnded, p.log)
}

func (overStdio) close() {}

// overHTTP calls the hub, wherever it is at the moment.
type overHTTP struct {
	*crew
	at *process
	*client
}

func (c *overHTTP) call(as agent, tool string, args map[string]any, out any) error {
	p, err := c.living(func() *process { return c.hub })
	if err != nil {
		return err
	}
	if c.at != p {
		c.close()
		c.at, c.client = p, newClient(p.url)
	}
	err = c.client.call(as, tool, args, out)
	var said *refusal
	if err != nil && p.killed.Load() && !errors.As(err, &said) {
		return errGone
	}
	return err
}

func (c *overHTTP) close() {
	if c.client != nil {
		c.client.close()
	}
}

// limited reports whether a call came too early: a stdio process that owns the folder limits
// each agent to 600 calls a minute.
func limited(err error) bool {
	var r *refusal
	return errors.As(err, &r) && r.code == "rate_limited"
}
