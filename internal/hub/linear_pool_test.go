package hub_test

import (
	"hash/maphash"
	"slices"

	"github.com/anishathalye/porcupine"

	"handclasp/internal/handoff"
)

// nullsAtOnce bounds how many claims that found nothing are judged together: each may have been at
// many moments, and many of them at very many.
const nullsAtOnce = 6

// pools are the history of what changed the pool, each time with a few of the claims that found nothing
// there. Here a call that was cut off counts as what the hub did, at any later time, even if nobody
// was told.
func (h *history) pools() (parts [][]porcupine.Operation) {
	var changes, nulls []porcupine.Operation
	for _, s := range h.ops {
		op := h.operation(s)
		if s.out.unknown {
			op.Output = s.unheard
		}
		switch out := op.Output.(*told); {
		case out.code != "" || out.replay || s.in.verb == "get" || s.out.unknown && out.none:
		case out.none:
			nulls = append(nulls, op)
		default:
			changes = append(changes, op)
		}
	}
	parts = append(parts, changes)
	for some := range slices.Chunk(nulls, nullsAtOnce) {
		parts = append(parts, slices.Concat(changes, some))
	}
	return parts
}

// ledgers are all handoffs of a history.
type ledgers [mostHandoffs]ledger

// poolModel is the pool. A claim of the next one takes something that the caller may claim; where
// writers come one after the other, the first of them. It takes nothing only if there is nothing.
func poolModel(inOrder bool) porcupine.Model {
	model := porcupine.NondeterministicModel{
		Init: func() []any {
			var all ledgers
			for i := range all {
				all[i].holder = nobody
			}
			return []any{all}
		},
		Step: func(state, input, output any) []any {
			return state.(ledgers).follow(input.(*asked), output.(*told), inOrder)
		},
		Hash: func(state any) uint64 { return maphash.Comparable(seedOfHashes, state.(ledgers)) },
	}
	return model.ToModel()
}

func (all ledgers) follow(in *asked, out *told, inOrder bool) (next []any) {
	step := func(on int) {
		was := all[on]
		for _, s := range was.follow(in, out) {
			if s != was || !out.unknown {
				after := all
				after[on] = s
				next = append(next, after)
			}
		}
	}
	switch {
	case out.none:
		if all.none(in) {
			next = append(next, all)
		}
	case in.verb != "next" && out.unknown:
		next = append(next, all)
		step(in.on)
	case in.verb != "next":
		step(in.on)
	case out.unknown:
		next = append(next, all)
		if !all.used(in, -1) {
			for on := range all {
				step(on)
			}
		}
	case !all.used(in, out.on) && (out.replay || !inOrder || all.first(in, out.on)):
		step(out.on)
	}
	return next
}

// used reports whether the key of the call took another handoff.
func (all ledgers) used(in *asked, but int) bool {
	for on, s := range all {
		if _, found := s.did(in); found && on != but {
			return true
		}
	}
	return false
}

// none reports whether there may have been nothing that the caller could claim.
func (all ledgers) none(in *asked) bool {
	for _, s := range all {
		if s.made && s.mayClaim(in.actor) && (s.state == handoff.Open || s.state == handoff.Claimed && !s.mayHold(in)) {
			return false
		}
	}
	return true
}

// first reports whether nothing that is surely open comes before one.
func (all ledgers) first(in *asked, on int) bool {
	for i, s := range all {
		open := s.state == handoff.Open || s.state == handoff.Claimed && !s.mayHold(in)
		if i != on && s.made && s.mayClaim(in.actor) && open && s.place != "" && s.place < all[on].place {
			return false
		}
	}
	return true
}
