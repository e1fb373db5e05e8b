package lifecycle

import (
	"cmp"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// KeptFromWeights is why class and weight of the pod's CPU may not change, as far as the pod itself is concerned; "":
// it is not kept. The idle class takes CPU without a change of the limit, so a pod whose limit may not be lowered stays
// out: when it is excluded from the market, for a constraint or after a rollback (noDecrease), by floors at its declared
// limits, while its limits are held, and once its canary has stopped. An HPA that scales by CPU usage would not see
// what a pod in the idle class lacks.
func (p *Pod) KeptFromWeights(noDecrease reasons.Reason) reasons.Reason {
	var hpa, stopped reasons.Reason
	if p.HPA {
		hpa = reasons.ScaledByHPA
	}
	if !p.CanaryStopped.IsZero() {
		stopped = reasons.CanaryStopped
	}
	if why := cmp.Or(p.Excluded.Reason, noDecrease, hpa, p.Hold.Reason, stopped); why != "" {
		return why
	}
	for _, c := range p.Containers {
		if declared := p.Declared.Of(c.Name); declared > 0 && c.Floor < declared {
			return ""
		}
	}
	return reasons.FloorAtDeclared
}
