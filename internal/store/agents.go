package store

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// AgentRow is an agent with the facts that only the hub itself needs.
type AgentRow struct {
	handoff.Agent
	Email      string
	CreatedAt  time.Time
	LastSeenAt time.Time
}

const agentColumns = `a.id, a.handle, a.name, a.role, a.skills, a.repos, a.unlisted, a.created_at, a.disabled_at, a.last_seen_at`

type agentScan struct {
	a                                  AgentRow
	skills, repos                      string
	unlisted, created, disabled, seen_ int64
}

func (s *agentScan) dest() []any {
	return []any{&s.a.ID, &s.a.Handle, &s.a.Name, &s.a.Role, &s.skills, &s.repos, &s.unlisted, &s.created, &s.disabled, &s.seen_}
}

func (s *agentScan) value() (AgentRow, error) {
	s.a.Unlisted, s.a.Disabled = s.unlisted != 0, s.disabled != 0
	s.a.CreatedAt, s.a.LastSeenAt = timeOf(s.created), timeOf(s.seen_)
	return s.a, errors.Join(jsonValue("skills", s.skills, &s.a.Skills), jsonValue("repos", s.repos, &s.a.Repos))
}

// InsertAgent registers an agent. The handle's folded form is unique for ever.
func (tx *Tx) InsertAgent(a *AgentRow, now time.Time) error {
	if err := tx.exec(`INSERT INTO agents (id, handle, handle_key, name, role, skills, repos, unlisted, created_at, updated_at, disabled_at, last_seen_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, 0, 0)`,
		a.ID, a.Handle, handoff.FoldHandle(a.Handle), a.Name, a.Role, jsonText(a.Skills), jsonText(a.Repos), flag(a.Unlisted), micros(now)); err != nil {
		return err
	}
	if err := tx.insertLabels(a); err != nil || a.Email == "" {
		return err
	}
	return tx.setEmail(a)
}

// UpdateAgent stores what may change about an agent: all but its id, its handle and whether it is
// disabled. Read it under its lock, with labels and e-mail.
func (tx *Tx) UpdateAgent(a *AgentRow, now time.Time) error {
	if err := tx.execOne(`UPDATE agents SET name = $1, role = $2, skills = $3, repos = $4, unlisted = $5, updated_at = $6 WHERE id = $7`,
		a.Name, a.Role, jsonText(a.Skills), jsonText(a.Repos), flag(a.Unlisted), micros(now), a.ID); err != nil {
		return err
	}
	if err := tx.exec(`DELETE FROM agent_labels WHERE agent_id = $1`, a.ID); err != nil {
		return err
	}
	if err := tx.insertLabels(a); err != nil {
		return err
	}
	return tx.setEmail(a)
}

