package division

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// StrictConfig is a strict partition of the node by peak need. It is our own rule, so its constants
// are ours.
type StrictConfig struct {
	// Interval is the time between two splits.
	Interval time.Duration
	// Window is how long a peak counts. Longer is prepared for rarer peaks, and sets more aside.
	Window time.Duration
	// Actuator is how carefully limits move.
	Actuator actuator.Config
}

// Strict hands out the supply once: limits add up to it, never to more. Each pod claims its peak
// need; short supply is shared by weighted max-min, and what is left over goes to all by weight.
type Strict struct {
	cfg     StrictConfig
	sensor  *sensor
	resizer *resizer
	needs   map[int][]float64 // cores in each interval of the window, the last one at the end
}

// NewStrict senses and acts as MBCAS does, and remembers peaks of a second for five minutes.
func NewStrict() *Strict {
	cfg := StrictConfig{Interval: time.Second, Window: 5 * time.Minute, Actuator: actuator.DefaultConfig()}
	return &Strict{cfg: cfg, sensor: newSensor(), resizer: newResizer(cfg.Actuator), needs: map[int][]float64{}}
}

// Decide implements sim.Policy.
func (s *Strict) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	bidders, supply := s.sensor.bidders(r)
	most := max(1, int(s.cfg.Window/s.cfg.Interval))
	for i, b := range bidders {
		needs := append(s.needs[b.pod.ID], b.estimate.Latest)
		s.needs[b.pod.ID] = needs[max(0, len(needs)-most):]
		bidders[i].demand = slices.Max(needs[max(0, len(needs)-most):])
	}
	shares := partition(supply, claims(bidders))
	return s.resizer.resize(r, targets(bidders, shares)), r.Now + s.cfg.Interval
}

// partition divides the whole supply: every floor is met, and unclaimed CPU goes by weight to all
// uncapped claims.
func partition(supply float64, claims []claim) []float64 {
	var weight float64
	for i, c := range claims {
		if !c.capped {
			weight += c.weight
		}
		claims[i].demand = max(c.demand, c.floor)
	}
	out := maxMin(supply, claims)
	left := supply
	for _, x := range out {
		left -= x
	}
	if left <= 0 || weight <= 0 {
		return out
	}
	for i, c := range claims {
		if !c.capped {
			out[i] += left * c.weight / weight
		}
	}
	return out
}
