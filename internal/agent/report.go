package agent

import (
	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/allocation"
	"github.com/mbcas/mbcas/internal/round"
)

// report is the round for /debug/round.
func report(r *roundResult) allocation.RoundReport {
	n, skipped := r.Output.Node, r.Output.Skipped
	out := allocation.RoundReport{
		At: r.At.Round(0), Took: r.Duration.String(),
		Node: allocation.NodeReport{
			Price: float64(n.Price), Cleared: float64(n.Cleared),
			Supply: n.Supply, Demand: n.Demand, SignalDemand: n.SignalDemand, Usage: n.Usage,
			System: n.System, SystemKnown: n.SystemKnown,
			Pressure: n.Pressure.Optional(), FloorsExceedSupply: n.FloorsExceedSupply,
			Managed: n.Bidders, Unmanaged: n.Unmanaged,
			WarmingUp: skipped.WarmingUp, Stale: skipped.Stale, Unenforced: skipped.Unenforced,
		},
		Pods: make([]allocation.PodReport, 0, len(r.Output.Decisions)),
	}
	for _, d := range r.Output.Decisions {
		p := podReport(r.Snapshot.Refs[d.Pod], d)
		for _, c := range r.Snapshot.Pods[d.Pod].Containers {
			if c.Limited() {
				p.Limit += c.Limit
			}
		}
		out.Pods = append(out.Pods, p)
	}
	return out
}

func podReport(ref podRef, d round.Decision) allocation.PodReport {
	p := allocation.PodReport{
		Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID,
		Desired: d.Limit, Containers: make(map[string]cpu.Milli, len(d.Containers)),
		Usage: d.Usage, Demand: d.Demand, Throttled: d.ThrottleRatio, Pressure: d.Pressure.Optional(),
		Budget: int64(d.Budget), Floor: d.Floor, Ceiling: d.Ceiling, BoundBy: v1alpha1.BoundBy(d.Bound.String()),
	}
	if s := d.Stalls; s != nil {
		p.MemoryPressure, p.IOPressure = s.Memory.Optional(), s.IO.Optional()
	}
	for _, c := range d.Containers {
		p.Containers[c.Name] = c.Limit
	}
	return p
}