func (tx *Tx) insertLabels(a *AgentRow) error {
	// In one order for all agents, because each word stays locked in the catalog.
	for _, c := range slices.Sorted(slices.Values(a.Capabilities)) {
		if err := tx.label(a.ID, "capability", c, ""); err != nil {
			return err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.Tags)) {
		for _, v := range slices.Sorted(slices.Values(a.Tags[key])) {
			if err := tx.label(a.ID, "tag", key, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// setEmail keeps the address apart from the agent, where it can be erased.
func (tx *Tx) setEmail(a *AgentRow) error {
	if a.Email == "" {
		return tx.exec(`UPDATE contacts SET email = '' WHERE subject_id = $1`, a.ID)
	}
	return tx.exec(`INSERT INTO contacts (subject_id, name, email, phone) VALUES ($1, '', $2, '')
		ON CONFLICT (subject_id) DO UPDATE SET email = excluded.email`, a.ID, a.Email)
}

// WithEmail fills in the agent's e-mail address.
func (tx *Tx) WithEmail(a *AgentRow) error {
	err := tx.row(`SELECT email FROM contacts WHERE subject_id = $1`, a.ID).scan(&a.Email)
	if IsNoRows(err) {
		return nil
	}
	return err
}

// label gives an agent a capability or a tag and adds it to the catalog.
func (tx *Tx) label(agentID, kind, name, value string) error {
	if err := tx.AddToCatalog(kind, name); err != nil {
		return err
	}
	if kind == CatalogTag {
		if err := tx.AddToCatalog(CatalogTagValue, name+"="+value); err != nil {
			return err
		}
	}
	return tx.exec(`INSERT INTO agent_labels (agent_id, kind, name, value) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`, agentID, kind, name, value)
}

// AgentByHandle reads an agent by its handle in any case; [handoff.CodeNotFound] when it was
// never registered.
func (tx *Tx) AgentByHandle(handle string) (AgentRow, error) {
	if !storable(handle) {
		return AgentRow{}, handoff.NotFound("agent", handle)
	}
	return tx.agent("a.handle_key = $1", handoff.FoldHandle(handle), handle)
}

// LockAgent is [Tx.AgentByHandle], and keeps others from changing the agent until the end of tx.
func (tx *Tx) LockAgent(handle string) (AgentRow, error) {
	return tx.agent("a.handle_key = $1"+tx.d.forUpdate(), handoff.FoldHandle(handle), handle)
}

// Handles reads the handle of every agent, in their order.
func (tx *Tx) Handles() ([]string, error) {
	return tx.ids(`SELECT handle FROM agents ORDER BY handle_key`)
}

// Agent reads an agent by its UUID.
func (tx *Tx) Agent(id string) (AgentRow, error) { return tx.agent("a.id = $1", id, id) }

func (tx *Tx) agent(where, arg, shown string) (AgentRow, error) {
	var s agentScan
	if err := tx.row("SELECT "+agentColumns+" FROM agents a WHERE "+where, arg).scan(s.dest()...); err != nil {
		return AgentRow{}, notFound(err, "agent", shown)
	}
	return s.value()
}

// WithLabels fills in the agent's capabilities and tags.
func (tx *Tx) WithLabels(a *AgentRow) error {
	return tx.each(`SELECT kind, name, value FROM agent_labels WHERE agent_id = $1 ORDER BY kind, name, value`, []any{a.ID}, func(r rows) error {
		var kind, name, value string
		if err := r.Scan(&kind, &name, &value); err != nil {
			return err
		}
		a.add(kind, name, value)
		return nil
	})
}

// Agents reads every agent in the order of handles.
func (tx *Tx) Agents() ([]AgentRow, error) {
	var list []AgentRow
	err := tx.each("SELECT "+agentColumns+" FROM agents a ORDER BY a.handle_key", nil, func(r rows) error {
		var s agentScan
		if err := r.Scan(s.dest()...); err != nil {
			return err
		}
		a, err := s.value()
		list = append(list, a)
		return err
	})
	return list, err
}

// Names reads handle, name and role of some agents, by UUID.
func (tx *Tx) Names(ids []string) (map[string]handoff.Agent, error) {
	out := make(map[string]handoff.Agent, len(ids))
	if len(ids) == 0 {
		return out, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = id
	}
	err := tx.each("SELECT "+agentColumns+" FROM agents a WHERE a.id IN ("+params(1, len(ids))+")", args, func(r rows) error {
		var s agentScan
		if err := r.Scan(s.dest()...); err != nil {
			return err
		}
		a, err := s.value()
		out[a.ID] = a.Agent
		return err
	})
	return out, err
}

// KeepAgent is AgentByHandle that keeps the agent from being turned off, as [Tx.Keep] does.
func (tx *Tx) KeepAgent(handle string) (AgentRow, error) {
	if !storable(handle) {
		return AgentRow{}, handoff.NotFound("agent", handle)
	}
	return tx.agent("a.handle_key = $1"+tx.d.forKeyShare("a"), handoff.FoldHandle(handle), handle)
}

// SetDisabled turns an agent off or on.
func (tx *Tx) SetDisabled(agentID string, disabled bool, now time.Time) error {
	at := int64(0)
	if disabled {
		at = micros(now)
	}
	return tx.execOne(`UPDATE agents SET disabled_at = $1, updated_at = $2 WHERE id = $3`, at, micros(now), agentID)
}

// Key is an API key without its secret.
type Key struct {
	ID         string
	AgentID    string
	Hash       string
	Hint       string // the first characters, to recognise it by
	Label      string
	CreatedAt  time.Time
	LastUsedAt time.Time
	RevokedAt  time.Time
}

const keyColumns = `k.id, k.agent_id, k.hash, k.hint, k.label, k.created_at, k.last_used_at, k.revoked_at`

type keyScan struct {
	k                      Key
	created, used, revoked int64
}

func (s *keyScan) dest() []any {
	return []any{&s.k.ID, &s.k.AgentID, &s.k.Hash, &s.k.Hint, &s.k.Label, &s.created, &s.used, &s.revoked}
}

func (s *keyScan) value() Key {
	s.k.CreatedAt, s.k.LastUsedAt, s.k.RevokedAt = timeOf(s.created), timeOf(s.used), timeOf(s.revoked)
	return s.k
}

// InsertKey stores a new key.
func (tx *Tx) InsertKey(k *Key) error {
	return tx.exec(`INSERT INTO api_keys (id, agent_id, hash, hint, label, created_at, last_used_at, revoked_at) VALUES ($1, $2, $3, $4, $5, $6, 0, 0)`,
		k.ID, k.AgentID, k.Hash, k.Hint, k.Label, micros(k.CreatedAt))
}

// KeyByHash reads a key and its agent; [sql.ErrNoRows] when there is none.
func (tx *Tx) KeyByHash(hash string) (Key, AgentRow, error) {
	return tx.keyWithAgent("k.hash = $1", hash)
}

// KeyByID reads a key and its agent; [sql.ErrNoRows] when there is none.
func (tx *Tx) KeyByID(id string) (Key, AgentRow, error) { return tx.keyWithAgent("k.id = $1", id) }

func (tx *Tx) keyWithAgent(where, arg string) (Key, AgentRow, error) {
	if !storable(arg) {
		return Key{}, AgentRow{}, sql.ErrNoRows
	}
	var k keyScan
	var a agentScan
	if err := tx.row("SELECT "+keyColumns+", "+agentColumns+" FROM api_keys k JOIN agents a ON a.id = k.agent_id WHERE "+where, arg).
		scan(append(k.dest(), a.dest()...)...); err != nil {
		return Key{}, AgentRow{}, err
	}
	agent, err := a.value()
	return k.value(), agent, err
}

// Keys reads the keys of an agent, oldest first.
func (tx *Tx) Keys(agentID string) ([]Key, error) {
	var list []Key
	err := tx.each("SELECT "+keyColumns+" FROM api_keys k WHERE k.agent_id = $1 ORDER BY k.created_at, k.id", []any{agentID}, func(r rows) error {
		var s keyScan
		if err := r.Scan(s.dest()...); err != nil {
			return err
		}
		list = append(list, s.value())
		return nil
	})
	return list, err
}

// Belonging keeps of some ids those of keys and sessions of an agent.
func (tx *Tx) Belonging(agentID string, ids []string) (map[string]bool, error) {
	out := map[string]bool{}
	for some := range slices.Chunk(ids, maxIDs) {
		in, args := placeholders(some, 2)
		own, err := tx.ids(`SELECT id FROM api_keys WHERE agent_id = $1 AND id IN (`+in+`)
			UNION ALL SELECT id FROM sessions WHERE agent_id = $1 AND id IN (`+in+`)`, append([]any{agentID}, args...)...)
		if err != nil {
			return nil, err
		}
		for _, id := range own {
			out[id] = true
		}
	}
	return out, nil
}

// RevokeKey ends a key. Revoking again changes nothing.
func (tx *Tx) RevokeKey(id string, now time.Time) error {
	return tx.exec(`UPDATE api_keys SET revoked_at = $1 WHERE id = $2 AND revoked_at = 0`, micros(now), id)
}

// Touch notes when keys and their agents were last used.
func (tx *Tx) Touch(keyID, agentID string, at time.Time) error {
	if keyID == "" {
		return tx.touchAgent(agentID, at)
	}
	if err := tx.exec(`UPDATE api_keys SET last_used_at = $1 WHERE id = $2 AND last_used_at < $1`, micros(at), keyID); err != nil {
		return err
	}
	return tx.touchAgent(agentID, at)
}

func (tx *Tx) touchAgent(agentID string, at time.Time) error {
	return tx.exec(`UPDATE agents SET last_seen_at = $1 WHERE id = $2 AND last_seen_at < $1`, micros(at), agentID)
}

// Reach is what creating a direct handoff asks of the database, read in one round trip.
type Reach struct {
	// RecipientID is empty when no active agent has that handle.
	RecipientID string
	// Blocked: the recipient keeps the sender from reaching it.
	Blocked bool
	// Effect and Found are those of [Tx.Effect].
	Effect Effect
	Found  bool
}

// Reach reads the recipient of a new handoff, whether it blocks the sender, and what was
// already done under the key.
func (tx *Tx) Reach(op Operation, handle string) (Reach, error) {
	var r Reach
	var blocked int64
	err := tx.row(`SELECT COALESCE(a.id, ''), CASE WHEN b.agent_id IS NULL THEN 0 ELSE 1 END,
		COALESCE(i.fingerprint, ''), COALESCE(i.handoff_id, ''), COALESCE(i.ref_id, ''), COALESCE(i.epoch, 0)
		FROM (SELECT 1 AS one) x
		LEFT JOIN agents a ON a.handle_key = $1 AND a.disabled_at = 0
		LEFT JOIN blocks b ON b.agent_id = a.id AND b.blocked_id = $2
		LEFT JOIN idempotency i ON i.actor_id = $2 AND i.operation = $3 AND i.key = $4`,
		handoff.FoldHandle(handle), op.Actor, op.Verb, op.Key).
		scan(&r.RecipientID, &blocked, &r.Effect.Fingerprint, &r.Effect.HandoffID, &r.Effect.RefID, &r.Effect.Epoch)
	r.Found = op.Key != "" && r.Effect.Fingerprint != ""
	r.Blocked = blocked != 0
	return r, err
}

// IsNoRows reports whether err says that a row is absent.
func IsNoRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }

func placeholders(list []string, from int) (string, []any) {
	args := make([]any, len(list))
	for i, v := range list {
		args[i] = v
	}
	return strings.TrimSpace(params(from, len(list))), args
}
