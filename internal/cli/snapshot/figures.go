package snapshot

import (
	"time"

	"k8s.io/utils/ptr"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/kube"
	"github.com/mbcas/mbcas/market"
)

// Figures are what an agent measured of a pod and decided for it.
type Figures struct {
	// Live: from the node's last round. Otherwise from the last published decision, which is
	// written only when it changes.
	Live      bool      `json:"live"`
	At        time.Time `json:"at"`
	Usage     cpu.Milli `json:"usage"`
	Demand    cpu.Milli `json:"demand"`
	Throttled int32     `json:"throttledPercent"`
	Pressure  *int32    `json:"pressurePercent,omitempty"`
	// MemoryPressure and IOPressure are nil if the agent does not report them.
	MemoryPressure *int32 `json:"memoryPressurePercent,omitempty"`
	IOPressure     *int32 `json:"ioPressurePercent,omitempty"`
	Budget         int64  `json:"budget"`
	// PriorityPercent and CoordinationPercent multiply the pod's request into its budget; 0:
	// unknown.
	PriorityPercent     int32            `json:"priorityPercent,omitempty"`
	CoordinationPercent int32            `json:"coordinationPercent,omitempty"`
	Price               market.Price     `json:"price"`
	Floor               cpu.Milli        `json:"floor"`
	Ceiling             cpu.Milli        `json:"ceiling"`
	BoundBy             v1alpha1.BoundBy `json:"boundBy"`
	// RevokedUntil is until when the pod is not raised above its declared limit, as a raise was revoked.
	RevokedUntil time.Time `json:"revokedUntil,omitzero"`
	// Desired is the decided limit; 0: unknown.
	Desired            cpu.Milli            `json:"desired,omitempty"`
	Containers         map[string]cpu.Milli `json:"containers,omitempty"` // Desired, by container
	FloorsExceedSupply bool                 `json:"floorsExceedSupply,omitempty"`
}

// publishedFigures are those of an allocation's decision; nil without a decision.
func publishedFigures(pa *v1alpha1.PodAllocation) *Figures {
	if pa == nil || pa.Spec.Decision == nil {
		return nil
	}
	d := pa.Spec.Decision
	var revoked time.Time
	if d.RevokedForSeconds > 0 {
		revoked = d.ObservedAt.Add(time.Duration(d.RevokedForSeconds) * time.Second)
	}
	return &Figures{
		RevokedUntil: revoked,
		At:           d.ObservedAt.Time, Usage: d.Usage, Demand: d.Demand, Throttled: d.ThrottledPercent,
		Pressure: d.CPUPressurePercent, MemoryPressure: d.MemoryPressurePercent, IOPressure: d.IOPressurePercent,
		Budget: d.Budget, Price: d.Price, Floor: d.Floor, Ceiling: d.Ceiling, BoundBy: d.BoundBy,
		FloorsExceedSupply: d.FloorsExceedSupply, Containers: kube.ByName(pa.Spec.Containers),
		PriorityPercent: d.PriorityPercent, CoordinationPercent: ptr.Deref(d.CoordinationPercent, 0),
		Desired: ptr.Deref(pa.Spec.DesiredCPULimit, 0),
	}
}

// withMultipliers are figures of a round with what the last published decision alone says: the multipliers of its
// budget, and until when a raise is revoked.
func (f *Figures) withMultipliers(published *Figures) *Figures {
	if published == nil {
		return f
	}
	out := *f
	out.RevokedUntil = published.RevokedUntil
	out.PriorityPercent, out.CoordinationPercent = published.PriorityPercent, published.CoordinationPercent
	return &out
}

// Bottleneck is what keeps a pod from using more CPU, as its counters show. Throttling and pressure
// are kept apart: a higher limit helps against throttling only.
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
	// From SomeThrottled on, the pod is told to be throttled.
	SomeThrottled = 10
	somePressure  = 25
	// From StallDominates on, throttling and CPU pressure no longer raise the demand; from
	// StallLimits on, less.
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
	case f.Throttled >= SomeThrottled:
		return BottleneckBursts
	case f.Pressure != nil && *f.Pressure >= somePressure:
		return BottleneckContention
	}
	return BottleneckNone
}

// Stalled is the larger of a pod's memory and IO pressure; 0 if both are unknown.
func (f *Figures) Stalled() (most int32) {
	for _, p := range []*int32{f.MemoryPressure, f.IOPressure} {
		if p != nil {
			most = max(most, *p)
		}
	}
	return most
}
