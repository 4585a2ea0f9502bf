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
	after, err := parsePlace(in.Cursor, in.Scope)
	if err != nil {
		return Available{}, err
	}
	var out Available
	err = h.park(ctx, call, []string{call.Actor.ID}, in.Wait, func(w *waiter) (bool, error) {
		var err error
		switch in.Scope {
		case ScopeAvailable:
			out, err = h.availablePage(ctx, call, at, after, in.Limit, in.Fit)
		case ScopeToVerify:
			out, err = h.toVerifyPage(ctx, call, at, after, in.Limit, in.Fit)
		default:
			out, err = h.minePage(ctx, call, at, in.Scope, after, in.Limit, in.Fit)
		}
		if w != nil && err == nil {
			w.on(out.wakes)
		}
		return len(out.Works) > 0 || out.NextCursor != "", err
	})
	out.TimedOut = err == nil && in.Wait > 0 && len(out.Works) == 0 && out.NextCursor == ""
	return out, err
}

// availablePage reads what the caller may claim behind a place. A page ends early after scanMost
// rows that did not fit; its cursor then goes on.
func (h *Hub) availablePage(ctx context.Context, call Call, at place, after store.Place, limit int, fit func([]Work) int) (Available, error) {
	return h.offeredPage(ctx, call, at, after, limit, fit, handoff.AgentKeys, true)
}

func (h *Hub) toVerifyPage(ctx context.Context, call Call, at place, after store.Place, limit int, fit func([]Work) int) (Available, error) {
	return h.offeredPage(ctx, call, at, after, limit, fit, handoff.VerifierKeys, false)
}

// offeredPage reads a page of what is offered under the keys of the caller, and of that what it may
// take.
func (h *Hub) offeredPage(ctx context.Context, call Call, at place, after store.Place, limit int, fit func([]Work) int, keysOf func(*handoff.Agent) []string, toClaim bool) (Available, error) {
	var out Available
	nobody := false // could verify something, had the caller claimed it
	for scanned := 0; ; {
		var next store.Place
		more := false
		err := h.st.Read(ctx, func(tx *store.Tx) error {
			w, a, err := h.claimant(tx, call, at)
			if err != nil {
				return err
			}
			page := min(scanPage, max(limit+1, 32))
			keys := keysOf(a)
			rows, err := tx.Offered(w.ID, keys, after, page)
			if err != nil {
				return err
			}
			more = len(rows) == page
			if more {
				next = store.PlaceOf(&rows[len(rows)-1])
			}
			scanned += len(rows)
			if toClaim {
				if rows, err = withSlipped(tx, w.ID, rows, after, next, more); err != nil {
					return err
				}
			}
			var fits []handoff.Handoff
			for i := range rows {
				ok, judged, err := rows[i].MayVerify(call.Actor, a) && !a.Outside, true, error(nil)
				if toClaim {
					ok, judged, err = claimable(tx, &rows[i], a)
				}
				if err != nil {
					return err
				}
				if ok {
					fits = append(fits, rows[i].At(tx.Now()))
				}
				nobody = nobody || !judged
			}
			out.wakes = wakesOf(w.ID, keys, nobody)
			list, err := works(tx, call.Actor, a, fits)
			out.Works = append(out.Works, list...)
			return err
		})
		if err != nil {
			return out, err
		}
		if len(out.Works) > limit {
			out.Works, more = out.Works[:limit], true
			next = store.PlaceOf(&out.Works[limit-1].Handoff)
		}
		if more && len(out.Works) < limit && scanned < scanMost {
			after = next
			continue
		}
		if fit != nil && len(out.Works) > 0 {
			if n := fit(out.Works); n < len(out.Works) {
				out.Works, more = out.Works[:n], true
				next = store.PlaceOf(&out.Works[n-1].Handoff)
			}
		}
		if more {
			out.NextCursor = placeCursor(next)
		}
		return out, nil
	}
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
		out.Works, err = works(tx, call.Actor, a, kept)
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
		out.NextCursor = placeCursor(last)
	}
	return out, nil
}

func placeCursor(p store.Place) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(p.Rank) + "." + strconv.FormatInt(p.CreatedAt, 36) + "." + p.ID))
}

func parsePlace(cursor, scope string) (store.Place, error) {
	if cursor == "" {
		if scope == ScopeMineCreated || scope == ScopeMineClaimed {
			return store.Place{}, nil
		}
		return store.Start, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		parts := strings.SplitN(string(b), ".", 3)
		if len(parts) == 3 && len(parts[2]) <= 64 && handoff.CheckText("cursor", parts[2], 64) == nil {
			rank, errRank := strconv.Atoi(parts[0])
			at, errAt := strconv.ParseInt(parts[1], 36, 64)
			if errRank == nil && errAt == nil && rank >= -2 && rank <= 2 && at > 0 {
				return store.Place{Rank: rank, CreatedAt: at, ID: parts[2]}, nil
			}
		}
	}
	return store.Place{}, handoff.Invalid("cursor", handoff.Quote(cursor)+" came; pass next_cursor of an earlier answer back as it was, or leave it out for the first page")
}
