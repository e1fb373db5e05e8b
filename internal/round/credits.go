package round

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// Credits let a pod that used less than its share use more of it later. A pod saves the part of its
// share that it leaves to others. Savings raise its budget until the pod has used as much more than
// its share, or until they decay. The idea is Karma's (Vuppalapati et al., OSDI 2023), whose
// credits buy slices; these raise a budget, so the market does not change.
type Credits struct {
	// MaxFactor is the factor on the budget of a pod with MaxSaved, 1 to 10; at 1 there are no
	// credits. Larger gives more to pods that return after a pause, at the cost of pods that never
	// pause.
	MaxFactor float64
	// MaxSaved is the most that a pod can save: its whole share for this time.
	MaxSaved time.Duration
	// HalfLife is the time in which half of the savings decays.
	HalfLife time.Duration
}

func (c Credits) disabled() bool { return c.MaxFactor == 1 }

func (c Credits) validate() error {
	var errs []error
	if !(c.MaxFactor >= 1 && c.MaxFactor <= 10) {
		errs = append(errs, fmt.Errorf("round Credits.MaxFactor is %v: want 1, which is off, to 10", c.MaxFactor))
	}
	if c.MaxSaved <= 0 || c.HalfLife <= 0 {
		errs = append(errs, fmt.Errorf("round Credits.MaxSaved is %v and Credits.HalfLife %v: want more than 0",
			c.MaxSaved, c.HalfLife))
	}
	return errors.Join(errs...)
}

// accrue returns what each pod has saved after a tick, by UID. perBudget is the share in cores of a
// unit of budget. The savings of a pod without valid rates stay.
func (c Credits) accrue(
	before map[string]time.Duration, pods []PodInput, rates sense.Rates, perBudget float64,
) map[string]time.Duration {
	if c.disabled() {
		return nil
	}
	elapsed := rates.Node.Elapsed
	after := make(map[string]time.Duration, len(pods))
	decay := math.Exp2(-elapsed.Seconds() / c.HalfLife.Seconds())
	for i, p := range pods {
		saved := before[p.UID]
		share := perBudget * float64(p.Budget)
		if usage, known := podUsage(rates.Pods[i]); known && share > 0 {
			unused := 1 - usage/share
			saved = time.Duration(float64(saved)*decay + unused*float64(elapsed))
		}
		after[p.UID] = min(max(saved, 0), c.MaxSaved)
	}
	return after
}

// podUsage is a pod's CPU usage in cores; unknown where that of a running container is.
func podUsage(p sense.PodRates) (cores float64, known bool) {
	for _, r := range p.Containers {
		switch r.Validity {
		case sense.Valid:
			cores += r.Usage.Cores()
			known = true
		case sense.Missing:
		default:
			return 0, false
		}
	}
	return cores, known
}

// apply returns the pods with the budgets that their savings give them.
func (c Credits) apply(pods []PodInput, saved map[string]time.Duration) []PodInput {
	if c.disabled() {
		return pods
	}
	raised := make([]PodInput, len(pods))
	for i, p := range pods {
		factor := 1 + (c.MaxFactor-1)*saved[p.UID].Seconds()/c.MaxSaved.Seconds()
		p.Budget = market.Budget(math.Round(float64(p.Budget) * factor))
		raised[i] = p
	}
	return raised
}
