package hub

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// Session is the session that a caller names in a call. The secret is needed where the hub trusts
// nobody without one, and must be right wherever it comes.
type Session struct {
	ID     string `json:"session_id"`
	Secret string `json:"session_secret"`
}

const (
	// SessionIdle is how long a session stays open without being used.
	SessionIdle = 30 * time.Minute
	// SessionLimit is how many an agent may have open at once.
	SessionLimit = 20
)

// OpenedSession is a session at the one moment its secret can be shown.
type OpenedSession struct {
	ID          string
	Secret      string
	WorkspaceID string
	OpenedAt    time.Time
	ExpiresAt   time.Time // unless it is used
}

// SessionState is the answer to the other verbs on a session.
type SessionState struct {
	ID        string
	Closed    bool
	ExpiresAt time.Time // of an open one, unless it is used
	Replay    bool
}

// OpenSession opens a session of the caller: permission_denied, workspace_unresolved, or rate_limited
// when it has [SessionLimit] of them.
func (h *Hub) OpenSession(ctx context.Context, call Call, projectRoot, agentID string) (OpenedSession, error) {
	at, err := h.poolCall(call, agentID, projectRoot)
	if err != nil {
		return OpenedSession{}, err
	}
	secret, hash := auth.NewSessionSecret()
	var out OpenedSession
	err = h.change(ctx, "session_open", call, func(c *change) error {
		w, err := enter(c.Tx, at, call.Actor)
		if err != nil {
			return err
		}
		// Under its lock, so that of two at once each counts the other.
		a, err := c.LockAgent(call.Actor.Handle)
		if err != nil {
			return err
		}
		if a.Disabled {
			return errNoKey
		}
		if err := c.roomForSession(a.ID); err != nil {
			return err
		}
		s := store.Session{ID: newID(), AgentID: a.ID, WorkspaceID: w.ID, Hash: hash, OpenedAt: c.Now()}
		out = OpenedSession{ID: s.ID, Secret: secret, WorkspaceID: w.ID, OpenedAt: s.OpenedAt, ExpiresAt: s.OpenedAt.Add(SessionIdle)}
		return first(
			func() error { return c.InsertSession(&s) },
			func() error { return c.sessionEvent(handoff.EventSessionOpened, &s) })
	})
	return out, err
}

// roomForSession closes what is idle of the agent's sessions, and refuses one more than its share.
func (c *change) roomForSession(agentID string) error {
	list, err := c.LockOpenSessions(agentID)
	if err != nil {
		return err
	}
	open, soonest := 0, time.Time{}
	for i := range list {
		s := &list[i]
		if c.idle(s) {
			if err := c.closeSession(s); err != nil {
				return err
			}
			continue
		}
		open++
		if end := s.LastSeenAt.Add(SessionIdle); soonest.IsZero() || end.Before(soonest) {
			soonest = end
		}
	}
	if open < SessionLimit {
		return nil
	}
	return handoff.Refuse(handoff.CodeRateLimited, fmt.Sprintf("%d sessions of yours are open, which is the limit", open),
		"Close one that you need no more with session_close, or use one that you have; one that is not used for 30 minutes closes by itself.").
		With("limit", SessionLimit).With("retry_after_seconds", int(math.Ceil(soonest.Sub(c.Now()).Seconds())))
}

// HeartbeatSession keeps a session open that is not used otherwise; session_required when it is none
// of the caller's, or over.
func (h *Hub) HeartbeatSession(ctx context.Context, call Call, s Session, key string) (SessionState, error) {
	return h.onSession(ctx, call, "session_heartbeat", s, key, func(c *change, row *store.Session, out *SessionState) error {
		switch {
		case out.Closed && out.Replay:
			return nil
		case out.Closed:
			return errSessionOver()
		case out.Replay:
			return nil
		}
		// At once: the answer says how long the session lasts.
		out.ExpiresAt = c.Now().Add(SessionIdle)
		return c.SawSession(row.ID, c.Now())
	})
}

