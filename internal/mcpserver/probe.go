package mcpserver

import (
	"context"
	"encoding/json"
	"time"

	"handclasp/internal/hub"
)

// probe is the no-op tool of [Options.Probe]: all that surrounds a call, and no call. Its result
// has the size of a real one.
var probe = tool{
	set: "team", name: "noop", title: "Do nothing", desc: "Do nothing.",
	hints:  hints{readOnly: true, idempotent: true},
	params: teamTools[0].params,
	output: teamTools[0].output,
	run: func(context.Context, *Server, hub.Call, json.RawMessage) (*result, error) {
		r := newResult()
		r.token("thread_id", "01a22c7b-8b8d-7653-b7ee-f901601a118f")
		r.token("status", "pending")
		r.token("recipient", "recipient@bench")
		r.token("created_at", "2026-11-30T12:00:00.000Z")
		r.token("inbox_url", "http://127.0.0.1:7433/inbox/01a22c7b-8b8d-7653-b7ee-f901601a118f")
		return r, nil
	},
}

// parkedProbe waits as long as it is told to: what a parked call costs whatever it waits for.
var parkedProbe = tool{
	set: "team", name: "noop_park", title: "Wait", desc: "Wait.",
	hints:  hints{readOnly: true, idempotent: true},
	parks:  true,
	params: []param{integer("timeout_seconds", "", 0, 50)},
	run: func(ctx context.Context, _ *Server, _ hub.Call, args json.RawMessage) (*result, error) {
		var in struct {
			Timeout int `json:"timeout_seconds"`
		}
		if err := json.Unmarshal(args, &in); err != nil {
			return nil, err
		}
		over := time.NewTimer(seconds(in.Timeout))
		defer over.Stop()
		select {
		case <-over.C:
		case <-ctx.Done():
		}
		return newResult(), nil
	},
}
