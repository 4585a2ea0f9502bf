package hub

import (
	"context"
	"encoding/base64"
	"errors"
	"net/url"
	"strings"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// A continuation is a signed link that gives a handoff to its bearer once. Its token is not kept: it is
// signed anew over what the row says.

const (
	// repeatFor is how long the same redeemer gets the same answer.
	repeatFor = time.Minute
	// issueLeeway is how far ahead of ours the clock may be that issued a token.
	issueLeeway = 2 * time.Minute
	// sessionIdle ends the session of a bearer that is not used, sessionMost one that is.
	sessionIdle = 24 * time.Hour
	sessionMost = 7 * 24 * time.Hour
	// keyOverlap is how long a signing key verifies after another took over: longer than what it signed.
	keyOverlap = sessionMost + 24*time.Hour
	// continuePath is where a continuation is redeemed, below the public URL.
	continuePath = "/a2a/continue/"
)

// mint writes down the continuation of a new handoff.
func (c *change) mint(row *handoff.Handoff) error {
	key, err := c.signingKey()
	if err != nil {
		return err
	}
	return c.InsertContinuation(&store.Continuation{
		HandoffID: row.ID, KeyID: key.ID, IssuedAt: row.CreatedAt.Truncate(time.Second), ExpiresAt: row.ExpiresAt,
	})
}

// signingKey is the key that signs now; the first use makes one.
func (c *change) signingKey() (store.SigningKey, error) {
	keys, err := c.SigningKeys()
	if err != nil {
		return store.SigningKey{}, err
	}
	for _, k := range keys {
		if k.EndsAt.IsZero() {
			return k, nil
		}
	}
	return c.newSigningKey(c.Now().Add(keyOverlap))
}

func (c *change) newSigningKey(othersEnd time.Time) (store.SigningKey, error) {
	k := store.SigningKey{ID: newID(), Secret: base64.RawURLEncoding.EncodeToString(auth.NewSecret()), CreatedAt: c.Now()}
	return k, c.InsertSigningKey(&k, othersEnd)
}

// signer finds the secret of a signing key that counts at the time of tx.
func signer(tx *store.Tx) (func(keyID string) []byte, error) {
	keys, err := tx.SigningKeys()
	now := tx.Now()
	return func(keyID string) []byte {
		for _, k := range keys {
			if k.ID == keyID && (k.EndsAt.IsZero() || now.Before(k.EndsAt)) {
				secret, err := base64.RawURLEncoding.DecodeString(k.Secret)
				if err != nil {
					return nil
				}
				return secret
			}
		}
		return nil
	}, err
}

// continuationLink gives the link of a handoff anew.
func (h *Hub) continuationLink(tx *store.Tx, id string) (*ContinuationLink, error) {
	c, err := tx.Continuation(id)
	if err != nil {
		return nil, err
	}
	secret, err := signer(tx)
	if err != nil {
		return nil, err
	}
	key := secret(c.KeyID)
	link := &ContinuationLink{ExpiresAt: c.ExpiresAt}
	switch {
	case !c.RedeemedAt.IsZero():
	case key == nil, !c.RevokedAt.IsZero(), !tx.Now().Before(c.ExpiresAt):
		link.Expired = true
	default:
		link.Token = auth.SignToken(c.KeyID, key, auth.Token{HandoffID: id, Scope: auth.ScopeContinue, IssuedAt: c.IssuedAt, Expires: c.ExpiresAt})
		link.URL = h.cfg.PublicURL + continuePath + link.Token
	}
	return link, nil
}

// RedeemInput names a continuation by its token or by its link.
type RedeemInput struct {
	URL            string `json:"continuation_url,omitempty"`
	Token          string `json:"handshake_token,omitempty"`
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// Redeemed is what the next agent gets.
type Redeemed struct {
	HandoffID string
	Desk      handoff.Desk
	Contact   handoff.Contact
	Messages  []handoff.Message
	Parties   map[string]Party
	Creator   string
	Viewer    handoff.Actor
	IssuedAt  time.Time
	Epoch     int
	// SessionToken is the bearer's for this one handoff; ThreadURL is where it is used.
	SessionToken string
	ThreadURL    string
	Replay       bool
}

var (
	errContinuationMalformed = handoff.Refuse(handoff.CodeContinuationMalformed, "this is no continuation of this hub", "Pass continuation_url or handshake_token exactly as they came.")
	errContinuationSignature = handoff.Refuse(handoff.CodeContinuationSignature, "the token is not signed by this hub", "Pass it exactly as it came, or ask whoever gave it to you for a new one.")
	errContinuationScope     = handoff.Refuse(handoff.CodeContinuationWrongScope, "the token is for another purpose than to redeem a continuation", "Pass the token of a continuation_url.")
	errContinuationUnknown   = handoff.Refuse(handoff.CodeNotFound, "no continuation is known by this token", "Ask whoever gave it to you for a new one.")
	errContinuationRevoked   = handoff.Refuse(handoff.CodeContinuationExpired, "this continuation counts no more: it was revoked, or its handoff has ended", "Ask whoever gave it to you for a new one.")
	errContinuationExpired   = handoff.Refuse(handoff.CodeContinuationExpired, "this continuation has expired", "Ask whoever gave it to you for a new one.")
	errContinuationRedeemed  = handoff.Refuse(handoff.CodeContinuationRedeemed, "this continuation was redeemed already, and it counts once", "Whoever redeemed it holds the handoff. Ask for a new one if that was not you.")
)

// TokenOf takes the token from a link of this hub. The link is parsed and never followed.
func (h *Hub) TokenOf(in RedeemInput) (string, error) {
	if in.URL == "" {
		if in.Token == "" {
			return "", handoff.Invalid("continuation_url", "neither it nor handshake_token came; one of them is needed")
		}
		return in.Token, nil
	}
	u, err := url.Parse(in.URL)
	if err != nil || u.Scheme+"://"+u.Host != h.cfg.PublicURL || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", errContinuationMalformed
	}
	token, ok := strings.CutPrefix(u.Path, continuePath)
	if !ok || in.Token != "" && in.Token != token {
		return "", errContinuationMalformed
	}
	return token, nil
}

// CheckContinuation refuses what is no token at all, before anything else is looked at.
func CheckContinuation(token string) error {
	if !auth.IsToken(token) {
		return errContinuationMalformed
	}
	return nil
}

// openContinuation reads what a token opens, in the order of refusals that is promised.
func openContinuation(tx *store.Tx, token string) (auth.Token, error) {
	secret, err := signer(tx)
	if err != nil {
		return auth.Token{}, err
	}
	t, err := auth.OpenToken(token, auth.ScopeContinue, secret)
	switch {
	case errors.Is(err, auth.ErrTokenMalformed):
		return t, errContinuationMalformed
	case errors.Is(err, auth.ErrTokenSignature), err == nil && t.IssuedAt.After(tx.Now().Add(issueLeeway)):
		return t, errContinuationSignature
	case err != nil:
		return t, errContinuationScope
	}
	return t, nil
}

// RedeemContinuation gives the handoff of a continuation to the caller, once: an agent, or a bearer
// without a credential, who then gets a session. The refusals are those of the token in the order of
// the contract; then nothing has changed.
func (h *Hub) RedeemContinuation(ctx context.Context, call Call, in RedeemInput) (Redeemed, error) {
	token, err := h.TokenOf(in)
	if err != nil {
		return Redeemed{}, err
	}
	key, err := ResolveKey(in.IdempotencyKey, nil, call.HeaderKey)
	if err != nil {
		return Redeemed{}, err
	}
	if _, err := h.operation(call, "redeem", key); err != nil {
		return Redeemed{}, err
	}
	repeat := ""
	if key != "" {
		repeat = auth.HashKey(call.Actor.ID + "\x00" + key)
	}
	redeemer := call.Actor
	if redeemer.ID == "" {
		redeemer = handoff.Bearer(newID())
	}
	call.Actor = redeemer
	var out Redeemed
	err = h.change(ctx, "redeem", call, func(c *change) error {
		opened, err := openContinuation(c.Tx, token)
		if err != nil {
			return err
		}
		was, err := c.LockHandoff(opened.HandoffID)
		if isCode(err, handoff.CodeNotFound) {
			return errContinuationUnknown
		}
		if err != nil {
			return err
		}
		link, err := c.Continuation(was.ID)
		if isCode(err, handoff.CodeNotFound) {
			return errContinuationUnknown
		}
		if err != nil {
			return err
		}
		now := c.Now()
		row := was
		seen := was.At(now)
		switch {
		case repeat != "" && link.RepeatHash == repeat && now.Before(link.RedeemedAt.Add(repeatFor)):
			out, err = h.redeemed(c.Tx, &row, &link)
			out.Replay = true
			return err
		case !link.RevokedAt.IsZero():
			return errContinuationRevoked
		case seen.State == handoff.Expired && link.RedeemedAt.IsZero() || link.RedeemedAt.IsZero() && !now.Before(link.ExpiresAt):
			return errContinuationExpired
		case seen.State.Terminal():
			return errContinuationRevoked
		case !link.RedeemedAt.IsZero():
			return errContinuationRedeemed
		}
		event, err := row.Redeem(redeemer, now)
		if err != nil {
			return err
		}
		link.RedeemedAt, link.RedeemerID, link.RepeatHash = now, redeemer.ID, repeat
		link.SessionUsed, link.SessionEnds = now, now.Add(sessionMost).Truncate(time.Second)
		if err := first(
			func() error { return c.RedeemContinuation(&link) },
			func() error { return c.record(&row, event, redeemer, "", 0, row.Creator) },
			func() error { return c.record(&row, handoff.EventContinuationRedeemed, redeemer, "", 0) },
			func() error { return c.update(&was, &row) }); err != nil {
			return err
		}
		out, err = h.redeemed(c.Tx, &row, &link)
		return err
	})
	return out, err
}

// redeemed is what the redeemer of a continuation is shown.
func (h *Hub) redeemed(tx *store.Tx, row *handoff.Handoff, link *store.Continuation) (Redeemed, error) {
	out := Redeemed{
		HandoffID: row.ID, Creator: row.Creator, IssuedAt: link.IssuedAt, Epoch: row.Epoch, ThreadURL: h.cfg.PublicURL + threadPath + row.ID,
		Viewer: handoff.Actor{ID: link.RedeemerID},
	}
	var err error
	if out.Desk, err = tx.Desk(row.ID); err != nil {
		return out, err
	}
	if out.Contact, err = tx.Contact(row.ID); err != nil {
		return out, err
	}
	if out.Messages, err = tx.Messages(row.ID, 0, DefaultPage); err != nil {
		return out, err
	}
	ids := map[string]bool{row.Creator: true}
	for i := range out.Messages {
		ids[out.Messages[i].Author] = true
	}
	if out.Parties, err = names(tx, sortedKeys(ids)); err != nil {
		return out, err
	}
	secret, err := signer(tx)
	if err != nil {
		return out, err
	}
	if key := secret(link.KeyID); key != nil {
		out.SessionToken = auth.SignToken(link.KeyID, key, auth.Token{
			HandoffID: row.ID, Scope: auth.ScopeSession, Subject: link.RedeemerID, IssuedAt: link.RedeemedAt.Truncate(time.Second), Expires: link.SessionEnds,
		})
	}
	return out, nil
}

// threadPath is where the bearer of a session reads and writes, below the public URL.
const threadPath = "/api/v1/continuations/"

// ContinuationInfo is what anybody may know who has the link.
type ContinuationInfo struct {
	Business  string
	Slug      string
	State     string
	ExpiresAt time.Time
	Redeemed  bool
	Purpose   string
}

// DescribeContinuation says what a link is for and changes nothing. It is refused as redeeming would be,
// but for one that was redeemed, has expired or was revoked: then its state says so.
func (h *Hub) DescribeContinuation(ctx context.Context, token string) (ContinuationInfo, error) {
	var out ContinuationInfo
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		opened, err := openContinuation(tx, token)
		if err != nil {
			return err
		}
		link, err := tx.Continuation(opened.HandoffID)
		if isCode(err, handoff.CodeNotFound) {
			return errContinuationUnknown
		}
		if err != nil {
			return err
		}
		row, err := tx.Handoff(link.HandoffID)
		if err != nil {
			return err
		}
		d, err := tx.Desk(row.ID)
		if err != nil {
			return err
		}
		b, err := tx.Business(d.Slug)
		row = row.At(tx.Now())
		out = ContinuationInfo{Business: b.Name, Slug: b.Slug, State: row.Status(), ExpiresAt: link.ExpiresAt, Redeemed: !link.RedeemedAt.IsZero(), Purpose: d.Purpose}
		if !link.RevokedAt.IsZero() {
			out.State, out.Purpose = "REVOKED", ""
		}
		return err
	})
	return out, err
}

