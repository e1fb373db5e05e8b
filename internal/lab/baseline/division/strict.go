package division

import (
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// peakWindow is how long a peak counts. Longer is prepared for rarer peaks, and sets more aside.
const peakWindow = 5 * time.Minute

// Strict hands out the supply once: limits add up to it, never to more. Each pod claims its peak
// need; short supply is shared by weighted max-min, and what is left over goes to all by weight.
type Strict struct {
	sensor  *sensor
	resizer *resizer
	needs   map[int][]float64 // cores in each interval of the window, the last one at the end
}

// NewStrict senses and acts as MBCAS does, and remembers peaks of a second for five minutes. It is
// our own rule, and so are its constants.
func NewStrict() *Strict {
	return &Strict{sensor: newSensor(), resizer: newResizer(actuator.DefaultConfig()), needs: map[int][]float64{}}
}

// Decide implements sim.Policy.
func (s *Strict) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	bidders, supply := s.sensor.bidders(r)
	const most = int(peakWindow / splitInterval)
	for i, b := range bidders {
		needs := append(s.needs[b.pod.ID], b.estimate.Latest)
		s.needs[b.pod.ID] = needs[max(0, len(needs)-most):]
		bidders[i].demand = slices.Max(needs[max(0, len(needs)-most):])
	}
	shares := partition(supply, claims(bidders))
	return s.resizer.resize(r, targets(bidders, shares)), r.Now + splitInterval
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
