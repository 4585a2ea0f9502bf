package hub

import (
	"context"
	"slices"
	"sync"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// ClaimInput takes an open handoff: the named one, or the next that the caller may claim.
type ClaimInput struct {
	ProjectRoot string `json:"-"`
	AgentID     string `json:"-"`
	// ThreadID is empty for the next one. The names are those of [AcceptInput]: one key sent
	// through both doors is one effect.
	ThreadID       string        `json:"thread_id"`
	Workspace      string        `json:"workspace_id,omitempty"` // filled in for the next one
	Lease          int64         `json:"lease_seconds,omitempty"`
	IdempotencyKey string        `json:"idempotency_key,omitempty"`
	Session        Session       `json:"-"`
	Wait           time.Duration `json:"-"`
}

// ClaimResult is the answer to a claim. There was nothing to take when Work is nil.
type ClaimResult struct {
	Work     *Work
	TimedOut bool
}

// Claim takes one handoff, single winner. Without an id it takes the next one that the caller may
// claim, higher priority then oldest first, and no two callers the same; it waits for one as long
// as it is told to. It takes none only if at one moment there was none. On PostgreSQL the order is
// kept as far as nobody has to wait for it: one that another call is at is passed over while there are
// others, also if that call then changes nothing.
func (h *Hub) Claim(ctx context.Context, call Call, in ClaimInput) (ClaimResult, error) {
	at, err := h.poolCall(call, in.AgentID, in.ProjectRoot)
	if err != nil {
		return ClaimResult{}, err
	}
	if err := checkWait(in.Wait); err != nil {
		return ClaimResult{}, err
	}
	// Also where there is nothing to claim yet.
	if err := handoff.CheckLease(time.Duration(in.Lease)*time.Second, h.lim); err != nil {
		return ClaimResult{}, err
	}
	if in.ThreadID == "" {
		in.Workspace = at.id
	}
	once, err := h.keyed(call, "claim", &in.IdempotencyKey, &in)
	if err != nil {
		return ClaimResult{}, err
	}
	if in.ThreadID != "" {
		w, err := h.claimNamed(ctx, call, in, at, once)
		return ClaimResult{Work: w}, err
	}
	return h.claimNext(ctx, call, in, at, once)
}

func (h *Hub) claimOne(ctx context.Context, call Call, in ClaimInput, at place, once once) (*Work, error) {
	var out Work
	err := h.change(ctx, "claim", call, func(c *change) error {
		// The agent first, as its disabling does, or the two could wait for each other.
		c.ExpectKeepAgentIn(call.Actor.ID, at.id)
		c.ExpectLockHandoff(in.ThreadID)
		if _, err := c.keptLabelled(at.id); err != nil {
			return err
		}
		was, row, effect, found, err := c.beginAt(c.takeToClaim, in.ThreadID, at, in.Session, once)
		if err != nil {
			return err
		}
		out, err = c.claimed(&was, &row, effect, found, in, once)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

// claimed makes the claim, or finds the one that was made under the same key.
func (c *change) claimed(was, row *handoff.Handoff, effect store.Effect, found bool, in ClaimInput, once once) (Work, error) {
	if found && !claimStands(row, c.call.Actor, effect.Epoch) {
		return Work{}, claimGone(row)
	}
	a, err := c.keptLabelled(row.WorkspaceID)
	if err != nil {
		return Work{}, err
	}
	if !found {
		if err := c.claimAs(was, row, a, time.Duration(in.Lease)*time.Second); err != nil {
			return Work{}, err
		}
		if err := c.keep(once, store.Effect{HandoffID: row.ID, Epoch: row.Epoch}); err != nil {
			return Work{}, err
		}
	}
	w, err := c.hub.work(c.Tx, c.call.Actor, a, *row)
	w.Replay = found
	return w, err
}

// takeToClaim is take for a claim: whoever could have claimed the handoff while it was open is told
// that it came too late, even if it may not see who was faster.
func (c *change) takeToClaim(id string) (was, now handoff.Handoff, err error) {
	return c.takeIf(id, func(h *handoff.Handoff, a *handoff.Agent) bool {
		return h.VisibleTo(c.call.Actor, a, c.Now()) || h.Lost(a, c.Now())
	}, func(h *handoff.Handoff) (*handoff.Agent, error) {
		return c.keptLabelled(h.WorkspaceID)
	})
}

// search is where a claim of the next one stands, and among what it looks.
type search struct {
	after store.Place
	among stage
	// more: what was looked at did not fit, and there is more behind after.
	more bool
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
	tells := once.op.Key != "" || h.cfg.StrictTrust || in.Session != (Session{})
	err := h.park(ctx, call, h.claimers.wakes(call.Actor.ID, at), in.Wait, func(w *waiter) (bool, error) {
		if w != nil { // it waits for what it may claim, and looks without holding up those who write
			page, err := h.availablePage(ctx, call, at, listCursor{at: store.Start}, 1, nil)
			if err != nil {
				return false, err
			}
			w.on(page.wakes)
			if !tells && len(page.Works) == 0 && page.NextCursor == "" {
				return false, nil
			}
			tells = false
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

func (h *Hub) claimBehind(ctx context.Context, call Call, in ClaimInput, at place, once once, s *search) (*Work, error) {
	var out *Work
	from := s.after
	write := h.st.WriteTogether
	if in.Session != (Session{}) { // its row may be another's just now
		write = h.st.Write
	}
	err := h.changeBy(write, ctx, "claim", call, func(c *change) error {
		out, s.after, s.more = nil, from, false
		c.ExpectEffect(once.op)
		h.claimers.expect(c.Tx, call.Actor.ID, at, s)
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
		was, row, ok, err := c.nextFor(a, w, s)
		if err != nil || !ok {
			return err
		}
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

// claimers remembers how agents claimed last, so that a claim that waits knows by which keys, and on
// PostgreSQL the parts of the next claim can be asked for at once. What is remembered may be out of
// date: then it is asked for again.
type claimers struct {
	byAgent sync.Map // of lastClaim
	stopped sync.Map // by stopKey, of store.Place
}

// A search that ended behind a heap of what does not fit goes on there the next time, or it would
// never get past it.
type stopKey struct {
	agentID, at string
	among       stage
}

// stop notes where a search ended before the end; the zero place is the end.
func (l *claimers) stop(agentID string, at place, among stage, p store.Place) {
	if p == (store.Place{}) {
		l.stopped.Delete(stopKey{agentID, at.id, among})
		return
	}
	l.stopped.Store(stopKey{agentID, at.id, among}, p)
}

// goOn is where a search begins that would begin at from.
func (l *claimers) goOn(agentID string, at place, among stage, from store.Place) store.Place {
	if was, ok := l.stopped.Load(stopKey{agentID, at.id, among}); ok {
		if was := was.(store.Place); from.Before(was) {
			return was
		}
	}
	return from
}

type lastClaim struct {
	at        string // the place that was meant
	workspace string // the workspace that it was
	keys      []string
}

func (l *claimers) note(a *handoff.Agent, at place, w store.Workspace) {
	keys := handoff.AgentKeys(a)
	if was, ok := l.byAgent.Load(a.ID); ok {
		if was := was.(lastClaim); was.at == at.id && was.workspace == w.ID && slices.Equal(was.keys, keys) {
			return
		}
	}
	l.byAgent.Store(a.ID, lastClaim{at: at.id, workspace: w.ID, keys: keys})
}

// wakes are the keys that the agent will wait for, as far as that is known.
func (l *claimers) wakes(agentID string, at place) []string {
	if was, ok := l.byAgent.Load(agentID); ok {
		if was := was.(lastClaim); was.at == at.id {
			return wakesOf(was.workspace, was.keys, false)
		}
	}
	return nil
}

func (l *claimers) expect(tx *store.Tx, agentID string, at place, s *search) {
	if was, ok := l.byAgent.Load(agentID); ok {
		if was := was.(lastClaim); was.at == at.id {
			tx.ExpectClaim(agentID, at.id, was.workspace, s.among.keys(was.keys), s.after)
		}
	}
}

// nextFor locks the next handoff that the agent may claim. When the first ones do not fit it gives
// up after some, and says where to go on.
func (c *change) nextFor(a *handoff.Agent, w store.Workspace, s *search) (was, row handoff.Handoff, found bool, err error) {
	workspace := w.ID
	keys := s.among.keys(handoff.AgentKeys(a))
	// What the clock has opened is not written down everywhere yet, and may come before what is.
	slipped := s.among == amongAll && !w.Opens.IsZero() && !w.Opens.After(c.Now())
	if slipped {
		if !c.MayWait() { // for the rows that it writes down
			return was, row, false, store.ErrWaits
		}
		if slipped, err = c.settleSlipped(a, workspace); err != nil {
			return was, row, false, err
		}
	}
	for range triesInside {
		row, found, err := c.TakeOffered(workspace, keys, s.after)
		if err != nil {
			return row, row, false, err
		}
		if !found && slipped { // there was more of it than is written down at once
			if slipped, err = c.settleSlipped(a, workspace); err != nil {
				return row, row, false, err
			}
			if slipped {
				s.after = store.Start
				continue
			}
		}
		if !found {
			none := c.Alone()
			if !none {
				row, found, none, err = c.busy(a, workspace, keys, s)
			}
			if err != nil || none {
				return row, row, false, err
			}
			if !found {
				continue
			}
		}
		fits, _, err := claimable(c.Tx, &row, a)
		if err != nil {
			return row, row, false, err
		}
		if fits {
			return row, row, true, nil
		}
		s.after = store.PlaceOf(&row)
	}
	s.more = true
	return was, row, false, nil
}

// busy is for when nothing was free to take: others may be at all that there is, and give it up. It
// looks at everything at one moment, from the start, because what was passed over may have changed
// since; that comes after what the clock opened was written down, or somebody might write that down in
// between, unseen by both looks. For the first that fits it waits. found: that one is locked now, and open.
// none: there was nothing at that moment, or nothing behind a heap that does not fit.
func (c *change) busy(a *handoff.Agent, workspace string, keys []string, s *search) (row handoff.Handoff, found, none bool, err error) {
	last := s.after
	for _, after := range []store.Place{store.Start, s.after} {
		list, err := c.Offered(workspace, keys, after, triesInside)
		if err != nil {
			return row, false, false, err
		}
		for i := range list {
			fits, _, err := claimable(c.Tx, &list[i], a)
			if err != nil {
				return row, false, false, err
			}
			if fits && !c.MayWait() {
				return row, false, false, store.ErrWaits
			}
			if fits {
				row, err = c.LockHandoff(list[i].ID)
				return row, err == nil && row.State == handoff.Open && !row.Blocked(), false, err
			}
		}
		if len(list) < triesInside {
			return row, false, true, nil
		}
		last = store.PlaceOf(&list[len(list)-1])
	}
	s.after = last
	return row, false, false, nil
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

// claimable reports whether the agent may claim the row as it is now. judged is false when it might,
// if only somebody were left to verify the work.
func claimable(tx *store.Tx, row *handoff.Handoff, a *handoff.Agent) (fits, judged bool, err error) {
	now := row.At(tx.Now())
	if now.State != handoff.Open || now.Blocked() || !now.MayClaim(a, tx.Now()) {
		return false, true, nil
	}
	in, err := verifiersOf(tx, &now, a.ID)
	fits = !now.Unverifiable(a.ID, in)
	return fits, fits, err
}

// verifiersOf says who would be left to verify the work of a claimant.
func verifiersOf(tx *store.Tx, row *handoff.Handoff, claimant string) (in handoff.ClaimInput, err error) {
	if row.VerifyBy == nil {
		return in, nil
	}
	verifier := row.Creator
	switch row.VerifyBy.Kind {
	case handoff.VerifyByCapability:
		in.OtherVerifiers, err = tx.OtherVerifiers(row.VerifyBy.Capability, row.WorkspaceID, claimant)
		return in, err
	case handoff.VerifyByAgent:
		verifier = row.VerifyBy.AgentID
	}
	if verifier == handoff.Operator().ID {
		return in, nil
	}
	a, err := tx.Agent(verifier)
	if isCode(err, handoff.CodeNotFound) {
		in.VerifierDisabled, err = true, nil
		return in, err
	}
	in.VerifierDisabled = a.Disabled
	return in, err
}

// claimGone refuses to repeat a claim that stands no more: its payload is another's business now.
func claimGone(row *handoff.Handoff) error {
	if row.Door == handoff.DoorPool {
		return handoff.Refuse(handoff.CodeLeaseLost, "the claim that this call made before no longer stands", "Look at it with handoff_get; if it is OPEN again, handoff_claim with a new key takes it anew.")
	}
	return handoff.Refuse(handoff.CodeLeaseLost, "the claim that this call made before no longer stands", "Look at the thread with view_thread; if it is pending again, accept_handoff with a new key takes it anew.")
}

// claimAs gives the row to the agent and writes that down.
func (c *change) claimAs(was, row *handoff.Handoff, a *handoff.Agent, lease time.Duration) error {
	in, err := verifiersOf(c.Tx, row, c.call.Actor.ID)
	if err != nil {
		return err
	}
	in.Agent, in.Lease = a, lease
	event, err := row.Claim(c.call.Actor, in, c.Now(), c.hub.lim)
	if err != nil {
		return c.hub.namingHolder(c.Tx, c.call.Actor, err, row, a)
	}
	if c.call.Actor.ID == row.Recipient {
		if row.FetchedAt.IsZero() {
			row.FetchedAt = c.Now()
		}
		if row.Door == handoff.DoorPool {
			if err := c.ClearNotices(c.call.Actor.ID, row); err != nil {
				return err
			}
		}
	}
	if event != handoff.Repeated {
		if err := c.record(row, event, c.call.Actor, "", 0, toldOfClaim(row)...); err != nil {
			return err
		}
	}
	return c.update(was, row)
}

// toldOfClaim are those whose inbox shows a claim. At the pool nobody's does: many handoffs go
// through it, and who waits for one follows it.
func toldOfClaim(row *handoff.Handoff) []string {
	if row.Door == handoff.DoorPool {
		return nil
	}
	return others(row)
}

// namingHolder adds who was faster, for those who may see it.
func (h *Hub) namingHolder(tx *store.Tx, actor handoff.Actor, err error, row *handoff.Handoff, a *handoff.Agent) error {
	e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
	if !ok || e.Code != handoff.CodeAlreadyClaimed || row.Door != handoff.DoorPool || !row.ReadableBy(actor, a, tx.Now()) {
		return err
	}
	names, readErr := h.handles.of(tx, map[string]bool{row.Holder: true})
	if readErr != nil {
		return readErr
	}
	e.Message = names[row.Holder] + " holds this handoff"
	return e.With("claimed_by", names[row.Holder])
}
