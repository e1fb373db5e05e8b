// Package histograms checks the histograms that a program serves.
package histograms

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Check checks that there are that many, each observed once, and that each has named buckets and, for a Prometheus that
// asks for them, fine ones.
func Check(t testing.TB, from prometheus.Gatherer, want int) {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, f := range families {
		for _, s := range f.GetMetric() {
			h := s.GetHistogram()
			if h == nil {
				continue
			}
			if found++; len(h.GetBucket()) < 6 || h.Schema == nil || h.GetSchema() < 3 || len(h.GetPositiveSpan()) != 1 {
				t.Errorf("%s: %d named buckets, schema %d, spans %v", f.GetName(), len(h.GetBucket()), h.GetSchema(), h.GetPositiveSpan())
			}
		}
	}
	if found != want {
		t.Errorf("%d histograms, want %d", found, want)
	}
}