// CloseSession ends a session of the caller. Closing one that is closed succeeds and changes nothing.
func (h *Hub) CloseSession(ctx context.Context, call Call, s Session, key string) (SessionState, error) {
	return h.onSession(ctx, call, "session_close", s, key, func(c *change, row *store.Session, out *SessionState) error {
		if !row.ClosedAt.IsZero() {
			out.Replay = true
			return nil
		}
		*out = SessionState{ID: row.ID, Closed: true, Replay: out.Replay}
		return c.closeSession(row)
	})
}

// onSession is the common path of the verbs on one session: whose it is and its secret, exact replay,
// the verb, the key.
func (h *Hub) onSession(ctx context.Context, call Call, verb string, s Session, key string, apply func(*change, *store.Session, *SessionState) error) (SessionState, error) {
	once, err := h.keyed(call, verb, &key, s.ID) // the secret never: a fingerprint is kept
	if err != nil {
		return SessionState{}, err
	}
	var out SessionState
	err = h.change(ctx, verb, call, func(c *change) error {
		row, found, err := c.LockSession(s.ID)
		if err != nil {
			return err
		}
		if err := owned(call.Actor, s, &row, found); err != nil {
			return err
		}
		if !auth.IsSecretOf(s.Secret, row.Hash) {
			return errWrongSecret()
		}
		_, replay, err := c.done(once.op, once.print)
		if err != nil {
			return err
		}
		out = SessionState{ID: row.ID, Closed: c.over(&row), Replay: replay}
		if !out.Closed {
			out.ExpiresAt = row.LastSeenAt.Add(SessionIdle)
		}
		if err := apply(c, &row, &out); err != nil || replay {
			return err
		}
		return c.keep(once, store.Effect{RefID: row.ID})
	})
	return out, err
}

// attribute notes the session in which what follows is done: session_required unless it is an open
// one of the caller. Where the hub is not strict its id is enough.
func (c *change) attribute(s Session) error {
	if s == (Session{}) {
		return nil
	}
	row, found, err := c.Session(s.ID)
	if err != nil {
		return err
	}
	if err := owned(c.call.Actor, s, &row, found); err != nil {
		return err
	}
	switch {
	case s.Secret != "" && !auth.IsSecretOf(s.Secret, row.Hash):
		return errWrongSecret()
	case c.over(&row):
		return errSessionOver()
	}
	c.hub.sessions.saw(row.ID, c.Now())
	c.session = row.ID
	return nil
}

// admit is attribute for a verb on a pool handoff; row is nil where none is known yet. Where the hub
// is strict, an agent that names no session, or not its secret, is refused at every door.
func (c *change) admit(s Session, row *handoff.Handoff) error {
	if c.call.Actor.Kind != handoff.KindAgent {
		return nil
	}
	open := row == nil || row.Door == handoff.DoorPool
	if c.hub.cfg.StrictTrust && open && (s.ID == "" || s.Secret == "") {
		what := "neither came"
		switch {
		case s.ID != "":
			what = "session_secret did not come"
		case s.Secret != "":
			what = "session_id did not come"
		}
		return handoff.Refuse(handoff.CodeSessionRequired, "this hub runs with trust_mode strict, in which a session and its secret are needed to do that with an open handoff; "+what,
			"Nothing was written. Open a session with session_open and pass its session_id and session_secret to "+poolToolOf(c.verb)+".")
	}
	return c.attribute(s)
}

// poolToolOf names the tool that takes a session for what a verb does.
func poolToolOf(verb string) string {
	if verb == "draft" { // an open handoff has no drafts
		verb = "complete"
	}
	return "handoff_" + verb
}

// owned refuses a session of another agent like one that nobody ever opened.
func owned(actor handoff.Actor, named Session, s *store.Session, found bool) error {
	if found && s.AgentID == actor.ID {
		return nil
	}
	if named.ID == "" {
		return sessionRequired("session_secret: it came without a session_id")
	}
	return sessionRequired("session_id: no session of yours has this id") // which may be a secret in the wrong place
}

