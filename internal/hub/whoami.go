package hub

import (
	"context"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// whoamiMost is how many claims, and how many notices, [Hub.Whoami] gives.
const whoamiMost = 100

// Whoami is what an agent may want to know of itself, after a restart above all. Nothing in it is
// marked seen.
type Whoami struct {
	Agent handoff.Agent // with its labels
	// Claims are what it holds as of now, at every door, what lapses soonest first.
	Claims     []handoff.Handoff
	Roots      map[string]string // of their workspaces, by id
	MoreClaims bool
	// UnreadTotal is as in [Inbox].
	UnreadTotal int
	// News is what it was told by any door and has not seen, newest first.
	News     []store.News
	MoreNews bool
}

// Whoami tells an agent who it is, what it holds and what it has not seen.
func (h *Hub) Whoami(ctx context.Context, call Call) (Whoami, error) {
	if call.Actor.Kind != handoff.KindAgent {
		return Whoami{}, handoff.Refuse(handoff.CodePermissionDenied, "only an agent can ask who it is", "")
	}
	var out Whoami
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		return first(
			func() (err error) { out.Agent, err = tx.AgentIn(call.Actor.ID, ""); return err },
			func() (err error) { out.Claims, err = tx.Claims(call.Actor.ID, whoamiMost+1); return err },
			func() (err error) { out.Roots, err = tx.Roots(workspacesOf(out.Claims)); return err },
			func() (err error) { out.UnreadTotal, err = tx.UnreadTotal(call.Actor.ID); return err },
			func() (err error) { out.News, err = tx.News(call.Actor.ID, whoamiMost+1); return err })
	})
	if out.MoreClaims = len(out.Claims) > whoamiMost; out.MoreClaims {
		out.Claims = out.Claims[:whoamiMost]
	}
	if out.MoreNews = len(out.News) > whoamiMost; out.MoreNews {
		out.News = out.News[:whoamiMost]
	}
	return out, err
}

// workspacesOf names the workspaces of some handoffs, each once.
func workspacesOf(list []handoff.Handoff) []string {
	ids := map[string]bool{}
	for i := range list {
		ids[list[i].WorkspaceID] = true
	}
	delete(ids, "")
	return sortedKeys(ids)
}
