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
	After        string `help:"Cursor to go on from; 0 is the beginning. Default: what comes from now on." placeholder:"CURSOR"`
	NoFollow     bool   `name:"no-follow" help:"End at the end of the log."`
	JSON         bool   `help:"One JSON document a line (NDJSON); each carries its cursor."`
}

// Help is printed by --help.
func (*tailCmd) Help() string {
	return `Follows the log of the local hub: ids, states and actors, never texts. Ctrl-C ends it.

Examples:
  handclasp tail
  handclasp tail --as frank@acme --json
  handclasp tail --after 0 --no-follow`
}

// tailWait is how long one call waits for events, in seconds.
const tailWait = 20

// Run prints events as they are committed.
func (c *tailCmd) Run(e *env) error {
	if err := c.Where.Check(); err != nil {
		return usageError{err}
	}
	conn, err := connectHere(e.ctx, &c.Where, c.As, telemetry.NewLogger(e.stderr, "text", slog.LevelError))
	if err != nil {
		return err
	}
	defer conn.close()
	o := &operatorClient{ctx: e.ctx, http: conn.client()}
	cursor := c.After
	if cursor == "" {
		cursor = "now"
	}
	if c.After == "" && !c.NoFollow && isTerminal(e.stderr) {
		fmt.Fprintln(e.stderr, "what comes from now on; --after 0 shows what was, Ctrl-C ends")
	}
	names := map[string]string{}
	for e.ctx.Err() == nil {
		page, err := c.next(o, cursor)
		if err == nil {
			err = c.learn(o, names, page.Events)
		}
		var gone unreachableError
		switch {
		case errors.As(err, &gone) && e.ctx.Err() == nil: // the owner ended; another comes, and skips nothing
			select {
			case <-e.ctx.Done():
			case <-time.After(ownerPause):
			}
			continue
		case e.ctx.Err() != nil:
			return nil //nolint:nilerr // Ctrl-C is how it ends
		case err != nil:
			return err
		}
		for i := range page.Events {
			if err := c.print(e, &page.Events[i], names); err != nil {
				return err
			}
		}
		cursor = page.NextCursor
		if c.NoFollow && len(page.Events) == 0 {
			return nil
		}
	}
	return nil
}

// ownerPause is the pause between two looks for the next owner.
const ownerPause = 50 * time.Millisecond

func (c *tailCmd) next(o *operatorClient, cursor string) (page restapi.Events, err error) {
	wait := tailWait
	if c.NoFollow {
		wait = 0
	}
	q := url.Values{"cursor": {cursor}, "as": {c.As}, "wait": {strconv.Itoa(wait)}}
	err = o.get("/operator/events?"+q.Encode(), &page)
	var refused refusedError
	if errors.As(err, &refused) {
		err = errors.New(strings.Replace(refused.text, "--cursor:", "--after:", 1))
	}
	return page, err
}

// learn keeps the handles of the agents that the events name.
func (c *tailCmd) learn(o *operatorClient, names map[string]string, events []restapi.Event) error {
	for i := range events {
		_, actor := names[events[i].ActorID]
		_, subject := names[events[i].SubjectID]
		if c.JSON || actor && (subject || events[i].HandoffID != "") {
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
			names[ev.ActorID], names[ev.SubjectID] = named(names, ev.ActorID), named(names, ev.SubjectID)
		}
		return nil
	}
	return nil
}

// named is the handle of an agent, and every other id as it is.
func named(names map[string]string, id string) string {
	if handle := names[id]; handle != "" {
		return handle
	}
	return id
}

func (c *tailCmd) print(e *env, ev *restapi.Event, names map[string]string) error {
	if c.JSON {
		b, err := json.Marshal(ev)
		if err != nil {
			return err
		}
		return e.say("%s\n", b)
	}
	by := named(names, ev.ActorID)
	at := ev.At
	if t, err := time.Parse(time.RFC3339, ev.At); err == nil {
		at = t.Local().Format("2006-01-02 15:04:05.000")
	}
	line := fmt.Sprintf("%s  %-24s %s", at, ev.Type, by)
	switch {
	case ev.HandoffID != "":
		line += fmt.Sprintf("  %s #%d %s", ev.HandoffID, ev.Seq, ev.State)
	case ev.SubjectID != "": // an agent, a key, or for a block one agent and the other
		var on []string
		for _, id := range strings.Split(ev.SubjectID, "/") {
			on = append(on, named(names, id))
		}
		line += "  " + strings.Join(on, " / ")
	}
	return e.say("%s\n", line)
}
