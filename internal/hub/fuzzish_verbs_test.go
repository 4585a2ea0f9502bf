package hub_test

import (
	"fmt"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
)

// Each verb of the model says first what must come of it, then plays it on the hub, then does
// the same to the model.

func (m *model) create(who, to, deadline int, key string) {
	content := fmt.Sprint(to, deadline)
	e, found, code := m.keyed(who, "create", key, content)
	switch {
	case found:
	case who == to:
		code = handoff.CodeInvalidParams
	case m.blocked[to][who]:
		code = handoff.CodeTeammateBlocked
	}
	out, err := m.f.Hub.Create(bg, m.calls[who], hub.CreateInput{
		To: m.calls[to].Actor.Handle, Intent: handoff.Inform, Summary: "s", ExpiresIn: int64(deadline), IdempotencyKey: key,
	})
	if !m.want(fmt.Sprintf("create %d→%d", who, to), code, err) {
		return
	}
	if found {
		if is := m.at(e.of); !out.Replay || out.ThreadID != e.of.id || out.Status != is.state.TeamStatus() {
			m.t.Fatalf("replayed as %+v, it is %s %s", out, e.of.id, is.state)
		}
		return
	}
	h := &modelHandoff{id: out.ThreadID, creator: who, recipient: to, state: handoff.Open, messages: 1}
	if deadline > 0 {
		h.deadline = m.now + deadline
	}
	h.tell(who, handoff.EventCreated, 1)
	m.handoffs = append(m.handoffs, h)
	m.keep(who, "create", key, effect{content: content, of: h})
}

func (m *model) accept(h *modelHandoff, who, lease int, key string) {
	is := m.at(h)
	content := fmt.Sprint(h.id, lease)
	e, found, code := m.keyed(who, "claim", key, content)
	switch {
	case !is.takesPart(who):
		code = handoff.CodeNotFound
	case code != "":
	case found && (is.epoch != e.epoch || is.state != handoff.Claimed && is.state != handoff.Completed):
		code = handoff.CodeLeaseLost
	case found:
	case is.state.Terminal():
		code = handoff.CodeThreadTerminal
	case who != is.recipient:
		code = handoff.CodeNotEligibleToClaim
	}
	out, err := m.f.Hub.Accept(bg, m.calls[who], hub.AcceptInput{ThreadID: h.id, Lease: int64(lease), IdempotencyKey: key})
	if !m.want(fmt.Sprintf("accept by %d", who), code, err) {
		return
	}
	if h.settle(m.now); !found {
		if h.state == handoff.Open {
			h.state, h.held, h.lease = handoff.Claimed, true, lease
			h.epoch++
			h.tell(who, handoff.EventClaimed, 0)
		} else if lease > 0 {
			h.lease = lease
		}
		if h.ends = 0; h.lease > 0 {
			h.ends = m.now + h.lease
		}
		m.keep(who, "claim", key, effect{content: content, of: h, epoch: h.epoch})
	}
	h.see(who, 0, hub.DefaultPage)
	if out.Replay != found || out.Handoff.Epoch != h.epoch {
		m.t.Fatalf("accepted as %+v", out)
	}
}

func (m *model) send(h *modelHandoff, who int, asks bool, key string) {
	is := m.at(h)
	content := fmt.Sprint(h.id, asks)
	e, found, code := m.keyed(who, "message", key, content)
	switch {
	case !is.takesPart(who):
		code = handoff.CodeNotFound
	case found || code != "":
	case is.state.Terminal():
		code = handoff.CodeThreadTerminal
	case asks && (is.state != handoff.Claimed || who != is.recipient):
		code = handoff.CodeNotOwner
	case m.blocked[is.creator][who] || m.blocked[is.recipient][who]:
		code = handoff.CodeTeammateBlocked
	}
	out, err := m.f.Hub.Send(bg, m.calls[who], hub.SendInput{ThreadID: h.id, Body: "b", ExpectsReply: asks, IdempotencyKey: key})
	if !m.want(fmt.Sprintf("message by %d", who), code, err) {
		return
	}
	if h.settle(m.now); found {
		if out.MessageID != e.ref || !out.Replay {
			m.t.Fatalf("replayed as %+v, it was %s", out, e.ref)
		}
		return
	}
	h.messages++
	event := handoff.EventMessageCreated
	if asks {
		h.waits, event = true, handoff.EventInputRequired
	} else if who == h.creator {
		h.waits = false
	}
	h.tell(who, event, h.messages)
	m.keep(who, "message", key, effect{content: content, of: h, ref: out.MessageID})
	if out.SequenceNo != h.messages || out.Replay {
		m.t.Fatalf("message %d came as %+v", h.messages, out)
	}
}

