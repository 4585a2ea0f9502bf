package hub

import (
	"context"
	"fmt"
	"slices"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// DraftInput offers a diff for a proposed action. What is left out is taken from the action.
type DraftInput struct {
	ThreadID       string   `json:"thread_id"`
	SuggestedDiff  string   `json:"suggested_diff"`
	Description    string   `json:"description,omitempty"`
	TargetFiles    []string `json:"target_files,omitempty"`
	Rationale      string   `json:"rationale,omitempty"`
	ClaimEpoch     *int     `json:"claim_epoch,omitempty"`
	IdempotencyKey string   `json:"idempotency_key,omitempty"`
}

// DraftMade is the answer to a draft.
type DraftMade struct {
	ThreadID string
	DraftID  string
	Status   handoff.DraftStatus
	Replay   bool
}

// Draft stores a diff that the holder offers for the action; an earlier undecided one is
// superseded. The diff must parse and touch only the named files. Nothing is ever applied.
func (h *Hub) Draft(ctx context.Context, call Call, in DraftInput) (DraftMade, error) {
	if err := h.checkDraft(in); err != nil {
		return DraftMade{}, err
	}
	once, err := h.keyed(call, "draft", &in.IdempotencyKey, &in)
	if err != nil {
		return DraftMade{}, err
	}
	files, ok := diffFiles(in.SuggestedDiff)
	if !ok {
		return DraftMade{}, handoff.Invalid("suggested_diff", "it does not parse; a unified diff of at least one file is accepted, as git diff prints it")
	}
	if err := handoff.CheckTargetFiles("suggested_diff", files, h.lim); err != nil {
		return DraftMade{}, err
	}
	var out DraftMade
	err = h.change(ctx, "draft", call, func(c *change) error {
		was, row, effect, found, err := c.beginHeld(in.ThreadID, Session{}, once)
		if err != nil {
			return err
		}
		if found {
			d, err := c.Tx.Draft(effect.RefID)
			out = DraftMade{ThreadID: row.ID, DraftID: d.ID, Status: d.Status, Replay: true}
			return err
		}
		event, err := row.Draft(call.Actor, in.ClaimEpoch, c.Now())
		if err != nil {
			return err
		}
		if err := c.unblocked(&row); err != nil {
			return err
		}
		d := draftOf(call.Actor, &row, in)
		// An action that names no files leaves the choice to whoever drafts. The action's own
		// names are its sender's text, which does not belong into an error.
		if outside := handoff.CheckDiffFiles(files, d.TargetFiles); len(outside) > 0 && len(d.TargetFiles) > 0 {
			only := "the target_files of the action (view_thread shows them)"
			if len(in.TargetFiles) > 0 {
				only = quoteList(in.TargetFiles) + " (target_files)"
			}
			return handoff.Invalid("suggested_diff", "it touches "+quoteList(outside)+"; only "+only+" may be touched")
		}
		d.CreatedAt = c.Now()
		earlier, err := c.Drafts(row.ID)
		if err != nil {
			return err
		}
		if n := len(earlier); n > 0 && sameDraft(&earlier[n-1], &d) {
			out = DraftMade{ThreadID: row.ID, DraftID: earlier[n-1].ID, Status: handoff.Drafted, Replay: true}
			return c.keep(once, store.Effect{HandoffID: row.ID, RefID: earlier[n-1].ID})
		}
		if len(earlier) >= h.lim.Drafts {
			e := handoff.TooLarge("thread", len(earlier)+1, h.lim.Drafts, "drafts")
			e.Hint = "Nothing was written. Wait for the decision on the last draft, or send further diffs as file_diff artifacts with send_message."
			return e
		}
		d.No = len(earlier) + 1
		if err := c.supersede(earlier); err != nil {
			return err
		}
		out = DraftMade{ThreadID: row.ID, DraftID: d.ID, Status: d.Status}
		return first(
			func() error { return c.InsertDraft(&d) },
			func() error { return c.record(&row, event, call.Actor, d.ID, 0, others(&row)...) },
			func() error { return c.update(&was, &row) },
			func() error {
				return c.keep(once, store.Effect{HandoffID: row.ID, RefID: d.ID})
			})
	})
	return out, err
}

func (h *Hub) checkDraft(in DraftInput) error {
	if in.SuggestedDiff == "" {
		return handoff.Invalid("suggested_diff", "it is empty; a unified diff of at least one file is needed")
	}
	return first(
		func() error { return handoff.CheckText("suggested_diff", in.SuggestedDiff, h.lim.Diff) },
		func() error { return handoff.CheckText("description", in.Description, h.lim.ShortText) },
		func() error { return handoff.CheckText("rationale", in.Rationale, h.lim.ShortText) },
		func() error {
			if len(in.TargetFiles) == 0 {
				return nil
			}
			return handoff.CheckTargetFiles("target_files", in.TargetFiles, h.lim)
		})
}

// draftOf fills what the holder left out with what the action says.
func draftOf(actor handoff.Actor, row *handoff.Handoff, in DraftInput) handoff.Draft {
	d := handoff.Draft{
		ID: newID(), HandoffID: row.ID, Author: actor.ID, Epoch: row.Epoch, SuggestedDiff: in.SuggestedDiff,
		Description: in.Description, TargetFiles: in.TargetFiles, Rationale: in.Rationale, Status: handoff.Drafted,
	}
	action := row.ProposedAction
	if action == nil {
		return d
	}
	if len(d.TargetFiles) == 0 {
		d.TargetFiles = action.TargetFiles
	}
	if d.Description == "" {
		d.Description = action.Description
	}
	if d.Rationale == "" {
		d.Rationale = action.Rationale
	}
	return d
}

func sameDraft(a, b *handoff.Draft) bool {
	return a.Status == handoff.Drafted && a.Author == b.Author && a.Epoch == b.Epoch && a.SuggestedDiff == b.SuggestedDiff &&
		a.Description == b.Description && a.Rationale == b.Rationale && slices.Equal(a.TargetFiles, b.TargetFiles)
}

func (c *change) supersede(earlier []handoff.Draft) error {
	for i := range earlier {
		if earlier[i].Status != handoff.Drafted {
			continue
		}
		earlier[i].Status = handoff.DraftSuperseded
		if err := c.UpdateDraft(&earlier[i]); err != nil {
			return err
		}
	}
	return nil
}

// DecideInput is the word of a person on a draft.
type DecideInput struct {
	DraftID string `json:"draft_id"`
	Approve bool   `json:"approve"`
	Reason  string `json:"reason,omitempty"`
}

// DecideDraft approves or declines a draft by the operator's hand; both sides are told.
func (h *Hub) DecideDraft(ctx context.Context, call Call, in DecideInput) (handoff.Draft, error) {
	if !call.Actor.IsOperator() {
		return handoff.Draft{}, handoff.Refuse(handoff.CodePermissionDenied, "only the operator, or the recipient's own person in the inbox, decides on a draft", "")
	}
	if !in.Approve && in.Reason == "" {
		return handoff.Draft{}, handoff.Invalid("reason", "it is empty; say why the draft is declined")
	}
	if err := handoff.CheckText("reason", in.Reason, h.lim.Reason); err != nil {
		return handoff.Draft{}, err
	}
	var d handoff.Draft
	err := h.change(ctx, "decide", call, func(c *change) error {
		var err error
		if d, err = draftNamed(c.Tx, in.DraftID); err != nil {
			return err
		}
		was, row, err := c.take(d.HandoffID)
		if err != nil {
			return err
		}
		if d, err = c.Tx.Draft(in.DraftID); err != nil { // again, now under the row's lock
			return err
		}
		if row.State.Terminal() && d.Status == handoff.Drafted {
			return handoff.Refuse(handoff.CodeThreadTerminal, fmt.Sprintf("the handoff of this draft has ended: it is %s", row.State.TeamStatus()), "Nothing is left to decide; handclasp handoff draft list shows what waits.")
		}
		changed, err := d.Decide(call.Actor, in.Approve, in.Reason, c.Now())
		if err != nil || !changed {
			return err
		}
		row.UpdatedAt = c.Now()
		return first(
			func() error { return c.UpdateDraft(&d) },
			func() error { return c.record(&row, handoff.EventDraftDecided, call.Actor, d.ID, 0, others(&row)...) },
			func() error { return c.update(&was, &row) })
	})
	return d, err
}

func draftNamed(tx *store.Tx, id string) (handoff.Draft, error) {
	d, err := tx.Draft(id)
	if isCode(err, handoff.CodeNotFound) {
		err = handoff.Refuse(handoff.CodeNotFound, "no draft has the id "+handoff.Quote(id), "List them with: handclasp handoff draft list")
	}
	return d, err
}

// DraftInfo is a draft with the handles of who offers it and who asked for it.
type DraftInfo struct {
	handoff.Draft
	From, Sender string
}

// FindDraft reads one draft for the operator.
func (h *Hub) FindDraft(ctx context.Context, call Call, id string) (DraftInfo, error) {
	var list []DraftInfo
	err := h.readDrafts(ctx, call, &list, func(tx *store.Tx) ([]handoff.Draft, error) {
		d, err := draftNamed(tx, id)
		return []handoff.Draft{d}, err
	})
	if err != nil {
		return DraftInfo{}, err
	}
	return list[0], nil
}

// UndecidedDrafts lists the drafts that wait for a person, oldest first.
func (h *Hub) UndecidedDrafts(ctx context.Context, call Call) ([]DraftInfo, error) {
	var list []DraftInfo
	err := h.readDrafts(ctx, call, &list, func(tx *store.Tx) ([]handoff.Draft, error) { return tx.UndecidedDrafts(1000) })
	return list, err
}

func (h *Hub) readDrafts(ctx context.Context, call Call, out *[]DraftInfo, read func(*store.Tx) ([]handoff.Draft, error)) error {
	if !call.Actor.IsOperator() {
		return handoff.Refuse(handoff.CodePermissionDenied, "only the operator looks at all drafts", "")
	}
	return h.st.Read(ctx, func(tx *store.Tx) error {
		*out = nil
		drafts, err := read(tx)
		if err != nil {
			return err
		}
		for _, d := range drafts {
			row, err := tx.Handoff(d.HandoffID)
			if err != nil {
				return err
			}
			people, err := names(tx, []string{d.Author, row.Creator})
			if err != nil {
				return err
			}
			*out = append(*out, DraftInfo{Draft: d, From: people[d.Author].Handle, Sender: people[row.Creator].Handle})
		}
		return nil
	})
}
