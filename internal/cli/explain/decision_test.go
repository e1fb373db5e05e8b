package explain

import (
	"strings"
	"testing"

	"github.com/mbcas/mbcas/api/v1alpha1"
	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/cli/snapshot"
	"github.com/mbcas/mbcas/internal/kube"
)

// TestDecision: a limit is set by the price where it is what the budget buys. Another one has its reason, and a mode that does
// not carry decisions out is named.
func TestDecision(t *testing.T) {
	scarce := &snapshot.Market{Demand: 5000, Supply: 3400}
	fits := &snapshot.Market{Demand: 3000, SignalDemand: 400, Supply: 3400}
	const byPrice, spread, raised = "set by the price", "increases of a pod that saturates are spread over time", " It is raised when the pod is throttled"
	const isNew = ". At the price the pod would get 943m, but a limit is not lowered while the demand of a new container is not known yet, about 10 seconds, or while all demands fit the supply."
	for name, c := range map[string]struct {
		f      snapshot.Figures
		market *snapshot.Market
		mode   kube.Mode
		want   string
		not    string
	}{
		"price":          {snapshot.Figures{Desired: 940, BoundBy: v1alpha1.BoundByPrice, Price: 0.212}, scarce, kube.ModeEnforce, byPrice, "carried out"},
		"new":            {snapshot.Figures{Desired: 1600, BoundBy: v1alpha1.BoundByPrice, Price: 0.212}, scarce, kube.ModeEnforce, isNew + " 1600m is its ceiling.", byPrice},
		"new, unknown":   {snapshot.Figures{Desired: 1500, BoundBy: v1alpha1.BoundByPrice, Price: 0.212}, nil, kube.ModeEnforce, isNew, "ceiling"},
		"demands fit":    {snapshot.Figures{Desired: 1500, BoundBy: v1alpha1.BoundByPrice, Price: 0.212}, fits, kube.ModeEnforce, ". At the price the pod would get 943m, but all demands fit the supply, so no limit is lowered.", byPrice},
		"spread":         {snapshot.Figures{Desired: 700, BoundBy: v1alpha1.BoundByPrice, Price: 0.212}, scarce, kube.ModeEnforce, spread, byPrice},
		"floor":          {snapshot.Figures{Desired: 300, BoundBy: v1alpha1.BoundByFloor, Price: 2}, scarce, kube.ModeEnforce, ", its floor.", "At the price"},
		"above floor":    {snapshot.Figures{Desired: 500, BoundBy: v1alpha1.BoundByFloor, Price: 2}, scarce, kube.ModeEnforce, ". At the price the pod would get 300m, but a limit is not lowered", "its floor"},
		"nothing, price": {snapshot.Figures{Desired: 800, BoundBy: v1alpha1.BoundByNothing, Price: 0.2}, scarce, kube.ModeEnforce, "restrict the pod: it demands no more than its budget buys. Such a limit is not lowered." + raised, byPrice},
		"nothing, free":  {snapshot.Figures{Desired: 800, BoundBy: v1alpha1.BoundByNothing, Price: 0}, fits, kube.ModeEnforce, "restrict the pod, as CPU has no price.", byPrice},
		"restore":        {snapshot.Figures{Desired: 940, BoundBy: v1alpha1.BoundByPrice, Price: 0.212}, scarce, kube.ModeRestore, " In mode restore it is not carried out.", "At the price"},
		"recommend":      {snapshot.Figures{Desired: 940, BoundBy: v1alpha1.BoundByPrice, Price: 0.212}, scarce, kube.ModeRecommend, " In mode recommend it is not carried out.", "At the price"},
	} {
		f := c.f
		f.Live, f.Budget, f.Floor, f.Ceiling, f.Containers = true, 200, 300, 1600, map[string]cpu.Milli{"app": f.Desired}
		got := decision(Subject{Row: snapshot.Row{Figures: &f, Mode: c.mode}, Market: c.market})
		if !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("%s: %q, want %q and no %q", name, got, c.want, c.not)
		}
	}
}
