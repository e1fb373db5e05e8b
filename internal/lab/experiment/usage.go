package experiment

import "github.com/mbcas/mbcas/internal/lab/scenario"

func batchCores(r *Run) float64 {
	sum, any := 0.0, 0.0
	for n, p := range r.each() {
		if p.role == scenario.Batch {
			sum += p.Usage.Seconds() / n.length().Seconds()
			any = 1
		}
	}
	return sum / any
}

func utilisation(r *Run) float64 {
	var idle, all float64
	for i := range r.Nodes {
		n := &r.Nodes[i]
		idle += n.Result.IdleTime.Seconds()
		all += n.cores() * n.length().Seconds()
	}
	return 100 - 100*(idle/all)
}

func limitOverNeed(r *Run) float64 {
	var limits, needs float64
	for n, p := range r.each() {
		if !p.Spec.Managed() {
			continue
		}
		for k := range n.intervals(p) {
			limits += n.limit(p.Points[k].Limit)
			needs += p.Points[k].Usage.Cores() + (p.backlogAt(k)-p.backlogAt(k-1))/n.every().Seconds()
		}
	}
	return limits / needs
}
