package snapshot

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/market"
)

// Market is a node's market in its last round.
type Market struct {
	Node   string       `json:"node"`
	At     time.Time    `json:"at"`
	Price  market.Price `json:"price"`
	Supply cpu.Milli    `json:"supply"`
	Usage  cpu.Milli    `json:"usage"`
	Demand cpu.Milli    `json:"demand"`
	// SignalDemand is what DemandSignals add to the demand.
	SignalDemand cpu.Milli `json:"signalDemand,omitempty"`
	System       cpu.Milli `json:"system"`
	Pressure     *int32    `json:"pressurePercent,omitempty"`
	// Managed and Unmanaged count pods with a share; Warming counts those without enough samples
	// for a decision.
	Managed   int `json:"managed"`
	Unmanaged int `json:"unmanaged"`
	Warming   int `json:"warming"`
	// FloorsExceedSupply: the floors of the node's pods add up to more than its supply.
	FloorsExceedSupply bool `json:"floorsExceedSupply,omitempty"`
	// Bursts counts managed pods with a cpu.max.burst, and BPFScheduler names a sched_ext scheduler that is loaded.
	Bursts       int    `json:"bursts,omitempty"`
	BPFScheduler string `json:"bpfScheduler,omitempty"`
}

// ParseRound reads what the agent of a node serves on /debug/round.
func ParseRound(node string, data []byte) (Market, map[types.UID]*Figures, error) {
	var a allocation.RoundReport
	if err := json.Unmarshal(data, &a); err != nil {
		return Market{}, nil, fmt.Errorf("its agent's /debug/round is malformed: %w", err)
	}
	price := market.Price(a.Node.Price)
	m := Market{
		Node: node, At: a.At, Price: price, Supply: a.Node.Supply, Usage: a.Node.Usage, Demand: a.Node.Demand,
		SignalDemand: a.Node.SignalDemand, System: a.Node.System, Pressure: percent(a.Node.Pressure),
		Managed: a.Node.Managed, Unmanaged: a.Node.Unmanaged, Warming: a.Node.WarmingUp,
		FloorsExceedSupply: a.Node.FloorsExceedSupply, Bursts: a.Node.Bursts, BPFScheduler: a.Node.BPFScheduler,
	}
	figures := make(map[types.UID]*Figures, len(a.Pods))
	for _, p := range a.Pods {
		figures[p.UID] = &Figures{
			Live: true, At: a.At, Usage: p.Usage, Demand: p.Demand, Throttled: *percent(&p.Throttled),
			Pressure: percent(p.Pressure), MemoryPressure: percent(p.MemoryPressure), IOPressure: percent(p.IOPressure),
			Budget: p.Budget, Price: price, Floor: p.Floor, Ceiling: p.Ceiling, BoundBy: p.BoundBy,
			Desired: p.Desired, Containers: p.Containers,
			FloorsExceedSupply: a.Node.FloorsExceedSupply, Class: p.Class, ClassReason: p.ClassReason,
		}
	}
	return m, figures, nil
}

// percent is a share in whole percent.
func percent(share *float64) *int32 {
	if share == nil {
		return nil
	}
	return new(int32(math.Round(100 * max(0, min(1, *share)))))
}
