package store

import (
	"database/sql"
	"errors"
	"strconv"
	"time"

	"handclasp/internal/handoff"
)

// Workspace is a project that handoffs belong to.
type Workspace struct {
	ID   string
	Root string // as first given, normalised
	// AliasOf is the workspace that this one is another name of; empty for most.
	AliasOf string
	// Strict admits only agents that the operator added.
	Strict    bool
	CreatedAt time.Time
	// Opens is when the clock opens, or opened, what is not written down so yet: a lease that ends, a
	// fallback, in any workspace. Zero is never. Only [Tx.Claimant] reads it.
	Opens time.Time
}

const workspaceColumns = `w.id, w.root, w.alias_of, w.strict, w.created_at`

func scanWorkspace(r rows) (Workspace, error) {
	var w Workspace
	var strict, created int64
	err := r.Scan(&w.ID, &w.Root, &w.AliasOf, &strict, &created)
	w.Strict, w.CreatedAt = strict != 0, timeOf(created)
	return w, err
}

// Workspace reads the workspace that an id stands for, by way of an alias, and whether the agent
// may use it. One that nobody used yet has no root, and everybody may.
func (tx *Tx) Workspace(id, agentID string) (w Workspace, member bool, err error) {
	member = true
	found := false
	err = tx.each(`SELECT `+workspaceColumns+`, CASE WHEN w.strict = 0 OR m.agent_id IS NOT NULL THEN 1 ELSE 0 END
		FROM workspaces w LEFT JOIN workspace_members m ON m.workspace_id = w.id AND m.agent_id = $2
		WHERE w.id = (SELECT CASE WHEN a.alias_of = '' THEN a.id ELSE a.alias_of END FROM workspaces a WHERE a.id = $1)`,
		[]any{id, agentID}, func(r rows) error {
			var strict, created, may int64
			err := r.Scan(&w.ID, &w.Root, &w.AliasOf, &strict, &created, &may)
			w.Strict, w.CreatedAt, member, found = strict != 0, timeOf(created), may != 0, true
			return err
		})
	if err == nil && !found {
		w.ID = id
	}
	return w, member, err
}

// AddWorkspace notes a workspace at its first use.
func (tx *Tx) AddWorkspace(w *Workspace) error {
	return tx.exec(`INSERT INTO workspaces (id, root, alias_of, strict, created_at) VALUES ($1, $2, '', 0, $3) ON CONFLICT DO NOTHING`, w.ID, w.Root, micros(w.CreatedAt))
}

// Admits reports whether the agent may use the workspace.
func (tx *Tx) Admits(workspaceID, agentID string) (bool, error) {
	var one int
	err := tx.row(`SELECT 1 FROM workspaces w WHERE w.id = $1 AND w.strict <> 0 AND NOT EXISTS
		(SELECT 1 FROM workspace_members m WHERE m.workspace_id = w.id AND m.agent_id = $2)`, workspaceID, agentID).scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return true, nil
	}
	return false, err
}

// workspaceLock is the number of a workspace's lock; its id is a hash.
func workspaceLock(id string) int64 {
	n, err := strconv.ParseUint(id[:min(len(id), 16)], 16, 64)
	if err != nil {
		return 0 // no workspace has such an id
	}
	return int64(n) //nolint:gosec // all its bits count, as whatever number
}

// aliasLock is the number of the lock that whoever joins workspaces takes first.
const aliasLock = 0x616c696173

// KeepWorkspace keeps a workspace from becoming another name until the end of tx. Take it before
// reading what the id stands for; many transactions hold it at once, and it travels with the read.
func (tx *Tx) KeepWorkspace(id string) error { return tx.lock(tx.d.lockShared(), workspaceLock(id)) }

// LockAliases keeps others from joining workspaces until the end of tx.
func (tx *Tx) LockAliases() error { return tx.lock(tx.d.lockAlone(), aliasLock) }

