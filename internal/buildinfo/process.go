package buildinfo

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// useless are series of a process that are left out, as every node has them. A program in Go maps more memory than it
// uses, without a bound; the network is that of the pod, and on the host's network that of the node.
var useless = []string{
	"process_virtual_memory_bytes", "process_virtual_memory_max_bytes",
	"process_network_receive_bytes_total", "process_network_transmit_bytes_total",
}

// Process are the metrics of this process: CPU time, resident memory, open files and the time of its start.
func Process() prometheus.Collector {
	return process{collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})}
}

type process struct{ all prometheus.Collector }

// Describe implements prometheus.Collector.
func (p process) Describe(ch chan<- *prometheus.Desc) {
	descs := make(chan *prometheus.Desc)
	go func() {
		p.all.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		if !isUseless(d) {
			ch <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (p process) Collect(ch chan<- prometheus.Metric) {
	metrics := make(chan prometheus.Metric)
	go func() {
		p.all.Collect(metrics)
		close(metrics)
	}()
	for m := range metrics {
		if !isUseless(m.Desc()) {
			ch <- m
		}
	}
}

func isUseless(d *prometheus.Desc) bool {
	return slices.ContainsFunc(useless, func(name string) bool { return strings.Contains(d.String(), `"`+name+`"`) })
}
