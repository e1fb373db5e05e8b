package cli

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/market"
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

// Market is a node's market in its last round.
type Market struct {
	Node     string    `json:"node"`
	At       time.Time `json:"at"`
	Price    string    `json:"price"`
	Supply   cpu.Milli `json:"supply"`
	Usage    cpu.Milli `json:"usage"`
	Demand   cpu.Milli `json:"demand"`
	Asked    cpu.Milli `json:"asked,omitempty"` // beyond that, by DemandSignals
	System   cpu.Milli `json:"system"`
	Pressure *int32    `json:"pressurePercent,omitempty"`
	Bidders  int       `json:"bidders"`
	Shadows  int       `json:"shadows"`
	Warming  int       `json:"warming"`
	// FloorsExceedSupply: even the least that the node's pods may be given is more than it has.
	FloorsExceedSupply bool `json:"floorsExceedSupply,omitempty"`
}

// readRound reads an agent's answer.
func readRound(node string, data []byte) (Market, map[types.UID]*Figures, error) {
	var a allocation.RoundReport
	if err := json.Unmarshal(data, &a); err != nil {
		return Market{}, nil, fmt.Errorf("its agent answers nonsense on /debug/round: %w", err)
	}
	price := market.Price(a.Node.Price).String()
	m := Market{
		Node: node, At: a.At, Price: price, Supply: a.Node.Supply, Usage: a.Node.Usage, Demand: a.Node.Demand, Asked: a.Node.Asked, System: a.Node.System,
		Pressure: percent(a.Node.Pressure), Bidders: a.Node.Bidders, Shadows: a.Node.Shadows, Warming: a.Node.Warming,
		FloorsExceedSupply: a.Node.FloorsExceedSupply,
	}
	figures := make(map[types.UID]*Figures, len(a.Pods))
	for _, p := range a.Pods {
		figures[p.UID] = &Figures{
			Live: true, At: a.At, Usage: p.Usage, Demand: p.Demand, Throttled: *percent(&p.Throttled), Pressure: percent(p.Pressure),
			MemoryPressure: percent(p.MemoryPressure), IOPressure: percent(p.IOPressure),
			Budget: p.Budget, Price: price, Floor: p.Floor, Ceiling: p.Ceiling, BoundBy: p.BoundBy, Desired: p.Desired, Containers: p.Containers,
			FloorsExceedSupply: a.Node.FloorsExceedSupply,
		}
	}
	return m, figures, nil
}

// percent is a share in whole percent.
func percent(share *float64) *int32 {
	if share == nil {
		return nil
	}
	p := int32(math.Round(100 * max(0, min(1, *share))))
	return &p
}

// agentOn is the agent's pod on a node; nil where there is none.
func agentOn(pods []corev1.Pod, node string) *corev1.Pod {
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == node && ofWorkload(p, agentName) && p.DeletionTimestamp == nil {
			return p
		}
	}
	return nil
}
