package poolmodel_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/poolmodel"
)

func TestMain(m *testing.M) {
	_ = flag.Set("rapid.nofailfile", "true")
	_ = flag.Set("rapid.steps", "40") // calls of a program, on average
	flag.Parse()
	os.Exit(m.Run())
}

func TestRandomProgramsAnswerAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, kind)
			rapid.Check(t, func(rt *rapid.T) { program(rt, b) })
		})
	}
}

// mostCalls bounds a program.
const mostCalls = 80

// program draws a program while it runs on the hub and on the model.
func program(t *rapid.T, b *bench) {
	d := &draw{t: t}
	agents := d.agents()
	d.m = poolmodel.New(agents, workspaces(), catalog())
	p := b.begin(b.f.T, agents)
	var trace []string
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\n\n%s", strings.Join(trace, "\n"), fmt.Sprintf(format, args...))
	}
	for _, a := range agents {
		trace = append(trace, fmt.Sprintf("%+v", a))
	}
	began := b.clock.Now()
	run := func(c poolmodel.Call) {
		t.Helper()
		now := b.clock.Now()
		trace = append(trace, fmt.Sprintf("%10v %s", now.Sub(began), c))
		want := d.m.Do(c, now)
		got := p.do(c)
		if slices.Contains(want.Or, got.Code) {
			got.Code = want.Code
		}
		want.Or = nil
		if !reflect.DeepEqual(got, want) {
			fail("the hub says  %s\nthe model says %s", show(got, began), show(want, began))
		}
		trace[len(trace)-1] += " → " + brief(want)
	}
	check := func(c poolmodel.Call) {
		t.Helper()
		run(c)
		trace = trace[:len(trace)-1]
	}
	// Repeat, unlike a loop, lets a failing program be cut down to the calls that matter.
	for _, c := range d.setting() {
		run(c)
	}
	calls := 0
	t.Repeat(map[string]func(*rapid.T){"call": func(*rapid.T) {
		if calls++; calls > mostCalls {
			return
		}
		b.clock.set(d.moment(b.clock.Now()))
		if d.rarely(15) {
			trace = append(trace, "sweep")
			if _, err := b.f.Hub.Sweep(bg); err != nil {
				fail("sweep: %v", err)
			}
		}
		c := d.call()
		run(c)
		if c.Actor != poolmodel.Operator && c.Verb != poolmodel.Block {
			d.made = append(d.made, c)
		}
	}})
	for _, h := range d.m.Handoffs {
		for _, who := range d.active() {
			check(poolmodel.Call{Verb: poolmodel.Get, Actor: who, As: who, Root: h.Workspace, Handoff: h.Name})
		}
		check(poolmodel.Call{Verb: poolmodel.Inspect, Actor: poolmodel.Operator, Handoff: h.Name})
	}
	if _, err := b.f.Hub.Sweep(bg); err != nil {
		fail("sweep: %v", err)
	}
	for _, h := range d.m.Handoffs {
		if got := p.events(h.Name); !sameEvents(got, h) {
			fail("the events of %s are %v\nthe model says %v", h.Name, got, h.Events)
		}
	}
}

func sameEvents(got []handoff.EventType, h *poolmodel.Handoff) bool {
	want := slices.Clone(h.Events)
	if h.Late > 0 {
		failed := func(t handoff.EventType) bool { return t == handoff.EventDependencyFailed }
		in, out := len(got), len(want)
		got, want = slices.DeleteFunc(got, failed), slices.DeleteFunc(want, failed)
		in, out = in-len(got), out-len(want)
		if in > out || in < out && !(h.State.Terminal() && in >= out-h.Late) {
			return false
		}
	}
	return slices.Equal(got, want)
}

func brief(r poolmodel.Reply) string {
	if r.Code != "" {
		return string(r.Code)
	}
	s := "ok"
	for _, h := range r.Seen {
		s += " " + h.Name + " " + string(h.State)
		if h.Holder != "" {
			s += " " + h.Holder + fmt.Sprint("@", h.Epoch)
		}
	}
	return s
}

// show words a reply with times since the program began, so that every run of it words it the same.
func show(r poolmodel.Reply, began time.Time) string {
	if r.Code != "" {
		return string(r.Code)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s verifying=%v eligible=%d notified=%v warned=%v epoch=%d lease=%v sequence=%d replay=%v",
		r.Status, r.Verifying, r.Eligible, r.Notified, r.Warned, r.Epoch, since(r.LeaseEnds, began), r.SequenceNo, r.Replay)
	for _, s := range r.Seen {
		lease, created := since(s.LeaseEnds, began), since(s.CreatedAt, began)
		s.LeaseEnds, s.CreatedAt = time.Time{}, time.Time{}
		fmt.Fprintf(&b, "\n    created=%v lease=%v %+v", created, lease, s)
	}
	return b.String()
}

func since(t, began time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return t.Sub(began)
}
