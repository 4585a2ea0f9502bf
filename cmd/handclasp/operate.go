package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/owner"
	"handclasp/internal/telemetry"
)

// operate gives f a client of the operator's routes: those of the process that owns the
// folder, or of a hub that this command opens for the moment. A folder without a hub is refused,
// for it is mistyped more often than meant.
func operate(e *env, where *config.Where, f func(*operatorClient) error) error {
	return operateOn(e, where, false, f)
}

// operateOn is operate; founding makes a hub where there is none.
func operateOn(e *env, where *config.Where, founding bool, f func(*operatorClient) error) error {
	if err := where.Check(); err != nil {
		return usageError{err}
	}
	ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
	defer cancel()
	if where.DatabaseURL != "" {
		return operateHere(ctx, where, f)
	}
	if !founding {
		if err := hubIn(where.Data); err != nil {
			return err
		}
	}
	for {
		own, err := owner.Take(where.Data)
		if err == nil {
			defer own.Release()
			return operateHere(ctx, where, f)
		}
		var owned owner.OwnedError
		if !errors.As(err, &owned) {
			return err
		}
		if _, err := owner.Ask(ctx, where.Data); err == nil {
			client := &operatorClient{ctx: ctx, http: &http.Client{Transport: owner.Transport(where.Data)}}
			defer client.http.CloseIdleConnections()
			return f(client)
		}
		// The owner is starting or ending; a moment later it is one or the other.
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w. It does not answer on %s", owned, owner.SocketPath(where.Data))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hubIn refuses a folder that holds no hub.
func hubIn(data string) error {
	if _, err := os.Stat(databaseFile(data)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no hub in %s. Name its folder with --data, or begin one with handclasp agent add or handclasp serve", data)
	}
	return nil
}

func operateHere(ctx context.Context, where *config.Where, f func(*operatorClient) error) error {
	n, err := openNode(ctx, config.Embedded(*where), "", telemetry.NewLogger(os.Stderr, "text", slog.LevelWarn))
	if err != nil {
		return err
	}
	err = f(&operatorClient{ctx: ctx, http: &http.Client{Transport: inProcess{n.doors.Operator}}})
	return errors.Join(err, n.close())
}

// inProcess answers requests with a handler, without a connection.
type inProcess struct{ h http.Handler }

// RoundTrip calls the handler.
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	rec := httptest.NewRecorder()
	p.h.ServeHTTP(rec, r)
	return rec.Result(), nil
}
