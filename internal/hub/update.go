package hub

import (
	"hash/fnv"
	"strconv"

	"handclasp/internal/handoff"
)

// update writes down what a verb did to a handoff, with what follows from it: its place among what
// is offered, and the handoffs that waited for its end. Every verb at every door goes through here.
func (c *change) update(was, row *handoff.Handoff) error {
	if err := c.UpdateHandoff(was, row); err != nil {
		return err
	}
	c.wakeOffers(was, row)
	if row.Door != handoff.DoorPool || !row.State.Terminal() || was.State.Terminal() {
		return nil
	}
	return c.releaseDependents(row)
}

// releaseDependents tells the handoffs that wait for one that it ended, each under its own lock, in
// the order of their ids.
func (c *change) releaseDependents(ended *handoff.Handoff) error {
	ids, err := c.Dependents(ended.ID)
	if err != nil {
		return err
	}
	for _, id := range ids {
		was, err := c.LockHandoff(id)
		if err != nil {
			return err
		}
		row := was
		if event, ok := row.Expire(c.Now()); ok { // it did not live to see it
			if err := c.record(&row, event, handoff.System(), "", 0, row.Creator, row.Recipient); err != nil {
				return err
			}
			if err := c.update(&was, &row); err != nil {
				return err
			}
			was = row
		}
		event := row.DependencyEnded(ended.State, c.Now())
		whom := []string{}
		switch {
		case was.State.Terminal():
			continue
		case event == handoff.EventDependencyFailed:
			whom = append(whom, row.Creator)
		case event == handoff.EventUnblocked:
			if err := c.findRecipient(&row); err != nil {
				return err
			}
			whom = append(whom, row.Recipient)
		}
		if event != handoff.Repeated {
			if err := c.record(&row, event, handoff.System(), ended.ID, 0, whom...); err != nil {
				return err
			}
		}
		if err := c.update(&was, &row); err != nil {
			return err
		}
	}
	return nil
}

// findRecipient resolves the agent that a direct_with_fallback target names, if it registered since.
func (c *change) findRecipient(row *handoff.Handoff) error {
	if row.Recipient != "" || !row.Target.HasFallback() {
		return nil
	}
	a, err := c.agentCalled("target.agent_id", row.Target.AgentID)
	if isCode(err, handoff.CodeRecipientNotFound) {
		return nil
	}
	row.Recipient = a.ID
	return err
}

// expected tells a new agent of the open handoffs that were kept for its handle.
func (c *change) expected(handle, agentID string) error {
	const most = 200
	ids, err := c.AwaitedBy(handle, most)
	if err != nil {
		return err
	}
	for _, id := range ids {
		was, err := c.LockHandoff(id)
		if err != nil {
			return err
		}
		if was.State != handoff.Open || was.Recipient != "" {
			continue
		}
		row := was
		row.Recipient = agentID
		if err := c.InsertNotice(agentID, &row, 1, 0, handoff.EventCreated, c.Now()); err != nil {
			return err
		}
		if err := c.update(&was, &row); err != nil {
			return err
		}
	}
	return nil
}

// What parked calls wait for. Keys are short and hold no spaces, because they travel between nodes.

// lookAgain is for everybody: what a workspace stands for or whom it admits changed.
const lookAgain = "look-again"

// An agent's id alone is for whoever waits for a change of what that agent takes part in. wakeNews is
// for its inbox, and wakeHandoff for whoever follows one handoff.
func wakeNews(agentID string) string { return "n:" + agentID }
func wakeHandoff(id string) string   { return "h:" + id }

// wakeVerifiers is for whoever found something that it might take, if only somebody could verify the
// work: there may be another verifier now.
const wakeVerifiers = "v"

// wakeOffer is for whoever waits for something to take under one key of a workspace, wakeEvent for
// whoever follows its events and has the key; without a workspace, those of all. Two keys may share
// a hash: then somebody looks for nothing.
func wakeOffer(workspace, key string) string { return "o:" + hashed(workspace, key) }
func wakeEvent(workspace, key string) string { return "e:" + hashed(workspace, key) }

func hashed(workspace, key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(workspace + " " + key)) // it never fails
	return strconv.FormatUint(h.Sum64(), 36)
}

// wakeReaders wakes whoever follows the events of a handoff in one way or another and may read it.
func (c *change) wakeReaders(h *handoff.Handoff) {
	c.wake[wakeHandoff(h.ID)] = true
	for _, id := range h.Named() {
		c.wake[id] = true
	}
	for _, key := range h.ReaderKeys(c.Now()) {
		c.wake[wakeEvent(h.WorkspaceID, key)] = true
	}
	if key := h.VerifierKey(); key != "" {
		c.wake[wakeEvent("", key)] = true
	}
}

// wakeOffers wakes whoever waits for a key under which the handoff is offered from now on.
func (c *change) wakeOffers(was, row *handoff.Handoff) {
	had := map[string]bool{}
	if was != nil {
		for _, o := range was.Offers() {
			had[o.Key] = true
		}
	}
	for _, o := range row.Offers() {
		if !had[o.Key] {
			c.wake[wakeOffer(row.WorkspaceID, o.Key)] = true
		}
	}
}
