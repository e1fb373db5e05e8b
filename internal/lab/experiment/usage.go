package experiment

func batchCores(r *Run) float64 {
	sum, any := 0.0, 0.0
	for i := range r.Nodes {
		n := &r.Nodes[i]
		for _, p := range n.pods {
			if p.role == Batch {
				sum += p.Usage.Seconds() / n.length().Seconds()
				any = 1
			}
		}
	}
	return ratio(sum, any)
}

func utilisation(r *Run) float64 {
	var idle, all float64
	for i := range r.Nodes {
		n := &r.Nodes[i]
		idle += n.Result.IdleTime.Seconds()
		all += n.cores() * n.length().Seconds()
	}
	return 100 - 100*ratio(idle, all)
}

func limitOverNeed(r *Run) float64 {
	var limits, needs float64
	for i := range r.Nodes {
		n := &r.Nodes[i]
		from, to := n.measured()
		for j := range n.pods {
			p := &n.pods[j]
			if !p.Spec.Managed() {
				continue
			}
			for k := from; k < to; k++ {
				if p.runs(k) {
					limits += n.limit(p.Points[k].Limit)
					needs += p.Points[k].Usage.Cores() + (p.backlogAt(k)-p.backlogAt(k-1))/n.every().Seconds()
				}
			}
		}
	}
	return ratio(limits, needs)
}
