package explain

import (
	"testing"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
)

// TestClass: explain says what holds a pod down where its namespace allows weights, and the reason of the agent or of the
// controller.
func TestClass(t *testing.T) {
	allowed := &v1alpha1.Constraints{AllowWeights: true}
	kept := &v1alpha1.Constraints{WeightsReason: "NoDisruptionAllowed"}
	const idle = "Class: idle. The pod saturates, so it runs when no other pod demands the CPU, and its limit does not cap it."
	const weighted = "Class: weighted. Under contention its weight holds it to what its budget buys, and its limit does not cap it."
	const limited = "Class: limited. The namespace allows weights, and the limit may cap the pod. Why no better one: "
	for name, c := range map[string]struct {
		figures     *snapshot.Figures
		constraints *v1alpha1.Constraints
		want        string
	}{
		"not allowed":     {&snapshot.Figures{}, nil, ""},
		"no decision":     {nil, allowed, ""},
		"idle":            {&snapshot.Figures{Class: "idle"}, allowed, idle},
		"weighted":        {&snapshot.Figures{Class: "weighted"}, allowed, weighted},
		"partly limited":  {&snapshot.Figures{Class: "weighted", ClassReason: "PartlyLimited"}, allowed, weighted + " Why no better one: a container has no limit, so the pod's figures are not those of the whole pod and it never runs in the idle class (PartlyLimited)."},
		"below guarantee": {&snapshot.Figures{Class: "limited", ClassReason: "BelowGuarantee"}, allowed, limited + "in the idle class the pod got or would get less CPU than its request guarantees, so it stays outside for a while and its limit may cap it (BelowGuarantee)."},
		"refused":         {&snapshot.Figures{Class: "limited", ClassReason: "Contested"}, allowed, limited + "mbcas-weights refuses the pod (Contested)."},
		"kept out":        {&snapshot.Figures{}, kept, limited + "a PodDisruptionBudget allows no disruption, so the pod is not lowered below its declared limit (NoDisruptionAllowed)."},
		"agent unknown":   {&snapshot.Figures{}, allowed, "Class: not known. The namespace allows weights; the agent of the node did not answer, or runs without mbcas-weights."},
	} {
		if got := class(Subject{Row: snapshot.Row{Figures: c.figures, Constraints: c.constraints}}); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
