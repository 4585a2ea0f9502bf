-- Open handoffs: what can be taken now and under which keys, sessions, and who made an event.

-- What waits for a taker or a verifier, under each key that finds it (handoff.Handoff.Offers).
-- position is when it was created, or for a key that opens later, when it opens.
CREATE TABLE offers (
  target_key   text NOT NULL,
  workspace_id text NOT NULL,
  rank         bigint NOT NULL,
  position     bigint NOT NULL,
  handoff_id   text NOT NULL REFERENCES handoffs(id),
  PRIMARY KEY (target_key, workspace_id, rank, position, handoff_id)
){{clustered}};
DROP TABLE handoff_targets;
DROP INDEX handoffs_pool;
CREATE INDEX handoffs_of_workspace ON handoffs (workspace_id, state) WHERE door = 'pool';

ALTER TABLE handoffs ADD COLUMN fallback_opened bigint NOT NULL DEFAULT 0;
ALTER TABLE handoffs ADD COLUMN deps_total bigint NOT NULL DEFAULT 0;
CREATE INDEX handoffs_by_fallback ON handoffs (fallback_at) WHERE state = 'open' AND fallback_at > 0 AND fallback_opened = 0;

CREATE TABLE sessions (
  id           text PRIMARY KEY,
  agent_id     text NOT NULL REFERENCES agents(id),
  workspace_id text NOT NULL,
  hash         text NOT NULL,
  opened_at    bigint NOT NULL,
  last_seen_at bigint NOT NULL,
  closed_at    bigint NOT NULL
);
CREATE INDEX sessions_open ON sessions (agent_id, id) WHERE closed_at = 0;
CREATE INDEX sessions_idle ON sessions (last_seen_at, id) WHERE closed_at = 0;

-- The session in which an event was caused, where the caller named one.
ALTER TABLE events ADD COLUMN
  session_id text NOT NULL DEFAULT '';

-- The catalog knew capabilities and keys of tags; now their values too.
INSERT INTO catalog (kind, name) SELECT DISTINCT 'tag_value', name || '=' || value FROM agent_labels WHERE kind = 'tag';
