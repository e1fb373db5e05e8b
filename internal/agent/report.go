package agent

import (
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
)

func report(r *played) allocation.RoundReport {
	n := r.Out.Node
	out := allocation.RoundReport{
		At: r.At.Round(0), Took: r.Took.String(),
		Node: allocation.NodeReport{
			Price: float64(n.Price), Cleared: float64(n.Cleared), Supply: n.Supply, Demand: n.Demand, Asked: n.SignalDemand, Usage: n.Usage, System: n.System, SystemKnown: n.SystemKnown,
			Pressure: known(n.Pressure, n.PressureKnown), FloorsExceedSupply: n.FloorsExceedSupply,
			Bidders: n.Bidders, Shadows: n.Unmanaged, Warming: r.Out.Skipped.WarmingUp, Stale: r.Out.Skipped.Stale, Unenforced: r.Out.Skipped.Unenforced,
		},
		Pods: make([]allocation.PodReport, 0, len(r.Out.Decisions)),
	}
	i := 0
	for _, d := range r.Out.Decisions {
		for string(r.View.Refs[i].UID) != d.UID {
			i++
		}
		p := allocation.PodReport{
			Namespace: r.View.Refs[i].Namespace, Name: r.View.Refs[i].Name, UID: r.View.Refs[i].UID,
			Desired: d.Limit, Containers: make(map[string]cpu.Milli, len(d.Containers)),
			Usage: d.Usage, Demand: d.Demand, Throttled: d.ThrottleRatio, Pressure: known(d.Pressure, d.PressureKnown),
			Budget: int64(d.Budget), Floor: d.Floor, Ceiling: d.Ceiling, BoundBy: v1alpha1.BoundBy(d.Bound.String()),
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
