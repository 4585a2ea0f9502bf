package poolmodel

import (
	"maps"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
)

// Operator is who administers the hub, as an actor of calls.
const Operator = "operator"

// hub is who ends what its deadline ended.
const hub = "hub"

// Agent is one that may call. Its handle is its identity here.
type Agent struct {
	Handle       string
	Role         string
	Capabilities []string
	Tags         map[string][]string
	Disabled     bool
}

func (a *Agent) offers(capability string) bool { return slices.Contains(a.Capabilities, capability) }

// Workspace is a project. A strict one admits its members only.
type Workspace struct {
	Strict  bool
	Members map[string]bool // by handle
}

// Model is the hub as it should be.
type Model struct {
	Agents     map[string]*Agent // by handle
	Workspaces map[string]*Workspace
	// Aliases are other names of workspaces.
	Aliases map[string]string
	// Catalog is the operator's vocabulary: capabilities, tag keys, and tag values as key=value.
	Catalog map[string]bool
	// Handoffs are all that were made, in the order of their making.
	Handoffs []*Handoff

	now   time.Time
	keys  map[operation]effect
	block map[[2]string]bool // who keeps away, who is kept away
}

// New makes a hub without handoffs.
func New(agents []Agent, workspaces map[string]*Workspace, catalog []string) *Model {
	m := &Model{
		Agents: map[string]*Agent{}, Workspaces: workspaces, Aliases: map[string]string{}, Catalog: map[string]bool{},
		keys: map[operation]effect{}, block: map[[2]string]bool{},
	}
	for _, a := range agents {
		m.Agents[a.Handle] = &a
	}
	for _, w := range catalog {
		m.Catalog[w] = true
	}
	return m
}

// Handles are those of all agents, sorted.
func (m *Model) Handles() []string { return slices.Sorted(maps.Keys(m.Agents)) }

// agent finds an active agent by its handle, in any case.
func (m *Model) agent(handle string) *Agent {
	for _, a := range m.Agents {
		if strings.EqualFold(a.Handle, handle) && !a.Disabled {
			return a
		}
	}
	return nil
}

func (m *Model) active(handle string) bool {
	a := m.Agents[handle]
	return a != nil && !a.Disabled
}

// Blocks reports whether one agent keeps another away.
func (m *Model) Blocks(who, other string) bool { return m.block[[2]string{who, other}] }

// workspace is what a root means.
func (m *Model) workspace(root string) string {
	if of, ok := m.Aliases[root]; ok {
		return of
	}
	return root
}

// mayUse reports whether the agent may use the workspace (domain: members=strict).
func (m *Model) mayUse(workspace string, handle string) bool {
	w := m.Workspaces[workspace]
	return !w.Strict || w.Members[handle]
}

// Handoff is one open handoff.
type Handoff struct {
	Name       string
	Workspace  string
	Creator    string
	Target     *Target
	Recipient  string // whom a direct or direct_with_fallback target names
	Visibility handoff.Visibility
	Priority   int
	Payload    string
	VerifyBy   *VerifyBy // nil without criteria
	DependsOn  []*Handoff

	State     handoff.State
	Holder    string // who holds it, or held it when it ended
	Past      map[string]bool
	Epoch     int
	Lease     time.Duration // as granted; 0 for none
	LeaseEnds time.Time

	CreatedAt    time.Time
	Deadline     time.Time
	FallbackAt   time.Time
	FallbackOpen bool
	Declined     bool // the first choice said no

	Result      string
	Summary     string
	Verdict     *Verdict
	EndedBy     string
	EndedReason string
	CompletedAt time.Time

	Messages int
	Events   []Event
	// Late is how many of its dependencies a deadline failed. The log tells of these when the deadline
	// is written down, which may be after other events or, for one that has ended by then, not at all.
	Late int
}

// VerifyBy says who judges the work.
type VerifyBy struct {
	Kind       string // creator, agent, capability
	Agent      string
	Capability string
}

// Verdict is the last judgement.
type Verdict struct {
	Pass     bool
	Feedback string
	By       string
}

// Event is one line of the log of a handoff: what happened, and how it was then.
type Event struct {
	Type  handoff.EventType
	State handoff.State // empty for a message, which changes nothing
	Epoch int
}

func (h *Handoff) event(t handoff.EventType) {
	e := Event{Type: t, State: h.State, Epoch: h.Epoch}
	if t == handoff.EventMessageCreated || t == handoff.EventInputRequired {
		e.State = ""
	}
	h.Events = append(h.Events, e)
}

func (h *Handoff) terminal() bool {
	switch h.State {
	case handoff.Open, handoff.Claimed, handoff.Verifying:
		return false
	}
	return true
}

// held reports whether somebody holds it: delivered work is still its deliverer's.
func (h *Handoff) held() bool { return h.State == handoff.Claimed || h.State == handoff.Verifying }

// Dependencies counts how far those are that h waits for.
func (h *Handoff) Dependencies() (total, satisfied, pending, failed int) {
	for _, d := range h.DependsOn {
		switch {
		case d.State == handoff.Completed:
			satisfied++
		case d.terminal():
			failed++
		default:
			pending++
		}
	}
	return len(h.DependsOn), satisfied, pending, failed
}

func (h *Handoff) blocked() bool {
	total, satisfied, _, _ := h.Dependencies()
	return satisfied < total
}

// find gives the handoff of that name; nil when there is none.
func (m *Model) find(name string) *Handoff {
	for _, h := range m.Handoffs {
		if h.Name == name {
			return h
		}
	}
	return nil
}
