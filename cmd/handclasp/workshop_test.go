package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"handclasp/internal/config"
	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/owner"
	"handclasp/internal/telemetry"
)

// workshop is a database with agents and handoffs, on which the real command line works.
type workshop struct {
	t     *testing.T
	where config.Where
	at    []string // the same as flags
}

// newWorkshop makes one in a folder.
func newWorkshop(t *testing.T) *workshop { return newWorkshopOn(t, "sqlite") }

func newWorkshopOn(t *testing.T, kind string) *workshop {
	w := &workshop{t: t, at: where(t, kind)}
	w.where = config.Where{Data: w.at[1]}
	if kind == "postgres" {
		w.where = config.Where{DatabaseURL: w.at[1]}
	}
	aHub(t, w.at, "anna@acme", "frank@acme", "grace@acme")
	return w
}

// onEach runs the test in a workshop on each database.
func onEach(t *testing.T, test func(t *testing.T, w *workshop)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, newWorkshopOn(t, kind))
		})
	}
}

// within calls the hub as agents do, while no command runs.
func (w *workshop) within(f func(h *hub.Hub, as func(handle string) hub.Call)) {
	w.t.Helper()
	if w.where.Data != "" {
		own, err := owner.Take(w.where.Data)
		if err != nil {
			w.t.Fatal(err)
		}
		defer own.Release()
	}
	n, err := openNode(context.Background(), config.Embedded(w.where), "", telemetry.NewLogger(io.Discard, "text", 0))
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() {
		if err := n.close(); err != nil {
			w.t.Error(err)
		}
	}()
	f(n.hub, func(handle string) hub.Call {
		list, err := n.hub.Agents(context.Background(), hub.Call{Actor: handoff.Operator()})
		for _, a := range list {
			if a.Handle == handle {
				return hub.Call{Actor: handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle}}
			}
		}
		w.t.Fatalf("no agent %s: %v", handle, err)
		return hub.Call{}
	})
}

// send makes handoffs from anna to frank and returns their ids; frank accepts the last taken ones.
func (w *workshop) send(taken int, summaries ...string) []string {
	w.t.Helper()
	var ids []string
	w.within(func(h *hub.Hub, as func(string) hub.Call) {
		for i, s := range summaries {
			out, err := h.Create(context.Background(), as("anna@acme"), hub.CreateInput{To: "frank@acme", Intent: handoff.AskQuestion, Summary: s, Question: "which?"})
			if err == nil && i >= len(summaries)-taken {
				_, err = h.Accept(context.Background(), as("frank@acme"), hub.AcceptInput{ThreadID: out.ThreadID})
			}
			if err != nil {
				w.t.Fatal(err)
			}
			ids = append(ids, out.ThreadID)
		}
	})
	return ids
}

func (w *workshop) run(args ...string) *program {
	return runProgram(context.Background(), slices.Concat(args, w.at)...)
}

func (w *workshop) ok(args ...string) string {
	w.t.Helper()
	return ok(w.t, slices.Concat(args, w.at)...).stdout.String()
}

// json runs a command with --json and reads what it printed, which must be one document.
func (w *workshop) json(out any, args ...string) {
	w.t.Helper()
	oneDocument(w.t, w.ok(append(args, "--json")...), out)
}

func (w *workshop) refused(code int, want string, args ...string) {
	w.t.Helper()
	if p := w.run(args...); p.code != code || !strings.Contains(p.stderr.String(), want) || p.stdout.Len() > 0 {
		w.t.Errorf("%v: exit %d, %s%s", args, p.code, p.stderr.String(), p.stdout.String())
	}
}
