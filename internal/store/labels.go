package store

import (
	"maps"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// AgentIn reads an agent with its labels, and whether it may use the workspace, in one round trip.
func (tx *Tx) AgentIn(id, workspaceID string) (handoff.Agent, error) {
	found, err := tx.agentsIn([]string{id}, workspaceID)
	if err != nil {
		return handoff.Agent{}, err
	}
	a, ok := found[id]
	if !ok {
		return handoff.Agent{}, handoff.NotFound("agent", id)
	}
	return a, nil
}

// Keep keeps an agent from being turned off until the end of tx, if it is turned off under
// [Tx.LockAgent]. It waits for another that holds it; in a shared transaction that is [ErrWaits]. What is
// read of the agent afterwards is from after the wait. Whoever needs the agent and a handoff keeps the agent
// first.
func (tx *Tx) Keep(id string) error {
	if tx.Alone() {
		return nil
	}
	err := tx.row(tx.keepQuery(), id).scan(&id)
	switch {
	case !IsNoRows(err):
		return err
	case tx.MayWait():
		return notFound(err, "agent", id)
	}
	return ErrWaits // or there is none, which it finds out alone
}

func (tx *Tx) keepQuery() string {
	const query = `SELECT a.id FROM agents a WHERE a.id = $1`
	if tx.MayWait() {
		return query + tx.d.forKeyShare("a")
	}
	return query + tx.d.forKeyShareFree("a")
}

// ExpectKeep announces [Tx.Keep].
func (tx *Tx) ExpectKeep(id string) {
	if !tx.Alone() {
		tx.e.expect(tx.keepQuery(), []any{id})
	}
}

// KeepAgentIn is Keep with AgentIn.
func (tx *Tx) KeepAgentIn(id, workspaceID string) (handoff.Agent, error) {
	if err := tx.Keep(id); err != nil {
		return handoff.Agent{}, err
	}
	return tx.AgentIn(id, workspaceID)
}

// ExpectKeepAgentIn announces [Tx.KeepAgentIn].
func (tx *Tx) ExpectKeepAgentIn(id, workspaceID string) {
	tx.ExpectKeep(id)
	tx.e.expect(agentsInQuery([]string{id}, workspaceID))
}

// ExpectAgentsIn announces [Tx.AgentsIn] of at most maxIDs agents.
func (tx *Tx) ExpectAgentsIn(ids []string, workspaceID string) {
	if len(ids) <= maxIDs {
		tx.e.expect(agentsInQuery(ids, workspaceID))
	}
}

// AgentsIn is AgentIn for some agents, by id. Those that do not exist are left out.
func (tx *Tx) AgentsIn(ids []string, workspaceID string) (map[string]handoff.Agent, error) {
	out := make(map[string]handoff.Agent, len(ids))
	for some := range slices.Chunk(ids, maxIDs) {
		found, err := tx.agentsIn(some, workspaceID)
		if err != nil {
			return nil, err
		}
		maps.Copy(out, found)
	}
	return out, nil
}

// agentsInQuery has as many places as the next power of two, so that there are few different ones; an
// id may come twice.
func agentsInQuery(ids []string, workspaceID string) (query string, args []any) {
	args = []any{workspaceID}
	for _, id := range ids {
		args = append(args, id)
	}
	for n := len(ids); n&(n-1) != 0; n++ {
		args = append(args, ids[0])
	}
	return `SELECT ` + agentColumns + `, COALESCE(l.kind, ''), COALESCE(l.name, ''), COALESCE(l.value, ''),
			CASE WHEN EXISTS (SELECT 1 FROM workspaces w WHERE w.id = $1 AND w.strict <> 0 AND NOT EXISTS
				(SELECT 1 FROM workspace_members m WHERE m.workspace_id = w.id AND m.agent_id = a.id)) THEN 1 ELSE 0 END
		FROM agents a LEFT JOIN agent_labels l ON l.agent_id = a.id WHERE a.id IN (` + params(2, len(args)-1) + `)
		ORDER BY a.id, l.kind, l.name, l.value`, args
}

// agentsIn reads at most maxIDs agents.
func (tx *Tx) agentsIn(ids []string, workspaceID string) (map[string]handoff.Agent, error) {
	type labelled struct {
		agentScan
		labels  AgentRow
		outside int64
	}
	var list []*labelled
	query, args := agentsInQuery(ids, workspaceID)
	err := tx.each(query, args, func(r rows) error {
		var kind, name, value string
		one := &labelled{}
		if err := r.Scan(append(one.dest(), &kind, &name, &value, &one.outside)...); err != nil {
			return err
		}
		if len(list) == 0 || list[len(list)-1].a.ID != one.a.ID {
			list = append(list, one)
		}
		list[len(list)-1].labels.add(kind, name, value)
		return nil
	})
	out := make(map[string]handoff.Agent, len(list))
	for _, one := range list {
		if err != nil {
			break
		}
		var a AgentRow
		a, err = one.value()
		a.Capabilities, a.Tags, a.Outside = one.labels.Capabilities, one.labels.Tags, one.outside != 0
		out[a.ID] = a.Agent
	}
	return out, err
}

// ExpectClaimant announces [Tx.KeepClaimant].
func (tx *Tx) ExpectClaimant(agentID, workspaceID string) {
	tx.ExpectKeep(agentID)
	tx.e.expect(tx.claimantQuery(), []any{agentID, workspaceID})
}

// ExpectTakeOffered announces [Tx.TakeOffered].
func (tx *Tx) ExpectTakeOffered(workspace string, keys []string, after Place) {
	if len(keys) <= maxKeys {
		tx.e.expect(tx.takeOffered(workspace, keys, after))
	}
}

// KeepClaimant is Claimant that keeps the agent, as [Tx.Keep] does.
func (tx *Tx) KeepClaimant(agentID, workspaceID string) (w Workspace, a handoff.Agent, err error) {
	if err := tx.Keep(agentID); err != nil {
		return w, a, err
	}
	return tx.Claimant(agentID, workspaceID)
}

// Claimant reads an agent with its labels together with the workspace that an id stands for, by way of
// an alias. The agent is Outside where the workspace admits others only. All in one round trip.
func (tx *Tx) Claimant(agentID, workspaceID string) (w Workspace, a handoff.Agent, err error) {
	var s agentScan
	var labels AgentRow
	found := false
	var strict, created, outside, lapses, opens int64
	err = tx.each(tx.claimantQuery(), []any{agentID, workspaceID}, func(r rows) error {
		var kind, name, value string
		found = true
		if err := r.Scan(append(s.dest(), &kind, &name, &value, &w.ID, &w.Root, &strict, &created, &outside, &lapses, &opens)...); err != nil {
			return err
		}
		labels.add(kind, name, value)
		return nil
	})
	if err != nil {
		return w, a, err
	}
	if !found {
		return w, a, handoff.NotFound("agent", agentID)
	}
	if w.ID == "" {
		w.ID = workspaceID
	}
	if lapses > 0 && (opens == 0 || lapses < opens) {
		opens = lapses
	}
	w.Strict, w.CreatedAt, w.Opens = strict != 0, timeOf(created), timeOf(opens)
	row, err := s.value()
	row.Capabilities, row.Tags, row.Outside = labels.Capabilities, labels.Tags, outside != 0
	return w, row.Agent, err
}

func (tx *Tx) claimantQuery() string {
	return `SELECT ` + agentColumns + `, COALESCE(l.kind, ''), COALESCE(l.name, ''), COALESCE(l.value, ''),
			COALESCE(w.id, ''), COALESCE(w.root, ''), COALESCE(w.strict, 0), COALESCE(w.created_at, 0),
			CASE WHEN w.strict <> 0 AND m.agent_id IS NULL THEN 1 ELSE 0 END,
			COALESCE((SELECT min(lease_expires_at) FROM handoffs` + tx.d.by("handoffs_by_lease") + ` WHERE state = 'claimed' AND lease_expires_at > 0), 0),
			COALESCE((SELECT min(fallback_at) FROM handoffs` + tx.d.by("handoffs_by_fallback") + ` WHERE state = 'open' AND fallback_at > 0 AND fallback_opened = 0), 0)
		FROM agents a LEFT JOIN agent_labels l ON l.agent_id = a.id
		LEFT JOIN workspaces w ON w.id = (SELECT CASE WHEN x.alias_of = '' THEN x.id ELSE x.alias_of END FROM workspaces x WHERE x.id = $2)
		LEFT JOIN workspace_members m ON m.workspace_id = w.id AND m.agent_id = a.id
		WHERE a.id = $1 ORDER BY l.kind, l.name, l.value`
}

// add gives the agent one label as it was read.
func (a *AgentRow) add(kind, name, value string) {
	switch kind {
	case "capability":
		a.Capabilities = append(a.Capabilities, name)
	case "tag":
		if a.Tags == nil {
			a.Tags = map[string][]string{}
		}
		a.Tags[name] = append(a.Tags[name], value)
	}
}

// ActiveAgents reads all agents that are not disabled, with their labels, in the order of handles.
func (tx *Tx) ActiveAgents() ([]AgentRow, error) {
	all, err := tx.Agents()
	if err != nil {
		return nil, err
	}
	list := all[:0]
	at := map[string]int{}
	for _, a := range all {
		if !a.Disabled {
			at[a.ID] = len(list)
			list = append(list, a)
		}
	}
	err = tx.each(`SELECT agent_id, kind, name, value FROM agent_labels ORDER BY agent_id, kind, name, value`, nil, func(r rows) error {
		var id, kind, name, value string
		if err := r.Scan(&id, &kind, &name, &value); err != nil {
			return err
		}
		if i, active := at[id]; active {
			list[i].add(kind, name, value)
		}
		return nil
	})
	return list, err
}

// offering is from where and by what condition the active agents are selected that offer the capability
// $1 in the workspace $2.
const offering = ` FROM agent_labels l JOIN agents a ON a.id = l.agent_id WHERE l.kind = 'capability' AND l.name = $1 AND a.disabled_at = 0
	AND (NOT EXISTS (SELECT 1 FROM workspaces w WHERE w.id = $2 AND w.strict <> 0)
		OR EXISTS (SELECT 1 FROM workspace_members m WHERE m.workspace_id = $2 AND m.agent_id = a.id))`

// OtherVerifiers counts the active agents besides one that offer a capability and may use the workspace.
func (tx *Tx) OtherVerifiers(capability, workspaceID, besides string) (int, error) {
	n := 0
	err := tx.row(`SELECT count(*)`+offering+` AND a.id <> $3`, capability, workspaceID, besides).scan(&n)
	return n, err
}

// Offering names the active agents that offer a capability and may use the workspace, in the order of
// their ids, at most limit.
func (tx *Tx) Offering(capability, workspaceID string, limit int) ([]string, error) {
	return tx.ids(`SELECT a.id`+offering+` ORDER BY a.id LIMIT $3`, capability, workspaceID, limit)
}

// CapabilityNames reads the capabilities of the catalog behind one, in their order, at most limit.
func (tx *Tx) CapabilityNames(after string, limit int) ([]string, error) {
	return tx.ids(`SELECT name FROM catalog WHERE kind = 'capability' AND name > $1 ORDER BY name LIMIT $2`, after, limit)
}

// Provider is an active agent that offers a capability.
type Provider struct {
	Capability string
	AgentID    string
	Handle     string
	Unlisted   bool
	LastSeenAt time.Time
}

// Providers reads who offers the capabilities from first to last, in the order of those and of handles.
func (tx *Tx) Providers(first, last string) ([]Provider, error) {
	var list []Provider
	err := tx.each(`SELECT l.name, a.id, a.handle, a.unlisted, a.last_seen_at FROM agent_labels l JOIN agents a ON a.id = l.agent_id
		WHERE l.kind = 'capability' AND l.name >= $1 AND l.name <= $2 AND a.disabled_at = 0 ORDER BY l.name, a.handle_key`, []any{first, last}, func(r rows) error {
		var p Provider
		var unlisted, seen int64
		err := r.Scan(&p.Capability, &p.AgentID, &p.Handle, &unlisted, &seen)
		p.Unlisted, p.LastSeenAt = unlisted != 0, timeOf(seen)
		list = append(list, p)
		return err
	})
	return list, err
}

// Members names the agents that the operator added to a workspace.
func (tx *Tx) Members(workspaceID string) ([]string, error) {
	return tx.ids(`SELECT agent_id FROM workspace_members WHERE workspace_id = $1 ORDER BY agent_id`, workspaceID)
}

// The kinds of words in the catalog.
const (
	CatalogCapability = "capability"
	CatalogTag        = "tag"
	CatalogTagValue   = "tag_value" // key=value
)

// InCatalog reports which of some words of one kind the catalog has. A tag value counts when it, or
// one below it by whole segments, is there.
func (tx *Tx) InCatalog(kind string, names []string) (map[string]bool, error) {
	known := map[string]bool{}
	for some := range slices.Chunk(names, 100) {
		words := make([]string, len(some))
		args := []any{kind}
		for i, name := range some {
			args = append(args, name)
			words[i] = `SELECT CAST($` + itoa(len(args)) + ` AS text) AS name`
		}
		found, err := tx.ids(`SELECT w.name FROM (`+strings.Join(words, " UNION ALL ")+`) AS w
			WHERE EXISTS (SELECT 1 FROM catalog c WHERE c.kind = $1 AND c.name = w.name)
			OR $1 = 'tag_value' AND EXISTS (SELECT 1 FROM catalog c WHERE c.kind = $1 AND c.name >= w.name || '/' AND c.name < w.name || '0')`, // "0" follows "/"
			args...)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			known[name] = true
		}
	}
	return known, nil
}

