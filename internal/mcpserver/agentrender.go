package mcpserver

import (
	"maps"
	"slices"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// whoamiResult shows an agent to itself: its own words, and what the hub made. Of labels, claims and
// news it shows what fits, in shares of the page.
func whoamiResult(w *hub.Whoami) *result {
	a := &w.Agent
	keys := slices.Sorted(maps.Keys(a.Tags))
	used := envelope + weigh(func(r *result) { whoamiHead(r, a) })
	words, used := fittingIn(pageBytes/8, len(a.Capabilities), used, func(i int) int {
		return weigh(func(r *result) { r.prose("", a.Capabilities[i], true) })
	})
	tags, used := fittingIn(pageBytes/4, len(keys), used, func(i int) int {
		return weigh(func(r *result) { r.data("", map[string][]string{keys[i]: a.Tags[keys[i]]}, true) })
	})
	claims, used := fittingIn(pageBytes*5/8, len(w.Claims), used, func(i int) int {
		return weigh(func(r *result) { claim(r, w, i) })
	})
	news := fitting(len(w.News), used, func(i int) int {
		return weigh(func(r *result) { notice(r, w, i) })
	})
	r := newResult()
	whoamiHead(r, a)
	r.data("capabilities", append([]string{}, a.Capabilities[:words]...), true)
	shown := map[string][]string{}
	for _, k := range keys[:tags] {
		shown[k] = a.Tags[k]
	}
	r.data("tags", shown, true)
	r.list("open_claims", claims, 0, func(i int) { claim(r, w, i) })
	r.num("unread_total", int64(w.UnreadTotal))
	r.list("notices", news, 0, func(i int) { notice(r, w, i) })
	if w.MoreClaims || w.MoreNews || words < len(a.Capabilities) || tags < len(keys) || claims < len(w.Claims) || news < len(w.News) {
		r.flag("more", true)
	}
	return r
}

func whoamiHead(r *result, a *handoff.Agent) {
	r.token("handle", a.Handle)
	displayName(r, a.Name, a.Handle, true)
	r.prose("role", a.Role, true)
}

func claim(r *result, w *hub.Whoami, i int) {
	h := &w.Claims[i]
	r.token("handoff_id", h.ID)
	if h.WorkspaceID != "" {
		r.token("workspace_id", h.WorkspaceID)
		r.data("project_root", w.Roots[h.WorkspaceID], false) // as whoever used it first wrote it
	}
	r.token("door", string(h.Door))
	r.token("status", h.Status())
	r.num("claim_epoch", int64(h.Epoch))
	r.time("lease_expires_at", h.LeaseExpiresAt)
}

func notice(r *result, w *hub.Whoami, i int) {
	n := &w.News[i]
	r.token("type", string(n.Type))
	r.token("handoff_id", n.HandoffID)
	r.token("door", string(n.Door))
	r.time("at", n.At)
	if n.SequenceNo > 0 {
		r.num("sequence_no", int64(n.SequenceNo))
	}
}

func capabilitiesResult(c *hub.Capabilities) *result {
	r := newResult()
	r.head("Capabilities on this page: %d.", len(c.List))
	r.list("capabilities", len(c.List), 0, func(i int) { capability(r, &c.List[i]) })
	nullToken(r, "next_cursor", c.NextCursor)
	return r
}

// capability writes one word of the catalog, which the operator chose: another's text to the reader,
// and unaltered, because targets name it so.
func capability(r *result, c *hub.Capability) {
	r.data("capability", c.Name, false)
	r.list("agents", len(c.Agents), 0, func(i int) {
		r.token("handle", c.Agents[i].Handle)
		r.flag("present", c.Agents[i].Present)
	})
	r.num("total", int64(c.Total))
}

// fitCapabilities tells how many capabilities of a page fit.
func fitCapabilities(list []hub.Capability) int {
	return fitting(len(list), envelope, func(i int) int {
		return weigh(func(r *result) { capability(r, &list[i]) })
	})
}
