package hub

import (
	"context"
	"net/url"
	"sync"
	"time"

	"handclasp/internal/auth"
	"handclasp/internal/handoff"
	"handclasp/internal/store"
)

// Agents that do not wait in a call can be told of their inbox outside: by mail, by a webhook, or in a
// chat. What is told is that there is news, never what it says.

// channelCache remembers which agents want to be told outside, so that a write costs no question for
// those that do not.
type channelCache struct {
	mu      sync.Mutex
	read    time.Time
	byAgent map[string][]handoff.Channel
}

func (c *channelCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byAgent = nil
}

// channelsOf are those of an agent, as of a moment ago where other nodes may change them.
func (h *Hub) channelsOf(tx *store.Tx, agentID string) ([]handoff.Channel, error) {
	c := &h.channels
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byAgent == nil || h.st.Shared() && time.Since(c.read) > cacheFor {
		list, err := tx.AgentChannels()
		if err != nil {
			return nil, err
		}
		c.byAgent, c.read = map[string][]handoff.Channel{}, time.Now()
		for _, one := range list {
			c.byAgent[one.AgentID] = append(c.byAgent[one.AgentID], one.Channel)
		}
	}
	return c.byAgent[agentID], nil
}

// notifyOutside writes down that an agent is to be told outside of the last event of h. What waits
// already to go out for the same handoff is made to name that event; what was taken to be sent is not
// changed any more, and the event gets a notification of its own.
func (c *change) notifyOutside(agentID string, h *handoff.Handoff) error {
	channels, err := c.hub.channelsOf(c.Tx, agentID)
	for _, channel := range channels {
		waits, err := c.RenewNews(h.ID, agentID, channel, h.EventSeq)
		if err != nil {
			return err
		}
		if waits {
			continue
		}
		now := c.Now()
		if err := c.InsertDelivery(&handoff.Delivery{
			ID: newID(), HandoffID: h.ID, Kind: handoff.NotifyNews, Channel: channel, Recipient: agentID, EventSeq: h.EventSeq,
			State: handoff.DeliveryQueued, CreatedAt: now, UpdatedAt: now, DueAt: now,
		}); err != nil {
			return err
		}
		c.sends = true
	}
	return err
}

// reasonNoChannel: the agent does not want to be told that way any more.
const reasonNoChannel = "channel_removed"

// news fills in a notification for an agent's own inbox.
func (h *Hub) news(tx *store.Tx, d *handoff.Delivery, row *handoff.Handoff, n *Outgoing) error {
	channel, err := tx.AgentChannel(d.Recipient, d.Channel)
	if store.IsNoRows(err) {
		n.Refused = reasonNoChannel
		return nil
	}
	if err != nil {
		return err
	}
	a, err := tx.Agent(d.Recipient)
	if err != nil {
		return err
	}
	if a.Disabled {
		n.Refused = reasonNoChannel
		return nil
	}
	events, err := tx.HandoffEvents(row.ID, d.EventSeq-1, 1)
	if err != nil {
		return err
	}
	if len(events) > 0 && events[0].Seq == d.EventSeq { // the state is that after the event: news of a later one are on their way
		n.Event, row.State = events[0].Type, events[0].State
	}
	parties, err := names(tx, []string{row.Creator})
	n.To, n.Secret, n.Business = channel.Address, channel.Secret, a.Name
	n.Sender, n.Status, n.Link = parties[row.Creator].Handle, row.Status(), h.cfg.PublicURL+"/inbox/"+row.ID
	return err
}

// NotifyInput says where an agent wants to be told of its own inbox; several may be given, and each
// replaces the last of its kind. Off removes all.
type NotifyInput struct {
	Email   string `json:"email,omitempty"`
	Webhook string `json:"webhook,omitempty"`
	Slack   string `json:"slack,omitempty"`
	Off     bool   `json:"off,omitempty"`
}

// NotifyState is where an agent is told. Secrets are empty but for that of a webhook that was set just now.
type NotifyState struct {
	Handle   string
	Channels []store.AgentChannel
	// Forbidden says why this hub will not dial an address that was given, as it is configured now.
	Forbidden map[handoff.Channel]string
}

// examineFor is how long the names of new addresses may take to resolve.
const examineFor = 5 * time.Second

// SetNotify sets where an agent is told of its own inbox, by the operator's hand. What a URL leads to is
// judged when it is dialled; what would be refused now is said besides.
func (h *Hub) SetNotify(ctx context.Context, call Call, handle string, in NotifyInput) (NotifyState, error) {
	if err := operatorOnly(call); err != nil {
		return NotifyState{}, err
	}
	given := map[handoff.Channel]string{handoff.ChannelEmail: in.Email, handoff.ChannelWebhook: in.Webhook, handoff.ChannelSlack: in.Slack}
	nothing := in.Email == "" && in.Webhook == "" && in.Slack == ""
	switch {
	case nothing != in.Off:
		return NotifyState{}, handoff.Invalid("webhook", "give webhook, slack or email, or off to end all of them")
	case in.Email != "":
		if err := handoff.CheckEmail("email", in.Email, h.lim.Email); err != nil {
			return NotifyState{}, err
		}
	}
	for field, address := range map[string]string{"webhook": in.Webhook, "slack": in.Slack} {
		if err := checkHook(field, address); err != nil {
			return NotifyState{}, err
		}
	}
	out, secret := NotifyState{}, auth.NewWebhookSecret()
	err := h.change(ctx, "agent_notify", call, func(c *change) error {
		a, err := agentNamed(c.Tx, handle)
		if err != nil {
			return err
		}
		out = NotifyState{Handle: a.Handle}
		if in.Off {
			if err := c.RemoveAgentChannels(a.ID); err != nil {
				return err
			}
		}
		for channel, address := range given {
			if address == "" {
				continue
			}
			one := store.AgentChannel{AgentID: a.ID, Channel: channel, Address: address}
			if channel == handoff.ChannelWebhook {
				one.Secret = secret
			}
			if err := c.SetAgentChannel(&one); err != nil {
				return err
			}
		}
		if out.Channels, err = c.ChannelsOf(a.ID); err != nil {
			return err
		}
		for i := range out.Channels {
			if out.Channels[i].Secret != secret {
				out.Channels[i].Secret = ""
			}
		}
		c.wake[credentialChanged+a.ID] = true
		return c.agentEvent(handoff.EventAgentEdited, a.ID, a.ID)
	})
	if err != nil || h.cfg.CheckOutside == nil {
		return out, err
	}
	ctx, end := context.WithTimeout(ctx, examineFor)
	defer end()
	out.Forbidden = map[handoff.Channel]string{}
	for channel, address := range map[handoff.Channel]string{handoff.ChannelWebhook: in.Webhook, handoff.ChannelSlack: in.Slack} {
		if address == "" {
			continue
		}
		if err := h.cfg.CheckOutside(ctx, address); err != nil {
			out.Forbidden[channel] = err.Error()
		}
	}
	return out, nil
}

func checkHook(field, address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil || u.Fragment != "" || len(address) > 2048 {
		return handoff.Invalid(field, "an http or https address without user name and fragment is accepted, such as https://ci.example.com/hooks/handclasp (what came is not repeated, it may hold a secret)")
	}
	return nil
}
