package division

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/sense"
)

// sensor estimates demand as MBCAS does, from use, throttling, the quota in force and pressure, so that policies which only
// split differently see the same.
type sensor struct {
	cfg    demand.Config
	pods   map[int]*sensedPod
	at     time.Duration
	all    time.Duration // CPU time of the machine
	usage  time.Duration // the part of it outside of pods
	system float64       // cores used outside of pods
	full   time.Duration // for which no CPU has lain idle
}

// sensedPod is what is known of one pod.
type sensedPod struct {
	at, usage, pressure time.Duration
	periods, throttled  uint64
	estimate            demand.Estimate
}

func newSensor() *sensor {
	return &sensor{cfg: demand.DefaultConfig(), pods: map[int]*sensedPod{}}
}

// reserve is the part of a node that MBCAS leaves free, too. A node of whose CPUs fullFrom are in use for as long as onset is
// full, so that who waits below its share is starved: as in internal/round.
const (
	reserve  = 0.10
	fullFrom = 0.97
	onset    = 2 * time.Second
)

// update takes the counters in and returns the estimates in the order of the reading's pods, and how many cores there are for
// all: what is allocatable, less the reserve, less system use beyond what the node keeps for it.
func (s *sensor) update(r *sim.Snapshot) (estimates []demand.Estimate, supply float64) {
	outside, elapsed := r.Usage-r.Kubepods, r.Now-s.at
	s.system = 0
	if elapsed > 0 {
		s.system = max(0, (outside-s.usage).Seconds()/elapsed.Seconds())
		if s.full += elapsed; (r.Usage - s.all).Seconds() < fullFrom*float64(r.Cores)*elapsed.Seconds() {
			s.full = 0
		}
	}
	s.at, s.all, s.usage = r.Now, r.Usage, outside
	supply = max(0, r.Allocatable.Cores()*(1-reserve)-max(0, s.system-(float64(r.Cores)-r.Allocatable.Cores())))

	share := 0.0 // cores that a unit of budget stands for, where the node is full
	if s.full > 0 && s.full+elapsed/2 >= onset {
		budgets := 0.0
		for i := range r.Pods {
			budgets += budget(&r.Pods[i])
		}
		share = supply / budgets
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		known := s.pods[p.ID]
		if known == nil {
			known = &sensedPod{}
			s.pods[p.ID] = known
		} else if r.Now > known.at {
			known.estimate = s.cfg.Next(known.estimate, known.rate(r.Now, p), cpu.FromCores(share*budget(p)))
		}
		known.at, known.usage, known.pressure, known.periods, known.throttled = r.Now, p.Usage, p.Pressure, p.Periods, p.Throttled
		estimates = append(estimates, known.estimate)
	}
	return estimates, supply
}

// rate is how a pod fared since the last look.
func (k *sensedPod) rate(now time.Duration, p *sim.PodSnapshot) sense.Rate {
	elapsed := now - k.at
	rate := sense.Rate{
		Validity: sense.Valid, Elapsed: elapsed, Usage: cpu.FromUsage(p.Usage-k.usage, elapsed), Quota: p.Limit, QuotaKnown: true,
		Pressure: min(1, (p.Pressure-k.pressure).Seconds()/elapsed.Seconds()), PressureKnown: true,
	}
	if periods := p.Periods - k.periods; periods > 0 {
		rate.ThrottleRatio = min(1, float64(p.Throttled-k.throttled)/float64(periods))
	}
	return rate
}

func budget(p *sim.PodSnapshot) float64 { return float64(demand.Budget(p.Request, p.Spec.Priority)) }

// bidder is a pod that takes part in a split.
type bidder struct {
	pod      *sim.PodSnapshot
	estimate demand.Estimate
	// shadow: its limit can't be set (it is not managed, or new), so it takes part with what it wants within its limit, and the
	// kernel's weights give it its request.
	shadow bool
	claim
}

// bidders is who takes part in a split, and how many cores there are for them. As in MBCAS, pods whose limits can't be set
// stand in line with all others.
func (s *sensor) bidders(r *sim.Snapshot) (bidders []bidder, supply float64) {
	estimates, supply := s.update(r)
	for i := range r.Pods {
		p, e := &r.Pods[i], estimates[i]
		b := bidder{pod: p, estimate: e, claim: claim{weight: budget(p), demand: e.Mean, floor: demand.Entitlement(p.Request, p.Spec.Limit).Cores()}}
		if !p.Spec.Managed() || !e.Warm(s.cfg) {
			b.shadow, b.capped, b.floor = true, true, p.Request.Cores()
			if p.Limit > 0 {
				b.demand = min(b.demand, p.Limit.Cores())
				b.estimate.Latest = min(b.estimate.Latest, p.Limit.Cores())
			}
		}
		bidders = append(bidders, b)
	}
	return bidders, supply
}

// claims are those of the bidders.
func claims(bidders []bidder) []claim {
	out := make([]claim, len(bidders))
	for i, b := range bidders {
		out[i] = b.claim
	}
	return out
}

// targets are the shares of the bidders whose limits can be set.
func targets(bidders []bidder, shares []float64) []target {
	var out []target
	for i, b := range bidders {
		if !b.shadow {
			out = append(out, target{b.pod, shares[i]})
		}
	}
	return out
}
