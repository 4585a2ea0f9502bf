//go:build soak

package soak

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	writers = 64 // of a round that says nothing else
	// groupSize writers share one thread, so that its numbers are fought for.
	groupSize = 8
	agents    = 4 // of a round
)

// op is one writing call. Its id is its idempotency key too, and stands in its text, so that
// its effect can be counted.
type op struct {
	id     string
	tool   string
	as     agent
	args   map[string]any
	thread *thread // nil when it makes one

	began    time.Time // the first attempt
	ended    time.Time // when it was acknowledged
	over     caller    // the way that it went
	attempts int
	failed   error // of the last attempt that failed
	// wroteNothing: every attempt that failed was told that it had no effect.
	wroteNothing bool
	acked        bool
	answer       answer
}

// answer is what the hub acknowledged.
type answer struct {
	ThreadID   string `json:"thread_id"`
	MessageID  string `json:"message_id"`
	SequenceNo int    `json:"sequence_no"`
	Status     string `json:"status"`
	ClaimEpoch int    `json:"claim_epoch"`
	Replay     bool   `json:"idempotent_replay"`
}

// thread is a handoff as its writer knows it.
type thread struct {
	id                string
	sender, recipient agent
	accepted, ended   bool
}

// caller is a way to the hub.
type caller interface {
	// call calls a tool and decodes its structured content into out. An error is a *refusal
	// where the hub answered.
	call(as agent, tool string, args map[string]any, out any) error
	close()
}

// keyed reports whether the writer gave the call a key; else it is the bridge's to do so, and the
// writer cannot repeat it.
func (o *op) keyed() bool { return o.args["idempotency_key"] != nil }

// try makes one attempt.
func (o *op) try(c caller) error {
	if o.attempts == 0 {
		o.began, o.wroteNothing = time.Now(), true
	}
	o.attempts++
	o.over = c
	var a answer
	if err := c.call(o.as, o.tool, o.args, &a); err != nil {
		o.failed, o.wroteNothing = err, o.wroteNothing && surelyNothing(err)
		return err
	}
	o.acked, o.ended, o.answer = true, time.Now(), a
	return nil
}

// writer is one connection that works through threads of its own and of its group.
type writer struct {
	name    string
	c       caller
	keyless bool // it leaves keys to the bridge
	random  *rand.Rand
	from    agent
	to      agent
	shared  *thread
	threads []*thread
	ops     []*op
}

var filler = strings.Repeat("The migration is half done; the open part is described below. ", 4)

func (w *writer) newOp(tool string, as agent, on *thread, args map[string]any) *op {
	o := &op{id: fmt.Sprintf("%s-%d", w.name, len(w.ops)), tool: tool, as: as, thread: on, args: args}
	if !w.keyless {
		o.args["idempotency_key"] = o.id
	}
	if on != nil {
		o.args["thread_id"] = on.id
	}
	for _, text := range []string{"summary", "body", "result_summary"} {
		if o.args[text] != nil {
			o.args[text] = o.id + " " + filler
		}
	}
	w.ops = append(w.ops, o)
	return o
}

// next chooses what to do: mostly new handoffs, the rest moves those on that there are.
func (w *writer) next() *op {
	dice := w.random.IntN(100)
	if dice < 15 {
		return w.newOp("send_message", w.either(w.shared), w.shared, map[string]any{"body": ""})
	}
	if dice < 55 && len(w.threads) > 0 {
		t := w.threads[w.random.IntN(len(w.threads))]
		switch step := w.random.IntN(10); {
		case step < 4:
			return w.newOp("send_message", w.either(t), t, map[string]any{"body": ""})
		case !t.accepted:
			return w.newOp("accept_handoff", t.recipient, t, map[string]any{})
		default:
			return w.newOp("complete_handoff", t.recipient, t, map[string]any{"result_summary": ""})
		}
	}
	return w.create()
}

func (w *writer) create() *op {
	return w.newOp("handoff_to_teammate", w.from, nil, map[string]any{"to": w.to.Handle, "intent": "inform", "summary": ""})
}

func (w *writer) either(t *thread) agent {
	if w.random.IntN(2) == 0 {
		return t.sender
	}
	return t.recipient
}

// took follows up on what was acknowledged.
func (w *writer) took(o *op) {
	switch o.tool {
	case "handoff_to_teammate":
		o.thread = &thread{id: o.answer.ThreadID, sender: w.from, recipient: w.to}
		w.threads = append(w.threads, o.thread)
	case "accept_handoff":
		o.thread.accepted = true
	case "complete_handoff":
		o.thread.ended = true
		w.leave(o.thread)
	}
}

// gaveUp goes on after a call whose outcome is not known.
func (w *writer) gaveUp(o *op) {
	if o.tool == "accept_handoff" || o.tool == "complete_handoff" {
		w.leave(o.thread)
	}
}

func (w *writer) leave(t *thread) {
	w.threads = slices.DeleteFunc(w.threads, func(other *thread) bool { return other == t })
}

// team is the writers of one round.
type team struct {
	agents  []agent
	writers []*writer
	setup   *writer
	acked   atomic.Int64
	ended   atomic.Bool
	// onAck is told of every acknowledgement, by the writer that received it.
	onAck func(n int64)
}

// newTeam opens the shared threads of a round; they are acknowledged handoffs like any other.
// dial gives each of the writers its way to the hub.
func newTeam(round int, seed uint64, members []agent, size int, dial func(i int) caller) (*team, error) {
	tm := &team{agents: members, onAck: func(int64) {}}
	tm.setup = &writer{name: fmt.Sprintf("soak-%d-setup", round), c: dial(0), from: members[0], to: members[1]}
	for i := range size {
		w := &writer{
			name: fmt.Sprintf("soak-%d-%d", round, i), c: dial(i), from: members[i%agents], to: members[(i+1)%agents],
			random: rand.New(rand.NewPCG(seed, uint64(round)<<32|uint64(i))),
		}
		if i%groupSize == 0 {
			o := tm.setup.create()
			if err := o.try(tm.setup.c); err != nil {
				return nil, err
			}
			tm.setup.took(o)
			tm.acked.Add(1)
		}
		w.shared = tm.setup.threads[len(tm.setup.threads)-1]
		tm.writers = append(tm.writers, w)
	}
	return tm, nil
}

// after is what a writer does after a call that failed.
type after int

const (
	stop   after = iota
	repeat       // the same call
	giveUp       // the call, and go on with another
)

// run lets all write until the team is told to end. failed decides about a call that failed.
func (tm *team) run(failed func(*op, error) after) (wait func()) {
	var wg sync.WaitGroup
	for _, w := range tm.writers {
		wg.Go(func() {
			for !tm.ended.Load() {
				o := w.next()
				then := repeat
				for then == repeat && !o.acked {
					if err := o.try(w.c); err != nil {
						then = failed(o, err)
					}
				}
				switch {
				case o.acked:
					w.took(o)
					tm.onAck(tm.acked.Add(1))
				case then == giveUp:
					w.gaveUp(o)
				default:
					return
				}
			}
		})
	}
	return wg.Wait
}

func (tm *team) close() {
	tm.setup.c.close()
	for _, w := range tm.writers {
		w.c.close()
	}
}

// ops are all calls of the round.
func (tm *team) ops() []*op {
	list := append([]*op(nil), tm.setup.ops...)
	for _, w := range tm.writers {
		list = append(list, w.ops...)
	}
	return list
}
