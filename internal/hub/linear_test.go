package hub_test

import (
	"fmt"
	"hash/maphash"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"handclasp/internal/hubtest"
)

// Linearizability. Sixteen clients call a hub at once, while its clock moves, clients leave before
// they are answered and repeat what they asked, and the hub is restarted. What they saw must fit an
// order in which each call took effect at one moment between its begin and its answer: for every
// handoff by itself, and for the pool, from which claims take the next one.
//
// HANDCLASP_LINEAR_RUNS is how many histories there are of each database, instead of a few.

func linearRuns(t *testing.T) int {
	text := os.Getenv("HANDCLASP_LINEAR_RUNS")
	if text == "" {
		return 6
	}
	n, err := strconv.Atoi(text)
	noError(t, err)
	return n
}

// patience is how long one partition may take to be decided.
const patience = 60 * time.Second

func TestWhatClientsSeeFitsOneOrderOfEvents(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, kind)
			operations, cutOff, partitions, undecided, runs := 0, 0, 0, 0, linearRuns(t)
			for run := range runs {
				h := w.record(run)
				if t.Failed() {
					return
				}
				operations += len(h.ops)
				cutOff += int(h.cutOff.Load())
				parts := h.parts()
				for i, part := range append(slices.Clip(parts), h.pools()...) {
					model, what := ledgerModel(), fmt.Sprintf("handoff %d", i)
					if i >= len(parts) {
						model, what = poolModel(kind == "sqlite"), "the pool"
					}
					partitions++
					switch porcupine.CheckOperationsTimeout(model, part, patience) {
					case porcupine.Unknown:
						undecided++
						t.Errorf("run %d: %s: undecided", run, what)
					case porcupine.Illegal:
						t.Fatalf("run %d: %s: what the clients saw is not linearizable\n%s", run, what, unfit(model, part))
					}
				}
			}
			t.Logf("%s: %d histories, %d operations of which %d were cut off, %d partitions, %d undecided", kind, runs, operations, cutOff, partitions, undecided)
		})
	}
}

// operation is a call for the checker. One that was cut off may take effect at any later time.
func (h *history) operation(s seen) porcupine.Operation {
	if s.out.unknown {
		s.ret = math.MaxInt64
		s.in.till = h.f.Clock.Now().UnixMicro()
	}
	return porcupine.Operation{ClientId: s.in.client, Input: &s.in, Output: &s.out, Call: s.call, Return: s.ret}
}

// parts is the history of each handoff. A claim of the next one that was cut off may have taken any
// of them, unless it was repeated with its key and answered.
func (h *history) parts() [][]porcupine.Operation {
	took := h.answeredByKey()
	parts := make([][]porcupine.Operation, h.created)
	for _, s := range h.ops {
		on := s.in.on
		switch {
		case s.out.none, s.out.code != "" && on < 0:
			continue
		case on < 0 && !s.out.unknown:
			on = s.out.on
		case on < 0:
			if by, ok := took[s.in.key]; ok {
				on = by
			}
		}
		for i := range parts {
			if on == i || on < 0 {
				parts[i] = append(parts[i], h.operation(s))
			}
		}
	}
	return parts
}

// answeredByKey is what claims of the next one with a key took.
func (h *history) answeredByKey() map[string]int {
	took := map[string]int{}
	for _, s := range h.ops {
		if s.in.verb == "next" && s.in.key != "" && !s.out.unknown && !s.out.none && s.out.code == "" {
			took[s.in.key] = s.out.on
		}
	}
	return took
}

// unfit lists a history that no order fits: first the calls of the longest order that was found, in
// that order, then the others.
func unfit(model porcupine.Model, part []porcupine.Operation) string {
	_, info := porcupine.CheckOperationsVerbose(model, part, patience)
	var longest []porcupine.Operation
	for _, some := range info.PartialLinearizationsOperations()[0] {
		if len(some) > len(longest) {
			longest = some
		}
	}
	placed := map[any]bool{}
	var b strings.Builder
	line := func(op porcupine.Operation) {
		fmt.Fprintf(&b, "%4d-%-19d %s\n", op.Call, op.Return, described(op.Input, op.Output))
	}
	for _, op := range longest {
		placed[op.Input] = true
		line(op)
	}
	b.WriteString("and these fit nowhere behind:\n")
	slices.SortFunc(part, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, op := range part {
		if !placed[op.Input] {
			line(op)
		}
	}
	return b.String()
}

func described(input, output any) string {
	in, out := input.(*asked), output.(*told)
	said := fmt.Sprintf("%s epoch %d by a%d until %d replay=%v on %d", out.state, out.epoch, out.holder, out.ends, out.replay, out.on)
	switch {
	case out.unknown:
		said = "?"
	case out.none:
		said = "none"
	case out.code != "":
		said = fmt.Sprintf("%s (a%d)", out.code, out.by)
	}
	return fmt.Sprintf("c%d a%d %s %d epoch=%d lease=%d key=%q %q pass=%v %+v at %d-%d -> %s", in.client, in.actor, in.verb, in.on, in.epoch, in.lease, in.key, in.text, in.pass, in.made, in.from, in.till, said)
}

var seedOfHashes = maphash.MakeSeed()

// ledgerModel is one handoff.
func ledgerModel() porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any { return []any{ledger{holder: nobody}} },
		Step: func(state, input, output any) (next []any) {
			for _, s := range state.(ledger).follow(input.(*asked), output.(*told)) {
				next = append(next, s)
			}
			return next
		},
		Hash: func(state any) uint64 { return maphash.Comparable(seedOfHashes, state.(ledger)) },
	}
	return model.ToModel()
}
