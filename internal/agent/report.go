package agent

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
)

// Report is the last round as /debug/round tells it.
type Report struct {
	At   time.Time  `json:"at"`
	Took string     `json:"took"` // to read the counters and play the round
	Node NodeReport `json:"node"`
	// Pods are those with a decision, by namespace and name.
	Pods []PodReport `json:"pods"`
}

// NodeReport is the market of the node.
type NodeReport struct {
	Price   float64   `json:"price"`   // at which limits are set; 0: CPU is not scarce
	Cleared float64   `json:"cleared"` // before bands and trim
	Supply  cpu.Milli `json:"supply"`
	Demand  cpu.Milli `json:"demand"`
	Asked   cpu.Milli `json:"asked"` // beyond the demand, by DemandSignals, to be kept free
	Usage   cpu.Milli `json:"usage"`
	System  cpu.Milli `json:"system"` // the last known
	// SystemKnown is false while what the system uses cannot be read.
	SystemKnown bool `json:"systemKnown"`
	// Pressure is the share of time in which some task waited for a CPU; absent where the kernel does not tell.
	Pressure           *float64 `json:"pressure,omitempty"`
	FloorsExceedSupply bool     `json:"floorsExceedSupply"`
	// Pods by their part in the round. A pod may be counted in both of the first two:
	// its containers without a limit take part as a shadow.
	Bidders int `json:"bidders"`
	Shadows int `json:"shadows"`
	Warming int `json:"warming"`
	Stale   int `json:"stale"`
	// Unenforced have a limit and no quota: nothing is published for them.
	Unenforced int `json:"unenforced"`
}

// PodReport is one pod's part of the round.
type PodReport struct {
	Namespace  string               `json:"namespace"`
	Name       string               `json:"name"`
	UID        string               `json:"uid"`
	Limit      cpu.Milli            `json:"limit"`   // in the pod's spec: what is in force or on its way
	Desired    cpu.Milli            `json:"desired"` // as decided
	Containers map[string]cpu.Milli `json:"containers"`
	Usage      cpu.Milli            `json:"usage"`
	Demand     cpu.Milli            `json:"demand"`
	Throttled  float64              `json:"throttled"` // share of CFS periods
	Pressure   *float64             `json:"pressure,omitempty"`
	// MemoryPressure and IOPressure are the shares of time in which nothing of it could go on for want of memory or IO; absent
	// where they are not read.
	MemoryPressure *float64  `json:"memoryPressure,omitempty"`
	IOPressure     *float64  `json:"ioPressure,omitempty"`
	Budget         int64     `json:"budget"`
	Floor          cpu.Milli `json:"floor"`
	Ceiling        cpu.Milli `json:"ceiling"`
	BoundBy        string    `json:"boundBy"`
}

func report(r *played) Report {
	n := r.Out.Node
	out := Report{
		At: r.At.Round(0), Took: r.Took.String(),
		Node: NodeReport{
			Price: float64(n.Price), Cleared: float64(n.Cleared), Supply: n.Supply, Demand: n.Demand, Asked: n.SignalDemand, Usage: n.Usage, System: n.System, SystemKnown: n.SystemKnown,
			Pressure: known(n.Pressure, n.PressureKnown), FloorsExceedSupply: n.FloorsExceedSupply,
			Bidders: n.Bidders, Shadows: n.Unmanaged, Warming: r.Out.Skipped.WarmingUp, Stale: r.Out.Skipped.Stale, Unenforced: r.Out.Skipped.Unenforced,
		},
		Pods: make([]PodReport, 0, len(r.Out.Decisions)),
	}
	i := 0
	for _, d := range r.Out.Decisions {
		for string(r.View.Refs[i].UID) != d.UID {
			i++
		}
		p := PodReport{
			Namespace: r.View.Refs[i].Namespace, Name: r.View.Refs[i].Name, UID: d.UID,
			Desired: d.Limit, Containers: make(map[string]cpu.Milli, len(d.Containers)),
			Usage: d.Usage, Demand: d.Demand, Throttled: d.ThrottleRatio, Pressure: known(d.Pressure, d.PressureKnown),
			Budget: int64(d.Budget), Floor: d.Floor, Ceiling: d.Ceiling, BoundBy: d.Bound.String(),
		}
		if s := d.Stalls; s != nil {
			p.MemoryPressure, p.IOPressure = known(s.Memory.Value, s.Memory.Known), known(s.IO.Value, s.IO.Known)
		}
		for _, c := range d.Containers {
			p.Containers[c.Name] = c.Limit
		}
		for _, c := range r.View.Pods[i].Containers {
			if c.Limited() {
				p.Limit += c.Limit
			}
		}
		out.Pods = append(out.Pods, p)
	}
	return out
}

func known(v float64, ok bool) *float64 {
	if !ok {
		return nil
	}
	return &v
}