// LockWorkspace waits for all that keep the workspace, and keeps it alone until the end of tx.
func (tx *Tx) LockWorkspace(id string) error { return tx.lock(tx.d.lockAlone(), workspaceLock(id)) }

func (tx *Tx) lock(query string, number int64) error {
	if query == "" {
		return nil
	}
	return tx.exec(query, number)
}

// Workspaces reads all workspaces, aliases too, in the order of their roots.
func (tx *Tx) Workspaces() ([]Workspace, error) {
	var list []Workspace
	err := tx.each(`SELECT `+workspaceColumns+` FROM workspaces w ORDER BY w.root, w.id`, nil, func(r rows) error {
		w, err := scanWorkspace(r)
		list = append(list, w)
		return err
	})
	return list, err
}

// Roots reads the roots of some workspaces by their ids.
func (tx *Tx) Roots(ids []string) (map[string]string, error) {
	roots := make(map[string]string, len(ids))
	if len(ids) == 0 {
		return roots, nil
	}
	in, args := placeholders(ids, 1)
	err := tx.each(`SELECT id, root FROM workspaces WHERE id IN (`+in+`)`, args, func(r rows) error {
		var id, root string
		err := r.Scan(&id, &root)
		roots[id] = root
		return err
	})
	return roots, err
}

// Aliases names the workspaces that are other names of one, in the order of their ids.
func (tx *Tx) Aliases(id string) ([]string, error) {
	return tx.ids(`SELECT id FROM workspaces WHERE alias_of = $1 ORDER BY id`, id)
}

// AliasOf is the workspace that one is another name of; empty for most.
func (tx *Tx) AliasOf(id string) (of string, err error) {
	err = tx.row(`SELECT alias_of FROM workspaces WHERE id = $1`, id).scan(&of)
	if IsNoRows(err) {
		return "", nil
	}
	return of, err
}

// SetAlias makes a workspace and all its aliases other names of another. What still stands in it is
// open to the same agents as the other from now on.
func (tx *Tx) SetAlias(id, of string) error {
	for _, q := range []struct {
		query string
		args  []any
	}{
		{`UPDATE workspaces SET alias_of = $2, strict = (SELECT o.strict FROM workspaces o WHERE o.id = $2) WHERE id = $1 OR alias_of = $1`, []any{id, of}},
		{`DELETE FROM workspace_members WHERE workspace_id IN (SELECT id FROM workspaces WHERE alias_of = $1)`, []any{of}},
		{`INSERT INTO workspace_members (workspace_id, agent_id) SELECT w.id, m.agent_id FROM workspaces w JOIN workspace_members m ON m.workspace_id = w.alias_of WHERE w.alias_of = $1`, []any{of}},
		{`UPDATE sessions SET workspace_id = $2 WHERE workspace_id = $1`, []any{id, of}},
	} {
		if err := tx.exec(q.query, q.args...); err != nil {
			return err
		}
	}
	return nil
}

// SetStrict says whether a workspace, with its aliases, admits only its members.
func (tx *Tx) SetStrict(id string, strict bool) error {
	return tx.exec(`UPDATE workspaces SET strict = $2 WHERE id = $1 OR alias_of = $1`, id, flag(strict))
}

// SetMember adds an agent to a workspace and its aliases, or removes it from them.
func (tx *Tx) SetMember(id, agentID string, member bool) error {
	if !member {
		return tx.exec(`DELETE FROM workspace_members WHERE agent_id = $2 AND workspace_id IN (SELECT id FROM workspaces WHERE id = $1 OR alias_of = $1)`, id, agentID)
	}
	return tx.exec(`INSERT INTO workspace_members (workspace_id, agent_id) SELECT id, $2 FROM workspaces WHERE id = $1 OR alias_of = $1 ON CONFLICT DO NOTHING`, id, agentID)
}

// MemberCounts counts the members of each workspace that has some.
func (tx *Tx) MemberCounts() (map[string]int, error) {
	counts := map[string]int{}
	err := tx.each(`SELECT workspace_id, count(*) FROM workspace_members GROUP BY workspace_id`, nil, func(r rows) error {
		var id string
		var n int
		err := r.Scan(&id, &n)
		counts[id] = n
		return err
	})
	return counts, err
}

