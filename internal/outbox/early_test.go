package outbox_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/outbox"
	"handclasp/internal/store"
)

// refuseCommits makes the database refuse every commit of a transaction that inserts a delivery, by a
// constraint that is looked at no earlier.
var refuseCommits = map[string][]string{
	"sqlite": {
		`CREATE TABLE nobody (id text PRIMARY KEY)`,
		`CREATE TABLE doomed (id text REFERENCES nobody(id) DEFERRABLE INITIALLY DEFERRED)`,
		`CREATE TRIGGER doom AFTER INSERT ON deliveries BEGIN INSERT INTO doomed (id) VALUES (NEW.id); END`,
	},
	"postgres": {
		`CREATE TABLE nobody (id text PRIMARY KEY)`,
		`ALTER TABLE deliveries ADD CONSTRAINT doom FOREIGN KEY (id) REFERENCES nobody(id) DEFERRABLE INITIALLY DEFERRED`,
	},
}

var allowCommits = map[string]string{
	"sqlite":   `DROP TRIGGER doom`,
	"postgres": `ALTER TABLE deliveries DROP CONSTRAINT doom`,
}

func TestNothingIsSentOfAHandoffWhoseCommitFails(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		f.Shop()
		anna := f.Agent("anna@acme")
		box, drain := posts(t, f)
		db := hubtest.Beside(t, f.Config)
		run := func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		for _, statement := range refuseCommits[f.Store.Kind()] {
			run(statement)
		}
		in := hub.InitiateInput{Slug: "shop", Mode: "human", IdempotencyKey: "k", Reason: "it never came about"}
		_, err := f.Hub.Initiate(t.Context(), anna, in)
		hubtest.WantCode(t, err, handoff.CodeUnavailable)
		run(allowCommits[f.Store.Kind()])
		in.Reason = "it did"
		out, err := f.Hub.Initiate(t.Context(), anna, in)
		if err != nil || out.Replay || out.Delivery.State != handoff.DeliverySent {
			t.Fatalf("%+v %v", out, err)
		}
		wantOnlyWhatExists(t, f, box, 1)
		drain()
		wantOnlyWhatExists(t, f, box, 1)
	}, hubtest.WithMail())
}

func TestNothingIsSentOfAHandoffWhoseConnectionIsLostAtItsCommit(t *testing.T) {
	t.Parallel()
	var cut atomic.Pointer[func()]
	f := hubtest.New(t, "postgres", hubtest.WithMail(), hubtest.WithStore(func(c *store.Config) {
		c.Pause = func(at store.Point) {
			if at != store.Commits {
				return
			}
			if now := cut.Swap(nil); now != nil {
				(*now)()
			}
		}
	}))
	f.Shop()
	anna := f.Agent("anna@acme")
	if _, err := f.Hub.TakeDeliveries(t.Context(), hub.Lane{Channel: handoff.ChannelEmail}, 1); err != nil { // makes the secret that it needs
		t.Fatal(err)
	}
	var box *hubtest.Postbox
	var drain func()
	db := hubtest.Beside(t, f.Config)
	lose := func() {
		_, err := db.Exec(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if err != nil {
			t.Error(err)
		}
		box, drain = posts(t, f) // no sooner, or the commit could be one of the outbox
	}
	cut.Store(&lose)
	out, err := f.Hub.Initiate(t.Context(), anna, hub.InitiateInput{Slug: "shop", Mode: "human", IdempotencyKey: "k", Reason: "its first try"})
	if cut.Load() != nil {
		t.Fatal("no commit was cut off")
	}
	if err != nil || out.Replay || out.Delivery.State != handoff.DeliverySent {
		t.Fatalf("it was not tried again: %+v %v", out, err)
	}
	drain()
	wantOnlyWhatExists(t, f, box, 1)
}

// posts runs an outbox that delivers to a postbox; drain ends it when all is sent that was taken.
func posts(t *testing.T, f *hubtest.Fixture) (box *hubtest.Postbox, drain func()) {
	t.Helper()
	box = &hubtest.Postbox{}
	ctx, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = outbox.Send(ctx, f.Hub, box, slog.New(slog.DiscardHandler), f.Metrics) })
	drain = func() { end(); wg.Wait() }
	t.Cleanup(drain)
	return box, drain
}

// wantOnlyWhatExists checks that so many notifications went out, each for a delivery that there is.
func wantOnlyWhatExists(t *testing.T, f *hubtest.Fixture, box *hubtest.Postbox, many int) {
	t.Helper()
	list, err := f.Hub.Deliveries(t.Context(), hubtest.Operator(), hub.DeliveryQuery{Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	for i := range list {
		exists[list[i].ID] = true
	}
	sent := box.All()
	for i := range sent {
		if !exists[sent[i].ID] {
			t.Fatalf("%q was sent and there is no such delivery", sent[i].Reason)
		}
	}
	if len(sent) != many || len(list) != many {
		t.Fatalf("%d were sent and %d are written down, want %d", len(sent), len(list), many)
	}
}
