package hub

import (
	"context"
	"errors"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// search is where a claim of the next one stands, and among what it looks.
type search struct {
	after store.Place
	among stage
	// more: what was looked at did not fit, and there is more behind after.
	more bool
	// again: there is more that the clock opened, and what was written down of it is to be committed first.
	again bool
}

const (
	// triesInside is how many offers one transaction looks at: it holds up every other write.
	triesInside = 64
	// scanPage and scanMost bound what a single call reads besides, scanFirst how much of it before it
	// leaves targets that only exclude for later.
	scanPage  = 500
	scanMost  = 20_000
	scanFirst = 1000
)

func (h *Hub) claimNext(ctx context.Context, call Call, in ClaimInput, at place, once once) (ClaimResult, error) {
	var out ClaimResult
	// What a call finds out only by trying: what its key did, whether its session is good.
	mustTry := once.op.Key != "" || h.cfg.StrictTrust || in.Session != (Session{})
	err := h.park(ctx, call, h.claimers.wakes(call.Actor.ID, at), in.Wait, func(w *waiter) (bool, error) {
		if w != nil { // it waits for what it may claim, and looks without holding up those who write
			page, err := h.availablePage(ctx, call, at, listCursor{at: store.Start}, 1, nil)
			if err != nil {
				return false, err
			}
			w.on(page.wakes)
			if !mustTry && len(page.Works) == 0 && page.NextCursor == "" {
				return false, nil
			}
			mustTry = false
		}
		var err error
		out.Work, err = h.tryNext(ctx, call, in, at, once)
		return out.Work != nil, err
	})
	if err != nil {
		return ClaimResult{}, err
	}
	out.TimedOut = out.Work == nil && in.Wait > 0
	return out, nil
}

// wakesOf are what wakes a call that waits for something under the keys of its caller. unjudged: it
// found something that it may take once somebody can verify the work.
func wakesOf(workspace string, offers []string, unjudged bool) []string {
	keys := make([]string, len(offers), len(offers)+1)
	for i, k := range offers {
		keys[i] = wakeOffer(workspace, k)
	}
	if unjudged {
		keys = append(keys, wakeVerifiers)
	}
	return keys
}

// claimant reads who wants to claim, in the workspace it means.
func (h *Hub) claimant(tx *store.Tx, call Call, at place) (store.Workspace, *handoff.Agent, error) {
	return claimant(tx.Claimant, call, at)
}

func claimant(read func(agentID, workspaceID string) (store.Workspace, handoff.Agent, error), call Call, at place) (store.Workspace, *handoff.Agent, error) {
	w, a, err := read(call.Actor.ID, at.id)
	if err == nil && a.Outside {
		err = notAdmitted(at, call.Actor)
	}
	return w, &a, err
}

// stage is among which offers a search looks. Targets that only exclude stand under one key for
// everybody, so a heap of them that does not match must not keep anybody from what does: past the
// first ones they come last.
type stage int

const (
	amongAll stage = iota
	amongIndexed
	amongScan
)

// keys are those of the agent that count in the stage.
func (s stage) keys(all []string) []string {
	indexed, scan := handoff.SplitScan(all)
	switch s {
	case amongIndexed:
		return indexed
	case amongScan:
		return scan
	}
	return all
}

// tryNext claims the next one that there is; nil when there is none.
func (h *Hub) tryNext(ctx context.Context, call Call, in ClaimInput, at place, once once) (*Work, error) {
	s := search{after: store.Start}
	got, err := h.claimBehind(ctx, call, in, at, once, &s)
	if err != nil || got != nil || !s.more {
		return got, err
	}
	from := s.after
	for _, among := range []stage{amongIndexed, amongScan} {
		got, stopped, err := h.searchFrom(ctx, call, in, at, once, among, from)
		if err == nil && got == nil && stopped != (store.Place{}) {
			// Before a heap it looks every time, and behind it from where the last call stopped.
			got, stopped, err = h.searchFrom(ctx, call, in, at, once, among, h.claimers.goOn(call.Actor.ID, at, among, stopped))
		}
		if err != nil || got != nil {
			return got, err
		}
		h.claimers.stop(call.Actor.ID, at, among, stopped)
	}
	return nil, nil
}

// searchFrom claims the first one behind a place that fits. stopped is where it gave up; the zero place
// is the end.
func (h *Hub) searchFrom(ctx context.Context, call Call, in ClaimInput, at place, once once, among stage, from store.Place) (got *Work, stopped store.Place, err error) {
	s := search{after: from, among: among, more: true}
	for {
		if got, err = h.claimBehind(ctx, call, in, at, once, &s); err != nil || got != nil || !s.more {
			return got, store.Place{}, err
		}
		// Look on without holding anybody up, and claim from where something fits.
		page, err := h.offeredPage(ctx, call, at, listCursor{stage: among, at: s.after, only: true}, 1, nil, handoff.AgentKeys, true)
		if err != nil || len(page.Works) == 0 {
			return nil, page.stopped, err
		}
		s.after = store.PlaceOf(&page.Works[0].Handoff)
		s.after.ID = before(s.after.ID)
	}
}

// before is a text right before an id, so that a search behind it finds the id first.
func before(id string) string { return id[:len(id)-1] }

// waitsFor ends a transaction that would have to wait for a handoff while it holds others, which it has
// looked at and which do not fit: two calls could wait for each other so. The id is empty where there is
// nothing to wait for, and only all that is held is to be let go.
type waitsFor struct{ id string }

func (w waitsFor) Error() string { return "it waits for the handoff " + w.id }

// claimBehind claims the first one behind the place of the search that fits, in as many transactions as
// it has to wait.
func (h *Hub) claimBehind(ctx context.Context, call Call, in ClaimInput, at place, once once, s *search) (*Work, error) {
	from := *s
	for wait := ""; ; {
		*s = from
		out, err := h.claimOnce(ctx, call, in, at, once, s, wait)
		var waits waitsFor
		switch {
		case errors.As(err, &waits):
			wait = waits.id
		case err == nil && s.again:
			wait = ""
		default:
			return out, err
		}
	}
}

// claimOnce is one transaction of claimBehind: it takes the handoff that it is to wait for, if it may
// have that then, or else looks for one.
func (h *Hub) claimOnce(ctx context.Context, call Call, in ClaimInput, at place, once once, s *search, wait string) (*Work, error) {
	var out *Work
	from := *s
	write := h.st.WriteTogether
	if in.Session != (Session{}) || wait != "" { // its row may be another's just now
		write = h.st.Write
	}
	err := h.changeIn(ctx, write, "claim", call, func(c *change) error {
		out, *s = nil, from
		s.more, s.again = false, false
		c.ExpectEffect(once.op)
		if wait == "" {
			h.claimers.expect(c.Tx, call.Actor.ID, at, s)
		} else {
			c.ExpectClaimant(call.Actor.ID, at.id)
			c.ExpectLockHandoff(wait)
		}
		if err := c.HoldKey(once.op); err != nil {
			return err
		}
		if err := c.admit(in.Session, nil); err != nil {
			return err
		}
		effect, found, err := c.done(once.op, once.print)
		if err != nil {
			return err
		}
		if found && !c.MayWait() { // for the row of what was claimed
			return store.ErrWaits
		}
		if found {
			was, row, err := c.take(effect.HandoffID)
			if isCode(err, handoff.CodeNotFound) {
				return claimGone(&handoff.Handoff{Door: handoff.DoorPool})
			}
			if err != nil {
				return err
			}
			w, err := c.claimed(&was, &row, effect, true, in, once)
			out = &w
			return err
		}
		w, a, err := claimant(c.KeepClaimant, call, at)
		if err != nil {
			return err
		}
		h.claimers.note(a, at, w)
		row, ok, err := c.firstFor(a, w, s, wait)
		if err != nil || !ok {
			return err
		}
		was := row
		if err := c.claimAs(&was, &row, a, time.Duration(in.Lease)*time.Second); err != nil {
			return err
		}
		if err := c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch}); err != nil {
			return err
		}
		got, err := h.work(c.Tx, call.Actor, a, row)
		out = &got
		return err
	})
	return out, err
}

