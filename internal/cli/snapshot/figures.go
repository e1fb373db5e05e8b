package snapshot

import (
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
)

// Figures are what an agent saw of a pod and decided for it.
type Figures struct {
	// Live: from the node's last round. Otherwise from the last published decision, which is renewed only
	// when something changes.
	Live      bool      `json:"live"`
	At        time.Time `json:"at"`
	Usage     cpu.Milli `json:"usage"`
	Demand    cpu.Milli `json:"demand"`
	Throttled int32     `json:"throttledPercent"`
	Pressure  *int32    `json:"pressurePercent,omitempty"`
	// MemoryPressure and IOPressure are not told by every agent.
	MemoryPressure *int32 `json:"memoryPressurePercent,omitempty"`
	IOPressure     *int32 `json:"ioPressurePercent,omitempty"`
	Budget         int64  `json:"budget"`
	// PriorityPercent and FairnessPercent are what the budget is the pod's request times of; 0: not told.
	PriorityPercent int32            `json:"priorityPercent,omitempty"`
	FairnessPercent int32            `json:"coordinationPercent,omitempty"`
	Price           string           `json:"price"`
	Floor           cpu.Milli        `json:"floor"`
	Ceiling         cpu.Milli        `json:"ceiling"`
	BoundBy         v1alpha1.BoundBy `json:"boundBy"`
	// Desired is the limit that the figures led to; 0: not told.
	Desired            cpu.Milli            `json:"desired,omitempty"`
	Containers         map[string]cpu.Milli `json:"containers,omitempty"` // Desired, by container
	FloorsExceedSupply bool                 `json:"floorsExceedSupply,omitempty"`
}

// published are the figures of an allocation's decision; nil where nothing is decided.
func published(pa *v1alpha1.PodAllocation) *Figures {
	if pa == nil || pa.Spec.Decision == nil {
		return nil
	}
	d := pa.Spec.Decision
	f := &Figures{
		At: d.ObservedAt.Time, Usage: d.Usage, Demand: d.Demand, Throttled: d.ThrottledPercent, Pressure: d.CPUPressurePercent,
		MemoryPressure: d.MemoryPressurePercent, IOPressure: d.IOPressurePercent,
		Budget: d.Budget, Price: d.Price.String(), Floor: d.Floor, Ceiling: d.Ceiling, BoundBy: d.BoundBy,
		FloorsExceedSupply: d.FloorsExceedSupply, Containers: map[string]cpu.Milli{},
	}
	f.PriorityPercent = d.PriorityPercent
	if d.CoordinationPercent != nil {
		f.FairnessPercent = *d.CoordinationPercent
	}
	if pa.Spec.DesiredCPULimit != nil {
		f.Desired = *pa.Spec.DesiredCPULimit
	}
	for _, c := range pa.Spec.Containers {
		f.Containers[c.Name] = c.CPULimit
	}
	return f
}

// weighed are figures of a round with the weights of the last published decision: agents tell the budget alone.
func (f *Figures) weighed(published *Figures) *Figures {
	if published == nil {
		return f
	}
	w := *f
	w.PriorityPercent, w.FairnessPercent = published.PriorityPercent, published.FairnessPercent
	return &w
}

// A Bottleneck is what keeps a pod from using more CPU, as its counters show. Throttling and pressure are kept apart: a higher
// limit helps against the first only.
type Bottleneck int

const (
	BottleneckNone       Bottleneck = iota
	BottleneckStall                 // memory or IO
	BottleneckLimit                 // throttled most of the time
	BottleneckBursts                // throttled at times
	BottleneckContention            // other pods, or its own threads, have the CPUs
)

// Thresholds of a bottleneck, in percent.
const (
	muchThrottled = 50
	someThrottled = 10
	someWaiting   = 25
	// From StallDominates on the market takes nothing else for need; from StallLimits on less.
	StallDominates = 80
	StallLimits    = 50
)

// Bottleneck classifies the counters.
func (f *Figures) Bottleneck() Bottleneck {
	switch {
	case f.Stalled() >= StallDominates:
		return BottleneckStall
	case f.Throttled >= muchThrottled:
		return BottleneckLimit
	case f.Throttled >= someThrottled:
		return BottleneckBursts
	case f.Pressure != nil && *f.Pressure >= someWaiting:
		return BottleneckContention
	}
	return BottleneckNone
}

// Stalled is the larger of a pod's memory and IO pressure; 0 where neither is told.
func (f *Figures) Stalled() (most int32) {
	for _, p := range []*int32{f.MemoryPressure, f.IOPressure} {
		if p != nil {
			most = max(most, *p)
		}
	}
	return most
}
