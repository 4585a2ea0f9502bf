package store_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
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

// What a hub of schema 2 has written besides: tags, an invitation, and an erased handoff.
var schema2 = []string{
	`INSERT INTO agents (id, handle, handle_key, name, role, skills, repos, unlisted, created_at, updated_at, disabled_at, last_seen_at) VALUES
		('g-1', 'grace@acme', 'grace@acme', 'Grace', '', '', '', 0, 1700000000000004, 1700000000000004, 0, 0)`,
	`INSERT INTO agent_labels (agent_id, kind, name, value) VALUES ('a-1', 'tag', 'team', 'ENG/BACKEND'), ('a-1', 'tag', 'team', 'ops'), ('a-1', 'tag', 'a', 'b=c'),
		('g-1', 'tag', 'team', 'ops'), ('g-1', 'tag', 'a=b', 'c'), ('g-1', 'capability', 'team', '')`,
	`INSERT INTO catalog (kind, name) VALUES ('tag', 'team'), ('tag', 'a'), ('tag', 'a=b'), ('tag', 'gone'), ('capability', 'team')`,
	`INSERT INTO invites (id, handle, name, role, inviter_id, agent_id, created_at, expires_at, redeemed_at) VALUES ('i-1', 'ida@acme', 'Ida', 'lead', 'operator', '', 1700000000000004, 1700000000000009, 0)`,
	`INSERT INTO handoffs (id, door, state, creator_id, recipient_id, holder_id, past_holders, epoch, lease_length, lease_expires_at, intent, preview, question,
		proposed_action, metadata, workspace_id, target, visibility, priority, payload, result, criteria, verify_by, verdict, deps_pending, deps_failed, fallback_at,
		recipient_declined, waits_for_reply, message_count, event_seq, trace_id, traceparent, created_at, updated_at, expires_at, fetched_at, accepted_at,
		completed_at, ended_by, ended_reason, result_summary, completion_artifacts, erased_at) VALUES
		('h-2', 'team', 'completed', 'a-1', 'g-1', 'g-1', '', 1, 0, 0, 'inform', '', '', '', '', '', '', 'private', 0, '', '', '', '', '', 0, 0, 0,
		0, 0, 1, 0, '', '', 1700000000000020, 1700000000000022, 0, 1700000000000021, 1700000000000021, 1700000000000022, 'g-1', '', '', '', 1700000000000023)`,
}

// What only a hub of schema 2 could write.
var onlySchema2 = `INSERT INTO handoff_targets (handoff_id, target_key) VALUES ('h-2', 'agent:g-1')`

// What a hub of schema 3 has written besides: a project, a handoff on offer in it, and a session.
var schema3 = []string{
	`INSERT INTO catalog (kind, name) VALUES ('tag_value', 'a=b=c'), ('tag_value', 'team=ENG/BACKEND'), ('tag_value', 'team=ops')`,
	`INSERT INTO workspaces (id, root, alias_of, strict, created_at) VALUES ('w-1', '/srv/shop', '', 0, 1700000000000004)`,
	`INSERT INTO handoffs (id, door, state, creator_id, recipient_id, holder_id, past_holders, epoch, lease_length, lease_expires_at, intent, preview, question,
		proposed_action, metadata, workspace_id, target, visibility, priority, payload, result, criteria, verify_by, verdict, deps_pending, deps_failed, fallback_at,
		recipient_declined, waits_for_reply, message_count, event_seq, trace_id, traceparent, created_at, updated_at, expires_at, fetched_at, accepted_at,
		completed_at, ended_by, ended_reason, result_summary, completion_artifacts) VALUES
		('h-3', 'pool', 'open', 'a-1', '', '', '', 0, 0, 0, '', '', '', '', '', 'w-1', '{"strategy":"broadcast"}', 'public', 0, '', '', '', '', '', 0, 0, 0,
		0, 0, 0, 0, '', '', 1700000000000030, 1700000000000030, 0, 0, 0, 0, '', '', '', '')`,
	`INSERT INTO offers (target_key, workspace_id, rank, position, handoff_id) VALUES ('any', 'w-1', 0, 1700000000000030, 'h-3')`,
	`INSERT INTO sessions (id, agent_id, workspace_id, hash, opened_at, last_seen_at, closed_at) VALUES ('s-1', 'a-1', 'w-1', 'fedcba', 1700000000000004, 1700000000000005, 0)`,
}

// schemas are what was written under each of the schemas of before, in their order.
var schemas = [][]string{schema1, schema2, schema3}

// atSchema is a closed database as a program of that schema has left it.
func atSchema(t *testing.T, kind string, version int) store.Config {
	t.Helper()
	cfg := config(t, kind)
	must(t, open(t, store.AtSchema(cfg, int64(version))).Close())
	db := hubtest.Beside(t, cfg)
	run(t, db, `DELETE FROM settings`)
	for _, written := range schemas[:version] {
		run(t, db, written...)
	}
	if version == 2 {
		run(t, db, onlySchema2)
	}
	must(t, db.Close())
	return cfg
}

