package hub

import (
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// place is a workspace as a caller named it.
type place struct {
	id   string // of the workspace that the root itself stands for, before any alias
	root string // normalised, for display
}

// placeOf normalises a project_root: workspace_unresolved for what is relative, empty or no path.
func placeOf(projectRoot string) (place, error) {
	display, comparison, err := handoff.NormalizeProjectRoot(projectRoot)
	if err != nil {
		return place{}, err
	}
	return place{id: handoff.WorkspaceID(comparison), root: display}, nil
}

// enter gives the workspace that the actor means, by way of an alias, and refuses an agent that
// its operator did not add to it.
func enter(tx *store.Tx, p place, actor handoff.Actor) (store.Workspace, error) {
	w, member, err := tx.Workspace(p.id, actor.ID)
	if err != nil {
		return w, err
	}
	if !member && !actor.IsOperator() {
		return w, notAdmitted(p, actor)
	}
	return w, nil
}

func notAdmitted(p place, actor handoff.Actor) error {
	return handoff.Refuse(handoff.CodePermissionDenied, "project_root: this workspace admits only agents that its operator added, and you are not among them",
		"Nothing was changed. Ask the operator: handclasp workspace members "+handoff.Quote(p.root)+" --add "+actor.Handle)
}

// inPlace says not_found about a pool handoff of another workspace than the one named. Handoffs of
// the other doors have none.
func inPlace(tx *store.Tx, h *handoff.Handoff, p place) error {
	if h.Door != handoff.DoorPool || h.WorkspaceID == p.id {
		return nil
	}
	w, _, err := tx.Workspace(p.id, "")
	if err != nil {
		return err
	}
	if w.ID == h.WorkspaceID {
		return nil
	}
	// An alias may be newer than the handoff.
	own, _, err := tx.Workspace(h.WorkspaceID, "")
	if err == nil && own.ID != w.ID {
		err = poolNotFound(h.ID)
	}
	return err
}

func poolNotFound(id string) *handoff.Error {
	e := handoff.NotFound("handoff", id)
	e.Hint = "Check the id and the project_root; handoff_list_available lists what you may claim, and with scope what you made, hold or verify."
	return e
}

// isYou refuses an argument that names another agent than the one that calls.
func isYou(call Call, field, named string) error {
	if folded := handoff.FoldHandle(named); call.Actor.Kind == handoff.KindAgent && (folded == handoff.FoldHandle(call.Actor.Handle) || folded == handoff.FoldHandle(call.Actor.ID)) {
		return nil
	}
	return handoff.Refuse(handoff.CodePermissionDenied, field+": "+handoff.Quote(named)+" came, and you are "+call.Actor.Handle,
		"Pass your own handle; agent_whoami shows it.").With("field", field)
}
