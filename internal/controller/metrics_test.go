package controller

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestEveryPurposeIsNamed: who reads the counter's help learns every purpose.
func TestEveryPurposeIsNamed(t *testing.T) {
	m, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	help := m.resizes.WithLabelValues("", "").Desc().String()
	for _, p := range []Purpose{Allocate, Restore, Revert, Rollback} {
		if !strings.Contains(help, string(p)) {
			t.Errorf("purpose %s is missing in %s", p, help)
		}
	}
}
