package round

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/market"
)

// Credits let a pod that has stayed below its share exceed it later: the part of its share that it leaves to others it saves,
// and what it has saved raises its budget until it has used as much more than its share, or it is forgotten. The
// idea is Karma's (Vuppalapati et al., OSDI 2023), whose credits buy slices; here they raise a budget, so that
// the market stays what it is.
type Credits struct {
	// MaxFactor is the factor on the budget of a pod that has saved all it can, 1 to 10; at 1 there are no credits. Larger gives more to
	// those who come back after a rest, and takes it from those who never rest.
	MaxFactor float64
	// MaxSaved is how much a pod can save: its whole share for so long.
	MaxSaved time.Duration
	// HalfLife is how long it takes until half of what is saved is forgotten.
	HalfLife time.Duration
}

func (c Credits) disabled() bool { return c.MaxFactor == 1 }

func (c Credits) validate() error {
	var errs []error
	if !(c.MaxFactor >= 1 && c.MaxFactor <= 10) {
		errs = append(errs, fmt.Errorf("round Credits.MaxFactor is %v: want 1, which is off, to 10", c.MaxFactor))
	}
	if c.MaxSaved <= 0 || c.HalfLife <= 0 {
		errs = append(errs, fmt.Errorf("round Credits.MaxSaved is %v and Credits.HalfLife %v: want more than 0", c.MaxSaved, c.HalfLife))
	}
	return errors.Join(errs...)
}

// accrue is what each pod has saved after a tick, by its UID. A pod that cannot be read saves nothing and loses nothing.
func (c Credits) accrue(before map[string]time.Duration, pods []PodInput, rates []sense.PodRates, perBudget float64, elapsed time.Duration) map[string]time.Duration {
	if c.disabled() {
		return nil
	}
	after := make(map[string]time.Duration, len(pods))
	kept := math.Exp2(-elapsed.Seconds() / c.HalfLife.Seconds())
	for i, p := range pods {
		saved := before[p.UID]
		share := perBudget * float64(p.Budget)
		if use, known := podUsage(rates[i]); known && share > 0 {
			left := 1 - use/share
			saved = time.Duration(float64(saved)*kept + left*float64(elapsed))
		}
		after[p.UID] = min(max(saved, 0), c.MaxSaved)
	}
	return after
}

// podUsage is a pod's CPU use in cores; unknown where that of a running container is.
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

// apply is the pods with the budgets that their savings give them.
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
