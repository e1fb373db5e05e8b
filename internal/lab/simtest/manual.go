package simtest

import (
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// ManagedPod is a managed pod as a policy sees it.
func ManagedPod(id int, request, limit cpu.Milli) sim.PodSnapshot {
	return sim.PodSnapshot{ID: id, Spec: &sim.PodSpec{Request: request, Limit: limit}, Request: request, Limit: limit}
}

// Node runs a policy against counters that a test sets, and applies its actions at once.
type Node struct {
	sim.Snapshot
	Next             time.Duration // call of the policy
	ThrottledPeriods []float64     // by pod
}

// NewNode is a node at time 0. All its cores are allocatable.
func NewNode(cores int, pods ...sim.PodSnapshot) *Node {
	return &Node{Snapshot: sim.Snapshot{
		Cores: cores, Allocatable: cpu.Milli(cores) * cpu.Core, Period: 100 * time.Millisecond, Pods: pods,
	}, ThrottledPeriods: make([]float64, len(pods))}
}

// Run calls the policy as often as it asks for, up to a time. Pod i uses cores[i], and throttled[i]
// of its periods are throttled. It returns the limits at the end.
func (n *Node) Run(p sim.Policy, until time.Duration, cores, throttled []float64) []cpu.Milli {
	for n.Next <= until {
		passed := n.Next - n.Now
		n.Now = n.Next
		for i := range n.Pods {
			pod, used := &n.Pods[i], time.Duration(cores[i]*float64(passed))
			pod.Usage += used
			n.Usage += used
			pod.Periods += uint64(passed / n.Period)
			n.ThrottledPeriods[i] += throttled[i] * float64(passed/n.Period)
			pod.Throttled = uint64(n.ThrottledPeriods[i])
		}
		n.Kubepods = n.Usage
		var actions []sim.Action
		actions, n.Next = p.Decide(&n.Snapshot)
		for _, a := range actions {
			n.Pods[a.Pod].Limit = a.Limit
		}
	}
	limits := make([]cpu.Milli, len(n.Pods))
	for i := range n.Pods {
		limits[i] = n.Pods[i].Limit
	}
	return limits
}

// ManualNode is a snapshot that a test advances step by step.
type ManualNode struct {
	sim.Snapshot
}

// NewManualNode has room for all requests.
func NewManualNode(cores int, specs ...sim.PodSpec) *ManualNode {
	n := &ManualNode{Snapshot: sim.Snapshot{Cores: cores, Allocatable: 1000 * cpu.Core, Period: 100 * time.Millisecond}}
	for i, s := range specs {
		if s.Name == "" {
			s.Name = fmt.Sprint("pod-", i)
		}
		n.Pods = append(n.Pods, sim.PodSnapshot{ID: i, Spec: &s, Request: s.Request, Limit: s.Limit})
	}
	return n
}

// Advance lets time pass in which pod i uses cores[i].
func (n *ManualNode) Advance(d time.Duration, cores ...float64) {
	n.Now += d
	for i := range n.Pods {
		used := time.Duration(cores[i] * float64(d))
		n.Pods[i].Usage += used
		n.Pods[i].Age += d
		n.Usage += used
	}
}

// Apply carries out actions at once.
func (n *ManualNode) Apply(actions []sim.Action) {
	for _, a := range actions {
		for i := range n.Pods {
			if p := &n.Pods[i]; p.ID == a.Pod && a.Replicas == 0 {
				p.Limit = a.Limit
				if a.Request > 0 {
					p.Request = a.Request
				}
			}
		}
	}
}
