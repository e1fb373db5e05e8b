// Package buildinfo is what the programs tell Prometheus of themselves: their version, and what their process takes.
package buildinfo

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
)

// Gauge is 1 with the version of the program and of Go as labels. Where more than one version runs, agents and
// controller may differ in what they support.
func Gauge(name, help, version string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: name, Help: help, ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
