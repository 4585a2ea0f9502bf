package hub

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The streams of events that an agent can follow.
const (
	// StreamWorkspace holds what happens to the handoffs of one workspace.
	StreamWorkspace = "workspace"
	// StreamAgent holds what happens to whatever the caller takes part in, and to itself.
	StreamAgent = "agent"
	// StreamHandoff holds what happens to one handoff.
	StreamHandoff = "handoff"
	// StreamAll holds everything that the caller may see. Its cursors are those of the hub's log.
	StreamAll = "all"
)

// Streams lists those of the pool in the order they are documented.
func Streams() []string { return []string{StreamWorkspace, StreamAgent, StreamHandoff} }

// cursorMarks tell the cursors of the streams apart.
var cursorMarks = map[string]string{StreamWorkspace: "w.", StreamAgent: "a.", StreamHandoff: "", StreamAll: ""}

// A page of a stream has at most EventLimit events, and DefaultEvents by default.
const (
	EventLimit    = 500
	DefaultEvents = 100
)

// EventWaitInput selects a page of a stream.
type EventWaitInput struct {
	ProjectRoot string // ignored by the streams agent and all, and for a handoff of another door
	AgentID     string
	Stream      string // nothing is workspace
	// Cursor is where to go on; "0" is the beginning, and none means from now on.
	Cursor  string
	Filters EventFilters
	// Limit is the most events of a page, 1 to [EventLimit]; 0 means [DefaultEvents].
	Limit int
	// Wait parks the call while there is nothing.
	Wait time.Duration
	// Fit is as in [InboxInput].
	Fit func([]SeenEvent) int
}

// EventFilters leave out what does not fit all of them.
type EventFilters struct {
	// Types are names of events, or beginnings that end with a dot.
	Types []string `json:"type"`
	// AgentID is who caused it: a handle, a UUID, operator or hub.
	AgentID   string `json:"agent_id"`
	HandoffID string `json:"handoff_id"`
	TraceID   string `json:"trace_id"`
}

// EventPage is a page of a stream.
type EventPage struct {
	Events []SeenEvent
	// NextCursor goes on behind the page, also behind an empty one. HasMore tells that there may be
	// something already, also where the page is empty.
	NextCursor string
	HasMore    bool
	TimedOut   bool
}

// EventWait reads on in a stream of events, or waits for the next: none that the caller may see as
// things stand is skipped, and within a page none repeats. invalid_params, not_found,
// permission_denied, workspace_unresolved or cursor_expired.
func (h *Hub) EventWait(ctx context.Context, call Call, in EventWaitInput) (EventPage, error) {
	w, err := h.newWatch(ctx, call, in)
	if err != nil {
		return EventPage{}, err
	}
	var out EventPage
	err = h.park(ctx, call, nil, in.Wait, func(one *waiter) (bool, error) {
		var got watched
		err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			got, err = w.look(tx, one != nil)
			return err
		})
		if err != nil {
			return false, err
		}
		h.charge(call.Actor, got.inVain)
		w.cursor, out = got.next, EventPage{Events: got.seen, NextCursor: cursorMarks[w.stream] + got.next, HasMore: got.more}
		if one != nil {
			one.unsettled = got.unsettled
			one.on(got.wakes)
		}
		return len(out.Events) > 0 || out.HasMore, nil
	})
	if n := len(out.Events); err == nil && in.Fit != nil && n > 0 {
		if fit := in.Fit(out.Events); fit < n {
			out.Events, out.HasMore = out.Events[:fit], true
			out.NextCursor = cursorMarks[w.stream] + out.Events[fit-1].Cursor
		}
	}
	out.TimedOut = err == nil && in.Wait > 0 && len(out.Events) == 0 && !out.HasMore
	return out, err
}

// isMarked reports whether a cursor bears the mark of a stream: those of the log begin with a longer word.
func isMarked(cursor string) bool { return len(cursor) > 1 && cursor[1] == '.' }

// watch is one call that reads a stream.
type watch struct {
	actor  handoff.Actor
	stream string
	at     place
	filter eventFilter
	cursor string // without its mark
	limit  int
}

// watched is what one look found.
type watched struct {
	logPage
	seen  []SeenEvent
	wakes []string // what to wait for; filled in for a call that waits
}

