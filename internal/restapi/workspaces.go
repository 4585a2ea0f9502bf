package restapi

import (
	"net/http"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// WorkspaceName is one name of a workspace.
type WorkspaceName struct {
	WorkspaceID string `json:"workspace_id"`
	ProjectRoot string `json:"project_root"` // normalised
}

// Workspace is a workspace as the operator sees it.
type Workspace struct {
	WorkspaceName
	Aliases   []WorkspaceName `json:"aliases"`
	Strict    bool            `json:"strict"` // only members may use it
	Members   int             `json:"members"`
	Handoffs  map[string]int  `json:"handoffs"` // by status, such as OPEN
	CreatedAt string          `json:"created_at"`
}

// Workspaces lists them.
type Workspaces struct {
	Workspaces []Workspace `json:"workspaces"`
}

// WorkspaceAlias answers an alias.
type WorkspaceAlias struct {
	WorkspaceName
	Of      WorkspaceName `json:"of"`
	Changed bool          `json:"changed"` // false when it was so before
	Moved   int           `json:"moved"`   // handoffs that came along
}

// WorkspaceMembers says who may use a workspace.
type WorkspaceMembers struct {
	WorkspaceName
	Strict  bool     `json:"strict"` // only members may use it
	Members []Member `json:"members"`
}

// Member is an agent that was added to a workspace.
type Member struct {
	AgentID string `json:"agent_id"`
	Handle  string `json:"handle"`
	Status  string `json:"status"` // active or disabled
}

func (o *operator) listWorkspaces(w http.ResponseWriter, r *http.Request) {
	list, err := o.hub.Workspaces(r.Context(), asOperator)
	out := Workspaces{make([]Workspace, len(list))}
	for i, ws := range list {
		to := Workspace{workspaceName(ws.WorkspaceName), make([]WorkspaceName, len(ws.Aliases)), ws.Strict, ws.Members, map[string]int{}, stamp(ws.CreatedAt)}
		for j, a := range ws.Aliases {
			to.Aliases[j] = workspaceName(a)
		}
		for _, s := range handoff.States() {
			if n := ws.Handoffs[s]; n > 0 {
				to.Handoffs[s.PoolStatus()] = n
			}
		}
		out.Workspaces[i] = to
	}
	o.answer(w, r, err, out)
}

func (o *operator) aliasWorkspace(w http.ResponseWriter, r *http.Request) {
	var in hub.AliasInput
	if !o.decode(w, r, &in) {
		return
	}
	a, err := o.hub.Alias(r.Context(), asOperator, in)
	o.answer(w, r, err, WorkspaceAlias{workspaceName(a.Name), workspaceName(a.Of), a.Changed, a.Moved})
}

func (o *operator) workspaceMembers(w http.ResponseWriter, r *http.Request) {
	var in hub.MembersInput
	if !o.decode(w, r, &in) {
		return
	}
	m, err := o.hub.Members(r.Context(), asOperator, in)
	out := WorkspaceMembers{workspaceName(m.WorkspaceName), m.Strict, make([]Member, len(m.Members))}
	for i := range m.Members {
		a := agentJSON(&hub.AgentInfo{AgentRow: m.Members[i]})
		out.Members[i] = Member{a.AgentID, a.Handle, a.Status}
	}
	o.answer(w, r, err, out)
}

func workspaceName(n hub.WorkspaceName) WorkspaceName { return WorkspaceName{n.ID, n.Root} }
