package store_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// What a hub of schema 1 has written: two agents, one with a key, and a handoff between them that
// was accepted and answered. These statements stay as they are when the schema moves on.
var schema1 = []string{
	`INSERT INTO settings (name, value) VALUES ('cursor_epoch', '0123abcd'), ('session_secret', 'c2VjcmV0')`,
	`INSERT INTO agents (id, handle, handle_key, name, role, skills, repos, unlisted, created_at, updated_at, disabled_at, last_seen_at) VALUES
		('a-1', 'Anna@Acme', 'anna@acme', 'Anna', 'backend', '["go","sql"]', '', 0, 1700000000000001, 1700000000000002, 0, 1700000000000003),
		('f-1', 'frank@acme', 'frank@acme', 'Frank', '', '', '["acme/shop"]', 1, 1700000000000004, 1700000000000004, 1700000000000009, 0)`,
	`INSERT INTO agent_labels (agent_id, kind, name, value) VALUES ('a-1', 'capability', 'deploy', '')`,
	`INSERT INTO catalog (kind, name) VALUES ('capability', 'deploy')`,
	`INSERT INTO api_keys (id, agent_id, hash, hint, label, created_at, last_used_at, revoked_at) VALUES ('k-1', 'a-1', 'abcdef', 'hc_live_1234', 'laptop', 1700000000000001, 0, 0)`,
	`INSERT INTO blocks (agent_id, blocked_id, reason, created_at) VALUES ('f-1', 'a-1', 'noise', 1700000000000005)`,
	`INSERT INTO handoffs (id, door, state, creator_id, recipient_id, holder_id, past_holders, epoch, lease_length, lease_expires_at, intent, preview, question,
		proposed_action, metadata, workspace_id, target, visibility, priority, payload, result, criteria, verify_by, verdict, deps_pending, deps_failed, fallback_at,
		recipient_declined, waits_for_reply, message_count, event_seq, trace_id, traceparent, created_at, updated_at, expires_at, fetched_at, accepted_at,
		completed_at, ended_by, ended_reason, result_summary, completion_artifacts) VALUES
		('h-1', 'team', 'claimed', 'a-1', 'f-1', 'f-1', '', 1, 0, 0, 'inform', 'a summary', '', '', '{"x":1.50}', '', '', 'private', 0, '', '', '', '', '', 0, 0, 0,
		0, 0, 2, 3, 'trace', '', 1700000000000010, 1700000000000012, 0, 1700000000000011, 1700000000000011, 0, '', '', '', '')`,
	`INSERT INTO messages (handoff_id, sequence_no, id, author_id, body, payload, artifacts, expects_reply, created_at) VALUES
		('h-1', 1, 'm-1', 'a-1', 'a summary', '', '', 0, 1700000000000010), ('h-1', 2, 'm-2', 'f-1', 'an answer 🤝', '{"n":12345678901234567890}', '', 0, 1700000000000012)`,
	`INSERT INTO notices (actor_id, handoff_id, event_seq, sequence_no, type, handoff_created_at, created_at) VALUES ('a-1', 'h-1', 3, 2, 'message.created', 1700000000000010, 1700000000000012)`,
	`INSERT INTO events (type, handoff_id, seq, actor_id, subject_id, state, epoch, trace_id, at) VALUES
		('agent.added', '', 0, 'operator', 'a-1', '', 0, '', 1700000000000001), ('handoff.created', 'h-1', 1, 'a-1', '', 'open', 0, 'trace', 1700000000000010),
		('handoff.claimed', 'h-1', 2, 'f-1', '', 'claimed', 1, 'trace', 1700000000000011), ('message.created', 'h-1', 3, 'f-1', 'm-2', 'claimed', 1, 'trace', 1700000000000012)`,
	`INSERT INTO idempotency (actor_id, operation, key, fingerprint, handoff_id, ref_id, epoch, created_at) VALUES ('a-1', 'create', 'key', 'print', 'h-1', '', 0, 1700000000000010)`,
}

// atSchema1 is a closed database as a program of schema 1 has left it.
func atSchema1(t *testing.T, kind string) store.Config {
	t.Helper()
	cfg := config(t, kind)
	must(t, open(t, store.AtSchema(cfg, 1)).Close())
	db := hubtest.Beside(t, cfg)
	run(t, db, `DELETE FROM settings`)
	run(t, db, schema1...)
	must(t, db.Close())
	return cfg
}

// onEachSchema1 runs the test on a database of schema 1 of either kind.
func onEachSchema1(t *testing.T, test func(t *testing.T, cfg store.Config, kind string)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, atSchema1(t, kind), kind)
		})
	}
}

func TestADatabaseOfTheFirstSchemaIsBroughtUpToDateAndReadsRight(t *testing.T) {
	t.Parallel()
	onEachSchema1(t, func(t *testing.T, cfg store.Config, kind string) {
		f := open(t, cfg)
		wantWhatSchema1Wrote(t, f)
		fresh := open(t, config(t, kind))
		wantSame(t, "the schema", withoutSettings(f.schema()), withoutSettings(fresh.schema()))
		// A cursor of before goes on: nothing was restored.
		f.write(happened("later"))
		r := f.follower("reader", 10)
		r.cursor = "0123abcd.0.0"
		eventually(t, "the reader saw the later one", func() bool { r.mustLook(t); return slices.Contains(r.seen, "later") })
		if len(r.seen) != 5 {
			t.Errorf("it saw %q", r.seen)
		}
	})
}

