// Package credits lets a pod that used less than its share use more of it later. A pod saves the part of its
// share that it leaves to others. Savings raise its budget until the pod has used as much more than its
// share, or until they decay. The idea is Karma's (Vuppalapati et al., OSDI 2023), whose credits buy slices;
// these raise a budget, so the market does not change.
package credits

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Config is the settings.
type Config struct {
	// MaxFactor is the factor on the budget of a pod with MaxSaved, 1 to 10; at 1 there are no
	// credits. Larger gives more to pods that return after a pause, at the cost of pods that never
	// pause.
	MaxFactor float64
	// MaxSaved is the most that a pod can save: its whole share for this time.
	MaxSaved time.Duration
	// HalfLife is the time in which half of the savings decays.
	HalfLife time.Duration
}

// Off is the config without credits.
func Off() Config { return Config{MaxFactor: 1, MaxSaved: time.Minute, HalfLife: 5 * time.Minute} }

// Enabled says whether pods save anything.
func (c Config) Enabled() bool { return c.MaxFactor != 1 }

// Validate returns every fault, joined.
func (c Config) Validate() error {
	var errs []error
	if !(c.MaxFactor >= 1 && c.MaxFactor <= 10) {
		errs = append(errs, fmt.Errorf("credits MaxFactor is %v: want 1, which is off, to 10", c.MaxFactor))
	}
	if c.MaxSaved <= 0 || c.HalfLife <= 0 {
		errs = append(errs, fmt.Errorf("credits MaxSaved is %v and HalfLife %v: want more than 0", c.MaxSaved, c.HalfLife))
	}
	return errors.Join(errs...)
}

// Next is what a pod has saved after a time in which it left a part of its share unused; it spends where
// that is below 0.
func (c Config) Next(saved time.Duration, unused float64, elapsed time.Duration) time.Duration {
	decay := math.Exp2(-elapsed.Seconds() / c.HalfLife.Seconds())
	saved = time.Duration(float64(float64(saved)*decay) + float64(unused*float64(elapsed)))
	return min(max(saved, 0), c.MaxSaved)
}

// Factor is the factor on the budget of a pod that has saved so much.
func (c Config) Factor(saved time.Duration) float64 {
	return 1 + (c.MaxFactor-1)*saved.Seconds()/c.MaxSaved.Seconds()
}
