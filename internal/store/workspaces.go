package store

import (
	"database/sql"
	"errors"
	"time"
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

// Aliases names the workspaces that are other names of one.
func (tx *Tx) Aliases(id string) ([]string, error) {
	return tx.ids(`SELECT id FROM workspaces WHERE alias_of = $1 ORDER BY id`, id)
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
