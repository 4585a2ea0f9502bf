package hub_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

// An operator's command opens the database for a moment and never listens itself; the nodes must
// hear of a revoked key from it all the same, and before it says that it is done.
func TestACommandTellsTheNodesOfARevokedKeyBeforeItIsDone(t *testing.T) {
	t.Parallel()
	f := hubtest.New(t, "postgres")
	anna := f.Agent("anna@acme")
	ctx, cancel := context.WithTimeout(bg, 20*time.Second)
	defer cancel()
	listener, err := pgx.Connect(ctx, f.Config.URL)
	noError(t, err)
	defer func() { _ = listener.Close(bg) }()
	_, err = listener.Exec(ctx, "LISTEN handclasp")
	noError(t, err)

	st, err := store.Open(ctx, f.Config)
	noError(t, err)
	defer func() { _ = st.Close() }()
	noError(t, hub.New(hub.Config{Store: st}).RevokeKey(ctx, hubtest.Operator(), anna.Actor.KeyID))
	for {
		n, err := listener.WaitForNotification(ctx)
		noError(t, err)
		if strings.Contains(n.Payload, "credential:"+anna.Actor.ID) {
			return
		}
	}
}
