package agent

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mbcas/mbcas/internal/agent/health"
	"github.com/mbcas/mbcas/internal/agent/nodemetrics"
	"github.com/mbcas/mbcas/internal/round"
)

// maxSeries bounds the series of a node: 5,000 nodes are then 400,000 series, which one Prometheus carries.
const maxSeries = 80

// series are the lines of a scrape that are no comments.
func series(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// fullMetrics are those of an agent whose node shows all that a node can show.
func fullMetrics() *metrics {
	m := newMetrics()
	m.registry.MustRegister(leaseGauge(func(time.Time) bool { return true }), buildGauge("v1.2.3"))
	var n round.NodeDecision
	n.UsageKnown, n.SystemKnown, n.Pressure.Known = true, true, true
	m.node.Observe(nodemetrics.Round{At: time.Now(), Output: round.Output{Node: n}})
	return m
}

// TestMetricsPassLint: names, units and types follow the rules of Prometheus.
func TestMetricsPassLint(t *testing.T) {
	if problems, err := testutil.GatherAndLint(fullMetrics().registry); len(problems) > 0 || err != nil {
		t.Errorf("%+v, %v", problems, err)
	}
}

// TestSeriesOfANode: a node has at most maxSeries series, whatever its pods are.
func TestSeriesOfANode(t *testing.T) {
	h, w := routes(health.New(time.Second, time.Now()), fullMetrics()), httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	if n := len(series(w.Body.String())); n > maxSeries || n < 60 {
		t.Errorf("%d series, want 60 to %d", n, maxSeries)
	}
}
