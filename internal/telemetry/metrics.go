// Package telemetry is the hub's own instruments: metrics, request ids, trace context and the
// set-up of logging. It knows nothing of handoffs beyond the names of its series.
package telemetry

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the series that the hub moves itself; what is counted in the database at scrape
// time is registered by whoever can ask it. Names follow Prometheus conventions.
type Metrics struct {
	Registry *prometheus.Registry

	// Transitions counts committed changes by door and event.
	Transitions *prometheus.CounterVec
	// TransitionSeconds is how long a use case took from the call to the commit, by verb.
	TransitionSeconds *prometheus.HistogramVec
	// ParkedCalls is how many calls wait for something to happen; one that looks is not among them.
	ParkedCalls prometheus.Gauge
	// ParkedLooks counts how often calls that may wait looked, by cause: first, moved (once more,
	// because what they wait for changed), woken, unsettled (PostgreSQL does not show yet what was
	// committed) and poll. See package hub, wait.go.
	ParkedLooks *prometheus.CounterVec
	// BatchSize is how many writes one SQLite transaction committed.
	BatchSize prometheus.Histogram
	// DatabaseErrors counts faults of the database by kind.
	DatabaseErrors *prometheus.CounterVec
	// HTTPRequests counts requests by route pattern, method and status.
	HTTPRequests *prometheus.CounterVec
	// HTTPSeconds is how long a request took by route pattern; parked calls included.
	HTTPSeconds *prometheus.HistogramVec
	// ToolCalls counts MCP tool calls by tool and code ("ok" for a success).
	ToolCalls *prometheus.CounterVec
	// Deliveries counts attempts to notify somebody outside, by channel and outcome.
	Deliveries *prometheus.CounterVec

	served atomic.Uint64
}

// New makes the series on a registry of their own, with those of the Go runtime and the
// process.
func New() *Metrics {
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		Transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "handclasp_transitions_total", Help: "Committed changes of handoffs.",
		}, []string{"door", "event"}),
		TransitionSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "handclasp_transition_seconds", Help: "Time from the call of a use case to its commit.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10},
		}, []string{"verb"}),
		ParkedCalls: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "handclasp_parked_calls", Help: "Calls that wait for something to happen.",
		}),
		ParkedLooks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "handclasp_parked_looks_total", Help: "Looks of calls that may wait at what they wait for, by cause.",
		}, []string{"cause"}),
		BatchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "handclasp_commit_batch_size", Help: "Writes committed by one SQLite transaction.",
			Buckets: []float64{1, 2, 4, 8, 16, 32, 64, 128},
		}),
		DatabaseErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "handclasp_database_errors_total", Help: "Faults of the database by kind.",
		}, []string{"kind"}),
		HTTPRequests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "handclasp_http_requests_total", Help: "HTTP requests by route pattern, method and status.",
		}, []string{"route", "method", "status"}),
		HTTPSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "handclasp_http_request_seconds", Help: "Duration of HTTP requests by route pattern, parked calls included.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 25, 60},
		}, []string{"route"}),
		ToolCalls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "handclasp_tool_calls_total", Help: "MCP tool calls by tool and outcome code.",
		}, []string{"tool", "code"}),
		Deliveries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "handclasp_delivery_attempts_total", Help: "Attempts to notify somebody outside, by channel and outcome.",
		}, []string{"channel", "outcome"}),
	}
	m.Registry.MustRegister(m.Transitions, m.TransitionSeconds, m.ParkedCalls, m.ParkedLooks, m.BatchSize, m.DatabaseErrors,
		m.HTTPRequests, m.HTTPSeconds, m.ToolCalls, m.Deliveries,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Served is how many requests were answered so far.
func (m *Metrics) Served() uint64 { return m.served.Load() }

// CountServed counts one answered request.
func (m *Metrics) CountServed() { m.served.Add(1) }
