package controller

import (
	"strings"
	"testing"

	"github.com/mbcas/mbcas/internal/lifecycle"
	"github.com/prometheus/client_golang/prometheus"
)

// TestEveryPurposeIsNamed: who reads the counter's help learns every purpose.
func TestEveryPurposeIsNamed(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	help := m.resizes.WithLabelValues("", "").Desc().String()
	for _, p := range []lifecycle.Purpose{lifecycle.Allocate, lifecycle.Restore, lifecycle.Revert, lifecycle.Rollback} {
		if !strings.Contains(help, string(p)) {
			t.Errorf("purpose %s is missing in %s", p, help)
		}
	}
}
