-- One schema for both databases and all doors. Ids are text, times are microseconds since
-- 1970 (0 = none), JSON is text ('' = none), flags are 0 or 1. The dialect fills in the
-- {{…}} marks; nothing else differs.

CREATE TABLE settings (
  name  text PRIMARY KEY,
  value text NOT NULL
);

CREATE TABLE agents (
  id           text PRIMARY KEY,
  handle       text NOT NULL,
  handle_key   text NOT NULL UNIQUE,
  name         text NOT NULL,
  role         text NOT NULL,
  skills       text NOT NULL,
  repos        text NOT NULL,
  unlisted     bigint NOT NULL,
  created_at   bigint NOT NULL,
  updated_at   bigint NOT NULL,
  disabled_at  bigint NOT NULL,
  last_seen_at bigint NOT NULL
);

CREATE TABLE agent_labels (
  agent_id text NOT NULL REFERENCES agents(id),
  kind     text NOT NULL,
  name     text NOT NULL,
  value    text NOT NULL,
  PRIMARY KEY (agent_id, kind, name, value)
){{clustered}};
CREATE INDEX agent_labels_by_name ON agent_labels (kind, name, value);

CREATE TABLE catalog (
  kind text NOT NULL,
  name text NOT NULL,
  PRIMARY KEY (kind, name)
){{clustered}};

CREATE TABLE api_keys (
  id           text PRIMARY KEY,
  agent_id     text NOT NULL REFERENCES agents(id),
  hash         text NOT NULL UNIQUE,
  hint         text NOT NULL,
  label        text NOT NULL,
  created_at   bigint NOT NULL,
  last_used_at bigint NOT NULL,
  revoked_at   bigint NOT NULL
);
CREATE INDEX api_keys_by_agent ON api_keys (agent_id);

CREATE TABLE blocks (
  agent_id   text NOT NULL REFERENCES agents(id),
  blocked_id text NOT NULL REFERENCES agents(id),
  reason     text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (agent_id, blocked_id)
){{clustered}};

CREATE TABLE workspaces (
  id         text PRIMARY KEY,
  root       text NOT NULL,
  alias_of   text NOT NULL,
  strict     bigint NOT NULL,
  created_at bigint NOT NULL
);

CREATE TABLE workspace_members (
  workspace_id text NOT NULL REFERENCES workspaces(id),
  agent_id     text NOT NULL REFERENCES agents(id),
  PRIMARY KEY (workspace_id, agent_id)
){{clustered}};

CREATE TABLE handoffs (
  id                   text PRIMARY KEY,
  door                 text NOT NULL,
  state                text NOT NULL,
  creator_id           text NOT NULL,
  recipient_id         text NOT NULL,
  holder_id            text NOT NULL,
  past_holders         text NOT NULL,
  epoch                bigint NOT NULL,
  lease_length         bigint NOT NULL,
  lease_expires_at     bigint NOT NULL,
  intent               text NOT NULL,
  preview              text NOT NULL,
  question             text NOT NULL,
  proposed_action      text NOT NULL,
  metadata             text NOT NULL,
  workspace_id         text NOT NULL,
  target               text NOT NULL,
  visibility           text NOT NULL,
  priority             bigint NOT NULL,
  payload              text NOT NULL,
  result               text NOT NULL,
  criteria             text NOT NULL,
  verify_by            text NOT NULL,
  verdict              text NOT NULL,
  deps_pending         bigint NOT NULL,
  deps_failed          bigint NOT NULL,
  fallback_at          bigint NOT NULL,
  recipient_declined   bigint NOT NULL,
  waits_for_reply      bigint NOT NULL,
  message_count        bigint NOT NULL,
  event_seq            bigint NOT NULL,
  trace_id             text NOT NULL,
  traceparent          text NOT NULL,
  created_at           bigint NOT NULL,
  updated_at           bigint NOT NULL,
  expires_at           bigint NOT NULL,
  fetched_at           bigint NOT NULL,
  accepted_at          bigint NOT NULL,
  completed_at         bigint NOT NULL,
  ended_by             text NOT NULL,
  ended_reason         text NOT NULL,
  result_summary       text NOT NULL,
  completion_artifacts text NOT NULL
);
CREATE INDEX handoffs_by_recipient ON handoffs (recipient_id, created_at, id);
CREATE INDEX handoffs_by_creator ON handoffs (creator_id, created_at, id);
CREATE INDEX handoffs_held ON handoffs (holder_id) WHERE state IN ('claimed', 'verifying');
CREATE INDEX handoffs_by_state ON handoffs (state, door);
CREATE INDEX handoffs_by_lease ON handoffs (lease_expires_at) WHERE state = 'claimed' AND lease_expires_at > 0;
CREATE INDEX handoffs_by_deadline ON handoffs (expires_at) WHERE state = 'open' AND expires_at > 0;
CREATE INDEX handoffs_unfetched ON handoffs (created_at) WHERE state = 'open' AND fetched_at = 0 AND recipient_id <> '';
CREATE INDEX handoffs_pool ON handoffs (workspace_id, state, priority, created_at, id) WHERE door = 'pool';