// firstFor is nextFor, or the handoff that was to be waited for.
func (c *change) firstFor(a *handoff.Agent, w store.Workspace, s *search, wait string) (row handoff.Handoff, found bool, err error) {
	if wait == "" {
		return c.nextFor(a, w, s)
	}
	row, err = c.LockHandoff(wait)
	if err != nil {
		return row, false, err
	}
	if row.State == handoff.Open && !row.Blocked() {
		if found, _, err = claimable(c.Tx, &row, a); found || err != nil {
			return row, found, err
		}
	}
	return row, false, waitsFor{} // somebody was faster: it is looked for another
}

// nextFor locks the next handoff that the agent may claim. When the first ones do not fit it gives
// up after some, and says where to go on.
func (c *change) nextFor(a *handoff.Agent, w store.Workspace, s *search) (row handoff.Handoff, found bool, err error) {
	workspace := w.ID
	keys := s.among.keys(handoff.AgentKeys(a))
	// What the clock has opened is not written down everywhere yet, and may come before what is.
	slipped := s.among == amongAll && !w.Opens.IsZero() && !w.Opens.After(c.Now())
	if slipped {
		if !c.MayWait() { // for the rows that it writes down
			return row, false, store.ErrWaits
		}
		if slipped, err = c.settleSlipped(a, workspace); err != nil {
			return row, false, err
		}
	}
	for range triesInside {
		row, found, err := c.TakeOffered(workspace, keys, s.after)
		if err != nil {
			return row, false, err
		}
		if !found && slipped { // there may be more of it than is written down at once
			s.again = true
			return row, false, nil
		}
		if !found {
			if c.Alone() {
				return row, false, nil
			}
			none, err := c.busy(a, workspace, keys, s)
			if err != nil || none {
				return row, false, err
			}
			continue
		}
		fits, _, err := claimable(c.Tx, &row, a)
		if err != nil {
			return row, false, err
		}
		if fits {
			return row, true, nil
		}
		s.after = store.PlaceOf(&row)
	}
	s.more = true
	return row, false, nil
}

