package rival

import (
	"time"

	"github.com/mbcas/mbcas/cpu"
	"github.com/mbcas/mbcas/internal/demand"
	"github.com/mbcas/mbcas/internal/sense"
	"github.com/mbcas/mbcas/internal/sim"
)

// sensor estimates demand as MBCAS does, so that policies which only split differently see the same.
type sensor struct {
	cfg    demand.Config
	pods   map[int]*sensed
	at     time.Duration
	usage  time.Duration
	system float64 // cores used outside of pods
}

// sensed is what is known of one pod.
type sensed struct {
	at, usage          time.Duration
	periods, throttled uint64
	estimate           demand.Estimate
}

func newSensor() *sensor {
	return &sensor{cfg: demand.DefaultConfig(), pods: map[int]*sensed{}}
}

// look takes the counters in and returns the estimates in the order of the reading's pods.
func (s *sensor) look(r *sim.Reading) []demand.Estimate {
	outside := r.Usage - r.Kubepods
	s.system = 0
	if r.Now > s.at {
		s.system = max(0, (outside-s.usage).Seconds()/(r.Now-s.at).Seconds())
	}
	s.at, s.usage = r.Now, outside
	out := make([]demand.Estimate, len(r.Pods))
	for i, p := range r.Pods {
		known := s.pods[p.ID]
		if known == nil {
			known = &sensed{}
			s.pods[p.ID] = known
		} else if r.Now > known.at {
			rate := sense.Rate{Verdict: sense.Fresh, Elapsed: r.Now - known.at, Usage: cpu.FromUsage(p.Usage-known.usage, r.Now-known.at)}
			if periods := p.Periods - known.periods; periods > 0 {
				rate.Throttle = min(1, float64(p.Throttled-known.throttled)/float64(periods))
			}
			known.estimate = s.cfg.Next(known.estimate, rate, 0)
		}
		known.at, known.usage, known.periods, known.throttled = r.Now, p.Usage, p.Periods, p.Throttled
		out[i] = known.estimate
	}
	return out
}

// reserve is the part of a node that MBCAS leaves free, too.
const reserve = 0.10

// bidder is a pod whose limit may be set now.
type bidder struct {
	pod      *sim.PodReading
	estimate demand.Estimate
	claim
}

// market is who takes part in a split, and how many cores there are for them: what is allocatable, less the reserve,
// less what the pods use whose limits can't be set (not managed, or new), less system use beyond what the node keeps for it.
func (s *sensor) market(r *sim.Reading) (bidders []bidder, supply float64) {
	estimates := s.look(r)
	supply = r.Allocatable.Cores()*(1-reserve) - max(0, s.system-(float64(r.Cores)-r.Allocatable.Cores()))
	for i := range r.Pods {
		p, e := &r.Pods[i], estimates[i]
		if !p.Spec.Managed() || !e.Warm(s.cfg) {
			supply -= e.Mean
			continue
		}
		bidders = append(bidders, bidder{pod: p, estimate: e, claim: claim{
			weight: float64(demand.Budget(p.Request, p.Spec.Priority)),
			demand: e.Mean,
			floor:  demand.Floor(p.Request, p.Spec.Limit).Cores(),
		}})
	}
	return bidders, max(0, supply)
}

// claims are those of the bidders.
func claims(bidders []bidder) []claim {
	out := make([]claim, len(bidders))
	for i, b := range bidders {
		out[i] = b.claim
	}
	return out
}
