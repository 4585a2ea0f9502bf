package hub

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// CreateInput is a handoff to a named teammate. Sizes are bounded by [handoff.Limits].
type CreateInput struct {
	To             string                  `json:"to"`
	Intent         handoff.Intent          `json:"intent"`
	Summary        string                  `json:"summary"`
	Artifacts      []json.RawMessage       `json:"artifacts,omitempty"`
	Question       string                  `json:"question,omitempty"`
	ProposedAction *handoff.ProposedAction `json:"proposed_action,omitempty"`
	Metadata       json.RawMessage         `json:"metadata,omitempty"`
	ExpiresIn      int64                   `json:"expires_in_seconds,omitempty"`
	IdempotencyKey string                  `json:"idempotency_key,omitempty"`
}

// Created is the answer to a create.
type Created struct {
	ThreadID  string
	Status    string
	Recipient string // as the caller wrote it
	CreatedAt time.Time
	InboxURL  string
	// Warning says that a given diff does not parse or touches other files; it was kept as
	// it is.
	Warning string
	Replay  bool
}

// verbCreate is the operation under which idempotency keys of creation are kept: one key sent
// through several doors is one effect.
const verbCreate = "create"

// Create hands work to a named teammate's agent. It refuses with invalid_params,
// recipient_not_found (near matches in the details), teammate_blocked,
// invalid_intent_payload, duplicate_idempotency_key or content_too_large, and then nothing is
// stored.
func (h *Hub) Create(ctx context.Context, call Call, in CreateInput) (Created, error) {
	n, err := h.newTeamHandoff(call, in)
	if err != nil {
		return Created{}, err
	}
	key, err := ResolveKey(in.IdempotencyKey, in.Metadata, call.HeaderKey)
	if err != nil {
		return Created{}, err
	}
	op, err := h.operation(call, verbCreate, key)
	if err != nil {
		return Created{}, err
	}
	print := createPrint(in)
	var out Created
	err = h.change(ctx, verbCreate, call, func(c *change) error {
		out = Created{Recipient: in.To, Warning: n.warning}
		reach, err := c.Reach(op, in.To)
		if err != nil {
			return err
		}
		if reach.Found {
			if reach.Effect.Fingerprint != print {
				return keyReused(op)
			}
			first, err := c.Handoff(reach.Effect.HandoffID)
			if err != nil {
				return err
			}
			out.Replay = true
			h.describe(&out, first.At(c.Now()))
			return nil
		}
		if err := reachable(call.Actor, reach, in.To); err != nil {
			return err
		}
		now := c.Now()
		row, message := n.handoff, n.message
		row.Recipient, row.CreatedAt, row.UpdatedAt, message.CreatedAt = reach.RecipientID, now, now, now
		if in.ExpiresIn > 0 {
			row.ExpiresAt = now.Add(time.Duration(in.ExpiresIn) * time.Second)
		}
		row.EventSeq = 1
		h.describe(&out, row)
		return first(
			func() error { return c.InsertHandoff(&row) },
			func() error { return c.InsertMessage(&message) },
			func() error {
				return c.tell(&row, handoff.EventCreated, call.Actor, message.ID, 1, row.Recipient)
			},
			func() error {
				return c.InsertEffect(op, store.Effect{Fingerprint: print, HandoffID: row.ID}, now)
			})
	})
	if isCode(err, handoff.CodeRecipientNotFound) {
		err = h.withNearMatches(ctx, call, in.To, err)
	}
	return out, err
}

func (h *Hub) describe(out *Created, row handoff.Handoff) {
	out.ThreadID, out.Status, out.CreatedAt = row.ID, row.State.TeamStatus(), row.CreatedAt
	out.InboxURL = h.cfg.PublicURL + "/inbox/" + row.ID
}

// reachable says whether the actor may hand something to the recipient it named.
func reachable(actor handoff.Actor, r store.Reach, to string) error {
	switch {
	case r.RecipientID == "":
		return noRecipient("to", to)
	case r.RecipientID == actor.ID:
		return handoff.Invalid("to", handoff.Quote(to)+" is yourself; name another teammate (list_teammates shows them)")
	case r.Blocked:
		return handoff.Refuse(handoff.CodeTeammateBlocked, "to: "+handoff.Quote(to)+" does not take handoffs from you", "Nothing was sent. Choose another teammate with list_teammates.")
	}
	return nil
}

func noRecipient(field, handle string) *handoff.Error {
	return handoff.Refuse(handoff.CodeRecipientNotFound, field+": no active agent is registered as "+handoff.Quote(handle), "Nothing was changed. list_teammates shows the handles you can use.").With("field", field)
}

// newHandoff is what can be decided about a create before the database is asked.
type newHandoff struct {
	handoff handoff.Handoff
	message handoff.Message
	warning string
}