func (h *Hub) newWatch(ctx context.Context, call Call, in EventWaitInput) (*watch, error) {
	w := &watch{actor: call.Actor, stream: strings.ToLower(in.Stream), limit: in.Limit}
	if w.stream == "" {
		w.stream = StreamWorkspace
	}
	if w.limit == 0 {
		w.limit = DefaultEvents
	}
	mark, known := cursorMarks[w.stream]
	return w, first(
		func() error { return isYou(call, "agent_id", in.AgentID) },
		func() error {
			if !known {
				return handoff.Invalid("stream", handoff.Quote(in.Stream)+" came; "+joinOr(Streams())+" are accepted")
			}
			return nil
		},
		func() (err error) {
			if in.ProjectRoot == "" && (w.stream == StreamAgent || w.stream == StreamAll) {
				return nil
			}
			w.at, err = placeOf(in.ProjectRoot)
			return err
		},
		func() error { return checkWait(in.Wait) },
		func() error {
			if w.limit < 1 || w.limit > EventLimit {
				return handoff.Invalid("limit", fmt.Sprintf("%d came; 1 to %d are accepted", in.Limit, EventLimit))
			}
			return nil
		},
		func() error {
			if w.stream == StreamHandoff && in.Filters.HandoffID == "" {
				return handoff.Invalid("filters.handoff_id", "it is missing; name the handoff that the stream handoff is about, or follow the stream workspace or agent")
			}
			return nil
		},
		func() error {
			w.cursor = in.Cursor
			if in.Cursor == "" || in.Cursor == store.Beginning {
				return nil
			}
			var marked bool
			w.cursor, marked = strings.CutPrefix(in.Cursor, mark)
			if !marked || w.cursor == "" || w.cursor == store.Beginning || w.stream != StreamHandoff && isMarked(w.cursor) {
				return store.BadCursor(in.Cursor)
			}
			return nil
		},
		func() (err error) { w.filter, err = h.eventFilter(ctx, in.Filters); return err })
}

// look reads one page. It keeps nothing.
func (w *watch) look(tx *store.Tx, waits bool) (watched, error) {
	s, err := newSight(tx, w.actor)
	if err != nil {
		return watched{}, err
	}
	var got watched
	switch w.stream {
	case StreamHandoff:
		got, err = w.ofHandoff(tx, s)
	case StreamWorkspace:
		got, err = w.ofWorkspace(tx, s, waits)
	case StreamAgent:
		got.wakes = append([]string{w.actor.ID}, eventWakes("", handoff.VerifierKeys(&s.agent))...)
		got.logPage, err = w.readLog(tx, s, waits, func(_ *handoff.Event, h *handoff.Handoff, a *handoff.Agent) bool {
			return h == nil || h.Concerns(w.actor, a)
		})
	default:
		got.wakes = []string{anyEvent}
		got.logPage, err = w.readLog(tx, s, waits, everything)
	}
	if err != nil {
		return got, err
	}
	if w.filter.handoffID != "" {
		got.wakes = []string{wakeHandoff(w.filter.handoffID)}
	}
	got.seen, err = s.named(got.events)
	return got, err
}

func (w *watch) ofWorkspace(tx *store.Tx, s *sight, waits bool) (got watched, err error) {
	in, err := enter(tx, w.at, w.actor)
	if err != nil {
		return got, err
	}
	if waits {
		names, err := tx.Aliases(in.ID)
		if err != nil {
			return got, err
		}
		for _, id := range append(names, in.ID) {
			got.wakes = append(append(got.wakes, eventWakes(id, handoff.AgentKeys(&s.agent))...), eventWakes(id, handoff.VerifierKeys(&s.agent))...)
		}
	}
	got.logPage, err = w.readLog(tx, s, waits, func(_ *handoff.Event, h *handoff.Handoff, _ *handoff.Agent) bool {
		return h != nil && h.Door == handoff.DoorPool && s.seats[h.WorkspaceID].workspace == in.ID
	})
	return got, err
}

func eventWakes(workspace string, keys []string) []string {
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = wakeEvent(workspace, k)
	}
	return list
}

// readLog reads the log; what the filter leaves out costs no more than its row.
func (w *watch) readLog(tx *store.Tx, s *sight, waits bool, also func(*handoff.Event, *handoff.Handoff, *handoff.Agent) bool) (logPage, error) {
	return readLog(tx, w.cursor, w.limit, waits, func(list []handoff.Event) ([]handoff.Event, error) {
		return s.keep(w.filter.of(list), also)
	})
}