// PoolCounts counts the pool handoffs of each workspace by their state as it is now.
func (tx *Tx) PoolCounts() (map[string]map[handoff.State]int, error) {
	counts := map[string]map[handoff.State]int{}
	add := func(id string, s handoff.State, n int) {
		if counts[id] == nil {
			counts[id] = map[handoff.State]int{}
		}
		if counts[id][s] += n; counts[id][s] == 0 {
			delete(counts[id], s)
		}
	}
	if err := tx.each(`SELECT workspace_id, state, count(*) FROM handoffs WHERE door = 'pool' GROUP BY workspace_id, state`, nil, func(r rows) error {
		var id string
		var s handoff.State
		var n int
		err := r.Scan(&id, &s, &n)
		add(id, s, n)
		return err
	}); err != nil {
		return nil, err
	}
	// What the clock has changed is not written down everywhere yet.
	now := micros(tx.Now())
	err := tx.each(`SELECT h.workspace_id, h.state, h.expires_at, count(*) FROM handoffs h WHERE h.door = 'pool' AND h.id IN (`+tx.lapsed()+` UNION ALL `+tx.overdue()+`)
		GROUP BY h.workspace_id, h.state, h.expires_at`, []any{now}, func(r rows) error {
		var id string
		var s handoff.State
		var expires int64
		var n int
		err := r.Scan(&id, &s, &expires, &n)
		is := handoff.Open
		if expires > 0 && expires <= now {
			is = handoff.Expired
		}
		add(id, s, -n)
		add(id, is, n)
		return err
	})
	return counts, err
}

// PoolSize counts the pool handoffs that stand in a workspace under this very id.
func (tx *Tx) PoolSize(id string) (int, error) {
	n := 0
	err := tx.row(`SELECT count(*) FROM handoffs WHERE door = 'pool' AND workspace_id = $1`, id).scan(&n)
	return n, err
}

// Scattered reads, of the workspaces that are other names of another, those in which pool handoffs
// still stand, each with that other one.
func (tx *Tx) Scattered() (map[string]string, error) {
	list := map[string]string{}
	// EXISTS would be turned into a look through all handoffs; the least of an index costs one step.
	err := tx.each(`SELECT w.id, w.alias_of FROM workspaces w WHERE w.alias_of <> ''
		AND (SELECT min(h.state) FROM handoffs h WHERE h.door = 'pool' AND h.workspace_id = w.id) IS NOT NULL`, nil, func(r rows) error {
		var id, of string
		err := r.Scan(&id, &of)
		list[id] = of
		return err
	})
	return list, err
}

// MovePool moves pool handoffs of one workspace, at most limit of them, to another with their places
// among what is offered, and gives them as they are then, without payloads.
func (tx *Tx) MovePool(from, to string, limit int) ([]handoff.Handoff, error) {
	list, err := tx.handoffs(`SELECT `+lightColumns+` FROM handoffs h WHERE h.door = 'pool' AND h.workspace_id = $1 ORDER BY h.state LIMIT $2`+tx.d.forUpdate(), []any{from, limit})
	if err != nil || len(list) == 0 {
		return nil, err
	}
	ids := make([]string, len(list))
	for i := range list {
		h := &list[i]
		ids[i], h.WorkspaceID = h.ID, to
		for _, o := range h.Offers() {
			if err := tx.exec(`UPDATE offers SET workspace_id = $1 WHERE target_key = $2 AND workspace_id = $3 AND rank = $4 AND position = $5 AND handoff_id = $6`,
				to, o.Key, from, o.Rank, micros(o.Position), h.ID); err != nil {
				return nil, err
			}
		}
	}
	in, args := placeholders(ids, 2)
	return list, tx.exec(`UPDATE handoffs SET workspace_id = $1 WHERE id IN (`+in+`)`, append([]any{to}, args...)...)
}
