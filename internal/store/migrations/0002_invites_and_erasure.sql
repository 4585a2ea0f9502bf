-- One-time join links, the mark of a handoff whose texts were erased, and the way to what an agent
-- holds that was not sent to it: the operator gave it to that agent, or it is of the pool.

CREATE TABLE invites (
  id          text PRIMARY KEY,
  handle      text NOT NULL,
  name        text NOT NULL,
  role        text NOT NULL,
  inviter_id  text NOT NULL,
  agent_id    text NOT NULL,
  created_at  bigint NOT NULL,
  expires_at  bigint NOT NULL,
  redeemed_at bigint NOT NULL
);

ALTER TABLE handoffs ADD COLUMN erased_at bigint NOT NULL DEFAULT 0;
CREATE INDEX handoffs_by_holder ON handoffs (holder_id, created_at, id) WHERE holder_id <> '' AND holder_id <> recipient_id;
