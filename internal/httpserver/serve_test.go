package httpserver_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"handclasp/internal/httpserver"
	"handclasp/internal/hubtest"
)

// serving starts Serve on a loopback listener; stop ends it and returns its error.
func serving(t *testing.T, l *listener) (url string, stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ln := loopback(t)
	done := make(chan error, 1)
	go func() {
		done <- httpserver.Serve(ctx, ln, httpserver.New(l.cfg), l.Hub.Drain, slog.New(slog.NewTextHandler(l.Log, nil)))
	}()
	ended := false
	stop = func() error {
		if ended {
			return nil
		}
		ended = true
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(15 * time.Second):
			t.Fatal("the server did not end")
			return nil
		}
	}
	t.Cleanup(func() { _ = stop() })
	return "http://" + ln.Addr().String(), stop
}

func TestAShutdownLetsParkedCallsReturnNormally(t *testing.T) {
	t.Parallel()
	l := listen(t)
	url, stop := serving(t, l)
	type outcome struct {
		status int
		body   string
		err    error
	}
	const calls = 5
	got := make(chan outcome, calls)
	for range calls {
		go func() {
			r := l.request(http.MethodPost, "/mcp/team", strings.Replace(checkInbox, "{}", `{"wait_seconds":50}`, 1))
			r.URL.Host = strings.TrimPrefix(url, "http://")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				got <- outcome{err: err}
				return
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			got <- outcome{resp.StatusCode, string(b), err}
		}()
	}
	hubtest.Eventually(t, func() bool { return gauge(t, l.Metrics.ParkedCalls) == calls })
	began := time.Now()
	if err := stop(); err != nil {
		t.Errorf("Serve returned %v", err)
	}
	for range calls {
		o := <-got
		if o.err != nil || o.status != http.StatusOK || !strings.Contains(o.body, `"items":[]`) || strings.Contains(o.body, `"isError":true`) {
			t.Errorf("a parked call got %d %v %s", o.status, o.err, o.body)
		}
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
	if n := gauge(t, l.Metrics.ParkedCalls); n != 0 {
		t.Errorf("%v calls are still parked", n)
	}
	if _, err := http.Get(url + "/healthz"); err == nil {
		t.Error("the listener is still open")
	}
}

func TestACallInFlightIsFinishedByAShutdown(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	l := listen(t, func(c *httpserver.Config) {
		c.Inbox = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(entered)
			<-release
			_, _ = io.WriteString(w, "whole")
		})
	})
	url, stop := serving(t, l)
	got := make(chan string, 1)
	go func() {
		resp, err := http.Get(url + "/inbox")
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		got <- string(b)
	}()
	<-entered
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	hubtest.Eventually(t, func() bool { // the listener closes first
		_, err := http.Get(url + "/healthz")
		return err != nil
	})
	close(release)
	if err := <-ended; err != nil {
		t.Errorf("Serve returned %v", err)
	}
	if s := <-got; s != "whole" {
		t.Errorf("the call in flight got %q", s)
	}
}

func TestServeReturnsWhyItCannotListen(t *testing.T) {
	t.Parallel()
	ln := loopback(t)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	err := httpserver.Serve(t.Context(), ln, http.NotFoundHandler(), func() {}, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Error("no error")
	}
}
