-- One-time join links, and the mark of a handoff whose texts were erased.

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
