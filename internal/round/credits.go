package round

import (
	"math"
	"time"

	"github.com/mbcas/mbcas/internal/credits"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// saveCredits returns what each pod has saved after a tick, by UID. perBudget is the share in cores
// of a unit of budget. The savings of a pod without valid rates stay.
func saveCredits(
	cfg credits.Config, before map[string]time.Duration, pods []PodInput, rates sense.Rates, perBudget float64,
) map[string]time.Duration {
	if !cfg.Enabled() {
		return nil
	}
	after := make(map[string]time.Duration, len(pods))
	for i, p := range pods {
		after[p.UID] = min(before[p.UID], cfg.MaxSaved)
		share := perBudget * float64(p.Budget)
		if usage, known := rates.Pods[i].Usage(); known && share > 0 {
			after[p.UID] = cfg.Next(before[p.UID], 1-usage/share, rates.Node.Elapsed)
		}
	}
	return after
}

// withCredits returns the pods with the budgets that their savings give them.
func withCredits(cfg credits.Config, pods []PodInput, saved map[string]time.Duration) []PodInput {
	if !cfg.Enabled() {
		return pods
	}
	raised := make([]PodInput, len(pods))
	for i, p := range pods {
		p.Budget = market.Budget(math.Round(float64(p.Budget) * cfg.Factor(saved[p.UID])))
		raised[i] = p
	}
	return raised
}