// errNoSession says that a session token counts no more, without saying why.
var errNoSession = handoff.Refuse(handoff.CodeUnauthenticated, "the session token is not valid, or its session has ended", "Send the session_token of the redemption as Authorization: Bearer. A session ends with its handoff, when it is revoked or given to another, and after a day without use.")

// SessionCall is who calls with a session token, and the one handoff that it is for. A session ends with
// its handoff, but what completes may be repeated: an answer that got lost must not leave its caller in
// doubt.
func (h *Hub) SessionCall(ctx context.Context, token, handoffID string, completes bool) (Call, error) {
	var actor handoff.Actor
	var link store.Continuation
	var now time.Time
	err := h.st.Read(ctx, func(tx *store.Tx) error {
		secret, err := signer(tx)
		if err != nil {
			return err
		}
		t, err := auth.OpenToken(token, auth.ScopeSession, secret)
		if err != nil || t.HandoffID != handoffID {
			return errNoSession
		}
		if link, err = tx.Continuation(t.HandoffID); err != nil {
			return errors.Join(errNoSession, err)
		}
		row, err := tx.Handoff(t.HandoffID)
		if err != nil {
			return err
		}
		now = tx.Now()
		ended := row.State.Terminal() && (!completes || row.State != handoff.Completed)
		if t.Subject != link.RedeemerID || row.Holder != t.Subject || ended || sessionOver(&link, now) {
			return errNoSession
		}
		actor = handoff.Actor{Kind: handoff.KindBearer, ID: t.Subject, Handle: t.Subject}
		if a, err := tx.Agent(t.Subject); err == nil {
			if a.Disabled {
				return errNoSession
			}
			actor = handoff.Actor{Kind: handoff.KindAgent, ID: a.ID, Handle: a.Handle}
		} else if !isCode(err, handoff.CodeNotFound) {
			return err
		}
		return nil
	})
	if err != nil {
		return Call{}, err
	}
	if now.Sub(link.SessionUsed) > time.Minute {
		err = h.st.Write(ctx, func(tx *store.Tx) error { return tx.UseContinuationSession(handoffID, tx.Now()) })
	}
	return Call{Actor: actor}, err
}

