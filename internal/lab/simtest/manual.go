package simtest

import (
	"fmt"
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// Managed is a managed pod.
func Managed(request, limit cpu.Milli) sim.PodSpec {
	return sim.PodSpec{Request: request, Limit: limit}
}

// Node is a snapshot whose counters a test advances, with a policy or step by step.
type Node struct {
	sim.Snapshot
	Next             time.Duration // call of the policy
	ThrottledPeriods []float64     // by pod
}

// NewNode is a node at time 0. All its cores are allocatable.
func NewNode(cores int, specs ...sim.PodSpec) *Node {
	n := &Node{ThrottledPeriods: make([]float64, len(specs)), Snapshot: sim.Snapshot{
		Cores: cores, Allocatable: cpu.Milli(cores) * cpu.Core, Period: 100 * time.Millisecond,
	}}
	for i, s := range specs {
		if s.Name == "" {
			s.Name = fmt.Sprint("pod-", i)
		}
		n.Pods = append(n.Pods, sim.PodSnapshot{ID: i, Spec: &s, Request: s.Request, Limit: s.Limit})
	}
	return n
}

// Advance lets time pass in which pod i uses cores[i].
func (n *Node) Advance(d time.Duration, cores ...float64) {
	n.Now += d
	for i := range n.Pods {
		used := time.Duration(cores[i] * float64(d))
		n.Pods[i].Usage += used
		n.Pods[i].Age += d
		n.Usage += used
		n.Kubepods += used
	}
}

// Apply carries out actions at once.
func (n *Node) Apply(actions []sim.Action) {
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

// Run calls the policy as often as it asks for, up to a time, and applies its actions. Pod i uses
// cores[i], and throttled[i] of its periods are throttled. It returns the limits at the end.
func (n *Node) Run(p sim.Policy, until time.Duration, cores, throttled []float64) (limits []cpu.Milli) {
	for n.Next <= until {
		periods := (n.Next - n.Now) / n.Period
		n.Advance(n.Next-n.Now, cores...)
		for i := range n.Pods {
			n.Pods[i].Periods += uint64(periods)
			n.ThrottledPeriods[i] += throttled[i] * float64(periods)
			n.Pods[i].Throttled = uint64(n.ThrottledPeriods[i])
		}
		var actions []sim.Action
		actions, n.Next = p.Decide(&n.Snapshot)
		n.Apply(actions)
	}
	for _, p := range n.Pods {
		limits = append(limits, p.Limit)
	}
	return limits
}
