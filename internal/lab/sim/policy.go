package sim

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/market"
)

// Policy sets the limits of one node's pods. It is told what a program on the node can know, and no more.
type Policy interface {
	// Turn looks at the node, returns what is to be changed, and says when it wants its next turn.
	Decide(r *Snapshot) (actions []Action, next time.Duration)
}

// Reading is what a policy may know. It and the pods in it hold only until the turn ends.
type Snapshot struct {
	Now         time.Duration
	Cores       int
	Allocatable cpu.Milli
	Period      time.Duration
	Usage       time.Duration // CPU time of everything since the start
	Kubepods    time.Duration // the part of it used by pods
	Pressure    time.Duration // time in which some thread waited
	Pods        []PodSnapshot // that run, in the order in which they came
}

// PodReading is what is known of one pod. Counters count from its start.
type PodSnapshot struct {
	ID            int
	Spec          *PodSpec
	Age           time.Duration
	Terminating   bool      // it has been scaled in, and finishes what it has
	Request       cpu.Milli // in force
	Limit         cpu.Milli // in force; 0: none
	Usage         time.Duration
	Periods       uint64
	Throttled     uint64
	ThrottledTime time.Duration
	Pressure      time.Duration // time in which some of its threads waited
}

// Action changes one pod.
type Action struct {
	Pod   int       // ID
	Limit cpu.Milli // 0: none
	// Request changes the request, too; 0 leaves it.
	Request cpu.Milli
	// After is how long it takes until the kernel knows.
	Delay time.Duration
	// Scale, where it is not 0, asks for so many replicas of the pod's workload, and changes nothing else.
	Replicas int
}

// How long a change takes until the kernel knows it.
const (
	// DirectDelay is that of a program which writes the cgroup itself.
	DirectDelay = time.Millisecond
	// ResizeDelay is that of pods/resize, from the request to the quota, as measured on a real kubelet: about 60 ms.
	ResizeDelay = 60 * time.Millisecond
	// StartDelay is how long a new replica takes until it serves: image, sandbox, program.
	StartDelay = 10 * time.Second
)

// Priced is a policy that can say what it thinks.
type MarketPolicy interface {
	Price() market.Price
	Demand(pod int) cpu.Milli
}

// Read brings the counters up to date and copies them into r.
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
			Pressure: p.pressure.total,
		})
	}
}
