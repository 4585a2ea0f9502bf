//go:build soak

package soak

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	writers = 64
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

// try makes one attempt.
func (o *op) try(c *client) error {
	if o.attempts == 0 {
		o.began, o.wroteNothing = time.Now(), true
	}
	o.attempts++
	var a answer
	if err := c.call(o.as, o.tool, o.args, &a); err != nil {
		o.failed, o.wroteNothing = err, o.wroteNothing && surelyNothing(err)
		return err
	}
	o.acked, o.answer = true, a
	return nil
}

// writer is one connection that works through threads of its own and of its group.
type writer struct {
	name    string
	c       *client
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
	o.args["idempotency_key"] = o.id
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
		for i, t := range w.threads {
			if t == o.thread {
				w.threads = append(w.threads[:i], w.threads[i+1:]...)
				break
			}
		}
	}
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
	wrong chan error
}

// newTeam opens the shared threads of a round; they are acknowledged handoffs like any other.
func newTeam(hub string, round int, seed uint64, members []agent) (*team, error) {
	tm := &team{agents: members, wrong: make(chan error, writers), onAck: func(int64) {}}
	tm.setup = &writer{name: fmt.Sprintf("soak-%d-setup", round), c: newClient(hub), from: members[0], to: members[1]}
	for i := range writers {
		w := &writer{
			name: fmt.Sprintf("soak-%d-%d", round, i), c: newClient(hub), from: members[i%agents], to: members[(i+1)%agents],
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

// run lets all write until the team is told to end. failed decides about a call that failed:
// whether to repeat it.
func (tm *team) run(failed func(*op, error) (again bool)) (wait func()) {
	var wg sync.WaitGroup
	for _, w := range tm.writers {
		wg.Go(func() {
			for !tm.ended.Load() {
				o := w.next()
				for {
					err := o.try(w.c)
					if err == nil {
						break
					}
					if !failed(o, err) {
						return
					}
				}
				w.took(o)
				tm.onAck(tm.acked.Add(1))
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
