package sim

import (
	"iter"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Policy sets the limits of one node's pods. It sees what a program on the node can see.
type Policy interface {
	// Decide returns changes, and the time of its next call.
	Decide(r *Snapshot) (actions []Action, next time.Duration)
}

// StartObserver is a policy that is called when a pod starts, too, if it says so.
type StartObserver interface{ ObservesStarts() bool }

// Snapshot is the node as a policy sees it. It is valid until Decide returns.
type Snapshot struct {
	Now         time.Duration
	Seed        uint64 // of what the policy draws
	Cores       int
	Allocatable cpu.Milli
	Period      time.Duration
	Usage       time.Duration // CPU time of everything since the start
	Kubepods    time.Duration // the part of pods
	Pressure    time.Duration // PSI "some", total
	Quotas      []Quota
	Outage      bool          // the policy's part on the node does not run
	Pods        []PodSnapshot // that run, in the order of their start
}

// Managed yields the pods whose limits a policy may change.
func (r *Snapshot) Managed() iter.Seq[*PodSnapshot] {
	return func(yield func(*PodSnapshot) bool) {
		for i := range r.Pods {
			if p := &r.Pods[i]; p.Spec.Managed() && !yield(p) {
				return
			}
		}
	}
}

// PodSnapshot is one pod. Counters count from its start.
type PodSnapshot struct {
	ID            int
	Spec          *PodSpec
	Age           time.Duration
	Terminating   bool      // scaled in; it finishes its requests
	Request       cpu.Milli // in force
	Limit         cpu.Milli // in force; 0: none
	Usage         time.Duration
	Periods       uint64
	Throttled     uint64
	ThrottledTime time.Duration
	Pressure      time.Duration // PSI "some", total

	UnreadySince    time.Duration // 0: it is Ready
	ExternalChanges int           // so far
}

// Action changes one pod.
type Action struct {
	Pod   int       // ID
	Limit cpu.Milli // 0: none
	// Request changes the request, too; 0 leaves it.
	Request cpu.Milli
	// Delay is the time until the change is in force.
	Delay time.Duration
	// Replicas, where it is not 0, scales the pod's workload and changes nothing else.
	Replicas int
	// Class, where it is not nil, sets class and weight of the pod's cgroup and changes nothing else.
	Class *Class
}

// Class is class and weight of a pod's cgroup.
type Class struct {
	Idle   bool    // in the idle class, whose weight is the kernel's
	Shares float64 // cpu.shares, at least 2; 0: those of its request
}

// Delays until a change is in force.
const (
	// DirectDelay is that of a program that writes the cgroup itself.
	DirectDelay = time.Millisecond
	// ResizeDelay is that of pods/resize, from the request to the quota, as measured on a real
	// kubelet: about 60 ms.
	ResizeDelay = 60 * time.Millisecond
	// ClassDelay is that of a program that writes class and weight for an agent, which asks for it after a round.
	ClassDelay = 200 * time.Millisecond
	// StartDelay is the time until a new replica serves: image, sandbox, program.
	StartDelay = 10 * time.Second
)

// MarketPolicy is a policy with a price and demand estimates.
type MarketPolicy interface {
	Price() market.Price
	Demand(pod int) cpu.Milli
}

// Read updates the counters and copies them into r.
func (n *Node) Read(r *Snapshot) {
	n.updateCounters()
	*r = Snapshot{
		Now: n.now, Cores: n.machine.Cores, Allocatable: n.machine.Allocatable, Period: n.machine.Period,
		Pressure: n.pressure.total, Pods: r.Pods[:0],
	}
	for _, p := range n.pods {
		r.Usage += p.Usage
		if p.spec.System {
			continue
		}
		r.Kubepods += p.Usage
		if p.ended {
			continue
		}
		r.Pods = append(r.Pods, PodSnapshot{
			ID: p.id, Spec: &p.spec, Age: n.now - p.startedAt, Terminating: p.terminating, Request: p.request, Limit: p.limit,
			Usage: p.Usage, Periods: p.Periods, Throttled: p.Counters.Throttled, ThrottledTime: p.ThrottledTime,
			Pressure: p.pressure.total, UnreadySince: p.unreadySince, ExternalChanges: p.externalChanges,
		})
	}
}
