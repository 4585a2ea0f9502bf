package hub

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The scopes of a list of open handoffs.
const (
	ScopeAvailable   = "available"
	ScopeMineCreated = "mine_created"
	ScopeMineClaimed = "mine_claimed"
	ScopeToVerify    = "to_verify"
)

// Scopes lists them in the order they are documented.
func Scopes() []string {
	return []string{ScopeAvailable, ScopeMineCreated, ScopeMineClaimed, ScopeToVerify}
}

// AvailableLimit is the most items of a page of open handoffs.
const AvailableLimit = 500

// AvailableInput selects a page of the pool of one workspace.
type AvailableInput struct {
	ProjectRoot string
	AgentID     string
	// Scope is one of [Scopes]; nothing is available.
	Scope  string
	Cursor string
	// Limit is the most items of a page, 1 to [AvailableLimit]; 0 means 50.
	Limit int
	// Wait parks the call while there is nothing.
	Wait time.Duration
	// Fit is as in [InboxInput].
	Fit func([]Work) int
}

// Available is a page of it. Lists show no payload.
type Available struct {
	Works      []Work
	NextCursor string // empty on the last page
	TimedOut   bool
	// wakes are the keys that another page would be announced under.
	wakes []string
	// stopped is the place behind which the search goes on, where NextCursor says that it does.
	stopped store.Place
}

// Available lists what the caller may claim, higher priority then oldest first; or what it created
// or holds, newest first; or what waits for its verdict.
func (h *Hub) Available(ctx context.Context, call Call, in AvailableInput) (Available, error) {
	at, err := h.poolCall(call, in.AgentID, in.ProjectRoot)
	if err != nil {
		return Available{}, err
	}
	if err := checkWait(in.Wait); err != nil {
		return Available{}, err
	}
	if in.Limit == 0 {
		in.Limit = DefaultPage
	}
	if in.Limit < 1 || in.Limit > AvailableLimit {
		return Available{}, handoff.Invalid("limit", fmt.Sprintf("%d came; 1 to %d are accepted", in.Limit, AvailableLimit))
	}
	in.Scope = strings.ToLower(in.Scope)
	if in.Scope == "" {
		in.Scope = ScopeAvailable
	}
	if !slices.Contains(Scopes(), in.Scope) {
		return Available{}, handoff.Invalid("scope", handoff.Quote(in.Scope)+" came; "+joinOr(Scopes())+" are accepted")
	}
	from, err := parseListCursor(in.Cursor, in.Scope)
	if err != nil {
		return Available{}, err
	}
	var out Available
	err = h.park(ctx, call, []string{call.Actor.ID}, in.Wait, func(w *waiter) (bool, error) {
		var err error
		switch in.Scope {
		case ScopeAvailable:
			out, err = h.availablePage(ctx, call, at, from, in.Limit, in.Fit)
		case ScopeToVerify:
			out, err = h.toVerifyPage(ctx, call, at, from, in.Limit, in.Fit)
		default:
			out, err = h.minePage(ctx, call, at, in.Scope, from.at, in.Limit, in.Fit)
		}
		if w != nil && err == nil {
			w.on(out.wakes)
		}
		return len(out.Works) > 0 || out.NextCursor != "", err
	})
	out.TimedOut = err == nil && in.Wait > 0 && len(out.Works) == 0 && out.NextCursor == ""
	return out, err
}

// listCursor is where a list goes on: behind a place, in a stage of the search.
type listCursor struct {
	stage stage
	at    store.Place
	// later is where the stage of scans begins, once the search has come so far.
	later store.Place
	// only: the search ends with the stage.
	only bool
}

// availablePage reads what the caller may claim. A page ends early after scanMost rows that did not
// fit; its cursor then goes on.
func (h *Hub) availablePage(ctx context.Context, call Call, at place, from listCursor, limit int, fit func([]Work) int) (Available, error) {
	return h.offeredPage(ctx, call, at, from, limit, fit, handoff.AgentKeys, true)
}

