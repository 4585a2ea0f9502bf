package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/httpserver"
	"handclasp/internal/owner"
)

// connection is a hub as one agent reaches it, wherever it is.
type connection struct {
	base string // of the hub's paths
	http.RoundTripper
	// explain words why the hub cannot be reached, and what to do.
	explain func(error) string
	where   string // for a person
	// pause is the most between two tries of a call whose transport failed; 0 leaves it to the bridge.
	pause time.Duration
	close func()
}

// connect reaches the hub as the agent that the flags name: by its address; through the process
// that owns the local data folder, which is this one when there is no other; or on the database. A process
// that stays sends what is due meanwhile; one that is soon gone leaves it to others.
func connect(ctx context.Context, id *config.Identity, stays bool, log *slog.Logger) (*connection, error) {
	if err := id.Resolve(); err != nil {
		return nil, usageError{err}
	}
	if id.URL != "" {
		return connectURL(id, log), nil
	}
	return connectHere(ctx, &id.Where, id.As, stays, log)
}

// connectHere reaches the hub of the local data folder or of the database, as an agent or, with
// as empty, as the operator alone.
func connectHere(ctx context.Context, where *config.Where, as string, stays bool, log *slog.Logger) (*connection, error) {
	open := connectFolder
	if where.DatabaseURL != "" {
		open = connectDatabase
	}
	c, err := open(ctx, where, as, stays, log)
	if err != nil || as == "" {
		return c, err
	}
	if err := c.check(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// dialTimeout bounds how long a hub may take to be found.
const dialTimeout = 5 * time.Second

func connectURL(id *config.Identity, log *slog.Logger) *connection {
	if host := strings.TrimPrefix(id.URL, "http://"); host != id.URL && !loopback(host) {
		log.Warn("the key travels unencrypted to another machine: use https", "url", id.URL)
	}
	t := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is one
	t.DialContext = (&net.Dialer{Timeout: dialTimeout}).DialContext
	return &connection{
		base: id.URL, RoundTripper: withHeader{"Authorization", "Bearer " + id.Key, t}, where: id.URL, close: t.CloseIdleConnections,
		explain: func(err error) string {
			return fmt.Sprintf("the hub at %s cannot be used: %s. See that it runs (handclasp serve) and that --url is its root address", id.URL, reason(err))
		},
	}
}

func loopback(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// connectDatabase opens a hub on the database for this process alone; others may run beside it.
func connectDatabase(ctx context.Context, where *config.Where, as string, stays bool, log *slog.Logger) (*connection, error) {
	n, err := openNode(ctx, config.Embedded(*where), "", log)
	if err != nil {
		return nil, err
	}
	n.run(ctx, stays)
	return &connection{
		base: owner.Base, RoundTripper: withHeader{httpserver.ActAs, as, inProcess{n.socket()}}, where: "the database",
		explain: func(err error) string { return "the database cannot be used: " + reason(err) },
		close:   func() { logged(log, "database", n.close()) },
	}, nil
}

// connectFolder goes through the owner of the data folder, and sees to it that there is one.
func connectFolder(ctx context.Context, where *config.Where, as string, stays bool, log *slog.Logger) (*connection, error) {
	if err := hubIn(where.Data); err != nil {
		return nil, err
	}
	warnOfFolder(where.Data, log)
	keeper := &keeper{cfg: config.Embedded(*where), log: log, stays: stays, patience: dialTimeout}
	keepCtx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { owner.Keep(keepCtx, where.Data, keeper.run, keeper.failed) })
	t := owner.Transport(where.Data)
	c := &connection{
		base: owner.Base, RoundTripper: withHeader{httpserver.ActAs, as, t}, where: where.Data, explain: keeper.explain,
		pause: longestPauseHere,
		close: func() { t.CloseIdleConnections(); stop(); wg.Wait() },
	}
	if err := keeper.wait(ctx); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// longestPauseHere is short: the next owner of a folder is there within some 50 ms.
const longestPauseHere = 100 * time.Millisecond

// client calls the hub and follows no redirect: the key would go along, wherever that leads.
func (c *connection) client() *http.Client {
	return &http.Client{Transport: c, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// check asks whether the agent may be used. An owner that ends meanwhile has an heir, which is asked
// then.
func (c *connection) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	resp, err := c.probe(ctx)
	for err != nil && c.pause > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-time.After(c.pause):
			resp, err = c.probe(ctx)
		}
	}
	if err != nil {
		return errors.New(c.explain(err))
	}
	defer func() { _ = resp.Body.Close() }()
	var p struct{ Message string }
	switch resp.StatusCode {
	case http.StatusMethodNotAllowed:
		return nil // the credential counts, and GET itself is not served
	case http.StatusNotFound:
		if c.base == owner.Base {
			return errors.New("the process that owns the data folder runs an older handclasp, which serves no others: end it, or start it anew with this version")
		}
	default:
		if json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&p) == nil && p.Message != "" {
			return errors.New(p.Message)
		}
	}
	return errors.New(c.explain(fmt.Errorf("no hub answers there (status %d)", resp.StatusCode)))
}

// probe makes a call that changes nothing.
func (c *connection) probe(ctx context.Context) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/mcp", http.NoBody)
	if err != nil {
		return nil, err
	}
	return c.RoundTrip(req)
}

