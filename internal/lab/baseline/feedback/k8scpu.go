package feedback

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// K8sCPU is the vertical autoscaler on a utilisation threshold that Autothrottle was compared with
// (NSDI'24; microsoft/autothrottle, worker-daemon.py). It keeps each pod's use at a part of its
// limit. A pod keeps its declared limit until the first decision.
type K8sCPU struct {
	// threshold is the part of its limit that a pod should use; 0.4 to 0.7 were the best ones per
	// trace. Higher saves CPU and costs latency.
	threshold float64
	// interval is the time between two decisions, each on the mean use since the last one.
	interval time.Duration
	// window is how long a recommendation counts: the highest one is the limit. Longer lowers
	// later.
	window time.Duration
	pods   map[int]*k8sCPUPod
}

// k8sCPUPod is the state of one pod.
type k8sCPUPod struct {
	at, usage       time.Duration
	recommendations []float64 // cores, the latest at the end
}

// NewK8sCPU is K8s-CPU, or K8s-CPU-Fast.
func NewK8sCPU(threshold float64, fast bool) *K8sCPU {
	k := &K8sCPU{threshold, 15 * time.Second, 300 * time.Second, map[int]*k8sCPUPod{}}
	if fast {
		k.interval, k.window = time.Second, 20*time.Second
	}
	return k
}

// Decide implements sim.Policy.
func (k *K8sCPU) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	most := int(k.window / k.interval)
	var actions []sim.Action
	for p := range r.Managed() {
		s := k.pods[p.ID]
		if s == nil {
			k.pods[p.ID] = &k8sCPUPod{at: r.Now, usage: p.Usage}
			continue
		}
		use := (p.Usage - s.usage).Seconds() / (r.Now - s.at).Seconds()
		s.at, s.usage = r.Now, p.Usage
		s.recommendations = append(s.recommendations, use/k.threshold)
		s.recommendations = s.recommendations[max(0, len(s.recommendations)-most):]
		if a, changes := setCgroupLimit(p, slices.Max(s.recommendations)); changes {
			actions = append(actions, a)
		}
	}
	return actions, r.Now + k.interval
}