func sessionOver(link *store.Continuation, now time.Time) bool {
	return !link.RevokedAt.IsZero() || !now.Before(link.SessionEnds) || now.Sub(link.SessionUsed) >= sessionIdle
}

// RevokeContinuation ends by the operator's hand what was given out for a handoff of the desk: its
// continuation with the session that came of it, or the links of its person.
func (h *Hub) RevokeContinuation(ctx context.Context, call Call, prefix string) (id string, err error) {
	if id, err = h.named(ctx, call, prefix); err != nil {
		return "", err
	}
	secret, err := h.linkSecret(ctx)
	if err != nil {
		return "", err
	}
	return id, h.change(ctx, "continuation_revoke", call, func(c *change) error {
		was, err := c.LockHandoff(id)
		if err != nil {
			return err
		}
		d, err := c.Desk(id)
		if isCode(err, handoff.CodeNotFound) {
			return handoff.Refuse(handoff.CodeInvalidTransition, "this handoff is not of the desk: it has no link", "Nothing was changed.")
		}
		if err != nil {
			return err
		}
		row := was
		if d.Mode == handoff.HumanMode {
			generation, err := c.LinkGeneration(id, store.LinkPage)
			if err != nil {
				return err
			}
			err = c.link(&row, secret, generation+1)
			if err != nil {
				return err
			}
		} else {
			link, err := c.Continuation(id)
			if err != nil || !link.RevokedAt.IsZero() {
				return err
			}
			if err := c.Tx.RevokeContinuation(id, c.Now()); err != nil {
				return err
			}
		}
		row.UpdatedAt = c.Now()
		if err := c.record(&row, handoff.EventContinuationRevoked, call.Actor, "", 0, row.Creator); err != nil {
			return err
		}
		return c.update(&was, &row)
	})
}

// RotateSigningKey makes a new key for continuations and sessions. What others signed counts on for
// eight days, longer than any of it lasts; at once no more if atOnce.
func (h *Hub) RotateSigningKey(ctx context.Context, call Call, atOnce bool) (keyID string, err error) {
	if err := operatorOnly(call); err != nil {
		return "", err
	}
	err = h.change(ctx, "key_rotate_signing", call, func(c *change) error {
		end := c.Now().Add(keyOverlap)
		if atOnce {
			end = c.Now()
		}
		k, err := c.newSigningKey(end)
		keyID = k.ID
		if err != nil {
			return err
		}
		c.wake[anyEvent] = true
		return c.InsertEvent(&handoff.Event{Type: handoff.EventKeyCreated, ActorID: call.Actor.ID, SubjectID: k.ID, TraceID: call.traceID(), At: c.Now()})
	})
	return keyID, err
}