func (h *Hub) newTeamHandoff(call Call, in CreateInput) (*newHandoff, error) {
	if !handoff.ValidTeammateHandle(in.To) || len(in.To) > h.lim.Handle {
		return nil, handoff.Invalid("to", handoff.Quote(in.To)+" came; a teammate's handle looks like frank@acme: letters, digits, dots, dashes and underscores on both sides of one @")
	}
	if in.Intent != handoff.Inform && in.Intent != handoff.AskQuestion && in.Intent != handoff.ProposeAction {
		return nil, handoff.Invalid("intent", handoff.Quote(string(in.Intent))+" came; inform, ask_question and propose_action are accepted")
	}
	if in.Summary == "" {
		return nil, handoff.Invalid("summary", "it is empty; one or two paragraphs that say what you hand over are needed")
	}
	if err := first(
		func() error { return handoff.CheckText("summary", in.Summary, h.lim.Summary) },
		func() error { return handoff.CheckText("question", in.Question, h.lim.ShortText) },
		func() error { return checkMetadata(in.Metadata, h.lim) },
		func() error { return h.checkExpiry(in.ExpiresIn) }); err != nil {
		return nil, err
	}
	artifacts, err := handoff.ParseArtifacts("artifacts", in.Artifacts, h.lim)
	if err != nil {
		return nil, err
	}
	warning, err := h.checkAction(in)
	if err != nil {
		return nil, err
	}
	id := newID()
	return &newHandoff{
		warning: warning,
		handoff: handoff.Handoff{
			ID: id, Door: handoff.DoorTeam, State: handoff.Open, Creator: call.Actor.ID,
			Intent: in.Intent, Preview: handoff.Preview(in.Summary), Question: in.Question, ProposedAction: in.ProposedAction,
			Metadata: withQuestion(in.Metadata, in.Question), Visibility: handoff.Private, Messages: 1,
			TraceID: call.traceID(), TraceParent: call.TraceParent,
		},
		message: handoff.Message{ID: newID(), HandoffID: id, SequenceNo: 1, Author: call.Actor.ID, Body: in.Summary, Artifacts: artifacts},
	}, nil
}

func (h *Hub) checkExpiry(seconds int64) error {
	least, most := int64(h.lim.MinExpiry/time.Second), int64(h.lim.MaxExpiry/time.Second)
	if seconds != 0 && (seconds < least || seconds > most) {
		return handoff.Invalid("expires_in_seconds", fmt.Sprintf("%d came; %d to %d seconds are accepted", seconds, least, most))
	}
	return nil
}

// checkAction applies the rule that an action comes with propose_action and only with it. A
// diff that does not parse or touches other files is kept with a warning: clients send any
// text there.
func (h *Hub) checkAction(in CreateInput) (warning string, err error) {
	switch {
	case in.Intent == handoff.ProposeAction && h.cfg.NoProposedActions:
		return "", handoff.Refuse(handoff.CodeInvalidIntentPayload, "intent: propose_action came; this hub accepts inform and ask_question only", "Nothing was sent. Describe the action in the summary instead.")
	case in.Intent == handoff.ProposeAction && in.ProposedAction == nil:
		return "", handoff.Refuse(handoff.CodeInvalidIntentPayload, "proposed_action: nothing came; the intent propose_action needs {description, target_files, rationale}", "Nothing was sent. Add proposed_action, or use the intent inform or ask_question.")
	case in.Intent != handoff.ProposeAction && in.ProposedAction != nil:
		return "", handoff.Refuse(handoff.CodeInvalidIntentPayload, "proposed_action: it came with the intent "+string(in.Intent)+"; it is accepted with propose_action only", "Nothing was sent. Change the intent, or leave proposed_action out.")
	case in.ProposedAction == nil:
		return "", nil
	}
	if err := in.ProposedAction.Check(h.lim); err != nil {
		return "", err
	}
	if in.ProposedAction.SuggestedDiff == "" {
		return "", nil
	}
	return diffWarning(in.ProposedAction.SuggestedDiff, in.ProposedAction.TargetFiles), nil
}

func checkMetadata(metadata json.RawMessage, lim handoff.Limits) error {
	if len(metadata) == 0 {
		return nil
	}
	if metadata[0] != '{' {
		return handoff.Invalid("metadata", "a value that is no object came; an object of keys and values is accepted")
	}
	return handoff.CheckRawJSON("metadata", metadata, lim.Metadata, lim.MetadataDepth)
}

// withQuestion sets metadata.question over the caller's own, as the protocol's clients expect.
func withQuestion(metadata json.RawMessage, question string) json.RawMessage {
	if question == "" {
		return metadata
	}
	if len(metadata) == 0 {
		text, _ := json.Marshal(question) // a string always marshals
		return append(append([]byte(`{"question":`), text...), '}')
	}
	return setMember(metadata, "question", question)
}

// setMember sets one member of an object that is known to be one; the others keep their bytes.
func setMember(object json.RawMessage, name string, value any) json.RawMessage {
	members := map[string]json.RawMessage{}
	if len(object) > 0 {
		_ = json.Unmarshal(object, &members) // it was checked before
	}
	if value == nil {
		delete(members, name)
	} else {
		members[name], _ = json.Marshal(value)
	}
	out, _ := json.Marshal(members)
	return out
}

// createPrint is the fingerprint of a create: everything but the key, wherever it came from.
func createPrint(in CreateInput) string {
	in.IdempotencyKey = ""
	in.To = handoff.FoldHandle(in.To)
	if len(in.Metadata) > 0 {
		in.Metadata = setMember(in.Metadata, "client_idempotency_key", nil)
		if string(in.Metadata) == "{}" {
			in.Metadata = nil // the same as none: a retry may bring its key another way
		}
	}
	return fingerprint(in)
}

// first runs steps until one fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// withNearMatches adds the handles that the caller may have meant. It names only agents that
// list_teammates would show it.
func (h *Hub) withNearMatches(ctx context.Context, call Call, handle string, err error) error {
	mates, listErr := h.teammates(ctx, call.Actor)
	if listErr != nil {
		return err
	}
	handles := make([]string, len(mates))
	for i, m := range mates {
		handles[i] = m.Handle
	}
	near := handoff.NearMatches(handle, handles, 3)
	if len(near) == 0 {
		return err
	}
	e := noRecipient("to", handle)
	e.Message += "; did you mean " + joinOr(near) + "?"
	return e.With("near_matches", near)
}

func joinOr(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	out := ""
	for i, s := range list {
		switch {
		case i == 0:
			out = s
		case i == len(list)-1:
			out += " or " + s
		default:
			out += ", " + s
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