func (h *Hub) toVerifyPage(ctx context.Context, call Call, at place, from listCursor, limit int, fit func([]Work) int) (Available, error) {
	return h.offeredPage(ctx, call, at, from, limit, fit, handoff.VerifierKeys, false)
}

// offeredPage reads a page of what is offered under the keys of the caller, and of that what it may
// take.
func (h *Hub) offeredPage(ctx context.Context, call Call, at place, from listCursor, limit int, fit func([]Work) int, keysOf func(*handoff.Agent) []string, toClaim bool) (Available, error) {
	var out Available
	var places []listCursor // behind each of the works
	nobody := false         // could verify something, had the caller claimed it
	for scanned := 0; ; {
		rows, kept, err := h.offeredRows(ctx, call, at, from, min(scanPage, max(limit+1, 32)), keysOf, toClaim)
		if err != nil {
			return out, err
		}
		scanned += rows.read
		nobody = nobody || rows.unjudged
		out.wakes = wakesOf(rows.workspace, rows.keys, nobody)
		for i := range kept {
			places = append(places, listCursor{stage: from.stage, at: store.PlaceOf(&kept[i].Handoff), later: from.later})
		}
		out.Works = append(out.Works, kept...)
		from.at = rows.last
		missed := scanned - len(out.Works)
		switch {
		case toClaim && !from.only && from.stage == amongAll && rows.more && missed > scanFirst:
			from.stage, from.later = amongIndexed, from.at
		case !rows.more && from.stage == amongIndexed && !from.only:
			from.stage, from.at = amongScan, from.later
			rows.more = true
		}
		if rows.more && len(out.Works) <= limit && scanned < h.scanMost {
			continue
		}
		h.charge(call.Actor, missed)
		n := min(limit, len(out.Works))
		if fit != nil && n > 0 {
			n = fit(out.Works[:n])
		}
		switch {
		case n < len(out.Works):
			out.NextCursor = places[n-1].String()
			out.Works = out.Works[:n]
		case rows.more:
			out.NextCursor, out.stopped = from.String(), from.at
		}
		return out, nil
	}
}

// offeredRead is how far a read of offers came.
type offeredRead struct {
	read int
	more bool
	last store.Place // of the last row that was read
	// What a caller that waits is woken by: the keys of all stages, and whether something waits for
	// somebody who could verify it.
	workspace string
	keys      []string
	unjudged  bool
}

func (h *Hub) offeredRows(ctx context.Context, call Call, at place, from listCursor, page int, keysOf func(*handoff.Agent) []string, toClaim bool) (offeredRead, []Work, error) {
	var read offeredRead
	var kept []Work
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		w, a, err := h.claimant(tx, call, at)
		if err != nil {
			return err
		}
		keys := keysOf(a)
		rows, err := tx.Offered(w.ID, from.stage.keys(keys), from.at, page)
		if err != nil {
			return err
		}
		read = offeredRead{read: len(rows), more: len(rows) == page, last: from.at, workspace: w.ID, keys: keys}
		if len(rows) > 0 {
			read.last = store.PlaceOf(&rows[len(rows)-1])
		}
		if toClaim && from.stage == amongAll {
			if rows, err = withSlipped(tx, w.ID, rows, from.at, read.last, read.more); err != nil {
				return err
			}
		}
		var fits []handoff.Handoff
		for i := range rows {
			ok, judged := rows[i].MayVerify(call.Actor, a), true
			if toClaim {
				if ok, judged, err = claimable(tx, &rows[i], a); err != nil {
					return err
				}
			}
			read.unjudged = read.unjudged || !judged
			if ok {
				fits = append(fits, rows[i].At(tx.Now()))
			}
		}
		kept, err = h.works(tx, call.Actor, a, fits)
		return err
	})
	return read, kept, err
}