CREATE TABLE handoff_targets (
  handoff_id text NOT NULL REFERENCES handoffs(id),
  target_key text NOT NULL,
  PRIMARY KEY (target_key, handoff_id)
){{clustered}};

CREATE TABLE dependencies (
  handoff_id text NOT NULL REFERENCES handoffs(id),
  depends_on text NOT NULL REFERENCES handoffs(id),
  PRIMARY KEY (handoff_id, depends_on)
){{clustered}};
CREATE INDEX dependencies_by_dependency ON dependencies (depends_on, handoff_id);

CREATE TABLE messages (
  handoff_id    text NOT NULL REFERENCES handoffs(id),
  sequence_no   bigint NOT NULL,
  id            text NOT NULL,
  author_id     text NOT NULL,
  body          text NOT NULL,
  payload       text NOT NULL,
  artifacts     text NOT NULL,
  expects_reply bigint NOT NULL,
  created_at    bigint NOT NULL,
  PRIMARY KEY (handoff_id, sequence_no)
);

CREATE TABLE drafts (
  id             text PRIMARY KEY,
  handoff_id     text NOT NULL REFERENCES handoffs(id),
  draft_no       bigint NOT NULL,
  author_id      text NOT NULL,
  epoch          bigint NOT NULL,
  suggested_diff text NOT NULL,
  description    text NOT NULL,
  target_files   text NOT NULL,
  rationale      text NOT NULL,
  status         text NOT NULL,
  decided_by     text NOT NULL,
  reason         text NOT NULL,
  created_at     bigint NOT NULL,
  decided_at     bigint NOT NULL,
  UNIQUE (handoff_id, draft_no)
);
CREATE INDEX drafts_undecided ON drafts (created_at) WHERE status = 'drafted';

-- What an actor was told and has not seen yet. A notice that carries a message has its
-- sequence_no; the others have 0. handoff_created_at repeats the handoff's own, so that an
-- inbox page is one walk of the primary key.
CREATE TABLE notices (
  actor_id           text NOT NULL,
  handoff_id         text NOT NULL REFERENCES handoffs(id),
  event_seq          bigint NOT NULL,
  sequence_no        bigint NOT NULL,
  type               text NOT NULL,
  handoff_created_at bigint NOT NULL,
  created_at         bigint NOT NULL,
  PRIMARY KEY (actor_id, handoff_created_at, handoff_id, event_seq)
){{clustered}};

CREATE TABLE events (
  id         {{serial}},
  xact       bigint NOT NULL DEFAULT {{xact}},
  type       text NOT NULL,
  handoff_id text NOT NULL,
  seq        bigint NOT NULL,
  actor_id   text NOT NULL,
  subject_id text NOT NULL,
  state      text NOT NULL,
  epoch      bigint NOT NULL,
  trace_id   text NOT NULL,
  at         bigint NOT NULL
);
{{events_in_order}}
CREATE UNIQUE INDEX events_by_handoff ON events (handoff_id, seq) WHERE handoff_id <> '';

CREATE TABLE idempotency (
  actor_id    text NOT NULL,
  operation   text NOT NULL,
  key         text NOT NULL,
  fingerprint text NOT NULL,
  handoff_id  text NOT NULL,
  ref_id      text NOT NULL,
  epoch       bigint NOT NULL,
  created_at  bigint NOT NULL,
  PRIMARY KEY (actor_id, operation, key)
){{clustered}};
CREATE INDEX idempotency_by_age ON idempotency (created_at);

-- Names, addresses and numbers of people, in a table of their own so that they can be erased.
CREATE TABLE contacts (
  subject_id text PRIMARY KEY,
  name       text NOT NULL,
  email      text NOT NULL,
  phone      text NOT NULL
);

CREATE TABLE deliveries (
  id           text PRIMARY KEY,
  handoff_id   text NOT NULL REFERENCES handoffs(id),
  channel      text NOT NULL,
  state        text NOT NULL,
  reason       text NOT NULL,
  provider_id  text NOT NULL,
  attempts     bigint NOT NULL,
  due_at       bigint NOT NULL,
  leased_until bigint NOT NULL,
  content      text NOT NULL,
  created_at   bigint NOT NULL,
  updated_at   bigint NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (due_at) WHERE state IN ('queued', 'sending');
CREATE INDEX deliveries_by_handoff ON deliveries (handoff_id);
