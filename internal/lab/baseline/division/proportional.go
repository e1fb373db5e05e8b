package division

import (
	"math"
	"slices"
	"time"

	"github.com/mbcas/mbcas/actuator"
	"github.com/mbcas/mbcas/internal/lab/sim"
)

// ProportionalBidsConfig is that of the first design of MBCAS (bid = weight x demand).
type ProportionalBidsConfig struct {
	// Sample is the time between two samples at the counters; each moves the demand estimate.
	Sample time.Duration
	// Interval is the time between two decisions.
	Interval time.Duration
	// Cooldown is the least time between two changes of a pod, up or down.
	Cooldown time.Duration
	// Hysteresis is the relative change that causes no resize.
	Hysteresis float64
	// Step is the factor by which one resize raises or lowers a limit at most.
	Step float64
}

// ProportionalBids sets each pod's limit to its share of all bids, where a bid is weight times
// demand. So a high demand pays, and an idle node throttles: the limits always add up to the
// supply.
type ProportionalBids struct {
	cfg     ProportionalBidsConfig
	sensor  *sensor
	resizer *resizer
	next    time.Duration
}

// NewProportionalBids has the values of that design: 15 s, 30 s, 10 %, x1.5 in both directions.
func NewProportionalBids() *ProportionalBids {
	cfg := ProportionalBidsConfig{Sample: time.Second, Interval: 15 * time.Second, Cooldown: 30 * time.Second, Hysteresis: 0.10, Step: 1.5}
	return &ProportionalBids{cfg: cfg, sensor: newSensor(), next: cfg.Interval, resizer: newResizer(actuator.Config{
		DeadBand: cfg.Hysteresis, MaxDecreaseFactor: cfg.Step, MaxIncreaseFactor: cfg.Step,
		DecreaseCooldown: cfg.Cooldown, IncreaseCooldown: cfg.Cooldown,
	})}
}

// Decide implements sim.Policy.
func (s *ProportionalBids) Decide(r *sim.Snapshot) ([]sim.Action, time.Duration) {
	bidders, supply := s.sensor.bidders(r)
	if r.Now < s.next {
		return nil, r.Now + s.cfg.Sample
	}
	s.next = r.Now + s.cfg.Interval
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
		return !last.IsZero() && epoch.Add(r.Now).Sub(last) < s.cfg.Cooldown
	})
	return s.resizer.resize(r, due), r.Now + s.cfg.Sample
}

// bid is a claim with its weight times its demand and no bound on what it gets.
func bid(c claim) claim {
	return claim{weight: c.weight * c.demand, demand: math.Inf(1), floor: c.floor}
}