// withSlipped puts what the clock opened between the rows of a page, from behind after up to next.
func withSlipped(tx *store.Tx, workspace string, rows []handoff.Handoff, after, next store.Place, more bool) ([]handoff.Handoff, error) {
	const most = 256
	slipped, err := tx.Slipped(workspace, most)
	if err != nil || len(slipped) == 0 {
		return rows, err
	}
	for i := range slipped {
		p := store.PlaceOf(&slipped[i])
		if after.Before(p) && (!more || p.Before(next)) {
			rows = append(rows, slipped[i])
		}
	}
	return store.InOrder(rows), nil
}

// minePage reads what the caller created or holds, newest first.
func (h *Hub) minePage(ctx context.Context, call Call, at place, scope string, after store.Place, limit int, fit func([]Work) int) (Available, error) {
	out := Available{wakes: []string{call.Actor.ID}}
	var last store.Place
	more := false
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		w, a, err := h.claimant(tx, call, at)
		if err != nil {
			return err
		}
		read := tx.PoolOf
		if scope == ScopeMineClaimed {
			read = tx.PoolHeld
		}
		rows, err := read(w.ID, call.Actor.ID, after, limit+1)
		if err != nil {
			return err
		}
		if more = len(rows) > limit; more {
			rows = rows[:limit]
			last = store.PlaceOf(&rows[limit-1])
		}
		kept := rows[:0]
		for i := range rows {
			now := rows[i].At(tx.Now())
			if scope == ScopeMineCreated || now.Holder == call.Actor.ID {
				kept = append(kept, now)
			}
		}
		out.Works, err = h.works(tx, call.Actor, a, kept)
		return err
	})
	if err != nil {
		return out, err
	}
	if fit != nil && len(out.Works) > 0 {
		if n := fit(out.Works); n < len(out.Works) {
			out.Works, more = out.Works[:n], true
			last = store.PlaceOf(&out.Works[n-1].Handoff)
		}
	}
	if more {
		out.NextCursor = listCursor{at: last}.String()
	}
	return out, nil
}

// String is the cursor as it is given out.
func (c listCursor) String() string {
	text := strconv.Itoa(int(c.stage)) + "!" + placeText(c.at)
	if c.stage == amongIndexed {
		text += "!" + placeText(c.later)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func placeText(p store.Place) string {
	return strconv.Itoa(p.Rank) + "." + strconv.FormatInt(p.CreatedAt, 36) + "." + p.ID
}

func parseListCursor(cursor, scope string) (listCursor, error) {
	if cursor == "" {
		if scope == ScopeMineCreated || scope == ScopeMineClaimed {
			return listCursor{}, nil
		}
		return listCursor{at: store.Start}, nil
	}
	if b, err := base64.RawURLEncoding.DecodeString(cursor); err == nil {
		parts := strings.Split(string(b), "!")
		at, err := strconv.Atoi(parts[0])
		c := listCursor{stage: stage(at)}
		if err == nil && at >= 0 && at <= int(amongScan) && len(parts) == 2+at%2 {
			var okAt, okLater bool
			c.at, okAt = parsePlace(parts[1])
			c.later, okLater = parsePlace(parts[len(parts)-1])
			if okAt && okLater {
				return c, nil
			}
		}
	}
	return listCursor{}, handoff.Invalid("cursor", handoff.Quote(cursor)+" came; pass next_cursor of an earlier answer back as it was, or leave it out for the first page")
}

func parsePlace(text string) (store.Place, bool) {
	parts := strings.SplitN(text, ".", 3)
	if len(parts) != 3 || handoff.CheckText("cursor", parts[2], 64) != nil {
		return store.Place{}, false
	}
	rank, errRank := strconv.Atoi(parts[0])
	at, errAt := strconv.ParseInt(parts[1], 36, 64)
	return store.Place{Rank: rank, CreatedAt: at, ID: parts[2]}, errRank == nil && errAt == nil && rank >= -2 && rank <= 2 && at >= 0
}