func errWrongSecret() error {
	return sessionRequired("session_secret: it is not the one of this session")
}

func errSessionOver() error {
	return sessionRequired("session_id: this session is closed; one that is not used for 30 minutes closes by itself")
}

func sessionRequired(message string) error {
	return handoff.Refuse(handoff.CodeSessionRequired, message, "Nothing was written. Open another session with session_open, which shows its secret once.")
}

// over reports whether a session is closed, by a call or by the clock.
func (c *change) over(s *store.Session) bool { return !s.ClosedAt.IsZero() || c.idle(s) }

// idle reports whether an open session was not used for too long. It makes LastSeenAt what is known
// here.
func (c *change) idle(s *store.Session) bool {
	if seen := c.hub.sessions.seen(s.ID); seen.After(s.LastSeenAt) {
		s.LastSeenAt = seen
	}
	return c.Now().Sub(s.LastSeenAt) > SessionIdle
}

// closeSession writes down that a session is over. Its agent sees the event, whoever closed it.
func (c *change) closeSession(s *store.Session) error {
	return first(
		func() error { return c.Tx.CloseSession(s.ID, c.Now()) },
		func() error { return c.sessionEvent(handoff.EventSessionClosed, s) })
}

func (c *change) sessionEvent(event handoff.EventType, s *store.Session) error {
	c.wake[s.AgentID] = true
	return c.InsertEvent(&handoff.Event{Type: event, ActorID: s.AgentID, SubjectID: s.ID, TraceID: c.call.traceID(), At: c.Now()})
}

// closeSessionsOf ends the sessions of an agent that was turned off.
func (c *change) closeSessionsOf(agentID string) error {
	list, err := c.LockOpenSessions(agentID)
	if err != nil {
		return err
	}
	for i := range list {
		if err := c.closeSession(&list[i]); err != nil {
			return err
		}
	}
	return nil
}

// sweepSessions writes down that sessions were idle for too long. It waits a little longer than
// [SessionIdle]: another node may have seen a use that it has not written down yet.
func (h *Hub) sweepSessions(ctx context.Context) error {
	for {
		var due []string
		err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			due, err = tx.IdleSessions(tx.Now().Add(-SessionIdle-2*touchEvery), sweepChunk)
			return err
		})
		if err != nil {
			return err
		}
		for _, id := range due {
			if err := h.change(ctx, "sweep", Call{Actor: handoff.System()}, func(c *change) error { return c.sweepSession(id) }); err != nil {
				return err
			}
		}
		if len(due) < sweepChunk {
			return nil
		}
	}
}

func (c *change) sweepSession(id string) error {
	s, found, err := c.LockSession(id)
	if err != nil || !found || !s.ClosedAt.IsZero() {
		return err
	}
	if !c.idle(&s) {
		return c.SawSession(id, s.LastSeenAt)
	}
	return c.closeSession(&s)
}

// sessionUses are the latest uses of sessions that are not written down yet. Writing each within the
// call that makes it would lock the session's row against all other calls that name it.
type sessionUses struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (u *sessionUses) saw(id string, now time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil {
		u.at = map[string]time.Time{}
	}
	if now.After(u.at[id]) {
		u.at[id] = now
	}
}

func (u *sessionUses) seen(id string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.at[id]
}

func (u *sessionUses) all() map[string]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.at)
}

// wrote forgets the uses that are written down now.
func (u *sessionUses) wrote(uses map[string]time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for id, at := range uses {
		if u.at[id].Equal(at) {
			delete(u.at, id)
		}
	}
}

// touchSessions writes down when sessions were used.
func (h *Hub) touchSessions(ctx context.Context) error {
	uses := h.sessions.all()
	if len(uses) == 0 {
		return nil
	}
	err := h.st.Write(ctx, func(tx *store.Tx) error {
		for _, id := range slices.SortedFunc(maps.Keys(uses), strings.Compare) { // one order for all nodes
			if err := tx.SawSession(id, uses[id]); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		h.sessions.wrote(uses)
	}
	return err
}
