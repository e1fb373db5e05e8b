package results

// Promise is within how many seconds after a change of load MBCAS promises that limits have converged. A limit has
// converged when it stays within a tenth of its final value; what it has at the end is final when it stayed within a
// tenth of it for Settled seconds that were watched.
const (
	Promise = 60
	Settled = 10
)

// PodLimits are the limits of a pod in the measured time.
type PodLimits struct {
	UID      string  `json:"uid"`
	Workload string  `json:"workload"`
	FirstS   float64 `json:"first_s"` // when it was sampled first and last, from the start of the measured time
	LastS    float64 `json:"last_s"`
	// Limits are the first sample and each that differs from the one before.
	Limits []Limit `json:"limits"`
	// ConvergedS is how long after the event, or after its first sample if that is later, the limit was within a tenth
	// of that at its end for good; 0: it always was. How a limit changes between two samples is not seen.
	ConvergedS float64 `json:"converged_s"`
}

// Limit is the quota of a pod's container from a time on: pods of the evaluation have one.
type Limit struct {
	At     float64 `json:"s"`
	LimitM int64   `json:"limit_m"` // 0: none
}

// Add adds a sample.
func (p *PodLimits) Add(at float64, limit int64) {
	n := len(p.Limits)
	if n == 0 {
		p.FirstS = at
	}
	p.LastS = at
	if n == 0 || p.Limits[n-1].LimitM != limit {
		p.Limits = append(p.Limits, Limit{at, limit})
	}
}

// Converge sets ConvergedS.
func (p *PodLimits) Converge(event float64) {
	p.ConvergedS = 0
	if len(p.Limits) == 0 {
		return
	}
	from, final := max(event, p.FirstS), p.Limits[len(p.Limits)-1].LimitM
	for i := len(p.Limits) - 2; i >= 0; i-- {
		if near(p.Limits[i].LimitM, final) {
			continue
		}
		p.ConvergedS = max(0, p.Limits[i+1].At-from)
		return
	}
}

// near reports whether a limit is within a tenth of the final one.
func near(limit, final int64) bool {
	if limit == 0 || final == 0 {
		return limit == final
	}
	return 10*(max(limit, final)-min(limit, final)) <= final
}

// Verdict says whether the promise of convergence was kept.
type Verdict string

// Verdicts. A cell that was watched for less than Promise and Settled seconds keeps the promise as far as it was
// watched.
const (
	Kept     Verdict = "kept"
	Missed   Verdict = "missed"
	NotShown Verdict = "not shown" // the limit still changed at the end, or the pod ended before
)

// Judge says whether a pod kept the promise in a cell that was watched until end, in seconds from the start of the
// measured time.
func (p PodLimits) Judge(event, end float64) Verdict {
	from := max(event, p.FirstS)
	switch {
	case p.ConvergedS >= Promise:
		return Missed
	case len(p.Limits) == 0, p.LastS < end-1.5, p.ConvergedS > 0 && from+p.ConvergedS > p.LastS-Settled:
		return NotShown
	}
	return Kept
}

// Judge is the verdict of the worst of the cell's pods, with how long the slowest took; NotShown without pods.
func (c Cell) Judge(event, end float64) (worst Verdict, slowest float64) {
	if len(c.Pods) == 0 {
		return NotShown, 0
	}
	worst = Kept
	for _, p := range c.Pods {
		slowest = max(slowest, p.ConvergedS)
		if v := p.Judge(event, end); v == Missed || v == NotShown && worst == Kept {
			worst = v
		}
	}
	return worst, slowest
}
