package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"handclasp/internal/config"
	"handclasp/internal/restapi"
	"handclasp/internal/telemetry"
)

type tailCmd struct {
	config.Where `embed:""`
	As           string `name:"as" help:"Only what this agent may see. Default: everything." placeholder:"NAME@TEAM"`
	URL          string `name:"url" help:"Address of a running hub, such as https://hub.example.com: what the agent of the key may see." placeholder:"URL"`
	KeyFile      string `name:"key-file" help:"File that holds the agent's API key for --url; the environment variable HANDCLASP_KEY may hold the key instead." type:"path" placeholder:"FILE"`
	After        string `help:"Cursor to go on from; 0 is the beginning. Default: what comes from now on." placeholder:"CURSOR"`
	NoFollow     bool   `name:"no-follow" help:"End at the end of the log."`
	JSON         bool   `help:"One JSON document a line (NDJSON); each carries its cursor."`
}

// Help is printed by --help.
func (*tailCmd) Help() string {
	return `Follows the log of the local hub, or of the hub at an address: ids, states and actors, never texts. Ctrl-C ends it.

Examples:
  handclasp tail
  handclasp tail --as frank@acme --json
  handclasp tail --url https://hub.example.com --key-file ~/.config/handclasp/frank.key
  handclasp tail --after 0 --no-follow`
}

// tailWait is how long one call waits for events, in seconds.
const tailWait = 20

// logSource is where the log is read: at the local hub as its operator, or at an address as an agent.
type logSource interface {
	// next reads what follows a cursor, for at most so many seconds, and where to go on. more tells
	// that there may be something behind it already.
	next(cursor string, wait int) (list []tailed, next string, more bool, err error)
	// again says how long to wait before a call that failed is repeated; 0 when that is no use.
	again(err error) time.Duration
	close()
}

// tailed is an event as a line shows it and as JSON has it.
type tailed struct {
	*restapi.Event
	actor, subject string // in words
	json           any
}

func (c *tailCmd) open(e *env) (logSource, error) {
	log := telemetry.NewLogger(e.stderr, "text", slog.LevelError)
	if c.URL != "" || c.KeyFile != "" {
		id := &config.Identity{Where: c.Where, As: c.As, URL: c.URL, KeyFile: c.KeyFile}
		conn, err := connect(e.ctx, id, true, log)
		if err != nil {
			return nil, err
		}
		return &agentLog{ctx: e.ctx, conn: conn}, nil
	}
	if err := c.Where.Check(); err != nil {
		return nil, usageError{err}
	}
	conn, err := connectHere(e.ctx, &c.Where, c.As, true, log)
	if err != nil {
		return nil, err
	}
	return &operatorLog{operatorClient{ctx: e.ctx, http: conn.client()}, conn, c.As, c.JSON, map[string]string{}}, nil
}

// Run prints events as they are committed.
func (c *tailCmd) Run(e *env) error {
	from, err := c.open(e)
	if err != nil {
		return err
	}
	defer from.close()
	cursor, wait := c.After, tailWait
	if cursor == "" {
		cursor = "now"
	}
	if c.NoFollow {
		wait = 0
	}
	if c.After == "" && !c.NoFollow && isTerminal(e.stderr) {
		fmt.Fprintln(e.stderr, "what comes from now on; --after 0 shows what was, Ctrl-C ends")
	}
	for e.ctx.Err() == nil {
		list, next, more, err := from.next(cursor, wait)
		if e.ctx.Err() != nil {
			return nil //nolint:nilerr // Ctrl-C is how it ends
		}
		if err != nil {
			pause := from.again(err)
			if pause == 0 {
				return err
			}
			select {
			case <-e.ctx.Done():
			case <-time.After(pause):
			}
			continue
		}
		for i := range list {
			if err := c.print(e, &list[i]); err != nil {
				return err
			}
		}
		cursor = next
		if c.NoFollow && len(list) == 0 && !more {
			return nil
		}
	}
	return nil
}

// ownerPause is the pause between two looks for the next owner.
const ownerPause = 50 * time.Millisecond

// operatorLog is the log of the local hub.
type operatorLog struct {
	operatorClient
	conn  *connection
	as    string
	json  bool
	names map[string]string // handles by the agents' ids
}

func (o *operatorLog) close() { o.conn.close() }

// again: the owner ended; another comes, and skips nothing.
func (o *operatorLog) again(err error) time.Duration {
	var gone unreachableError
	if errors.As(err, &gone) {
		return ownerPause
	}
	return 0
}

func (o *operatorLog) next(cursor string, wait int) (list []tailed, next string, more bool, err error) {
	var page restapi.Events
	q := url.Values{"cursor": {cursor}, "as": {o.as}, "wait": {strconv.Itoa(wait)}}
	if err = o.get("/operator/events?"+q.Encode(), &page); err == nil {
		err = o.learn(page.Events)
	}
	var refused refusedError
	if errors.As(err, &refused) {
		err = errors.New(strings.Replace(refused.text, "--cursor:", "--after:", 1))
	}
	for i := range page.Events {
		ev := &page.Events[i]
		var on []string // an agent, a key, or for a block one agent and the other
		for _, id := range strings.Split(ev.SubjectID, "/") {
			on = append(on, o.named(id))
		}
		list = append(list, tailed{ev, o.named(ev.ActorID), strings.Join(on, " / "), ev})
	}
	return list, page.NextCursor, false, err
}

// learn keeps the handles of the agents that the events name.
func (o *operatorLog) learn(events []restapi.Event) error {
	names := o.names
	for i := range events {
		_, actor := names[events[i].ActorID]
		_, subject := names[events[i].SubjectID]
		if o.json || actor && (subject || events[i].HandoffID != "") {
			continue
		}
		var out struct {
			Agents []restapi.Agent `json:"agents"`
		}
		if err := o.get("/operator/agents", &out); err != nil {
			return err
		}
		for _, a := range out.Agents {
			names[a.AgentID] = a.Handle
		}
		for _, ev := range events { // what is no agent stays what it is, and is not asked for again
			names[ev.ActorID], names[ev.SubjectID] = o.named(ev.ActorID), o.named(ev.SubjectID)
		}
		return nil
	}
	return nil
}

// named is the handle of an agent, and every other id as it is.
func (o *operatorLog) named(id string) string {
	if handle := o.names[id]; handle != "" {
		return handle
	}
	return id
}

func (c *tailCmd) print(e *env, ev *tailed) error {
	if c.JSON {
		b, err := json.Marshal(ev.json)
		if err != nil {
			return err
		}
		return e.say("%s\n", b)
	}
	at := ev.At
	if t, err := time.Parse(time.RFC3339, ev.At); err == nil {
		at = t.Local().Format("2006-01-02 15:04:05.000")
	}
	line := fmt.Sprintf("%s  %-24s %s", at, ev.Type, ev.actor)
	switch {
	case ev.HandoffID != "":
		line += fmt.Sprintf("  %s #%d %s", ev.HandoffID, ev.Seq, ev.State)
	case ev.SubjectID != "":
		line += "  " + ev.subject
	}
	return e.say("%s\n", line)
}