// ofHandoff follows the numbers of one handoff's own events, which are there as soon as they are
// committed.
func (w *watch) ofHandoff(tx *store.Tx, s *sight) (got watched, err error) {
	id := w.filter.handoffID
	row, err := tx.Handoff(id)
	if isCode(err, handoff.CodeNotFound) {
		return got, poolNotFound(id)
	}
	if err != nil {
		return got, err
	}
	if err := inPlace(tx, &row, w.at); err != nil {
		return got, err
	}
	if row, err = s.seated(row); err != nil {
		return got, err
	}
	if !s.reads(&row) {
		return got, poolNotFound(id)
	}
	cursor := w.cursor
	if cursor == "" {
		cursor = tx.HandoffCursor(id, row.EventSeq)
	}
	got.logPage, err = follow(func(cursor string, n int) ([]handoff.Event, string, error) {
		after, err := tx.ParseHandoffCursor(cursor, id)
		if err != nil {
			return nil, cursor, err
		}
		list, err := tx.HandoffEvents(id, after, n)
		if err == nil && after > 0 && gap(list, after, row.EventSeq) {
			return nil, cursor, store.CursorGone()
		}
		for i := range list {
			list[i].Cursor = tx.HandoffCursor(id, list[i].Seq)
			cursor = list[i].Cursor
		}
		return list, cursor, err
	}, cursor, w.limit, func(list []handoff.Event) ([]handoff.Event, error) { return s.keep(w.filter.of(list), everything) })
	return got, err
}

// gap reports whether events of a handoff are gone that follow the given number; last counts those that
// there were when it was read, before the list.
func gap(list []handoff.Event, after, last int) bool {
	if len(list) == 0 {
		return last > after
	}
	return list[0].Seq != after+1
}

// eventFilter is [EventFilters] as it is compared.
type eventFilter struct {
	types                       []string
	actorID, handoffID, traceID string
}

func (h *Hub) eventFilter(ctx context.Context, in EventFilters) (eventFilter, error) {
	f := eventFilter{handoffID: in.HandoffID, traceID: in.TraceID}
	for _, word := range in.Types {
		t, err := eventWord(word)
		if err != nil {
			return f, err
		}
		f.types = append(f.types, t)
	}
	var err error
	if in.AgentID != "" {
		f.actorID, err = h.actorCalled(ctx, in.AgentID)
	}
	return f, err
}

// eventWord is the name of an event, or a beginning of names, with the dot at its end.
func eventWord(word string) (string, error) {
	t := strings.TrimSuffix(strings.ToLower(word), "*")
	var known []string
	for _, e := range handoff.EventTypes() {
		known = append(known, string(e))
		if string(e) == t || strings.HasSuffix(t, ".") && strings.HasPrefix(string(e), t) {
			return t, nil
		}
	}
	what := handoff.Quote(word) + " came; the name of an event is accepted, such as handoff.claimed, or a beginning such as handoff."
	near := handoff.NearMatches(t, known, 3)
	if len(near) > 0 {
		what += "; did you mean " + joinOr(near) + "?"
	}
	return "", handoff.Invalid("filters.type", what)
}

// actorCalled is the id of who is named in the log by a handle or a UUID.
func (h *Hub) actorCalled(ctx context.Context, name string) (string, error) {
	for _, a := range []handoff.Actor{handoff.Operator(), handoff.System()} {
		if strings.EqualFold(name, a.Handle) {
			return a.ID, nil
		}
	}
	var a store.AgentRow
	err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		a, err = tx.AgentByHandle(name)
		if isCode(err, handoff.CodeNotFound) && handoff.IsUUID(name) {
			a, err = tx.Agent(strings.ToLower(name))
		}
		return err
	})
	if !isCode(err, handoff.CodeNotFound) {
		return a.ID, err
	}
	roster, err := h.roster(ctx)
	if err != nil {
		return "", err
	}
	return "", nearAgents(handoff.Invalid("filters.agent_id", "no agent is registered as "+handoff.Quote(name)).With("named", name), roster)
}

// of keeps the events that fit.
func (f *eventFilter) of(list []handoff.Event) []handoff.Event {
	return slices.DeleteFunc(list, func(e handoff.Event) bool {
		switch {
		case f.handoffID != "" && e.HandoffID != f.handoffID, f.actorID != "" && e.ActorID != f.actorID, f.traceID != "" && e.TraceID != f.traceID:
			return true
		case len(f.types) == 0:
			return false
		}
		return !slices.ContainsFunc(f.types, func(t string) bool {
			return string(e.Type) == t || strings.HasSuffix(t, ".") && strings.HasPrefix(string(e.Type), t)
		})
	})
}
