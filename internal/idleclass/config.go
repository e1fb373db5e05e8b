package idleclass

import (
	"errors"
	"fmt"
	"time"
)

// Config is the settings of the decision.
type Config struct {
	// ScarceFrom is the share of the node's CPUs, in (0, 1], that the system and the pods outside of the class use
	// when CPU is scarce for them. Lower puts pods into the class that leave the others enough; higher overlooks
	// scarcity, since members always run a little.
	ScarceFrom float64
	// SureAfter is for how long a pod takes more than its share, and more than it used while CPU was not scarce, until
	// it is sure to saturate. Shorter protects the others sooner; longer takes fewer bursts for saturation.
	SureAfter time.Duration
	// DrainAfter is that time in the SlowAfter after a change of the class: others may still work off their queues.
	DrainAfter time.Duration
	// SlowAfter is that time for a pod that takes no more than it used while CPU was not scarce.
	SlowAfter time.Duration
	// Settle is how long after a change of the class usage tells nothing: the write, and the tick in which it falls.
	Settle time.Duration
	// CalmHalfLife is the time in which that highest usage of a pod counts half. Shorter follows pods that begin to
	// saturate; longer keeps services out of the class that are busy now and then.
	CalmHalfLife time.Duration
	// CalmFactor is by how much a pod may exceed that usage, at least 1. Larger tolerates growth.
	CalmFactor float64
	// NotScarceFrom is the share of the node's CPUs, in (0, 1], below which CPU is not scarce, and ReleaseAfter for
	// how long it is not until the class is given up. A member loses nothing meanwhile.
	NotScarceFrom float64
	ReleaseAfter  time.Duration
	// Window is the time over which the CPU of a member is averaged and compared with what its request guarantees.
	// Shorter leaves the class sooner; longer tolerates bursts of the others.
	Window time.Duration
	// Tolerance is the share, in [0, 1), by which this mean may fall short. Smaller is stricter; larger is steadier.
	Tolerance float64
	// QuietBelow is the part of its share, in [0, 1), below which a pod uses next to nothing, and QuietAfter for how
	// long it does until it is quiet. A quiet pod has a small weight, and for Probation from when it uses CPU. Higher and
	// shorter protect the others from more pods that begin to saturate; they also delay services that are needed now
	// and then, on nodes without idle CPU. With a Probation of 0 no pod has a small weight.
	QuietBelow            float64
	QuietAfter, Probation time.Duration
	// NewFor is for how long a pod is new: it is quiet, too, if it opts in within that time of the first round that
	// has it.
	NewFor time.Duration
	// HoldOff is how long a pod that fell short stays outside of the class the first time, where limits may cap it. It
	// doubles each time, up to LongestHoldOff, and starts anew LongestHoldOff after the last one. Shorter tries again
	// sooner; longer is steadier.
	HoldOff, LongestHoldOff time.Duration
}

// DefaultConfig is the recommended config.
func DefaultConfig() Config {
	return Config{
		ScarceFrom: 0.95, Settle: time.Second,
		SureAfter: time.Second, DrainAfter: 5 * time.Second, SlowAfter: 15 * time.Second,
		CalmHalfLife: 10 * time.Minute, CalmFactor: 1.25,
		NotScarceFrom: 0.90, ReleaseAfter: 15 * time.Second,
		Window: 10 * time.Second, Tolerance: 0.03,
		QuietBelow: 0.02, QuietAfter: 10 * time.Second, Probation: 3 * time.Second, NewFor: 5 * time.Second,
		HoldOff: time.Minute, LongestHoldOff: 32 * time.Minute,
	}
}

// Validate returns every fault, joined.
func (c Config) Validate() error {
	const positive, share = "more than 0", "more than 0 and at most 1"
	part := func(v float64) bool { return v > 0 && v <= 1 }
	var errs []error
	for _, f := range []struct {
		name  string
		v     any
		valid bool
		want  string
	}{
		{"ScarceFrom", c.ScarceFrom, part(c.ScarceFrom), share},
		{"SureAfter", c.SureAfter, c.SureAfter > 0, positive},
		{"DrainAfter", c.DrainAfter, c.DrainAfter >= c.SureAfter, "at least SureAfter"},
		{"SlowAfter", c.SlowAfter, c.SlowAfter >= c.DrainAfter, "at least DrainAfter"},
		{"Settle", c.Settle, c.Settle >= 0, "0 or more"},
		{"CalmHalfLife", c.CalmHalfLife, c.CalmHalfLife > 0, positive},
		{"CalmFactor", c.CalmFactor, c.CalmFactor >= 1, "at least 1"},
		{"NotScarceFrom", c.NotScarceFrom, part(c.NotScarceFrom), share},
		{"ReleaseAfter", c.ReleaseAfter, c.ReleaseAfter > 0, positive},
		{"Window", c.Window, c.Window > 0, positive},
		{"Tolerance", c.Tolerance, c.Tolerance >= 0 && c.Tolerance < 1, "at least 0 and less than 1"},
		{"QuietBelow", c.QuietBelow, c.QuietBelow >= 0 && c.QuietBelow < 1, "at least 0 and less than 1"},
		{"QuietAfter", c.QuietAfter, c.QuietAfter > 0, positive},
		{"Probation", c.Probation, c.Probation >= 0, "0 or more"},
		{"NewFor", c.NewFor, c.NewFor >= 0, "0 or more"},
		{"HoldOff", c.HoldOff, c.HoldOff > 0, positive},
		{"LongestHoldOff", c.LongestHoldOff, c.LongestHoldOff >= c.HoldOff, "at least HoldOff"},
	} {
		if !f.valid {
			errs = append(errs, fmt.Errorf("idleclass %s is %v: want %s", f.name, f.v, f.want))
		}
	}
	return errors.Join(errs...)
}
