package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
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
		return operateHere(ctx, e, where, f)
	}
	there := hubIn
	if founding {
		there = owner.Make
	}
	if err := there(where.Data); err != nil {
		return err
	}
	for give := time.Now().Add(frozenAfter); ; {
		own, err := owner.Take(where.Data)
		if err == nil {
			defer own.Release()
			return operateHere(ctx, e, where, f)
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
			return unanswered(owned)
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(give) {
			return unanswered(owned)
		}
	}
}

// operateAtLength is operate for what may take long: where nobody owns the folder, this process
// serves others meanwhile.
func operateAtLength(e *env, where *config.Where, f func(*operatorClient) error) error {
	if err := where.Check(); err != nil {
		return usageError{err}
	}
	conn, err := connectHere(e.ctx, where, "", false, telemetry.NewLogger(e.stderr, "text", slog.LevelError))
	if err != nil {
		return err
	}
	defer conn.close()
	return f(&operatorClient{ctx: e.ctx, http: conn.client()})
}

// frozenAfter is how long an owner may take to start or to end.
const frozenAfter = 8 * time.Second

// unanswered says that the owner is there and frozen, or hangs.
func unanswered(owned owner.OwnedError) error {
	return fmt.Errorf("%w. It does not answer on %s", owned, owner.SocketPath(owned.Data))
}

// hubIn refuses a folder that holds no hub.
func hubIn(data string) error {
	if _, err := os.Stat(databaseFile(data)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no hub in %s. Name its folder with --data, or begin one with handclasp agent add, handclasp business add or handclasp serve", data)
	}
	return nil
}

func operateHere(ctx context.Context, e *env, where *config.Where, f func(*operatorClient) error) error {
	n, err := openNode(ctx, config.Embedded(*where), "", telemetry.NewLogger(e.stderr, "text", slog.LevelWarn))
	if err != nil {
		return err
	}
	err = f(&operatorClient{ctx: ctx, http: &http.Client{Transport: inProcess{n.doors.Operator}}})
	return errors.Join(err, n.close())
}