// AddToCatalog makes a word known, and keeps it so until the end of tx.
func (tx *Tx) AddToCatalog(kind, name string) error {
	return tx.exec(`INSERT INTO catalog (kind, name) VALUES ($1, $2) ON CONFLICT (kind, name) DO UPDATE SET name = excluded.name`, kind, name)
}

// CatalogHas reports whether a word is in the catalog itself; see [Tx.InCatalog] for what a target
// may name.
func (tx *Tx) CatalogHas(kind, name string) (bool, error) {
	found, err := tx.ids(`SELECT name FROM catalog WHERE kind = $1 AND name = $2`, kind, name)
	return len(found) > 0, err
}

// CatalogNames reads the words of one kind.
func (tx *Tx) CatalogNames(kind string) ([]string, error) {
	return tx.ids(`SELECT name FROM catalog WHERE kind = $1 ORDER BY name`, kind)
}

// AwaitedBy names the open handoffs that a direct_with_fallback target keeps for a handle before
// anybody registered it, at most limit.
func (tx *Tx) AwaitedBy(handle string, limit int) ([]string, error) {
	return tx.ids(`SELECT DISTINCT o.handoff_id FROM offers o JOIN handoffs h ON h.id = o.handoff_id
		WHERE o.target_key = $1 AND h.recipient_id = '' AND h.state = 'open' ORDER BY o.handoff_id LIMIT $2`, "agent:"+handoff.FoldHandle(handle), limit)
}
