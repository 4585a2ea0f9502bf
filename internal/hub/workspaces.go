package hub

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// The operator's hand on workspaces. What agents may do in one is in workspace.go.

// WorkspaceName is one name of a workspace.
type WorkspaceName struct {
	ID   string
	Root string // normalised
}

// WorkspaceInfo is a workspace as the operator sees it.
type WorkspaceInfo struct {
	WorkspaceName
	Aliases []WorkspaceName
	// Strict: only members may use it.
	Strict    bool
	Members   int
	Handoffs  map[handoff.State]int // of the pool, as they are now
	CreatedAt time.Time
}

// Workspaces lists the workspaces that were used, or that the operator named, in the order of their
// roots. Aliases stand with the workspace that they are names of.
func (h *Hub) Workspaces(ctx context.Context, call Call) ([]WorkspaceInfo, error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	var out []WorkspaceInfo
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		all, err := tx.Workspaces()
		if err != nil {
			return err
		}
		members, err := tx.MemberCounts()
		if err != nil {
			return err
		}
		counts, err := tx.PoolCounts()
		if err != nil {
			return err
		}
		at := map[string]int{}
		for _, w := range all {
			if w.AliasOf == "" {
				at[w.ID] = len(out)
				out = append(out, WorkspaceInfo{
					WorkspaceName: WorkspaceName{w.ID, w.Root}, Strict: w.Strict, Members: members[w.ID], Handoffs: map[handoff.State]int{}, CreatedAt: w.CreatedAt,
				})
			}
		}
		for _, w := range all {
			id := w.ID
			if w.AliasOf != "" {
				id = w.AliasOf
			}
			info := &out[at[id]]
			if w.AliasOf != "" {
				info.Aliases = append(info.Aliases, WorkspaceName{w.ID, w.Root})
			}
			for s, n := range counts[w.ID] {
				info.Handoffs[s] += n
			}
		}
		return nil
	})
	return out, err
}

// AliasInput makes Root another name of the workspace of Of.
type AliasInput struct {
	Root string `json:"project_root"`
	Of   string `json:"of"`
}

// Aliased is the answer to it.
type Aliased struct {
	Name WorkspaceName
	Of   WorkspaceName
	// Changed is false when it was so before; what still stood in the old workspace moved even then.
	Changed bool
	// Moved is how many handoffs stood there and came along. A sweep may have moved some of them.
	Moved int
}

// moveChunk is how many handoffs one transaction moves: others write between two of them.
const moveChunk = 200

// Alias makes a root another name of a workspace, as for the same project on two machines. What was
// created under it moves there with its place among what is offered, and who waits there finds it.
// An alias of an alias is one of its end. One that was cut off is finished by the next sweep, or by
// repeating it.
func (h *Hub) Alias(ctx context.Context, call Call, in AliasInput) (Aliased, error) {
	if err := operatorOnly(call); err != nil {
		return Aliased{}, err
	}
	from, err := placeOf(in.Root)
	if err != nil {
		return Aliased{}, err
	}
	of, err := placeOf(in.Of)
	if err != nil {
		return Aliased{}, renamed(err, "project_root", "of")
	}
	var out Aliased
	found := 0
	if err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
		found, err = tx.PoolSize(from.id)
		return err
	}); err != nil {
		return Aliased{}, err
	}
	err = h.change(ctx, "workspace_alias", call, func(c *change) (err error) {
		out, err = c.alias(from, of)
		return err
	})
	if err != nil {
		return Aliased{}, err
	}
	out.Moved = found
	err = h.gather(ctx, call, out.Of.ID)
	var e *handoff.Error
	if errors.As(err, &e) {
		e.Hint = "The alias is written down. What has not moved yet does so at the next sweep, or when you repeat the command."
	}
	return out, err
}

// renamed gives a refusal about one field another name for it.
func renamed(err error, field, name string) error {
	e, ok := err.(*handoff.Error) //nolint:errorlint // a refusal of ours is not wrapped
	if !ok {
		return err
	}
	e.Message = name + strings.TrimPrefix(e.Message, field)
	return e.With("field", name)
}

// alias writes down that a root is another name of a workspace. Nothing is created in what it stood
// for from then on.
func (c *change) alias(from, of place) (Aliased, error) {
	if err := c.LockAliases(); err != nil {
		return Aliased{}, err
	}
	to, err := c.workspaceAt(of)
	if err != nil {
		return Aliased{}, err
	}
	if to.ID == from.id {
		what := "it names the same workspace"
		if of.id != from.id {
			what = handoff.Quote(of.root) + " is another name of " + handoff.Quote(from.root) + " already; the other way round there would be no end"
		}
		return Aliased{}, handoff.Invalid("of", what)
	}
	names, err := c.Aliases(from.id)
	if err != nil {
		return Aliased{}, err
	}
	names = append(names, from.id)
	slices.Sort(names)
	for _, id := range names {
		if err := c.LockWorkspace(id); err != nil {
			return Aliased{}, err
		}
	}
	if err := c.AddWorkspace(&store.Workspace{ID: from.id, Root: from.root, CreatedAt: c.Now()}); err != nil {
		return Aliased{}, err
	}
	was, err := c.AliasOf(from.id)
	if err != nil {
		return Aliased{}, err
	}
	out := Aliased{Name: WorkspaceName{from.id, from.root}, Of: WorkspaceName{to.ID, to.Root}, Changed: was != to.ID}
	if !out.Changed {
		return out, nil
	}
	c.wake[lookAgain] = true
	return out, c.SetAlias(from.id, to.ID)
}

