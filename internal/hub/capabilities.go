package hub

import (
	"context"
	"encoding/base64"
	"slices"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

const (
	// PresentFor is how long an agent counts as present after a call of its.
	PresentFor = 30 * time.Minute
	// capabilityPage is how many capabilities a page has at most, and providersNamed how many agents
	// one of them names.
	capabilityPage = 100
	providersNamed = 50
)

// Capability is a word of the catalog with who offers it.
type Capability struct {
	Name string
	// Agents are those that offer it and that [Hub.Teammates] would show, and the reader itself:
	// present ones first, some at most.
	Agents []Offering
	// Total counts all active agents that offer it.
	Total int
}

// Offering is one agent that offers a capability.
type Offering struct {
	Handle  string
	Present bool
}

// CapabilitiesInput selects a page. Fit is as in [InboxInput].
type CapabilitiesInput struct {
	Cursor string
	Fit    func([]Capability) int
}

// Capabilities is a page of the catalog.
type Capabilities struct {
	List       []Capability
	NextCursor string // empty on the last page
}

// Capabilities lists the capabilities of the catalog in the order of their names.
func (h *Hub) Capabilities(ctx context.Context, call Call, in CapabilitiesInput) (Capabilities, error) {
	after, err := parseWordCursor(in.Cursor)
	if err != nil {
		return Capabilities{}, err
	}
	var out Capabilities
	more := false
	err = h.st.Read(ctx, func(tx *store.Tx) error {
		out, more = Capabilities{}, false
		names, err := tx.CapabilityNames(after, capabilityPage+1)
		if err != nil || len(names) == 0 {
			return err
		}
		if more = len(names) > capabilityPage; more {
			names = names[:capabilityPage]
		}
		all, err := tx.Providers(names[0], names[len(names)-1])
		for _, name := range names {
			n := 0
			for n < len(all) && all[n].Capability < name { // the catalog knows it no more
				n++
			}
			all, n = all[n:], 0
			for n < len(all) && all[n].Capability == name {
				n++
			}
			out.List = append(out.List, offered(name, all[:n], call.Actor))
			all = all[n:]
		}
		return err
	})
	if err != nil {
		return Capabilities{}, err
	}
	if in.Fit != nil && len(out.List) > 0 {
		if n := in.Fit(out.List); n < len(out.List) {
			out.List, more = out.List[:n], true
		}
	}
	if more {
		out.NextCursor = base64.RawURLEncoding.EncodeToString([]byte(out.List[len(out.List)-1].Name))
	}
	return out, nil
}

// offered makes what the viewer sees of a capability.
func offered(name string, providers []store.Provider, viewer handoff.Actor) Capability {
	c := Capability{Name: name, Total: len(providers)}
	// Last uses are written down by the clock of the machine.
	since := time.Now().Add(-PresentFor)
	for i := range providers {
		p := &providers[i]
		self := p.AgentID == viewer.ID
		if self || !p.Unlisted && handoff.ValidTeammateHandle(p.Handle) {
			c.Agents = append(c.Agents, Offering{Handle: p.Handle, Present: self || p.LastSeenAt.After(since)})
		}
	}
	slices.SortStableFunc(c.Agents, func(a, b Offering) int {
		switch {
		case a.Present == b.Present:
			return 0
		case a.Present:
			return -1
		}
		return 1
	})
	c.Agents = c.Agents[:min(len(c.Agents), providersNamed)]
	return c
}

func parseWordCursor(cursor string) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || handoff.CheckText("cursor", string(b), 4<<10) != nil {
		return "", handoff.Invalid("cursor", handoff.Quote(cursor)+" came; pass next_cursor of an earlier answer back as it was, or leave it out for the first page")
	}
	return string(b), nil
}
