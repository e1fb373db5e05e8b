package metrics

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mbcas/mbcas/cpu"
)

// maxWorkloads have series of their own, of each replica. More shows smaller workloads; fewer takes less memory of
// Prometheus: each workload is three series. Its owner asked for them, so there is room for many.
const maxWorkloads = 1000

// Workload is what pods are replicas of.
type Workload struct{ Namespace, Kind, Name string }

// otherWorkloads are the labels of the sum of the others.
var otherWorkloads = Workload{Name: "other"}

func (w Workload) compare(o Workload) int {
	return cmp.Or(cmp.Compare(w.Namespace, o.Namespace), cmp.Compare(w.Kind, o.Kind), cmp.Compare(w.Name, o.Name))
}

// workloads are sums by workload, of pods whose owner asked for a signal.
type workloads struct{ sums[Workload] }

func (w *workloads) named() (named map[Workload]Cores, other Cores) {
	return w.largest(maxWorkloads, otherWorkloads, Workload.compare)
}

var (
	wantedDesc = workloadDesc("mbcas_workload_demand_cores",
		"CPU that the pods of a workload would use without limits, up to their ceilings")
	deficitDesc = workloadDesc("mbcas_workload_deficit_cores",
		"The part of mbcas_workload_demand_cores that the pods' budgets do not buy at the prices of their nodes")
	certainDesc = workloadDesc("mbcas_workload_certain_cores",
		"CPU that the pods of a workload get at any price if they demand it: their requests")
)

func workloadDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help+", as of their last published decisions, of the pods with mbcas.io/share-signal "+
		"on the nodes of this replica. Beyond 1000 workloads, those with the lowest declared limits are summed as "+
		"\"other\".", []string{"namespace", "kind", "workload"}, nil)
}

// Describe implements prometheus.Collector.
func (*workloads) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{wantedDesc, deficitDesc, certainDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. A workload without current decisions has no series: to an autoscaler 0 would
// be a demand of nothing.
func (w *workloads) Collect(ch chan<- prometheus.Metric) {
	named, other := w.named()
	named[otherWorkloads] = other
	for key, c := range named {
		if c.Certain == 0 {
			continue
		}
		for d, v := range map[*prometheus.Desc]cpu.Milli{wantedDesc: c.Share.Demand, deficitDesc: c.Deficit, certainDesc: c.Certain} {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v.Cores(), key.Namespace, key.Kind, key.Name)
		}
	}
}
