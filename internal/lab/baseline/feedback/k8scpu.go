package feedback

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// K8sCPUConfig is the vertical autoscaler on a utilisation threshold that Autothrottle was compared
// with (NSDI'24; microsoft/autothrottle, worker-daemon.py).
type K8sCPUConfig struct {
	// Threshold is the part of its limit that a pod should use; 0.4 to 0.7 were the best ones per
	// trace. Higher saves CPU and costs latency.
	Threshold float64
	// Interval is the time between two decisions, each on the mean use since the last one.
	Interval time.Duration
	// Window is how long a recommendation counts: the highest one is the limit. Longer lowers
	// later.
	Window time.Duration
}

// K8sCPU keeps each pod's use at a part of its limit. A pod keeps its declared limit until the
// first decision.
type K8sCPU struct {
	cfg  K8sCPUConfig
	pods map[int]*k8sCPUPod
}

// k8sCPUPod is the state of one pod.
type k8sCPUPod struct {
	at, usage       time.Duration
	recommendations []float64 // cores, the latest at the end
}

// NewK8sCPU is K8s-CPU, or K8s-CPU-Fast.
func NewK8sCPU(threshold float64, fast bool) *K8sCPU {
	cfg := K8sCPUConfig{Threshold: threshold, Interval: 15 * time.Second, Window: 300 * time.Second}
	if fast {
		cfg.Interval, cfg.Window = time.Second, 20*time.Second
	}
	return &K8sCPU{cfg: cfg, pods: map[int]*k8sCPUPod{}}
}

// Decide implements sim.Policy.
func (k *K8sCPU) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	most := int(k.cfg.Window / k.cfg.Interval)
	var actions []sim.Action
	for p := range r.Managed() {
		s := k.pods[p.ID]
		if s == nil {
			k.pods[p.ID] = &k8sCPUPod{at: r.Now, usage: p.Usage}
			continue
		}
		use := (p.Usage - s.usage).Seconds() / (r.Now - s.at).Seconds()
		s.at, s.usage = r.Now, p.Usage
		s.recommendations = append(s.recommendations, use/k.cfg.Threshold)
		s.recommendations = s.recommendations[max(0, len(s.recommendations)-most):]
		if a, changes := setCgroupLimit(p, slices.Max(s.recommendations)); changes {
			actions = append(actions, a)
		}
	}
	return actions, r.Now + k.cfg.Interval
}
