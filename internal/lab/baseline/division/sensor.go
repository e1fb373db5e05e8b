// Package division holds policies that divide a node's CPU among its pods: equal shares, a strict
// partition, weighted max-min fairness, max-min fairness with credits (Karma), and the rule that
// MBCAS began with. They estimate demand and resize pods with the code that MBCAS ships, so that
// only the rule of division differs.
package division

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/lab/sim"
	"github.com/mbcas/mbcas/internal/round"
	"github.com/mbcas/mbcas/internal/sense"
)

// sensor estimates demand and supply with the code of MBCAS, so that policies which divide by
// another rule see the same.
type sensor struct {
	cfg      round.Config
	gauge    round.Gauge
	node     round.NodeDecision // its supply and system usage
	pods     map[int]*sensedPod
	at       time.Duration
	usage    time.Duration // CPU time of the machine
	kubepods time.Duration // the part of pods
}

// sensedPod is the last sample of one pod, and its estimate.
type sensedPod struct {
	at, usage, pressure time.Duration
	periods, throttled  uint64
	estimate            demand.Estimate
}

func newSensor() *sensor {
	return &sensor{cfg: round.DefaultConfig(), pods: map[int]*sensedPod{}}
}

// update takes a sample. It returns the estimates in the order of the snapshot's pods, and the
// supply in cores.
func (s *sensor) update(r *sim.Snapshot) (estimates []demand.Estimate, supply float64) {
	rates := sense.NodeRates{Validity: sense.Valid, Elapsed: r.Now - s.at}
	if rates.Elapsed > 0 {
		rates.Usage, rates.UsageKnown = cpu.FromUsage(r.Usage-s.usage, rates.Elapsed), true
		rates.Kubepods, rates.KubepodsKnown = cpu.FromUsage(r.Kubepods-s.kubepods, rates.Elapsed), true
	}
	s.at, s.usage, s.kubepods = r.Now, r.Usage, r.Kubepods
	s.node = s.gauge.Measure(s.cfg, round.Node{Capacity: cpu.Milli(r.Cores) * cpu.Core, Allocatable: r.Allocatable}, rates)
	supply = s.node.Supply.Cores()

	perBudget := 0.0 // cores per unit of budget, where the node is full
	if s.node.Full {
		budgets := 0.0
		for i := range r.Pods {
			budgets += budget(&r.Pods[i])
		}
		perBudget = supply / budgets
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		known := s.pods[p.ID]
		if known == nil {
			known = &sensedPod{}
			s.pods[p.ID] = known
		} else if r.Now > known.at {
			known.estimate = s.cfg.Demand.Next(known.estimate, known.rate(r.Now, p), cpu.FromCores(perBudget*budget(p)))
		}
		known.at, known.usage, known.pressure, known.periods, known.throttled = r.Now, p.Usage, p.Pressure, p.Periods, p.Throttled
		estimates = append(estimates, known.estimate)
	}
	return estimates, supply
}

// rate is the pod's since the last sample.
func (k *sensedPod) rate(now time.Duration, p *sim.PodSnapshot) sense.Rate {
	elapsed := now - k.at
	rate := sense.Rate{
		Validity: sense.Valid, Elapsed: elapsed, Usage: cpu.FromUsage(p.Usage-k.usage, elapsed), Quota: p.Limit, QuotaKnown: true,
		Pressure: sense.Ratio{Known: true, Value: min(1, (p.Pressure-k.pressure).Seconds()/elapsed.Seconds())},
	}
	if periods := p.Periods - k.periods; periods > 0 {
		rate.ThrottleRatio = min(1, float64(p.Throttled-k.throttled)/float64(periods))
	}
	return rate
}

func budget(p *sim.PodSnapshot) float64 { return float64(demand.Budget(p.Request, p.Spec.Priority)) }

// bidder is a pod that takes part in a division.
type bidder struct {
	pod      *sim.PodSnapshot
	estimate demand.Estimate
	// shadow: its limit cannot be set, as it is not managed or new. It takes part with its demand
	// within its limit, and the kernel's weights give it its request.
	shadow bool
	claim
}

// bidders are the pods that take part in a division of the supply, in cores. As in MBCAS, pods
// whose limits cannot be set take part as well.
func (s *sensor) bidders(r *sim.Snapshot) (bidders []bidder, supply float64) {
	estimates, supply := s.update(r)
	for i := range r.Pods {
		p, e := &r.Pods[i], estimates[i]
		b := bidder{pod: p, estimate: e, claim: claim{weight: budget(p), demand: e.Mean, floor: demand.Entitlement(p.Request, p.Spec.Limit).Cores()}}
		if !p.Spec.Managed() || !e.Warm(s.cfg.Demand) {
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

// targets are the shares of bidders whose limits can be set.
func targets(bidders []bidder, shares []float64) []target {
	var out []target
	for i, b := range bidders {
		if !b.shadow {
			out = append(out, target{b.pod, shares[i]})
		}
	}
	return out
}
