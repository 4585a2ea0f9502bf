package hub

import (
	"slices"
	"sync"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// claimers remembers how agents claimed last, so that a claim that waits knows by which keys, and on
// PostgreSQL the parts of the next claim can be asked for at once. What is remembered may be out of
// date: then it is asked for again.
type claimers struct {
	byAgent sync.Map // of lastClaim
	stopped sync.Map // by stopKey, of store.Place
}

// A search that ended behind a heap of what does not fit goes on there the next time, or it would
// never get past it.
type stopKey struct {
	agentID, at string
	among       stage
}

// stop notes where a search ended before the end; the zero place is the end.
func (l *claimers) stop(agentID string, at place, among stage, p store.Place) {
	if p == (store.Place{}) {
		l.stopped.Delete(stopKey{agentID, at.id, among})
		return
	}
	l.stopped.Store(stopKey{agentID, at.id, among}, p)
}

// goOn is where a search begins that would begin at from.
func (l *claimers) goOn(agentID string, at place, among stage, from store.Place) store.Place {
	if was, ok := l.stopped.Load(stopKey{agentID, at.id, among}); ok {
		if was := was.(store.Place); from.Before(was) {
			return was
		}
	}
	return from
}

type lastClaim struct {
	at        string // the place that was meant
	workspace string // the workspace that it was
	keys      []string
}

func (l *claimers) note(a *handoff.Agent, at place, w store.Workspace) {
	keys := handoff.AgentKeys(a)
	if was, ok := l.byAgent.Load(a.ID); ok {
		if was := was.(lastClaim); was.at == at.id && was.workspace == w.ID && slices.Equal(was.keys, keys) {
			return
		}
	}
	l.byAgent.Store(a.ID, lastClaim{at: at.id, workspace: w.ID, keys: keys})
}

// wakes are the keys that the agent will wait for, as far as that is known.
func (l *claimers) wakes(agentID string, at place) []string {
	if was, ok := l.byAgent.Load(agentID); ok {
		if was := was.(lastClaim); was.at == at.id {
			return wakesOf(was.workspace, was.keys, false)
		}
	}
	return nil
}

func (l *claimers) expect(tx *store.Tx, agentID string, at place, s *search) {
	if was, ok := l.byAgent.Load(agentID); ok {
		if was := was.(lastClaim); was.at == at.id {
			tx.ExpectClaimant(agentID, at.id)
			tx.ExpectTakeOffered(was.workspace, s.among.keys(was.keys), s.after)
		}
	}
}
