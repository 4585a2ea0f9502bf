package hub

import (
	"context"
	"fmt"
	"slices"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// A join link lets somebody become an agent once, without the operator handing out a key. Its
// token says who invites whom until when and is signed; the row says whether it still counts.

const (
	inviteLifetime    = 24 * time.Hour
	minInviteLifetime = time.Minute
	maxInviteLifetime = 30 * 24 * time.Hour
)

// InviteInput makes a join link.
type InviteInput struct {
	Handle string `json:"handle"`
	Name   string `json:"name,omitempty"`
	Role   string `json:"role,omitempty"`
	// Inviter is the handle of the agent that invites; empty for the operator.
	Inviter string `json:"inviter_handle,omitempty"`
	// ExpiresIn is seconds; 0 means a day.
	ExpiresIn int64 `json:"expires_in_seconds,omitempty"`
	// URL is the address of the hub in the link; empty for the one it knows of itself.
	URL string `json:"url,omitempty"`
}

// InviteLink is a join link at the one moment it is shown.
type InviteLink struct {
	ID        string
	Handle    string
	Inviter   string
	URL       string
	ExpiresAt time.Time
}

// Invite makes a one-time join link for a handle that was never given out. The handle is taken
// when the link is used, not before.
func (h *Hub) Invite(ctx context.Context, call Call, in InviteInput) (InviteLink, error) {
	if err := operatorOnly(call); err != nil {
		return InviteLink{}, err
	}
	handle, err := handoff.ParseHandle(in.Handle)
	if err != nil {
		return InviteLink{}, err
	}
	if err := h.checkAgent(AgentInput{Name: in.Name, Role: in.Role}); err != nil {
		return InviteLink{}, err
	}
	lifetime, err := inviteLasts(in.ExpiresIn)
	if err != nil {
		return InviteLink{}, err
	}
	base := in.URL
	if base == "" {
		base = h.cfg.PublicURL
	}
	if base == "" {
		return InviteLink{}, handoff.Invalid("url", "the address that people reach the hub by is not known to this command; name it with --url, such as --url https://hub.example.com")
	}
	secret, err := h.inviteSecret(ctx)
	if err != nil {
		return InviteLink{}, err
	}
	row := store.Invite{ID: newID(), Handle: handle, Name: in.Name, Role: in.Role}
	inviter := handoff.Operator()
	err = h.change(ctx, "invite", call, func(c *change) error {
		if err := c.handleFree(handle); err != nil {
			return err
		}
		if inviter, err = c.inviter(in.Inviter); err != nil {
			return err
		}
		// Whole seconds, as the token has them.
		row.CreatedAt, row.ExpiresAt, row.InviterID = c.Now(), c.Now().Add(lifetime).Truncate(time.Second), inviter.ID
		if err := c.InsertInvite(&row); err != nil {
			return err
		}
		return c.inviteEvent(handoff.EventAgentInvited, row.ID)
	})
	if err != nil {
		return InviteLink{}, err
	}
	token := auth.SignInvite(secret, auth.Invite{ID: row.ID, Inviter: inviter.Handle, Handle: handle, Expires: row.ExpiresAt.Unix()})
	return InviteLink{ID: row.ID, Handle: handle, Inviter: inviter.Handle, URL: base + "/join#" + token, ExpiresAt: row.ExpiresAt}, nil
}

func inviteLasts(seconds int64) (time.Duration, error) {
	if seconds == 0 {
		return inviteLifetime, nil
	}
	least, most := int64(minInviteLifetime/time.Second), int64(maxInviteLifetime/time.Second)
	if seconds < least || seconds > most {
		return 0, handoff.Invalid("expires_in_seconds", fmt.Sprintf("%d came; %d to %d seconds are accepted, a minute to 30 days", seconds, least, most))
	}
	return time.Duration(seconds) * time.Second, nil
}

// inviter is the agent in whose name the operator invites, or the operator.
func (c *change) inviter(handle string) (handoff.Actor, error) {
	if handle == "" {
		return handoff.Operator(), nil
	}
	a, err := agentNamed(c.Tx, handle)
	if err == nil && a.Disabled {
		err = handoff.Refuse(handoff.CodeInvalidTransition, a.Handle+" is disabled and cannot invite", "Enable it first: handclasp agent enable "+a.Handle)
	}
	return handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle}, err
}

func (c *change) inviteEvent(event handoff.EventType, id string) error {
	c.wake[anyEvent] = true
	return c.InsertEvent(&handoff.Event{Type: event, ActorID: c.call.Actor.ID, SubjectID: id, TraceID: c.call.traceID(), At: c.Now()})
}

// InviteStatus is what has become of a join link.
type InviteStatus string

// A link can be used while it is open. A revoked one is gone.
const (
	InviteOpen    InviteStatus = "open"
	InviteUsed    InviteStatus = "used"
	InviteExpired InviteStatus = "expired"
)