func (m *model) complete(h *modelHandoff, who int) {
	is, epoch, result := m.at(h), m.epoch(h), fmt.Sprint("result ", m.pick(2))
	code := is.asHolder(who, epoch)
	stands := is.state == handoff.Completed && who == is.recipient && is.result == result && (epoch == nil || *epoch == is.epoch)
	switch {
	case !is.takesPart(who):
		code = handoff.CodeNotFound
	case stands:
		code = ""
	}
	out, err := m.f.Hub.Complete(bg, m.calls[who], hub.CompleteInput{ThreadID: h.id, ResultSummary: result, ClaimEpoch: epoch})
	if m.want(fmt.Sprintf("complete by %d", who), code, err) && !stands {
		h.result = result
		h.end(handoff.Completed, who, "")
	}
	if err == nil && out.Replay != stands {
		m.t.Fatalf("completed as %+v", out)
	}
}

func (m *model) decline(h *modelHandoff, who int) {
	is, epoch, reason := m.at(h), m.epoch(h), fmt.Sprint("no ", m.pick(2))
	code := is.asHolder(who, epoch)
	stands := is.state == handoff.Rejected && who == is.endedBy && is.reason == reason && (epoch == nil || *epoch == is.epoch)
	switch {
	case !is.takesPart(who):
		code = handoff.CodeNotFound
	case stands, is.state == handoff.Open && who == is.recipient:
		code = ""
	case who == is.creator:
		code = handoff.CodeNotOwner
	}
	_, err := m.f.Hub.Decline(bg, m.calls[who], hub.DeclineInput{ThreadID: h.id, Reason: reason, ClaimEpoch: epoch})
	if m.want(fmt.Sprintf("decline by %d", who), code, err) && !stands {
		h.settle(m.now)
		h.end(handoff.Rejected, who, reason)
	}
}

func (m *model) cancel(h *modelHandoff, who int) {
	is, reason := m.at(h), fmt.Sprint("why ", m.pick(2))
	var code handoff.Code
	stands := is.state == handoff.Cancelled && who == is.endedBy && is.reason == reason
	switch {
	case !is.takesPart(who):
		code = handoff.CodeNotFound
	case stands:
	case who != is.creator:
		code = handoff.CodeNotOwner
	case is.state.Terminal():
		code = handoff.CodeThreadTerminal
	case is.state != handoff.Open:
		code = handoff.CodeInvalidTransition
	}
	_, err := m.f.Hub.Cancel(bg, m.calls[who], hub.CancelInput{ThreadID: h.id, Reason: reason})
	if m.want(fmt.Sprintf("cancel by %d", who), code, err) && !stands {
		h.settle(m.now)
		h.end(handoff.Cancelled, who, reason)
	}
}

func (m *model) view(h *modelHandoff, who int) {
	after, limit := m.pick(h.messages+1), 1+m.pick(4)
	var code handoff.Code
	if !h.takesPart(who) {
		code = handoff.CodeNotFound
	}
	out, err := m.f.Hub.View(bg, m.calls[who], hub.ViewInput{ThreadID: h.id, After: after, Limit: limit})
	if m.want(fmt.Sprintf("view by %d", who), code, err) {
		h.see(who, after, limit)
		if len(out.Messages) != min(limit, h.messages-after) || out.HasMore != (after+limit < h.messages) {
			m.t.Fatalf("%d messages after %d of %d", len(out.Messages), after, h.messages)
		}
	}
}
