package metrics

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/internal/lifecycle"
)

// State is the phase of a PodAllocation and its reason.
type State struct{ Phase, Reason string }

// Pod is what metrics count of a pod with a PodAllocation.
type Pod struct {
	State
	Namespace string
	// Workload is what the pod is a replica of, where that has series; zero: it has none.
	Workload Workload
	Cores
}

// Cores are sums of CPU over pods.
type Cores struct {
	// Declared are the declared limits, Limit those of the pods now.
	Declared, Limit cpu.Milli
	// Demand is that of the last published decisions, Beyond the usage above declared limits as these had it.
	Demand, Beyond cpu.Milli
	// Share is that of pods with a Workload.
	allocation.Share
}

// add adds as many times, which may be negative.
func (c *Cores) add(o Cores, times cpu.Milli) {
	c.Declared += times * o.Declared
	c.Limit += times * o.Limit
	c.Demand += times * o.Demand
	c.Beyond += times * o.Beyond
	c.Share.Demand += times * o.Share.Demand
	c.Deficit += times * o.Deficit
	c.Certain += times * o.Certain
}

// Count is what metrics count of a pod with this PodAllocation and status. An autoscaler must act neither on a decision
// that its agent has not stood by for as long as freeze, nor on one about a pod that decisions do not change.
func Count(
	pod *corev1.Pod, pa *v1alpha1.PodAllocation, facts *lifecycle.Pod, status lifecycle.Status, freeze time.Duration,
) Pod {
	p := Pod{Namespace: pod.Namespace, State: State{Phase: string(status.Phase), Reason: string(status.Reason)}}
	p.Declared, p.Limit = status.Declared.Total(), facts.Current().Total()
	d := pa.Spec.Decision
	if d == nil {
		return p
	}
	p.Demand, p.Beyond = d.Demand, max(0, d.Usage-p.Declared)
	decides := facts.Excluded.Reason == "" && !facts.Ended &&
		(facts.Mode == lifecycle.ModeEnforce || facts.Mode == lifecycle.ModeRecommend)
	if decides && kube.ShareSignal(pod) && facts.Decision != nil && facts.Decision.Age < freeze {
		p.Share = allocation.ShareOf(pod, pa)
		kind, name, _ := strings.Cut(kube.Workload(pod), "/")
		p.Workload = Workload{Namespace: pod.Namespace, Kind: kind, Name: name}
	}
	return p
}