func inviteStatus(i *store.Invite, now time.Time) InviteStatus {
	switch {
	case !i.RedeemedAt.IsZero():
		return InviteUsed
	case !now.Before(i.ExpiresAt):
		return InviteExpired
	}
	return InviteOpen
}

// InviteInfo is a join link without its token.
type InviteInfo struct {
	store.Invite
	Inviter string // a handle
	Status  InviteStatus
}

// Invites lists the join links, the newest first.
func (h *Hub) Invites(ctx context.Context, call Call) ([]InviteInfo, error) {
	if err := operatorOnly(call); err != nil {
		return nil, err
	}
	var list []InviteInfo
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		rows, err := tx.Invites()
		if err != nil {
			return err
		}
		ids := make([]string, len(rows))
		for i := range rows {
			ids[i] = rows[i].InviterID
		}
		slices.Sort(ids)
		names, err := tx.Names(slices.Compact(ids))
		if err != nil {
			return err
		}
		list = make([]InviteInfo, len(rows))
		for i, row := range rows {
			list[i] = InviteInfo{Invite: row, Inviter: handoff.Operator().Handle, Status: inviteStatus(&row, tx.Now())}
			if a, ok := names[row.InviterID]; ok {
				list[i].Inviter = a.Handle
			}
		}
		return nil
	})
	return list, err
}

// RevokeInvite takes back a join link that nobody used.
func (h *Hub) RevokeInvite(ctx context.Context, call Call, id string) error {
	if err := operatorOnly(call); err != nil {
		return err
	}
	return h.change(ctx, "invite_revoke", call, func(c *change) error {
		row, err := c.LockInvite(id)
		if store.IsNoRows(err) {
			return handoff.Refuse(handoff.CodeNotFound, "no invite has the id "+handoff.Quote(id), "List them with: handclasp invite list")
		}
		if err != nil {
			return err
		}
		if inviteStatus(&row, c.Now()) == InviteUsed {
			return handoff.Refuse(handoff.CodeInvalidTransition, "the link was used: "+row.Handle+" has joined", "Turn that agent off with: handclasp agent disable "+row.Handle)
		}
		if err := c.DeleteInvite(id); err != nil {
			return err
		}
		return c.inviteEvent(handoff.EventAgentInviteRevoked, id)
	})
}

// Why a join link is refused. They say nothing that its bearer does not know.
var (
	// ErrInviteUnknown: it was not made here, was changed, or was revoked.
	ErrInviteUnknown = handoff.Refuse(handoff.CodeNotFound, "this join link is not valid", "Ask who sent it for another.")
	// ErrInviteUsed: somebody joined by it.
	ErrInviteUsed = handoff.Refuse(handoff.CodeInvalidTransition, "this join link was used already", "Ask who sent it for another.")
	// ErrInviteExpired: its time is over.
	ErrInviteExpired = handoff.Refuse(handoff.CodeInvalidTransition, "this join link has expired", "Ask who sent it for another.")
	// ErrInviteTaken: its handle was given to another agent meanwhile.
	ErrInviteTaken = handoff.Refuse(handoff.CodeInvalidTransition, "the handle of this join link was given to another agent", "Ask who sent it for another.")
)

// Redeem makes the agent that a join link is for and its first key, which is shown here and never
// again. The token is the credential, and it counts once.
func (h *Hub) Redeem(ctx context.Context, id, token string) (NewKey, error) {
	secret, err := h.inviteSecret(ctx)
	if err != nil {
		return NewKey{}, err
	}
	// Before the database is asked, so that guessing costs it nothing.
	if claims, ok := auth.OpenInvite(secret, token); !ok || claims.ID != id {
		return NewKey{}, ErrInviteUnknown
	}
	// The log names the link as the actor; the event of its making says who made it.
	bearer := Call{Actor: handoff.Actor{Kind: handoff.KindBearer, ID: id}}
	var out NewKey
	err = h.change(ctx, "invite_redeem", bearer, func(c *change) error {
		row, err := c.LockInvite(id)
		if store.IsNoRows(err) {
			return ErrInviteUnknown
		}
		if err != nil {
			return err
		}
		switch inviteStatus(&row, c.Now()) {
		case InviteUsed:
			return ErrInviteUsed
		case InviteExpired:
			return ErrInviteExpired
		}
		if err := c.handleFree(row.Handle); isCode(err, handoff.CodeInvalidParams) {
			return ErrInviteTaken
		} else if err != nil {
			return err
		}
		if out, err = c.register(row.Handle, AgentInput{Name: row.Name, Role: row.Role, KeyLabel: "join link"}); err != nil {
			return err
		}
		return c.RedeemInvite(id, out.AgentID, c.Now())
	})
	if err != nil {
		return NewKey{}, err
	}
	return out, nil
}