// keeper makes a hub of the folder whenever nobody else does.
type keeper struct {
	cfg *config.Serve
	log *slog.Logger
	// stays: this process does not end by itself.
	stays bool
	// patience is how long an owner may take to answer that is starting, ending or handing over.
	patience time.Duration

	mu  sync.Mutex
	err error // why this process could not make one, the last time it tried
}

// run is the hub of this process, until it ends or another asks for the folder.
func (k *keeper) run(ctx context.Context, own *owner.Owner) (err error) {
	if err := hubIn(k.cfg.Data); err != nil { // the folder was emptied since
		return err
	}
	n, err := openNode(ctx, k.cfg, "", k.log)
	if err != nil {
		return err
	}
	// What is cut here is repeated by those who called, at the owner that comes next.
	defer func() { own.CloseSocket(); err = errors.Join(err, n.close()) }()
	if err := own.Guard(databaseFile(k.cfg.Data)); err != nil {
		return err
	}
	if err := own.Serve(owner.Info{Kind: owner.MCP, Version: version()}, n.socket(), cutAfter, k.log); err != nil {
		return err
	}
	n.run(ctx, k.stays)
	k.failed(nil)
	k.log.Info("this process owns the data folder", "data", k.cfg.Data)
	select {
	case <-ctx.Done():
	case <-own.Lost():
		return folderLostError{k.cfg.Data}
	case <-own.Wanted():
		k.log.Info("the data folder is handed over to a hub", "data", k.cfg.Data)
	}
	return nil
}

// cutAfter is how long calls in flight may still run when a stdio owner ends.
const cutAfter = 300 * time.Millisecond

func (k *keeper) failed(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && (k.err == nil || k.err.Error() != err.Error()) {
		k.log.Error("this process cannot own the data folder", "error", err)
	}
	k.err = err
}

func (k *keeper) explain(err error) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		err = k.err
	} else if errors.Is(err, context.DeadlineExceeded) {
		if frozen, ok := k.frozen(); ok {
			err = unanswered(frozen)
		}
	}
	return fmt.Sprintf("the hub in %s cannot be used: %s", k.cfg.Data, reason(err))
}

// wait returns once the folder's hub answers, or says why it does not.
func (k *keeper) wait(ctx context.Context) error {
	give := time.Now().Add(k.patience)
	for {
		_, err := owner.Ask(ctx, k.cfg.Data)
		if err == nil {
			return nil
		}
		k.mu.Lock()
		failed := k.err
		k.mu.Unlock()
		switch {
		case failed != nil:
			return failed
		case time.Now().After(give):
			return k.silence(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// silence says why nobody answers: the owner is frozen, if there is one.
func (k *keeper) silence(err error) error {
	if owned, ok := k.frozen(); ok {
		return unanswered(owned)
	}
	return errors.New(k.explain(err))
}

// frozen is the owner that holds the folder, of which is known that it does not answer.
func (k *keeper) frozen() (owned owner.OwnedError, ok bool) {
	own, err := owner.Take(k.cfg.Data)
	if err == nil {
		own.Release()
	}
	return owned, errors.As(err, &owned)
}

// reason is the innermost cause, which says more to a person than the way it came.
func reason(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer came in time"
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return "it speaks http there, not https"
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	return err.Error()
}

// withHeader adds a header to every request: who calls.
type withHeader struct {
	name, value string
	next        http.RoundTripper
}

// RoundTrip adds the header.
func (t withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(t.name, t.value)
	return t.next.RoundTrip(r)
}
