package sim

import (
	"math"
	"time"
)

// loadAverage is an exponential average with a half-life of 32 ms (kernel/sched/pelt.c).
type loadAverage struct {
	value float64
	at    time.Duration
}

const halfLife = 32 * time.Millisecond

// advance accounts time at a constant level.
func (d *loadAverage) advance(now time.Duration, level int) {
	if now > d.at {
		d.value = float64(level) + (d.value-float64(level))*math.Exp2(-float64(now-d.at)/float64(halfLife))
		d.at = now
	}
}
