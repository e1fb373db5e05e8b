package lifecycle

import (
	"testing"
	"time"

	"github.com/mbcas/mbcas/api/v1alpha1/reasons"
)

// TestKeptFromWeights: a pod whose limit may not be lowered is kept out of the idle class.
func TestKeptFromWeights(t *testing.T) {
	for name, c := range map[string]struct {
		change     func(*Pod)
		noDecrease reasons.Reason
		want       reasons.Reason
	}{
		"free":            {func(*Pod) {}, "", ""},
		"excluded":        {func(p *Pod) { p.Excluded.Reason = reasons.OptedOut }, "", reasons.OptedOut},
		"PDB":             {func(*Pod) {}, reasons.NoDisruptionAllowed, reasons.NoDisruptionAllowed},
		"rollback":        {func(*Pod) {}, reasons.UnhealthyAfterDecrease, reasons.UnhealthyAfterDecrease},
		"HPA":             {func(p *Pod) { p.HPA = true }, "", reasons.ScaledByHPA},
		"held":            {func(p *Pod) { p.Hold = Cause{Reason: reasons.HarmSpread} }, "", reasons.HarmSpread},
		"canary stopped":  {func(p *Pod) { p.CanaryStopped = time.Unix(1, 0) }, "", reasons.CanaryStopped},
		"one floor":       {func(p *Pod) { p.Containers[0].Floor = 500 }, "", ""},
		"all floors":      {func(p *Pod) { p.Containers[0].Floor, p.Containers[1].Floor = 500, 900 }, "", reasons.FloorAtDeclared},
		"no declared one": {func(p *Pod) { p.Declared = nil }, "", reasons.FloorAtDeclared},
	} {
		p := Pod{
			Declared:   Limits{{"a", 500}, {"b", 800}},
			Containers: []Container{{Name: "a", Floor: 100}, {Name: "b", Floor: 100}},
		}
		c.change(&p)
		if got := p.KeptFromWeights(c.noDecrease); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