// workspaceAt gives the workspace that the operator names, by way of an alias, and notes one that
// nobody used yet.
func (c *change) workspaceAt(p place) (store.Workspace, error) {
	w, _, err := c.Workspace(p.id, "")
	if err != nil || w.Root != "" {
		return w, err
	}
	w.Root, w.CreatedAt = p.root, c.Now()
	return w, c.AddWorkspace(&w)
}

// gather moves what stands under other names of a workspace there; of all workspaces when it is
// empty. Others may do the same at the same time.
func (h *Hub) gather(ctx context.Context, call Call, to string) error {
	for {
		var scattered map[string]string
		if err := h.st.Read(ctx, func(tx *store.Tx) (err error) {
			scattered, err = tx.Scattered()
			return err
		}); err != nil {
			return err
		}
		maps.DeleteFunc(scattered, func(_, of string) bool { return to != "" && of != to })
		if len(scattered) == 0 {
			return nil
		}
		for from, of := range scattered {
			for n := moveChunk; n == moveChunk; {
				if err := h.change(ctx, "workspace_move", call, func(c *change) error {
					list, err := c.MovePool(from, of, moveChunk)
					n = len(list)
					for i := range list {
						c.wakeOffers(nil, &list[i])
					}
					return err
				}); err != nil {
					return err
				}
			}
		}
	}
}

// MembersInput names a workspace and what changes about who may use it.
type MembersInput struct {
	Root string `json:"project_root"`
	// Add and Remove are handles.
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
	// Strict admits only members; nil leaves it as it is.
	Strict *bool `json:"strict,omitempty"`
}

// Membership says who may use a workspace: everybody, unless it is strict.
type Membership struct {
	WorkspaceName
	Strict  bool
	Members []store.AgentRow // in the order of their handles
}

// Members shows who may use a workspace, once what the input changes is done. A call that waits in
// it ends when its agent may not use it any more.
func (h *Hub) Members(ctx context.Context, call Call, in MembersInput) (Membership, error) {
	if err := operatorOnly(call); err != nil {
		return Membership{}, err
	}
	at, err := placeOf(in.Root)
	if err != nil {
		return Membership{}, err
	}
	for _, handle := range in.Add {
		if slices.ContainsFunc(in.Remove, func(r string) bool { return handoff.FoldHandle(r) == handoff.FoldHandle(handle) }) {
			return Membership{}, handoff.Invalid("remove", handoff.Quote(handle)+" is to be added too; name it once")
		}
	}
	var out Membership
	if len(in.Add) == 0 && len(in.Remove) == 0 && in.Strict == nil {
		err := h.st.Read(ctx, func(tx *store.Tx) error {
			w, _, err := tx.Workspace(at.id, "")
			if err == nil && w.Root == "" {
				w.Root = at.root
			}
			if err == nil {
				out, err = membership(tx, w)
			}
			return err
		})
		return out, err
	}
	err = h.change(ctx, "workspace_members", call, func(c *change) error {
		if err := c.LockAliases(); err != nil {
			return err
		}
		w, err := c.workspaceAt(at)
		if err != nil {
			return err
		}
		if err := first(
			func() error { return c.setMembers(w.ID, in.Add, true) },
			func() error { return c.setMembers(w.ID, in.Remove, false) },
			func() error {
				if in.Strict == nil {
					return nil
				}
				w.Strict = *in.Strict
				return c.SetStrict(w.ID, w.Strict)
			}); err != nil {
			return err
		}
		c.wake[lookAgain], c.wake[wakeVerifiers] = true, true
		out, err = membership(c.Tx, w)
		return err
	})
	return out, err
}

func (c *change) setMembers(workspace string, handles []string, member bool) error {
	for _, handle := range handles {
		a, err := agentNamed(c.Tx, handle)
		if err != nil {
			return err
		}
		if err := c.SetMember(workspace, a.ID, member); err != nil {
			return err
		}
	}
	return nil
}

func membership(tx *store.Tx, w store.Workspace) (Membership, error) {
	out := Membership{WorkspaceName: WorkspaceName{w.ID, w.Root}, Strict: w.Strict}
	ids, err := tx.Members(w.ID)
	if err != nil {
		return out, err
	}
	all, err := tx.Agents()
	for _, a := range all {
		if slices.Contains(ids, a.ID) {
			out.Members = append(out.Members, a)
		}
	}
	return out, err
}