func TestABackupOfTheFirstSchemaIsRestoredIntoTheCurrentOne(t *testing.T) {
	t.Parallel()
	onEachSchema1(t, func(t *testing.T, cfg store.Config, kind string) {
		old := open(t, store.AtSchema(cfg, 1))
		backup := old.backup()
		if strings.Contains(lines(t, backup)[0], "invites") {
			t.Error("it names a table that came later")
		}
		for _, other := range hubtest.Kinds() {
			to := config(t, other)
			if info := restore(t, to, backup); info.Schema != 1 || info.Database != kind {
				t.Errorf("the restore says %+v", info)
			}
			f := open(t, to)
			wantWhatSchema1Wrote(t, f)
			fresh := open(t, config(t, other))
			wantSame(t, "the schema", withoutSettings(f.schema()), withoutSettings(fresh.schema()))
		}
	})
}

// wantWhatSchema1Wrote reads back what the statements of schema1 wrote, through the store of today.
func wantWhatSchema1Wrote(t *testing.T, f *fixture) {
	t.Helper()
	at := func(us int64) time.Time { return time.UnixMicro(1700000000000000 + us).UTC() }
	f.read(func(tx *store.Tx) error {
		k, a, err := tx.KeyByHash("abcdef")
		must(t, err)
		must(t, tx.WithLabels(&a))
		if k.ID != "k-1" || k.Label != "laptop" || a.Handle != "Anna@Acme" || a.Role != "backend" || !slices.Equal(a.Skills, []string{"go", "sql"}) ||
			!slices.Contains(a.Capabilities, "deploy") || !a.CreatedAt.Equal(at(1)) || !a.LastSeenAt.Equal(at(3)) || a.Disabled {
			t.Errorf("the key and its agent: %+v %+v", k, a)
		}
		frank, err := tx.AgentByHandle("frank@acme")
		must(t, err)
		if frank.ID != "f-1" || !frank.Disabled || !frank.Unlisted || !slices.Equal(frank.Repos, []string{"acme/shop"}) {
			t.Errorf("the other agent: %+v", frank)
		}
		h, err := tx.Handoff("h-1")
		must(t, err)
		if h.State != handoff.Claimed || h.Creator != "a-1" || h.Holder != "f-1" || h.Epoch != 1 || h.Messages != 2 || h.EventSeq != 3 ||
			!h.CreatedAt.Equal(at(10)) || string(h.Metadata) != `{"x":1.50}` {
			t.Errorf("the handoff: %+v", h)
		}
		messages, err := tx.Messages("h-1", 0, 10)
		must(t, err)
		if len(messages) != 2 || messages[1].Body != "an answer 🤝" || messages[1].Author != "f-1" || string(messages[1].Payload) != `{"n":12345678901234567890}` {
			t.Errorf("the messages: %+v", messages)
		}
		blocked, err := tx.Blocked("f-1", "a-1")
		must(t, err)
		notices, err := tx.Notices("a-1", &h)
		must(t, err)
		effect, found, err := tx.Effect(store.Operation{Actor: "a-1", Verb: "create", Key: "key"})
		must(t, err)
		secret, err := tx.Texts(`SELECT value FROM settings WHERE name = 'session_secret'`)
		must(t, err)
		if !blocked || len(notices) != 1 || !found || effect.HandoffID != "h-1" || !slices.Equal(secret, []string{"c2VjcmV0"}) {
			t.Errorf("blocked %v, notices %v, effect %v %v, secret %v", blocked, notices, effect, found, secret)
		}
		return nil
	})
	var seqs []int
	eventually(t, "the events are read", func() bool {
		seqs = nil
		f.read(func(tx *store.Tx) error {
			list, _, err := tx.Events(store.Beginning, 10)
			for _, e := range list {
				seqs = append(seqs, e.Seq)
			}
			return err
		})
		return len(seqs) == 4
	})
	if !slices.Equal(seqs, []int{0, 1, 2, 3}) {
		t.Errorf("the events are numbered %v", seqs)
	}
}

// The program of before meets the database of today: it knows schemas up to its own only.
func TestABackupOfANewerSchemaIsRefusedWithWhatToDo(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, f *fixture) {
		db := hubtest.Beside(t, f.cfg)
		run(t, db, map[string]string{
			"sqlite":   `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, 1)`,
			"postgres": `INSERT INTO goose_db_version (version_id, is_applied) VALUES (99, true)`,
		}[f.Kind()])
		var b bytes.Buffer
		err := f.Backup(context.Background(), &b)
		if err == nil || !strings.Contains(err.Error(), "schema 99") || b.Len() > 0 {
			t.Errorf("a node that was overtaken made a backup of %d bytes: %v", b.Len(), err)
		}
	})
}
