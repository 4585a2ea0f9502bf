-- The desk: businesses, what its handoffs have besides, the links of persons, continuations, and how
-- notifications get out.

CREATE TABLE businesses (
  slug           text PRIMARY KEY,
  name           text NOT NULL,
  search         text NOT NULL,
  timezone       text NOT NULL,
  preferred      text NOT NULL,
  phone          text NOT NULL,
  email          text NOT NULL,
  form_url       text NOT NULL,
  region         text NOT NULL,
  daily_messages bigint NOT NULL,
  daily_cost     bigint NOT NULL,
  created_at     bigint NOT NULL,
  updated_at     bigint NOT NULL
);

-- What was reserved of the caps of a business on one of its days.
CREATE TABLE spend (
  slug     text NOT NULL REFERENCES businesses(slug),
  day      text NOT NULL,
  messages bigint NOT NULL,
  cost     bigint NOT NULL,
  PRIMARY KEY (slug, day)
){{clustered}};

CREATE TABLE desk (
  handoff_id     text PRIMARY KEY REFERENCES handoffs(id),
  slug           text NOT NULL REFERENCES businesses(slug),
  mode           text NOT NULL,
  urgency        text NOT NULL,
  reason         text NOT NULL,
  purpose        text NOT NULL,
  reservation_id text NOT NULL,
  agent_label    text NOT NULL
);
CREATE INDEX desk_by_business ON desk (slug, handoff_id);

-- Links and reply addresses of persons: of the token only its hash. A new generation revokes the last.
CREATE TABLE person_links (
  handoff_id text NOT NULL REFERENCES handoffs(id),
  use        text NOT NULL,
  generation bigint NOT NULL,
  hash       text NOT NULL UNIQUE,
  PRIMARY KEY (handoff_id, use)
);

CREATE TABLE signing_keys (
  id         text PRIMARY KEY,
  secret     text NOT NULL,
  created_at bigint NOT NULL,
  ends_at    bigint NOT NULL
);

CREATE TABLE continuations (
  handoff_id   text PRIMARY KEY REFERENCES handoffs(id),
  key_id       text NOT NULL,
  issued_at    bigint NOT NULL,
  expires_at   bigint NOT NULL,
  revoked_at   bigint NOT NULL,
  redeemed_at  bigint NOT NULL,
  redeemer_id  text NOT NULL,
  repeat_hash  text NOT NULL,
  session_used bigint NOT NULL,
  session_ends bigint NOT NULL
);

-- Where agents want to be told of their own inbox.
CREATE TABLE agent_channels (
  agent_id   text NOT NULL REFERENCES agents(id),
  channel    text NOT NULL,
  address    text NOT NULL,
  secret     text NOT NULL,
  created_at bigint NOT NULL,
  PRIMARY KEY (agent_id, channel)
){{clustered}};

-- Nothing was ever sent before: the table is made anew as it is used. due_at of one that is being sent is
-- when another may take it.
DROP TABLE deliveries;
CREATE TABLE deliveries (
  id           text PRIMARY KEY,
  handoff_id   text NOT NULL REFERENCES handoffs(id),
  kind         text NOT NULL,
  channel      text NOT NULL,
  recipient_id text NOT NULL,
  sequence_no  bigint NOT NULL,
  event_seq    bigint NOT NULL,
  state        text NOT NULL,
  reason       text NOT NULL,
  provider_id  text NOT NULL,
  attempts     bigint NOT NULL,
  unknown      bigint NOT NULL,
  due_at       bigint NOT NULL,
  created_at   bigint NOT NULL,
  updated_at   bigint NOT NULL,
  spend_day    text NOT NULL,
  cost         bigint NOT NULL
);
CREATE INDEX deliveries_due ON deliveries (channel, due_at) WHERE state IN ('queued', 'sending');
CREATE INDEX deliveries_by_handoff ON deliveries (handoff_id);
CREATE INDEX deliveries_at_fault ON deliveries (updated_at, id) WHERE state IN ('unconfirmed', 'dead');
CREATE INDEX deliveries_final ON deliveries (updated_at, id) WHERE state IN ('sent', 'refused', 'dead') AND kind <> 'handoff';

-- When a handoff ended; 0 while it has not. Only what time removes asks for it.
ALTER TABLE handoffs ADD COLUMN ended_at bigint NOT NULL DEFAULT 0;
UPDATE handoffs SET ended_at = updated_at WHERE state IN ('completed', 'rejected', 'cancelled', 'expired');
CREATE INDEX handoffs_to_erase ON handoffs (ended_at, id) WHERE ended_at > 0 AND erased_at = 0;
