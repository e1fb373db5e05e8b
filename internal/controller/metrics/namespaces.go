package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mbcas/mbcas/cpu"
)

const (
	// maxNamespaces have series of their own, of each replica. More shows smaller namespaces; fewer takes less memory
	// of Prometheus: each namespace is four series.
	maxNamespaces = 200
	// otherNamespaces is the label of the sum of the others. A namespace of that name counts among them.
	otherNamespaces = "other"
)

// namespaces are sums by namespace.
type namespaces struct{ sums[string] }

func (n *namespaces) named() (named map[string]Cores, other Cores) {
	return n.largest(maxNamespaces, otherNamespaces, strings.Compare)
}

var (
	declaredDesc = namespaceDesc("mbcas_namespace_declared_cores", "Sum of the declared CPU limits of managed pods")
	limitDesc    = namespaceDesc("mbcas_namespace_limit_cores", "Sum of the CPU limits of managed pods as they are now")
	demandDesc   = namespaceDesc("mbcas_namespace_demand_cores",
		"CPU that managed pods would use without limits, as of their last published decisions")
	beyondDesc = namespaceDesc("mbcas_namespace_beyond_cores",
		"CPU that managed pods used above their declared limits, as of their last published decisions")
)

func namespaceDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+", of the 200 namespaces with the highest declared limits. The others are "+
		"summed as \"other\", and so is a namespace of that name.", []string{"namespace"}, nil)
}

// Describe implements prometheus.Collector.
func (*namespaces) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{declaredDesc, limitDesc, demandDesc, beyondDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (n *namespaces) Collect(ch chan<- prometheus.Metric) {
	named, other := n.named()
	named[otherNamespaces] = other
	for name, c := range named {
		for d, v := range map[*prometheus.Desc]cpu.Milli{
			declaredDesc: c.Declared, limitDesc: c.Limit, demandDesc: c.Demand, beyondDesc: c.Beyond,
		} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v.Cores(), name)
		}
	}
}
