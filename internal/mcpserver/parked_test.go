package mcpserver_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"handclasp/internal/handoff"
	"handclasp/internal/hub"
	"handclasp/internal/hubtest"
	"handclasp/internal/store"
)

func gauge(t testing.TB, g prometheus.Gauge) float64 {
	t.Helper()
	var m dto.Metric
	if err := g.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetGauge().GetValue()
}

func (w *wire) parked(n float64) {
	w.t.Helper()
	hubtest.Eventually(w.t, func() bool { return gauge(w.t, w.Metrics.ParkedCalls) == n })
}

// answer is what became of a call in the background.
type answer struct {
	reply reply
	err   error
}

// park makes a call that waits, and returns once it is parked.
func (c *caller) park(ctx context.Context, args string) <-chan answer {
	c.t.Helper()
	was := gauge(c.t, c.Metrics.ParkedCalls)
	got := make(chan answer, 1)
	go func() {
		r, err := c.try(ctx, `{"name":"check_inbox","arguments":`+args+`}`)
		got <- answer{r, err}
	}()
	c.parked(was + 1)
	return got
}

func (c *caller) get(got <-chan answer) reply {
	c.t.Helper()
	select {
	case a := <-got:
		if a.err != nil {
			c.t.Fatal(a.err)
		}
		return a.reply
	case <-time.After(10 * time.Second):
		c.t.Fatal("the parked call did not return")
		return reply{}
	}
}

func TestAParkedInboxReturnsWhatArrives(t *testing.T) {
	t.Parallel()
	for _, kind := range hubtest.Kinds() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, kind)
			anna, frank := w.pair()
			got := frank.park(t.Context(), `{"wait_seconds":50}`)
			id := anna.hand(frank)
			items := frank.get(got).fields(t, "check_inbox")["items"].([]any)
			if len(items) != 1 || items[0].(map[string]any)["thread_id"] != id {
				t.Errorf("items %v", items)
			}
			w.parked(0)
		})
	}
}

func TestAParkedCallEndsWithItsClient(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			_, frank := w.pair()
			ctx, leave := context.WithCancel(t.Context())
			who, params := frank, `{"name":"check_inbox","arguments":{"wait_seconds":50}}`
			if version == "2026-07-28" {
				who = frank.with(func(r *http.Request) { newRevision(r, "check_inbox") })
				params = `{"name":"check_inbox","arguments":{"wait_seconds":50},"_meta":` + newMeta + `}`
			}
			got := make(chan error, 1)
			go func() {
				_, err := who.try(ctx, params)
				got <- err
			}()
			w.parked(1)
			leave()
			w.parked(0)
			if err := <-got; err == nil {
				t.Error("the client that left got an answer")
			}
		})
	}
}

func TestRevokingAKeyOrDisablingItsAgentEndsItsParkedCalls(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *wire, c *caller) error{
		"revoke": func(w *wire, c *caller) error {
			return w.Hub.RevokeKey(context.Background(), hubtest.Operator(), c.key.KeyID)
		},
		"disable": func(w *wire, c *caller) error {
			return w.Hub.SetDisabled(context.Background(), hubtest.Operator(), c.handle, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			anna, frank := w.pair()
			mine, other := frank.park(t.Context(), `{"wait_seconds":50}`), anna.park(t.Context(), `{"wait_seconds":50}`)
			if err := end(w, frank); err != nil {
				t.Fatal(err)
			}
			r := frank.get(mine)
			r.mustRefuse(t, "check_inbox", handoff.CodeUnauthenticated)
			if strings.Contains(string(r.raw), frank.key.Secret) {
				t.Error("the refusal repeats the key")
			}
			w.parked(1)
			if r, err := frank.try(t.Context(), `{"name":"check_inbox"}`); r.status != http.StatusUnauthorized {
				t.Errorf("the key still works: %d %v", r.status, err)
			}
			w.Hub.Drain()
			anna.get(other).fields(t, "check_inbox")
			w.parked(0)
		})
	}
}

func TestOneAgentParksOnlySoManyCalls(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite", hubtest.WithHub(func(c *hub.Config) { c.ParkedCalls = 2 }))
	anna, frank := w.pair()
	first := frank.park(t.Context(), `{"wait_seconds":50}`)
	second := frank.park(t.Context(), `{"wait_seconds":50,"role":"recipient"}`)
	r := frank.refused("check_inbox", `{"wait_seconds":1}`, handoff.CodeRateLimited)
	if r.fault.Details["retry_after_seconds"] == nil || !r.fault.Retryable {
		t.Errorf("%s", r.structured)
	}
	frank.ok("check_inbox", `{}`)
	anna.hand(frank)
	frank.get(first).fields(t, "check_inbox")
	frank.get(second).fields(t, "check_inbox")
	w.parked(0)
}

func TestAParkedInboxWithSinceWaitsForWhatIsNewer(t *testing.T) {
	t.Parallel()
	w := newWire(t, "sqlite")
	anna, frank := w.pair()
	id := anna.hand(frank)
	since := w.Clock.Now().Format(time.RFC3339Nano)
	got := frank.park(t.Context(), `{"wait_seconds":50,"since":"`+since+`"}`)
	anna.ok("send_message", map[string]any{"thread_id": id, "body": "b"})
	if items := frank.get(got).fields(t, "check_inbox")["items"].([]any); len(items) != 1 {
		t.Errorf("items %v", items)
	}
}

const (
	traceA = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traceB = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

func TestTheTraceOfACallIsKeptOnHandoffAndEvents(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ header, meta, want string }{
		"by header":              {traceA, "", traceA},
		"by _meta":               {"", traceA, traceA},
		"both, _meta is nearer":  {traceB, traceA, traceA},
		"none":                   {"", "", ""},
		"a broken header":        {"00-xyz-00f067aa0ba902b7-01", "", ""},
		"a zero trace":           {"00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", ""},
		"a zero parent":          {"", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", ""},
		"too short":              {"", "00-4bf92f35-00f067aa0ba902b7-01", ""},
		"a broken _meta, header": {traceA, "nonsense", traceA},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			w := newWire(t, "sqlite")
			anna, frank := w.pair()
			who := anna.with(func(r *http.Request) {
				if c.header != "" {
					r.Header.Set("traceparent", c.header)
				}
			})
			meta := ""
			if c.meta != "" {
				meta = `,"_meta":{"traceparent":"` + c.meta + `"}`
			}
			r, err := who.try(t.Context(), `{"name":"handoff_to_teammate","arguments":`+rawJSON(t, in(nil))+meta+`}`)
			if err != nil {
				t.Fatal(err)
			}
			id := r.fields(t, "handoff_to_teammate")["thread_id"].(string)
			frank.ok("accept_handoff", map[string]any{"thread_id": id}) // belongs to the same trace
			h, _ := w.stored(id)
			trace := ""
			if c.want != "" {
				trace = strings.Split(c.want, "-")[1]
			}
			if h.TraceParent != c.want || h.TraceID != trace {
				t.Errorf("the handoff keeps %q and %q, want %q", h.TraceParent, h.TraceID, c.want)
			}
			list, _, err := w.Hub.Events(t.Context(), hubtest.Operator(), hub.EventsInput{Cursor: store.Beginning})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, e := range list {
				if e.HandoffID == id {
					n++
					if e.TraceID != trace {
						t.Errorf("the event %s keeps %q, want %q", e.Type, e.TraceID, trace)
					}
				}
			}
			if n != 2 {
				t.Errorf("%d events", n)
			}
		})
	}
}
