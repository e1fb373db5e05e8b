package sim

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Constraints are what Kubernetes objects demand of a pod's limit. Only policies that respect such
// objects read them.
type Constraints struct {
	Floor, Ceiling cpu.Milli // 0: none
	NoDecrease     bool      // the limit may not be decreased below the declared one
	HPA            bool      // an HPA watches the CPU usage of the pod
}

// ExternalChange is a limit that another writer sets.
type ExternalChange struct {
	At    time.Duration
	Limit cpu.Milli
}

// Quota is a ResourceQuota: the sum of the limits of a namespace's pods.
type Quota struct {
	Namespace string
	Limits    cpu.Milli
}

// Outage is a time in which the policy's part on the node does not run: no samples, no decisions,
// no Lease.
type Outage struct{ At, Duration time.Duration }

// A readiness probe runs every probePeriod, and probeFailures failures in a row make the pod not
// Ready; these are the defaults of Kubernetes. One success makes it Ready.
const (
	probePeriod   = 10 * time.Second
	probeFailures = 3
)

// scheduleKubernetes plans the probes and external changes of a pod that has started.
func (r *Simulation) scheduleKubernetes(id int, s *PodSpec) {
	if s.ReadyTimeout > 0 {
		r.schedule(event{at: r.node.now + probePeriod, probe: true, podID: id})
	}
	for i := range s.ExternalChanges {
		if c := &s.ExternalChanges[i]; c.At >= r.node.now {
			r.schedule(event{at: c.At, external: c, podID: id})
		}
	}
}

// probe runs one readiness probe: it fails while a request has waited for longer than the pod's
// timeout.
func (r *Simulation) probe(id int) {
	p := r.node.pods[id]
	if p.ended {
		return
	}
	r.schedule(event{at: r.node.now + probePeriod, probe: true, podID: id})
	oldest := time.Duration(0)
	p.eachWaiting(r.node.now, func(age time.Duration) { oldest = max(oldest, age) })
	if oldest <= p.spec.ReadyTimeout {
		p.failedProbes, p.unreadySince = 0, 0
		return
	}
	if p.failedProbes++; p.failedProbes == probeFailures {
		p.unreadySince = r.node.now
		r.out.Pods[id].Unready = append(r.out.Pods[id].Unready, r.node.now)
	}
}

// changeExternally sets a limit that no policy asked for.
func (r *Simulation) changeExternally(id int, limit cpu.Milli) {
	p := r.node.pods[id]
	if p.ended {
		return
	}
	p.externalChanges++
	r.setLimit(id, limit)
}

// inOutage says whether the policy's part on the node does not run now.
func (r *Simulation) inOutage() bool {
	now := r.node.now
	return slices.ContainsFunc(r.setup.Outages, func(o Outage) bool { return now >= o.At && now < o.At+o.Duration })
}