// busy is for when nothing was free to take: others may be at all that there is, and give it up. It
// looks at everything at one moment, from the start, because what was passed over may have changed
// since; that comes after what the clock opened was written down, or somebody might write that down in
// between, unseen by both looks. For the first that fits the call waits, in a transaction of its own.
// none: there was nothing at that moment, or nothing behind a heap that does not fit.
func (c *change) busy(a *handoff.Agent, workspace string, keys []string, s *search) (none bool, err error) {
	last := s.after
	for _, after := range []store.Place{store.Start, s.after} {
		list, err := c.Offered(workspace, keys, after, triesInside)
		if err != nil {
			return false, err
		}
		for i := range list {
			fits, _, err := claimable(c.Tx, &list[i], a)
			if err != nil {
				return false, err
			}
			if fits && !c.MayWait() {
				return false, store.ErrWaits
			}
			if fits {
				return false, waitsFor{list[i].ID}
			}
		}
		if len(list) < triesInside {
			return true, nil
		}
		last = store.PlaceOf(&list[len(list)-1])
	}
	s.after = last
	return false, nil
}

// settleSlipped writes down what the clock opened for the agent.
func (c *change) settleSlipped(a *handoff.Agent, workspace string) (bool, error) {
	const most = 64
	list, err := c.Slipped(workspace, scanPage)
	if err != nil {
		return false, err
	}
	n := 0
	for i := range list {
		if now := list[i].At(c.Now()); n == most || !now.MayClaim(a, c.Now()) {
			continue
		}
		if _, err := c.settle(list[i].ID); err != nil {
			return false, err
		}
		n++ // also where another was faster
	}
	return n > 0, nil
}
