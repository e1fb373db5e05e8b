package autoscaler

import (
	"time"

	"github.com/mbcas/mbcas/internal/lab/sim"
)

// metricsInterval is how often metrics-server reads the kubelets by its own manifest
// (--metric-resolution).
const metricsInterval = 15 * time.Second

// metricsServer is metrics-server: the mean usage of pods between its last two reads. An autoscaler
// that runs at the time of a read sees the newest values, which is the best case: on a cluster the
// two are not in step.
type metricsServer struct {
	due  time.Duration
	pods map[int]podUsage
}

// podUsage is the last read of a pod.
type podUsage struct {
	at, total    time.Duration // when, and its CPU time by then
	used, window time.Duration // CPU time in the time before; window 0: there was one read only
}

// cores is the mean use, and whether it is known.
func (u podUsage) cores() (float64, bool) {
	if u.window <= 0 {
		return 0, false
	}
	return float64(u.used) / float64(u.window), true
}

// read takes the counters where that is due.
func (m *metricsServer) read(r *sim.Snapshot) {
	if r.Now < m.due {
		return
	}
	m.due = r.Now + metricsInterval
	was := m.pods
	m.pods = make(map[int]podUsage, len(r.Pods))
	for _, p := range r.Pods {
		u := podUsage{at: r.Now, total: p.Usage}
		if before, ok := was[p.ID]; ok {
			u.used, u.window = p.Usage-before.total, r.Now-before.at
		}
		m.pods[p.ID] = u
	}
}
