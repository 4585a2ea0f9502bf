package httpserver

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// registry adds to the hub's own series what is counted in the database when asked.
func (s *server) registry() prometheus.Gatherer {
	for _, kind := range []string{"busy", "conflict", "corrupt", "full", "gone", "other", "read_only", "unique"} {
		// A series that is there from the start can be alerted on before the first fault.
		s.cfg.Metrics.DatabaseErrors.WithLabelValues(kind)
	}
	counted := prometheus.NewRegistry()
	counted.MustRegister(&databaseCollector{s})
	return prometheus.Gatherers{s.cfg.Metrics.Registry, counted}
}

type databaseCollector struct{ s *server }

var (
	handoffsDesc = prometheus.NewDesc("handclasp_handoffs", "Handoffs by door and state as written down.", []string{"door", "state"}, nil)
	oldestDesc   = prometheus.NewDesc("handclasp_oldest_unfetched_age_seconds", "Age of the oldest open handoff that its recipient has not been handed yet; 0 when there is none.", nil, nil)
	lagDesc      = prometheus.NewDesc("handclasp_event_visibility_lag_seconds", "Age of the oldest event that readers cannot see yet, because an older transaction is still open.", nil, nil)
	sendingDesc  = prometheus.NewDesc("handclasp_deliveries_pending", "Notifications that are to go out.", nil, nil)
	faultyDesc   = prometheus.NewDesc("handclasp_deliveries_at_fault", "Notifications that were given up, or of which nobody knows whether they arrived.", nil, nil)
	untoldDesc   = prometheus.NewDesc("handclasp_handoffs_untold", "Open handoffs of the desk whose person was not told, or nobody knows.", nil, nil)
	hiddenDesc   = prometheus.NewDesc("handclasp_events_unsettled", "Events that readers cannot see yet.", nil, nil)
)

// Describe names the series.
func (c *databaseCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{handoffsDesc, oldestDesc, lagDesc, hiddenDesc, sendingDesc, faultyDesc, untoldDesc} {
		ch <- d
	}
}

// Collect counts. While the database is away the series are absent, and
// handclasp_database_errors_total tells why.
func (c *databaseCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	st, err := c.s.cfg.Hub.Stats(ctx)
	if err != nil {
		return
	}
	for _, n := range st.States {
		ch <- prometheus.MustNewConstMetric(handoffsDesc, prometheus.GaugeValue, float64(n.Count), string(n.Door), string(n.State))
	}
	age := func(t time.Time) float64 {
		if t.IsZero() {
			return 0
		}
		return max(0, st.Now.Sub(t).Seconds())
	}
	ch <- prometheus.MustNewConstMetric(sendingDesc, prometheus.GaugeValue, float64(st.PendingDeliveries))
	ch <- prometheus.MustNewConstMetric(faultyDesc, prometheus.GaugeValue, float64(st.FaultyDeliveries))
	ch <- prometheus.MustNewConstMetric(untoldDesc, prometheus.GaugeValue, float64(st.Untold))
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age(st.OldestUnfetched))
	ch <- prometheus.MustNewConstMetric(lagDesc, prometheus.GaugeValue, age(st.OldestUnsettled))
	ch <- prometheus.MustNewConstMetric(hiddenDesc, prometheus.GaugeValue, float64(st.Unsettled))
}
