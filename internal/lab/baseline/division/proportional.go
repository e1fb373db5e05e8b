package division

import (
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

const (
	// bidInterval is the time between two decisions; demand is sampled every splitInterval.
	bidInterval = 15 * time.Second
	// bidCooldown is the least time between two changes of a pod, up or down.
	bidCooldown = 30 * time.Second
)

// ProportionalBids is the first design of MBCAS: each pod's limit is its share of all bids, where a
// bid is weight times demand. So a high demand pays, and an idle node throttles: the limits always
// add up to the supply.
type ProportionalBids struct {
	sensor  *sensor
	resizer *resizer
	next    time.Duration
}

// NewProportionalBids has the values of that design: 15 s, 30 s, 10 %, x1.5 in both directions.
func NewProportionalBids() *ProportionalBids {
	return &ProportionalBids{sensor: newSensor(), next: bidInterval, resizer: newResizer(actuator.Config{
		DeadBand: 0.10, MaxDecreaseFactor: 1.5, MaxIncreaseFactor: 1.5, DecreaseCooldown: bidCooldown, IncreaseCooldown: bidCooldown,
	})}
}

// Decide implements sim.Policy.
func (s *ProportionalBids) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	bidders, supply := s.sensor.bidders(r)
	if r.Now < s.next {
		return nil, r.Now + splitInterval
	}
	s.next = r.Now + bidInterval
	for i := range bidders {
		if b := &bidders[i]; b.shadow {
			b.weight *= b.demand // it takes no more than its demand
		} else {
			b.claim = bid(b.claim)
		}
	}
	all := targets(bidders, maxMin(supply, claims(bidders)))
	due := slices.DeleteFunc(all, func(w target) bool {
		last := s.resizer.pod(w.pod).last
		return !last.IsZero() && epoch.Add(r.Now).Sub(last) < bidCooldown
	})
	return s.resizer.resize(r, due), r.Now + splitInterval
}

// bid is a claim with its weight times its demand and no bound on what it gets.
func bid(c claim) claim {
	return claim{weight: c.weight * c.demand, demand: math.Inf(1), floor: c.floor}
}
