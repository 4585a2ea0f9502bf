package store

import (
	"slices"
	"strings"

	"handclasp/internal/handoff"
)

// Offers are what can be taken or verified now, each under the keys that find it, in the order in
// which it is due: see [handoff.Handoff.Offers]. A row of the table exists exactly while its handoff
// is written down as waiting for somebody, so a page costs no more with a million handoffs behind it.

// setOffers turns the entries that a handoff had into those that it has.
func (tx *Tx) setOffers(h *handoff.Handoff, had, has []handoff.Offer) error {
	same := func(list []handoff.Offer, o handoff.Offer) bool {
		return slices.ContainsFunc(list, func(p handoff.Offer) bool {
			return p.Key == o.Key && p.Rank == o.Rank && p.Position.Equal(o.Position)
		})
	}
	for _, o := range had {
		if !same(has, o) {
			if err := tx.exec(`DELETE FROM offers WHERE target_key = $1 AND workspace_id = $2 AND rank = $3 AND position = $4 AND handoff_id = $5`,
				o.Key, h.WorkspaceID, o.Rank, micros(o.Position), h.ID); err != nil {
				return err
			}
		}
	}
	for _, o := range has {
		if !same(had, o) {
			if err := tx.exec(`INSERT INTO offers (target_key, workspace_id, rank, position, handoff_id) VALUES ($1, $2, $3, $4, $5)`,
				o.Key, h.WorkspaceID, o.Rank, micros(o.Position), h.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// Place is where a handoff stands among what is offered: what is due sooner comes first. The zero
// Place is before everything.
type Place struct {
	Rank      int
	CreatedAt int64 // microseconds
	ID        string
}

// PlaceOf is the place of a handoff.
func PlaceOf(h *handoff.Handoff) Place {
	return Place{Rank: -h.Priority, CreatedAt: micros(h.CreatedAt), ID: h.ID}
}

// Start is the place before everything.
var Start = Place{Rank: -2}

// Before reports whether p comes before q.
func (p Place) Before(q Place) bool {
	if p.Rank != q.Rank {
		return p.Rank < q.Rank
	}
	if p.CreatedAt != q.CreatedAt {
		return p.CreatedAt < q.CreatedAt
	}
	return p.ID < q.ID
}

// maxKeys bounds the branches of one statement; an agent with more keys costs a few statements.
const maxKeys = 100

// offered selects the ids under any of the keys in a workspace behind the place, at most limit of
// them, each key by a walk of the primary key.
func (tx *Tx) offered(workspace string, keys []string, after Place, limit int) (query string, args []any) {
	args = []any{workspace, after.Rank, after.CreatedAt, after.ID, limit}
	walk := func(key string) string {
		return `(SELECT rank, position, handoff_id FROM offers WHERE target_key = ` + key + ` AND workspace_id = $1
			AND (rank, position, handoff_id) > ($2, $3, $4) ORDER BY rank, position, handoff_id LIMIT $5) AS `
	}
	if !tx.Alone() { // one branch for all keys: there, starting a statement costs more than running it
		return `SELECT DISTINCT k.* FROM unnest(CAST($6 AS text[])) AS key CROSS JOIN LATERAL ` + walk("key") + "k", append(args, keys)
	}
	branches := make([]string, len(keys))
	for i, k := range keys {
		args = append(args, k)
		branches[i] = `SELECT * FROM ` + walk("$"+itoa(len(args))) + `k` + itoa(i)
	}
	return strings.Join(branches, " UNION "), args
}

// allColumns are handoffColumns of the table h; lightColumns are those without what only a holder reads.
var (
	allColumns   = "h." + strings.Join(strings.Fields(handoffColumns), " h.")
	lightColumns = strings.Replace(allColumns, "h.payload,", "'',", 1)
)

// A CROSS JOIN makes SQLite begin with the few rows that were found: without statistics it would
// rather walk all handoffs of one state.

// Offered reads the handoffs under any of the keys in a workspace behind the place, in their order
// and without payloads, at most limit of them. What they are written down as may be over by now.
func (tx *Tx) Offered(workspace string, keys []string, after Place, limit int) ([]handoff.Handoff, error) {
	var list []handoff.Handoff
	for some := range slices.Chunk(keys, maxKeys) {
		query, args := tx.offered(workspace, some, after, limit)
		found, err := tx.handoffs(`SELECT `+lightColumns+` FROM (SELECT * FROM (`+query+`) AS u ORDER BY rank, position, handoff_id LIMIT $5) AS o
			CROSS JOIN handoffs h WHERE h.id = o.handoff_id ORDER BY o.rank, o.position, o.handoff_id`, args)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	if len(keys) > maxKeys {
		list = InOrder(list)
		list = list[:min(limit, len(list))]
	}
	return list, nil
}

// InOrder sorts handoffs by their places and drops those that came twice.
func InOrder(list []handoff.Handoff) []handoff.Handoff {
	slices.SortFunc(list, func(a, b handoff.Handoff) int {
		switch p, q := PlaceOf(&a), PlaceOf(&b); {
		case p.Before(q):
			return -1
		case q.Before(p):
			return 1
		}
		return 0
	})
	return slices.CompactFunc(list, func(a, b handoff.Handoff) bool { return a.ID == b.ID })
}

// TakeOffered locks the first handoff under any of the keys behind the place that nobody else is
// changing just now. Where others write at the same time, none may be found although there is one.
func (tx *Tx) TakeOffered(workspace string, keys []string, after Place) (h handoff.Handoff, found bool, err error) {
	best := handoff.Handoff{}
	for some := range slices.Chunk(keys, maxKeys) {
		query, args := tx.takeOffered(workspace, some, after)
		list, err := tx.handoffs(query, args)
		if err != nil {
			return best, false, err
		}
		if len(list) > 0 && (!found || PlaceOf(&list[0]).Before(PlaceOf(&best))) {
			best, found = list[0], true
		}
	}
	tx.notBefore(best.UpdatedAt)
	return best, found, nil
}

func (tx *Tx) takeOffered(workspace string, keys []string, after Place) (query string, args []any) {
	// Enough for as many callers at once, each of which takes the first that is left; where there is
	// one writer, the first is free.
	candidates := 64
	switch {
	case tx.Alone():
		candidates = 1
	case !tx.MayWait(): // more than the other lanes have
		candidates = tx.s.joint.lanes * perLane
	}
	query, args = tx.offered(workspace, keys, after, candidates)
	return `SELECT ` + allColumns + ` FROM (SELECT * FROM (` + query + `) AS u ORDER BY rank, position, handoff_id LIMIT $5) AS o
		CROSS JOIN handoffs h WHERE h.id = o.handoff_id AND h.state = 'open' AND h.deps_pending = 0 AND h.deps_failed = 0
		ORDER BY o.rank, o.position, o.handoff_id LIMIT 1` + tx.d.skipLocked(), args
}

// Alone reports whether no other transaction writes while tx runs.
func (tx *Tx) Alone() bool { return tx.d.skipLocked() == "" }

// handoffs reads rows of allColumns or lightColumns.
func (tx *Tx) handoffs(query string, args []any) ([]handoff.Handoff, error) {
	var list []handoff.Handoff
	err := tx.each(query, args, func(r rows) error {
		var s handoffScan
		if err := r.Scan(s.dest()...); err != nil {
			return err
		}
		h, err := s.value()
		list = append(list, h)
		return err
	})
	return list, err
}

// Slipped reads the pool handoffs of a workspace that are on offer by the clock, though not
// written down so yet: their lease lapsed, or their fallback opened. There are few, because sweeps
// write them down; at most limit are read.
func (tx *Tx) Slipped(workspace string, limit int) ([]handoff.Handoff, error) {
	now := micros(tx.Now())
	return tx.handoffs(`SELECT `+lightColumns+` FROM (`+tx.lapsed()+` UNION ALL `+tx.fallbackDue()+`) AS d
		CROSS JOIN handoffs h WHERE h.id = d.id AND h.door = 'pool' AND h.workspace_id = $2 ORDER BY h.created_at LIMIT $3`, []any{now, workspace, limit})
}

// PoolOf reads a page of the pool handoffs that an agent created in a workspace, newest first.
func (tx *Tx) PoolOf(workspace, creatorID string, before Place, limit int) ([]handoff.Handoff, error) {
	return tx.handoffs(`SELECT `+lightColumns+` FROM handoffs h WHERE h.creator_id = $1 AND h.door = 'pool' AND h.workspace_id = $2
		AND (CAST($3 AS bigint) = 0 OR (h.created_at, h.id) < ($3, $4)) ORDER BY h.created_at DESC, h.id DESC LIMIT $5`, []any{creatorID, workspace, before.CreatedAt, before.ID, limit})
}

// PoolHeld reads a page of the pool handoffs of a workspace that an agent holds as they are written
// down, newest first.
func (tx *Tx) PoolHeld(workspace, holderID string, before Place, limit int) ([]handoff.Handoff, error) {
	return tx.handoffs(`SELECT `+lightColumns+` FROM handoffs h`+tx.d.by("handoffs_held")+` WHERE h.holder_id = $1 AND h.state IN ('claimed', 'verifying') AND h.door = 'pool' AND h.workspace_id = $2
		AND (CAST($3 AS bigint) = 0 OR (h.created_at, h.id) < ($3, $4)) ORDER BY h.created_at DESC, h.id DESC LIMIT $5`, []any{holderID, workspace, before.CreatedAt, before.ID, limit})
}
