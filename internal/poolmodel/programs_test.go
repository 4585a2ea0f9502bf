package poolmodel_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"handclasp/internal/handoff"
	"handclasp/internal/hubtest"
	"handclasp/internal/poolmodel"
)

const (
	// round is how many programs share a database.
	round = 25
	// workers is how many databases of a kind are at work at once.
	workers = 4
	// mostCalls bounds a program; averageCalls is what most come to.
	mostCalls, averageCalls = 80, 40
)

// programs is how many run on a kind of database. HANDCLASP_PROGRAMS says so for SQLite, and a tenth
// of it runs on PostgreSQL.
func programs(t *testing.T, kind string) int {
	n, set := 200, os.Getenv("HANDCLASP_PROGRAMS")
	if set != "" {
		var err error
		if n, err = strconv.Atoi(set); err != nil || n < 1 {
			t.Fatalf("HANDCLASP_PROGRAMS: %q came, a number is accepted", set)
		}
	}
	if kind == "postgres" {
		return max(n/10, 20)
	}
	return n
}

func TestMain(m *testing.M) {
	settings := map[string]string{"rapid.checks": strconv.Itoa(round), "rapid.steps": strconv.Itoa(averageCalls), "rapid.nofailfile": "true", "rapid.shrinktime": "10s"}
	for name, value := range settings {
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	os.Exit(m.Run())
}

func TestEveryReplyOfRandomProgramsIsAsTheDocumentsSay(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			rounds := (programs(t, kind) + round - 1) / round
			said := &tally{}
			t.Cleanup(func() { said.report(t, rounds*round) })
			for worker := range min(workers, rounds) {
				t.Run(strconv.Itoa(worker), func(t *testing.T) {
					t.Parallel()
					for n := worker; n < rounds; n += workers {
						t.Run(strconv.Itoa(n), func(t *testing.T) {
							b := newBench(t, kind)
							rapid.Check(t, func(rt *rapid.T) { run(rt, b, said) })
						})
					}
				})
			}
		})
	}
}

// program is one that runs on the hub and on the model at once.
type program struct {
	t      *rapid.T
	hub    *driver
	model  *poolmodel.Model
	said   *tally
	began  time.Time
	traced []string
}

// run draws a program while it runs: what is drawn next depends on what there is.
func run(t *rapid.T, b *bench, said *tally) {
	d := &draw{t: t}
	agents := d.agents()
	d.m = poolmodel.New(agents, workspaces(), catalog())
	p := &program{t: t, hub: b.begin(b.f.T, agents), model: d.m, said: said, began: b.clock.Now()}
	for _, a := range agents {
		p.trace("%+v", a)
	}
	for _, c := range d.setting() {
		p.call(c)
	}
	calls := 0
	// Repeat, unlike a loop, lets a failing program be cut down to the calls that matter.
	t.Repeat(map[string]func(*rapid.T){"call": func(*rapid.T) {
		if calls++; calls > mostCalls {
			return
		}
		b.clock.set(d.moment(b.clock.Now()))
		if d.rarely(15) {
			p.sweep()
		}
		c := d.call()
		d.note(c, p.call(c))
	}})
	p.end(d.active())
}

func (p *program) trace(format string, args ...any) {
	p.traced = append(p.traced, fmt.Sprintf(format, args...))
}

func (p *program) fail(format string, args ...any) {
	p.t.Helper()
	p.t.Fatalf("%s\n\n%s", strings.Join(p.traced, "\n"), fmt.Sprintf(format, args...))
}

// sweep lets the hub write down what the clock did. It must make no difference.
func (p *program) sweep() {
	p.trace("sweep")
	if _, err := p.hub.f.Hub.Sweep(bg); err != nil {
		p.fail("sweep: %v", err)
	}
}

// call makes one on both and compares.
func (p *program) call(c poolmodel.Call) poolmodel.Reply {
	p.t.Helper()
	now := p.hub.clock.Now()
	p.trace("%10v %s", now.Sub(p.began), c)
	want := p.model.Do(c, now)
	got := p.hub.do(c)
	if slices.Contains(want.Or, got.Code) {
		got.Code = want.Code
	}
	want.Or = nil
	if !reflect.DeepEqual(got, want) {
		p.fail("the hub says  %s\nthe model says %s", show(got, p.began), show(want, p.began))
	}
	p.said.count(c, want)
	p.traced[len(p.traced)-1] += " → " + brief(want)
	return want
}

// end compares what everybody sees of every handoff in the end, and its events.
func (p *program) end(readers []string) {
	for _, h := range p.model.Handoffs {
		calls := []poolmodel.Call{{Verb: poolmodel.Inspect, Actor: poolmodel.Operator, Handoff: h.Name}}
		for _, who := range readers {
			calls = append(calls, poolmodel.Call{Verb: poolmodel.Get, Actor: who, As: who, Root: h.Workspace, Handoff: h.Name})
		}
		for _, c := range calls {
			p.call(c)
			p.traced = p.traced[:len(p.traced)-1]
		}
	}
	for _, statuses := range [][]string{nil, {"pending"}, {"accepted"}, {"expired"}} {
		want := p.model.Listing(statuses)
		if got := p.hub.listing(p.began, statuses); !slices.Equal(got, want) {
			p.fail("the operator lists %q as %v\nthe model says %v", statuses, got, want)
		}
	}
	p.sweep()
	for _, h := range p.model.Handoffs {
		if got := p.hub.events(h.Name); !sameEvents(got, h) {
			p.fail("the events of %s are %v\nthe model says %v", h.Name, got, h.Events)
		}
	}
}

// sameEvents compares a log with that of the model. Only the news that a dependency expired may stand
// elsewhere, see [poolmodel.Handoff.Late].
func sameEvents(got []poolmodel.Event, h *poolmodel.Handoff) bool {
	want := slices.Clone(h.Events)
	if h.Late > 0 {
		failed := func(e poolmodel.Event) bool { return e.Type == handoff.EventDependencyFailed }
		told, due := len(got), len(want)
		got, want = slices.DeleteFunc(got, failed), slices.DeleteFunc(want, failed)
		told, due = told-len(got), due-len(want)
		if told > due || told < due && (!h.State.Terminal() || told < due-h.Late) {
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
		return string(r.Code) + " " + r.HeldBy
	}
	lease := since(r.LeaseEnds, began)
	seen := r.Seen
	r.LeaseEnds, r.Seen = time.Time{}, nil
	b := fmt.Sprintf("lease=%v %+v", lease, r)
	for _, s := range seen {
		lease, created := since(s.LeaseEnds, began), since(s.CreatedAt, began)
		s.LeaseEnds, s.CreatedAt = time.Time{}, time.Time{}
		b += fmt.Sprintf("\n    created=%v lease=%v %+v", created, lease, s)
	}
	return strings.ReplaceAll(b, time.Time{}.String(), "-")
}

func since(t, began time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return t.Sub(began)
}
