package hub

import "handclasp/internal/handoff"

// Session is the session that a caller names in a call. The secret is needed where the hub trusts
// nobody without one.
type Session struct {
	ID     string `json:"session_id"`
	Secret string `json:"session_secret"`
}

// attribute notes the session in which what follows is done.
func (c *change) attribute(s Session) error {
	c.session = s.ID
	return nil
}

// admit is attribute for a verb on a pool handoff; row is nil where none is known yet.
func (c *change) admit(s Session, _ *handoff.Handoff) error { return c.attribute(s) }
