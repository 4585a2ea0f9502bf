package outbox_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/outbox"
)

func TestWhatIsDueWhenTheHubStartsIsRemovedAtOnceAndLogged(t *testing.T) {
	t.Parallel()
	hubtest.OnEach(t, func(t *testing.T, f *hubtest.Fixture) {
		anna, frank := f.Agent("anna@acme"), f.Agent("frank@acme")
		id := f.Send(anna, "frank@acme")
		if _, err := f.Hub.Accept(t.Context(), frank, hub.AcceptInput{ThreadID: id}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Hub.Complete(t.Context(), frank, hub.CompleteInput{ThreadID: id, ResultSummary: "done"}); err != nil {
			t.Fatal(err)
		}
		f.Clock.Advance(24 * time.Hour)
		log := &hubtest.LogBuffer{}
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- outbox.Retain(ctx, f.Hub, slog.New(slog.NewTextHandler(log, nil))) }()
		hubtest.Eventually(t, func() bool { return strings.Contains(log.String(), "handoffs_erased=1 deliveries=0 events=0") })
		end()
		if err := <-ended; err != nil || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%v, it logged %s", err, log)
		}
	}, hubtest.WithHub(func(c *hub.Config) { c.Retain.Handoffs = 24 * time.Hour }))
}

func TestAHubThatKeepsAllForEverRemovesNothing(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "sqlite")
	if err := outbox.Retain(t.Context(), f.Hub, f.Config.Log); err != nil { // it ends at once
		t.Error(err)
	}
}