// onEachSchema runs the test on a database of each schema of before, of either kind.
func onEachSchema(t *testing.T, test func(t *testing.T, cfg store.Config, kind string, version int)) {
	t.Helper()
	for _, kind := range hubtest.Kinds() {
		for version := 1; version < store.SchemaVersion; version++ {
			t.Run(fmt.Sprint(kind, " of schema ", version), func(t *testing.T) {
				t.Parallel()
				test(t, atSchema(t, kind, version), kind, version)
			})
		}
	}
}

func TestADatabaseOfAnEarlierSchemaIsBroughtUpToDateAndReadsRight(t *testing.T) {
	t.Parallel()
	onEachSchema(t, func(t *testing.T, cfg store.Config, kind string, version int) {
		f := open(t, cfg)
		wantWhatTheyWrote(t, f, version)
		fresh := open(t, config(t, kind))
		wantSame(t, "the schema", withoutSettings(f.schema()), withoutSettings(fresh.schema()))
		f.read(func(tx *store.Tx) error { // those that ended have the time of it
			list, err := tx.Texts(`SELECT id FROM handoffs WHERE ended_at <> CASE state WHEN 'completed' THEN updated_at ELSE 0 END`)
			if len(list) > 0 {
				t.Errorf("the end of %v", list)
			}
			return err
		})
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

func TestABackupOfAnEarlierSchemaIsRestoredIntoTheCurrentOne(t *testing.T) {
	t.Parallel()
	onEachSchema(t, func(t *testing.T, cfg store.Config, kind string, version int) {
		old := open(t, store.AtSchema(cfg, int64(version)))
		backup := old.backup()
		header := lines(t, backup)[0]
		for table, since := range map[string]int{"invites": 2, "offers": 3, "sessions": 3, "businesses": 4, "continuations": 4} {
			if named := strings.Contains(header, table); named != (version >= since) {
				t.Errorf("it names %s: %v", table, named)
			}
		}
		for _, other := range hubtest.Kinds() {
			to := config(t, other)
			if info := restore(t, to, backup); info.Schema != int64(version) || info.Database != kind {
				t.Errorf("the restore says %+v", info)
			}
			f := open(t, to)
			wantWhatTheyWrote(t, f, version)
			fresh := open(t, config(t, other))
			wantSame(t, "the schema", withoutSettings(f.schema()), withoutSettings(fresh.schema()))
		}
	})
}

func wantWhatTheyWrote(t *testing.T, f *fixture, version int) {
	t.Helper()
	wantWhatSchema1Wrote(t, f)
	if version >= 2 {
		wantWhatSchema2Wrote(t, f)
	}
	f.read(func(tx *store.Tx) error {
		offered, err := tx.Texts(`SELECT handoff_id FROM offers`)
		must(t, err)
		sessions, err := tx.Texts(`SELECT id FROM sessions WHERE hash = 'fedcba'`)
		must(t, err)
		if pool := version >= 3; slices.Equal(offered, []string{"h-3"}) != pool || slices.Equal(sessions, []string{"s-1"}) != pool {
			t.Errorf("%q are on offer, and there are the sessions %q", offered, sessions)
		}
		return nil
	})
}

// wantWhatSchema2Wrote reads back what the statements of schema2 wrote. The values of tags are words
// of the catalog since.
func wantWhatSchema2Wrote(t *testing.T, f *fixture) {
	t.Helper()
	f.read(func(tx *store.Tx) error {
		for kind, want := range map[string][]string{
			store.CatalogCapability: {"deploy", "team"},
			store.CatalogTag:        {"a", "a=b", "gone", "team"},
			store.CatalogTagValue:   {"a=b=c", "team=ENG/BACKEND", "team=ops"},
		} {
			if words, err := tx.CatalogNames(kind); err != nil || !slices.Equal(words, want) {
				t.Errorf("the %s words are %q (%v)", kind, words, err)
			}
		}
		known, err := tx.InCatalog(store.CatalogTagValue, []string{"team=ENG", "team=ops", "team=ENGX", "gone=x"})
		must(t, err)
		if !known["team=ENG"] || !known["team=ops"] || known["team=ENGX"] || known["gone=x"] {
			t.Errorf("known are %v", known)
		}
		anna, err := tx.AgentIn("a-1", "anywhere")
		must(t, err)
		if want := map[string][]string{"team": {"ENG/BACKEND", "ops"}, "a": {"b=c"}}; !maps.EqualFunc(anna.Tags, want, slices.Equal) || anna.Outside {
			t.Errorf("the agent with tags: %+v", anna)
		}
		invites, err := tx.Invites()
		must(t, err)
		h, err := tx.Handoff("h-2")
		must(t, err)
		if len(invites) != 1 || invites[0].Name != "Ida" || h.State != handoff.Completed || h.ErasedAt.UnixMicro() != 1700000000000023 || h.FallbackOpened || h.DepsTotal != 0 {
			t.Errorf("invites %+v, the erased handoff %+v", invites, h)
		}
		return nil
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
